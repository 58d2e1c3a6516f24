"""Rows of a search: each distinct mesh and microbatch once, and what rows have in common found once.

A layer's kernels depend only on the shapes that are left on a chip, its moves on the mesh, its state on neither the
microbatch nor the remat policy. `alike` finds rows that agree in some numbers; whatever is costed for the distinct ones
is spread back over all (`spread`). What is worked out for rows stays with them (`Rows.keep`), under a key that names
what it depends on, as long as their block is searched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy

from dragonscale.physics.sharding.placement import Wires, lay_wires
from dragonscale.training.evaluation import Job, make_setting
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.setting import Setting
from dragonscale.training.stages import StageLayers, stage_layers

SHAPE = ("expert", "context", "tensor", "microbatch")
"""What decides the shapes that are left on a chip."""
STATE = ("fsdp", "expert", "context", "tensor", "pipe")
"""What decides a chip's share of the state."""


def take(value: Any, part: Any) -> Any:
    """The rows `part` (a slice, a list of slices, or places) of every array in a record; rows are the last axis."""
    if isinstance(value, numpy.ndarray):
        if not value.ndim or value.shape[-1] == 1:
            return value
        return (
            numpy.concatenate([value[..., one] for one in part], axis=-1)
            if isinstance(part, list)
            else value[..., part]
        )
    if isinstance(value, dict):
        return {key: take(one, part) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(take(one, part) for one in value)
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ not in ("Slice", "Chip"):
        return replace(value, **{item.name: take(getattr(value, item.name), part) for item in fields(value)})
    return value


def alike(numbers: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, Any]:
    """Places of the first row of each distinct tuple of some numbers, and for each row which of them it is like.

    >>> first, place = alike({"tensor": numpy.array([8, 4, 8])}, ("tensor",))
    >>> first.tolist(), place.tolist()
    ([1, 0], [1, 0, 1])
    """
    key = numpy.zeros(len(numbers[names[0]]), numpy.int64)
    for name in names:
        values, code = numpy.unique(numbers[name], return_inverse=True)
        key = key * len(values) + code
    _, first, place = numpy.unique(key, return_index=True, return_inverse=True)
    return first, place


@dataclass
class Shapes:
    """The distinct shapes that are left on a chip over all blocks of one structure: what depends on nothing else is
    found once for all of them, and `known` holds it."""

    numbers: dict[str, Any]
    wires: Wires
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def keep(self, key: tuple[Any, ...], cost: Callable[[Any, Wires], Any]) -> Any:
        """What `cost` says of every shape, kept under a key."""
        if key not in self.known:
            self.known[key] = cost(self.numbers["microbatch"], self.wires)
        return self.known[key]


def shapes_of(job: Job, blocks: list[dict[str, Any]]) -> tuple[Shapes, list[Any]]:
    """The shapes of some blocks, and for each block which of them its rows have."""
    whole = {name: numpy.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    distinct, place = alike(whole, SHAPE)
    numbers = {name: values[distinct] for name, values in whole.items()}
    ends = numpy.cumsum([len(block["pipe"]) for block in blocks])[:-1]
    return Shapes(numbers, lay_wires(numbers, job.slice, AXES)), numpy.split(place, ends)


@dataclass
class Rows:
    """Distinct meshes and microbatches of one structure as arrays: whether experts spread over `tensor` (`folded`), and
    the dims that these meshes do not divide. `known` holds what was worked out for them so far; `shapes`, if given, are
    those of all blocks, and `which` of them each row has."""

    job: Job
    numbers: dict[str, Any]
    folded: bool = True
    undivided: dict[str, Any] = field(default_factory=dict)
    shapes: Shapes | None = None
    which: Any = None
    wires: Wires = field(init=False)
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wires = lay_wires(self.numbers, self.job.slice, AXES)

    def __len__(self) -> int:
        return len(self.numbers["pipe"])

    def keep(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is kept under a key, made when it is first asked for."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def setting(self, plan: Plan, detail: bool = False) -> Setting:
        """The setting of these rows under the words of a plan; with `detail` for bounds too."""
        return make_setting(self.job, plan, self.folded, self.undivided, detail)

    def spread(self, names: tuple[str, ...], cost: Callable[[Any, Wires], Any], key: tuple[Any, ...] = ()) -> Any:
        """What `cost` says of (microbatches, wires), asked once for rows that are alike in some numbers; of shapes,
        under a key that names all else it depends on, once for all blocks."""
        if names == SHAPE and key and self.shapes is not None:
            return take(self.shapes.keep(key, cost), self.which)
        distinct, place = self.keep(("alike", *names), lambda: alike(self.numbers, names))
        wires = self.keep(("wires", *names), lambda: take(self.wires, distinct))
        return take(cost(self.numbers["microbatch"][distinct], wires), place)


@dataclass(frozen=True)
class Chosen:
    """Some rows (a slice or places), with the number of chunks per rank of each: what plans of one batch have in common
    apart from their words."""

    numbers: dict[str, Any]
    wires: Wires
    layers: StageLayers
    microbatches: Any
    places: Any

    def __len__(self) -> int:
        return len(self.numbers["pipe"])


def choose(rows: Rows, places: Any, virtual: Any, layout: str = "") -> Chosen:
    """Rows to be judged with `virtual` chunks per rank (an array as long as the places)."""
    numbers, wires = take((rows.numbers, rows.wires), places)
    numbers = {name: numpy.broadcast_to(values, len(virtual)) for name, values in numbers.items()}
    layers = stage_layers(rows.job.model.program().order, numbers["pipe"], virtual, layout)
    copies = wires.mesh.size("data", "fsdp", "expert")
    microbatches = float(rows.job.batch) / (copies * numbers["microbatch"])
    return Chosen(numbers | {"virtual": virtual}, wires, layers, microbatches, places)
