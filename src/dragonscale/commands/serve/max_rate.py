"""`--max-rate`: the largest rate that a replica of each finalist holds, and the fleet that the asked rate takes, as
rows of the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragonscale.commands.serve.confirm import sizing_job, with_fleet
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport
from dragonscale.commands.serve.variant_records import MaxRate
from dragonscale.serving.space.frontier import Config
from dragonscale.simulation.fleet_sizing.held_rate import FINALISTS, Finalist, HeldRate, held_rates, on_frontier
from dragonscale.simulation.fleet_sizing.simulated_run import SimulatedRun


@dataclass(frozen=True)
class HeldRow:
    """The row of a configuration, what a replica of it holds and, with a rate, the run of the fleet that holds it."""

    row: ConfigReport
    rate: MaxRate
    run: SimulatedRun | None = None


def max_rates(
    asked: ServeAsked, rows: Sequence[tuple[Config, ConfigReport]], progress: Callable[[int, int], None] | None = None
) -> list[HeldRow]:
    """What the best configurations hold, the cheapest first: with a rate by the fleet's dollars, else by those of a
    million tokens of requests that meet the targets. A configuration has the fleet that was found for its rate."""
    rate = asked.ask.rate
    best = [(config, row) for config, row in rows if row.meets_slo][:FINALISTS]
    finalists = [Finalist(config, row.requests_per_s, row.latency_s) for config, row in best]
    held = held_rates(sizing_job(asked), finalists, progress)
    held_rows: list[tuple[tuple[bool, float], HeldRow]] = []
    for (_, row), held_rate, starred in zip(best, held, on_frontier(held), strict=True):
        fleet = held_rate.fleet
        if fleet is not None and rate is not None and row.prefill is None:
            tokens_per_s = rate * asked.ask.output
            with_fleet(row, fleet.sizes.replicas, fleet.cost, fleet.run, tokens_per_s)
        rate_row = _rate_row(row, held_rate, starred)
        held_rows.append((held_rate.paid(rate), HeldRow(row, rate_row, fleet and fleet.run)))
    return [held_row for _, held_row in sorted(held_rows, key=lambda pair: pair[0])]


def _rate_row(row: ConfigReport, held: HeldRate, starred: bool) -> MaxRate:
    """What a configuration holds as a record."""
    rate_row = MaxRate(
        slice=row.copy_slice,
        plan=row.plan,
        requests_per_s=held.requests_per_s,
        limited_by=held.limited_by,
        prefill_requests_per_s=held.prefill_requests_per_s,
        good_share=held.good_share,
        ttft_s=held.ttft_s,
        tpot_s=held.tpot_s,
        output_tokens_per_s_per_chip=held.output_tokens_per_s_per_chip,
        good_tokens_per_s_per_chip=held.good_tokens_per_s_per_chip,
        usd_per_mtok=held.usd_per_mtok,
        on_frontier=starred,
        runs=held.runs,
    )
    if held.fleet is not None:
        sizes, cost = held.fleet.sizes, held.fleet.cost
        rate_row.replicas, rate_row.prefill_replicas = sizes.replicas, sizes.prefills
        rate_row.headroom = held.fleet.headroom
        rate_row.chips, rate_row.usd_per_h = round(cost.chips), cost.usd_per_h
        rate_row.fleet_usd_per_mtok = held.fleet.usd_per_mtok
    return rate_row
