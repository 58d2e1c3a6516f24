"""How wrong expected step times have been, by kind of run: the band around an answer, and how many runs it rests on.

A kind is a chip, the family of a software stack, and whether the model is dense or an MoE. `errors.toml` has, for
every kind with published runs, by how much quicker and slower than expected four of five of them were; kinds with few
runs lean on those they belong to. `python -m tools.fit_bands` writes it from the measured runs.

>>> Band(-0.08, 0.12, 43, "dense h100 megatron").text
'4 of 5 of the 43 published dense runs of megatron on h100 were within -8%/+12%'

How a plan ran in large runs, where those were slower than the benchmarks its stack is settled on, and how far its band
reaches there:

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.evaluation import make_job
>>> from dragonscale.training.plan_file import parse_plan
>>> def found(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 2048, 8192, "megatron-core")
...     run = in_production(job, parse_plan(plan))
...     return run and (run.stack, round(run.share, 2))
>>> found("h100:64", "fsdp2 tp8 pp4 z1"), found("h100:4096", "fsdp128 tp8 pp4 z1")
(None, ('megatron-2024', 1.0))
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.units import render
from dragonscale.plan.settings import shipped_table
from dragonscale.training.auto import production_runs
from dragonscale.training.evaluation import Job, first, judge_one
from dragonscale.training.plan import Plan
from dragonscale.training.stack import load_stack

Kinds = Mapping[str, Mapping[str, float]]
"""By kind of run the low, high and number of its runs."""
NOMINAL = 0.8
UNNAMED = ("generic",)
"""No stack that anybody runs: every published run was judged by it too."""
LEAST = 8
"""Runs that a kind must have to speak for itself."""


@dataclass(frozen=True)
class RunKind:
    """What a run is like, as far as errors go."""

    chip: str
    stack: str
    moe: bool

    @property
    def family(self) -> str:
        """The stack without its mode or release."""
        return family(self.stack)

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that the kind belongs to, the narrowest first."""
        model = "moe" if self.moe else "dense"
        own, stack = f"{model} {self.chip} {self.family}", f"{model} * {self.family}"
        if self.stack in UNNAMED:  # runs judged by their own stacks say less than all runs judged by this one
            return own, stack, model, "all"
        return own, f"{model} {self.chip}", stack, model, "all"


def family(stack: str) -> str:
    """A stack without its mode or release.

    >>> family("megatron-core"), family("torchtitan-async"), family("llm-foundry"), family("xla-gpu")
    ('megatron', 'torchtitan', 'llm-foundry', 'xla-gpu')
    """
    return next((name for name in ("megatron", "torchtitan") if stack.startswith(name)), stack)


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
    """
    words = [word.replace("moe", "MoE") for word in name.split() if word != "all"]
    model, chip, software = [*(words or [""]), "*", ""][:3]
    on = "" if chip == "*" else f" on {chip}"
    return f"{model} runs".lstrip() + (f" of {software}" if software and software != "*" else "") + on


def narrowest(names: Iterable[str], kinds: Kinds) -> str:
    """The narrowest of some kinds that has enough runs."""
    return next((name for name in names if kinds.get(name, {}).get("runs", 0) >= LEAST), "all")


def kind_of(job: Job) -> RunKind:
    """The kind of a job."""
    return RunKind(job.slice.chip.name, job.stack.name, job.experts > 0)


def job_band(job: Job) -> Band:
    """The band of a job: of one chip on which the stack's constants were settled on whole steps, that of the steps left
    out; otherwise that of its kind."""
    own = next((one for one in job.stack.measured if one.what == "training" and one.chip == job.slice.chip.name), None)
    if own is None or job.slice.chips > 1 or own.left_out < LEAST:
        return band_of(kind_of(job))
    return Band(own.low, own.high, own.left_out, f"{own.chip} {job.stack.name}", own.text)


def tables() -> dict[str, Any]:
    """`errors.toml`."""
    return shipped_table("training", "errors.toml")


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
