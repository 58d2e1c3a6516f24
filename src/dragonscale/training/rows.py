"""Rows of a search: each distinct mesh and microbatch once, and what rows have in common found once.

`alike` finds rows that agree in some numbers; `SharedTimer` asks for the time of each distinct kernel once; `take` picks
rows out of whole records. What is worked out for rows stays with them (`Rows.keep`) as long as their block is searched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy

from dragonscale.collectives import Ring
from dragonscale.collectives.profile_file import profile_for
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.placement import Wires, lay_wires
from dragonscale.training.cost import Work
from dragonscale.training.evaluation import IDEAL, Job
from dragonscale.training.layers import Layer, Travel
from dragonscale.training.memory import Held
from dragonscale.training.passes import Pass
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.stages import Deal, deal_layers
from dragonscale.training.step import Setting
from dragonscale.training.timers import PeakTimer, expected_timer

_NESTED = (Layer, Work, Travel, Held, Wires, Ring, Pass)


def take(value: Any, part: Any, taken: dict[int, Any] | None = None) -> Any:
    """The rows `part` (a slice, a list of slices, or places) of every array in a record; rows are the last axis. `taken`
    remembers arrays, for records that hold the same one several times."""
    if isinstance(value, numpy.ndarray):
        if taken is None:
            return _rows_of(value, part)
        if id(value) not in taken:
            taken[id(value)] = _rows_of(value, part)
        return taken[id(value)]
    if isinstance(value, dict):
        return {key: take(one, part, taken) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(take(one, part, taken) for one in value)
    if isinstance(value, _NESTED):
        return replace(value, **{item.name: take(getattr(value, item.name), part, taken) for item in fields(value)})
    return value


def _rows_of(array: Any, part: Any) -> Any:
    if not array.ndim or array.shape[-1] == 1:
        return array
    if isinstance(part, list):
        return numpy.concatenate([array[..., one] for one in part], axis=-1)
    return array[..., part]


SHAPE = ("expert", "context", "tensor", "microbatch")
"""What decides the shapes that are left on a chip."""


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


@dataclass(frozen=True)
class SharedTimer:
    """A timer that is asked once for rows that leave the same shapes on a chip: `rows[distinct]` stand for all, and
    `place` says which of them stands for each row."""

    timer: Any
    distinct: Any
    place: Any

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.timer, name)

        def shared(*arguments: Any) -> Any:
            try:
                answer = method(*(self._few(argument) for argument in arguments))
            except _Apart:
                return method(*arguments)
            return answer[self.place] if isinstance(answer, numpy.ndarray) and answer.ndim else answer

        return shared

    def _few(self, value: Any) -> Any:
        """The value for the distinct rows."""
        if isinstance(value, numpy.ndarray) and value.ndim:
            few = value[self.distinct] if len(value) == len(self.place) else None
            if few is None or not numpy.array_equal(few[self.place], value):
                raise _Apart
            return few
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{item.name: self._few(getattr(value, item.name)) for item in fields(value)})
        return value


class _Apart(Exception):
    """Rows that were to share a kernel have different shapes after all."""


@dataclass
class Rows:
    """Distinct meshes and microbatches as arrays, and what was worked out for them so far. All of them spread their
    experts alike (`folded`). Each kind of cost is kept under the words it depends on."""

    job: Job
    numbers: dict[str, Any]
    folded: bool = True
    wires: Wires = field(init=False)
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wires = lay_wires(self.numbers, self.job.piece, AXES)

    def __len__(self) -> int:
        return len(self.numbers["pipe"])

    def keep(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is kept under a key, made when it is first asked for."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def setting(self, words: Plan, which: str) -> Setting:
        """The bound's or the expectation's setting, as `evaluation.judge` has them."""
        job, chip = self.job, self.job.piece.chip
        common = (job.model.program(), job.piece, float(job.batch), job.sequence, words)
        if which == "bound":
            return Setting(*common, IDEAL, PeakTimer(chip, words.dtype), None, self.folded)
        timer = expected_timer(chip, words.dtype, job.stack)
        return Setting(*common, job.stack, timer, profile_for(chip, job.transport), self.folded)

    def alike(self, *names: str) -> tuple[Any, Any]:
        """See `alike`."""
        return self.keep(("alike", *names), lambda: alike(self.numbers, names))

    def shared(self, timer: Any) -> SharedTimer:
        """A timer that is asked once for each distinct shape on a chip."""
        return SharedTimer(timer, *self.alike(*SHAPE))


@dataclass(frozen=True)
class Chosen:
    """Some rows (a slice or places), with the number of chunks per rank of each: what plans of one batch have in common
    apart from their words."""

    numbers: dict[str, Any]
    wires: Wires
    deal: Deal
    microbatches: Any
    places: Any

    def __len__(self) -> int:
        return len(self.numbers["pipe"])


def choose(rows: Rows, places: Any, virtual: Any) -> Chosen:
    """Rows to be judged with `virtual` chunks per rank (an array as long as the places)."""
    numbers, wires = take((rows.numbers, rows.wires), places)
    deal = deal_layers(rows.job.model.program().order, numbers["pipe"], virtual)
    copies = Mesh(wires.axes).size("data", "fsdp", "expert")
    return Chosen(
        numbers | {"virtual": virtual}, wires, deal, float(rows.job.batch) / (copies * numbers["microbatch"]), places
    )
