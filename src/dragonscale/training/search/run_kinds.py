"""Kinds of runs: what runs that are alike in their errors share, and which kinds of plan somebody has published.

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
from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.simplicity import SHORT
from dragonscale.training.plan.stack import stacks

UNNAMED = ("generic",)
"""No stack that anybody runs: every published run was judged by it too."""
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
"""A kind of plan counts as published up to so many times the chips of its largest published run: replicas are added."""
UNPUBLISHED_GAINS = (0.05, 0.10)
"""What a kind of plan of which no run is known must gain to be recommended: the error of predicted steps, within these
(the median error of all of them, and twice that). A known kind with more stages or chips than any run had must gain the
least of it, and so must one that ran in another format: it is nearer to what has run."""


def generation(chip: str) -> str:
    """A chip's generation; the chip itself where the catalogue does not have it."""
    return next((name for name, chips in GENERATIONS.items() if chip in chips), chip)


def family(stack: str) -> str:
    """A stack without its mode or release; of one that starts from another, that one's.

    >>> [family(name) for name in ("megatron-fp32", "torchtitan-async", "hai-llm", "hf-liger", "xla-gpu")]
    ['megatron', 'torchtitan', 'megatron', 'hf', 'xla-gpu']
    """
    named = next((name for name in ("megatron", "torchtitan") if stack.startswith(name)), "")
    base = stacks()[stack].base if stack in stacks() and not named else ""
    return family(base) if base else named or stack


@dataclass(frozen=True)
class RunKind:
    """What a run is like, as far as errors go; without a `split`, whatever its plan."""

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
        """The tables that the kind belongs to, the narrowest first."""
        own, wide = (f"{self.model} {chip}" for chip in (self.chip, generation(self.chip)))
        stack = family(self.stack)
        if self.stack in UNNAMED:  # runs judged by their own stacks say less than all runs judged by this one
            found = f"{own} {stack}", f"{wide} {stack}", f"{self.model} * {stack}", self.model, "all"
        else:
            plan = (f"{own} {stack} {self.split} {self.format}", f"{own} {stack} {self.split}") if self.split else ()
            found = *plan, f"{own} {stack}", f"{wide} {stack}", wide, self.model, "all"
        return tuple(dict.fromkeys(found))

    @property
    def reported(self) -> tuple[str, ...]:
        """The kinds that coverage is told of: a chip, and a kind of plan on it."""
        return f"{self.model} {self.chip}", *((self.names[1],) if self.split else ())

    @property
    def plan_name(self) -> str:
        """The kind of plan, on chips of a generation: a key of what was published."""
        return f"{self.model} {generation(self.chip)} {family(self.stack)} {self.split}"


def wide_format(dtype: str) -> str:
    """A format of matmuls as published runs are told apart by: all wide ones are one."""
    return "bf16" if dtype in ("fp16", "fp32", "tf32") else dtype


def split_codes(numbers: dict[str, Any], zero: int) -> Any:
    """The place in `SPLITS` of plans of these meshes."""
    shared = numpy.asarray(numbers["fsdp"]) * numbers["expert"] * numbers["context"] > 1
    how = numpy.where(numpy.asarray(numbers["pipe"]) > 1, 2, shared & (zero >= 2))
    beside = (numpy.asarray(numbers[name]) > 1 for name in ("tensor", "context", "expert"))
    for splits in beside:
        how = 2 * how + splits
    return how


def split_of(plan: Plan) -> str:
    """How a plan splits the step."""
    return SPLITS[int(split_codes(vars(plan), plan.zero))]


def kind_of(job: Job, plan: Plan | None = None) -> RunKind:
    """The kind of a job, with one of its plans or whatever its plan."""
    stack = job.stack.name if job.stack.name in stacks() else job.stack.base or job.stack.name
    own = RunKind(job.slice.chip.kin, stack, job.experts > 0)
    if plan is None or job.slice.chips == 1:
        return own
    return RunKind(own.chip, own.stack, own.moe, split_of(plan), FORMATS.get(plan.dtype, plan.dtype))


@functools.cache
def published_kinds() -> list[tuple[str, dict[str, Any]]]:
    """The kinds of plan of measured runs and of what else is documented: the most chips and stages of each, and the
    shortest sequence."""
    measured = shipped_table("training.search", "errors.toml")["published"]
    return [*measured.items(), *shipped_table("training.search", "recipes.toml").items()]


@functools.lru_cache(maxsize=64)
def published_limits(kind: RunKind, dtype: str = "bf16") -> Any:
    """How far each split of `SPLITS` has been published for jobs of a kind in a format (in any, where none is named):
    the most chips and stages, and the shortest sequence, below zero. Where nothing is published of a stack on a
    generation of chips in that format, other formats and then other generations count; where nothing is at all, every
    split does, but `context` at short sequences."""
    stack = "" if kind.stack in UNNAMED else family(kind.stack)
    own = generation(kind.chip)
    for place, format in ((own, wide_format(dtype) if dtype else ""), (own, ""), ("", "")):
        limits = numpy.full((3, len(SPLITS)), -numpy.inf)
        for name, row in published_kinds():
            model, chips, trainer, split = name.split()
            if model == kind.model and trainer == (stack or trainer) and chips == (place or chips):
                if format not in ("", *row.get("formats", [format])):
                    continue
                mine = limits[:, SPLITS.index(split)]
                mine[:] = numpy.maximum(mine, (row["chips"], row["pipe"], -row["sequence"]))
        if numpy.isfinite(limits).any():
            return limits
    return numpy.array([[numpy.inf], [numpy.inf], [-numpy.inf]]).repeat(len(SPLITS), axis=1)


def needed_gains(job: Job, numbers: dict[str, Any], zero: int, error: float, dtype: str) -> Any:
    """What plans of these meshes must gain over others to be recommended: where no run of their kind is known (with
    `context`, at such short sequences), the `error` of predicted steps, within limits; the least of these where runs of
    the kind had fewer stages or chips, or another format."""
    kind, splits = kind_of(job), split_codes(numbers, zero)
    chips, stages, shortest = published_limits(kind, dtype)[:, splits]
    within = (job.slice.chips <= SCALE * chips) & (numpy.asarray(numbers["pipe"]) <= stages)
    known = published_limits(kind, "")[0, splits] > 0
    least, most = UNPUBLISHED_GAINS
    gains = numpy.where(known, least, min(max(error, least), most))
    gains = numpy.where(within, 0.0, gains)
    if job.sequence > SHORT:
        return gains
    there = within & (-job.sequence <= shortest)
    short = numpy.where(there, 0.0, max(error, least))
    return numpy.where(numpy.asarray(numbers["context"]) > 1, short, gains)
