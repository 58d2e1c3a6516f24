"""One plan judged: how long a step takes at best, at worst and in expectation, what bounds it, and whether it fits.

The lower bound is what physics allows for this plan: the busiest resource (compute with its bubble, or the wires of one
set of axes) at datasheet rates. The upper bound is everything one after the other at those rates. The expectation goes
through the efficiency profiles of the chip's kernels and wires and the software stack's overlaps; it is never below the
lower bound.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.collectives.profile_file import profile_for
from dragonscale.hardware import Slice
from dragonscale.models.flops import Workload, training_flops
from dragonscale.models.transformer import Transformer
from dragonscale.numbers import Number, maximum
from dragonscale.sharding.placement import lay_wires
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.stack import Stack, load_stack
from dragonscale.training.step import Setting, Step, Term, evaluate
from dragonscale.training.timers import PeakTimer, expected_timer

NUMBERS = (*AXES, "microbatch", "virtual")
WIRES = (
    "tensor collectives",
    "context collectives",
    "expert all-to-all",
    "fsdp collectives",
    "gradient reduction",
    "pipeline sends",
)


IDEAL = Stack(name="ideal", reduce_bytes=2.0, expert_dedup=True, narrow_gathers=True, straggle=0.0, balanced=True)
"""For bounds: no time of the host, gradients sent in bf16."""


@dataclass(frozen=True)
class Job:
    """What is to be trained, on what, in which steps: `batch` sequences of `sequence` tokens."""

    model: Transformer
    piece: Slice
    batch: int
    sequence: int
    stack: Stack
    transport: str = "ib"

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def model_flops(self) -> float:
        """FLOPs of a step as the MFU counts them: forward and backward with causal attention, no recomputation."""
        work = Workload(self.batch, self.sequence, self.sequence)
        return float(sum(training_flops(self.model.program().sections, work).values()))


def make_job(model: Transformer, piece: Slice, batch: int, sequence: int, stack: str = "generic") -> Job:
    """A job with its software stack by name."""
    return Job(model, piece, batch, sequence, load_stack(stack))


@dataclass(frozen=True)
class Verdict:
    """A batch of plans evaluated: arrays over the plans."""

    expected: Step
    bound: Step
    lower: Any
    upper: Any
    seconds: Any
    hbm_bytes: Any
    possible: Any


def judge(job: Job, words: Plan, numbers: dict[str, Any]) -> Verdict:
    """Evaluate plans that share their words (`words`) and differ in numbers (arrays)."""
    experts = max((section.dims.get("e", 0) for section in job.model.program().sections), default=0)
    slices = numpy.asarray(numbers["expert"] * numbers["tensor"] > experts) & bool(experts)
    if not numpy.any(slices) or numpy.all(slices):
        return _judge(job, words, numbers, folded=not numpy.all(slices))
    halves = [
        (where, _judge(job, words, {name: value[where] for name, value in numbers.items()}, folded))
        for where, folded in ((numpy.nonzero(~slices)[0], True), (numpy.nonzero(slices)[0], False))
    ]
    return merge_verdicts(halves, len(slices))


def _judge(job: Job, words: Plan, numbers: dict[str, Any], folded: bool) -> Verdict:
    """`folded`: whether experts spread over `tensor` too; where there are too few of them, each is sliced instead."""
    wires = lay_wires(numbers, job.piece, AXES)
    chip, program = job.piece.chip, job.model.program()
    common = (program, job.piece, float(job.batch), job.sequence, words, job.stack)
    ideal = (*common[:-1], IDEAL)
    bound = evaluate(Setting(*ideal, PeakTimer(chip, words.dtype), None, folded), numbers, wires)
    timer, profile = expected_timer(chip, words.dtype, job.stack), profile_for(chip, job.transport)
    expected = evaluate(Setting(*common, timer, profile, folded), numbers, wires)
    compute = sum(term.seconds for name, term in bound.terms.items() if name not in WIRES)
    wired = [bound.terms[name].seconds for name in WIRES if name in bound.terms]
    lower = maximum(compute, *wired)
    upper = compute + sum(wired)
    seconds = maximum(expected.seconds * straggling(job), lower)
    return Verdict(expected, bound, lower, upper, seconds, expected.hbm_bytes, wires.possible)


def merge_verdicts(halves: list[tuple[Any, Verdict]], count: int) -> Verdict:
    """One verdict out of several, each with the places of its plans."""

    def put(values: list[Number]) -> Any:
        kind = numpy.asarray(values[0]).dtype
        whole = numpy.zeros(count, kind)
        for (places, _), value in zip(halves, values, strict=True):
            whole[places] = value
        return whole

    def joined(steps: list[Step]) -> Step:
        names = list(dict.fromkeys(name for step in steps for name in step.terms))
        terms = {
            name: Term(*(put([getattr(step.terms.get(name, Term()), part) for step in steps]) for part in _TERM_PARTS))
            for name in names
        }
        memory = {name: put([step.memory[name] for step in steps]) for name in steps[0].memory}
        return Step(terms, memory)

    verdicts = [verdict for _, verdict in halves]
    return Verdict(
        joined([verdict.expected for verdict in verdicts]),
        joined([verdict.bound for verdict in verdicts]),
        *(put([getattr(verdict, name) for verdict in verdicts]) for name in _ARRAYS),
    )


_TERM_PARTS = ("seconds", "exposed", "sent", "flops")
_ARRAYS = ("lower", "upper", "seconds", "hbm_bytes", "possible")


def straggling(job: Job) -> float:
    """The slowest of many machines sets the pace: a little more for every doubling of the nodes."""
    nodes = max(1.0, job.piece.chips / max(1, job.piece.chip.host_chips))
    return 1.0 + job.stack.straggle * float(numpy.log2(nodes))


def as_numbers(plans: list[Plan]) -> dict[str, Any]:
    """The numeric settings of some plans as arrays."""
    return {name: numpy.array([getattr(plan, name) for plan in plans]) for name in NUMBERS}


def first(value: Number) -> float:
    """The one value of a batch of one."""
    return float(numpy.ravel(value)[0])


def judge_one(job: Job, plan: Plan) -> Verdict:
    """A single plan, through the same code as a million."""
    return judge(job, plan, as_numbers([plan]))


def problems(job: Job, plan: Plan, verdict: Verdict) -> list[str]:
    """Why a plan cannot be run, each with the limit and by how much it is missed; empty if it can."""
    found: list[str] = []
    if plan.chips != job.piece.chips:
        found.append(f"the plan is for {plan.chips} chips and {job.piece} has {job.piece.chips}")
    share = plan.replicas * plan.microbatch
    if job.batch % share:
        found.append(
            f"a batch of {job.batch} sequences does not divide into {plan.replicas} copies x microbatches of {plan.microbatch}"
        )
    layers = job.model.n_layers
    if plan.pipe * plan.virtual > layers:
        found.append(f"{plan.pipe} stages x {plan.virtual} chunks need more than the model's {layers} layers")
    if not bool(numpy.ravel(verdict.possible)[0]):
        found.append(f"the mesh does not lie on the torus {job.piece}")
    used, limit = first(verdict.hbm_bytes), job.piece.chip.hbm.capacity
    if used > limit:
        found.append(
            f"it needs {used / 1e9:.1f} GB per chip, {used / limit - 1:.0%} more than the {limit / 1e9:.0f} GB there are"
        )
    return found
