"""Advice on an assessed plan: what it loses time on, what would make it faster, or what would make it fit."""

from dataclasses import dataclass

from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.memory_relief import MemoryRelief, memory_relief
from dragonscale.training.advice.numerics import OtherNumerics, other_numerics
from dragonscale.training.advice.speedups import Overhead, SpeedUp, largest_overhead, other_stacks, speedups
from dragonscale.training.search.space import Space


@dataclass(frozen=True)
class PlanAdvice:
    """Advice on a plan: of one that fits `overhead` and `speedups`, of one that does not `relief`."""

    overhead: Overhead | None
    """What takes most of the step beside its bound."""
    speedups: list[SpeedUp]
    relief: MemoryRelief | None
    """The change that makes it fit, or frees most memory."""
    numerics: OtherNumerics | None
    """What the other way to add gradients would change."""
    other_stacks: bool
    """Whether there was other software to try."""


def advise(assessed: PlanAssessment, tokens: float | None = None, space: Space | None = None) -> PlanAdvice:
    """Advice on a plan; with the `space` that it is the best of, fewer chips are tried too."""
    job, plan, verdict = assessed.job, assessed.plan, assessed.verdict
    numerics = other_numerics(job, plan, verdict)
    if not assessed.fits:
        return PlanAdvice(None, [], memory_relief(job, plan, verdict), numerics, other_stacks=False)
    return PlanAdvice(
        overhead=largest_overhead(assessed),
        speedups=speedups(job, plan, verdict, tokens, space),
        relief=None,
        numerics=numerics,
        other_stacks=bool(other_stacks(job)),
    )


@dataclass(frozen=True)
class PlanAnswer:
    """A plan as it is answered with; without advice where only the plan itself was asked about."""

    assessed: PlanAssessment
    advice: PlanAdvice | None = None
