"""What is timed to settle the constants of a kernel profile: kinds of work, their sizes and formats.

Each case is there for some constants: few rows for launch and bandwidth, many for the rate inside a tile, odd counts of
rows for the waves and the padding, long contractions with few tiles for the splitting of a contraction. The sizes are
those of real models, since libraries have been tuned on them. The order is by what a case tells: whoever stops early
keeps a list that covers every kind, a bit more thinly.
"""

import functools
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

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
    main, few = dtypes[0], calibrated("sizes")["few_weights"]
    ways = [_matmuls(main), _attention(main), _streams(main), _decodes(main), _experts(main), _backward_matmuls(main)]
    first = list(interleaved(ways, [6, 3, 2, 2, 1, 2]))
    others = [_matmuls(name, few) for name in dtypes[1:]]
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


def _matmuls(dtype: str, weights: Sequence[Sequence[int]] = ()) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for rows, (n, k) in diagonals(sizes["rows"], weights or sizes["weights"]):
        yield BenchCase("matmul", (rows, n, k), dtype)


def _backward_matmuls(dtype: str) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for rows, (n, k) in itertools.product(sizes["backward_rows"], sizes["weights"][:12]):
        yield BenchCase("matmul_dx", (rows, k, n), dtype)
        yield BenchCase("matmul_dw", (k, n, rows), dtype)


def _streams(dtype: str) -> Iterator[BenchCase]:
    for power, kind in itertools.product(calibrated("sizes")["streams"], ("copy", "product", "read")):
        yield BenchCase(kind, (2**power,), dtype)


def _attention(dtype: str) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for sequences, heads in diagonals(sizes["sequences"], sizes["heads"]):
        yield BenchCase("attention", (*sequences, *heads), dtype)
        yield BenchCase("attention_both", (*sequences, *heads), dtype)


def _decodes(dtype: str) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for (batch, keys), heads in diagonals(sizes["caches"], sizes["heads"]):
        if 4 * batch * keys * heads[1] * heads[2] < 2**33:
            yield BenchCase("decode", (batch, keys, *heads), dtype)


def _experts(dtype: str) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for tokens, (hidden, inner, picks, experts) in diagonals(sizes["tokens"], sizes["experts"]):
        # Some compilers spread the rows over all experts: no more than fits then.
        if 2 * tokens * picks * experts * max(hidden, inner) < 2**33:
            yield BenchCase("experts", (tokens, hidden, inner, picks, experts), dtype)


def _collectives(dtype: str, devices: int) -> Iterator[BenchCase]:
    sizes = calibrated("sizes")
    for power, what in itertools.product(sizes["messages"] if devices > 1 else (), sizes["collectives"]):
        yield BenchCase("collective", (2**power, devices), dtype, what)
