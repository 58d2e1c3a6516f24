"""Through the list of cases until all are timed or the time is up, with JAX where it is installed, PyTorch where that
is, or what was asked for.

Compiling takes far longer than timing, and would disturb it: a handful of cases is compiled at once on a few threads,
then timed one after the other with nothing else running. A case that fails says why in its line, and the next one
follows.
"""

import importlib.util
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import BenchCase, Measurements, TimedCase, append, begin
from dragonscale.evidence.calibrate.timing import Bench
from dragonscale.installing import install_hint
from dragonscale.listener import Listener

BENCHES = ("jax", "torch")
TOGETHER = 8
WORKERS = 2


def bench_with(name: str = "", small: bool = False) -> Bench:
    """The bench of a software; empty takes JAX if it is there, else PyTorch."""
    there = [one for one in BENCHES if importlib.util.find_spec(one)]
    if name and name not in there:
        raise InputError(f"--with {name} needs {'PyTorch' if name == 'torch' else 'JAX'} to be installed here.")
    if not there:
        raise InputError(f"To measure, JAX or PyTorch has to be installed: {install_hint('jax')}")
    if (name or there[0]) == "torch":
        from dragonscale.evidence.calibrate.torch_timing import TorchBench

        return TorchBench(small)
    from dragonscale.evidence.calibrate.jax_timing import JaxBench

    return JaxBench(small)


def measure(
    bench: Bench, cases: Sequence[BenchCase], path: Path, seconds: float, listener: Listener, log: bool = True
) -> Measurements:
    """Time what the file does not have yet, for at most about so many seconds; `log`: with a line for each."""
    known = begin(path, bench.machine())
    done = {row.case.id for row in known.rows}
    left = [case for case in cases if case.id not in done]
    if done:
        listener.note(f"{len(done)} measurements are in {path.name} already; {len(left)} are left.")
    started, rows = time.monotonic(), list(known.rows)
    total = max(1, round(seconds))
    for row in timed(bench, left, started + seconds):
        append(path, [row])
        rows.append(row)
        spent = time.monotonic() - started
        if log:
            listener.log(f"{spent:6.1f} s  {row.case.id:<44} {_shown(row)}")
        listener.step(min(total, max(round(spent), round(total * (len(rows) - len(done)) / max(1, len(left))))), total)
    return Measurements(known.machine, rows)


def timed(bench: Bench, cases: Sequence[BenchCase], until: float) -> Iterator[TimedCase]:
    """Each case's time, a handful compiled at once, until the clock says to stop."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(cases), TOGETHER):
            if time.monotonic() > until:
                return
            waiting = [(case, pool.submit(_prepared, bench, case)) for case in cases[start : start + TOGETHER]]
            for _, future in waiting:
                future.exception()
            for case, future in waiting:
                if time.monotonic() > until + 5:
                    return
                yield _timed(bench, case, future)


def _prepared(bench: Bench, case: BenchCase) -> tuple[Any, float]:
    began = time.monotonic()
    return bench.prepare(case), time.monotonic() - began


def _timed(bench: Bench, case: BenchCase, future: "Future[tuple[Any, float]]") -> TimedCase:
    row = TimedCase(case.kind, case.sizes, case.dtype, what=case.what)
    try:
        prepared, compiling = future.result()
        found = bench.measure(prepared)
    except Exception as error:  # whatever a compiler, a driver or the memory objects to: the next case may do
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        return replace(row, failed=reason)
    if found.seconds <= 0:
        return replace(row, failed="shorter than the clock tells")
    seconds, spread, compile_s = float(f"{found.seconds:.5g}"), round(found.spread, 4), round(compiling, 2)
    return replace(row, seconds=seconds, spread=spread, repeats=found.repeats, compile_s=compile_s)


def _shown(row: TimedCase) -> str:
    return row.failed or f"{row.seconds * 1e6:10.2f} us  spread {row.spread:.1%}  compiled in {row.compile_s:.1f} s"
