"""What bounds a step of reinforcement learning, and which changes of the plan would make it faster or slower."""

from dataclasses import replace

import msgspec

from dragonscale.serving.space.legal import format_refusal
from dragonscale.simulation.rl.frameworks import MODES
from dragonscale.simulation.rl.lengths import measured_lengths
from dragonscale.simulation.rl.step import RlStep, judge_step

# Changes that move throughput by less are left out.
MIN_GAIN = 0.03
# The largest fraction of answers that a lower cap may cut off: cutting more would be another task.
MAX_CAPPED = 0.1
# Lengths of answers that are drawn to see how many a lower cap would cut off.
DRAWN = 512


class RlChange(msgspec.Struct):
    """What else could be done, and the step it would give; `gain` is in tokens trained per second and chip."""

    what: str
    step_s: float
    gain: float
    flags: dict[str, str] = {}
    """The flags that do it."""


def bottleneck(step: RlStep) -> str:
    """The phase that most of the step waits for; of generation its longest answers, where they take most of it."""
    longest = max(step.phases, key=lambda phase: phase.exposed_s)
    if longest.name == "generation" and step.generation.tail_s > longest.seconds / 2:
        return "the longest answers of generation"
    return longest.name


def distinct_steps(steps: list[RlStep], count: int) -> list[RlStep]:
    """The first `count` ways that differ in mode, framework or pool, and the first of every mode beyond those."""
    distinct: dict[tuple[object, ...], RlStep] = {}
    for step in steps:
        distinct.setdefault((step.plan.mode, step.plan.framework.name, str(step.plan.pool)), step)
    shown: list[RlStep] = []
    modes: set[str] = set()
    for rank, step in enumerate(distinct.values()):
        if rank < count or step.plan.mode not in modes:
            shown.append(step)
        modes.add(step.plan.mode)
    return shown


def changes(steps: list[RlStep], best: RlStep) -> list[RlChange]:
    """What a lower cap on answers, other modes and rollouts in fp8 would give compared with the best way."""
    rows = [*_lower_cap(best), *_other_modes(steps, best), *_narrow_rollouts(best)]
    return [row for row in rows if abs(row.gain) >= MIN_GAIN]


def _lower_cap(best: RlStep) -> list[RlChange]:
    """Half the cap, where few answers are longer than that."""
    lengths = best.work.lengths
    cap = lengths.cap // 2
    drawn = [float(length) for length in lengths.draw(DRAWN)]
    longer = sum(length > cap for length in drawn) / len(drawn)
    if longer > MAX_CAPPED:
        return []
    capped = judge_step(replace(best.work, lengths=measured_lengths(drawn, cap)), best.plan)
    return [_change(f"cap answers at {cap:,} tokens ({longer:.0%} are longer)", best, capped, {"output": str(cap)})]


def _other_modes(steps: list[RlStep], best: RlStep) -> list[RlChange]:
    """The best way of each other mode that fits."""
    rows: list[RlChange] = []
    for mode in MODES:
        other = next((step for step in steps if step.plan.mode == mode and step.fits), None)
        if other is None or mode == best.plan.mode:
            continue
        tight = ", tight in memory" if other.tight else ""
        text = f"{mode} instead (staleness {other.plan.staleness:g}{tight})"
        rows.append(_change(text, best, other, {"mode": mode}))
    return rows


def _narrow_rollouts(best: RlStep) -> list[RlChange]:
    """An engine in fp8, where it runs in bf16 and the chips have fp8."""
    plan = best.plan
    narrow = replace(plan.rollout, weights="fp8", compute="fp8")
    if plan.rollout.weights != "bf16":
        return []
    if format_refusal(plan.framework.engine, plan.pool.chip, best.work.model, narrow):
        return []
    other = judge_step(best.work, replace(plan, rollout=narrow))
    text = "rollouts in fp8 (with truncated importance sampling)"
    return [_change(text, best, other, {"rollout_dtype": "fp8"})]


def _change(what: str, best: RlStep, other: RlStep, flags: dict[str, str]) -> RlChange:
    """Another step, with the answers per second and chip that it gains over the best."""
    speed = best.weighed_s * best.plan.chips / (other.weighed_s * other.plan.chips)
    return RlChange(what, other.seconds, speed - 1, flags)
