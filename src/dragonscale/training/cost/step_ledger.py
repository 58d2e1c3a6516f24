"""The ledger of a training step: every line of every section as often as a chip runs it, and what the step waits for
besides.

The chip is one of the rank with the most layers; what other stages have more of is a line of waiting. What of a move
shows is decided for each bucket of a pass (`dragonscale.training.cost.passes`), and shared out over the bucket's lines
by their seconds. So the exposed seconds of all lines add up to the step.

A training step as a timeline: microbatches forward and backward, then what happens once a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from dragonscale.models.attention import ATTENTION_BLOCK
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline
from dragonscale.training.cost.attention_lines import attention_sizes
from dragonscale.training.cost.muon import muon_lines
from dragonscale.training.cost.passes import LayerPass, bucket, is_kept, rerun_share
from dragonscale.training.cost.step import (
    Parts,
    StepTime,
    hosted_bytes,
    reduced_often,
    rerun_policy,
    send_bytes,
    state_often,
    state_seconds,
    straggling,
    updated_bytes,
    updated_parameters,
)
from dragonscale.training.cost.travel import bound_time
from dragonscale.training.plan.plan import HOSTED_STATE
from dragonscale.training.plan.setting import PassLine, Setting

TERMS = {"tensor": "tensor collectives", "context": "context collectives", "expert": "expert all-to-all"}
WIRES = (*TERMS.values(), "fsdp collectives", "gradient reduction", "pipeline sends")
"""Terms that are bound by wires."""
UPDATE_FLOPS = 14.0
"""Arithmetic of Adam on one parameter, counted from its formulas (two moments, their corrections, a root, a division,
decay)."""
_FIELDS = [item.name for item in fields(LedgerLine)]


@dataclass(frozen=True)
class Stepped:
    """A step put together: the setting, every section's lines and passes, and its times at best and to expect (None
    where only formulas are asked for)."""

    setting: Setting
    numbers: dict[str, Any]
    wires: Wires
    lines: dict[str, list[PassLine]]
    parts: Parts
    time: StepTime | None
    bound: StepTime | None


def step_lines(step: Stepped) -> list[LedgerLine]:
    """All lines of a step; their exposed seconds add up to the longer of the expectation and its lower bound."""
    found = [line for section in step.setting.sections for line in _section(step, section.name)]
    found += _besides(step)
    if step.time is not None:
        lower, setting = lower_bound(found), step.setting
        straggle = straggling(setting.stack, setting.slice, setting.plan, step.numbers)
        found.append(_wait("stragglers", "the slowest of many machines", step.time.seconds * (straggle - 1), 0.0))
        short = maximum(lower - step.time.seconds * straggle, 0.0)
        found.append(_wait("bound at datasheet rates", "no wires are faster than this", short, 0.0))
    return found


def lower_bound(lines: list[LedgerLine]) -> Number:
    """The busiest resource of some lines at datasheet rates."""
    book = Ledger(lines)
    update = book.total("bound_s", lambda line: line.term == "optimizer")
    compute = book.total("bound_s", lambda line: line.term not in (*WIRES, "optimizer"))
    return maximum(compute, update, *book.by("term", "bound_s", lambda line: line.term in WIRES).values())


def _section(step: Stepped, name: str) -> Iterator[LedgerLine]:
    parts, setting = step.parts, step.setting
    alone = step.numbers["pipe"] == 1
    layers = parts.layers.fullest.get(name, alone)
    often = layers * parts.microbatches
    forward, backward = (passes.get(name) for passes in (parts.forward, parts.backward))
    section = next(one for one in setting.sections if one.name == name)
    reading = setting.reading(section)
    remat, part = rerun_policy(setting, parts.layers, step.numbers) if "block" in name else ("none", 1.0)
    sizes_tokens = setting.sequence / step.wires.mesh.size(*reading.rules.tokens)
    once = parts.layers.fullest.get(name, 1)
    gathered, scattered = state_often(setting.plan, setting.stack, step.numbers["pipe"], parts.microbatches)
    for one in step.lines[name]:
        # A reference or a teacher runs forward beside the trained model.
        beside = setting.tuning.passes if one.phase == "forward" else 0
        line = replace(one, times=one.times * (1 + beside)) if beside else one
        if line.phase in ("gradient", "update") and bucket(line) not in reduced_often(setting.plan):
            yield _reduced(line, step, once)
            continue
        run = backward if line.phase != "forward" else forward
        if line.phase == "gradient" and setting.plan.zero == 2 and setting.stack.state.sums_everywhere:
            yield _plain(_stack(line, layers), parts.microbatches, run)
            continue
        if line.carries == "weight" or line.phase == "gradient":
            yield _plain(line, often * (gathered if line.carries == "weight" else scattered), run)
            continue
        yield _plain(line, often, run)
        share = rerun_share(one, reading, remat, setting.stack)
        if not isinstance(share, float) or share:
            again = replace(one, expected_s=0.0) if is_kept(one, remat) else one
            yield _rerun(again, often, part * share, backward, step, sizes_tokens)
    yield from _overheads(name, forward, backward, often)


def _ratio(line: PassLine, run: LayerPass | None) -> Number:
    """The part of a line that shows."""
    if not line.moves:
        return 1.0
    name = bucket(line)
    moved = run.moves.get("weight" if name in ("scatter", "reduce") else name) if run is not None else None
    if moved is None:
        return 0.0
    seconds, exposed = moved
    return where(seconds > 0, exposed / maximum(seconds, 1e-300), 0.0)


def _booked(line: PassLine, **changes: Any) -> LedgerLine:
    own = vars(line)
    return LedgerLine(**{name: own[name] for name in _FIELDS} | changes)


def _plain(line: PassLine, often: Number, run: LayerPass | None) -> LedgerLine:
    phase = "backward" if line.phase in ("dgrad", "wgrad") else line.phase
    exposed = line.expected_s * _ratio(line, run)
    return _booked(line, phase=phase, times=line.times * often, term=term_of(line), exposed_s=exposed)


def _rerun(
    line: PassLine, often: Number, share: Number, run: LayerPass | None, step: Stepped, tokens: Number
) -> LedgerLine:
    """A forward line that runs again. Where attention multiplies the whole square in one block, the rerun has just
    found the scores, and the backward pass need not."""
    flops = line.flops * share
    if line.kind == "attention" and step.setting.stack.kernels.masked_square and not step.setting.plan.ring:
        section = next(one for one in step.setting.sections if one.name == line.section)
        kernel = next(one for one in step.setting.reading(section).kernels if one.line == line.ops[0][0])
        key, value = attention_sizes(kernel, section.dims)
        together = (tokens <= ATTENTION_BLOCK) | (tokens % ATTENTION_BLOCK != 0)
        flops = where(together, flops * value / (key + value), flops)
    shared = {name: getattr(line, name) * share for name in ("hbm_bytes", "wire_bytes", "bound_s", "expected_s")}
    shared["exposed_s"] = shared["expected_s"] * _ratio(line, run)
    term = term_of(line) if line.moves else "recompute"
    return _booked(line, phase="recompute", times=line.times * often, term=term, flops=flops, **shared)


def _stack(line: PassLine, layers: Number) -> PassLine:
    """A line of all layers in one message."""
    sizes = {name: getattr(line, name) * layers for name in ("wire_bytes", "bound_s", "expected_s")}
    return replace(line, **sizes)


def _reduced(line: PassLine, step: Stepped, layers: Number) -> LedgerLine:
    """What travels once a step; a program that keeps its layers in one stack sends them in one message."""
    total, exposed = step.time.reduction if step.time is not None else (0.0, 0.0)
    share = where(total > 0, exposed / maximum(total, 1e-300), 0.0)
    if step.setting.stack.state.sums_everywhere:
        line, layers = _stack(line, layers), 1
    return _booked(line, times=line.times * layers, term="gradient reduction", exposed_s=line.expected_s * share)


def _overheads(name: str, forward: LayerPass | None, backward: LayerPass | None, often: Number) -> Iterator[LedgerLine]:
    for phase, run in (("forward", forward), ("backward", backward)):
        if run is None:
            continue
        waits = {"issuing kernels": ("host", "host", run.host, run.host)}
        waits["weights and gradients"] = ("copy", "weight and gradient copies", run.copies, run.copies)
        if "offload" in run.moves:
            waits["saved activations"] = ("host transfer", "host offload", *run.moves["offload"])
        for what, (kind, term, seconds, exposed) in waits.items():
            yield LedgerLine(name, phase, what, kind, (), often, term=term, expected_s=seconds, exposed_s=exposed)


def _wait(term: str, what: str, seconds: Number, bound: Number) -> LedgerLine:
    return LedgerLine("step", "step", what, "wait", term=term, bound_s=bound, expected_s=seconds, exposed_s=seconds)


def _besides(step: Stepped) -> Iterator[LedgerLine]:
    """What belongs to no layer: stages that are longer, the pipeline filling and draining, sends, the optimizer."""
    setting, parts, time, bound = step.setting, step.parts, step.time, step.bound
    alone = step.numbers["pipe"] == 1
    uneven = where(alone, 0.0, time.uneven) if time is not None else 0.0
    least = where(alone, 0.0, bound.uneven) if bound is not None else 0.0
    yield _wait("uneven stages", "stages with the embedding, the head or more layers", uneven, least)
    waited = (time.waiting if time else 0.0, bound.waiting if bound else 0.0)
    yield _wait("pipeline bubble", "the pipeline filling and draining", *waited)
    pipe, virtual = step.numbers["pipe"], step.numbers["virtual"]
    size = send_bytes(setting, step.numbers["microbatch"], step.wires.mesh)
    often = 2 * virtual * parts.microbatches * (pipe > 1)
    every, exposed = time.sends if time is not None else (0.0, 0.0)
    safe = maximum(often, 1)
    least = bound_time("permute", size, ("pipe",), step.wires)
    times = {"bound_s": least, "expected_s": every / safe, "exposed_s": exposed / safe}
    sends = LedgerLine("step", "forward", "R", "permute", ("pipe",), often, term="pipeline sends", **times)
    yield replace(sends, carries="activation", wire_bytes=size)
    moved = updated_bytes(setting, parts)
    seconds = state_seconds(setting, parts) if time is not None else 0.0
    work = {"flops": UPDATE_FLOPS * updated_parameters(parts)[0], "hbm_bytes": moved}
    times = {"bound_s": moved / setting.slice.chip.hbm.bandwidth, "expected_s": seconds, "exposed_s": seconds}
    kind = "host" if setting.plan.offload in HOSTED_STATE and not setting.stack.state.chip_updates else "optimizer"
    yield LedgerLine("step", "update", "optimizer state", kind, term="optimizer", **work, **times)
    travel = hosted_bytes(setting, parts) / setting.slice.chip.host_link
    times = {"bound_s": 0.0, "expected_s": travel, "exposed_s": travel} if time is not None else {}
    yield LedgerLine("step", "update", "weights and gradients", "host transfer", term="host offload", **times)
    yield from muon_lines(setting, parts.layers.fullest, step.wires)


def term_of(line: PassLine) -> str:
    """The line of the bill that a kernel or move is counted under."""
    if line.moves:
        name = bucket(line)
        return TERMS.get(name, "fsdp collectives")
    if line.kind == "attention":
        return "attention (QK, softmax, PV)"
    if line.kind == "elementwise":
        return "elementwise"
    return "attention matmuls" if line.part == "indexer" else f"{line.part} matmuls"


MATMULS = ("matmul", "grouped matmul", "attention")


SHOWN = 8
"""Microbatches that are drawn one by one; the rest of them are one slice."""
_BEFORE = ("pipeline bubble",)
_AFTER = ("gradient reduction", "optimizer", "stragglers", "uneven stages", "bound at datasheet rates")


def step_timeline(ledger: Ledger, microbatches: float, title: str) -> dict[str, Any]:
    """The trace of one step of a chip in the fullest pipeline stage."""
    lines = ledger.lines
    often = [line for line in lines if line.term not in (*_BEFORE, *_AFTER)]
    forward = [line for line in often if line.phase == "forward"]
    backward = [line for line in often if line.phase != "forward"]
    order = list(dict.fromkeys(line.section for line in backward))[::-1]
    backward.sort(key=lambda line: order.index(line.section))
    passes = [TimelinePass("pipeline bubble", _of(lines, _BEFORE))]
    drawn = int(min(microbatches, SHOWN if microbatches > SHOWN + 1 else microbatches))
    for number in range(drawn):
        passes += _both(forward, backward, f"microbatch {number + 1}", 1 / microbatches)
    if microbatches > drawn:
        passes += _both(forward, backward, f"microbatches {drawn + 1} to {microbatches:.0f}", 1 - drawn / microbatches)
    passes += [TimelinePass(term, _of(lines, (term,))) for term in _AFTER]
    return timeline(passes, title)


def _of(lines: list[LedgerLine], terms: tuple[str, ...]) -> tuple[LedgerLine, ...]:
    return tuple(replace(line, section=line.term) for line in lines if line.term in terms)


def _both(forward: list[LedgerLine], backward: list[LedgerLine], name: str, share: float) -> list[TimelinePass]:
    both = (("forward", forward), ("backward", backward))
    return [TimelinePass(f"{name}: {way}", tuple(lines), share) for way, lines in both]
