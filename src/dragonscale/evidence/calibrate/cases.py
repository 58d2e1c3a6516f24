"""What is timed to settle the constants of a kernel profile: kinds of work, their sizes and formats.

Each case is there for some constants: few rows for launch and bandwidth, many for the rate inside a tile, odd counts of
rows for the waves and the padding, long contractions with few tiles for the splitting of a contraction. The sizes are
those of real models, since libraries have been tuned on them. The order is by what a case tells: whoever stops early
keeps a list that covers every kind, a bit more thinly.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

SIZES = {
    "matmul": ("m", "n", "k"),
    "matmul_dx": ("m", "n", "k"),
    "matmul_dw": ("m", "n", "k"),
    "copy": ("bytes",),
    "read": ("bytes",),
    "product": ("bytes",),
    "attention": ("batch", "tokens", "heads", "kv_heads", "head_dim"),
    "attention_both": ("batch", "tokens", "heads", "kv_heads", "head_dim"),
    "decode": ("batch", "keys", "heads", "kv_heads", "head_dim"),
    "experts": ("tokens", "hidden", "inner", "picks", "experts"),
    "collective": ("bytes", "devices"),
    "dispatch": ("calls",),
    "round_trip": ("calls",),
}
"""The sizes of a case by kind, in order. Bytes are all that are read and written. `matmul_dx` has its weights the other
way round, `matmul_dw` contracts over rows, as the backward pass does; `attention_both` is a forward and a backward
pass; `dispatch` is the host's part of a call, `round_trip` a call that is waited for."""

_WEIGHTS = (
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (2048, 2048),
    (8192, 8192),
    (10240, 8192),
    (6144, 4096),
    (8192, 2048),
    (2048, 8192),
    (28672, 8192),
    (8192, 28672),
    (5120, 5120),
    (13824, 5120),
    (3072, 2048),
    (5120, 13824),
    (128256, 4096),
    (18944, 3584),
    (3584, 18944),
    (1536, 7168),
    (32000, 2048),
    (2560, 9728),
    (4608, 3584),
)
_ROWS = (1, 4096, 64, 512, 16, 8192, 128, 2048, 256, 1024, 333, 16384, 32, 100, 3000, 768, 8)
_HEADS = ((32, 8, 128), (16, 16, 128), (32, 8, 64), (64, 8, 128), (12, 12, 64), (40, 8, 128), (24, 8, 128), (8, 1, 128))
_SEQUENCES = (
    (1, 4096),
    (4, 2048),
    (8, 1024),
    (1, 8192),
    (2, 4096),
    (16, 512),
    (1, 1024),
    (1, 2048),
    (2, 8192),
    (1, 16384),
)
_CACHES = ((32, 2048), (1, 8192), (128, 1024), (8, 8192), (64, 4096), (16, 512), (4, 32768), (256, 2048), (2, 2048))
_EXPERTS = ((4096, 14336, 2, 8), (2048, 768, 8, 128), (2880, 2880, 4, 32), (2048, 1408, 6, 64))
_TOKENS = (16, 1024, 4096, 128, 1, 8192)
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


@dataclass(frozen=True)
class BenchCase:
    """One thing to time: `sizes` in the order that `SIZES` gives for its kind; `what` tells collectives apart."""

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


MAIN_FIRST = 160
"""Cases of the main format before others begin."""
WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
"""Bytes of an element."""


def all_cases(dtypes: Sequence[str] = ("bf16",), devices: int = 1) -> list[BenchCase]:
    """Every case, those that tell most first. The first format is measured fully, others by matmuls."""
    main = dtypes[0]
    ways = [_matmuls(main), _attention(main), _streams(main), _decodes(main), _experts(main), _backward_matmuls(main)]
    host = [BenchCase("dispatch", (100,), main), BenchCase("round_trip", (50,), main)]
    first = list(interleaved(ways, [6, 3, 2, 2, 1, 2]))
    few = ((4096, 4096), (28672, 4096), (8192, 8192), (4096, 14336))
    others = [_matmuls(name, few) for name in dtypes[1:]]  # fp8 takes a compiler twenty times as long
    rest = interleaved([first[MAIN_FIRST:], *others], [16, *(2 for _ in others)])
    found = [
        *host,
        *first[: MAIN_FIRST // 2],
        *_collectives(main, devices),
        *first[MAIN_FIRST // 2 : MAIN_FIRST],
        *rest,
    ]
    return list(dict.fromkeys(found))


def small_cases(dtype: str = "fp32", devices: int = 1) -> list[BenchCase]:
    """A handful of small ones: a trial of the whole way in seconds, on any machine."""
    matmuls = [BenchCase("matmul", (m, n, k), dtype) for n, k in ((128, 256), (256, 128)) for m in (1, 16, 128, 256)]
    rest = [
        BenchCase("copy", (2**20,), dtype),
        BenchCase("copy", (2**23,), dtype),
        BenchCase("attention", (1, 128, 4, 2, 32), dtype),
        BenchCase("attention", (2, 256, 4, 2, 32), dtype),
        BenchCase("attention_both", (2, 256, 4, 2, 32), dtype),
        BenchCase("decode", (4, 256, 4, 2, 32), dtype),
        BenchCase("experts", (16, 64, 64, 2, 4), dtype),
        BenchCase("dispatch", (20,), dtype),
        BenchCase("round_trip", (10,), dtype),
    ]
    few = [BenchCase("collective", (2**16, devices), dtype, "all_reduce")] if devices > 1 else []
    return [*matmuls, *rest, *few]


def interleaved(ways: Sequence[Iterable[BenchCase]], shares: Sequence[int]) -> Iterator[BenchCase]:
    """So many of each in turn, until all are out.

    >>> [
    ...     case.sizes[0]
    ...     for case in interleaved(
    ...         [[BenchCase("copy", (size,)) for size in (1, 2, 3)], [BenchCase("read", (9,))]], [2, 1]
    ...     )
    ... ]
    [1, 2, 9, 3]
    """
    running = [iter(way) for way in ways]
    while True:
        taken = [case for way, share in zip(running, shares, strict=True) for case in itertools.islice(way, share)]
        if not taken:
            return
        yield from taken


def _matmuls(dtype: str, weights: Sequence[tuple[int, int]] = _WEIGHTS) -> Iterator[BenchCase]:
    """All weights by all rows along diagonals, so that every stretch of the list has many of both."""
    for shift in range(len(_ROWS)):
        for place, (n, k) in enumerate(weights):
            yield BenchCase("matmul", (_ROWS[(place + shift) % len(_ROWS)], n, k), dtype)


def _backward_matmuls(dtype: str) -> Iterator[BenchCase]:
    for rows in (4096, 8192, 16384):
        for n, k in _WEIGHTS[:12]:
            yield BenchCase("matmul_dx", (rows, k, n), dtype)
            yield BenchCase("matmul_dw", (k, n, rows), dtype)


def _streams(dtype: str) -> Iterator[BenchCase]:
    for size in (2**24, 2**31, 2**16, 2**28, 2**20, 2**26, 2**33, 2**22, 2**30, 2**14):
        yield BenchCase("copy", (size,), dtype)
        yield BenchCase("product", (size,), dtype)
        yield BenchCase("read", (size,), dtype)


def _attention(dtype: str) -> Iterator[BenchCase]:
    for shift in range(len(_SEQUENCES)):
        for place, heads in enumerate(_HEADS):
            sizes = (*_SEQUENCES[(place + shift) % len(_SEQUENCES)], *heads)
            yield BenchCase("attention", sizes, dtype)
            yield BenchCase("attention_both", sizes, dtype)


def _decodes(dtype: str) -> Iterator[BenchCase]:
    for shift in range(len(_CACHES)):
        for place, heads in enumerate(_HEADS):
            batch, keys = _CACHES[(place + shift) % len(_CACHES)]
            if 4 * batch * keys * heads[1] * heads[2] < 2**33:
                yield BenchCase("decode", (batch, keys, *heads), dtype)


def _experts(dtype: str) -> Iterator[BenchCase]:
    for shift in range(len(_TOKENS)):
        for place, (hidden, inner, picks, experts) in enumerate(_EXPERTS):
            tokens = _TOKENS[(place + shift) % len(_TOKENS)]
            # Some compilers spread the rows over all experts: no more than fits then.
            if 2 * tokens * picks * experts * max(hidden, inner) < 2**33:
                yield BenchCase("experts", (tokens, hidden, inner, picks, experts), dtype)


def _collectives(dtype: str, devices: int) -> Iterator[BenchCase]:
    if devices < 2:
        return
    for size in (2**20, 2**26, 2**14, 2**23, 2**29, 2**17):
        for what in _COLLECTIVES:
            yield BenchCase("collective", (size, devices), dtype, what)
