"""`--max-rate`: the largest rate that a replica of each finalist holds, and the fleet that the asked rate takes, as
rows of the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragonscale.commands.serve.confirm import sizing_job, with_fleet
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport
from dragonscale.commands.serve.variant_records import MaxRate
from dragonscale.serving.space.frontier import Config
from dragonscale.simulation.fleet_sizing.simulated_run import SimulatedRun
from dragonscale.simulation.fleet_sizing.sustained_rate import (
    FINALISTS,
    Finalist,
    SustainedRate,
    on_frontier,
    sustained_rates,
)


@dataclass(frozen=True)
class SustainedRow:
    """The row of a configuration, what a replica of it holds and, with a rate, the run of the fleet that holds it."""

    row: ConfigReport
    rate: MaxRate
    run: SimulatedRun | None = None


def max_rates(
    asked: ServeAsked, rows: Sequence[tuple[Config, ConfigReport]], progress: Callable[[int, int], None] | None = None
) -> list[SustainedRow]:
    """What the best configurations hold, the cheapest first: with a rate by the fleet's dollars, else by those of a
    million tokens of requests that meet the targets. A configuration has the fleet that was found for its rate."""
    rate = asked.ask.rate
    best = [(config, row) for config, row in rows if row.meets_slo][:FINALISTS]
    finalists = [Finalist(config, row.requests_per_s, row.latency_s) for config, row in best]
    sustained = sustained_rates(sizing_job(asked), finalists, progress)
    ranked_rows: list[tuple[tuple[bool, float], SustainedRow]] = []
    for (_, row), sustained_rate, starred in zip(best, sustained, on_frontier(sustained), strict=True):
        fleet = sustained_rate.fleet
        if fleet is not None and rate is not None and row.prefill is None:
            tokens_per_s = rate * asked.ask.output
            with_fleet(row, fleet.sizes.replicas, fleet.cost, fleet.run, tokens_per_s)
        rate_row = _rate_row(row, sustained_rate, starred)
        ranked_rows.append((sustained_rate.paid(rate), SustainedRow(row, rate_row, fleet and fleet.run)))
    return [ranked_row for _, ranked_row in sorted(ranked_rows, key=lambda pair: pair[0])]


def _rate_row(row: ConfigReport, sustained: SustainedRate, starred: bool) -> MaxRate:
    """What a configuration holds as a record."""
    rate_row = MaxRate(
        slice=row.copy_slice,
        plan=row.plan,
        requests_per_s=sustained.requests_per_s,
        limited_by=sustained.limited_by,
        prefill_requests_per_s=sustained.prefill_requests_per_s,
        good_share=sustained.good_share,
        ttft_s=sustained.ttft_s,
        tpot_s=sustained.tpot_s,
        output_tokens_per_s_per_chip=sustained.output_tokens_per_s_per_chip,
        good_tokens_per_s_per_chip=sustained.good_tokens_per_s_per_chip,
        usd_per_mtok=sustained.usd_per_mtok,
        on_frontier=starred,
        runs=sustained.runs,
    )
    if sustained.fleet is not None:
        sizes, cost = sustained.fleet.sizes, sustained.fleet.cost
        rate_row.replicas, rate_row.prefill_replicas = sizes.replicas, sizes.prefills
        rate_row.headroom = sustained.fleet.headroom
        rate_row.chips, rate_row.usd_per_h = round(cost.chips), cost.usd_per_h
        rate_row.fleet_usd_per_mtok = sustained.fleet.usd_per_mtok
    return rate_row
