"""One plan of a job assessed: what its step takes and how sure that is, whether it can run, and what the run takes."""

from dataclasses import dataclass
from functools import cached_property

from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.budget import Budget, run_budget
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, problems
from dragonscale.training.cost.step_bound import StepBound, step_bound
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.tuning import unplanned_run
from dragonscale.training.search.error_bands import Band, job_band
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import illegal, unrunnable
from dragonscale.training.search.production_runs import InProduction, in_production
from dragonscale.training.search.space import misfits


@dataclass(frozen=True)
class PlanAssessment:
    """A plan with the verdict on it for a job, and what follows from that."""

    job: Job
    plan: Plan
    verdict: Verdict
    problems: list[str]
    """Why it cannot run, in sentences; empty where it can."""
    illegal: list[str]
    """Why the stack does not run it on this chip, in sentences."""
    roomy: bool
    """Whether it leaves as much memory free as a recommended plan does."""
    band: Band
    large_runs: InProduction | None
    """The plan as large runs have run, where those were slower than the band says."""
    budget: Budget | None
    """The whole run, where its tokens are known."""
    not_run: str
    """Why our own program does not train it; empty where it does."""

    @property
    def feasible(self) -> bool:
        return not self.problems

    @property
    def step_s(self) -> float:
        """The expected step."""
        return first_number(self.verdict.seconds)

    @property
    def step_low_s(self) -> float:
        """The fast end of the band."""
        return self.step_s * (1 + self.band.low)

    @property
    def step_high_s(self) -> float:
        """The slow end of the band, which reaches to what large runs took as far as there are as many chips."""
        high_s = self.step_s * (1 + self.band.high)
        if self.large_runs is None:
            return high_s
        return high_s + self.large_runs.share * (self.large_runs.seconds - high_s)

    @property
    def hbm_bytes(self) -> float:
        """Bytes on the fullest chip."""
        return first_number(self.verdict.hbm_bytes)

    @property
    def fits(self) -> bool:
        """Whether the fullest chip holds it."""
        return self.hbm_bytes <= self.job.slice.chip.visible

    @property
    def mfu(self) -> float:
        """Model FLOPs a second over the bf16 peak of all chips."""
        return self.job.model_flops / (self.step_s * self.job.slice.flops)

    @property
    def mfu_of_dtype(self) -> float | None:
        """The same over the peak of the plan's own format; None where that is the same."""
        return mfu_of_dtype(self.job, self.plan, self.mfu)

    @cached_property
    def bound(self) -> StepBound:
        """The resource that the longest part of the step waits for."""
        return step_bound(self.verdict.ledger, self.job.slice.chip)


def assess(job: Job, plan: Plan, tokens: float | None = None, force: bool = False) -> PlanAssessment:
    """A plan judged and assessed. What its stack cannot run is infeasible, unless it is forced; `tokens` are those of
    the whole run."""
    verdict = judge_one(job, plan)
    refused = illegal(job, plan)
    # sizes that do not divide, memory and the torus; then what the model itself rules out
    reasons = [*problems(job, plan, verdict), *misfits(job, plan)]
    if not force:
        reasons += refused
    step_s = first_number(verdict.seconds)
    band = job_band(job, plan)
    # large runs count only where they reach beyond the slow end of the band
    large_runs = in_production(job, plan)
    if large_runs is not None and large_runs.seconds <= step_s * (1 + band.high):
        large_runs = None
    chip = job.slice.chip
    return PlanAssessment(
        job,
        plan,
        verdict,
        problems=list(dict.fromkeys(reasons)),
        illegal=refused,
        # what does not fit leaves no room, and need not be judged with an uneven load
        roomy=first_number(verdict.hbm_bytes) <= chip.visible and leaves_room(job, plan, verdict),
        band=band,
        large_runs=large_runs,
        budget=run_budget(tokens, job.tokens, step_s, job.slice.chips, chip.price, chip.power) if tokens else None,
        not_run=unrunnable(plan, job.model) or unplanned_run(job.tuning),
    )


def mfu_of_dtype(job: Job, plan: Plan, mfu: float) -> float | None:
    """An MFU of the bf16 peak as one of the peak of the plan's own format; None where that is the same."""
    bf16_peak = job.slice.chip.peak("bf16")
    peak = job.slice.chip.peak(plan.dtype)
    return mfu * bf16_peak / peak if peak != bf16_peak else None


def chips_of_host(target: Slice) -> int:
    """Chips of a slice that share a host."""
    return max(1, min(target.chip.host_chips, target.chips))


def host_node_bytes(job: Job, plan: Plan) -> float:
    """Bytes of the memory of each host that a plan needs."""
    return first_number(judge_one(job, plan).ledger.host_bytes) * chips_of_host(job.slice)
