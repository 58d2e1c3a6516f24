"""`--max-rate`: the largest rate that a replica of each finalist holds under its targets, found by running it, and the
fleet that the asked rate takes.

Requests come at random (Poisson), so percentiles and queues are those of traffic, not of a batch that is always full. A
replica is run as one of a fleet of the size that the rate asks for (of a few at most): behind a router that sees their
load, several hold a little more each than one alone. Of two pools each is run beside one of the other kind that has
twice the room it needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from dragonscale.commands.serve.confirm import simulated_run, with_fleet
from dragonscale.commands.serve.recommended import MOST_REPLICAS, fleet_question
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, SimulatedRun
from dragonscale.commands.serve.variant_records import MaxRate
from dragonscale.commands.simulate.ask_simulate import fleet_chips, fleet_usd_per_h, sized
from dragonscale.commands.simulate.capacity import FEWEST, Trial, Trials, confirmed_sizes
from dragonscale.commands.simulate.missed import worst_ratio
from dragonscale.commands.simulate.rate_search import TOLERANCE, largest_rate
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.economics import usd_per_million

FINALISTS, RUNS = 3, 9
"""Configurations that are run, and runs of each at most."""
FIRST = 0.8
"""Part of what a batch that is always full serves at which the search begins."""
LONG, STEPS = 10_000, 9
"""Requests of the run that confirms a rate, as many as `dscale simulate` has without a word, and steps down until one
does."""
ROOMY = 2
"""Times the room that the other pool needs."""


@dataclass(frozen=True)
class HeldRate:
    """What a replica of a configuration holds and, with a rate, the run of the fleet that holds it."""

    row: ConfigReport
    rate: MaxRate
    run: SimulatedRun | None = None


def max_rates(
    asked: ServeAsked, rows: Sequence[tuple[Config, ConfigReport]], progress: Callable[[int, int], None] | None = None
) -> list[HeldRate]:
    """What the best configurations hold, the cheapest first: with a rate by the fleet's dollars, else by those of a
    million tokens of requests that meet the targets. A configuration has the fleet that was found for its rate."""
    finalists = [one for one in rows if one[1].meets_slo][:FINALISTS]
    found = list[HeldRate]()
    for number, (config, row) in enumerate(finalists, 1):
        held = _held(asked, config, row)
        if held.run is not None and held.rate.replicas is not None and row.prefill is None:
            with_fleet(row, held.rate.replicas, held.run)
        found.append(held)
        if progress is not None:
            progress(number, len(finalists))
    marked = [replace(one, rate=rate) for one, rate in zip(found, _marked([one.rate for one in found]), strict=True)]
    return sorted(marked, key=lambda one: _paid(one.rate, asked.ask.rate))


def _paid(one: MaxRate, rate: float | None) -> tuple[bool, float]:
    """What a configuration is ranked by: one that holds nothing last, and chips where there is no price."""
    if one.requests_per_s is None or (rate is not None and one.chips is None):
        return True, 0.0
    if rate is not None:
        return False, one.usd_per_h or one.chips or 0
    good = one.good_tokens_per_s_per_chip / max(one.output_tokens_per_s_per_chip, 1e-9)
    cost = one.usd_per_mtok and one.usd_per_mtok / max(good, 1e-9)
    return False, cost or 1 / max(one.good_tokens_per_s_per_chip, 1e-9)


def _marked(found: list[MaxRate]) -> list[MaxRate]:
    """With those marked that no other beats in both good tokens per chip and TPOT."""

    def beaten(one: MaxRate) -> bool:
        own, slow = one.good_tokens_per_s_per_chip, one.tpot_s or 0.0
        others = [(other.good_tokens_per_s_per_chip, other.tpot_s or 0.0) for other in found if other is not one]
        return any(good >= own and tpot <= slow and (good, tpot) != (own, slow) for good, tpot in others)

    return [changed(one, on_frontier=one.requests_per_s is not None and not beaten(one)) for one in found]


def _held(asked: ServeAsked, config: Config, row: ConfigReport) -> HeldRate:
    """The largest rate of one configuration, and its fleet for the asked rate."""
    rate, pool = asked.ask.rate, row.prefill
    full = row.requests_per_s / (row.decodes if pool else 1)
    together = 1 if rate is None or pool else min(MOST_REPLICAS, max(math.ceil(rate / full), 1))
    sizes, ends = (together, 0), []
    if pool is not None:
        first = row.requests_per_s / pool.replicas
        sizes = 1, max(math.ceil(ROOMY * full / first), 1)
        ends = [_search(asked, row, first, (max(math.ceil(ROOMY * first / full), 1), 1))]
    ends.insert(0, _search(asked, row, full * together, sizes))
    runs = sum(trials.runs for trials, _, _ in ends)
    held = [low for _, low, _ in ends if low is not None]
    limits = [limit for _, _, limit in ends]
    if len(held) < len(ends):
        missing = next(limit for _, low, limit in ends if low is None)
        return HeldRate(row, MaxRate(row.copy_slice, row.plan, None, missing, runs=runs))
    each = held[0].rate / sizes[0], held[-1].rate if pool else None
    counts = (row.decodes, pool.replicas) if pool else (1, 0)
    most = min(count * own for count, own in zip(counts, each, strict=True) if own is not None)
    trials, result = ends[0][0].asked, held[0].result
    every = sized(trials, *counts)
    chips, hourly = fleet_chips(trials, every), fleet_usd_per_h(trials, every)
    tokens, good = most * asked.ask.output, min(one.result.throughput.good_share for one in held)
    answer = MaxRate(
        slice=row.copy_slice,
        plan=row.plan,
        requests_per_s=each[0],
        limited_by=limits[0] if not pool or counts[0] * each[0] <= most else limits[1],
        prefill_requests_per_s=each[1],
        good_share=good,
        ttft_s=trials.reached(held[-1].result, "ttft_s"),
        tpot_s=trials.reached(result, "tpot_s"),
        output_tokens_per_s_per_chip=tokens / chips,
        good_tokens_per_s_per_chip=good * tokens / chips,
        usd_per_mtok=None if hourly is None else float(usd_per_million(tokens, 1, hourly)),
        runs=runs,
    )
    return HeldRate(row, answer) if rate is None else _sized(asked, config, row, answer, held[0])


def _search(
    asked: ServeAsked, row: ConfigReport, full: float, sizes: tuple[int, int]
) -> tuple[Trials, Trial | None, str]:
    """The largest rate of so many decode and prefill replicas from what they serve when they are full, and what stops
    larger ones."""
    trials = Trials(_read(asked, row, FIRST * full, sizes, 2 * FEWEST), FIRST * full * row.latency_s, None)
    low, high = largest_rate(trials.run, FIRST * full, RUNS)
    rate = None if low is None or row.drafts else low.rate
    for number in range(STEPS):  # queues near the limit grow for longer than that
        if rate is None:
            break
        one = trials.run(float(f"{rate:.3g}"), LONG)
        low, high = (one, high) if one.good else (None, one)
        rate = None if one.good else one.rate / TOLERANCE ** (1 + number // 3)
    return trials, low, _limit(trials.asked, low, high)


NEAR = 0.85
"""The part of its target that a latency has reached at the largest rate where it is what stops a larger one."""


def _limit(asked: SimulateAsked, low: Trial | None, high: Trial | None) -> str:
    """What stops a larger rate than that of `low`: the latency that the run at `high` misses by most, or the queue.

    A latency that is well below its target at the largest rate and above it 3% later did not grow into it: requests
    come faster than they are served, and wait."""
    if high is None or not high.missed:
        return "queue"
    latency = next(iter(high.missed))
    if low is None:
        return latency
    if latency in asked.targets:
        reached = asked.reached(low.result, latency) / asked.targets[latency].seconds
    else:  # a target of a class of traffic
        reached = worst_ratio(asked, low.result)
    return latency if reached >= NEAR else "queue"


def _read(asked: ServeAsked, row: ConfigReport, rate: float, sizes: tuple[int, int], requests: int) -> SimulateAsked:
    question = fleet_question(asked, row, rate, *sizes, requests)
    if not asked.goals and asked.pace:  # what the search kept to though nobody asked for it
        question = replace(question, tpot=f"{asked.ask.tpot}s")
    return read_question(question)


def _sized(asked: ServeAsked, config: Config, row: ConfigReport, one: MaxRate, ran: Trial) -> HeldRate:
    """With the replicas that hold the asked rate, in whole slices where one was named, when they are run."""
    rate = asked.ask.rate
    assert one.requests_per_s is not None
    assert rate is not None
    whole = 1 if row.prefill else max(1, dict(asked.ask.rented).get(config.piece.chip.name, 0) // config.chips)
    replicas = math.ceil(rate / one.requests_per_s / whole - 1e-9) * whole
    prefills = math.ceil(rate / one.prefill_requests_per_s - 1e-9) if one.prefill_requests_per_s else 0
    read = _read(asked, row, rate, (replicas, prefills), 2 * FEWEST)
    trials = Trials(read, rate * row.latency_s, None)
    sizes, confirmed, _ = confirmed_sizes(trials, {}, (replicas, prefills), ran)
    if sizes is None or confirmed is None:
        return HeldRate(row, changed(one, runs=one.runs + trials.runs))
    replicas, prefills = math.ceil(sizes[0] / whole) * whole, sizes[1]
    limits = [replicas * one.requests_per_s, prefills * (one.prefill_requests_per_s or 0.0)]
    hourly = fleet_usd_per_h(read, sized(read, replicas, prefills))
    held = changed(
        one,
        replicas=replicas,
        prefill_replicas=prefills,
        headroom=max(1 - rate / min(limit for limit in limits if limit), 0.0),
        chips=round(fleet_chips(read, sized(read, replicas, prefills))),
        usd_per_h=hourly,
        fleet_usd_per_mtok=None if hourly is None else float(usd_per_million(rate * asked.ask.output, 1, hourly)),
        runs=one.runs + trials.runs,
    )
    ran_fleet = _read(asked, row, rate, sizes, 2 * FEWEST)
    return HeldRate(row, held, simulated_run(ran_fleet, confirmed.result, meets=True))
