"""A space of plans in few operations per plan: what plans have in common is computed once.

A layer's kernels and moves depend on the mesh and the microbatch (and on how ZeRO lays the weights), not on the remat
policy, the schedule or the number of chunks per rank; its kernels even only on the shapes that are left on one chip. So
`rows` holds each distinct mesh and microbatch once and costs its layers once; every combination of words and `virtual`
then puts the same layers into stages, all remat policies at a time. All of it is done by the functions that
`dragonscale.training.step.evaluate` is made of: no formula stands here, and a plan judged alone gives the same numbers.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy

from dragonscale.hardware import Torus
from dragonscale.models.program import Section
from dragonscale.numbers import maximum
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.placement import Wires
from dragonscale.training.evaluation import WIRES, straggling
from dragonscale.training.layers import Layer, Travel, layer_costs
from dragonscale.training.memory import Held, rank_bytes, section_bytes
from dragonscale.training.passes import Pass
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.reading import Reading, read_section
from dragonscale.training.rows import SHAPE, Chosen, Rows, SharedTimer, alike, take
from dragonscale.training.step import Parts, Setting, Step, add_time, dims_with_microbatch, layer_passes, travelling


@dataclass(frozen=True)
class Costs:
    """Every section's layers and passes, and for each remat policy the bytes that a chip keeps. Passes that depend on
    the policy are stacked: an array has a line for each."""

    layers: dict[str, Layer]
    forward: dict[str, Pass]
    backward: dict[str, Pass]
    held: tuple[dict[str, Held], ...]

    def at(self, places: Any) -> "Costs":
        """The costs of some of the rows; what several policies share stays shared."""
        taken: dict[int, Any] = {}
        return Costs(*(take(getattr(self, item.name), places, taken) for item in fields(self)))


@dataclass(frozen=True)
class Judged:
    """What a search compares, as arrays with a line for each remat policy: the expected step (never below its lower
    bound, where that was asked for) and the bytes of the fullest chip."""

    seconds: Any
    hbm_bytes: list[Any]
    possible: Any


def judge_rows(
    rows: Rows, words: Plan, remats: tuple[str, ...], chosen: Chosen, expected: Costs, bound: Costs | None = None
) -> Judged:
    """Chosen rows under some words and each of some remat policies, from what `cost_rows` found for them."""
    setting = rows.setting(words, "expected")
    seconds = _timed(setting, chosen, expected).seconds * straggling(rows.job)
    if bound is not None:
        seconds = maximum(seconds, lower_bounds(rows, words, chosen, bound))
    ends = [section.name for section in setting.ends]
    memory = [
        rank_bytes(
            replace(words, remat=remat), setting.stack, held, chosen.deal, chosen.numbers, chosen.microbatches, ends
        )
        for remat, held in zip(remats, expected.held, strict=True)
    ]
    shape = (len(remats), len(chosen))
    held = [sum(parts.values()) for parts in memory]
    return Judged(numpy.broadcast_to(seconds, shape), held, chosen.wires.possible)


def lower_bounds(rows: Rows, words: Plan, chosen: Chosen, bound: Costs) -> Any:
    """The lower bounds of chosen rows, as `evaluation.judge` has them."""
    least = _timed(rows.setting(words, "bound"), chosen, bound)
    compute = sum(term.seconds for name, term in least.terms.items() if name not in WIRES)
    return maximum(compute, *(least.terms[name].seconds for name in WIRES if name in least.terms))


def _timed(setting: Setting, chosen: Chosen, costs: Costs) -> Step:
    """Layers put into stages: the second half of `step.evaluate`."""
    step = Step()
    parts = Parts(costs.layers, costs.held[0], chosen.deal, chosen.microbatches, costs.forward, costs.backward)
    add_time(step, setting, chosen.numbers, parts, chosen.wires)
    return step


def cost_rows(rows: Rows, words: Plan, remats: tuple[str, ...], which: str) -> Costs:
    """What all rows cost under some words and each of some remat policies, whatever the schedule; `which` is expected or
    bound. The first half of `step.evaluate`."""
    setting = rows.setting(words, which)
    sections = (*setting.program.sections[:-1], *setting.ends)
    layers = {section.name: _layer(rows, setting, section) for section in sections}
    held = tuple(_held(rows, setting, remat) for remat in remats)
    passes = [
        layer_passes(replace(setting, words=replace(words, remat=remat)), layers, kept)
        for remat, kept in zip(remats, held, strict=True)
    ]
    forward, backward = (
        {name: _stacked([one[way][name] for one in passes], which) for name in layers} for way in (0, 1)
    )
    fewer = {name: _merged(layer) for name, layer in layers.items()}
    return Costs(fewer, forward, backward, held)


def section_sizes(rows: Rows, setting: Setting, section: Section) -> tuple[dict[str, Any], Wires]:
    """A section's dims and the wires for all rows."""
    return _sized(rows, setting, section, slice(0, len(rows)))


def _sized(rows: Rows, setting: Setting, section: Section, distinct: Any) -> tuple[dict[str, Any], Wires]:
    """A section's dims and the wires for some of the rows."""
    wires, microbatch = take(rows.wires, distinct), rows.numbers["microbatch"][distinct]
    mesh, tokens = Mesh(wires.axes), float(setting.sequence)
    base = {"b": microbatch * mesh.size("data", "fsdp", "expert"), "t": tokens, "s": tokens}
    return dims_with_microbatch(section, base, mesh), wires


def _layer(rows: Rows, setting: Setting, section: Section) -> Layer:
    """One section's costs: what travels for weights worked out once for each mesh; kernels and activations once for
    each shape on a chip (under switches, where the axes that carry activations lie the same whatever is above them) and
    for all ZeRO stages together, since these only lay out weights."""
    reading = read_section(section, setting.rules)
    torus = isinstance(setting.piece.chip.network, Torus)
    still = tuple(move for move in reading.moves if move.what != "activation")
    moving = tuple(move for move in reading.moves if move.what == "activation")
    run = replace(reading, moves=moving)
    kernels = reading.kernels if section.name == "head" else ()
    key = ("run", setting.profile is None, setting.words.dtype, section.name, reading.kernels, moving)
    acts = rows.keep(key, lambda: _costed(rows, setting, run, (*AXES, "microbatch") if torus else SHAPE))
    weights = _costed(rows, setting, replace(reading, kernels=kernels, moves=still), AXES)
    travel = Travel(acts.travel.seconds | weights.travel.seconds, acts.travel.sent | weights.travel.sent)
    return Layer(reading, acts.work, travel)


def _costed(rows: Rows, setting: Setting, reading: Reading, names: tuple[str, ...]) -> Layer:
    """A reading's costs, worked out once for rows that are alike in some numbers."""
    distinct, place = rows.alike(*names)
    sizes, wires = _sized(rows, setting, reading.section, distinct)
    shapes = alike(wires.axes | {"microbatch": rows.numbers["microbatch"][distinct]}, SHAPE)
    timer: Any = SharedTimer(setting.timer, *shapes)
    layer = layer_costs(
        reading, sizes, wires, timer, setting.profile,
        reduce_bytes=setting.stack.reduce_bytes, weight_bytes=travelling(setting.words, setting.stack), dedup=setting.stack.expert_dedup,
    )  # fmt: skip
    return take(layer, place)


STATE = ("weights", "gradients", "optimizer", "gathered", "parameters", "used")
"""The parts of `Held` that depend on how state is laid out and not on the microbatch; the others are the reverse."""


def _held(rows: Rows, setting: Setting, remat: str) -> dict[str, Held]:
    """What a chip keeps of each section: state worked out once for each way to lay it out and whatever the remat policy,
    activations once for each shape on a chip and whatever the ZeRO stage."""
    words, found = replace(setting.words, remat=remat), {}
    for section in (*setting.program.sections[:-1], *setting.ends):
        key = (section.name, setting.profile is None, words.dtype, words.optimizer, words.sequence, words.ring)
        state = rows.keep(
            ("state", words.zero, *key),
            lambda one=section: _kept(rows, setting, one, words, ("fsdp", "expert", "context", "tensor")),
        )
        live = rows.keep(("live", remat, *key), lambda one=section: _kept(rows, setting, one, words, SHAPE))
        found[section.name] = replace(live, **{name: getattr(state, name) for name in STATE})
    return found


def _kept(rows: Rows, setting: Setting, section: Section, words: Plan, names: tuple[str, ...]) -> Held:
    """What a chip keeps of a section, worked out once for rows that are alike in some numbers."""
    distinct, place = rows.alike(*names)
    sizes, wires = _sized(rows, setting, section, distinct)
    few = section_bytes(section, sizes, Mesh(wires.axes), words, setting.rules, setting.stack, setting.piece.chip)
    return take(few, place)


def _merged(layer: Layer) -> Layer:
    """A layer with fewer lines: its kernels as one; of its moves, only what travels once a step is still asked for."""
    work = replace(
        layer.work, seconds={("kernels", "all"): sum(layer.work.seconds.values())}, flops={("kernels", "all"): 0.0}
    )
    travel = Travel()
    for (phase, what, axes), seconds in layer.travel.seconds.items():
        if phase in ("gradient", "update"):
            travel.add((phase, what, ("data",) if "data" in axes else ()), seconds, 0.0)
    return replace(layer, work=work, travel=travel)


def _stacked(passes: list[Pass], which: str) -> Pass:
    """Passes under several remat policies as one, a line for each; their moves as one too, but for bounds, whose wires
    stand apart."""
    if which == "expected":
        passes = [replace(one, moves={"moves": _added(one)}) for one in passes]
    if len(passes) == 1:
        return passes[0]
    plain = {
        item.name: _lines([getattr(one, item.name) for one in passes]) for item in fields(Pass) if item.name != "moves"
    }
    names, none = dict.fromkeys(name for one in passes for name in one.moves), (0.0, 0.0, 0.0)
    moves = {
        name: tuple(_lines([one.moves.get(name, none)[part] for one in passes]) for part in range(3)) for name in names
    }
    return Pass(**plain, moves=moves)  # pyright: ignore[reportArgumentType]


def _added(one: Pass) -> tuple[Any, Any, Any]:
    return sum(move[0] for move in one.moves.values()), sum(move[1] for move in one.moves.values()), 0.0


def _lines(values: list[Any]) -> Any:
    """Values of several policies: one where all have the same, else a line for each."""
    start = values[0]
    if all(value is start or numpy.array_equal(value, start) for value in values):
        return start
    return numpy.stack(numpy.broadcast_arrays(*values))
