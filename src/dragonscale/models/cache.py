"""A reading of a program: what decoding must remember, in bytes.

`cache(...)` lines name it. Arrays with the dim `s` grow with every token and those with `m` with every few; the rest
are a state of fixed size. A sliding window or chunk caps the tokens ideally kept.
"""

from collections.abc import Iterable

from dragonscale.models.program import Section
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, ceil_to, minimum


def cache_bytes(
    sections: Iterable[Section], tokens: Number, dtype: str = "bf16", page: int | None = None, hybrid: bool = True
) -> dict[str, Number]:
    """Bytes that one sequence of `tokens` keeps while decoding, by section.

    Ideally a window keeps only its last tokens; `hybrid=False` reserves the whole sequence in every layer, and `page`
    rounds what is kept up to whole pages, as a paged engine does. Fixed states (linear attention) do not grow.
    """
    kept: dict[str, Number] = {}
    for section in sections:
        caches = [op for op in section.ops if op.function == "cache"]
        if not caches:
            continue
        cap = section.span if section.span is not None else section.chunk
        held = minimum(tokens, cap) if cap is not None and hybrid else tokens
        past = tokens / section.compress if section.compress is not None else tokens
        held, past = (ceil_to(held, page), ceil_to(past, page)) if page else (held, past)
        size = sum(
            section.size(array, b=1, s=held, m=past) * dtype_bytes(array.dtype or dtype)
            for op in caches
            for array in op.inputs
        )
        kept[section.name] = size * section.repeat
    return kept


def cache_growth(sections: Iterable[Section], dtype: str = "bf16") -> Number:
    """Bytes that each token adds, before any window is full. Fixed states add nothing."""
    every = tuple(sections)
    return sum(cache_bytes(every, 1, dtype).values()) - sum(cache_bytes(every, 0, dtype).values())
