"""A measured step of a plan beside the expected one: whether it lies in the band, what published runs of the model on
that chip took, and what could have made the difference."""

import math
from dataclasses import dataclass

from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.explanations import Suspect, slowest_behind, suspects
from dragonscale.training.advice.older_releases import ReleaseRun, earlier_releases
from dragonscale.training.search.published_runs import PublishedRun, runs_of_model
from dragonscale.training.search.run_kinds import family

MAX_SUSPECTS = 5
# Rates of runs this near each other are called the same.
SAME_RATE = 0.1


@dataclass(frozen=True)
class ExplainedStep:
    """A step that was measured of an assessed plan; `expected` is the assessment."""

    seconds: float
    expected: PlanAssessment
    suspects: list[Suspect]
    """Of a step slower than its band: what could have been otherwise in the run, the nearest first."""
    published: list[PublishedRun]
    """Of a step outside its band: published runs of the model on that chip, the nearest first."""
    normal_for: ReleaseRun | None = None
    """Of a step slower than its band: the newest earlier release of the software for which it is normal."""
    straggler: float | None = None
    """How much slower one host would have to be to explain a step that is slower than its band; None on one host."""

    @property
    def ratio(self) -> float:
        return self.seconds / self.expected.step_s

    @property
    def within_band(self) -> bool:
        return self.expected.step_low_s <= self.seconds <= self.expected.step_high_s

    @property
    def impossible(self) -> bool:
        """Whether it is faster than the datasheet allows."""
        return self.seconds < float(self.expected.verdict.lower)

    @property
    def slower(self) -> bool:
        """Whether it is slower than its band."""
        return self.seconds > self.expected.step_s and not self.within_band

    @property
    def tokens_per_s_per_chip(self) -> float:
        job = self.expected.job
        return job.tokens / self.seconds / job.slice.chips

    def explains(self, suspect: Suspect) -> float:
        """The fraction of the difference that a suspect alone explains."""
        return (suspect.seconds - self.expected.step_s) / (self.seconds - self.expected.step_s)

    def ran_alike(self, run: PublishedRun) -> bool:
        """Whether a published run of the same software in the same format was as fast."""
        same_format = run.parsed_plan.dtype == self.expected.plan.dtype
        same_rate = abs(run.tokens_per_s_per_chip / self.tokens_per_s_per_chip - 1) <= SAME_RATE
        return _same_software(self.expected, run) and same_format and same_rate


def explain_measured(expected: PlanAssessment, seconds: float) -> ExplainedStep:
    """A measured step with what could explain its distance from the expected one."""
    step = ExplainedStep(seconds, expected, suspects=[], published=[], straggler=None)
    # there is no gap to explain, or the measurement itself is in doubt
    if step.within_band or step.impossible:
        return step
    published = _nearest_first(expected, step.tokens_per_s_per_chip)
    if not step.slower:
        return ExplainedStep(seconds, expected, [], published)
    job, plan, step_s = expected.job, expected.plan, expected.step_s
    # what would be slower than measured even at the fast end of its own band did not happen
    likely = [
        suspect for suspect in suspects(job, plan, seconds) if suspect.seconds * (1 + expected.band.low) <= seconds
    ]
    straggler = slowest_behind(job, plan, step_s, seconds) if job.slice.hosts > 1 else None
    normal_for = next((run for run in earlier_releases(expected) if run.takes(seconds)), None)
    return ExplainedStep(
        seconds, expected, likely[:MAX_SUSPECTS], published, normal_for=normal_for, straggler=straggler
    )


def _nearest_first(expected: PlanAssessment, rate: float) -> list[PublishedRun]:
    """Published runs of the model on its chip: those of the same software and format first, then of the nearest
    tokens a second and chip."""

    def distance(run: PublishedRun) -> tuple[bool, bool, float]:
        other_format = run.parsed_plan.dtype != expected.plan.dtype
        return not _same_software(expected, run), other_format, abs(math.log(run.tokens_per_s_per_chip / rate))

    return sorted(runs_of_model(expected.job), key=distance)


def _same_software(expected: PlanAssessment, run: PublishedRun) -> bool:
    return family(run.stack) == family(expected.job.stack.name)
