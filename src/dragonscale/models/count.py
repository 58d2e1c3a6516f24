"""Parameters and cache bytes of a program.

A weight counts once per repeat of its section; one that belongs to the whole program (a tied embedding) only once. A
dim written `e:x` has `e` experts of which a token uses `x`.

The KV cache and other states are named by `cache(...)` ops. Arrays with the dim `s` grow with every token and those
with `m` with every few; the others are states of fixed size. A sliding window or chunk caps the tokens that must be
cached.
"""

from collections.abc import Iterable

from dragonscale.models.program import Section, dim_size
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, ceil_to, minimum, product


def weight_size(section: Section, weight: Array, active: bool = False) -> int:
    """Elements of a weight; with `active` those that one token uses."""
    # `e:x`: x of e experts are used
    return product(dim_size(section.dims, (active and dim.select) or dim.name, weight) for dim in weight.dims)


def parameters(sections: Iterable[Section], active: bool = False) -> dict[str, int]:
    """Parameters by part. With `active`, those that one token's forward pass uses (chosen experts only).

    Looking up a row of a table uses none of it, so `active` leaves the embedding out unless it is also the head. The
    book's counts without embeddings are this without the parts `embed` and `head`.
    """
    by_part: dict[str, int] = {}
    counted: set[str] = set()
    for section in sections:
        for op in section.ops:
            if active and op.function == "lookup":
                continue
            for weight in op.weights:
                key = weight.name  # of a shared weight, which other sections may name too
                if key not in section.shared:
                    key = f"{section.name}.{key}"
                if key in counted:
                    continue
                counted.add(key)
                size = weight_size(section, weight, active) * section.copies(weight)
                by_part[op.part] = by_part.get(op.part, 0) + size
    return by_part


def cache_bytes(
    sections: Iterable[Section], tokens: Number, dtype: str = "bf16", page: int | None = None, hybrid: bool = True
) -> dict[str, Number]:
    """Bytes of cache of one sequence of `tokens`, by section.

    A window needs only its last tokens; `hybrid=False` reserves the whole sequence in every layer, and `page` rounds
    the tokens up to whole pages, as a paged engine does. Fixed states (linear attention) do not grow.
    """
    by_section: dict[str, Number] = {}
    for section in sections:
        arrays = [array for op in section.ops if op.function == "cache" for array in op.inputs]
        if not arrays:
            continue
        window = section.chunk if section.span is None else section.span
        cached = compressed = tokens  # sizes of the dims s and m
        if window is not None and hybrid:
            cached = minimum(tokens, window)
        if section.compress is not None:
            compressed = tokens / section.compress
        if page:
            cached, compressed = ceil_to(cached, page), ceil_to(compressed, page)
        size: Number = 0
        for array in arrays:
            size = size + section.size(array, b=1, s=cached, m=compressed) * dtype_bytes(array.dtype or dtype)
        by_section[section.name] = size * section.repeat
    return by_section


def cache_growth(sections: Iterable[Section], dtype: str = "bf16") -> Number:
    """Bytes that each token adds to the cache, before any window is full. Fixed states add nothing."""
    sections = tuple(sections)
    return sum(cache_bytes(sections, 1, dtype).values()) - sum(cache_bytes(sections, 0, dtype).values())
