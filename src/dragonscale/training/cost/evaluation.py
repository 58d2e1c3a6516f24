"""One plan judged: how long a step takes at best, at worst and in expectation, what bounds it, and whether it fits.

The lower bound is what physics allows for this plan: the busiest resource (compute with its bubble, the memory that the
optimizer reads and writes, or the wires of one kind of move) at datasheet rates. The upper bound is everything one
after the other at those rates. The expectation goes through the efficiency profiles of the chip's kernels and wires and
the software stack's overlaps; it is never below the lower bound. All of it is read off one ledger.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy
from msgspec.structs import asdict
from numpy.typing import NDArray

from dragonscale.models.flops import Workload, training_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, alone, first_number
from dragonscale.physics.sharding.placement import Wires, lay_wires
from dragonscale.plan.finite import checked
from dragonscale.plan.ledger import HeldLine, Ledger, plan_ledger, present
from dragonscale.plan.rules import pairs, training_rules
from dragonscale.training.cost.goodput import Conditions
from dragonscale.training.cost.layer_passes import StepParts, bound_passes, layer_passes, mixed_passes, sums_by_section
from dragonscale.training.cost.section_costs import SectionCosts, cached_section_costs, section_costs
from dragonscale.training.cost.section_lines import offload_seconds
from dragonscale.training.cost.step_ledger import MATMULS, WIRES, StepSummary, lower_bound, step_lines
from dragonscale.training.cost.step_time import step_time
from dragonscale.training.memory.peak_memory import fullest_rank_lines, host_memory_lines, outer_ranks
from dragonscale.training.memory.xla_memory import xla_memory_lines, xla_section
from dragonscale.training.plan.auto import AUTO, OFFLOADING, auto_choice, judged_as
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import AXES, Plan, layer_policies, layers_of
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import (
    Stack,
    change,
    in_numerics,
    load_stack,
    on_chip,
    with_adapters_on,
    with_attention_of,
)
from dragonscale.training.plan.stages import StageLayers, layout_problem, stage_layers
from dragonscale.training.plan.timers import expected_timer
from dragonscale.training.plan.tuning import FULL, Tuning

DEGREES = (*AXES, "microbatch", "virtual")
"""The settings of a plan that are numbers, which plans of one batch differ in: arrays of shape (plans,)."""


@dataclass(frozen=True)
class Job:
    """What is to be trained, on what, in which steps: `batch` sequences of `sequence` tokens, each one document or
    packed with several of `documents` tokens, which do not attend to each other."""

    model: Transformer
    slice: Slice
    batch: int
    sequence: int
    stack: Stack
    transport: str = "ib"
    auto: str = ""
    """Where the stack was not named: why this one and others are compared."""
    documents: int | None = None
    numerics: str = "benchmark"
    """The formats that gradients are added and reduced in (`stack.NUMERICS`), which `stack` already has."""
    headroom: float | None = None
    """The fraction of memory that a recommended plan leaves free; None: as much as predicted peaks have been off
    (`search.headroom`)."""
    run: Conditions = Conditions()
    """The conditions of the whole run: failures, storage, spare hosts."""
    tuning: Tuning = Tuning()
    """What of the model is trained; its adapters are in the model's program (`tuned`)."""

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def experts(self) -> int:
        """Experts of the layers with the most; 0 in a dense model."""
        return max((section.dims.get("e", 0) for section in self.model.program().sections), default=0)

    @property
    def model_flops(self) -> float:
        """FLOPs of a step as the MFU counts them: forward and backward with causal attention, no recomputation. Pairs
        of tokens that the causal mask or the mask of packed documents leaves out are not counted."""
        work = Workload(self.batch, self.sequence, self.sequence, documents=self.documents)
        return float(sum(training_flops(self.model.program().sections, work).values()))


def make_job(
    model: Transformer, slice_: Slice, batch: int, sequence: int, stack: str = "generic", tuning: Tuning = FULL
) -> Job:
    """A job with its software stack by name; `auto` is the first that people run there, until `usual_jobs` compares
    them."""
    why = ""
    if stack == AUTO:
        choice = auto_choice(slice_, model, tuning.tunes)
        stack, why = choice.stacks[0], choice.why
    return tuned(Job(model, slice_, batch, sequence, load_stack(stack), auto=why), tuning)


def tuned(job: Job, tuning: Tuning) -> Job:
    """The same job with another method of training, adapters in the model's program."""
    model = job.model
    if model.adapters != tuning.adapters:  # a model with its own adapters writes its program anew
        model = replace(model, adapters=tuning.adapters)
    return replace(job, tuning=tuning, model=model)


def with_numerics(job: Job, numerics: str) -> Job:
    """The same job with gradients added and reduced in other formats."""
    changed = replace(job, numerics=numerics)
    return replace(changed, stack=as_asked(changed, job.stack.name))


def as_asked(job: Job, name: str) -> Stack:
    """Another stack, with what the user of a job asked for of its experts and its numerics."""
    stack = in_numerics(load_stack(name), job.numerics)
    defaults = load_stack(job.stack.name).experts
    switches = asdict(job.stack.experts).items()
    asked = {switch: value for switch, value in switches if value != getattr(defaults, switch)}
    if "skew" in asked:
        # The skew was asked for relative to the default of the stack.
        asked["skew"] = asked["skew"] / defaults.skew * stack.experts.skew
    return change(stack, "experts", **asked)


def usual_jobs(job: Job) -> list[Job]:
    """The job with each stack that people run there, the most usual first; as it is where its stack was named."""
    if not job.auto:
        return [job]
    choice = auto_choice(job.slice, job.model, job.tuning.tunes)
    return [replace(job, stack=as_asked(job, name), auto=choice.why) for name in choice.stacks]


def nearest_jobs(job: Job) -> list[Job]:
    """The job with the usual stacks whose trainers do not build its model, for a plan that no other stack runs."""
    if not job.auto:
        return []
    names = auto_choice(job.slice, job.model, job.tuning.tunes).left_out
    return [replace(job, stack=as_asked(job, name), auto=judged_as(name, job.model)) for name in names]


def offload_jobs(job: Job) -> list[Job]:
    """The job with the trainers that keep state off the chip, for a plan that does and that the usual ones refuse."""
    if not job.auto or family(job.slice.chip) not in ("nvidia", "amd"):
        return []
    return [replace(job, stack=as_asked(job, name), auto="its offload") for name in OFFLOADING]


def unusual_jobs(job: Job) -> list[Job]:
    """The job with less usual stacks, which take what does not fit with the usual ones."""
    if not job.auto:
        return []
    names = auto_choice(job.slice, job.model, job.tuning.tunes).otherwise
    return [replace(job, stack=as_asked(job, name), auto="") for name in names]


@dataclass(frozen=True)
class Verdict:
    """A plan judged, or many of one structure (arrays of shape (plans,)): the ledger, and what follows from it.
    `possible` is whether the mesh lies on the slice's network at all."""

    ledger: Ledger
    possible: Any
    axes: dict[str, Number] = field(default_factory=dict)

    @cached_property
    def compute_s(self) -> Number:
        """Seconds at datasheet rates of kernels, the pipeline bubble and uneven stages."""
        return self.ledger.total("bound_s", lambda line: line.term not in (*WIRES, "optimizer"))

    @cached_property
    def wires_s(self) -> dict[str, Number]:
        """Seconds at datasheet rates of the wires, by kind of move."""
        return self.ledger.by("term", "bound_s", lambda line: line.term in WIRES)

    @cached_property
    def lower(self) -> Number:
        """Seconds of the busiest resource, everything else hidden under it."""
        return lower_bound(self.ledger.lines)

    @cached_property
    def upper(self) -> Number:
        """Seconds of everything at datasheet rates, one after the other."""
        return self.ledger.total("bound_s")

    @cached_property
    def seconds(self) -> Number:
        """Seconds expected of the step."""
        return self.ledger.total("exposed_s")

    @cached_property
    def hbm_bytes(self) -> Number:
        """Bytes on the fullest chip."""
        return self.ledger.hbm_bytes

    @cached_property
    def flops(self) -> Number:
        """Matmul FLOPs of a chip in a step, recompute, head and attention included."""
        return sum((line.total("flops") for line in self.ledger.lines if line.kind in MATMULS), 0.0)


PAIR_LOGIT_BYTES = 12.0
"""Bytes of each logit of answers that are compared: in bf16, in fp32, their log-softmax, the gradient."""


def make_setting(job: Job, plan: Plan, folded: bool, undivided: dict[str, Any], detail: bool = True) -> Setting:
    """The setting of plans that share their settings and their structure; `plan` is one of them."""
    chip = job.slice.chip
    stack = on_chip(job.stack, chip.kind)
    if job.tuning.rank:
        stack = with_adapters_on(stack, job.tuning.quantized)
    if job.tuning.frozen_bytes > stack.state.frozen_bytes:
        stack = change(stack, "state", frozen_bytes=job.tuning.frozen_bytes)
    if job.tuning.pairs and job.tuning.logits and stack.memory.loss_chunks > 1:
        # fused losses are of the next token; log-probabilities of answers are made of whole logits
        stack = change(stack, "memory", loss_chunks=1.0, logit_bytes=PAIR_LOGIT_BYTES)
    stack = with_attention_of(stack, str(job.model.config.get("model_type", "")), job.tuning.attention)
    return Setting(
        job.model.program(),
        job.slice,
        batch=float(job.batch),
        sequence=job.sequence,
        plan=plan,
        stack=stack,
        timer=expected_timer(chip, plan.dtype, stack),
        network=profile_for(chip, job.transport),
        folded=folded,
        undivided=undivided,
        detail=detail,
        documents=job.documents,
        tuning=job.tuning,
    )


UndividedDims = frozenset[tuple[str, tuple[str, ...]]]
"""Dims of a section, each with the mesh axes that do not divide it."""
Structure = tuple[bool, tuple[tuple[str, UndividedDims], ...]]
"""Whether experts spread over `tensor`, and by section its undivided dims."""


def structures(job: Job, degrees: dict[str, Any], etp: bool = False) -> tuple[list[Structure], NDArray[numpy.int64]]:
    """The distinct structures of some plans, and for each plan the index of its own. Experts spread over `tensor`, or
    each is sliced where there are too few of them or `etp` asks for it; for a stack that keeps dims whole that do not
    divide, it matters which dims these are."""
    count = len(numpy.atleast_1d(degrees["pipe"]))
    sizes = {name: numpy.broadcast_to(degrees[name], (count,)) for name in AXES}
    sliced = (sizes["expert"] * sizes["tensor"] > job.experts) | etp
    columns: list[Any] = [~(sliced & bool(job.experts))]
    splits = [] if job.stack.state.flat else _possible_splits(job)
    for split in splits:
        ways = numpy.prod([sizes[axis] for axis in split.axes], axis=0)  # (plans,)
        columns.append(split.size % ways != 0)
    # A structure is a row of truths: folded, and for each possible split whether it leaves the dim whole.
    table = numpy.stack(columns, axis=1)  # (plans, 1 + splits)
    distinct, which = numpy.unique(table, axis=0, return_inverse=True)
    found: list[Structure] = []
    for folded, *indivisible in distinct.tolist():
        undivided: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
        for split, is_whole in zip(splits, indivisible, strict=True):
            if is_whole:
                undivided.setdefault(split.section, set()).add((split.dim, split.axes))
        found.append((folded, tuple((section, frozenset(dims)) for section, dims in undivided.items())))
    return found, which.ravel()


def only_structure(job: Job, degrees: dict[str, Any], etp: bool = False) -> Structure:
    """The structure that some plans share."""
    found, _ = structures(job, degrees, etp)
    assert len(found) == 1, "plans of one structure at a time"
    return found[0]


@dataclass(frozen=True)
class _Split:
    """A dim of a section that a plan may split over some mesh axes, and its size."""

    section: str
    dim: str
    axes: tuple[str, ...]
    size: int


def _possible_splits(job: Job) -> list[_Split]:
    """Every dim that a plan may split; the experts of a token are left out, which are dealt evenly on average."""
    splits: dict[_Split, None] = {}
    program = job.model.program()
    for folded in (True, False):
        rules = training_rules(folded=folded)
        for section in (*program.sections, *program.extras):
            arrays = {array.name: array for op in section.ops for array in op.arrays}.values()
            for dim, axes in pairs(rules, arrays):
                if dim in section.dims and dim != "x":
                    splits[_Split(section.name, dim, axes, section.dims[dim])] = None
    return list(splits)


def judge(job: Job, plan: Plan, degrees: dict[str, Any]) -> Verdict:
    """Evaluate plans that share their settings (`plan`) and their structure, and differ in degrees (arrays)."""
    setting, layers = _setting_and_layers(job, plan, degrees)
    return judge_setting(setting, degrees, lay_wires(degrees, job.slice, AXES), layers)


def _setting_and_layers(job: Job, plan: Plan, degrees: dict[str, Any]) -> tuple[Setting, StageLayers]:
    folded, undivided = only_structure(job, degrees, plan.etp)
    setting = make_setting(job, plan, folded, dict(undivided))
    return setting, stage_layers(setting.program.order, degrees["pipe"], degrees["virtual"], plan.layout)


def judge_setting(
    setting: Setting, degrees: dict[str, Any], wires: Wires, layers: StageLayers, costs: SectionCosts | None = None
) -> Verdict:
    """The ledger of plans whose mesh is laid on wires; without a timer, their bounds alone."""
    mesh = wires.mesh
    microbatches = setting.batch / (mesh.size("data", "fsdp", "expert") * degrees["microbatch"])
    costs = costs or section_costs(setting, degrees, wires)  # a single plan brings cached ones
    memory = costs.memory

    # At datasheet rates: the bound of every kernel and move.
    bounds = sums_by_section(setting, costs.lines, "bound_s")
    # Two settings where only some layers are recomputed, of whose passes the step has the mean.
    policies = [setting.with_remat(policy) for policy in layer_policies(setting.plan.remat)]
    least = [bound_passes(bounds, single.plan, single.tuning.passes) for single in policies]
    bound_parts = StepParts(bounds, memory, layers, microbatches, *mixed_passes(setting, layers, degrees, least))
    bound = step_time(setting, degrees, bound_parts, wires, bound=True)

    # Expected: through efficiency profiles, with what the stack overlaps.
    parts, time = replace(bound_parts, forward={}, backward={}), None
    if setting.timer is not None:
        sums = sums_by_section(setting, costs.lines, "expected_s")
        if setting.plan.remat == "offload" or layers_of(setting.plan.offload):  # activations in the host's memory
            for section in setting.sections:
                sums[section.name].offload = offload_seconds(setting, section, degrees["microbatch"], mesh)
        expected = [layer_passes(single, sums, memory, degrees["pipe"], microbatches) for single in policies]
        parts = StepParts(sums, memory, layers, microbatches, *mixed_passes(setting, layers, degrees, expected))
        time = step_time(setting, degrees, parts, wires)

    step = StepSummary(setting, degrees, wires, costs.lines, parts, time, bound)
    on_host = host_memory_lines(setting, memory, layers, degrees, microbatches)
    return Verdict(Ledger(step_lines(step), chip_memory_lines(step), on_host), wires.possible, wires.axes)


def chip_memory_lines(step: StepSummary) -> list[HeldLine]:
    """What the fullest chip holds, as the stack's allocator has it."""
    setting, parts, degrees = step.setting, step.parts, step.degrees
    if setting.stack.memory.allocator == "caching":
        return fullest_rank_lines(outer_ranks(setting, parts.memory, parts.layers, degrees, parts.microbatches))
    sections = {}
    for section in setting.sections:
        sections[section.name] = xla_section(setting, section, degrees["microbatch"], step.wires.mesh)
    return xla_memory_lines(setting, sections, parts.layers, degrees, parts.microbatches)


def degrees_of(plans: list[Plan]) -> dict[str, Any]:
    """The degrees of some plans as arrays of shape (plans,)."""
    return {name: numpy.array([getattr(plan, name) for plan in plans]) for name in DEGREES}


def judge_one(job: Job, plan: Plan) -> Verdict:
    """A single plan, through the same code as a million: its ledger in floats, without lines that do nothing."""
    arrays = degrees_of([plan])
    setting, layers = _setting_and_layers(job, plan, arrays)
    degrees, wires = alone(arrays), lay_wires(arrays, job.slice, AXES).of_one()
    costs = cached_section_costs(setting, degrees, wires)
    verdict = judge_setting(setting, degrees, wires, layers.of_one(), costs)
    ledger = plan_ledger(verdict.ledger, 0)
    if bool(numpy.ravel(verdict.possible)[0]):
        checked(ledger, f"the plan {plan}")
    tensors = [line for line in ledger.held if line.bytes]
    return Verdict(Ledger(present(ledger.lines, wires.axes), tensors, ledger.hosted), verdict.possible, wires.axes)


def _expert_axis_note(job: Job, plan: Plan) -> str:
    """How to write a plan in which experts were counted inside data-parallel ranks, as trainers count them."""
    if plan.expert == 1 or plan.chips != job.slice.chips * plan.expert:
        return ""
    for axis in ("fsdp", "data"):
        ranks = plan[axis]
        if ranks > 1 and ranks % plan.expert == 0:
            written = f"{axis}={ranks // plan.expert},expert={plan.expert}"
            return f" (expert is an axis of its own here, beside {axis}: {written})"
    return ""


def beyond(used: float, limit: float) -> str:
    """In words, by how much the bytes needed of a chip exceed its limit, with more digits where the two read alike.

    >>> beyond(90e9, 80e9), beyond(25.41e9, 25.36e9)
    ('90.0 GB per chip, 12% more than the 80 GB there are', '25.41 GB per chip, 0.2% more than the 25.36 GB there are')
    >>> beyond(790e9, 80e9)
    '790.0 GB per chip, 9.9 times the 80 GB there are'
    """
    over = used / limit - 1
    if over >= 1:
        return f"{used / 1e9:.1f} GB per chip, {used / limit:.2g} times the {limit / 1e9:.0f} GB there are"
    if over >= 0.02:
        return f"{used / 1e9:.1f} GB per chip, {over:.0%} more than the {limit / 1e9:.0f} GB there are"
    return f"{used / 1e9:.2f} GB per chip, {100 * over:.1g}% more than the {limit / 1e9:.2f} GB there are"


def problems(job: Job, plan: Plan, verdict: Verdict) -> list[str]:
    """Why a plan cannot be run, each with the limit and by how much it is missed; empty if it can."""
    found: list[str] = []
    if plan.chips != job.slice.chips:
        note = _expert_axis_note(job, plan)
        found.append(f"the plan is for {plan.chips} chips and {job.slice} has {job.slice.chips}{note}")
    if job.batch % (plan.replicas * plan.microbatch):
        found.append(
            f"a batch of {job.batch} sequences does not divide into {plan.replicas} replicas x microbatches of "
            f"{plan.microbatch}"
        )
    if misdealt := layout_problem(job.model.n_layers, plan.pipe, plan.virtual, plan.layout):
        found.append(misdealt)
    if not bool(numpy.ravel(verdict.possible)[0]):
        found.append(f"the mesh does not lie on the torus {job.slice}")
    used, limit = first_number(verdict.hbm_bytes), job.slice.chip.visible
    if used > limit:
        found.append(f"it needs {beyond(used, limit)}")
    host_used, host_limit = first_number(verdict.ledger.host_bytes), job.slice.chip.host_memory
    if host_used > host_limit:
        digits = 0 if host_used > 1.02 * host_limit else 1  # so that the two do not read alike
        found.append(
            f"it needs {host_used / 1e9:.{digits}f} GB of the host's memory per chip, "
            f"{host_used / host_limit - 1:.{digits}%} more than its share of {host_limit / 1e9:.{digits}f} GB"
        )
    return found


@dataclass(frozen=True)
class LayerMatmul:
    """A matmul as a point under a chip's roofline: FLOPs per byte of HBM, and the FLOP/s to expect."""

    name: str
    intensity: float
    flops_per_s: float


def layer_matmuls(job: Job, ledger: Ledger) -> list[LayerMatmul]:
    """The forward matmuls of the model's most common layer in the ledger of a step."""
    section = max(job.model.program().sections, key=lambda section: section.repeat).name
    matmuls: list[LayerMatmul] = []
    for line in ledger.lines:
        if line.section == section and line.phase == "forward" and line.kind in ("matmul", "grouped matmul"):
            name = f"{line.part} {line.what}".strip()
            matmuls.append(LayerMatmul(name, line.flops / line.hbm_bytes, line.flops / line.expected_s))
    return matmuls
