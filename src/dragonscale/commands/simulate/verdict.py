"""What holds a simulated fleet back and what to change, in sentences about the run itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.simulate_question import SimulateAsked
from dragonscale.commands.simulate.simulate_records import NAMES
from dragonscale.physics.units import render
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation import SimulationResult
from dragonscale.simulation.backlog import Backlog
from dragonscale.simulation.fleet_sizing.capacity import FleetCapacity, Trial, prefill_queue
from dragonscale.simulation.fleet_sizing.fleet_job import FleetChange, FleetJob
from dragonscale.simulation.fleet_sizing.missed_targets import class_ratio
from dragonscale.simulation.fleet_sizing.verdict import Bottleneck, FleetState, grown_to, verdict_of
from dragonscale.simulation.loop import BEYOND_SERVED_LENGTH
from dragonscale.simulation.result import ClassResult

# What bounds a fleet that has room for more: there is nothing to change about it.
TRAFFIC = "the traffic"

_LOWER = {
    "ttft_s": "more --replicas, a prefill pool (--prefill-on) or a smaller --token-budget",
    "tpot_s": "more --replicas (smaller batches), more chips per replica or a prefill pool (--prefill-on)",
    "itl_s": "a smaller --token-budget, more chips per replica or a prefill pool (--prefill-on)",
    "e2e_s": "more --replicas (smaller batches) or more chips per replica",
}
_LOWER_DECODING = "more --replicas (smaller batches) or more chips for each"
_LOWER_PREFILL = "more --prefill-replicas or more chips for each"

# What would help requests that are held up, by what holds them up.
_HELP = {
    Bottleneck.STARTING_REPLICAS: "More replicas at the beginning or a shorter startup",
    Bottleneck.KV_CACHE: "A narrower --plan kv=…, more chips per replica or more --replicas",
    Bottleneck.PREFILL_POOL: "More --prefill-replicas",
    Bottleneck.PLACES: "A larger --max-seqs or more --replicas",
    Bottleneck.DECODE_POOL: "More --replicas",
    Bottleneck.PREFILL: "More --replicas or a prefill pool (--prefill-on)",
    Bottleneck.ADAPTERS: "More slots of --adapters",
    Bottleneck.BURSTS: "Another --router or more --replicas",
    Bottleneck.REPLICAS: "More --replicas",
}


@dataclass(frozen=True)
class VerdictText:
    """What bounds the fleet, and what to change about it; `remedy` is what of that was found to hold, where anything
    was, else the evidence."""

    bound_by: str
    advice: str
    remedy: str = ""


def verdict_text(
    asked: SimulateAsked,
    result: SimulationResult,
    load: Backlog | None,
    missed: Mapping[str, float],
    capacity: FleetCapacity | None,
) -> VerdictText:
    """The verdict on a run in words."""
    verdict = verdict_of(asked.job, result, load, missed, capacity)
    bottleneck = verdict.bottleneck
    if verdict.state is FleetState.EMPTY or bottleneck is None:
        if result.outcome.arrived:
            refusals = ", ".join(result.outcome.refused)
            return VerdictText("refusals", f"Every request was refused: {refusals}.")
        return VerdictText("nothing", "No request came, so nothing can be said; give --requests and a --rate.")
    evidence = _evidence(asked.job, result, capacity, bottleneck)
    bound_by, sentences = bottleneck.value, [evidence]
    if verdict.state is FleetState.BATCH:
        if result.outcome.refused:
            sentences.insert(0, f"{sum(result.outcome.refused.values()):,} requests were refused.")
    elif verdict.state is FleetState.OVERLOADED:
        assert load is not None
        sentences.insert(0, _overloaded(load, result))
    elif verdict.state is FleetState.LATE:
        name = next(iter(missed))
        bound_by = NAMES[name]
        sentences.insert(0, _missing(asked.job, result, missed))
        # a change that was found to hold, or that no rate holds, says more
        if capacity is None or (capacity.change.is_empty and capacity.rate is not None):
            sentences.append(f"Lower with {_lower(asked.job, name)}.")
    elif verdict.state is FleetState.FULL:
        if verdict.queues:
            sentences.insert(0, f"{result.mean_waiting:.3g} requests queue on average.")
        sentences.append(f"{_HELP[bottleneck]} would help.")
    else:
        bound_by, sentences = TRAFFIC, []
        if load is not None:
            sentences.append(f"The fleet keeps up with {asked.job.traffic.rate or 0.0:.3g} requests/s.")
    sentences.append(capacity_text(asked, capacity))
    sentences = list(filter(None, sentences))
    return VerdictText(bound_by, " ".join(sentences), sentences[-1] if sentences else "")


def _evidence(job: FleetJob, result: SimulationResult, capacity: FleetCapacity | None, bottleneck: Bottleneck) -> str:
    """What of the run shows what holds requests up."""
    outcome, fleet = result.outcome, job.fleet
    if bottleneck is Bottleneck.STARTING_REPLICAS:
        assert fleet.pool.autoscale is not None
        return (
            f"Requests waited while replicas started: the fleet grew from {fleet.pool.replicas} to "
            f"{grown_to(job, result, capacity)}, and one serves {render(fleet.pool.autoscale.startup_s, 's')} after it "
            "is asked for."
        )
    if bottleneck is Bottleneck.KV_CACHE:
        return f"The KV cache is {result.kv_occupancy:.0%} full on average, with {outcome.preempted:,} preemptions."
    prefilling = result.use[job.prefilling_pool]
    places = fleet.pool.scheduler.sequences
    places_taken = f"{result.use['serve'].places_share * places:.3g} of the {places:,} places of a replica are taken"
    if bottleneck is Bottleneck.PLACES:
        return f"{places_taken}."
    if fleet.prefill is not None:
        return f"{min(prefill_queue(job, result), 1):.0%} of the queueing is for a prefill; {places_taken}."
    prompts = f"Iterations with prompts take {prefilling.prompt_share:.0%} of a replica's busy time"
    if bottleneck is Bottleneck.PREFILL:
        return f"{prompts}, and prompts fill {prefilling.budget_share:.0%} of the token budget in them."
    if bottleneck is Bottleneck.ADAPTERS:
        loads = f"{result.adapter_loads:,} loads for {outcome.finished:,} requests"
        return (
            f"{fleet.pool.adapters} adapters are in memory at a time ({loads}), and requests wait until one of them is "
            "out of use."
        )
    if bottleneck is Bottleneck.BURSTS:
        return f"{prompts} and {places_taken}: requests come to a replica together."
    return f"{prompts} and {places_taken}."


def _lower(job: FleetJob, name: str) -> str:
    """What lowers a latency."""
    if job.fleet.prefill is None:
        return _LOWER[name]
    if name == "ttft_s":  # of two pools the one that prefills gives the first token
        return _LOWER_PREFILL
    return _LOWER_DECODING


def _overloaded(load: Backlog, result: SimulationResult) -> str:
    turned_away = result.outcome.refused.get("queue full", 0)
    if turned_away:
        return f"Overloaded: {turned_away:,} were turned away."
    return f"Overloaded: {load.waiting:,} queue when the last comes."


def _missing(job: FleetJob, result: SimulationResult, missed: Mapping[str, float]) -> str:
    """The target that is missed most, and by how much."""
    name, ratio = next(iter(missed.items()))
    if name not in job.targets:
        return _class_missing(job, result, name)
    target = job.targets[name]
    # the other targets that are missed, then the requests that missed all of them
    others = "".join(f"; {NAMES[other]} {times:.3g} times" for other, times in list(missed.items())[1:])
    refused = ", ".join(f"{count:,} were refused ({why})" for why, count in result.outcome.refused.items())
    counted = "gaps" if name == "itl_s" else "requests"
    return (
        f"{NAMES[name]} is {render(job.reached(result, name), 's')} {target.at}, {ratio:.3g} times its target of "
        f"{render(target.seconds, 's')}{others}; {result.met[name]:.1%} of {counted} meet it"
        f"{'; ' + refused if refused else ''}."
    )


@dataclass(frozen=True)
class _LateClass:
    """A class of traffic that misses a target, with its statistic over the target."""

    name: str
    target: LatencyTarget
    result: ClassResult
    ratio: float

    @property
    def seconds(self) -> float:
        """The statistic."""
        return self.ratio * self.target.seconds


def _latest_class(job: FleetJob, result: SimulationResult, name: str) -> _LateClass:
    """The class that misses a target of this latency most."""
    late: list[_LateClass] = []
    for service, class_result in zip(job.traffic.classes, result.classes, strict=True):
        target = service.targets.get(name)
        if target is not None:
            ratio = class_ratio(class_result, name, target)
            late.append(_LateClass(service.name, target, class_result, ratio))
    return max(late, key=lambda late_class: late_class.ratio)


def _class_missing(job: FleetJob, result: SimulationResult, name: str) -> str:
    """The class that misses a target most, and by how much."""
    late = _latest_class(job, result, name)
    return (
        f"{NAMES[name]} of {late.name} is {render(late.seconds, 's')} {late.target.at}, {late.ratio:.3g} times its "
        f"target of {render(late.target.seconds, 's')}; {late.result.met[name]:.1%} of its requests meet it."
    )


def capacity_text(asked: SimulateAsked, capacity: FleetCapacity | None) -> str:
    """What would hold the asked rate, as it was found by running."""
    if capacity is None:
        return ""
    job = asked.job
    confirmed = capacity.confirmed
    if capacity.limit == "deadline" and confirmed is not None:
        return f"By running: {_flags(asked, capacity)} would end in {render(confirmed.result.seconds, 's')}."
    if capacity.rate is None:
        return _no_rate_text(job, capacity)
    rate = job.traffic.rate or 0.0
    slowed = ""
    if asked.question.trace and capacity.rate < rate:
        slowed = f" It holds the trace slowed down (--speed {asked.question.speed * capacity.rate / rate:.3g})."
    if confirmed is not None:
        where = ""
        if job.others and capacity.change.replicas is not None:
            where = f" on {written(asked.question.on)}"
        flags = _flags(asked, capacity)
        return f"By running: {flags}{where} would hold {rate:.3g}/s ({_latencies(job, confirmed)}).{slowed}"
    if capacity.rate < rate:
        return f"By running: no number of replicas that was tried holds {rate:.3g}/s.{slowed}"
    return ""


def _no_rate_text(job: FleetJob, capacity: FleetCapacity) -> str:
    """Why no rate holds."""
    latency, trial = NAMES.get(capacity.limit), capacity.trial
    if latency is None or trial is None:
        return "By running: no rate that was tried holds; more chips per replica, another plan or a looser target."
    if trial.missed.get(capacity.limit, 0.0) <= 1:  # but for requests that are refused the target is met
        if BEYOND_SERVED_LENGTH in trial.result.outcome.refused:
            return "By running: requests are refused at any rate; shorter ones or a higher limit in the launch line."
        return "By running: requests are refused at any rate; shorter ones, another model or a larger cache."
    if capacity.limit in job.targets:
        statistic, seconds, whose = job.statistic(capacity.limit), job.reached(trial.result, capacity.limit), ""
    else:
        late = _latest_class(job, trial.result, capacity.limit)
        statistic, seconds, whose = late.target.statistic, late.seconds, f" of {late.name}"
    return (
        f"By running: {latency}{whose} misses its target at any rate, since requests that are alone take {statistic} "
        f"{render(seconds, 's')}; more chips per replica, another plan or a looser target."
    )


def change_flags(question: SimulateQuestion, change: FleetChange) -> dict[str, Any]:
    """The flags that ask for a change, by the names of their fields."""
    names = ("max_seqs", "router", "token_budget", "replicas", "prefill_replicas")
    flags = {name: getattr(change, name) for name in names if getattr(change, name) is not None}
    if change.autoscale is not None:
        _, *rest = question.autoscale.split(",")
        flags["autoscale"] = ",".join([f"{change.autoscale.least}..{change.autoscale.most}", *rest])
    return flags


def _flags(asked: SimulateAsked, capacity: FleetCapacity) -> str:
    """What would hold the rate, as flags."""
    flags = change_flags(asked.question, capacity.change)
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in flags.items())


def _latencies(job: FleetJob, trial: Trial) -> str:
    """The latencies of a run, each at the statistic of its target."""
    parts: list[str] = []
    for name in dict.fromkeys(("ttft_s", "tpot_s", *job.targets)):
        seconds = job.reached(trial.result, name)
        if seconds:
            parts.append(f"{job.statistic(name)} {NAMES[name]} {render(seconds, 's')}")
    return ", ".join(parts)
