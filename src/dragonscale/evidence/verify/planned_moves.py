"""The collectives that a training plan asks for, one by one: what a chip sends, how often, and why.

They come from the planner's own reading of each section (`training.reading`), for the step as this project runs it: weights
cast to the compute type and gathered where they are used (ZeRO-3), gathered again in the backward pass; a backward pass that
computes again just what its gradients need (`training.recompute`); gradients scattered in the compute type as they are found,
and added up over copies of the model once a step in fp32.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from dragonscale.collectives import wire_bytes
from dragonscale.models.program import Program, Section
from dragonscale.notation import Array
from dragonscale.runtime.place import TrainingPlace, steps
from dragonscale.sharding.layout import local_bytes
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.step import Step
from dragonscale.training.plan import Plan
from dragonscale.training.reading import Move, read_section
from dragonscale.plan.recompute import again

WIDE = 4.0
"""Bytes of an element of gradients once they are found, and of statistics."""


class PlannedMove(msgspec.Struct, frozen=True):
    """A collective of the plan on one chip: `what` travels (weight, activation, gradient, statistic), in which phase of the step,
    as part of which tensor; bytes that each chip sends each time, and how often in a step."""

    kind: str
    axes: tuple[str, ...]
    what: str
    phase: str
    tensor: str
    section: str
    wire_bytes: float
    times: int

    @property
    def total_bytes(self) -> float:
        """Bytes sent in a step."""
        return self.wire_bytes * self.times


@dataclass(frozen=True)
class Work:
    """One step's sizes: sequences of one microbatch over all chips, tokens of a sequence, microbatches, bytes of the type that is
    computed in, and the room of an expert over its even share."""

    batch: int
    sequence: int
    microbatches: int
    width: float = 2.0
    capacity: float = 1.0


def planned_moves(program: Program, plan: Plan, place: TrainingPlace, work: Work) -> list[PlannedMove]:
    """Every collective of a step, for a plan without pipeline stages."""
    found: list[PlannedMove] = []
    for section in program.sections:
        found += _section_moves(section, plan, place, work)
    found += _loss_moves(program, place, work)
    return [move for move in found if move.wire_bytes > 0 and move.times > 0]


def _section_moves(section: Section, plan: Plan, place: TrainingPlace, work: Work) -> Iterator[PlannedMove]:
    passes = section.repeat * work.microbatches
    inside = section.name not in ("embed", "head")
    reading = read_section(section, place.rules)
    forward = [move for move in reading.moves if move.phase == "forward"]
    slopes = [move for move in reading.moves if move.phase == "backward" and move.step.before.name.startswith("d")]
    for move in [*forward, *slopes]:
        if move.what == "weight" and _again_used(section, move.step.before):
            continue  # gathered for the embedding, and still there
        yield from _costed(section, move, move.phase, place, work, passes)
    if inside:
        for move in _moves_again(section, plan, place):
            yield from _costed(section, move, "recomputation", place, work, passes)
    yield from _gradient_moves(section, plan, place, work, passes)
    yield from _routing_weights(section, plan, place, work, passes)


def _moves_again(section: Section, plan: Plan, place: TrainingPlace) -> list[Move]:
    """What travels again in the backward pass: weights and operands of products, and what lines that run again ask for."""
    reading = read_section(section, place.rules)
    wanted = [m for m in reading.moves if m.phase == "backward" and not m.step.before.name.startswith("d")]
    lines = again(section, plan.remat)
    rerun = read_section(replace(section, name=f"{section.name} again", ops=lines), place.rules).moves
    known = Counter(_key(move) for move in wanted)
    for move in rerun:
        if move.phase == "forward" and move.what == "activation":
            if known[_key(move)] > 0:
                known[_key(move)] -= 1
            else:
                wanted.append(move)
    return wanted


def _key(move: Move) -> tuple[object, ...]:
    return (move.step.kind, move.step.axes, move.step.before, move.step.after)


def _costed(
    section: Section, move: Move, phase: str, place: TrainingPlace, work: Work, times: int
) -> Iterator[PlannedMove]:
    """A move of the reading on the mesh there is: dims that do not divide are whole, axes of one chip are no axes."""
    routed = "x" in move.step.before.names and "d" in move.step.before.names
    share = room_of(section, place, work) if routed else 1.0
    dims = {name: size for name, size in section.dims.items() if name != "x"}  # choices are dealt evenly on average
    if move.step.kind == "all_to_all":
        steps_there = [_exchange(move.step, place, dims)]
    elif place.rules.ring and move.part == "attention" and move.step.axes == ("context",):
        yield from _ring(section, move, phase, place, work, times)
        return
    else:
        before, after = place.fit(move.step.before, dims), place.fit(move.step.after, dims)
        steps_there = list(steps(before, after, tuple(place.sizes)))
    for step in steps_there:
        if step is not None and not step.free:
            sent = _sent(step, section, place, work, work.width) * share
            yield PlannedMove(step.kind, step.axes, move.what, phase, step.before.name, section.name, sent, times)


def _exchange(step: Step, place: TrainingPlace, dims: dict[str, int]) -> Step | None:
    axes = tuple(axis for axis in step.axes if axis in place.sizes)
    return Step(step.kind, axes, place.fit(step.before, dims), place.fit(step.after, dims)) if axes else None


def _sizes(section: Section, place: TrainingPlace, work: Work) -> dict[str, int]:
    sizes = {**section.dims, "b": work.batch, "t": work.sequence, "s": work.sequence}
    return {**sizes, "k": 1} if "k" in sizes and place.copied("k", section.dims) else sizes


def _sent(step: Step, section: Section, place: TrainingPlace, work: Work, width: float) -> float:
    mesh = Mesh(place.sizes)
    volume = step.volume(_sizes(section, place, work), mesh) / 2.0 * width
    return float(wire_bytes(step.kind, volume, mesh.size(*step.axes)))


def room_of(section: Section, place: TrainingPlace, work: Work) -> float:
    """What is sent to experts over what is routed to them: each expert's room is a whole number of rows."""
    rows = rows_of(section, place, work)
    return max(1, -(-int(rows * work.capacity) // section.dims["e"])) * section.dims["e"] / rows


def rows_of(section: Section, place: TrainingPlace, work: Work) -> float:
    ways = place.ways(("data", "fsdp", "expert")) * place.ways(place.token_axes)
    return work.batch * work.sequence * section.dims["x"] / ways


def _routing_weights(
    section: Section, plan: Plan, place: TrainingPlace, work: Work, times: int
) -> Iterator[PlannedMove]:
    """The router's weights of the rows, which travel there with them, and their gradients back."""
    axes = place.expert_axes
    if not any(op.function == "dispatch" for op in section.ops) or not axes:
        return
    ways = place.ways(axes)
    sent = wire_bytes("all_to_all", rows_of(section, place, work) * room_of(section, place, work) * WIDE * ways, ways)
    lines = {op.function for op in again(section, plan.remat)}
    for phase in ("forward", "backward", *(["recomputation"] if "dispatch" in lines else [])):
        yield PlannedMove("all_to_all", axes, "statistic", phase, "P", section.name, float(sent), times)


def _ring(
    section: Section, move: Move, phase: str, place: TrainingPlace, work: Work, times: int
) -> Iterator[PlannedMove]:
    """Keys and values round a ring instead of a gather: all but one of the pieces pass each chip; their gradients, in fp32, go
    all the way home. The positions travel along."""
    ring = place.sizes.get("context", 1)
    if ring == 1:
        return
    held = place.fit(move.step.after if move.step.kind == "reduce_scatter" else move.step.before, section.dims)
    piece = float(local_bytes(held, _sizes(section, place, work), Mesh(place.sizes))) / 2.0
    gradient = move.step.kind == "reduce_scatter"
    hops = ring if gradient else ring - 1
    name = move.step.before.name
    width = WIDE if gradient else work.width
    yield PlannedMove("permute", ("context",), "activation", phase, name, section.name, piece * width, times * hops)
    if name == "K" and not gradient:
        tokens = work.batch / place.ways(("data", "fsdp", "expert")) * work.sequence / ring
        yield PlannedMove(
            "permute", ("context",), "statistic", phase, "positions", section.name, tokens * 4, times * hops
        )


def _gradient_moves(
    section: Section, plan: Plan, place: TrainingPlace, work: Work, passes: int
) -> Iterator[PlannedMove]:
    """From each chip's own gradients to the sums that its share of the update needs, and the updated weights back."""
    seen: set[str] = set()
    for op in section.ops:
        for array in op.weights:
            if array.name not in seen:
                seen.add(array.name)
                found = _weight_moves(section, array, plan, place, work, passes)
                # Of a tied embedding each use scatters its gradient; the rest of the sum is made once, for both.
                yield from (move for move in found if not _again_used(section, array) or move.phase == "backward")


def _again_used(section: Section, array: Array) -> bool:
    """Whether a head uses the embedding's own weight."""
    return section.name == "head" and array.name in section.shared


def _weight_moves(
    section: Section, array: Array, plan: Plan, place: TrainingPlace, work: Work, passes: int
) -> Iterator[PlannedMove]:
    used, state = (place.fit(laid, section.dims) for laid in (place.rules.used(array), place.rules.state(array)))
    sharded = plan.zero == 3
    mesh = Mesh(place.sizes)
    sizes = {**section.dims, "b": work.batch, "t": work.sequence, "s": work.sequence}

    def moved(step: Step, phase: str, what: str, width: float, times: int) -> PlannedMove:
        own = _sizes(section, place, work) if phase == "backward" else sizes  # of KV heads, those that this chip used
        volume = float(step.volume(own, mesh)) / 2.0 * width
        sent = float(wire_bytes(step.kind, volume, mesh.size(*step.axes)))
        if phase != "backward":  # outside the scan over layers: all of a stack at once
            sent, times = sent * section.repeat, times // section.repeat
        return PlannedMove(step.kind, step.axes, what, phase, step.before.name, section.name, sent, times)

    if sharded:
        back = replace(used, name=f"d{array.name}", partial=tuple(a for a in state.axes if a not in used.axes))
        for step in steps(back, replace(state, name=back.name), tuple(place.sizes)):
            yield moved(step, "backward", "gradient", work.width, passes)
    start = state if sharded else used
    partial = tuple(axis for axis in place.sizes if axis not in start.axes)
    raw = replace(start, name=f"d{array.name}", partial=partial)
    times = passes if plan.zero == 2 else section.repeat
    for step in steps(raw, replace(state, name=raw.name), tuple(place.sizes)):
        yield moved(step, "gradient", "gradient", WIDE, times)
    if not sharded:
        for step in steps(state, used, tuple(place.sizes)):
            yield moved(step, "update", "weight", work.width, section.repeat)


def _loss_moves(program: Program, place: TrainingPlace, work: Work) -> Iterator[PlannedMove]:
    """The softmax over a split vocabulary: each token's maximum and two sums, and one sum of their gradients (that of the target's logit is the same everywhere)."""
    head = program.sections[-1]
    logits = head.ops[-1].output
    assert logits is not None
    split = place.fit(place.at_rest(logits), head.dims).dim("v").axes
    if split:
        tokens = work.batch / place.ways(("data", "fsdp", "expert")) * work.sequence / place.ways(("context",))
        sent = float(wire_bytes("all_reduce", tokens * WIDE, place.ways(split)))
        for phase, count in (("forward", 3), ("backward", 1)):
            times = count * work.microbatches
            yield PlannedMove("all_reduce", split, "statistic", phase, "loss", "head", sent, times)
