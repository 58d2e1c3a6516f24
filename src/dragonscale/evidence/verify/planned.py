"""What the plan of a request says it will do: the ledger of our own program, as `dscale train --stack dragonscale` and
`dscale serve --engine dragonscale` have it.

Where another stack's ledger differs from our own program's, line by line, and why.

What is compiled is our own program. A plan made for another stack is held against it switch by switch: starting from
our stack, each switch in which the other differs is set to the other's value, and the lines, bytes and FLOPs that this
changes are listed with the switch's meaning. At the end stands the other stack's own ledger.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy

from dragonscale.errors import InputError
from dragonscale.evidence.verify.records import Request, StackDifference, explanations
from dragonscale.models import load_model
from dragonscale.models.program import longest_run
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.physics.sharding.torus_rows import scatter_phases, torus_rows
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.serving.engine.engine import adjust, load_engine
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.compiled import few_rows
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode, prefill
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.training.cost.evaluation import Job, beyond, judge_one, problems
from dragonscale.training.cost.step_ledger import MATMULS
from dragonscale.training.plan.pipeline_order import timeline
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import Stack, change, in_numerics, load_stack
from dragonscale.training.plan.stages import chunk_sizes, stage_layers
from dragonscale.training.search.legal import unrunnable


def device_memory(request: Request) -> float:
    """Bytes that a program may take on one of the devices that the compiler sees."""
    piece = parse_slice(request.slice)
    return piece.chip.visible / piece.chip.devices


@dataclass(frozen=True)
class Planned:
    """One chip's share of a program: its ledger, the bytes of its arguments, and what the planner finds wrong with the
    plan; `few_rows` says that experts have fewer rows than a GPU's matmuls are made of."""

    axes: dict[str, int]
    ledger: Ledger
    arguments_bytes: float
    problems: tuple[str, ...]
    few_rows: bool = False

    @property
    def memory(self) -> dict[str, float]:
        """The peak by part."""
        return self.ledger.memory

    @property
    def peak_bytes(self) -> float:
        """All parts together."""
        return float(self.ledger.hbm_bytes)

    @property
    def host_bytes(self) -> float:
        """What the host holds for one chip."""
        return float(numpy.ravel(self.ledger.host_bytes)[0])

    @property
    def flops(self) -> float:
        """Matmul FLOPs, attention's included."""
        return float(self.ledger.total("flops", lambda line: line.kind in MATMULS))

    @property
    def moves(self) -> tuple[LedgerLine, ...]:
        """Every collective."""
        return tuple(line for line in self.ledger.lines if line.moves and line.wire_bytes > 0)


def plan_of(request: Request) -> Planned:
    """The planner's side of a request."""
    return _training(request) if request.program == "train" else _serving(request)


def _serving(request: Request) -> Planned:
    model, plan, piece = load_model(request.model), parse_serving_plan(request.plan), parse_slice(request.slice)
    engine = adjust(load_engine("jax-program"), program={"expert_capacity": request.capacity})
    deployment = Deployment(model, piece, plan, engine)
    prompt = request.program == "prefill"
    step = prefill(request.sequence, request.batch) if prompt else decode(request.batch, request.sequence - 1)
    ledger = iteration_ledger(deployment, step)
    memory = ledger.memory
    tokens = request.batch * (request.sequence if prompt else 1)
    benches = [deployment.bench(section, prompt) for section in deployment.sections]
    axes = {axis: int(size) for axis, size in deployment.axes.items()}
    arguments = memory["weights"] + memory["cache"] + memory["tokens"]
    few = any(few_rows(tokens, bench) for bench in benches)
    return Planned(axes, ledger, arguments, _too_large(request, ledger.hbm_bytes), few)


def _too_large(request: Request, peak: float) -> tuple[str, ...]:
    limit = device_memory(request)
    return (f"it needs {beyond(peak, limit)}",) if peak > limit else ()


def our_stack(request: Request) -> Stack:
    """Our own program as a stack, with the room that experts have."""
    return change(load_stack("dragonscale"), "experts", capacity=request.capacity)


def training_job(request: Request, stack: Stack) -> Job:
    """The job of a request under a stack."""
    return Job(load_model(request.model), parse_slice(request.slice), request.batch, request.sequence, stack)


def _training(request: Request) -> Planned:
    plan = parse_plan(request.plan)
    job = training_job(request, our_stack(request))
    if why := unrunnable(plan, job.model):
        raise InputError(f"Our own program cannot run the plan, and there is nothing to compile: {why}.")
    verdict = judge_one(job, plan)
    memory = verdict.ledger.memory
    broken = [text for text in problems(job, plan, verdict) if "per chip" not in text]
    arguments = memory.get("weights and optimizer", 0.0) + memory["tokens"]
    filled = _filled(job, plan)
    lines = [
        replace(line, times=line.times * filled) if "block" in line.section else line for line in verdict.ledger.lines
    ]
    lines = [_each_tick(line, request, plan) for line in lines]
    ledger = replace(verdict.ledger, lines=[each for line in lines for each in _in_phases(line, job.slice, plan)])
    return Planned(verdict.axes, ledger, arguments, (*broken, *_too_large(request, verdict.hbm_bytes)))


def _in_phases(line: LedgerLine, piece: Slice, plan: Plan) -> list[LedgerLine]:
    """A line of the ledger as the compiled program has it: where a TPU's compiler has no scatter over a whole slice,
    sums are scattered along one row of its torus after the other."""
    sizes = {axis: getattr(plan, axis) for axis in AXES}
    axes = tuple(axis for axis in line.axes if sizes[axis] > 1) if line.kind == "reduce_scatter" else ()
    chips = math.prod(sizes[axis] for axis in axes)
    whole = axes and chips == plan.chips == piece.chips and piece.pods == 1
    if not whole or piece.chip.kind != "tpu" or piece.chip.devices > 1:
        return [line]
    places = numpy.indices((1, *piece.shape[::-1], 1)).reshape(len(piece.shape) + 2, -1).T
    rest, found = line.wire_bytes * chips / (chips - 1), []
    for phase in scatter_phases(torus_rows(sizes, places), axes):
        found.append(replace(line, axes=phase.axes, wire_bytes=rest * (phase.ways - 1) / phase.ways))
        rest = rest / phase.ways
    return found or [line]


def _filled(job: Job, plan: Plan) -> float:
    """The layers that our own program runs on every rank of a pipeline, over those of the fullest one: its chunks are
    all as long as the longest."""
    order = job.model.program().order
    if plan.pipe == 1 or longest_run(order)[1].times < len(order):
        return 1.0
    fullest = sum(stage_layers(order, plan.pipe, plan.virtual, plan.layout).fullest.values())
    return (
        plan.virtual
        * max(chunk_sizes(len(order), plan.pipe * plan.virtual, plan.layout))
        / float(numpy.ravel(fullest)[0])
    )


def _each_tick(line: LedgerLine, request: Request, plan: Plan) -> LedgerLine:
    """A line of the ledger as the compiled program has it: all ranks of a pipeline pass something on in both directions
    after every tick of its schedule, whether there is anything to pass or not."""
    if line.term != "pipeline sends" or plan.pipe == 1:
        return line
    microbatches = request.batch // (plan.replicas * plan.microbatch)
    return replace(line, times=2 * len(timeline(plan.schedule, plan.pipe, plan.virtual, microbatches)))


SMALLEST = 1e-6
Sums = dict[tuple[str, str, str, str], float]


def stack_differences(request: Request, name: str) -> tuple[StackDifference, ...]:
    """Every line that a stack's switches change, with the switch; nothing for our own."""
    other = in_numerics(load_stack(name), "production")  # as train takes it
    if name == "dragonscale" or request.program != "train":
        return ()
    found: list[StackDifference] = []
    now = our_stack(request)
    before = _sums(_ledger(request, now))
    for switch, why in explanations("switches").items():
        then = _set(now, other, switch)
        if then == now:
            continue
        after = _sums(_ledger(request, then))
        found += _changed(before, after, switch, why)
        now, before = then, after
    return tuple(found)


def _ledger(request: Request, stack: Stack) -> Ledger:
    return judge_one(training_job(request, stack), parse_plan(request.plan)).ledger


def _set(stack: Stack, other: Stack, switch: str) -> Stack:
    """A stack with one switch, or one group of them, as another has it."""
    group, _, field = switch.partition(".")
    if not field:
        changes: dict[str, Any] = {group: getattr(other, group)}
        if group == "memory":  # what is held follows these too
            state = {name: getattr(other.state, name) for name in ("gradient_bytes", "master_bytes", "narrow_weights")}
            changes |= {"state": msgspec.structs.replace(stack.state, **state)}
            changes |= {"kernels": msgspec.structs.replace(stack.kernels, flash=other.kernels.flash)}
        return msgspec.structs.replace(stack, **changes)
    value = getattr(getattr(other, group), field)
    return msgspec.structs.replace(stack, **{group: msgspec.structs.replace(getattr(stack, group), **{field: value})})


def _sums(ledger: Ledger) -> Sums:
    """FLOPs and bytes sent by section, phase, what and kind over which axes; bytes held by part."""
    sums: Sums = defaultdict(float)
    for line in ledger.lines:
        where = f" over {'+'.join(sorted(line.axes))}" if line.axes else ""
        for quantity in ("flops", "wire_bytes"):
            size = float(line.total(quantity))
            if size and (quantity != "flops" or "matmul" in line.kind or line.kind == "attention"):
                sums[quantity, line.section, line.phase, f"{line.what} ({line.kind}{where})"] += size
    for held in ledger.held:
        sums["hbm_bytes", held.section or "step", "memory", held.part] += float(held.bytes)
    return sums


def _changed(before: Sums, after: Sums, switch: str, why: str) -> Iterator[StackDifference]:
    totals: dict[str, float] = defaultdict(float)
    for key, size in before.items():
        totals[key[0]] += size
    for key in {**before, **after}:
        ours, theirs = before.get(key, 0.0), after.get(key, 0.0)
        if abs(theirs - ours) > SMALLEST * (totals[key[0]] or 1.0):
            yield StackDifference(switch, why, *key, ours, theirs)
