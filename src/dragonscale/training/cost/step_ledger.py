"""The ledger of a training step: every line of every section as often as a chip runs it, and what the step waits for
besides.

The chip is one of the rank with the most layers; what other stages have more of is a line of waiting. How much of a
move is exposed is decided for each bucket of a pass (`dragonscale.training.cost.overlap`), and shared out over the
bucket's lines by their seconds. So the exposed seconds of all lines add up to the step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from dragonscale.models.attention import ATTENTION_BLOCK
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.ledger import LedgerLine
from dragonscale.training.cost.attention_lines import head_sizes
from dragonscale.training.cost.layer_passes import StepParts, moves_of_state, reduced_each_microbatch, rerun_policy
from dragonscale.training.cost.move_times import bound_time
from dragonscale.training.cost.muon import muon_lines
from dragonscale.training.cost.optimizer_update import (
    host_updates,
    state_seconds,
    travel_seconds,
    updated_bytes,
    updated_parameters,
)
from dragonscale.training.cost.overlap import TINY_S, LayerPass, bucket, is_kept, rerun_share
from dragonscale.training.cost.step_time import StepTime, send_bytes, straggling
from dragonscale.training.plan.setting import PassLine, Setting

TERMS = {"tensor": "tensor collectives", "context": "context collectives", "expert": "expert all-to-all"}
WIRES = (*TERMS.values(), "fsdp collectives", "gradient reduction", "pipeline sends")
"""Terms that are bound by wires."""
MATMULS = ("matmul", "grouped matmul", "attention")
"""Kinds of lines that multiply matrices."""

UPDATE_FLOPS = 14.0
"""Arithmetic of Adam on one parameter, counted from its formulas (two moments, their corrections, a root, a division,
decay)."""

_LEDGER_FIELDS = [field.name for field in fields(LedgerLine)]


@dataclass(frozen=True)
class StepSummary:
    """A step put together: the setting, every section's lines and passes, and its times at best and to expect (None
    where only formulas are wanted)."""

    setting: Setting
    degrees: dict[str, Any]
    wires: Wires
    lines: dict[str, list[PassLine]]
    parts: StepParts
    time: StepTime | None
    bound: StepTime | None


def step_lines(step: StepSummary) -> list[LedgerLine]:
    """All lines of a step; their exposed seconds add up to the longer of the expectation and its lower bound."""
    lines: list[LedgerLine] = []
    for section in step.setting.sections:
        lines += _section_lines(step, section.name)
    lines += _lines_outside_sections(step)
    if step.time is not None:
        lower, setting, seconds = lower_bound(lines), step.setting, step.time.seconds
        straggle = straggling(setting.stack, setting.slice, setting.plan, step.degrees)
        lines.append(_wait("stragglers", "the slowest of many machines", seconds * (straggle - 1), 0.0))
        # An expectation below its bound is raised to it, so that no answer is better than physics.
        missing = maximum(lower - seconds * straggle, 0.0)
        lines.append(_wait("bound at datasheet rates", "no wires are faster than this", missing, 0.0))
    return lines


def lower_bound(lines: list[LedgerLine]) -> Number:
    """Seconds of the busiest resource of some lines at datasheet rates."""
    compute: Number = 0.0
    update: Number = 0.0
    wires: dict[str, Number] = {}  # by term: transfers of one kind share their wires
    for line in lines:
        seconds = line.total("bound_s")
        if line.term in WIRES:
            wires[line.term] = wires.get(line.term, 0.0) + seconds
        elif line.term == "optimizer":
            update = update + seconds
        else:
            compute = compute + seconds
    return maximum(compute, update, *wires.values())


def _section_lines(step: StepSummary, name: str) -> Iterator[LedgerLine]:
    """The lines of a section, those that are recomputed twice."""
    parts, setting, degrees = step.parts, step.setting, step.degrees
    state, plan, stack = setting.stack.state, setting.plan, setting.stack
    # The ends are on the chip of the fullest rank for certain where there is no pipeline.
    layers = parts.layers.fullest.get(name, degrees["pipe"] == 1)
    times = layers * parts.microbatches
    forward, backward = parts.forward.get(name), parts.backward.get(name)
    section = next(section for section in setting.sections if section.name == name)
    reading = setting.reading(section)
    remat, rerun_layers = "none", 1.0
    if "block" in name:
        remat, rerun_layers = rerun_policy(setting, parts.layers, degrees)
    tokens_per_chip = setting.sequence / step.wires.mesh.size(*reading.rules.tokens)
    state_moves = moves_of_state(plan, stack, degrees["pipe"], parts.microbatches)
    for pass_line in step.lines[name]:
        line = pass_line
        if line.phase == "forward" and setting.tuning.passes:  # a reference or a teacher runs forward, too
            line = replace(line, times=line.times * (1 + setting.tuning.passes))
        if line.phase in ("gradient", "update") and bucket(line) not in reduced_each_microbatch(plan):
            yield _reduced_once(line, step, parts.layers.fullest.get(name, 1))
            continue
        layer_pass = forward if line.phase == "forward" else backward
        if line.phase == "gradient" and plan.zero == 2 and state.sums_everywhere:
            # Layers of one stack scatter their gradients in one message a microbatch.
            yield _as_often(_for_all_layers(line, layers), parts.microbatches, layer_pass)
            continue
        if line.carries == "weight":
            yield _as_often(line, times * state_moves.gathers, layer_pass)
            continue
        if line.phase == "gradient":
            yield _as_often(line, times * state_moves.scatters, layer_pass)
            continue
        yield _as_often(line, times, layer_pass)
        share = rerun_share(pass_line, reading, remat, stack)
        if isinstance(share, float) and not share:
            continue
        if is_kept(pass_line, remat):
            pass_line = replace(pass_line, expected_s=0.0)
        yield _recomputed(pass_line, times, rerun_layers * share, backward, step, tokens_per_chip)
    yield from _overhead_lines(name, forward, backward, times)


def _exposed_share(line: PassLine, layer_pass: LayerPass | None) -> Number:
    """The share of a line's seconds that is exposed: that of its bucket."""
    if not line.moves:
        return 1.0
    name = bucket(line)
    if name in ("scatter", "reduce"):  # gradients are put together with the weights of the pass
        name = "weight"
    if layer_pass is None or name not in layer_pass.moves:
        return 0.0
    seconds, exposed = layer_pass.moves[name]  # of the whole bucket
    return where(seconds > 0, exposed / maximum(seconds, TINY_S), 0.0)


def _ledger_line(line: PassLine, **changes: Any) -> LedgerLine:
    """A line of a pass as a line of the ledger, without what only passes need."""
    return LedgerLine(**{name: getattr(line, name) for name in _LEDGER_FIELDS} | changes)


def _as_often(line: PassLine, times: Number, layer_pass: LayerPass | None) -> LedgerLine:
    """A line as often as a step runs it."""
    phase = "backward" if line.phase in ("dgrad", "wgrad") else line.phase
    # dgrad and wgrad are told apart only where a pipeline schedule puts the latter off.
    exposed = line.expected_s * _exposed_share(line, layer_pass)
    return _ledger_line(line, phase=phase, times=line.times * times, term=term_of(line), exposed_s=exposed)


def _recomputed(
    line: PassLine, times: Number, share: Number, layer_pass: LayerPass | None, step: StepSummary, tokens: Number
) -> LedgerLine:
    """A forward line that runs again, a share of it. `tokens` are those of a sequence on one chip."""
    flops = line.flops * share
    if line.kind == "attention" and step.setting.stack.kernels.masked_square and not step.setting.plan.ring:
        # Where attention multiplies the whole square in one block, the rerun and the backward pass share the scores,
        # so that the rerun adds the second matmul alone.
        section = next(section for section in step.setting.sections if section.name == line.section)
        kernels = step.setting.reading(section).kernels
        kernel = next(kernel for kernel in kernels if kernel.line == line.ops[0][0])
        key, value = head_sizes(kernel, section.dims)
        one_block = (tokens <= ATTENTION_BLOCK) | (tokens % ATTENTION_BLOCK != 0)
        flops = where(one_block, flops * value / (key + value), flops)
    expected_s = line.expected_s * share
    return _ledger_line(
        line,
        phase="recompute",
        times=line.times * times,
        term=term_of(line) if line.moves else "recompute",
        flops=flops,
        hbm_bytes=line.hbm_bytes * share,
        wire_bytes=line.wire_bytes * share,
        bound_s=line.bound_s * share,
        expected_s=expected_s,
        exposed_s=expected_s * _exposed_share(line, layer_pass),
    )


def _for_all_layers(line: PassLine, layers: Number) -> PassLine:
    """A line of all layers in one message."""
    return replace(
        line, wire_bytes=line.wire_bytes * layers, bound_s=line.bound_s * layers, expected_s=line.expected_s * layers
    )


def _reduced_once(line: PassLine, step: StepSummary, layers: Number) -> LedgerLine:
    """What travels once a step. A program that keeps its layers in one stack sends them in one message."""
    total, exposed = (0.0, 0.0) if step.time is None else step.time.reduction
    share = where(total > 0, exposed / maximum(total, TINY_S), 0.0)
    if step.setting.stack.state.sums_everywhere:
        line, layers = _for_all_layers(line, layers), 1
    return _ledger_line(line, times=line.times * layers, term="gradient reduction", exposed_s=line.expected_s * share)


def _overhead_lines(
    name: str, forward: LayerPass | None, backward: LayerPass | None, times: Number
) -> Iterator[LedgerLine]:
    """What a section's passes take besides kernels and collectives: the host, copies, and transfers to the host."""
    for phase, layer_pass in (("forward", forward), ("backward", backward)):
        if layer_pass is None:
            continue
        host, copies = layer_pass.host, layer_pass.copies
        waits = [
            ("issuing kernels", "host", "host", host, host),
            ("weights and gradients", "copy", "weight and gradient copies", copies, copies),
        ]
        if "offload" in layer_pass.moves:
            waits.append(("saved activations", "host transfer", "host offload", *layer_pass.moves["offload"]))
        for what, kind, term, seconds, exposed in waits:
            yield LedgerLine(name, phase, what, kind, (), times, term=term, expected_s=seconds, exposed_s=exposed)


def _wait(term: str, what: str, seconds: Number, bound: Number) -> LedgerLine:
    return LedgerLine("step", "step", what, "wait", term=term, bound_s=bound, expected_s=seconds, exposed_s=seconds)


def _lines_outside_sections(step: StepSummary) -> Iterator[LedgerLine]:
    """What belongs to no layer: longer stages, the pipeline bubble, sends between stages, the optimizer."""
    setting, parts, time, bound, degrees = step.setting, step.parts, step.time, step.bound, step.degrees
    no_pipeline = degrees["pipe"] == 1
    uneven, bubble, sends_s, sends_exposed_s = 0.0, 0.0, 0.0, 0.0
    if time is not None:
        uneven, bubble = where(no_pipeline, 0.0, time.uneven), time.bubble
        sends_s, sends_exposed_s = time.sends
    least_uneven, least_bubble = 0.0, 0.0
    if bound is not None:
        least_uneven, least_bubble = where(no_pipeline, 0.0, bound.uneven), bound.bubble
    yield _wait("uneven stages", "stages with the embedding, the head or more layers", uneven, least_uneven)
    yield _wait("pipeline bubble", "the pipeline filling and draining", bubble, least_bubble)

    # Every microbatch crosses every boundary between chunks twice, forward and backward.
    size = send_bytes(setting, degrees["microbatch"], step.wires.mesh)
    sends = 2 * degrees["virtual"] * parts.microbatches * (degrees["pipe"] > 1)
    yield LedgerLine(
        "step",
        "forward",
        "R",
        "permute",
        ("pipe",),
        sends,
        term="pipeline sends",
        carries="activation",
        wire_bytes=size,
        bound_s=bound_time("permute", size, ("pipe",), step.wires),
        expected_s=sends_s / maximum(sends, 1),
        exposed_s=sends_exposed_s / maximum(sends, 1),
    )

    # The optimizer reads and writes the state of this chip's share of the parameters.
    moved = updated_bytes(setting, parts)
    seconds, travel = 0.0, 0.0
    if time is not None:
        seconds = state_seconds(setting, parts)
        travel = travel_seconds(setting, parts)
    yield LedgerLine(
        "step",
        "update",
        "optimizer state",
        "host" if host_updates(setting) else "optimizer",
        term="optimizer",
        flops=UPDATE_FLOPS * updated_parameters(parts)[0],
        hbm_bytes=moved,
        bound_s=moved / setting.slice.chip.hbm.bandwidth,
        expected_s=seconds,
        exposed_s=seconds,
    )
    columns = ("step", "update", "weights and gradients", "host transfer")
    yield LedgerLine(*columns, term="host offload", expected_s=travel, exposed_s=travel)
    if setting.plan.optimizer == "muon":
        yield from muon_lines(setting, parts.layers.fullest, step.wires)


def term_of(line: PassLine) -> str:
    """The term of a step's breakdown that a kernel or move is counted under."""
    if line.moves:
        return TERMS.get(bucket(line), "fsdp collectives")
    if line.kind == "attention":
        return "attention (QK, softmax, PV)"
    if line.kind == "elementwise":
        return "elementwise"
    return "attention matmuls" if line.part == "indexer" else f"{line.part} matmuls"
