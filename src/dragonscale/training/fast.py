"""A space of plans in few operations per plan: what plans have in common is computed once.

A layer's kernels and moves depend on the mesh and the microbatch (and on how ZeRO lays the weights), not on the remat
policy, the schedule or the number of chunks per rank; its kernels even only on the shapes that are left on one chip. So
`Rows` holds each distinct mesh and microbatch once, costs its layers once, and asks for the time of each distinct kernel
once; every combination of words and `virtual` then puts the same layers into stages. All of it is done by the functions
that `dragonscale.training.step.evaluate` is made of: no formula stands here, and a plan judged alone gives the same
numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy

from dragonscale.collectives import Ring
from dragonscale.collectives.profile_file import profile_for
from dragonscale.numbers import maximum
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.cost import Work
from dragonscale.training.evaluation import IDEAL, WIRES, Job, _straggling
from dragonscale.training.layers import Layer, Travel, layer_costs
from dragonscale.training.memory import Held, rank_bytes, section_bytes
from dragonscale.training.passes import Pass, backward_pass, forward_pass
from dragonscale.training.placement import Wires, lay_wires
from dragonscale.training.plan import Plan
from dragonscale.training.reading import read_section
from dragonscale.training.stages import Deal, deal_layers
from dragonscale.training.step import Parts, Setting, Step, _add_time, _sizes
from dragonscale.training.timers import PeakTimer, expected_timer

_NESTED = (Layer, Work, Travel, Held, Wires, Ring, Pass)


def take(value: Any, part: Any) -> Any:
    """The rows `part` (a slice or places) of every array in a record."""
    if isinstance(value, numpy.ndarray):
        return value[part] if value.ndim and len(value) > 1 else value
    if isinstance(value, dict):
        return {key: take(one, part) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(take(one, part) for one in value)
    if isinstance(value, _NESTED):
        return replace(value, **{item.name: take(getattr(value, item.name), part) for item in fields(value)})
    return value


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
        self.wires = lay_wires(self.numbers, self.job.piece)

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
        """Places of the first row of each distinct tuple of some numbers, and for each row which of them it is like."""

        def find() -> tuple[Any, Any]:
            key = numpy.zeros(len(self), numpy.int64)
            for name in names:
                values, code = numpy.unique(self.numbers[name], return_inverse=True)
                key = key * len(values) + code
            _, first, place = numpy.unique(key, return_index=True, return_inverse=True)
            return first, place

        return self.keep(("alike", *names), find)

    def shared(self, timer: Any) -> SharedTimer:
        """A timer that is asked once for each distinct shape on a chip."""
        return SharedTimer(timer, *self.alike("tensor", "context", "expert", "microbatch"))


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


@dataclass(frozen=True)
class Judged:
    """What a search compares, as arrays. `seconds` is the expected step; where `bounded`, never below the lower bound."""

    seconds: Any
    hbm_bytes: Any
    possible: Any


def cost_rows(rows: Rows, words: Plan, which: str) -> "Costs":
    """What all rows cost under some words, whatever the schedule; `which` is expected or bound."""
    return _merged(_costs(rows, rows.setting(words, which), which), which)


def judge_rows(rows: Rows, words: Plan, chosen: Chosen, expected: "Costs", bound: "Costs | None" = None) -> Judged:
    """Chosen rows under some words, from what `cost_rows` found for them (`take`n at their places)."""
    step = _step(rows.setting(words, "expected"), chosen, expected)
    seconds = step.seconds * _straggling(rows.job)
    if bound is not None:
        least = _step(rows.setting(words, "bound"), chosen, bound)
        compute = sum(term.seconds for name, term in least.terms.items() if name not in WIRES)
        seconds = maximum(seconds, compute, *(least.terms[name].seconds for name in WIRES if name in least.terms))
    return Judged(seconds, step.hbm_bytes, chosen.wires.possible)


def _step(setting: Setting, chosen: Chosen, costs: "Costs") -> Step:
    """Layers put into stages: the second half of `step.evaluate`."""
    layers, held, forward, backward = costs
    step = Step()
    parts = Parts(layers, held, chosen.deal, chosen.microbatches, forward, backward)
    _add_time(step, setting, chosen.numbers, parts, chosen.wires)
    if setting.profile is not None:
        ends, chip = [section.name for section in setting.ends], setting.piece.chip
        step.memory = rank_bytes(
            setting.words, setting.stack, held, chosen.deal, chosen.numbers, chosen.microbatches, ends, chip
        )
    return step


Costs = tuple[dict[str, Layer], dict[str, Held], dict[str, Pass], dict[str, Pass]]


def _costs(rows: Rows, setting: Setting, which: str) -> Costs:
    """Every section's layers, bytes and passes for all rows: the first half of `step.evaluate`."""
    words, stack, rules, mesh = setting.words, setting.stack, setting.rules, Mesh(rows.wires.axes)
    timer, tokens = rows.shared(setting.timer), float(setting.sequence)
    base = {"b": rows.numbers["microbatch"] * mesh.size("data", "fsdp", "expert"), "t": tokens, "s": tokens}
    sections = (*setting.program.sections[:-1], *setting.ends)
    sizes = {section.name: _sizes(section, base, mesh) for section in sections}

    def layer_of(section: Any) -> Layer:
        return layer_costs(
            read_section(section, rules), sizes[section.name], rows.wires, timer, setting.profile,
            reduce_bytes=stack.reduce_bytes,
        )  # fmt: skip

    layers = {
        section.name: rows.keep(("layer", which, section.name, words.dtype, rules), lambda one=section: layer_of(one))
        for section in sections
    }
    held = _held(rows, setting, sizes)
    sharded = words.zero == 3
    copied = {name: timer.copy(part.used * stack.weight_copies / 2 * sharded) for name, part in held.items()}
    added = {name: timer.copy(part.used * stack.accumulate) for name, part in held.items()}
    forward = {name: forward_pass(layer, stack, sharded, copied[name]) for name, layer in layers.items()}
    backward = {
        name: backward_pass(
            layer, stack, words.remat if "block" in name else "none", sharded, copied[name] + added[name]
        )
        for name, layer in layers.items()
    }
    return layers, held, forward, backward


def _held(rows: Rows, setting: Setting, sizes: dict[str, dict[str, Any]]) -> dict[str, Held]:
    """What a chip keeps of each section, worked out once for rows that differ only in `pipe` and `data`."""
    distinct, place = rows.alike("fsdp", "expert", "context", "tensor", "microbatch")
    mesh = Mesh(take(rows.wires.axes, distinct))
    few = {
        section.name: section_bytes(
            section, take(sizes[section.name], distinct), mesh, setting.words, setting.rules, setting.stack
        )
        for section in (*setting.program.sections[:-1], *setting.ends)
    }
    return {name: take(one, place) for name, one in few.items()}


def _merged(costs: Costs, which: str) -> Costs:
    """The same costs with fewer lines: kernels as one, moves as one (by name for a bound, whose wires stand apart)."""
    layers, held, forward, backward = costs
    fewer = {}
    for name, layer in layers.items():
        work = replace(
            layer.work, seconds={("kernels", "all"): sum(layer.work.seconds.values())}, flops={("kernels", "all"): 0.0}
        )
        fewer[name] = replace(layer, work=work, travel=_merged_travel(layer.travel))
    if which == "bound":
        return fewer, held, forward, backward
    return fewer, held, *({name: _merged_pass(one) for name, one in passes.items()} for passes in (forward, backward))


def _merged_travel(travel: Travel) -> Travel:
    """Only what is reduced or gathered once a step is still asked for; bytes are not."""
    found = Travel()
    for (phase, what, axes), seconds in travel.seconds.items():
        if phase in ("gradient", "update"):
            found.add((phase, what, ("data",) if "data" in axes else ()), seconds, 0.0)
    return found


def _merged_pass(one: Pass) -> Pass:
    taken = sum(seconds for seconds, _, _ in one.moves.values())
    exposed = sum(shown for _, shown, _ in one.moves.values())
    return replace(one, moves={"moves": (taken, exposed, 0.0)})
