"""What holds a simulated fleet back and what to change, in sentences about the run itself."""

from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.simulate.capacity import FULL, FleetCapacity, prefill_queue
from dragonscale.commands.simulate.classes import ClassTable
from dragonscale.commands.simulate.missed import class_ratio
from dragonscale.commands.simulate.simulate_question import SimulateAsked
from dragonscale.commands.simulate.simulate_records import NAMES
from dragonscale.physics.units import render
from dragonscale.simulation import SimulationResult
from dragonscale.simulation.backlog import Backlog
from dragonscale.simulation.loop import BEYOND_SERVED_LENGTH
from dragonscale.simulation.result import ClassResult

BUSY = 0.97
"""Above this share of busy time batches never run empty."""
SHORT = 3**0.5 - 1
"""Above this load one request queues on average where they come at random (M/D/1: load^2 / 2(1 - load) = 1); a queue
below it has another cause."""
HALF = 0.5
"""Of a token budget, what prompts fill where another would find room."""
KV = "the KV cache"
TRAFFIC = "the traffic"
"""What bounds a fleet that has room for more: there is nothing to change about it."""
_LOWER = {
    "ttft_s": "more --replicas, a prefill pool (--prefill-on) or a smaller --token-budget",
    "tpot_s": "more --replicas (smaller batches), more chips per replica or a prefill pool (--prefill-on)",
    "itl_s": "a smaller --token-budget, more chips per replica or a prefill pool (--prefill-on)",
    "e2e_s": "more --replicas (smaller batches) or more chips per replica",
}
_LOWER_APART = (
    "more --replicas (smaller batches) or more chips for each",
    "more --prefill-replicas or more chips for each",
)


def verdict(
    asked: SimulateAsked,
    result: SimulationResult,
    load: Backlog | None,
    missed: dict[str, float],
    found: FleetCapacity | None,
) -> tuple[str, str]:
    """What bounds the fleet, and what to change."""
    outcome = result.outcome
    if not outcome.arrived:
        return "nothing", "No request came, so nothing can be said; give --requests and a --rate."
    if outcome.refused and not outcome.finished:
        return "refusals", f"Every request was refused: {', '.join(outcome.refused)}."
    more = capacity_text(asked, found)
    grows = load is not None and load.grows
    bound, shown, helps = _cause(asked, result, found)
    if asked.deadline_s:  # all is there from the beginning, and the fleet takes as long as it takes
        away = f"{sum(outcome.refused.values()):,} requests were refused. " if outcome.refused else ""
        return bound, f"{away}{shown} {more}".strip()
    if load is not None and grows:
        return bound, f"{_overloaded(load, result)} {shown} {more}".strip()
    if missed:
        name = next(iter(missed))
        lower = _LOWER[name] if asked.fleet.prefill is None else _LOWER_APART[name == "ttft_s"]
        helps = "" if found is not None and (found.change or found.rate is None) else f" Lower with {lower}."
        return NAMES[name], f"{_missing(asked, result, missed)} {shown}{helps} {more}".strip()
    waits = result.utilisation > BUSY and result.mean_waiting > len(result.replicas)
    queues = waits and not _roomy(asked, result)
    if bound == KV or queues:
        queue = f"{result.mean_waiting:.3g} requests queue on average. " if queues else ""
        return bound, f"{queue}{shown} {helps} would help. {more}".strip()
    kept = "" if load is None else f"The fleet keeps up with {_rate(asked):.3g} requests/s."
    return TRAFFIC, f"{kept} {more}".strip()


def _cause(asked: SimulateAsked, result: SimulationResult, found: FleetCapacity | None) -> tuple[str, str, str]:
    """What holds requests up: its name, what shows it, and what would help."""
    outcome, places = result.outcome, asked.fleet.pool.scheduler.sequences
    booting = _booting(asked, result, found)
    if booting:
        return "replicas that start", booting, "More replicas at the beginning or a shorter startup"
    if result.kv_occupancy > FULL or outcome.preempted > 0.01 * outcome.arrived:
        shown = f"The KV cache is {result.kv_occupancy:.0%} full on average, with {outcome.preempted:,} preemptions."
        return KV, shown, "A narrower --plan kv=…, more chips per replica or more --replicas"
    taken = result.use["serve"].places_share
    front = result.use["serve" if asked.fleet.prefill is None else "prefill"]
    full = f"{taken * places:.3g} of the {places:,} places of a replica are taken"
    prompts = f"Iterations with prompts take {front.prompt_share:.0%} of a replica's busy time"
    queue = prefill_queue(asked, result)
    apart = f"{min(queue, 1):.0%} of the queueing is for a prefill; {full}."
    if asked.fleet.prefill is not None and queue > 0.5:
        return "the prefill pool", apart, "More --prefill-replicas"
    if taken > max(SHORT, front.prompt_share if asked.fleet.prefill is None else 0.0):
        return "places in batches", f"{full}.", "A larger --max-seqs or more --replicas"
    if asked.fleet.prefill is not None:
        return "the decode pool", apart, "More --replicas"
    if front.prompt_share > SHORT:
        shown = f"{prompts}, and prompts fill {front.budget_share:.0%} of the token budget in them."
        return "prefill", shown, "More --replicas or a prefill pool (--prefill-on)"
    slots = asked.fleet.pool.adapters
    if slots and result.mean_waiting > len(result.replicas):  # nothing else is short
        loads = f"{result.adapter_loads:,} loads for {outcome.finished:,} requests"
        shown = (
            f"{slots} adapters are in memory at a time ({loads}), and requests wait until one of them is out of use."
        )
        return "places for adapters", shown, "More slots of --adapters"
    if result.mean_waiting > len(result.replicas):
        shown = f"{prompts} and {full}: requests come to a replica together."
        return "bursts", shown, "Another --router or more --replicas"
    return "the replicas", f"{prompts} and {full}.", "More --replicas"


def _roomy(asked: SimulateAsked, result: SimulationResult) -> bool:
    """Whether a prefill pool, however busy, has more room in its iterations than prompts: these wait for the one under
    way, and not for each other."""
    return asked.fleet.prefill is not None and result.use["prefill"].budget_share < HALF


def _overloaded(load: Backlog, result: SimulationResult) -> str:
    away = result.outcome.refused.get("queue full", 0)
    return (
        f"Overloaded: {away:,} were turned away."
        if away
        else f"Overloaded: {load.waiting:,} queue when the last comes."
    )


def _missing(asked: SimulateAsked, result: SimulationResult, missed: dict[str, float]) -> str:
    """The target that is missed most, and by how much."""
    name, ratio = next(iter(missed.items()))
    if name not in asked.targets:
        return _class_missing(asked, result, name)
    value = render(asked.reached(result, name), "s")
    others = "".join(f"; {NAMES[other]} {times:.3g} times" for other, times in list(missed.items())[1:])
    target, at = render(asked.targets[name].seconds, "s"), asked.targets[name].at
    away = f"; {', '.join(f'{count:,} were refused ({why})' for why, count in result.outcome.refused.items())}"
    return (
        f"{NAMES[name]} is {value} {at}, {ratio:.3g} times its target of {target}{others}; "
        f"{result.met[name]:.1%} of {'gaps' if name == 'itl_s' else 'requests'} meet it{away * bool(away[2:])}."
    )


def _class_missing(asked: SimulateAsked, result: SimulationResult, name: str) -> str:
    """The class that misses a target most, and by how much."""
    over, one, own = _latest(asked, result, name)
    goal = one.targets[name]
    return (
        f"{NAMES[name]} of {one.name} is {render(over * goal.seconds, 's')} {goal.at}, {over:.3g} times its target of "
        f"{render(goal.seconds, 's')}; {own.met[name]:.1%} of its requests meet it."
    )


def _latest(asked: SimulateAsked, result: SimulationResult, name: str) -> tuple[float, ClassTable, ClassResult]:
    """The class that misses a target most, with its statistic over the target."""
    rows = zip(asked.traffic.classes, result.classes, strict=True)
    late = [(class_ratio(own, name, goal), one, own) for one, own in rows if (goal := one.targets.get(name))]
    return max(late, key=lambda row: row[0])


def _booting(asked: SimulateAsked, result: SimulationResult, found: FleetCapacity | None) -> str:
    """That requests waited for replicas that were starting, where the fleet grew and all of it holds the rate."""
    rule = asked.fleet.pool.autoscale
    prefills = asked.fleet.prefill.replicas if asked.fleet.prefill is not None else 0
    most = round(max((value for _, value in result.series.get("replicas", [])), default=0.0)) - prefills
    most = most if rule is None else min(most, rule.most)  # others are only on their way out
    enough = found is None or (found.rate or 0.0) >= _rate(asked)
    if rule is None or most <= asked.fleet.pool.replicas or not enough:
        return ""
    return (
        f"Requests waited while replicas started: the fleet grew from {asked.fleet.pool.replicas} to {most}, and one "
        f"serves {render(rule.startup_s, 's')} after it is asked for."
    )


def capacity_text(asked: SimulateAsked, found: FleetCapacity | None) -> str:
    """What would hold the asked rate, as it was found by running."""
    if found is None:
        return ""
    if found.limit == "deadline" and found.confirmed is not None:
        return f"By running: {_flags(found)} would end in {render(found.confirmed.result.seconds, 's')}."
    if found.rate is None:
        what = NAMES.get(found.limit)
        if not what or found.trial is None:
            return "By running: no rate that was tried holds; more chips per replica, another plan or a looser target."
        if found.trial.missed.get(found.limit, 0.0) <= 1:  # but for those that are refused it is met
            if BEYOND_SERVED_LENGTH in found.trial.result.outcome.refused:
                return (
                    "By running: requests are refused at any rate; shorter ones or a higher limit in the launch line."
                )
            return "By running: requests are refused at any rate; shorter ones, another model or a larger cache."
        if found.limit in asked.targets:
            at, seconds, whose = asked.statistic(found.limit), asked.reached(found.trial.result, found.limit), ""
        else:
            over, one, _ = _latest(asked, found.trial.result, found.limit)
            at, seconds = one.targets[found.limit].statistic, over * one.targets[found.limit].seconds
            whose = f" of {one.name}"
        return (
            f"By running: {what}{whose} misses its target at any rate, since requests that are alone take {at} "
            f"{render(seconds, 's')}; "
            f"more chips per replica, another plan or a looser target."
        )
    slowed = ""
    if asked.question.trace and found.rate < _rate(asked):
        slowed = f" It holds the trace slowed down (--speed {asked.question.speed * found.rate / _rate(asked):.3g})."
    if found.confirmed is not None:
        where = f" on {written(asked.question.on)}" * (bool(asked.fleet.others) and "replicas" in found.change)
        return f"By running: {_flags(found)}{where} would hold {_rate(asked):.3g}/s{_waits(asked, found)}.{slowed}"
    if found.rate < _rate(asked):
        return f"By running: no number of replicas that was tried holds {_rate(asked):.3g}/s.{slowed}"
    return ""


def _rate(asked: SimulateAsked) -> float:
    return asked.traffic.rate or 0.0


def _flags(found: FleetCapacity) -> str:
    """What would hold the rate, as flags."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in found.change.items())


def _waits(asked: SimulateAsked, found: FleetCapacity) -> str:
    assert found.confirmed is not None
    run: Any = found.confirmed.result
    names = dict.fromkeys(("ttft_s", "tpot_s", *asked.targets))
    waits = ((name, asked.reached(run, name)) for name in names)
    each = (f"{asked.statistic(name)} {NAMES[name]} {render(value, 's')}" for name, value in waits if value)
    return f" ({', '.join(each)})"
