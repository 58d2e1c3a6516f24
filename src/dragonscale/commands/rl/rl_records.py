"""The answer to `dscale rl`: ways to run a step, the best first."""

from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record, shared
from dragonscale.physics.units import render
from dragonscale.simulation.rl.run import RunTerms, simulate_run
from dragonscale.simulation.rl.step import RlStep
from dragonscale.training.plan.plan import short_plan


class PhaseRow(msgspec.Struct):
    """A phase of a step: its seconds on its own chips, and those that the step waits for."""

    name: str
    seconds: float
    exposed_s: float


class RlPlanRow(msgspec.Struct):
    """One way to run a step. `train` and `rollout` are plans of the trainer and of one replica of the engine, on so
    many chips each (the same ones where colocated); `step_s` is what its phases take, `likely_s` with what half of the
    framework's published steps took over that; `staleness` the steps that the weights behind an answer may be old;
    `tail_s` what the last 2% of answers take of generation; bytes are those of the fullest chip, while the trainer and
    while the engine works, and what moves to the host in between."""

    mode: str
    stack: str
    train_stack: str
    engine: str
    train: str
    rollout: str
    train_chips: int
    rollout_chips: int
    rollout_chip: str
    replicas: int
    step_s: float
    step_low_s: float
    step_high_s: float
    likely_s: float
    phases: list[PhaseRow]
    tokens_per_s_per_chip: float
    staleness: float
    transfer: str
    tail_s: float
    mean_batch: float
    feasible: bool
    hbm_bytes: float
    train_hbm_bytes: float
    rollout_hbm_bytes: float
    offloaded_bytes: float
    hbm_limit_bytes: float
    rollout_limit_bytes: float
    tight: bool
    cost_usd_per_step: float | None

    @property
    def likely_tokens(self) -> float:
        """Tokens a second and chip of a likely step."""
        return self.tokens_per_s_per_chip * self.step_s / self.likely_s

    def phase(self, name: str) -> float:
        """Seconds of a phase."""
        return sum(one.seconds for one in self.phases if one.name == name)


class RlChange(msgspec.Struct):
    """What else could be done, and the step it would give; `gain` is in tokens trained per second and chip."""

    what: str
    step_s: float
    gain: float
    flags: dict[str, str] = {}
    """The flags that do it."""


class RlRunRow(msgspec.Struct):
    """The best way simulated over many steps: seconds of a step on average and of nine in ten at most, beside the
    planned ones; the steps that the weights behind an answer were old, on average and at most; answers that waited in
    the queue; the parts of the time that engine and trainer worked; answers begun again after failures."""

    steps: int
    seed: int
    hours: float
    step_s: float
    p90_step_s: float
    planned_s: float
    staleness_mean: float
    staleness_max: int
    queue_mean: float
    queue_max: int
    engine_busy: float
    trainer_busy: float
    trained: int
    begun: int
    again: int
    failures: int


class RlReport(Record):
    """Ways to run a step of reinforcement learning, the best first."""

    ROWS: ClassVar[str] = "plans"

    model: str
    slice: str
    algorithm: str
    prompts: int
    samples: int
    prompt: int
    output: int
    mean_output: float
    updates: int
    searched: int
    plans: list[RlPlanRow]
    bound_by: str = "memory"
    changes: list[RlChange] = []
    run: RlRunRow | None = None
    files: dict[str, str] = {}
    """The command of the best way, by its file's name, with `to`."""
    notes: list[str] = []
    fits_on: str = ""
    """Where nothing fits: the smallest larger slice that was tried and holds the step."""

    @property
    def best(self) -> RlPlanRow | None:
        """The recommended way; None where nothing fits."""
        return self.plans[0] if self.plans and self.plans[0].feasible else None

    @property
    def exit_code(self) -> int:
        return 0 if self.best else 3

    def headline(self) -> str:
        if self.best is None:
            return f"{self.model} on {self.slice}: nothing fits"
        return f"{self.model} on {self.slice}: {self.best.mode}, {render(self.best.likely_s, 's')} a step"


def _price(step: RlStep) -> float | None:
    """Dollars of a step; None where the price of some of its chips is not known."""
    slices = (step.plan.job.slice,) if step.plan.mode == "colocated" else (step.plan.job.slice, step.plan.pool)
    if any(one.chip.price is None for one in slices):
        return None
    return sum(float(one.chip.price or 0.0) * one.chips for one in slices) * step.seconds / 3600


def run_row(step: RlStep, terms: RunTerms) -> RlRunRow:
    """A simulated run as a record."""
    run = simulate_run(step, terms)
    took, ages = sorted(run.step_s), run.staleness
    found = {"hours": sum(took) / 3600, "step_s": sum(took) / len(took), "p90_step_s": took[int(0.9 * (len(took) - 1))]}
    found |= {"planned_s": step.seconds, "staleness_mean": sum(ages) / len(ages), "staleness_max": max(ages)}
    found |= {"queue_mean": sum(run.queued) / len(run.queued), "queue_max": max(run.queued)}
    return RlRunRow(**shared(RlRunRow, terms, run, **found))


def plan_row(step: RlStep) -> RlPlanRow:
    """A way that was judged, as a record."""
    plan, (low, high), chip = step.plan, step.band, step.plan.job.slice.chip
    paid: Any = _price(step)
    words = {"stack": plan.framework.name, "engine": plan.engine, "train_stack": plan.job.stack.name}
    words |= {"train": short_plan(plan.train), "rollout": str(plan.rollout)}
    words |= {"transfer": plan.framework.method(plan.mode)}
    times = {
        "step_s": step.seconds,
        "step_low_s": low,
        "step_high_s": high,
        "likely_s": step.weighed_s,
        "tokens_per_s_per_chip": step.rate,
    }
    sizes = {"train_chips": plan.job.slice.chips, "rollout_chips": plan.pool.chips, "feasible": step.fits}
    words |= {"rollout_chip": str(plan.pool).partition(":")[0]}
    held = {"train_hbm_bytes": step.train_bytes, "rollout_hbm_bytes": step.generation.hbm_bytes}
    held |= {"offloaded_bytes": step.moved_bytes, "hbm_limit_bytes": chip.visible}
    held |= {"rollout_limit_bytes": plan.pool.chip.visible}
    phases = [PhaseRow(one.name, one.seconds, one.exposed_s) for one in step.phases]
    given = {**words, **times, **sizes, **held, "phases": phases, "cost_usd_per_step": paid}
    return RlPlanRow(**shared(RlPlanRow, step, plan, step.generation, **given))
