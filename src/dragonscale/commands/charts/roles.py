"""What each term of a bill and each part of memory means, as a colour: the same in every chart, in the order of a
stack.

Compute comes first, then what HBM takes, then the network by mesh axis, then waiting (`roles.toml`). Names are those of
`commands/train` and `commands/serve`; a part that a model names itself (`vision matmuls`) is compute where it ends in
`matmuls`.

>>> time_role("mlp matmuls"), time_role("vision matmuls"), time_role("gradient reduction"), time_role("something new")
('compute', 'compute:3', 'data', 'overhead')

And what is said where there is nothing to draw.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.stacks import PartStack, StackPart
from dragonscale.errors import InputError

TABLE: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("roles.toml").read_text(encoding="utf-8"))
TIME, MEMORY, SPLITS, _SERVED = (TABLE[name] for name in ("time", "memory", "splits", "served"))
_TIME_ORDER, _MEMORY_ORDER = list(TIME), list(MEMORY)


def time_role(name: str) -> str:
    """The colour of a term of a step."""
    role = TIME.get(name)
    if role:
        return role
    if name.endswith("matmuls"):
        return "compute:3"
    if "collectives" in name:
        return "tensor:2"
    return "overhead"


def time_parts(rows: Iterable[tuple[str, float, float]]) -> tuple[StackPart, ...]:
    """Terms (name, exposed, hidden) as parts of a bar, in the order of the stack."""
    parts = [StackPart(name, shown, time_role(name), hidden) for name, shown, hidden in rows if shown > 0 or hidden > 0]
    return tuple(sorted(parts, key=lambda part: _place(part, _TIME_ORDER)))


def term_parts(terms: Iterable[Any]) -> tuple[StackPart, ...]:
    """Terms of a bill with what is exposed of each, and what is hidden."""
    return time_parts((term.name, term.exposed_s, max(term.expected_s - term.exposed_s, 0.0)) for term in terms)


def served_memory(use: Any) -> dict[str, float]:
    """What an engine holds on a chip, by part."""
    return {name: getattr(use, field) for name, field in _SERVED.items()}


def memory_parts(rows: Iterable[tuple[str, float]]) -> tuple[StackPart, ...]:
    """What is held (name, bytes) as parts of a bar, in the order of the stack."""
    parts = [StackPart(name, size, MEMORY.get(name, "workspace:2")) for name, size in rows if size > 0]
    return tuple(sorted(parts, key=lambda part: _place(part, _MEMORY_ORDER)))


def memory_stack(name: str, rows: Iterable[tuple[str, float]], used: float, limit: float) -> PartStack:
    """A bar of what is held (name, bytes), with how much that is of what there is."""
    return PartStack(name, memory_parts(rows), f"{amount(used, 'bytes')} of {amount(limit, 'bytes')}")


def _place(part: StackPart, order: list[str]) -> float:
    """Where a part stands; what the table does not name comes after what has its colour, or last."""
    if part.name in order:
        return order.index(part.name)
    # a name that is not in the table stands after the last one of its colour
    for index in reversed(range(len(order))):
        if TIME.get(order[index], MEMORY.get(order[index])) == part.role:
            return index + 0.5
    return len(order)


def nothing_to_draw(why: str) -> InputError:
    """The error where an answer has nothing that a picture could show."""
    return InputError(f"There is nothing to draw: {why}.")
