"""One plan judged: how long a step takes at best, at worst and in expectation, what bounds it, and whether it fits.

The lower bound is what physics allows for this plan: the busiest resource (compute with its bubble, the memory that the
optimizer reads and writes, or the wires of one kind of move) at datasheet rates. The upper bound is everything one
after the other at those rates. The expectation goes through the efficiency profiles of the chip's kernels and wires and
the software stack's overlaps; it is never below the lower bound. All of it is read off one ledger.

The matmuls of a layer as points under a chip's roof: how much each computes per byte on one chip.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy
from msgspec.structs import asdict

from dragonscale.models.flops import Workload, training_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, alone
from dragonscale.physics.sharding.placement import Wires, lay_wires
from dragonscale.plan.finite import checked
from dragonscale.plan.ledger import HeldLine, Ledger, at, present
from dragonscale.plan.rules import pairs, training_rules
from dragonscale.training.cost.goodput import Conditions
from dragonscale.training.cost.lines import offload_seconds
from dragonscale.training.cost.section_costs import SectionCosts, last_section_costs, section_costs
from dragonscale.training.cost.step import Parts, bound_passes, layer_passes, section_sums, shared_passes, step_time
from dragonscale.training.cost.step_ledger import MATMULS, WIRES, Stepped, lower_bound, step_lines
from dragonscale.training.memory.peak_memory import fullest_rank, hosted, ranks_held
from dragonscale.training.memory.xla_memory import section_parts, xla_held
from dragonscale.training.plan.auto import AUTO, auto_choice, judged_as
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import Stack, change, in_numerics, load_stack, on_chip, with_adapters_on
from dragonscale.training.plan.stages import StageLayers, layout_problem, stage_layers
from dragonscale.training.plan.timers import expected_timer
from dragonscale.training.plan.tuning import FULL, Tuning

NUMBERS = (*AXES, "microbatch", "virtual")


@dataclass(frozen=True)
class Job:
    """What is to be trained, on what, in which steps: `batch` sequences of `sequence` tokens, each one document or
    packed with several of `documents` tokens, which do not see each other."""

    model: Transformer
    slice: Slice
    batch: int
    sequence: int
    stack: Stack
    transport: str = "ib"
    auto: str = ""
    """Where the stack was not named: why this one and others are weighed."""
    documents: int | None = None
    numerics: str = "benchmark"
    """In what gradients are added and reduced (`stack.NUMERICS`); `stack` is as that has it."""
    headroom: float | None = None
    """The part of memory that a recommended plan leaves free; None: as much as predicted peaks have been off (`room`).
    """
    run: Conditions = Conditions()
    """What the whole run meets: failures, storage, spares."""
    tuning: Tuning = Tuning()
    """What of the model is trained; its adapters are in the model's program (`tuned`)."""

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def experts(self) -> int:
        """Experts of the layers that have most."""
        return max((section.dims.get("e", 0) for section in self.model.program().sections), default=0)

    @property
    def model_flops(self) -> float:
        """FLOPs of a step as the MFU counts them: forward and backward with causal attention, no recomputation. Of
        packed documents, what their mask leaves out is not counted, as what the causal mask leaves out is not."""
        work = Workload(self.batch, self.sequence, self.sequence, documents=self.documents)
        return float(sum(training_flops(self.model.program().sections, work).values()))


def make_job(
    model: Transformer, piece: Slice, batch: int, sequence: int, stack: str = "generic", tuning: Tuning = FULL
) -> Job:
    """A job with its software stack by name; `auto` is the first that people run there, until `usual_jobs` are
    weighed."""
    choice = auto_choice(piece, model, tuning.tunes) if stack == AUTO else None
    runs = load_stack(choice.stacks[0] if choice else stack)
    return tuned(Job(model, piece, batch, sequence, runs, auto=choice.why if choice else ""), tuning)


def tuned(job: Job, tuning: Tuning) -> Job:
    """The same job with what is trained, adapters in the model's program."""
    model = job.model
    if model.adapters != tuning.adapters:  # a model of its own writes its program anew
        model = replace(model, adapters=tuning.adapters)
    return replace(job, tuning=tuning, model=model)


def with_numerics(job: Job, numerics: str) -> Job:
    """The same job with gradients added and reduced otherwise."""
    other = replace(job, numerics=numerics)
    return replace(other, stack=as_asked(other, job.stack.name))


def as_asked(job: Job, name: str) -> Stack:
    """Another stack, with what a job asks of its experts and its numerics."""
    stack, known = in_numerics(load_stack(name), job.numerics), load_stack(job.stack.name).experts
    asked = {one: value for one, value in asdict(job.stack.experts).items() if value != getattr(known, one)}
    if "skew" in asked:
        asked["skew"] = asked["skew"] / known.skew * stack.experts.skew
    return change(stack, "experts", **asked)


def usual_jobs(job: Job) -> list[Job]:
    """The job with each stack that people run there, the most usual first; as it is where its stack was named."""
    if not job.auto:
        return [job]
    choice = auto_choice(job.slice, job.model, job.tuning.tunes)
    return [replace(job, stack=as_asked(job, name), auto=choice.why) for name in choice.stacks]


def nearest_jobs(job: Job) -> list[Job]:
    """The job with the usual stacks whose trainers do not build its model, for a plan that no other stack runs."""
    names = auto_choice(job.slice, job.model, job.tuning.tunes).left_out if job.auto else ()
    return [replace(job, stack=as_asked(job, name), auto=judged_as(name, job.model)) for name in names]


def unusual_jobs(job: Job) -> list[Job]:
    """The job with stacks that take what does not fit with the usual ones."""
    names = auto_choice(job.slice, job.model, job.tuning.tunes).otherwise if job.auto else ()
    return [replace(job, stack=as_asked(job, name), auto="") for name in names]


@dataclass(frozen=True)
class Verdict:
    """A plan judged, or many of one structure (arrays): the ledger, and what follows from it."""

    ledger: Ledger
    possible: Any
    axes: dict[str, Number] = field(default_factory=dict)

    @cached_property
    def compute_s(self) -> Number:
        """At best: kernels, the bubble, uneven stages."""
        return self.ledger.total("bound_s", lambda line: line.term not in (*WIRES, "optimizer"))

    @cached_property
    def wires_s(self) -> dict[str, Number]:
        """At best: the wires of each kind of move."""
        return self.ledger.by("term", "bound_s", lambda line: line.term in WIRES)

    @cached_property
    def lower(self) -> Number:
        """The busiest resource, everything else hidden under it."""
        return lower_bound(self.ledger.lines)

    @cached_property
    def upper(self) -> Number:
        """Everything at datasheet rates, one after the other."""
        return self.ledger.total("bound_s")

    @cached_property
    def seconds(self) -> Number:
        """The expected step."""
        return self.ledger.total("exposed_s")

    @cached_property
    def hbm_bytes(self) -> Number:
        """Bytes on the fullest chip."""
        return self.ledger.hbm_bytes

    @cached_property
    def flops(self) -> Number:
        """Matmul FLOPs of a chip in a step, recompute, head and attention included."""
        return self.ledger.total("flops", lambda line: line.kind in MATMULS)


def make_setting(job: Job, plan: Plan, folded: bool, undivided: dict[str, Any], detail: bool = True) -> Setting:
    """The setting of plans that share their words and their structure."""
    chip = job.slice.chip
    stack = on_chip(job.stack, chip.kind)
    if job.tuning.rank:
        stack = with_adapters_on(stack, job.tuning.frozen != "bf16")
    timer, network = expected_timer(chip, plan.dtype, stack), profile_for(chip, job.transport)
    work = (float(job.batch), job.sequence, plan, stack, timer, network)
    return Setting(job.model.program(), job.slice, *work, folded, undivided, detail, job.documents, tuning=job.tuning)


Structure = tuple[bool, tuple[tuple[str, frozenset[tuple[str, tuple[str, ...]]]], ...]]
"""Whether experts spread over `tensor`, and by section the dims with axes that do not divide them."""


def structures(job: Job, numbers: dict[str, Any], etp: bool = False) -> tuple[list[Structure], Any]:
    """The distinct structures of some plans, and which of them each plan has. Experts spread over `tensor`, or each is
    sliced where there are too few of them or `etp` asks for it; for a stack that keeps such dims whole, it matters
    which dims the mesh does not divide."""
    count = len(numpy.atleast_1d(numbers["pipe"]))
    sizes = {name: numpy.broadcast_to(numbers[name], (count,)) for name in AXES}
    experts = job.experts
    columns: list[Any] = [~(((sizes["expert"] * sizes["tensor"] > experts) | etp) & bool(experts))]
    asked = [] if job.stack.state.flat else _divided(job)
    for section, name, axes, size in asked:
        del section, name
        columns.append(size % numpy.prod([sizes[axis] for axis in axes], axis=0) != 0)
    distinct, place = numpy.unique(numpy.stack(columns, axis=1), axis=0, return_inverse=True)
    found: list[Structure] = []
    for row in distinct.tolist():
        whole: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
        for (section, name, axes, _), missing in zip(asked, row[1:], strict=True):
            if missing:
                whole.setdefault(section, set()).add((name, axes))
        found.append((row[0], tuple((section, frozenset(names)) for section, names in whole.items())))
    return found, place.ravel()


def _divided(job: Job) -> list[tuple[str, str, tuple[str, ...], int]]:
    """Every dim that a plan may split, by section, with the axes and its size; a token's experts are dealt evenly on
    average."""
    found: dict[tuple[str, str, tuple[str, ...]], int] = {}
    program = job.model.program()
    for folded in (True, False):
        rules = training_rules(folded=folded)
        for section in (*program.sections, *program.extras):
            arrays = {array.name: array for op in section.ops for array in op.arrays}.values()
            for name, axes in pairs(rules, arrays):
                if name in section.dims and name != "x":
                    found[section.name, name, axes] = section.dims[name]
    return [(*key, size) for key, size in found.items()]


def judge(job: Job, plan: Plan, numbers: dict[str, Any]) -> Verdict:
    """Evaluate plans that share their words (`plan`) and their structure, and differ in numbers (arrays)."""
    return judge_setting(*_laid(job, plan, numbers))


def _laid(job: Job, plan: Plan, numbers: dict[str, Any]) -> tuple[Setting, dict[str, Any], Wires, StageLayers]:
    kinds, _ = structures(job, numbers, plan.etp)
    assert len(kinds) == 1, "plans of one structure at a time"
    ((folded, undivided),) = kinds
    setting = make_setting(job, plan, folded, dict(undivided))
    layers = stage_layers(setting.program.order, numbers["pipe"], numbers["virtual"], plan.layout)
    return setting, numbers, lay_wires(numbers, job.slice, AXES), layers


def judge_setting(
    setting: Setting, numbers: dict[str, Any], wires: Wires, layers: StageLayers, costs: SectionCosts | None = None
) -> Verdict:
    """The ledger of plans whose wires are laid; without a timer, their bounds alone."""
    mesh, laid = wires.mesh, (setting, layers, numbers)
    microbatches = setting.batch / (mesh.size("data", "fsdp", "expert") * numbers["microbatch"])
    costs = costs or section_costs(setting, numbers, wires)
    lines, held = costs.lines, costs.held
    bounds = section_sums(setting, lines, "bound_s")
    least = shared_passes(*laid, lambda one: bound_passes(bounds, one.plan, one.tuning.passes))
    least = Parts(bounds, held, layers, microbatches, *least)
    bound = step_time(setting, numbers, least, wires, bound=True)
    parts, time = replace(least, forward={}, backward={}), None
    if setting.timer is not None:
        sums = section_sums(setting, lines, "expected_s")
        for section in setting.sections:
            sums[section.name].offload = offload_seconds(setting, section, numbers["microbatch"], mesh)
        rounds = (numbers["pipe"], microbatches)
        passes = shared_passes(*laid, lambda one: layer_passes(one, sums, held, *rounds))
        parts = Parts(sums, held, layers, microbatches, *passes)
        time = step_time(setting, numbers, parts, wires)
    step = Stepped(setting, numbers, wires, lines, parts, time, bound)
    there = hosted(setting, held, layers, numbers, microbatches)
    return Verdict(Ledger(step_lines(step), held_lines(step), there), wires.possible, wires.axes)


def held_lines(step: Stepped) -> list[HeldLine]:
    """What the fullest chip holds, as the stack's allocator has it."""
    setting, parts, numbers = step.setting, step.parts, step.numbers
    if setting.stack.memory.allocator == "caching":
        return fullest_rank(ranks_held(setting, parts.held, parts.layers, numbers, parts.microbatches))
    share = (numbers["microbatch"], step.wires.mesh)
    sizes = {section.name: section_parts(setting, section, *share) for section in setting.sections}
    return xla_held(setting, sizes, parts.layers, numbers, parts.microbatches)


def as_numbers(plans: list[Plan]) -> dict[str, Any]:
    """The numeric settings of some plans as arrays."""
    return {name: numpy.array([getattr(plan, name) for plan in plans]) for name in NUMBERS}


def first(value: Number) -> float:
    """The one value of a batch of one."""
    return float(numpy.ravel(value)[0])


def judge_one(job: Job, plan: Plan) -> Verdict:
    """A single plan, through the same code as a million: its ledger in floats, without lines that do nothing."""
    setting, arrays, wires, layers = _laid(job, plan, as_numbers([plan]))
    numbers, wires = alone(arrays), wires.of_one()
    costs = last_section_costs(setting, numbers, wires)
    verdict = judge_setting(setting, numbers, wires, layers.of_one(), costs)
    book = at(verdict.ledger, 0)
    if bool(numpy.ravel(verdict.possible)[0]):
        checked(book, f"the plan {plan}")
    held = [line for line in book.held if line.bytes]
    return Verdict(Ledger(present(book.lines, wires.axes), held, book.hosted), verdict.possible, wires.axes)


def _own_axis(job: Job, plan: Plan) -> str:
    """What is meant where experts were counted inside data-parallel ranks, as trainers do."""
    ranks = {axis: getattr(plan, axis) for axis in ("fsdp", "data")}
    if plan.expert > 1 and plan.chips == job.slice.chips * plan.expert:
        for axis, size in ranks.items():
            if size % plan.expert == 0 and size > 1:
                return (
                    f" (expert is an axis of its own here, beside {axis}: "
                    f"{axis}={size // plan.expert},expert={plan.expert})"
                )
    return ""


def beyond(used: float, limit: float) -> str:
    """Bytes of a chip that are more than it has, with more digits where the two would read alike.

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
        found.append(f"the plan is for {plan.chips} chips and {job.slice} has {job.slice.chips}{_own_axis(job, plan)}")
    share = plan.replicas * plan.microbatch
    if job.batch % share:
        found.append(
            f"a batch of {job.batch} sequences does not divide into {plan.replicas} replicas x microbatches of "
            f"{plan.microbatch}"
        )
    if misdealt := layout_problem(job.model.n_layers, plan.pipe, plan.virtual, plan.layout):
        found.append(misdealt)
    if not bool(numpy.ravel(verdict.possible)[0]):
        found.append(f"the mesh does not lie on the torus {job.slice}")
    used, limit = first(verdict.hbm_bytes), job.slice.chip.visible
    if used > limit:
        found.append(f"it needs {beyond(used, limit)}")
    there, room = first(verdict.ledger.host_bytes), job.slice.chip.host_memory
    if there > room:
        digits = 0 if there > 1.02 * room else 1
        found.append(
            f"it needs {there / 1e9:.{digits}f} GB of the host's memory per chip, {there / room - 1:.{digits}%} more "
            f"than its share of {room / 1e9:.{digits}f} GB"
        )
    return found


def layer_points(job: Job, ledger: Ledger) -> list[tuple[str, float, float]]:
    """(name, FLOPs per byte, expected FLOP/s) of the forward matmuls of the model's most common layer in the ledger of
    a step."""
    section = max(job.model.program().sections, key=lambda one: one.repeat).name
    lines = [line for line in ledger.lines if line.section == section and line.phase == "forward"]
    matmuls = [
        (f"{line.part} {line.what}".strip(), line) for line in lines if line.kind in ("matmul", "grouped matmul")
    ]
    return [(name, line.flops / line.hbm_bytes, line.flops / line.expected_s) for name, line in matmuls]
