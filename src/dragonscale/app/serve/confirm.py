"""What is recommended, confirmed by running it: the headline of an answer meets its targets in a short simulation of
what its next command asks. Percentiles are judged by nothing else.

Means of the steady state say where to look. Where a run misses a target, its ratio to the mean says which batch would
meet it, and that one is run; of fleets at a rate, more replicas are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.app.serve.config import add_bands, config_report, kind_of
from dragonscale.app.serve.recommended import short_question
from dragonscale.app.serve.search import at_batches, counted_in
from dragonscale.app.serve.serve_question import ServeAsked
from dragonscale.app.serve.serve_records import ConfigReport, SimulatedRun, config_text
from dragonscale.app.simulate.ask_simulate import fleet_chips, latency_of
from dragonscale.app.simulate.simulate_question import read_question
from dragonscale.physics.units import render
from dragonscale.serving.frontier import Config
from dragonscale.serving.ranking import worth
from dragonscale.serving.targets import LATENCIES
from dragonscale.simulation import simulate

MARGIN = 0.99
"""Of a target, what a run has to stay within: means of so short a run are known to 1%."""
APART = 0.1
"""How far a run may be from what is expected; what is further is shown as it was simulated."""
TRIES, FINALISTS = 5, 3
"""Runs of one plan, and plans that are run, at most."""
NEAR = 0.92
"""Of the batch or the tokens that are looked for, what is near enough not to run another."""
LEAST_LOAD, LESS = 0.75, 0.1
"""The smallest part of their rate that pools are run at, and how much less each time."""
MOST_WORK, MORE_WORK, DRAFTED = 12_000, 5, 80
"""Requests of a run at most, about a second, and how many times as many where percentiles are to be judged; where
tokens are drafted so many of them are as much work as a request, since every step is another."""
MOST_REPLICAS = 4
"""Larger fleets at a rate are run as one of this size with the same load on each replica."""
GRID = 32
"""Batches that are looked at for one that meets the targets."""


@dataclass(frozen=True)
class Confirmed:
    """A configuration that was run, the replicas that share a rate, the load of pools (a part of what they are sized
    for), what it reached of the latencies that have a target, in seconds, and whether it holds: meets the targets with
    a margin."""

    config: Config
    replicas: int | None
    load: float
    run: SimulatedRun
    reached: dict[str, float]
    holds: bool


def run(asked: ServeAsked, config: Config, replicas: int | None = None, load: float = 1.0) -> Confirmed:
    """One run of a configuration."""
    row = config_report(asked, config)
    row.replicas, row.requests_per_s = replicas or row.replicas, load * row.requests_per_s
    found, reached = simulated(asked, row)
    holds = all(reached[name] <= MARGIN * goal.seconds for name, goal in asked.goals.items())
    return Confirmed(config, row.replicas, load, found, reached, holds)


def simulated(asked: ServeAsked, row: ConfigReport) -> tuple[SimulatedRun, dict[str, float]]:
    """A short run of a configuration."""
    question = short_question(asked, row, MOST_REPLICAS)
    read = read_question(question)
    options = read.options
    if question.clients:  # who have all begun after the time of one request, and are fewer in the last
        part = question.clients / read.traffic.source.requests
        options = replace(options, warmup=max(options.warmup, min(1.3 * part, 0.45)), cooldown=0.9 * part)
    result = simulate(read.fleet, read.traffic.source, options)
    reached = {name: read.reached(result, f"{name}_s") for name in asked.goals}
    chips = fleet_chips(read, read.fleet.pool.replicas, read.fleet.prefill.replicas if read.fleet.prefill else 0)
    found = SimulatedRun(
        replicas=read.fleet.pool.replicas,
        requests=result.outcome.arrived,
        clients=question.clients,
        rate_per_s=read.traffic.rate,
        latency={name: latency_of(summary) for name, summary in result.latency.items()},
        output_tokens_per_s_per_chip=result.throughput.output_tokens_per_s / chips,
        meets_slo=all(reached[name] <= goal.seconds for name, goal in asked.goals.items()),
    )
    return found, reached


def is_short(asked: ServeAsked, config: Config) -> bool:
    """Whether a configuration can be run while somebody waits for an answer."""
    requests = int(short_question(asked, config_report(asked, config), MOST_REPLICAS).requests)
    percentiles = any(goal.share for goal in asked.goals.values())
    work = requests * (1 + (config.drafts > 0) * asked.ask.output / DRAFTED)
    return work <= MOST_WORK * (MORE_WORK if percentiles else 1)


def confirmed(asked: ServeAsked, chosen: Sequence[Config]) -> Confirmed | None:
    """The best of some configurations, best first, that holds when it is run; where none does, the first as far as it
    comes. None where that would take long."""
    if not is_short(asked, chosen[0]):
        return None
    tried, counted = list[Confirmed](), counted_in(asked)

    def rank(one: Confirmed) -> tuple[float, ...]:
        return worth(one.config, asked.ask, one.load * counted(one.config))

    for config in [one for one in chosen[:FINALISTS] if is_short(asked, one)]:
        if any(one.holds and rank(one) <= worth(config, asked.ask, counted(config)) for one in tried):
            break
        held = _loaded if config.is_fleet else _largest if asked.ask.rate is None else _fewest
        one = held(asked, config)
        tried.append(one)
        if one.holds and one.load * one.config.tokens_per_chip >= NEAR * config.tokens_per_chip:
            break
    good = [one for one in tried if one.holds] or [one for one in tried if one.run.meets_slo]
    if not good:
        return replace(tried[0], config=replace(tried[0].config, meets=False))
    return min(good, key=rank)


def _loaded(asked: ServeAsked, config: Config) -> Confirmed:
    """Pools at as much of the rate that they are sized for as holds when they are run; of a rate that was asked for,
    at all of it."""
    one = run(asked, config)
    while not one.holds and asked.ask.rate is None and one.load > LEAST_LOAD:
        one = run(asked, config, load=one.load - LESS)
    return one


def _fewest(asked: ServeAsked, config: Config) -> Confirmed:
    """A configuration with about the fewest replicas, from those that its means ask for, that hold the rate when they
    are run; in whole slices where one was named."""
    each = max(1, dict(asked.ask.rented).get(config.piece.chip.name, 0) // config.chips)
    one, best = run(asked, config), None
    missing, step = one.replicas or 1, 0.1
    for _ in range(TRIES - 1):
        if one.holds:
            best = one
        else:
            missing = one.replicas or 1
        enough = None if best is None else best.replicas or 1
        if enough is not None and enough <= max(missing / NEAR, missing + each):
            break
        step *= 2
        between = missing * (1 + step) if enough is None else (missing + enough) / 2
        one = run(asked, config, math.ceil(between / each - 1e-9) * each)
    return one if one.holds or best is None else best


def _largest(asked: ServeAsked, config: Config) -> Confirmed:
    """A plan with about the largest batch up to a configuration's that holds when it is run; where none does, the last
    that was run."""
    last, missing, best = run(asked, config), config.batch, None
    for _ in range(TRIES - 1):
        if last.holds:
            best = last
        else:
            missing = last.config.batch
        least = 0 if best is None else best.config.batch
        if asked.batch is not None or least == missing or least > NEAR * (missing - 1):
            break
        other = _met_below(asked, last, missing - 1)
        if other is None or NEAR * other.batch < least:
            break
        last = run(asked, other)
    return last if last.holds or best is None else best


def _met_below(asked: ServeAsked, last: Confirmed, most: int) -> Config | None:
    """The largest batch of a plan, up to `most`, that would meet the targets if its latencies were as far from their
    means as those of the last run; where none would, a quarter of its batch."""

    def would_meet(one: Config) -> bool:
        return all(factors[name] * mean <= MARGIN * limit for name, (mean, limit) in means(one).items())

    def means(one: Config) -> dict[str, tuple[float, float]]:
        return asked.ask.times(one.state.ttft, one.state.tpot)

    factors = {name: last.reached[name] / mean for name, (mean, _) in means(last.config).items()}
    quarter = last.config.batch // 4
    grid = {math.ceil(most * part / GRID) for part in range(1, GRID + 1)} | {1, quarter}
    found = at_batches(asked, last.config, sorted(grid - {0}))
    met = [one for one in found if would_meet(one)] or [one for one in found if one.batch <= quarter]
    return max(met, key=lambda one: one.batch, default=None)


def as_simulated(asked: ServeAsked, row: ConfigReport, found: Confirmed) -> list[str]:
    """Put a run's replicas into the configuration that it confirms, and its numbers where they are far from those
    expected; what to say of it."""
    if found.replicas is not None and row.replicas is not None:
        more, row.replicas = found.replicas / row.replicas, found.replicas
        row.fleet_chips = row.replicas * row.chips
        row.fleet_usd_per_h = row.fleet_usd_per_h and row.fleet_usd_per_h * more
        row.fleet_usd_per_mtok = row.fleet_usd_per_mtok and row.fleet_usd_per_mtok * more
        row.fleet_ttft_s, row.fleet_tpot_s = (found.run.latency[name].mean for name in ("ttft_s", "tpot_s"))
    if not found.run.meets_slo:
        row.violations = [
            f"{LATENCIES[name]} is {render(found.reached[name], 's')} {goal.at}, "
            f"{found.reached[name] / goal.seconds - 1:.0%} above the {render(goal.seconds, 's')} asked for"
            for name, goal in asked.goals.items()
            if found.reached[name] > goal.seconds
        ]
        lacking = " and ".join(row.violations)
        return [f"Nothing meets the targets when it is simulated. The nearest is {config_text(row)}: {lacking}."]
    return _corrected(asked, row, found) if asked.ask.rate is None else []


def _corrected(asked: ServeAsked, row: ConfigReport, found: Confirmed) -> list[str]:
    """Where a run is far from what was expected of it, its numbers."""
    expected = {"TTFT": row.ttft_s, "TPOT": row.tpot_s, "tok/s per chip": row.output_tokens_per_s_per_chip}
    latency, tokens = found.run.latency, found.run.output_tokens_per_s_per_chip
    ran = dict(zip(expected, (latency["ttft_s"].mean, latency["tpot_s"].mean, tokens), strict=True))
    far = [name for name, value in expected.items() if value and abs(ran[name] / value - 1) > APART]
    if not far and found.load == 1:
        return []
    shown = [ran[name] if name in far or found.load < 1 else value for name, value in expected.items()]
    made = shown[2] / row.output_tokens_per_s_per_chip
    row.ttft_s, row.tpot_s, row.output_tokens_per_s_per_chip = shown
    row.latency_s = row.ttft_s + (asked.ask.output - 1) * row.tpot_s
    row.tokens_per_s_per_user = 1 / row.tpot_s if row.tpot_s else 0.0
    row.requests_per_s *= made
    for name in ("cost_usd_per_mtok", "cost_usd_per_mtok_input", "cost_usd_per_mtok_output"):
        cost = getattr(row, name)
        setattr(row, name, cost and cost / made)
    add_bands(row, kind_of(asked, found.config))
    if found.load < 1:
        return [f"The pools are told at {found.load:.0%} of the rate they are sized for: there they meet the targets."]
    told = " and ".join(f"{name} by {ran[name] / expected[name] - 1:+.0%}" for name in far)
    return [f"What is expected is what was simulated where that is far from the steady state's formulas ({told})."]
