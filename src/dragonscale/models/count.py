"""A reading of a program: its parameters, by part.

Every weight once per repeat of its section; a weight that belongs to the whole program (a tied embedding) only once. A
dim written `e:x` holds `e` experts of which a token uses `x`.

A reading of a program: what decoding must remember, in bytes.

`cache(...)` lines name it. Arrays with the dim `s` grow with every token and those with `m` with every few; the rest
are a state of fixed size. A sliding window or chunk caps the tokens ideally kept.
"""

from collections.abc import Iterable

from dragonscale.models.program import Section, dim_size
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, ceil_to, minimum, product


def weight_size(section: Section, weight: Array, active: bool = False) -> int:
    """Elements of a weight; of those a token uses if `active`."""
    return product(
        dim_size(section.dims, dim.select if dim.select and active else dim.name, weight) for dim in weight.dims
    )


def parameters(sections: Iterable[Section], active: bool = False) -> dict[str, int]:
    """Parameters by part. With `active`, those that one token's forward pass uses (chosen experts only).

    Looking up a row of a table uses none of it, so `active` leaves the embedding out unless it is also the head. The
    book's counts without embeddings are this without the parts `embed` and `head`.
    """
    by_part: dict[str, int] = {}
    seen: set[str] = set()
    for section in sections:
        for op in section.ops:
            if active and op.function == "lookup":
                continue
            for weight in op.weights:
                whole = weight.name in section.shared
                key = weight.name if whole else f"{section.name}.{weight.name}"
                if key in seen:
                    continue
                seen.add(key)
                size = weight_size(section, weight, active) * (1 if whole else section.repeat)
                by_part[op.part] = by_part.get(op.part, 0) + size
    return by_part


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
