"""The moves of a pass through a section: bytes on the wire and seconds of every collective.

Gathers of a layer's weights, and reductions of its gradients, travel in one message each. What goes round a ring goes
hop by hop.
"""

from collections.abc import Iterator
from dataclasses import replace

from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.layout import local_bytes, local_elements
from dragonscale.plan.reader import Move, Reading
from dragonscale.training.cost.travel import bound_time, sent_once, travel_time
from dragonscale.training.plan.setting import PassLine, PlacedSection, Setting, attending_sizes
from dragonscale.training.plan.stack import Stack

STATISTIC_BYTES = 4.0
"""Sums, maxima and the router's weights travel in fp32, in the same messages as what they belong to."""


def move_lines(own: PlacedSection) -> Iterator[PassLine]:
    setting, reading, sizes, wires = own.setting, own.reading, own.sizes, own.wires
    bundles: dict[tuple[object, ...], list[tuple[Move, Number, Number]]] = {}
    still: set[tuple[str, tuple[str, ...]]] = set()
    mesh = wires.mesh
    for move in reading.moves:
        if _still_there(move, reading, setting.stack):
            continue
        waited = move.what in ("activation", "expert")
        if wires.single.issuperset(move.step.axes):
            # nothing travels; a pass counts what it waits for by axes all the same, so one line of each is left
            if waited and (move.phase, move.step.axes) not in still:
                still.add((move.phase, move.step.axes))
                yield _line(move, reading)
            continue
        if move.ring:
            yield from _ring_lines(move, own)
            continue
        traded = move.step.kind == "all_to_all" and move.what == "activation"
        here = attending_sizes(sizes, reading.rules, mesh) if traded else sizes
        volume = move.step.volume(here, mesh) * _width(move, reading, setting)
        if move.step.kind == "all_to_all" and not traded:
            picks = reading.section.dims.get("x", 1)
            volume = volume * (sent_once(picks, wires.group(move.step.axes)) if setting.stack.experts.dedup else 1.0)
        sent = wire_bytes(move.step.kind, volume, mesh.size(*move.step.axes)) if setting.detail else 0.0
        if waited:
            yield _move_line(move, volume, sent, own)
        else:
            key = (move.phase, move.what, move.step.axes, move.step.kind)
            bundles.setdefault(key, []).append((move, volume, sent))
    for several in bundles.values():
        yield from _bundle_lines(several, own)


def _still_there(move: Move, reading: Reading, stack: Stack) -> bool:
    """Whether a program that keeps what it gathered for the head and the embedding does not move this again; a head
    that shares the embedding's weight only scatters its own part of the gradient."""
    section, name = reading.section, move.step.before.name
    if "block" in section.name or stack.recompute.whole:
        return False
    tied = section.name == "head" and name.removeprefix("d") in section.shared
    scattered = reading.rules.zero == 3 and move.step.kind == "reduce_scatter"
    return (move.phase == "backward" and not name.startswith("d")) or (tied and not scattered)


def _width(move: Move, reading: Reading, setting: Setting) -> float:
    """Bytes of an element on the wire over those of bf16."""
    state, step = setting.stack.state, move.step
    narrow = dtype_bytes(setting.plan.dtype) if state.narrow_gathers else 2.0
    if move.what == "weight":
        return min(2.0, narrow) / 2
    if move.what == "gradient":
        scattered = setting.plan.zero == 3 and move.step.kind == "reduce_scatter"
        return (state.scatter_bytes if scattered else state.reduce_bytes) / 2
    # What a layer's matmuls read is cast before it is gathered; the head's are in bf16.
    read = move.what == "activation" and step.kind == "all_gather" and "tensor" in step.axes
    cast = read and "block" in reading.section.name
    return (min(state.activation_bytes, narrow) if cast else state.activation_bytes) / 2


def _move_line(move: Move, volume: Number, sent: Number, own: PlacedSection, times: Number = 1) -> PassLine:
    kind, axes = move.step.kind, move.step.axes
    bound = bound_time(kind, volume, axes, own.wires) if own.setting.detail else 0.0
    seconds = travel_time(kind, volume, axes, own.wires, own.setting.network)
    return _line(move, own.reading, times=times, wire_bytes=sent, bound_s=bound, expected_s=seconds)


def _line(move: Move, reading: Reading, **numbers: Number) -> PassLine:
    """A move, of nothing where its numbers are left out."""
    step, carries = move.step, "activation" if move.what == "expert" else move.what
    names = (reading.section.name, move.phase, step.before.name, step.kind, step.axes)
    return PassLine(*names, part=move.part, carries=carries, ops=((move.place, 0.0),), **numbers)


def _bundle_lines(several: list[tuple[Move, Number, Number]], own: PlacedSection) -> Iterator[PassLine]:
    """Moves that travel as one message: its seconds are shared out by bytes, or given to the first where only sums are
    kept."""
    volume = sum(part for _, part, _ in several)
    whole = _move_line(several[0][0], volume, sum(sent for _, _, sent in several), own)
    if not own.setting.detail:
        yield whole
        return
    for move, part, sent in several:
        share = part / maximum(volume, 1e-300)
        bound, seconds = whole.bound_s * share, whole.expected_s * share
        yield _line(move, own.reading, wire_bytes=sent, bound_s=bound, expected_s=seconds)


def _ring_lines(move: Move, own: PlacedSection) -> Iterator[PassLine]:
    """Keys and values round a ring instead of a gather: all but one of the pieces pass each chip; their gradients go
    all the way home. The positions of the keys travel along."""
    reading, sizes, mesh, step = own.reading, own.sizes, own.mesh, move.step
    gradient = step.kind == "reduce_scatter"
    ring = mesh.size(*step.axes)
    hops = (ring if gradient else ring - 1) * (ring > 1)
    state = own.setting.stack.state
    slice_ = local_bytes(step.after if gradient else step.before, sizes, mesh)
    slice_ = slice_ * (state.ring_gradient_bytes if gradient else state.activation_bytes) / 2
    hop = replace(move, step=replace(step, kind="permute"))
    line = _move_line(hop, slice_, slice_, own, hops)
    yield line
    keys = step.before.name == next((op.inputs[1].name for op in reading.section.ops if op.function == "attend"), "")
    if keys and not gradient and own.setting.detail:
        tokens = sizes["b"] / mesh.size(*reading.rules.batch) * sizes["t"] / ring
        yield replace(line, what="positions", carries="statistic", wire_bytes=tokens * 4, bound_s=0.0, expected_s=0.0)


def statistics(own: PlacedSection) -> Iterator[PassLine]:
    """Small things that go with the tokens: the router's weights of the rows sent to experts, and the sums of a softmax
    over a split vocabulary (each token's maximum and two sums forward, one sum of their gradients backward)."""
    rules, section, sizes, mesh = own.reading.rules, own.reading.section, own.sizes, own.mesh
    sends = next((line for line, op in enumerate(section.ops) if op.function == "dispatch"), None)
    if sends is not None and rules.exchange:
        routed = section.ops[sends].output
        assert routed is not None
        ways = mesh.size(*rules.exchange)
        rows = local_elements(rules.activation(routed), sizes, mesh, without=("d",))
        sent = wire_bytes("all_to_all", rows * STATISTIC_BYTES * ways, ways)
        rest = {"part": "experts", "carries": "statistic", "wire_bytes": sent, "ops": ((sends, 0.0),)}
        for phase in ("forward", "backward"):
            yield PassLine(section.name, phase, "P", "all_to_all", rules.exchange, **rest)
    logits = section.ops[-1].output
    if section.name == "head" and logits is not None:
        split = rules.activation(logits).dim("v").axes
        tokens = sizes["b"] / mesh.size(*rules.batch) * sizes["t"] / mesh.size(*rules.tokens)
        sent = wire_bytes("all_reduce", tokens * STATISTIC_BYTES, mesh.size(*split))
        rest = {"part": "head", "carries": "statistic", "wire_bytes": sent}
        for phase, times in (("forward", 3), ("backward", 1)):
            yield PassLine(section.name, phase, "loss", "all_reduce", split, times, **rest)
