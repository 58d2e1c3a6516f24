"""A reading of a program: its parameters, by part.

Every weight once per repeat of its section; a weight that belongs to the whole program (a tied embedding) only once. A
dim written `e:x` holds `e` experts of which a token uses `x`.
"""

from collections.abc import Iterable

from dragonscale.models.program import Section, dim_size
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import product


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
