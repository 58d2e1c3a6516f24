"""How wrong expected step times have been, by kind of run: the band around an answer, and how many runs it rests on.

A kind is a chip, the family of a software stack, and whether the model is dense or an MoE. `errors.toml` has, for
every kind with published runs, by how much quicker and slower than expected four of five of them were; kinds with few
runs lean on those they belong to. `python -m tools.fit_bands` writes it from the measured runs.

>>> Band(-0.08, 0.12, 43, "dense h100 megatron").text
'4 of 5 of the 43 published dense runs of megatron on h100 were within -8%/+12%'
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dragonscale.training.evaluation import Job

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
        words = [word for word in self.name.replace("moe", "MoE").split() if word != "all"]
        model, chip, stack = [*words, "", "", ""][:3]
        of = f" of {stack}" if stack and stack not in UNNAMED else ""
        on = f" on {chip}" if chip not in ("", "*") else ""
        kind = f"{model} ".lstrip()
        unnamed = f", judged by {stack}," if stack in UNNAMED else ""
        within = f"were within {self.low:+.0%}/{self.high:+.0%}"
        return f"4 of 5 of the {self.runs} published {kind}runs{of}{on}{unnamed} {within}"


def kind_of(job: Job) -> RunKind:
    """The kind of a job."""
    return RunKind(job.slice.chip.name, job.stack.name, is_moe(job))


def job_band(job: Job) -> Band:
    """The band of a job: of one chip on which the stack's constants were settled on whole steps, that of the steps left
    out; otherwise that of its kind."""
    own = next((one for one in job.stack.measured if one.what == "training" and one.chip == job.slice.chip.name), None)
    if own is None or job.slice.chips > 1 or own.left_out < LEAST:
        return band_of(kind_of(job))
    return Band(own.low, own.high, own.left_out, f"{own.chip} {job.stack.name}", own.text)


def is_moe(job: Job) -> bool:
    """Whether the model has experts."""
    return any("e" in section.dims for section in job.model.program().sections)


@functools.cache
def tables() -> dict[str, Any]:
    """`errors.toml`."""
    return tomllib.loads((resources.files("dragonscale.training") / "errors.toml").read_text(encoding="utf-8"))


def band_of(kind: RunKind, among: Mapping[str, Mapping[str, float]] | None = None) -> Band:
    """The band of the narrowest kind that has enough runs; it reaches to what was expected where nearly all were on one
    side of it."""
    found = tables()["kinds"] if among is None else among
    name = next((name for name in kind.names if found.get(name, {}).get("runs", 0) >= LEAST), "all")
    row = found[name]
    return Band(min(row["low"], 0.0), max(row["high"], 0.0), int(row["runs"]), name)
