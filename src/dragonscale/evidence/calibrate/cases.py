"""What is timed to settle the constants of a kernel profile: kinds of work, their sizes and formats.

Each case is there for some constants: few rows for launch and bandwidth, many for the rate inside a tile, odd counts of
rows for the waves and the padding, long contractions with few tiles for the splitting of a contraction. The sizes are
those of real models, since libraries have been tuned on them. The order is by what a case tells: whoever stops early
keeps a list that covers every kind, a bit more thinly.

Measurements as lines of JSON: one for the machine, one for each case, appended as they are made.

Whoever stops a run, or loses it, has what was measured; the next run with the same file goes on where it ended. A file
of another machine or other software is refused: its times would be mixed up with this one's.
"""

import functools
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.tables import read_regular

A = TypeVar("A")
B = TypeVar("B")
MAIN_FIRST = 160
"""Cases of the main format before others begin."""
WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
"""Bytes of an element."""


@functools.cache
def calibrated(table: str) -> dict[str, Any]:
    """A table of `kernels.toml`."""
    text = (resources.files("dragonscale.evidence.calibrate") / "kernels.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[table]


@dataclass(frozen=True)
class BenchCase:
    """One thing to time: `sizes` in the order of its kind in `kernels.toml`; `what` tells collectives apart."""

    kind: str
    sizes: tuple[int, ...]
    dtype: str = "bf16"
    what: str = ""

    @property
    def id(self) -> str:
        """What is measured, in one word.

        >>> BenchCase("matmul", (16, 4096, 4096)).id
        'matmul/bf16/16x4096x4096'
        """
        return "/".join(filter(None, (self.kind, self.what, self.dtype, "x".join(map(str, self.sizes)))))

    @property
    def flops(self) -> float:
        """Multiplications and additions, for an idea of how long it takes."""
        s = self.sizes
        if self.kind.startswith("matmul"):
            return 2.0 * s[0] * s[1] * s[2]
        if self.kind.startswith("attention"):
            return (2.0 if self.kind == "attention" else 7.0) * s[0] * s[1] ** 2 * s[2] * s[4]
        return 6.0 * s[0] * s[3] * s[1] * s[2] if self.kind == "experts" else 0.0

    @property
    def moved(self) -> float:
        """Bytes of its arrays."""
        s, element = self.sizes, WIDTHS.get(self.dtype, 2)
        if self.kind.startswith("matmul"):
            return element * (s[0] * s[2] + s[1] * s[2]) + 2.0 * s[0] * s[1]
        if self.kind in ("copy", "read", "product", "collective"):
            return float(s[0])
        if self.kind == "experts":
            return 2.0 * (3 * s[1] * s[2] * s[4] + s[0] * s[3] * (2 * s[1] + 3 * s[2]))
        if self.kind in ("dispatch", "round_trip"):
            return 0.0
        queries = 1 if self.kind == "decode" else s[1]
        return 2.0 * s[0] * s[4] * (2 * queries * s[2] + 2 * s[1] * s[3])


def all_cases(dtypes: Sequence[str] = ("bf16",), devices: int = 1) -> list[BenchCase]:
    """Every case, those that tell most first. The first format is measured fully, others by matmuls."""
    main = dtypes[0]
    ways = [
        _pairs(("matmul",), "rows", "weights", main),
        _pairs(("attention", "attention_both"), "sequences", "heads", main),
        _streams(main),
        _pairs(("decode",), "caches", "heads", main),
        _pairs(("experts",), "tokens", "experts", main),
        _backward_matmuls(main),
    ]
    first = list(interleaved(ways, [6, 3, 2, 2, 1, 2]))
    others = [_pairs(("matmul",), "rows", "few_weights", name) for name in dtypes[1:]]
    rest = interleaved([first[MAIN_FIRST:], *others], [16, *(2 for _ in others)])
    host = [BenchCase("dispatch", (100,), main), BenchCase("round_trip", (50,), main)]
    early, late, shared = first[: MAIN_FIRST // 2], first[MAIN_FIRST // 2 : MAIN_FIRST], _collectives(main, devices)
    return list(dict.fromkeys([*host, *early, *shared, *late, *rest]))


def small_cases(dtype: str = "fp32", devices: int = 1) -> list[BenchCase]:
    """A handful of small ones: a trial of the whole way in seconds, on any machine."""
    few = [BenchCase("collective", (2**16, devices), dtype, "all_reduce")] if devices > 1 else []
    return [*(BenchCase(kind, tuple(sizes), dtype) for kind, sizes in calibrated("sizes")["small"]), *few]


def interleaved(ways: Sequence[Iterable[BenchCase]], shares: Sequence[int]) -> Iterator[BenchCase]:
    """So many of each in turn, until all are out.

    >>> ways = [[BenchCase("copy", (size,)) for size in (1, 2, 3)], [BenchCase("read", (9,))]]
    >>> [case.sizes[0] for case in interleaved(ways, [2, 1])]
    [1, 2, 9, 3]
    """
    running = [iter(way) for way in ways]
    while True:
        taken = [case for way, share in zip(running, shares, strict=True) for case in itertools.islice(way, share)]
        if not taken:
            return
        yield from taken


def diagonals(some: Sequence[A], others: Sequence[B]) -> Iterator[tuple[A, B]]:
    """All pairs along diagonals, so that every stretch of them has many of both.

    >>> list(diagonals("ab", [1, 2]))
    [('a', 1), ('b', 2), ('b', 1), ('a', 2)]
    """
    for shift in range(len(some)):
        for place, other in enumerate(others):
            yield some[(place + shift) % len(some)], other


def _pairs(kinds: Sequence[str], some: str, others: str, dtype: str) -> Iterator[BenchCase]:
    """Cases of every pair out of two lists of sizes."""
    sizes = calibrated("sizes")
    for first, second in diagonals(sizes[some], sizes[others]):
        both = (*([first] if isinstance(first, int) else first), *second)
        yield from (BenchCase(kind, both, dtype) for kind in kinds if _fits(kind, both))


def _fits(kind: str, sizes: tuple[int, ...]) -> bool:
    """Whether a device has room for the arrays; some compilers spread the rows of experts over all of them."""
    if kind == "decode":
        batch, keys, _, kv_heads, head = sizes
        return 4 * batch * keys * kv_heads * head < 2**33
    if kind == "experts":
        tokens, hidden, inner, picks, experts = sizes
        return 2 * tokens * picks * experts * max(hidden, inner) < 2**33
    return True


def _backward_matmuls(dtype: str) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for rows, (n, k) in itertools.product(sizes["backward_rows"], sizes["weights"][:12]):
        yield BenchCase("matmul_dx", (rows, k, n), dtype)
        yield BenchCase("matmul_dw", (k, n, rows), dtype)


def _streams(dtype: str) -> Iterator[BenchCase]:
    for power, kind in itertools.product(calibrated("sizes")["streams"], ("copy", "product", "read")):
        yield BenchCase(kind, (2**power,), dtype)


def _collectives(dtype: str, devices: int) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for power, what in itertools.product(sizes["messages"] if devices > 1 else (), sizes["collectives"]):
        yield BenchCase("collective", (2**power, devices), dtype, what)


MAX_RECORD_BYTES = 50_000_000


class Machine(msgspec.Struct, frozen=True, tag="machine", tag_field="line"):
    """Where something was measured: the device as its driver names it, how many, and with which software."""

    device: str
    devices: int
    platform: str
    software: dict[str, str]
    """Versions by name: jax, jaxlib, torch, driver …"""
    timed_with: str
    """`jax` or `torch`."""
    date: str
    cache_bytes: int = 0
    memory_bytes: int = 0


class TimedCase(msgspec.Struct, frozen=True, tag="case", tag_field="line", omit_defaults=True):
    """A case and its seconds; `failed` says why there are none. `spread` is the distance of the quartiles over the
    median."""

    kind: str
    sizes: tuple[int, ...]
    dtype: str
    seconds: float = 0.0
    what: str = ""
    spread: float = 0.0
    repeats: int = 0
    compile_s: float = 0.0
    failed: str = ""

    @property
    def case(self) -> BenchCase:
        return BenchCase(self.kind, self.sizes, self.dtype, self.what)


@dataclass(frozen=True)
class Measurements:
    """A file of measurements."""

    machine: Machine
    rows: list[TimedCase]

    @property
    def good(self) -> list[TimedCase]:
        """Those that have a time."""
        return [row for row in self.rows if not row.failed and row.seconds > 0]


def read_measurements(path: str | Path) -> Measurements:
    """A file as `dscale calibrate` writes it. A last line that was cut off is left out."""
    shown = shorten(str(path))
    lines = read_regular(Path(path), "File of measurements", MAX_RECORD_BYTES).split(b"\n")
    decoder = msgspec.json.Decoder(Machine | TimedCase)
    machine: Machine | None = None
    rows: dict[str, TimedCase] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if place == len(lines):
                continue
            raise InputError(f"Line {place} of {shown} is no measurement of `dscale calibrate`.") from None
        if isinstance(found, Machine):
            machine = machine or found
        elif _possible(found):
            rows[found.case.id] = found
        else:
            raise InputError(f"Line {place} of {shown} is no measurement of `dscale calibrate`.")
    if machine is None:
        raise InputError(f"The file {shown} does not say which machine was measured; start another one.")
    return Measurements(machine, list(rows.values()))


def _possible(row: TimedCase) -> bool:
    """Whether a row is of a kind there is, with sizes and a time that can be."""
    kind = calibrated("kinds").get(row.kind)
    sizes = kind is not None and len(row.sizes) == len(kind["sizes"]) and all(0 < size < 1e13 for size in row.sizes)
    return sizes and 0 <= row.seconds < 1e6


def begin(path: Path, machine: Machine) -> Measurements:
    """The file to append to: what is there already, or a new one with its first line."""
    if path.exists() and path.stat().st_size:
        found = read_measurements(path)
        _same(found.machine, machine, path)
        _close_line(path)
        return found
    append(path, [machine])
    return Measurements(machine, [])


def append(path: Path, lines: Iterable[Machine | TimedCase]) -> None:
    """Add lines at the end."""
    try:
        with path.open("ab") as file:
            for line in lines:
                file.write(msgspec.json.encode(line) + b"\n")
    except OSError as error:
        raise InputError(f"The file {shorten(str(path))} cannot be written: {error.strerror}.") from None


def _close_line(path: Path) -> None:
    """A run that was stopped may have left half a line: it is cut off."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _same(before: Machine, now: Machine, path: Path) -> None:
    for name in ("device", "devices", "timed_with", "software"):
        if getattr(before, name) != getattr(now, name):
            there, here = (_shown(getattr(machine, name)) for machine in (before, now))
            other = f"was measured with another {name} ({there}; here: {here})"
            raise InputError(f"The file {shorten(str(path))} {other}; give another --records.")


def _shown(value: object) -> str:
    return ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else str(value)
