"""What would hold: the largest rate of a fleet and the replicas for an asked rate, found by running them.

The same fleet gets the same requests at other rates (a trace at other speeds), without failures and with all replicas
that it may grow to. A rate is held if the backlog does not grow and the targets are met, if there are some.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from dragonscale.app.simulate.simulate_question import SimulateAsked
from dragonscale.serving.targets import LatencyTarget
from dragonscale.simulation import Fleet, OpenLoop, Replay, SimulationResult, TrafficSource, simulate
from dragonscale.simulation.backlog import Backlog, load_of, saturated_per_s

FEWEST, MOST = 3_000, 20_000
"""Requests of one run, at least and (unless more are under way at once) at most."""
TURNS = 8
"""Requests of one run over those that are under way at once: batches must turn over several times."""
TOLERANCE = 1.03
"""The largest rate that meets the targets is known when one so much larger does not."""
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
"""Larger fleets are run as one of this size with the same load on each replica."""


@dataclass(frozen=True)
class Trial:
    """One run: its rate, and whether it holds."""

    rate: float
    result: SimulationResult
    load: Backlog | None
    holds: bool
    missed: dict[str, float]

    @property
    def good(self) -> bool:
        return self.holds and not self.missed


@dataclass(frozen=True)
class FleetCapacity:
    """The largest rate that holds (None: none does), the run that showed it, what stops larger ones, and the replicas
    (those of the prefill pool apart) that hold the asked rate, with their run."""

    rate: float | None
    trial: Trial | None
    limit: str
    replicas: int | None
    prefills: int
    confirmed: Trial | None
    runs: int
    requests: int


def missed_targets(result: SimulationResult, targets: dict[str, LatencyTarget]) -> dict[str, float]:
    """Latencies whose mean is above its target, or whose target fewer requests meet than its percentile asks for, with
    that statistic over the target; the worst first. Requests are counted: percentiles are right to half a percent only,
    and many may lie that near to a target."""
    if not result.latency["e2e_s"].count:
        return {}
    ratios: dict[str, float] = {}
    for name, (seconds, statistic) in targets.items():
        value, share = getattr(result.latency[name], statistic).value, targets[name].share
        if value > seconds if share is None else result.met[name] < share:
            ratios[name] = max(value / seconds, 1.0)
    return dict(sorted(ratios.items(), key=lambda item: -item[1]))


class Trials:
    """Runs of the fleet at other rates and sizes, counted."""

    def __init__(self, asked: SimulateAsked, under_way: float, progress: Callable[[int, int], None] | None) -> None:
        self.asked, self.progress, self.runs = asked, progress, 0
        assert asked.traffic.rate is not None
        self.rate = asked.traffic.rate
        pool = asked.fleet.pool
        self.replicas = pool.autoscale.most if pool.autoscale is not None else pool.replicas
        self.same = pool.autoscale is None and not asked.fleet.failures
        total = asked.traffic.source.requests
        self.each = under_way / self.replicas
        self.requests = int(max(min(max(total / 2, FEWEST), MOST), TURNS * under_way))

    def run(self, rate: float, replicas: int = 0, requests: int = 0) -> Trial:
        """The same requests at a rate, to so many replicas and so many of them (0: as many as there are, as usual)."""
        asked, size = self.asked, replicas or self.replicas
        held = min(size, max(MOST_REPLICAS, self.replicas))  # a part of a large fleet, with its part of the rate
        requests = requests or int(max(self.requests, TURNS * self.each * held))
        source = faster(asked.traffic.source, rate * held / size / self.rate, requests)
        options = replace(asked.options, cooldown=0.0, events=0, watch=0)
        result = simulate(sized(asked.fleet, held, self.replicas), source, options)
        self.runs += 1
        if self.progress is not None:
            self.progress(self.runs, MOST_RUNS)
        load = load_of(result)
        missed = missed_targets(result, asked.targets)
        return Trial(rate, result, load, load is not None and not load.grows, missed)


def sized(fleet: Fleet, replicas: int, of: int) -> Fleet:
    """The fleet with other numbers of replicas, the prefill pool in proportion, and nothing that fails or scales."""
    prefill = fleet.prefill and replace(fleet.prefill, replicas=math.ceil(fleet.prefill.replicas * replicas / of))
    return replace(fleet, pool=replace(fleet.pool, replicas=replicas, autoscale=None), prefill=prefill, failures=())


def faster(source: TrafficSource, factor: float, requests: int) -> TrafficSource:
    """The same requests so many times as fast, and so many of them."""
    if isinstance(source, Replay):
        return replace(source.first(requests), speed=source.speed * factor)
    assert isinstance(source, OpenLoop)
    arrivals = source.arrivals
    return replace(source, arrivals=replace(arrivals, rate=arrivals.rate * factor), requests=requests)  # pyright: ignore


def find_capacity(
    asked: SimulateAsked, result: SimulationResult, load: Backlog, progress: Callable[[int, int], None] | None = None
) -> FleetCapacity:
    """The largest rate that this fleet holds, and the replicas that hold the asked one."""
    trials = Trials(asked, result.mean_running, progress)
    missed = missed_targets(result, asked.targets)
    failed = load.grows or bool(missed)
    best, above = _most_served(trials, result, load) if not asked.targets else _largest(trials, result, load, failed)
    if best is None:
        limit = next(iter(above.missed if above is not None else missed), "queue")
        return FleetCapacity(None, above, limit, None, 0, None, trials.runs, trials.requests)
    limit = "queue" if above is None or not above.holds else next(iter(above.missed), "queue")
    replicas, confirmed = _replicas(trials, best) if failed else _fewer(trials, best)
    fleet = sized(asked.fleet, replicas or 1, trials.replicas)
    prefills = fleet.prefill.replicas if fleet.prefill is not None else 0
    return FleetCapacity(best.rate, best, limit, replicas, prefills, confirmed, trials.runs, trials.requests)


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
    asked = trials.rate
    low: Trial | None = None
    high: Trial | None = None
    times = result.latency
    service = max(times["e2e_s"].mean.value - times["queue_s"].mean.value, 1e-9)
    lone = trials.run(min(SMALLEST * asked, ALONE / service), requests=FEW)
    if lone.missed:  # what requests miss that are nearly alone, they miss at any rate
        return None, lone
    top = asked if failed and trials.same else math.inf
    # a short run may have served nothing within its window, and a rate of zero is none
    part = max(load.served_per_s / load.arrived_per_s, SLOWEST)
    rate = asked * (2.0 if not failed else 0.6 * part if trials.same else 1.0)
    while trials.runs < MOST_RUNS - 2:
        one = trials.run(rate)
        if one.good:
            low = one
        else:
            high, top = one, rate
        if low is not None and top / low.rate <= TOLERANCE:
            break
        rate = top / 3 if low is None else 2 * low.rate if math.isinf(top) else math.sqrt(low.rate * top)
    return low or lone, high


def _fewer(trials: Trials, best: Trial) -> tuple[int, Trial | None]:
    """The fewest replicas that hold what all of them hold, and their run; None where they are all needed."""
    each = best.rate / trials.replicas * (1.0 if trials.asked.targets else HEADROOM)
    count, found = max(math.ceil(trials.rate / each - 1e-9), 1), None
    while count < trials.replicas and trials.runs < MOST_RUNS:
        one = trials.run(trials.rate, count)
        if one.good:
            found = count, one
            break
        count += 1
    if found is not None and trials.asked.targets and count > 1 and trials.runs < MOST_RUNS:
        one = trials.run(trials.rate, count - 1)
        found = (count - 1, one) if one.good else found
    return found or (trials.replicas, None)


def _replicas(trials: Trials, best: Trial) -> tuple[int | None, Trial | None]:
    """The fewest replicas that hold the asked rate, and their run."""
    each = best.rate / trials.replicas * (1.0 if trials.asked.targets else HEADROOM)
    least = trials.replicas + 1 if trials.same else 1
    count = max(math.ceil(trials.rate / each - 1e-9), least)
    one = trials.run(trials.rate, count)
    if one.good and trials.asked.targets and count > least and trials.runs < MOST_RUNS:
        fewer = trials.run(trials.rate, count - 1)
        return (count - 1, fewer) if fewer.good else (count, one)
    while not one.good and trials.runs < MOST_RUNS:
        count = math.ceil(count * 1.1)
        one = trials.run(trials.rate, count)
    return (count, one) if one.good else (None, None)
