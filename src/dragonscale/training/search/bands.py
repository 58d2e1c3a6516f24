"""How wrong expected step times have been, by kind of run: the band around an answer, and how many runs it rests on.

Kinds are those of `run_kinds`. `errors.toml` has, for every kind with enough published runs, between which multiples of
the expected seconds four of five of them were, as the runs of other sources have it; kinds with few runs lean on those
they belong to. Of a kind of plan of which no step was published, the band is wider. `python -m tools.fit_bands` writes
the file from the measured runs.

>>> Band(-0.08, 0.12, 12, "dense h100 megatron pipeline+tp bf16").text
'4 of 5 of the 12 published dense bf16 runs of megatron with a pipeline and TP on h100 were within -8%/+12%'

How a plan ran in large runs, where those were slower than the benchmarks its stack is settled on, and how far its band
reaches there:

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> def found(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 2048, 8192, "megatron-core")
...     run = in_production(job, parse_plan(plan))
...     return run and (run.stack, round(run.share, 2))
>>> found("h100:64", "fsdp2 tp8 pp4 z1"), found("h100:4096", "fsdp128 tp8 pp4 z1")
(None, ('megatron-2024', 1.0))
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.hardware.changes import PROFILE, split_changes
from dragonscale.physics.units import render
from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job, first, judge_one
from dragonscale.training.plan.auto import production_runs
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.search.published_runs import published_runs
from dragonscale.training.search.run_kinds import SCALE, UNNAMED, RunKind, family, generation, kind_of, published_kinds

Kinds = Mapping[str, Mapping[str, float]]
"""By kind of run the low, high and number of its runs."""
NOMINAL = 0.8
LEAST, LEAST_STEPS = 10, 8
"""Runs that a kind must have to speak for itself; steps left out that a stack settled on one chip must have."""
WORDS = {"fsdp": "FSDP", "pipeline": "a pipeline", "replicas": "data parallelism", "tp": "TP", "cp": "CP", "ep": "EP"}


@dataclass(frozen=True)
class Band:
    """Four of five of `runs` runs took between 1 + low and 1 + high times the expected seconds."""

    low: float
    high: float
    runs: int
    name: str
    said: str = ""

    @property
    def text(self) -> str:
        """In a sentence."""
        if self.said:
            return self.said
        words = self.name.split()
        unnamed = words[2] if words[2:] and words[2] in UNNAMED else ""
        kind = kind_name(" ".join(words[:2]) if unnamed else self.name)
        judged = f", judged by {unnamed}," if unnamed else ""
        return f"4 of 5 of the {self.runs} published {kind}{judged} were within {self.low:+.0%}/{self.high:+.0%}"


def kind_name(name: str) -> str:
    """A kind in words.

    >>> kind_name("moe hopper vllm"), kind_name("dense * sglang"), kind_name("all")
    ('MoE runs of vllm on hopper', 'dense runs of sglang', 'runs')
    >>> kind_name("moe gb200 megatron pipeline+tp+ep")
    'MoE runs of megatron with a pipeline, TP and EP on gb200'
    """
    model, *given = name.replace("moe", "MoE").replace("all", "").split() or [""]
    chip, software, split, format = [*given, *("*", "*", "", "")[len(given) :]]
    parts = [WORDS[part] for part in split.split("+") if part]
    words = [model, format, "runs", *([] if software == "*" else ["of", software])]
    words += ["with", " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))] if parts else []
    return " ".join(filter(None, [*words, "" if chip == "*" else f"on {chip}"]))


def narrowest(names: Iterable[str], kinds: Kinds, least: int = LEAST) -> str:
    """The narrowest of some kinds that has enough runs."""
    return next((name for name in names if kinds.get(name, {}).get("runs", 0) >= least), "all")


def job_band(job: Job, plan: Plan) -> Band:
    """The band of a job's plan: of one chip on which the stack's constants were settled on whole steps, that of the
    steps left out; otherwise that of its kind, wider where no step of such a plan on as many chips is published."""
    own = next((one for one in job.stack.measured if one.what == "training" and one.chip == job.slice.chip.name), None)
    if own is not None and job.slice.chips == 1 and own.left_out >= LEAST_STEPS:
        return Band(own.low, own.high, own.left_out, f"{own.chip} {job.stack.name}", own.text)
    kind = kind_of(job, plan)
    band = band_of(kind)
    known = (row for name, row in published_kinds() if name == kind.plan_name and row["pipe"] >= plan.pipe)
    largest = max((row["chips"] for row in known), default=0)
    tuned = job.tuning.method if job.tuning.method != "full" else ""
    if not tuned and (kind.stack in UNNAMED or not kind.split or job.slice.chips <= SCALE * largest):
        return replace(band, said=_of_whose_runs(job, kind, band.name, band.text))
    wider = tables()["unpublished"]
    low, high = (math.expm1(wider * math.log1p(side)) for side in (band.low, band.high))
    what, wide = kind_name(kind.plan_name).replace("runs", "run", 1), kind_name(band.name)
    most = f" with {tuned}" if tuned else f" with more than {largest:,} chips" if largest else ""
    none = f"no {what}{most} is in our data ({tables()['kinds']['all']['runs']:,} published runs)"
    said = f"{none}; the band, {low:+.0%}/{high:+.0%}, is {wider:g} times that of the "
    return replace(
        band, low=low, high=high, said=_of_whose_runs(job, kind, band.name, f"{said}{band.runs} published {wide}")
    )


def _of_whose_runs(job: Job, kind: RunKind, name: str, text: str) -> str:
    """A band in a sentence that says where the runs are not of this chip or of this software."""
    stack, chip = family(kind.stack), job.slice.chip
    if kind.stack != stack and not kind.stack.startswith(stack):
        text = text.replace(f" of {stack} ", f" of {stack} (which stands for {kind.stack}) ", 1)
    changes = [one for one in split_changes(chip.name)[1] if not one.startswith(PROFILE)]
    if chip.like and (changes or "+" not in chip.name):
        return f"no run of {chip.name} is in our data, those of {chip.kin} stand for it; {text}"
    words = name.split()
    if chip.kin in words or not text.startswith("4 of 5"):
        return text
    if len(words) == 2:  # a model and a generation of chips, whatever the stack
        return f"{text}, {_counted(runs_of(name, stack=stack))} of them of {stack}"
    return f"{text}, {_counted(runs_of(name, chip=chip.kin))} of them on {chip.kin}"


def _counted(runs: int) -> str:
    return f"{runs:,}" if runs else "none"


def runs_of(name: str, chip: str = "", stack: str = "") -> int:
    """How many of the measured runs of a kind (by its name) are of a chip, or of a family of stacks.

    >>> runs_of("moe", chip="h100"), runs_of("moe", chip="h200"), runs_of("dense hopper", stack="torchtitan")
    (8, 0, 17)
    """
    model, where, software = (*name.split(), "*", "*")[:3]
    total = 0
    for run in published_runs():
        run_model = "moe" if run.experts else "dense"
        run_stack = family(run.stack)
        in_kind = (
            model in ("all", run_model)
            and where in ("*", run.chip, generation(run.chip))
            and software in ("*", run_stack, *UNNAMED)  # every run was judged by an unnamed stack, too
        )
        if in_kind and chip in ("", run.chip) and stack in ("", run_stack):
            total += 1
    return total


def job_error(job: Job) -> float:
    """How far off steps of a job's stack on its chips have been, whatever their plan: half the width of their band,
    which is wider where no step of that stack on that generation of chips is published."""
    band = band_of(kind_of(job))
    half = 0.5 * (band.high - band.low)
    return half if len(band.name.split()) > 2 else half * tables()["unpublished"]


def tables() -> dict[str, Any]:
    """`errors.toml`."""
    return shipped_table("training.search", "errors.toml")


def band_of(kind: RunKind, among: Kinds | None = None) -> Band:
    """The band of the narrowest kind that has enough runs; it reaches to what was expected where nearly all were on one
    side of it."""
    kinds = tables()["kinds"] if among is None else among
    name = narrowest(kind.names, kinds)
    row = kinds[name]
    return Band(min(row["low"], 0.0), max(row["high"], 0.0), int(row["runs"]), name)


@dataclass(frozen=True)
class InProduction:
    """A plan as large runs have run: the stack that has them, whose runs they are, what it then takes, and how far a
    band of as many chips reaches there."""

    stack: str
    runs: str
    seconds: float
    mfu: float
    share: float

    @property
    def text(self) -> str:
        """In a clause."""
        takes = f"with --stack {self.stack} this plan takes {render(self.seconds, 's')}, {self.mfu:.1%} MFU"
        return f"large runs with the software of 2023 and 2024 ({self.runs}) were slower: {takes}"


def in_production(job: Job, plan: Plan) -> InProduction | None:
    """The plan of a dense model as large runs have run; None where nothing is known of such runs."""
    for one in production_runs():
        share = one.share(job.slice.chips) if job.slice.chip.kin in one.names else 0.0
        if share and job.stack.name in one.stacks and plan.dtype in one.dtypes and not job.experts:
            seconds = first(judge_one(replace(job, stack=load_stack(one.as_run)), plan).seconds)
            return InProduction(one.as_run, one.runs, seconds, job.model_flops / (seconds * job.slice.flops), share)
    return None
