"""What would let a step of reinforcement learning fit where no way of its framework does: a smaller share of the memory
for the engine, a switch that is off by default, adapters. Each is searched for, so that it does what it promises."""

from dataclasses import replace

import msgspec

from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.space.space import splits
from dragonscale.simulation.rl.frameworks import Framework
from dragonscale.simulation.rl.sizing import RlJob
from dragonscale.simulation.rl.step import RlPlan, RlStep, deployed, trainer_bytes
from dragonscale.simulation.rl.ways import Planner, best_training, engine_weights
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.plan.tuning import DEFAULT_RANK, Tuning

# Shares of the memory that are tried for the engine, the largest first.
SHARES = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


class RlRemedy(msgspec.Struct):
    """A change with which the step fits: the flags that ask for it where there are any, and the best way then."""

    what: str
    plan: str
    step_s: float
    flags: dict[str, str] = {}


def remedies(job: RlJob) -> list[RlRemedy]:
    """The changes with which a step fits on its chips."""
    return [
        remedy
        for remedy in (_smaller_share(job), _switched_on(job), _other_mode(job), _adapters(job))
        if remedy is not None
    ]


def shortage(job: RlJob) -> str:
    """What of trainer and engine has no room on the chips, in numbers, where a step has no way at all; empty where it
    is not their memory."""
    row, chip = job.frameworks[0], job.slice.chip
    planner = Planner(hosted=True)
    parts: list[str] = []
    training = best_training(job.work, job.slice, row.trainers[0], row, planner)
    if training is not None:
        train_job, plan = training
        size = trainer_bytes(job.work, planner.verdict(train_job, plan), row)
        verdict = "fits" if size <= chip.visible else "does not fit"
        parts.append(f"the trainer ({short_plan(plan)}) takes {_gb(size)} of {_gb(chip.visible)} and {verdict}")
        rollout = ServingPlan(tensor=_widest(job), weights=engine_weights(job.work, job.choices.dtype))
        engine = deployed(RlPlan("colocated", row, train_job, plan, rollout, job.slice))
        memory = capacity(engine)
        fixed = first_number(memory.weights + memory.working + memory.reserve)
        usable = first_number(memory.usable)
        if fixed > usable:
            parts.append(
                f"the engine needs {_gb(fixed)} before it has any cache, and its {engine.engine.memory.share:g} of the "
                f"memory is {_gb(usable)}"
            )
    return "; ".join(parts)


def _widest(job: RlJob) -> int:
    """The most chips that an engine's replica may have here."""
    return max(split.tensor for split in splits(job.work.model, job.slice, job.frameworks[0].engine))


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def older_default(best: RlStep) -> str:
    """That older releases of a framework, which gave the engine more of the memory, had no room for the step; empty
    where they had, or where the share was said."""
    row = best.plan.framework
    if not row.older_share or row.share_colocated >= row.older_share:
        return ""
    engine_bytes = row.older_share * best.plan.pool.chip.visible
    if best.train_bytes + engine_bytes <= best.plan.job.slice.chip.visible:
        return ""
    return (
        f"{row.older} gave the engine {row.older_share:g} of the memory by default, which does not fit here: "
        f"{_gb(best.train_bytes)} of the trainer beside {_gb(engine_bytes)}; --memory-fraction "
        f"{row.share_colocated:g} is today's default."
    )


def _smaller_share(job: RlJob) -> RlRemedy | None:
    """The largest share for an engine beside which the trainer fits."""
    if not any(row.stays for row in job.frameworks):
        return None
    default = max(row.share("colocated") for row in job.frameworks)
    for share in SHARES:
        if share >= default:
            continue
        best = _fitting(replace(job, frameworks=[row.with_share(share) for row in job.frameworks]))
        if best is not None:
            what = f"an engine with {share:g} of the memory instead of {default:g}"
            return _remedy(what, best, {"memory_fraction": f"{share:g}"})
    return None


def _switched_on(job: RlJob) -> RlRemedy | None:
    """The framework with a switch that is off by default."""
    rows: list[Framework] = []
    for row in job.frameworks:
        if row.wider_by:
            rows.append(msgspec.structs.replace(row, limits={**row.limits, **row.wider}))
    if not rows:
        return None
    best = _fitting(replace(job, frameworks=rows))
    return None if best is None else _remedy(f"{rows[0].name} with {rows[0].wider_by}", best, {})


def _other_mode(job: RlJob) -> RlRemedy | None:
    """Another mode, where one was taken by default for a host that was given."""
    if not job.choices.modes or not job.work.host_memory:
        return None
    best = _fitting(replace(job, choices=replace(job.choices, modes=())))
    if best is None:
        return None
    return _remedy(f"--mode {best.plan.mode}, two pools", best, {"mode": best.plan.mode})


def _adapters(job: RlJob) -> RlRemedy | None:
    """Adapters in place of all weights."""
    if job.work.tuning.rank:
        return None
    tuning = Tuning(method="lora", rank=DEFAULT_RANK, asked=True)
    best = _fitting(replace(job, work=replace(job.work, tuning=tuning)))
    return None if best is None else _remedy("LoRA", best, {"method": "lora"})


def _fitting(job: RlJob) -> RlStep | None:
    """The best way that fits."""
    return next((step for step in job.search() if step.fits), None)


def _remedy(what: str, step: RlStep, flags: dict[str, str]) -> RlRemedy:
    return RlRemedy(what, f"{step.plan.mode}, {short_plan(step.plan.train)}", step.seconds, flags)
