"""The moves of a pass through a section: bytes on the wire and seconds of every collective.

Gathers of a layer's weights, and reductions of its gradients, travel in one message each. What goes round a ring goes
hop by hop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.plan.reader import Move, Reading
from dragonscale.training.cost.move_times import bound_time, expected_move_time, sent_once
from dragonscale.training.plan.setting import PassLine, PlacedSection, Setting, attending_sizes
from dragonscale.training.plan.stack import Stack

# Sums, maxima and the router's weights travel in fp32, in the same messages as what they belong to.
STATISTIC_BYTES = 4.0
POSITION_BYTES = 4.0


@dataclass(frozen=True)
class _SizedMove:
    """A move with the bytes of the whole tensor that it is about (`volume`) and those that one chip sends."""

    move: Move
    volume: Number
    sent: Number


def move_lines(placed: PlacedSection) -> Iterator[PassLine]:
    """Every move of a pass through a section, forward and backward, once."""
    reading, wires = placed.reading, placed.wires
    # Weights and gradients that travel as one message, by phase, what they are, axes and collective.
    bundles: dict[tuple[object, ...], list[_SizedMove]] = {}
    empty: set[tuple[str, tuple[str, ...]]] = set()
    for move in reading.moves:
        if _is_resident(move, reading, placed.setting.stack):
            continue
        waited, axes = move.what in ("activation", "expert"), move.step.axes
        if wires.single.issuperset(axes):
            # Over axes of size 1 nothing travels. A pass still counts its waits by axes, so one empty line of each
            # is left.
            if waited and (move.phase, axes) not in empty:
                empty.add((move.phase, axes))
                yield _line(move, reading)
        elif move.ring:
            yield from _ring_lines(move, placed)
        elif waited:
            yield _move_line(_sized(move, placed), placed)
        else:
            bundles.setdefault((move.phase, move.what, axes, move.step.kind), []).append(_sized(move, placed))
    for bundle in bundles.values():
        yield from _bundle_lines(bundle, placed)


def _sized(move: Move, placed: PlacedSection) -> _SizedMove:
    """A move with its bytes."""
    setting, reading, mesh, step = placed.setting, placed.reading, placed.mesh, move.step
    sizes = placed.sizes
    exchange = step.kind == "all_to_all"
    ulysses = exchange and move.what == "activation"
    if ulysses:
        sizes = attending_sizes(sizes, reading.rules, mesh)
    volume = step.volume(sizes, mesh) * _width_over_bf16(move, reading, setting)
    if exchange and not ulysses and setting.stack.experts.dedup:
        picks = reading.section.dims.get("x", 1)  # experts that a token chooses
        volume = volume * sent_once(picks, placed.wires.group(step.axes))
    sent: Number = 0.0
    if setting.detail:
        sent = wire_bytes(step.kind, volume, mesh.size(*step.axes))
    return _SizedMove(move, volume, sent)


def _is_resident(move: Move, reading: Reading, stack: Stack) -> bool:
    """Whether a program that keeps what it gathered for the head and the embedding does not move this again. A head
    that shares the embedding's weight only scatters its own part of the gradient."""
    section, name = reading.section, move.step.before.name
    if "block" in section.name or stack.recompute.whole:
        return False
    tied = section.name == "head" and name.removeprefix("d") in section.shared
    scattered = reading.rules.zero == 3 and move.step.kind == "reduce_scatter"
    gathered_again = move.phase == "backward" and not name.startswith("d")
    return gathered_again or (tied and not scattered)


def _width_over_bf16(move: Move, reading: Reading, setting: Setting) -> float:
    """Bytes of an element on the wire over those of bf16."""
    state, step = setting.stack.state, move.step
    narrow = dtype_bytes(setting.plan.dtype) if state.narrow_gathers else 2.0
    if move.what == "weight":
        return min(2.0, narrow) / 2
    if move.what == "gradient":
        scattered = setting.plan.zero == 3 and step.kind == "reduce_scatter"
        return (state.scatter_bytes if scattered else state.reduce_bytes) / 2
    # What a layer's matmuls read is cast before it is gathered; the head's are in bf16.
    read_by_matmul = move.what == "activation" and step.kind == "all_gather" and "tensor" in step.axes
    if read_by_matmul and "block" in reading.section.name:
        return min(state.activation_bytes, narrow) / 2
    return state.activation_bytes / 2


def _move_line(sized: _SizedMove, placed: PlacedSection, times: Number = 1) -> PassLine:
    """The line of a move with its seconds."""
    kind, axes = sized.move.step.kind, sized.move.step.axes
    bound_s = bound_time(kind, sized.volume, axes, placed.wires) if placed.setting.detail else 0.0
    expected_s = expected_move_time(kind, sized.volume, axes, placed.wires, placed.setting.network)
    return _line(sized.move, placed.reading, times=times, wire_bytes=sized.sent, bound_s=bound_s, expected_s=expected_s)


def _line(move: Move, reading: Reading, **quantities: Number) -> PassLine:
    """The line of a move, an empty one without quantities."""
    step, carries = move.step, "activation" if move.what == "expert" else move.what
    columns = (reading.section.name, move.phase, step.before.name, step.kind, step.axes)
    return PassLine(*columns, part=move.part, carries=carries, ops=((move.index, 0.0),), **quantities)


def _bundle_lines(bundle: list[_SizedMove], placed: PlacedSection) -> Iterator[PassLine]:
    """Moves that travel as one message: its seconds are shared out by bytes, or given to the first where only sums are
    wanted."""
    volume = sum(sized.volume for sized in bundle)
    message = _SizedMove(bundle[0].move, volume, sum(sized.sent for sized in bundle))
    whole = _move_line(message, placed)
    if not placed.setting.detail:
        yield whole
        return
    for sized in bundle:
        share = sized.volume / maximum(volume, 1e-300)
        times = {"bound_s": whole.bound_s * share, "expected_s": whole.expected_s * share}
        yield _line(sized.move, placed.reading, wire_bytes=sized.sent, **times)


def _ring_lines(move: Move, placed: PlacedSection) -> Iterator[PassLine]:
    """Keys and values round a ring instead of a gather: all chunks but its own pass each chip; their gradients go
    all the way home. The positions of the keys travel along."""
    reading, sizes, mesh, step = placed.reading, placed.sizes, placed.mesh, move.step
    state, ring = placed.setting.stack.state, mesh.size(*step.axes)
    gradient = step.kind == "reduce_scatter"
    hops, chunk, width = ring - 1, step.before, state.activation_bytes
    if gradient:
        hops, chunk, width = ring, step.after, state.ring_gradient_bytes
    chunk_bytes = local_bytes(chunk, sizes, mesh) * width / 2
    hop = replace(move, step=replace(step, kind="permute"))
    line = _move_line(_SizedMove(hop, chunk_bytes, chunk_bytes), placed, times=hops * (ring > 1))
    yield line
    if gradient or not placed.setting.detail:
        return
    attention = next((op for op in reading.section.ops if op.function == "attend"), None)
    if attention is not None and step.before.name == attention.inputs[1].name:  # with the keys, not with the values
        tokens = sizes["b"] / mesh.size(*reading.rules.batch) * sizes["t"] / ring
        positions = {"wire_bytes": tokens * POSITION_BYTES, "bound_s": 0.0, "expected_s": 0.0}
        yield replace(line, what="positions", carries="statistic", **positions)


def statistic_lines(placed: PlacedSection) -> Iterator[PassLine]:
    """Small things that go with the tokens: the router's weights of the rows sent to experts, and the sums of a softmax
    over a split vocabulary (each token's maximum and two sums forward, one sum of their gradients backward)."""
    rules, section, mesh, local = placed.reading.rules, placed.reading.section, placed.mesh, placed.local
    dispatch = next((index for index, op in enumerate(section.ops) if op.function == "dispatch"), None)
    if dispatch is not None and rules.exchange:
        routed = section.ops[dispatch].output
        assert routed is not None
        ways = mesh.size(*rules.exchange)
        rows = local.elements(routed, without=("d",))
        sent = wire_bytes("all_to_all", rows * STATISTIC_BYTES * ways, ways)
        columns = {"part": "experts", "carries": "statistic", "wire_bytes": sent, "ops": ((dispatch, 0.0),)}
        for phase in ("forward", "backward"):
            yield PassLine(section.name, phase, "P", "all_to_all", rules.exchange, **columns)
    logits = section.ops[-1].output
    if section.name == "head" and logits is not None:
        split = rules.activation(logits).dim("v").axes
        sent = wire_bytes("all_reduce", local.tokens * STATISTIC_BYTES, mesh.size(*split))
        columns = {"part": "head", "carries": "statistic", "wire_bytes": sent}
        for phase, times in (("forward", 3), ("backward", 1)):
            yield PassLine(section.name, phase, "loss", "all_reduce", split, times, **columns)
