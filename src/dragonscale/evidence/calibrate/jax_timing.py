"""Timing in JAX: many copies in one program, called so often that the device is never without work.

A repetition calls a program n times and 2n times and takes the difference, so that the way to the device and back is
not counted. Where a call keeps the device busy for longer than it costs the host, that is all. Calls that are shorter
are queued behind some long passes over memory: the device comes to them when all are waiting, and works through them
without a pause.
"""

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.evidence.calibrate import timing
from dragonscale.evidence.calibrate.cases import BenchCase, Machine
from dragonscale.evidence.calibrate.jax_programs import CHAINED, compiled_collective, copies, cutting, program_of
from dragonscale.evidence.calibrate.timing import Bench, Clocked

AHEAD_S = 6e-3
"""Seconds of work that is queued before calls that are shorter for the device than for the host."""
SHORT_S = 30e-6
"""Kernels below this may be shorter than the launching thread takes, which nobody sees."""
BUSY = 1.5
"""A device that is busy for so many times what a call costs the host never waits for it."""


@dataclass(frozen=True)
class CompiledCase:
    """A case ready to run: what makes its arrays, what works on them, how many copies that holds."""

    case: BenchCase
    makers: list[Any]
    work: Any
    sets: int


class JaxBench(Bench):
    """Times with JAX on its default device."""

    def __init__(self, small: bool = False) -> None:
        # a plugin for GPUs that finds none tells it with a traceback, which says nothing that `machine` does not
        logging.getLogger("jax._src.xla_bridge").setLevel(logging.CRITICAL)
        self.device = jax.devices()[0]
        self.platform = str(self.device.platform)
        stats = (self.device.memory_stats() or {}) if self.platform != "cpu" else {}
        self.memory = int(stats.get("bytes_limit", 2**32))
        self.cache = 2**20 if small else 2**25 if self.platform == "cpu" else 2**26
        self.most = timing.MOST_SETS if self.platform != "cpu" else 3
        self.cutters: dict[tuple[tuple[int, ...], str], Any] = {}
        count = 2**20 if small else 2**24 if self.platform == "cpu" else min(2**28, self.memory // 64)
        kind = jnp.float32 if self.platform == "cpu" else jnp.bfloat16
        self.pool = jax.jit(lambda key: jax.random.normal(key, (count,), kind))(jax.random.key(0))
        self.ahead = self._ahead() if self.platform != "cpu" else None

    def machine(self) -> Machine:
        device = str(self.device.device_kind), len(jax.local_devices()), self.platform
        software, date = timing.versions("jax", "jaxlib"), time.strftime("%Y-%m-%d")
        return Machine(*device, software, "jax", date, self.cache, self.memory)

    def dtypes(self) -> Sequence[str]:
        if self.platform == "cpu":
            return ("fp32",)
        kind = str(self.device.device_kind).lower()
        narrow = any(name in kind for name in ("h100", "h200", "h800", "b200", "b300", "l40", "4090", "5090", "v7"))
        return ("bf16", *(["fp8"] if narrow else []), "fp16", "fp32", "int8")

    def prepare(self, case: BenchCase) -> Any:
        if case.kind in ("dispatch", "round_trip"):
            return case
        if case.kind == "collective":
            return compiled_collective(case)
        program = program_of(case)
        most = 2 if case.kind == "experts" else self.most  # dozens of kernels each: slow to compile
        sets = min(most, timing.sets_for(max(program.bytes, case.moved), self.cache, 0.25 * self.memory))
        makers = [self._cutter(shape, dtype) for shape, dtype in program.arrays]
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in program.arrays * sets]
        work = copies(program, sets, case.kind in CHAINED)
        return CompiledCase(case, makers, jax.jit(work).lower(*shapes).compile(), sets)

    def measure(self, prepared: Any) -> Clocked:
        if isinstance(prepared, BenchCase):
            return self._host(prepared)
        if not isinstance(prepared, CompiledCase):
            return self._timed(prepared.call, prepared.sets)
        made = [make(self.pool, 4099 * at) for at, make in enumerate(prepared.makers * prepared.sets)]
        arrays = jax.block_until_ready(made)
        return self._timed(lambda: prepared.work(*arrays), prepared.sets)

    def _cutter(self, shape: tuple[int, ...], dtype: str) -> Any:
        """The compiled function that makes an array, kept for other cases."""
        if (shape, dtype) not in self.cutters:
            self.cutters[shape, dtype] = jax.jit(cutting(shape, dtype)).lower(self.pool, 0).compile()
        return self.cutters[shape, dtype]

    def _timed(self, call: Callable[[], Any], sets: int) -> Clocked:
        """Seconds of one copy."""
        for _ in range(2):  # a program's first calls allocate and record its graph
            jax.block_until_ready(call())
        issued, done = (seconds / 8 for seconds in _issue(call, 8))
        ahead = self.ahead if done < max(BUSY * issued, SHORT_S * sets) else None
        calls = timing.calls_for(done)
        found = []
        for _ in range(timing.REPEATS if done * calls < 0.1 else 3):
            once = _issue(call, calls, ahead)[1]
            # A CPU computes while it is called: there is no way to it to be taken off, and others' work comes between.
            spent = once if self.platform == "cpu" else _issue(call, 2 * calls, ahead)[1] - once
            found.append(spent / (calls * sets))
        return timing.settle(found)

    def _ahead(self) -> Callable[[], Any]:
        """Passes over a large array that take `AHEAD_S`."""
        size = min(2**30, self.memory // 32)
        array = jnp.ones((size,), jnp.float32)
        step = jax.jit(lambda x: x * 1.0001)
        jax.block_until_ready(step(array))
        one = statistics.median(_issue(lambda: step(array), 1)[1] for _ in range(3))
        passes = max(1, round(AHEAD_S / one))

        def ahead() -> Any:
            out = None
            for _ in range(passes):  # one result at a time: each is as large as the array
                out = step(array)
            return out

        return ahead

    def _host(self, case: BenchCase) -> Clocked:
        step, start = jax.jit(lambda x: x + 1), jnp.ones((128,), jnp.float32)
        jax.block_until_ready(step(step(start)))
        return timing.host_times(case, start, step, jax.block_until_ready)


def _issue(call: Callable[[], Any], calls: int, ahead: Callable[[], Any] | None = None) -> tuple[float, float]:
    """Seconds until so many calls are given to the device, and until they are done, with other work queued before
    them."""
    began = time.perf_counter()
    out = ahead() if ahead else None
    for _ in range(calls):
        out = call()
    issued = time.perf_counter() - began
    jax.block_until_ready(out)
    return issued, time.perf_counter() - began
