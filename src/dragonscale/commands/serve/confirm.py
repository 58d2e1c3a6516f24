"""What is recommended, confirmed by running it: the headline of an answer meets its targets in a short simulation of
what its next command asks. Percentiles are judged by nothing else.

Means of the steady state say where to look. Where a run misses a target, its ratio to the mean says which batch would
meet it, and that one is run; of fleets at a rate, more replicas are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as changed

from dragonscale.commands.serve.bands import add_bands, kind_of
from dragonscale.commands.serve.config import config_report, violation
from dragonscale.commands.serve.recommended import short_question
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, SimulatedRun, config_text
from dragonscale.commands.simulate.ask_simulate import fleet_chips, latency_of
from dragonscale.commands.simulate.missed import missed_targets, worst_ratio
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.commands.simulate.simulate_records import Latency
from dragonscale.serving.advice.search import at_batches
from dragonscale.serving.space.disaggregation import PooledConfig, as_config
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import worth
from dragonscale.simulation import SimulationResult, simulate
from dragonscale.simulation.backlog import load_of

MARGIN, NEARLY = 0.99, 0.995
"""Of a target, what a run has to stay within: means of so short a run are known to 1%; and what one that misses it is
above: percentiles are known to half a percent."""
APART = 0.05
"""How far a run may be from what is expected; what is further is shown as it was simulated."""
TRIES, FINALISTS = 5, 3
"""Runs of one plan at most, and plans that are run where one of them holds."""
NEAR = 0.92
"""Of the batch or the tokens that are looked for, what is near enough not to run another."""
LOADS = (0.9, 0.8, 0.7)
"""Parts of the rate that pools are sized for that they are run at until they hold."""
MOST_WORK, MORE_WORK, DRAFTED = 12_000, 5, 80
"""Requests of a run at most, about a second, and how many times as many where percentiles are to be judged; where
tokens are drafted so many of them are as much work as a request, since every step is another."""
GRID = 32
"""Batches that are looked at for one that meets the targets."""
CLOSE_CALL, SEEDS = 0.2, (1, 2)
"""A result this near to a target is a matter of chance: it is run with these random numbers too; all have to meet."""
LONGER = 2
"""Times as long are these runs of sessions, of which there may be too many for a while."""
LIGHT = 8
"""Times the replicas at which requests are nearly alone: what they miss there they miss in any fleet."""


@dataclass(frozen=True)
class Confirmed:
    """A configuration that was run, the replicas that share a rate, the run, and whether it holds: meets the targets
    with a margin; and the smallest batch that was run and did not."""

    config: Config
    replicas: int | None
    run: SimulatedRun
    holds: bool
    missed: Config | None = None
    worst: float = 0.0
    """The latency nearest to its target or furthest above it, over the target; infinite where the queue grows."""

    def rank(self, asked: ServeAsked) -> tuple[float, ...]:
        """What runs are ranked by, the least first."""
        *first, cost, last = worth(self.config, asked.ask, self.replicas)
        return not self.holds, *first, cost * (self.lost if asked.ask.rate is None else 1), last

    @property
    def lost(self) -> float:
        """How many times as many tokens were expected as the run made, where that is far."""
        more = self.config.tokens_per_chip / max(self.run.output_tokens_per_s_per_chip, 1e-9)
        return more if more > 1 + APART else 1.0

    def as_means(self, asked: ServeAsked) -> ServeAsked:
        """What was asked for as means, if requests of other batches were as far from theirs as those of this run (at a
        rate, which does not fill batches: from its own)."""
        means, limits = asked.ask.times(self.config.state.ttft, self.config.state.tpot), dict[str, Any]()
        late = reached(asked, self.run)
        for name, (mean, limit) in means.items():
            own = mean if asked.ask.rate is None else self.run.latency[f"{name}_s"].mean
            limits[name] = MARGIN * limit * own / late.get(name, own)
        if self.missed is not None and asked.ask.rate is None:
            times = asked.ask.times(self.missed.state.ttft, self.missed.state.tpot)
            own = {name: mean for name, (mean, _) in times.items() if name in late}
            short = {name: mean for name, mean in own.items() if mean > NEAR * limits[name]} or own
            limits |= {name: min(limits[name], MARGIN * mean) for name, mean in short.items()}
        return replace(asked, ask=replace(asked.ask, **limits))


def run(asked: ServeAsked, config: Config, replicas: int | None = None, *, seed: int = 0, longer: int = 1) -> Confirmed:
    """A short run of a configuration, so many times as long."""
    row = config_report(asked, config)
    row.replicas = replicas or row.replicas
    question = short_question(asked, row)
    question = replace(question, seed=seed, requests=str(longer * int(question.requests)))
    read = read_question(question)
    result = simulate(read.fleet, read.traffic.source, read.options)
    backlog = None if read.traffic.rate is None else load_of(result)
    grows = backlog is not None and backlog.grows
    missed = missed_targets(result, read.targets, read.class_targets)
    meets = not missed and not grows
    worst = math.inf if grows else _worst(read, result, missed)
    found = simulated_run(read, result, meets)
    holds = meets and worst <= MARGIN
    return Confirmed(replace(config, meets=meets), row.replicas, found, holds, worst=worst)


def _worst(read: SimulateAsked, result: SimulationResult, missed: dict[str, float]) -> float:
    """The latency nearest to its target or furthest above it, over the target: of all traffic and of each class. At
    least 1 where a target is missed, which is judged by counting requests; 0 without targets."""
    if not read.has_targets:
        return 0.0
    return max([worst_ratio(read, result), *missed.values()])


def simulated_run(read: SimulateAsked, result: SimulationResult, meets: bool) -> SimulatedRun:
    """A run as an answer tells it."""
    several = read.fleet.pool.replicas > 1 or read.fleet.prefill is not None
    chips = fleet_chips(read, [pool.replicas for _, _, pool in read.pools])
    return SimulatedRun(
        replicas=read.fleet.pool.replicas,
        requests=result.outcome.arrived,
        clients=read.question.clients,
        rate_per_s=read.traffic.rate,
        latency={name: latency_of(summary) for name, summary in result.latency.items()},
        output_tokens_per_s_per_chip=result.throughput.output_tokens_per_s / chips,
        meets_slo=meets,
        router=read.fleet.pool.router if several else "",
        cached=result.cache_hit_rate,
    )


def again(asked: ServeAsked, fleet: Confirmed) -> Confirmed:
    """A run that meets a percentile by little, beside others with other random numbers: it meets it where all do. Else
    the run that missed."""
    by_share = any(goal.share for goal in asked.goals.values())
    if not fleet.config.meets or fleet.worst < 1 - CLOSE_CALL or not by_share:
        return fleet
    runs = [fleet]
    for seed in SEEDS:
        longer = LONGER if asked.session_calls else 1
        other = run(asked, fleet.config, fleet.replicas, seed=seed, longer=longer)
        if not other.config.meets:
            return replace(other, holds=False)
        runs.append(other)
    mean = _mean([each.run for each in runs])
    return replace(fleet, run=mean, worst=max(each.worst for each in runs))


def _mean(runs: Sequence[SimulatedRun]) -> SimulatedRun:
    """Runs that differ by chance alone as one, with the means of their latencies."""
    count, first = len(runs), runs[0]
    latency = {name: _mean_latency([one.latency[name] for one in runs]) for name in first.latency}
    tokens = sum(one.output_tokens_per_s_per_chip for one in runs) / count
    cached = sum(one.cached for one in runs) / count
    return changed(first, latency=latency, output_tokens_per_s_per_chip=tokens, cached=cached, runs=count)


def _mean_latency(latencies: Sequence[Latency]) -> Latency:
    """The mean of each statistic; no intervals, which runs have of their own."""
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    means = {name: sum(getattr(one, name) for one in latencies) / len(latencies) for name in names}
    return Latency(**means, mean_low=None, mean_high=None, p99_low=None, p99_high=None)


def reached(asked: ServeAsked, found: SimulatedRun) -> dict[str, float]:
    """What a run reached of the latencies that have a target, in seconds."""
    return {name: getattr(found.latency[f"{name}_s"], goal.statistic) for name, goal in asked.goals.items()}


def above(asked: ServeAsked, found: SimulatedRun, part: float) -> dict[str, float]:
    """The latencies of a run that are above a part of their target."""
    return {name: value for name, value in reached(asked, found).items() if value > part * asked.goals[name].seconds}


def is_short(asked: ServeAsked, config: Config) -> bool:
    """Whether a configuration can be run while somebody waits for an answer."""
    requests = int(short_question(asked, config_report(asked, config)).requests)
    percentiles = any(goal.share for goal in asked.goals.values())
    work = requests * (1 + (config.drafts > 0) * asked.ask.output / DRAFTED)
    return work <= MOST_WORK * (MORE_WORK if percentiles else 1)


def confirmed(asked: ServeAsked, chosen: Sequence[Config]) -> list[Confirmed]:
    """Some configurations, best first, as far as they hold when they are run, the best of those that do first; where
    none does, all of them, the nearest first; of a few chips all, so that each has the batch it has alone. Nothing
    where that would take long."""
    if not is_short(asked, chosen[0]):
        return []
    tried, first = list[Confirmed](), {one.place: one for one in chosen}
    each = asked.compares_chips and len(chosen) <= FINALISTS

    def rank(one: Confirmed) -> tuple[float, ...]:
        return one.rank(asked)

    for config in [one for one in chosen if is_short(asked, one)]:
        best = min(tried, key=rank, default=None)
        if best is not None and best.config.meets and not each:
            expected = worth(first[best.config.place], asked.ask)[-2]
            as_expected = best.lost == 1 and rank(best)[-2] <= expected / NEAR  # and it stands before this one
            if best.holds and (as_expected or rank(best)[1:] <= worth(config, asked.ask)):
                break
            dearer = asked.ask.rate is not None and rank(best)[-2] * NEAR > worth(config, asked.ask)[-2]
            if len(tried) >= FINALISTS and not dearer:
                break
        held = _loaded if config.is_fleet else _largest if asked.ask.rate is None else _fewest
        tried.append(held(asked, config))
        made = tried[-1].config.tokens_per_chip if tried[-1].lost == 1 else 0
        if not each and tried[-1].holds and asked.ask.rate is None and made >= NEAR * config.tokens_per_chip:
            break
    if any(one.config.meets for one in tried):
        return sorted(tried, key=rank)
    return sorted(tried, key=lambda one: one.worst)


def in_order(chosen: Sequence[Config], runs: Sequence[Confirmed]) -> list[Config]:
    """Configurations as they were run, those that were not after the first, and last those whose run missed."""
    ran = {one.config.place: one.config for one in runs}
    rest = [ran.get(one.place, one) for one in chosen if one.place != runs[0].config.place]
    return [runs[0].config, *sorted(rest, key=lambda one: not one.meets)]


def _loaded(asked: ServeAsked, config: Config) -> Confirmed:
    """Pools at as much of the rate that they are sized for as holds when they are run; of a rate that was asked for,
    at all of it."""
    assert isinstance(config, PooledConfig)
    one = run(asked, config)
    for load in LOADS if asked.ask.rate is None else ():
        if one.holds:
            break
        one = run(asked, as_config(replace(config.pools, offered=load * config.pools.requests)))
    return one


def _fewest(asked: ServeAsked, config: Config) -> Confirmed:
    """A configuration with about the fewest replicas, from those that its means ask for, that hold the rate when they
    are run; in whole slices where one was named. Where no fleet of it holds, the run that misses its targets least."""
    whole_slice = max(1, dict(asked.ask.rented).get(config.piece.chip.name, 0) // config.chips)
    runs = FleetRuns(asked, config, whole_slice)
    enough = _bracket(runs)
    if enough is not None:
        enough = _bisect(runs, enough)
    fleet = None if enough is None else _confirm_with_seeds(runs, enough)
    if fleet is not None:
        return fleet
    nearest = min(runs.misses, key=lambda miss: (round(miss.worst, 2), miss.replicas or 1))
    return again(asked, nearest)  # one that meets its targets without the margin does so with every seed, or misses


@dataclass
class FleetRuns:
    """The fleets of a configuration that were run, by whether they held; `whole_slice` is the fewest replicas that are
    added."""

    asked: ServeAsked
    config: Config
    whole_slice: int
    tries: int = 0
    misses: list[Confirmed] = field(default_factory=list[Confirmed])

    def run(self, replicas: float | None = None) -> Confirmed | None:
        """The run of so many replicas (None: of those that its means ask for), where it holds; what misses is kept."""
        self.tries += 1
        fleet = run(self.asked, self.config, None if replicas is None else self.in_slices(replicas))
        if fleet.holds:
            return fleet
        self.misses.append(fleet)
        return None

    def in_slices(self, replicas: float) -> int:
        """So many replicas, rounded up to whole slices."""
        return math.ceil(replicas / self.whole_slice - 1e-9) * self.whole_slice

    @property
    def missing(self) -> int:
        """The replicas of the last fleet that missed."""
        return self.misses[-1].replicas or 1


def _bracket(runs: FleetRuns) -> Confirmed | None:
    """The first fleet that holds with one seed, of those that grow ever faster; None where none does."""
    enough, step = runs.run(), 0.1
    while enough is None and runs.tries < TRIES:
        if len(runs.misses) == 2 and _misses_alone(runs.asked, runs.misses[-1]):
            return None
        step *= 2
        enough = runs.run(runs.missing * (1 + step))
    return enough


def _bisect(runs: FleetRuns, enough: Confirmed) -> Confirmed:
    """About the smallest fleet that holds with one seed, between the largest that missed and one that held."""
    while runs.misses and runs.tries < TRIES:
        most = enough.replicas or 1
        if most <= max(runs.missing / NEAR, runs.missing + runs.whole_slice):
            break
        enough = runs.run((runs.missing + most) / 2) or enough
    return enough


def _confirm_with_seeds(runs: FleetRuns, enough: Confirmed) -> Confirmed | None:
    """The first fleet, of this size or a little larger ones, that holds with every seed; None where none of them does.
    What misses with any seed is among the misses."""
    fleet: Confirmed | None = enough
    replicas = enough.replicas or 1
    for attempt in range(TRIES):
        if attempt > 0:
            replicas = max(runs.in_slices(replicas / NEAR), replicas + runs.whole_slice)
            fleet = runs.run(replicas)
        if fleet is None:
            continue
        fleet = again(runs.asked, fleet)
        if fleet.holds:
            return fleet
        runs.misses.append(fleet)
    return None


def _misses_alone(asked: ServeAsked, one: Confirmed) -> bool:
    """Whether a fleet misses its targets when requests are nearly alone in it, so that no larger one holds."""
    if math.isinf(one.worst):
        return False
    return not run(asked, one.config, LIGHT * (one.replicas or 1)).holds


def _largest(asked: ServeAsked, config: Config) -> Confirmed:
    """A plan with about the largest batch up to a configuration's that holds when it is run; where none does, the last
    that was run."""
    last, missing, best, missed = run(asked, config), config.batch, None, None
    for _ in range(TRIES - 1):
        if last.holds:
            best = last
        else:
            missing, missed = last.config.batch, last.config
        least = 0 if best is None else best.config.batch
        if asked.batch is not None or least == missing or least > NEAR * (missing - 1):
            break
        other = _met_below(asked, last, missing - 1)
        if other is None or NEAR * other.batch < least:
            break
        last = run(asked, other)
    return replace(last if last.holds or best is None else best, missed=missed)


def _met_below(asked: ServeAsked, last: Confirmed, most: int) -> Config | None:
    """The largest batch of a plan, up to `most`, that would meet the targets if its latencies were as far from their
    means as those of the last run; where none would, a quarter of its batch."""
    quarter = last.config.batch // 4
    grid = {math.ceil(most * part / GRID) for part in range(1, GRID + 1)} | {1, quarter}
    found = at_batches(last.as_means(asked), last.config, sorted(grid - {0}))
    met = [one for one in found if one.meets] or [one for one in found if one.batch <= quarter]
    return max(met, key=lambda one: one.batch, default=None)


def as_run(asked: ServeAsked, rows: Sequence[tuple[Config, ConfigReport]], runs: Sequence[Confirmed]) -> list[str]:
    """Put runs into the rows of their configurations; what to say of the first."""
    ran = {one.config.place: one for one in runs}
    first = rows[0][1]
    notes = [
        as_simulated(asked, row, ran[one.place], asked.compares_chips or row is first or ran[one.place].lost > 1)
        for one, row in rows
        if one.place in ran
    ]
    return notes[0]


def as_simulated(asked: ServeAsked, row: ConfigReport, found: Confirmed, headline: bool = True) -> list[str]:
    """Put a run's replicas into the configuration that it confirms, and into the headline its numbers where they are
    far from those expected; what to say of it."""
    row.simulated = True
    if found.replicas is not None and row.replicas is not None:
        with_fleet(row, found.replicas, found.run)
    if row.prefill is not None:
        row.prefill.ttft_p95_s = found.run.latency["ttft_s"].p95
    if not found.run.meets_slo:
        near = above(asked, found.run, NEARLY)
        told = [
            violation(name, value, asked.goals[name].seconds, f" {asked.goals[name].at}")
            for name, value in near.items()
        ]
        if not told and math.isinf(found.worst):
            told = ["more requests come than are served"]
        row.violations = told or ["too few requests of a class meet its targets"]
        lacking = " and ".join(row.violations)
        return [f"Nothing meets the targets when it is simulated. The nearest is {config_text(row)}: {lacking}."]
    return _corrected(asked, row, found) if headline and (asked.ask.rate is None or row.prefill is not None) else []


def with_fleet(row: ConfigReport, replicas: int, run: SimulatedRun) -> None:
    """Put the replicas that hold a rate when they are run into a configuration, with their chips, dollars and times."""
    assert row.replicas is not None
    if replicas != row.replicas:
        row.enough_replicas = None  # sized by the rule that the run did not bear out
    more, row.replicas, row.simulated = replicas / row.replicas, replicas, True
    row.fleet_chips = replicas * row.chips
    row.fleet_usd_per_h = row.fleet_usd_per_h and row.fleet_usd_per_h * more
    row.fleet_usd_per_mtok = row.fleet_usd_per_mtok and row.fleet_usd_per_mtok * more
    row.fleet_ttft_s, row.fleet_tpot_s = (run.latency[name].mean for name in ("ttft_s", "tpot_s"))


def _corrected(asked: ServeAsked, row: ConfigReport, found: Confirmed) -> list[str]:
    """Where a run is far from what was expected of it, its numbers."""
    expected = {"TTFT": row.ttft_s, "TPOT": row.tpot_s, "tok/s per chip": row.output_tokens_per_s_per_chip}
    latency, tokens = found.run.latency, found.run.output_tokens_per_s_per_chip
    ran = dict(zip(expected, (latency["ttft_s"].mean, latency["tpot_s"].mean, tokens), strict=True))
    far = [name for name, value in expected.items() if value and abs(ran[name] / value - 1) > APART]
    if not far:
        return []
    shown = [ran[name] if name in far else value for name, value in expected.items()]
    made = shown[2] / row.output_tokens_per_s_per_chip
    row.ttft_s, row.tpot_s, row.output_tokens_per_s_per_chip = shown
    row.latency_s = row.ttft_s + (asked.ask.output - 1) * row.tpot_s
    row.tokens_per_s_per_user = 1 / row.tpot_s if row.tpot_s else 0.0
    row.requests_per_s *= made
    state = row.state  # whose parts add up to what is shown
    late, slow = row.ttft_s - float(state.ttft), (row.tpot_s - float(state.tpot)) * max(asked.ask.output - 1, 1)
    more = {"waiting": state.waiting + late, "met": state.met + slow / state.added, "requests": row.requests_per_s}
    row.state = replace(state, **more)
    for name in ("cost_usd_per_mtok", "cost_usd_per_mtok_input", "cost_usd_per_mtok_output"):
        cost = getattr(row, name)
        setattr(row, name, cost and cost / made)
    add_bands(row, kind_of(asked, found.config))
    told = " and ".join(f"{name} by {ran[name] / expected[name] - 1:+.0%}" for name in far)
    return [f"What is expected is what was simulated where that is far from the steady state's formulas ({told})."]
