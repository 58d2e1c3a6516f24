"""What would hold: the largest rate of a fleet and what to change for an asked rate, found by running them.

The same fleet gets the same requests at other rates (a trace at other speeds), without failures and with all replicas
that it may grow to. A rate is held if the backlog does not grow and the targets are met, if there are some.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.missed import missed_targets, worst_ratio
from dragonscale.commands.simulate.rate_search import TOLERANCE, largest_rate
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.simulation import (
    Fleet,
    Mixed,
    OpenLoop,
    Replay,
    SimulationOptions,
    SimulationResult,
    TrafficSource,
    simulate,
)
from dragonscale.simulation.backlog import Backlog, load_of, saturated_per_s

FEWEST, MOST = 3_000, 20_000
"""Requests of one run, at least and (unless more are under way at once) at most."""
TURNS = 8
"""Requests of one run over those that are under way at once: batches must turn over several times."""
BELOW = 0.96
"""What a fleet serves while requests wait is believed if so much of it holds."""
MOST_RUNS = 9
SMALLEST, ALONE, FEW = 1 / 200, 1 / 50, 300
"""Part of the asked rate at which requests are nearly alone, requests that are under way at once then at most, and how
many of them show what they take."""
SLOWEST = 1 / 20
"""Part of the asked rate that a search begins at, at least."""
HEADROOM = 0.85
"""Part of what replicas can serve that they are loaded with where no target says how long requests may wait."""
MOST_REPLICAS = 4
"""Larger fleets of one pool are run as one of this size with the same load on each replica."""
MORE_RUNS = 8
"""Runs that look for the fewest replicas, of both pools at once."""
HELPS = 1.1
"""A setting is tried with more replicas that is so much better than the one asked for."""
WHOLE_RUNS, WIDER = 3, 1.1
"""Runs of the whole command that a change prints, and the next size of a pool that was short in one over the last."""
GROWS, SHRINKS = 1.25, 0.9
"""The next size of a pool that is short, and of one that is not, over the last."""
SMALL_BUDGETS = 2048, 512
"""Tokens of an iteration with which those that decode wait little for prompts: what vLLM's guide to tuning names for
short gaps between tokens, and its first default, which had the shortest ones on an A100 (vllm-project/vllm#4580)."""
LARGE_BUDGET = 8192
"""Tokens of an iteration of one rank with which prompts of any length run near their full rate."""
FULL = 0.9
"""Above this share places, the token budget or the KV cache limit what replicas take."""


@dataclass(frozen=True)
class Trial:
    """One run: its rate, and whether it holds."""

    rate: float
    result: SimulationResult
    load: Backlog | None
    holds: bool
    missed: dict[str, float]
    worst: float = math.inf
    """The statistic nearest to its target or furthest above it, over the target; infinite where the queue grows."""

    @property
    def good(self) -> bool:
        return self.holds and not self.missed


@dataclass(frozen=True)
class FleetCapacity:
    """The largest rate that holds (None: none does), the run that showed it, what stops larger ones, and the replicas
    (those of the prefill pool apart) that hold the asked rate, with the flags that ask for them or for another setting
    of the same replicas, and their run."""

    rate: float | None
    trial: Trial | None
    limit: str
    replicas: int | None
    prefills: int
    confirmed: Trial | None
    runs: int
    requests: int
    change: dict[str, Any] = field(default_factory=dict)


class Trials:
    """Runs of the fleet at other rates and sizes, counted."""

    def __init__(self, asked: SimulateAsked, under_way: float, progress: Callable[[int, int], None] | None) -> None:
        self.asked, self.progress, self.runs = asked, progress, 0
        assert asked.traffic.rate is not None
        self.rate = asked.traffic.rate
        pool = asked.fleet.pool
        self.replicas = pool.autoscale.most if pool.autoscale is not None else pool.replicas
        self.prefills = asked.fleet.prefill.replicas if asked.fleet.prefill is not None else 0
        self.same = pool.autoscale is None and not asked.fleet.failures and asked.fleet.faults is None
        total = asked.traffic.source.requests
        self.each = under_way / self.replicas
        self.requests = int(max(min(max(total / 2, FEWEST), MOST), TURNS * under_way))

    def run(self, rate: float, requests: int = 0) -> Trial:
        """The same requests at a rate, so many of them (0: as usual), with nothing that fails or scales."""
        fleet = self.asked.fleet
        fleet = replace(
            fleet, pool=replace(fleet.pool, replicas=self.replicas, autoscale=None), failures=(), faults=None
        )
        return self.judge(fleet, rate, requests or self.requests)

    def sized(self, replicas: int, prefills: int) -> Trial:
        """The asked rate to so many replicas: of a fleet that grows, at its beginning."""
        fleet, rule = self.asked.fleet, self.asked.fleet.pool.autoscale
        plain = self.same and fleet.prefill is None and not fleet.others
        held = min(replicas, max(MOST_REPLICAS, self.replicas)) if plain else replicas
        rule = rule and replace(rule, least=replicas, most=max(rule.most, replicas))
        changed = replace(
            fleet,
            pool=replace(fleet.pool, replicas=held, autoscale=rule),
            prefill=fleet.prefill and replace(fleet.prefill, replicas=prefills),
            failures=tuple(one for one in fleet.failures if one.pool != "serve" or one.replica < replicas),
        )
        requests = self.asked.traffic.source.requests  # where replicas start or die, when they do is a part of the run
        requests = int(max(self.requests, TURNS * self.each * held)) if self.same else requests
        return self.judge(changed, self.rate * held / replicas, requests)

    def with_setting(self, change: dict[str, Any]) -> "Trials":
        """Runs of the same replicas with another setting."""
        changed = read_question(replace(_original(self.asked), **change))
        return Trials(changed, self.each * self.replicas, self.progress)

    def confirm(self, change: dict[str, Any]) -> Trial:
        """The command with a change, run exactly as it is printed."""
        asked = read_question(replace(_original(self.asked), max_rate=None, **change))
        return self._judge(asked.fleet, self.rate, asked.traffic.source, asked.options)

    def judge(self, fleet: Fleet, rate: float, requests: int) -> Trial:
        """A fleet run with the same requests at a rate, so many of them."""
        source = faster(self.asked.traffic.source, rate / self.rate, requests)
        return self._judge(fleet, rate, source, replace(self.asked.options, cooldown=0.0))

    def _judge(self, fleet: Fleet, rate: float, source: TrafficSource, options: SimulationOptions) -> Trial:
        result = simulate(fleet, source, replace(options, events=0, watch=0))
        self.runs += 1
        if self.progress is not None:
            self.progress(min(self.runs, MOST_RUNS), MOST_RUNS)
        load = load_of(result, fleet.pool.autoscale is not None)
        missed = missed_targets(result, self.asked.targets, self.asked.class_targets)
        holds = load is not None and not load.grows
        return Trial(rate, result, load, holds, missed, worst_ratio(self.asked, result) if holds else math.inf)


def faster(source: TrafficSource, factor: float, requests: int) -> TrafficSource:
    """The same requests so many times as fast, and so many of them."""
    if isinstance(source, Replay):
        return replace(source.first(requests), speed=source.speed * factor)
    if isinstance(source, Mixed):
        return source.faster(factor, requests)
    assert isinstance(source, OpenLoop)
    arrivals = source.arrivals
    return replace(source, arrivals=replace(arrivals, rate=arrivals.rate * factor), requests=requests)  # pyright: ignore


def find_capacity(
    asked: SimulateAsked, result: SimulationResult, load: Backlog, progress: Callable[[int, int], None] | None = None
) -> FleetCapacity:
    """The largest rate that this fleet holds, and what holds the asked one: the first change whose command holds when
    it is run as it is printed."""
    trials = Trials(asked, result.mean_running, progress)
    missed = missed_targets(result, asked.targets, asked.class_targets)
    failed = load.grows or bool(missed)
    best, above = _most(trials, result, load, failed)
    if best is None:
        limit = next(iter(above.missed if above is not None else missed), "queue")
        return FleetCapacity(None, above, limit, None, 0, None, trials.runs, trials.requests)
    limit = "queue" if above is None or not above.holds else next(iter(above.missed), "queue")
    short = short_pools(asked, result, load.grows, missed) if failed else None
    sizes, confirmed, change = _what_holds(trials, best, result, load, missed, short)
    pools = sizes or (None, 0)
    return FleetCapacity(best.rate, best, limit, *pools, confirmed, trials.runs, trials.requests, change)


Change = tuple[tuple[int, int] | None, Trial | None, dict[str, Any]]
"""Replicas of each pool, the run that shows that they hold, and the flags that ask for them."""
NOTHING: Change = None, None, {}


def _what_holds(
    trials: Trials,
    best: Trial,
    result: SimulationResult,
    load: Backlog,
    missed: dict[str, float],
    short: set[int] | None,
) -> Change:
    """What holds the asked rate: a setting of the same replicas, which costs nothing; a setting that helps, with more
    of them; or more alone."""
    tried: list[tuple[float, dict[str, Any], Trials, Trial]] = []
    for change in settings(trials.asked, result, missed) if short is not None else ():
        own = trials.with_setting(change)
        one = own.judge(own.asked.fleet, own.rate, own.requests)
        trials.runs += 1
        if one.good and (confirmed := trials.confirm(change)).good:
            return (trials.replicas, trials.prefills), confirmed, change
        tried.append((_gain(one, load, missed), change, own, one))
    for gain, change, own, one in sorted(tried, key=lambda row: -row[0])[:1]:
        most = _most(own, one.result, one.load, True)[0] if gain > HELPS and one.load is not None else None
        found = confirmed_sizes(own, change, *_fewest(own, most, short)) if most and most.rate > best.rate else NOTHING
        trials.runs += own.runs - 1
        if found[0] is not None:
            return found
    return confirmed_sizes(trials, {}, *_fewest(trials, best, short))


def _most(trials: Trials, result: SimulationResult, load: Backlog, failed: bool) -> tuple[Trial | None, Trial | None]:
    """The largest rate that holds, and a larger one that does not."""
    if not trials.asked.has_targets:
        return _most_served(trials, result, load)
    return _largest(trials, result, load, failed)


def _gain(one: Trial, load: Backlog, missed: dict[str, float]) -> float:
    """How much more a run with another setting serves where a queue grows, or how much nearer it is to the target that
    is missed most."""
    if load.grows:
        return one.load.served_per_s / max(load.served_per_s, 1e-9) if one.load is not None else 0.0
    name = next(iter(missed))
    return missed[name] / one.missed.get(name, 1.0)


def confirmed_sizes(
    trials: Trials, setting: dict[str, Any], sizes: tuple[int, int] | None, found: Trial | None
) -> Change:
    """Pools whose command holds when it is run whole: those that were found by shorter runs, or a little larger."""
    if found is None or sizes is None:  # nothing was run: the fleet as it was asked for, or none
        return sizes, None, size_flags(trials.asked, *sizes) if sizes else {}
    for _ in range(WHOLE_RUNS):
        change = setting | size_flags(trials.asked, *sizes)
        one = trials.confirm(change)
        if one.good:
            return sizes, one, change
        short = short_pools(trials.asked, one.result, not one.holds, one.missed)
        replicas, prefills = (
            max(size + 1, math.ceil(WIDER * size)) if place in short else size for place, size in enumerate(sizes)
        )
        sizes = replicas, prefills
    return NOTHING


def find_by_deadline(asked: SimulateAsked, result: SimulationResult) -> FleetCapacity | None:
    """The fewest replicas that end everything by the deadline, by running them: no more than a run says they need."""
    replicas, count, runs = asked.fleet.pool.replicas, asked.traffic.source.requests, 0
    seconds, best = result.seconds, None
    if not result.outcome.finished:
        return None
    for _ in range(MORE_RUNS):
        wanted = max(math.ceil(replicas * seconds / asked.deadline_s - 1e-9), 1)
        if seconds > asked.deadline_s:
            wanted = max(wanted, replicas + 1)
        if (best is not None and wanted >= best[0]) or wanted == replicas:
            break
        replicas = wanted
        fleet = replace(asked.fleet, pool=replace(asked.fleet.pool, replicas=replicas, autoscale=None))
        found = simulate(fleet, asked.traffic.source, replace(asked.options, events=0, watch=0))
        runs, seconds = runs + 1, found.seconds
        if seconds <= asked.deadline_s:
            best = replicas, Trial(0.0, found, None, True, {})
    if best is None:
        return None
    return FleetCapacity(None, None, "deadline", best[0], 0, best[1], runs, count, {"replicas": best[0]})


def _original(asked: SimulateAsked) -> SimulateQuestion:
    return asked.original or asked.question


def size_flags(asked: SimulateAsked, replicas: int, prefills: int) -> dict[str, Any]:
    """The flags that ask for so many replicas; where the fleet grows, for so many at its beginning."""
    rule = asked.fleet.pool.autoscale
    if rule is None:
        return {"replicas": replicas} | ({"prefill_replicas": prefills} if prefills else {})
    _, *rest = asked.question.autoscale.split(",")
    return {"autoscale": ",".join([f"{replicas}..{max(rule.most, replicas)}", *rest])}


def settings(asked: SimulateAsked, result: SimulationResult, missed: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Flags that may help the same replicas, by what the run shows: more places where they are taken and the cache has
    room, another router where requests take turns, a token budget that prompts fill (or, for tokens that wait for
    prompts, a smaller one)."""
    pool, limits = asked.fleet.pool, asked.deployment.engine.scheduling
    front = result.use["serve" if asked.fleet.prefill is None else "prefill"]
    if result.use["serve"].places_share > FULL and result.kv_occupancy < FULL / 2:
        yield from ({"max_seqs": times * limits.max_sequences} for times in (2, 4))
    if pool.router == "round_robin" and pool.replicas > 1:
        yield {"router": "least_loaded"}
    if limits.scheduler != "chunked" or asked.fleet.prefill is not None:
        return
    if "itl_s" in missed:
        yield from ({"token_budget": tokens} for tokens in SMALL_BUDGETS if tokens < limits.max_tokens)
    elif front.budget_share > FULL and limits.max_tokens < LARGE_BUDGET:
        yield {"token_budget": LARGE_BUDGET}


def prefill_queue(asked: SimulateAsked, result: SimulationResult) -> float:
    """The part of the time that requests queue before their prefill; the rest is for a place to decode in. (That a
    prefill pool is always busy says little: iterations take as many prompts as there are.)"""
    before = result.latency["queue_s"].mean.value - asked.fleet.overhead_s
    return before * result.outcome.finished / max(result.mean_waiting * result.seconds, 1e-9)


def short_pools(asked: SimulateAsked, result: SimulationResult, grows: bool, missed: dict[str, float]) -> set[int]:
    """Which of the two pools (0 decodes, 1 prefills) has too few replicas: the first token comes from the prefill pool,
    and a queue that grows is its own where most of it is before a prefill."""
    if asked.fleet.prefill is None:
        return {0} if grows or missed else set()
    saturated = prefill_queue(asked, result) > 0.5
    late = result.latency["ttft_s"].mean.value > result.latency["e2e_s"].mean.value / 2
    short = {1 if saturated else 0} if grows else set()
    return short | {int(name == "ttft_s" or (name == "e2e_s" and late)) for name in missed}


def _most_served(trials: Trials, result: SimulationResult, load: Backlog) -> tuple[Trial | None, Trial | None]:
    """What the fleet serves while requests wait, and a run just below it that holds."""
    rate = saturated_per_s(result) if load.grows and trials.same else None
    high: Trial | None = None
    asked = trials.rate if load.grows else 2 * trials.rate
    while rate is None and trials.runs < MOST_RUNS - 3:
        high = trials.run(asked)
        rate = saturated_per_s(high.result) if not high.holds else None
        asked *= 2
    while rate is not None and trials.runs < MOST_RUNS - 2:
        one = trials.run(BELOW * rate)
        if one.good:
            return replace(one, rate=rate), high
        rate, high = rate * TOLERANCE**-2, one
    return None, high


def _largest(
    trials: Trials, result: SimulationResult, load: Backlog, failed: bool
) -> tuple[Trial | None, Trial | None]:
    """The run at the largest rate that meets the targets, and one at a larger rate that does not."""
    asked, times = trials.rate, result.latency
    service = max(times["e2e_s"].mean.value - times["queue_s"].mean.value, 1e-9)
    lone = trials.run(min(SMALLEST * asked, ALONE / service), FEW)
    if lone.missed:  # what requests miss that are nearly alone, they miss at any rate
        return None, lone
    top = asked if failed and trials.same else math.inf
    # a short run may have served nothing within its window, and a rate of zero is none
    part = max(load.served_per_s / load.arrived_per_s, SLOWEST)
    rate = asked * (2.0 if not failed else 0.6 * part if trials.same else 1.0)
    low, high = largest_rate(trials.run, rate, MOST_RUNS - 2 - trials.runs, top)
    return low or lone, high


def _fewest(trials: Trials, best: Trial, short: set[int] | None) -> tuple[tuple[int, int] | None, Trial | None]:
    """The fewest replicas of each pool that hold the asked rate, and their run. Pools are searched at once: each run
    tells of both whether they are short. `short` are those that were in the run as asked; None if it holds."""
    targets = trials.asked.has_targets
    load = trials.rate / best.rate / (1.0 if targets else HEADROOM)  # over what each replica is good for
    have = [max(trials.asked.fleet.pool.replicas, 1), trials.prefills]  # one that scales to zero begins with none
    enough = [max(math.ceil(count * load - 1e-9), 1) for count in (trials.replicas, trials.prefills)]
    low, high = [0, 0], [math.inf, math.inf if trials.prefills else 0]
    if short is None:
        high, sizes = list(map(float, have)), [min(pair) for pair in zip(have, enough, strict=True)]
    else:
        low = [have[place] if place in short else 0 for place in (0, 1)]
        sizes = [max(enough[place], have[place] + 1) if place in short else have[place] for place in (0, 1)]
    sizes[1] = sizes[1] if trials.prefills else 0
    found: tuple[tuple[int, int] | None, Trial | None] = ((have[0], have[1]) if short is None else None, None)
    for _ in range(MORE_RUNS):
        if short is None and sizes == have:
            break
        one = trials.sized(sizes[0], sizes[1])
        lacks = short_pools(trials.asked, one.result, not one.holds, one.missed)
        if one.good:
            found = (sizes[0], sizes[1]), one
        for place in (0, 1):
            if place in lacks:
                low[place] = max(low[place], sizes[place])
            elif 1 not in lacks:  # a prefill pool that is short keeps requests from the other
                high[place] = min(high[place], sizes[place])
        sizes, before = [_between(low[place], high[place], sizes[place], place in lacks) for place in (0, 1)], sizes
        if sizes == before or (one.good and not targets):
            break
    return found


def _between(low: int, high: float, size: int, short: bool) -> int:
    """The next size of a pool to try, above those that are short and below the fewest that were not."""
    if math.isinf(high):
        return max(low + 1, math.ceil(size * GROWS)) if short else size
    return int(high) if high - low <= 1 else max((low + int(high)) // 2, math.ceil(SHRINKS * high) - 1)
