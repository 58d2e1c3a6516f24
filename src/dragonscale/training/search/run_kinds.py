"""Kinds of runs: what runs with similar errors of prediction have in common, and which kinds of plan have been
published.

A kind is a chip, the family of a software stack, whether the model is dense or an MoE, how the plan splits the step
(FSDP, a pipeline or replicas; with TP, CP, EP), and the format of its matmuls. Kinds belong to wider ones: a chip to
its generation, a plan to its stack.

What was published of a kind of plan says how far it has been taken: `errors.toml` has the measured runs,
`recipes.toml` what else is documented.

>>> from dragonscale.training.plan.plan_file import parse_plan
>>> [split_of(parse_plan(text)) for text in ("fsdp64 tp4 z3", "pp4 fsdp8 tp8 cp2 z1", "fsdp8 ep8 z1")]
['fsdp+tp', 'pipeline+tp+cp', 'replicas+ep']
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.simplicity import SHORT
from dragonscale.training.plan.stack import stacks

UNNAMED = ("generic",)
"""Stacks that are nobody's software: every published run was judged by them, too."""
GENERATIONS: dict[str, list[str]] = shipped_table("training.search", "generations.toml")
SPLITS = tuple(
    how + tensor + context + expert
    for how in ("replicas", "fsdp", "pipeline")
    for tensor in ("", "+tp")
    for context in ("", "+cp")
    for expert in ("", "+ep")
)
"""How plans split a step, in the order of `split_codes`."""
FORMATS = {"mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
SCALE = 4
"""The factor over the chips of its largest published run up to which a kind of plan counts as published, since replicas
can be added."""
UNPUBLISHED_GAINS = (0.05, 0.10)
"""What a kind of plan of which no run is known must gain to be recommended: the error of predicted steps, within these
(the median error of all of them, and twice that). A known kind with more stages or chips than any run had must gain the
least of it, and so must one that ran in another format: it is nearer to what has run."""


def generation(chip: str) -> str:
    """A chip's generation; the chip itself where the table does not have it."""
    for name, chips in GENERATIONS.items():
        if chip in chips:
            return name
    return chip


def family(stack: str) -> str:
    """A stack without its mode or release; for one that starts from another, the family of that one.

    >>> [family(name) for name in ("megatron-fp32", "torchtitan-async", "hai-llm", "hf-liger", "xla-gpu")]
    ['megatron', 'torchtitan', 'megatron', 'hf', 'xla-gpu']
    """
    for name in ("megatron", "torchtitan"):
        if stack.startswith(name):
            return name
    if stack in stacks() and stacks()[stack].base:
        return family(stacks()[stack].base)
    return stack


@dataclass(frozen=True)
class RunKind:
    """The properties of a run on which errors depend; without a `split`, whatever its plan."""

    chip: str
    stack: str
    moe: bool
    split: str = ""
    format: str = ""

    @property
    def model(self) -> str:
        """`moe` or `dense`."""
        return "moe" if self.moe else "dense"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kinds that it belongs to in `errors.toml`, the narrowest first."""
        on_chip = f"{self.model} {self.chip}"
        on_generation = f"{self.model} {generation(self.chip)}"
        stack = family(self.stack)
        names: list[str] = []
        if self.split:
            names += [f"{on_chip} {stack} {self.split} {self.format}", f"{on_chip} {stack} {self.split}"]
        names += [f"{on_chip} {stack}", f"{on_generation} {stack}", on_generation]
        if self.stack in UNNAMED:  # runs judged by their own stacks say less than all runs judged by this one
            names = [f"{on_chip} {stack}", f"{on_generation} {stack}", f"{self.model} * {stack}"]
        return tuple(dict.fromkeys((*names, self.model, "all")))

    @property
    def reported(self) -> tuple[str, ...]:
        """The kinds for which coverage is reported: a chip, and a kind of plan on it."""
        on_chip = f"{self.model} {self.chip}"
        return (on_chip, self.names[1]) if self.split else (on_chip,)

    @property
    def plan_name(self) -> str:
        """The kind of plan, on chips of a generation: a key of what was published."""
        return f"{self.model} {generation(self.chip)} {family(self.stack)} {self.split}"


def wide_format(dtype: str) -> str:
    """A format of matmuls as published runs are distinguished by it: all wide formats count as one."""
    return "bf16" if dtype in ("fp16", "fp32", "tf32") else dtype


def split_codes(degrees: dict[str, Any], zero: int) -> Any:
    """The index in `SPLITS` of plans with these degrees, of the shape of the degrees."""
    sharded = numpy.asarray(degrees["fsdp"]) * degrees["expert"] * degrees["context"] > 1
    code = numpy.where(numpy.asarray(degrees["pipe"]) > 1, 2, sharded & (zero >= 2))
    for axis in ("tensor", "context", "expert"):  # a binary digit each
        code = 2 * code + (numpy.asarray(degrees[axis]) > 1)
    return code


def split_of(plan: Plan) -> str:
    """How a plan splits the step."""
    return SPLITS[int(split_codes(plan.all_settings, plan.zero))]


def kind_of(job: Job, plan: Plan | None = None) -> RunKind:
    """The kind of a job, with one of its plans or whatever its plan."""
    stack = job.stack.name
    if stack not in stacks():  # a user's file
        stack = job.stack.base or stack
    kind = RunKind(job.slice.chip.kin, stack, moe=job.experts > 0)
    if plan is None or job.slice.chips == 1:
        return kind
    return replace(kind, split=split_of(plan), format=FORMATS.get(plan.dtype, plan.dtype))


@functools.cache
def published_kinds() -> list[tuple[str, dict[str, Any]]]:
    """The kinds of plan of measured runs and of what else is documented: the most chips and stages of each, and the
    shortest sequence."""
    measured = shipped_table("training.search", "errors.toml")["published"]
    return [*measured.items(), *shipped_table("training.search", "recipes.toml").items()]


@dataclass(frozen=True)
class PublishedLimits:
    """How far each split of `SPLITS` has been published, of shape (splits,): the most chips and pipeline stages, and
    the shortest sequence times −1, so that more is further in all three."""

    chips: NDArray[numpy.float64]
    stages: NDArray[numpy.float64]
    shortest: NDArray[numpy.float64]


@functools.lru_cache(maxsize=64)
def published_limits(kind: RunKind, dtype: str = "bf16") -> PublishedLimits:
    """How far each split has been published for jobs of a kind in a format (in any, where none is named). Where nothing
    is published of a stack on a generation of chips in that format, other formats and then other generations count;
    where nothing is at all, every split does, except `context` at short sequences."""
    stack = "" if kind.stack in UNNAMED else family(kind.stack)
    chips, format_ = generation(kind.chip), wide_format(dtype) if dtype else ""
    # From the narrowest to all runs of this kind of model.
    for wanted in ((chips, format_), (chips, ""), ("", "")):
        limits = PublishedLimits(*(numpy.full(len(SPLITS), -numpy.inf) for _ in range(3)))
        for name, row in published_kinds():
            row_model, row_chips, row_stack, split = name.split()
            if row_model != kind.model or stack not in ("", row_stack) or wanted[0] not in ("", row_chips):
                continue
            if wanted[1] not in ("", *row.get("formats", [wanted[1]])):
                continue
            code = SPLITS.index(split)
            limits.chips[code] = max(limits.chips[code], row["chips"])
            limits.stages[code] = max(limits.stages[code], row["pipe"])
            limits.shortest[code] = max(limits.shortest[code], -row["sequence"])
        if numpy.isfinite(limits.chips).any():
            return limits
    unlimited = numpy.full(len(SPLITS), numpy.inf)
    return PublishedLimits(unlimited, unlimited, -unlimited)


def needed_gains(job: Job, degrees: dict[str, Any], zero: int, error: float, dtype: str) -> Any:
    """The fraction by which plans with these degrees must be faster than others to be recommended, of the shape of the
    degrees. Where no run of their kind is known (with `context`, at such short sequences) it is the `error` of
    predicted steps, within limits; the lower limit where runs of the kind had fewer stages or chips, or another
    format."""
    kind, splits = kind_of(job), split_codes(degrees, zero)  # (plans,)
    limits = published_limits(kind, dtype)
    within = (job.slice.chips <= SCALE * limits.chips[splits]) & (
        numpy.asarray(degrees["pipe"]) <= limits.stages[splits]
    )
    in_any_format = published_limits(kind, "").chips[splits] > 0
    lowest, highest = UNPUBLISHED_GAINS
    gains = numpy.where(in_any_format, lowest, min(max(error, lowest), highest))
    gains = numpy.where(within, 0.0, gains)
    if job.sequence > SHORT:
        return gains
    as_short = within & (-job.sequence <= limits.shortest[splits])
    # Splitting short sequences is rare, so it needs a published run at such a length.
    context_gains = numpy.where(as_short, 0.0, max(error, lowest))
    return numpy.where(numpy.asarray(degrees["context"]) > 1, context_gains, gains)
