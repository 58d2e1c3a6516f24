"""How wrong expected step times have been, by kind of run: the error band around an answer, and how many runs it rests
on.

Kinds are those of `run_kinds`. `errors.toml` has, for every kind with enough published runs, between which multiples of
the expected seconds four of five of them were, judged by the runs of other sources; kinds with few runs use the band of
a wider kind. For a kind of plan without any published step the band is wider. `python -m tools.fit_bands` writes the
file from the measured runs.

>>> Band(-0.08, 0.12, 12, "dense h100 megatron pipeline+tp bf16").text
'4 of 5 of the 12 published dense bf16 runs of megatron with a pipeline and TP on h100 were within -8%/+12%'
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.hardware.changes import PROFILE, split_changes
from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.auto import listed
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.published_runs import published_runs
from dragonscale.training.search.run_kinds import SCALE, UNNAMED, RunKind, family, generation, kind_of, published_kinds

Kinds = Mapping[str, Mapping[str, float]]
"""By kind of run the low, high and number of its runs."""
NOMINAL = 0.8
# Runs that a kind needs for a band of its own, and left-out steps that a stack fitted on one chip needs.
MIN_RUNS = 10
MIN_STEPS = 8
# Parts of a split in words.
WORDS = {"fsdp": "FSDP", "pipeline": "a pipeline", "replicas": "data parallelism", "tp": "TP", "cp": "CP", "ep": "EP"}


@dataclass(frozen=True)
class Band:
    """Four of five of `runs` runs took between 1 + low and 1 + high times the expected seconds."""

    low: float
    high: float
    runs: int
    name: str
    sentence: str = ""

    @property
    def text(self) -> str:
        """A sentence for people."""
        if self.sentence:
            return self.sentence
        model, chip, stack = (*self.name.split(), "", "")[:3]
        kind = kind_name(self.name)
        if stack in UNNAMED:  # runs of all stacks, judged by this one
            kind = f"{kind_name(f'{model} {chip}')}, judged by {stack},"
        return f"4 of 5 of the {self.runs} published {kind} were within {self.low:+.0%}/{self.high:+.0%}"


def kind_name(name: str) -> str:
    """A kind of runs in words.

    >>> kind_name("moe hopper vllm"), kind_name("dense * sglang"), kind_name("all")
    ('MoE runs of vllm on hopper', 'dense runs of sglang', 'runs')
    >>> kind_name("moe gb200 megatron pipeline+tp+ep")
    'MoE runs of megatron with a pipeline, TP and EP on gb200'
    """
    model, *narrower = name.replace("moe", "MoE").replace("all", "").split() or [""]
    chip, software, split, format_ = [*narrower, *("*", "*", "", "")[len(narrower) :]]
    text = " ".join(filter(None, (model, format_, "runs")))
    if software != "*":
        text += f" of {software}"
    if split:
        text += f" with {listed([WORDS[part] for part in split.split('+')])}"
    return text if chip == "*" else f"{text} on {chip}"


def narrowest(names: Iterable[str], kinds: Kinds, min_runs: int = MIN_RUNS) -> str:
    """The narrowest of some kinds that has enough runs; `all` if none has."""
    for name in names:
        if kinds.get(name, {}).get("runs", 0) >= min_runs:
            return name
    return "all"


def job_band(job: Job, plan: Plan) -> Band:
    """The band of a job's plan: on one chip on which the stack's constants were fitted on whole steps, that of the
    steps left out; otherwise that of its kind, wider where no step of such a plan on as many chips is published."""
    if job.slice.chips == 1:
        for fit in job.stack.measured:
            if fit.what == "training" and fit.chip == job.slice.chip.name:
                if fit.left_out >= MIN_STEPS:
                    return Band(fit.low, fit.high, fit.left_out, f"{fit.chip} {job.stack.name}", fit.text)
                break
    kind = kind_of(job, plan)
    band = band_of(kind)
    largest = 0  # chips of the largest published run of such a plan
    for name, row in published_kinds():
        if name == kind.plan_name and row["pipe"] >= plan.pipe:
            largest = max(largest, row["chips"])
    tuned = job.tuning.method != "full"
    if not tuned and (kind.stack in UNNAMED or not kind.split or job.slice.chips <= SCALE * largest):
        return replace(band, sentence=_with_sources(job, kind, band.name, band.text))
    wider, unpublished = tables()["unpublished"], widened(band)
    low, high = unpublished.low, unpublished.high
    missing = kind_name(kind.plan_name).replace("runs", "run", 1)
    if tuned:
        missing += f" with {job.tuning.method}"
    elif largest:
        missing += f" with more than {largest:,} chips"
    sentence = f"no {missing} is in our data ({tables()['kinds']['all']['runs']:,} published runs)"
    sentence += f"; the band, {low:+.0%}/{high:+.0%}, is {wider:g} times that of the "
    sentence += f"{band.runs} published {kind_name(band.name)}"
    return replace(band, low=low, high=high, sentence=_with_sources(job, kind, band.name, sentence))


def widened(band: Band) -> Band:
    """A band for a kind of run of which none is published: wider on both sides, in logarithms."""
    wider = tables()["unpublished"]
    return replace(band, low=math.expm1(wider * math.log1p(band.low)), high=math.expm1(wider * math.log1p(band.high)))


def _with_sources(job: Job, kind: RunKind, name: str, text: str) -> str:
    """The sentence of a band with a note where its runs are not of this chip or of this software."""
    stack, chip = family(kind.stack), job.slice.chip
    if kind.stack != stack and not kind.stack.startswith(stack):
        text = text.replace(f" of {stack} ", f" of {stack} (which stands for {kind.stack}) ", 1)
    changes = [change for change in split_changes(chip.name)[1] if not change.startswith(PROFILE)]
    if chip.like and (changes or "+" not in chip.name):
        return f"no run of {chip.name} is in our data, those of {chip.kin} stand for it; {text}"
    parts = name.split()
    if chip.kin in parts or not text.startswith("4 of 5"):
        return text
    if len(parts) == 2:  # a model and a generation of chips, whatever the stack
        return f"{text}, {_counted(runs_of(name, stack=stack))} of them of {stack}"
    return f"{text}, {_counted(runs_of(name, chip=chip.kin))} of them on {chip.kin}"


def _counted(runs: int) -> str:
    return f"{runs:,}" if runs else "none"


def runs_of(name: str, chip: str = "", stack: str = "") -> int:
    """The number of measured runs of a kind (by its name) that are of a chip, or of a family of stacks.

    >>> runs_of("moe", chip="h100"), runs_of("moe", chip="h200"), runs_of("dense hopper", stack="torchtitan")
    (8, 0, 17)
    """
    model, chips, software = (*name.split(), "*", "*")[:3]
    total = 0
    for run in published_runs():
        run_model = "moe" if run.experts else "dense"
        run_stack = family(run.stack)
        in_kind = (
            model in ("all", run_model)
            and chips in ("*", run.chip, generation(run.chip))
            and software in ("*", run_stack, *UNNAMED)  # every run was judged by an unnamed stack, too
        )
        if in_kind and chip in ("", run.chip) and stack in ("", run_stack):
            total += 1
    return total


def job_error(job: Job) -> float:
    """The error of expected steps of a job's stack on its chips, whatever their plan: half the width of their band,
    which is wider where no step of that stack on that generation of chips is published."""
    band = band_of(kind_of(job))
    half_width = 0.5 * (band.high - band.low)
    names_a_stack = len(band.name.split()) > 2
    return half_width if names_a_stack else half_width * tables()["unpublished"]


def tables() -> dict[str, Any]:
    """`errors.toml`."""
    return shipped_table("training.search", "errors.toml")


def band_of(kind: RunKind, among: Kinds | None = None) -> Band:
    """The band of the narrowest kind that has enough runs; it includes the expectation even where nearly all runs were
    on one side of it."""
    kinds = tables()["kinds"] if among is None else among
    name = narrowest(kind.names, kinds)
    row = kinds[name]
    return Band(min(row["low"], 0.0), max(row["high"], 0.0), int(row["runs"]), name)
