"""The answer to `dscale rl`: ways to run a step, the best first."""

from typing import ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.physics.units import render
from dragonscale.simulation.rl.advice import RlChange
from dragonscale.simulation.rl.remedies import RlRemedy
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
    engine_stays_bytes: float
    host_bytes: float
    host_limit_bytes: float
    host_worker_bytes: float
    cost_usd_per_step: float | None

    @property
    def likely_tokens(self) -> float:
        """Tokens a second and chip of a likely step."""
        return self.tokens_per_s_per_chip * self.step_s / self.likely_s

    def phase(self, name: str) -> float:
        """Seconds of a phase."""
        return sum(phase.seconds for phase in self.phases if phase.name == name)


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
    method: str = ""
    """What of the policy is trained, where that is not every weight."""
    remedies: list[RlRemedy] = []
    """Where nothing fits: changes with which the step fits on these chips."""
    shortage: str = ""
    """Where there is no way at all: what of trainer and engine has no room."""
    fits_on: str = ""
    """Where nothing fits: the smallest larger slice that was tried and holds the step."""

    @property
    def best(self) -> RlPlanRow | None:
        """The recommended way; None where nothing fits."""
        if self.plans and self.plans[0].feasible:
            return self.plans[0]
        return None

    @property
    def exit_code(self) -> int:
        if self.best:
            return 0
        return 3

    def headline(self) -> str:
        if self.best is None:
            return f"{self.model} on {self.slice}: nothing fits"
        return f"{self.model} on {self.slice}: {self.best.mode}, {render(self.best.likely_s, 's')} a step"


def run_row(step: RlStep, terms: RunTerms) -> RlRunRow:
    """A simulated run as a record."""
    run = simulate_run(step, terms)
    # seconds of each step, the shortest first
    steps_s, ages = sorted(run.step_s), run.staleness
    return RlRunRow(
        steps=terms.steps,
        seed=terms.seed,
        step_s=sum(steps_s) / len(steps_s),
        engine_busy=run.engine_busy,
        trainer_busy=run.trainer_busy,
        trained=run.trained,
        begun=run.begun,
        again=run.again,
        failures=run.failures,
        hours=sum(steps_s) / 3600,
        p90_step_s=steps_s[int(0.9 * (len(steps_s) - 1))],
        planned_s=step.seconds,
        staleness_mean=sum(ages) / len(ages),
        staleness_max=max(ages),
        queue_mean=sum(run.queued) / len(run.queued),
        queue_max=max(run.queued),
    )


def plan_row(step: RlStep) -> RlPlanRow:
    """A judged way as a record."""
    plan, generation = step.plan, step.generation
    trainer = plan.job.slice
    low, high = step.band
    return RlPlanRow(
        mode=plan.mode,
        stack=plan.framework.name,
        train_stack=plan.job.stack.name,
        engine=plan.engine,
        train=short_plan(plan.train),
        rollout=str(plan.rollout),
        train_chips=trainer.chips,
        rollout_chips=plan.pool.chips,
        rollout_chip=str(plan.pool).partition(":")[0],
        replicas=plan.replicas,
        step_s=step.seconds,
        step_low_s=low,
        step_high_s=high,
        likely_s=step.weighed_s,
        phases=[PhaseRow(phase.name, phase.seconds, phase.exposed_s) for phase in step.phases],
        tokens_per_s_per_chip=step.rate,
        staleness=plan.staleness,
        transfer=plan.framework.method(plan.mode),
        tail_s=generation.tail_s,
        mean_batch=generation.mean_batch,
        feasible=step.fits,
        hbm_bytes=step.hbm_bytes,
        train_hbm_bytes=step.train_bytes,
        rollout_hbm_bytes=generation.hbm_bytes,
        offloaded_bytes=step.moved_bytes,
        hbm_limit_bytes=trainer.chip.visible,
        rollout_limit_bytes=plan.pool.chip.visible,
        tight=step.tight,
        engine_stays_bytes=step.engine_share_bytes,
        host_bytes=step.host_bytes,
        host_limit_bytes=step.host_limit_bytes,
        host_worker_bytes=step.host_worker_bytes,
        cost_usd_per_step=step.cost_usd,
    )
