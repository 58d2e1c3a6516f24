"""What holds a simulated fleet back and what to change, in sentences about the run itself."""

from typing import Any

from dragonscale.app.simulate.capacity import FleetCapacity
from dragonscale.app.simulate.simulate_question import SimulateAsked
from dragonscale.app.simulate.simulate_records import NAMES
from dragonscale.physics.units import render
from dragonscale.simulation import SimulationResult
from dragonscale.simulation.backlog import Backlog

BUSY = 0.97
"""Above this share of busy time batches never run empty."""
FULL = 0.9
"""Above this occupancy the KV cache is what limits batches."""
SHORT = 3**0.5 - 1
"""Above this load one request queues on average where they come at random (M/D/1: load^2 / 2(1 - load) = 1); a queue
below it has another cause."""
TRAFFIC = "the traffic"
"""What bounds a fleet that has room for more: there is nothing to change about it."""
_LOWER = {
    "ttft_s": "more --replicas, a prefill pool (--prefill-on) or a smaller --token-budget",
    "tpot_s": "more --replicas (smaller batches), more chips per replica or a prefill pool (--prefill-on)",
    "itl_s": "a smaller --token-budget, more chips per replica or a prefill pool (--prefill-on)",
    "e2e_s": "more --replicas (smaller batches) or more chips per replica",
}


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
    if load is not None and load.grows:
        return "the replicas", f"{_overloaded(load, result)}{_booting(asked, result)} {more}".strip()
    if missed:
        return NAMES[next(iter(missed))], f"{_missing(asked, result, missed, found)} {more}".strip()
    if result.kv_occupancy > FULL or outcome.preempted > 0.01 * outcome.arrived:
        return (
            "the KV cache",
            f"The KV cache is full ({result.kv_occupancy:.0%} on average, {outcome.preempted} preemptions); a narrower "
            f"--plan kv=…, more chips per replica or more --replicas would make room. {more}".strip(),
        )
    if result.utilisation > BUSY and result.mean_waiting > len(result.replicas):
        bound, text = _queueing(asked, result)
        return bound, f"{text} {more}".strip()
    kept = "" if load is None else f"The fleet keeps up with {_rate(asked):.3g} requests/s."
    return TRAFFIC, f"{kept} {more}".strip()


def _queueing(asked: SimulateAsked, result: SimulationResult) -> tuple[str, str]:
    """What requests queue for in a fleet that keeps up: places in batches, iterations for their prompts, or neither."""
    serving = [one for one in result.replicas if one.pool == "serve"]
    running, places = result.mean_running / len(serving), asked.fleet.pool.scheduler.sequences
    front = [one for one in result.replicas if one.pool == ("serve" if asked.fleet.prefill is None else "prefill")]
    share = sum(one.prompt_s for one in front) / (sum(one.busy_s for one in front) or 1.0)
    queue = f"{result.mean_waiting:.3g} requests queue on average"
    if running / places > max(share, SHORT):
        return (
            "places in batches",
            f"{queue} for one of the {places:,} places of a replica, of which {running:.3g} are taken; "
            "a larger --max-seqs or more --replicas would shorten the queue.",
        )
    if share > SHORT:
        return (
            "prefill",
            f"{queue} for their prefill: {share:.0%} of a replica's time are iterations with prompts; more --replicas "
            "or a prefill pool (--prefill-on) would shorten the queue.",
        )
    return (
        "bursts",
        f"{queue}, though iterations with prompts take {share:.0%} of a replica's time and {running:.3g} of {places:,} "
        "places are taken: requests come to a replica together; another --router or more --replicas would "
        "shorten the queue.",
    )


def _overloaded(load: Backlog, result: SimulationResult) -> str:
    full = f" The KV cache is {result.kv_occupancy:.0%} full." if result.kv_occupancy > FULL else ""
    away = result.outcome.refused.get("queue full", 0)
    grows = f"{away:,} were turned away" if away else f"the queue grows, to {load.waiting:,} when the last came"
    return (
        f"Overloaded: {load.arrived_per_s:.3g} requests/s come, {load.served_per_s:.3g}/s are served, and "
        f"{grows}.{full}"
    )


def _missing(
    asked: SimulateAsked, result: SimulationResult, missed: dict[str, float], found: FleetCapacity | None
) -> str:
    """The target that is missed most, by how much, and what lowers it."""
    name, ratio = next(iter(missed.items()))
    value = render(asked.reached(result, name), "s")
    others = "".join(f"; {NAMES[other]} {times:.3g} times" for other, times in list(missed.items())[1:])
    target, at = render(asked.targets[name].seconds, "s"), asked.targets[name].at
    lower = _booting(asked, result) if name == "ttft_s" else ""
    hopeless = found is not None and found.rate is None and found.limit == name  # of requests alone too
    lower = "" if hopeless else lower or f" Lower with {_LOWER[name]}."
    return (
        f"{NAMES[name]} is {value} {at}, {ratio:.3g} times its target of {target}{others}; "
        f"{result.met[name]:.1%} of {'gaps' if name == 'itl_s' else 'requests'} meet it.{lower}"
    )


def _booting(asked: SimulateAsked, result: SimulationResult) -> str:
    """That requests waited for replicas that were starting, where the fleet grew."""
    rule = asked.fleet.pool.autoscale
    prefills = asked.fleet.prefill.replicas if asked.fleet.prefill is not None else 0
    most = round(max((value for _, value in result.series.get("replicas", [])), default=0.0)) - prefills
    if rule is None or most <= asked.fleet.pool.replicas:
        return ""
    return (
        f" Requests waited while replicas started: the fleet grew from {asked.fleet.pool.replicas} to {most}, and one "
        f"serves {render(rule.startup_s, 's')} after it is asked for; begin with more (--autoscale "
        f"{most}..{rule.most},…) or a shorter startup."
    )


def capacity_text(asked: SimulateAsked, found: FleetCapacity | None) -> str:
    """What would hold the asked rate, as it was found by running."""
    if found is None:
        return ""
    if found.rate is None:
        what = NAMES.get(found.limit)
        if not what or found.trial is None:
            return "By running: no rate that was tried holds; more chips per replica, another plan or a looser target."
        value = f"{asked.statistic(found.limit)} {render(asked.reached(found.trial.result, found.limit), 's')}"
        return (
            f"By running: {what} misses its target at any rate, since requests that are alone take {value}; "
            f"more chips per replica, another plan or a looser target."
        )
    slowed = ""
    if asked.question.trace and found.rate < _rate(asked):
        slowed = f" It holds the trace slowed down (--speed {asked.question.speed * found.rate / _rate(asked):.3g})."
    if found.confirmed is not None:
        does = ("would hold" if found.replicas else "might") + f" {_rate(asked):.3g}/s"
        return f"By running: {_flag(asked, found)} {does}{_waits(asked, found)}.{slowed}"
    if found.rate < _rate(asked):
        return f"By running: no number of replicas that was tried holds {_rate(asked):.3g}/s.{slowed}"
    return ""


def _rate(asked: SimulateAsked) -> float:
    return asked.traffic.rate or 0.0


def _flag(asked: SimulateAsked, found: FleetCapacity) -> str:
    """The replicas that would hold the rate, as flags."""
    pool = asked.fleet.pool
    if pool.autoscale is not None:
        least = min(pool.autoscale.least, found.replicas or 1)
        return f"--autoscale {least}..{found.replicas},target={pool.autoscale.target:g} with all of them up"
    apart = f" --prefill-replicas {found.prefills}" if found.prefills else ""
    return f"--replicas {found.replicas}{apart}"


def _waits(asked: SimulateAsked, found: FleetCapacity) -> str:
    assert found.confirmed is not None
    run: Any = found.confirmed.result
    names = dict.fromkeys(("ttft_s", "tpot_s", *asked.targets))
    each = (f"{asked.statistic(name)} {NAMES[name]} {render(asked.reached(run, name), 's')}" for name in names)
    return f" ({', '.join(each)})"
