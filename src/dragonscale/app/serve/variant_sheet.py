"""What stands beside a configuration laid out: largest rates, limits, drafting, disaggregated prefill and decode."""

from collections.abc import Sequence

from dragonscale.app import grids
from dragonscale.app.serve import serve_records as records
from dragonscale.serving.targets import LATENCIES
from dragonscale.sheets import sheet as laid
from dragonscale.sheets.sheet import amount


def _sizes(row: records.MaxRate) -> str:
    if row.replicas is None:
        return "–"
    return f"{row.prefill_replicas}+{row.replicas}" if row.prefill_replicas else f"{row.replicas}"


def max_rates_table(report: records.ServeReport) -> laid.Grid:
    """What a replica of each finalist holds; a star where no other gives more good tokens at a lower TPOT."""
    columns = {
        "limited by": lambda row: LATENCIES.get(row.limited_by[:-2], row.limited_by),
        "good tok/s/chip": (lambda row: f"{row.good_tokens_per_s_per_chip:,.0f}{'*' * row.on_frontier}", ""),
        "replicas": (_sizes, ""),
    }
    rate, rows = report.workload.rate_per_s, report.max_rates
    without = ["prefill"] * all(row.prefill_requests_per_s is None for row in rows)
    without += ["$/Mtok"] if rate else ["replicas", "headroom", "$/h"]
    foot = "* No other gives more good tokens, those of requests that meet every target, at a lower TPOT."
    return grids.grid("serve-max-rates", rows, foot=foot, own=columns, without=without)


def limits_table(limits: Sequence[records.LimitRow]) -> laid.Grid:
    """Limits, solved at datasheet rates."""
    value = (lambda row: f"{row.value:,.4g}" if row.value < 1e4 else amount(row.value, "count"), "")
    return grids.grid("serve-limits", limits, own={"": value})


# Other ways to serve, laid out: drafting, disaggregated prefill and decode, prefix caching.


def speculation_blocks(found: records.Speculation) -> list[laid.Block]:
    """Drafts against time per token."""
    if found.hurts_from_batch is None:
        until = f"Drafting helps at every batch that fits (up to {found.most_batch:,})."
    elif found.hurts_from_batch == 1:
        until = "Drafting is not worth it at any batch."
    else:
        until = f"From a batch of {found.hurts_from_batch:,} on drafting only hurts."
    accepted = ", ".join(f"{chance:.0%}" for chance in found.acceptance)
    title = f"speculation: drafts by {found.drafter}, {accepted} accepted, batch {found.batch:,}, decoding alone"
    best = {"faster": lambda row: f"{row.speedup:.2f}x" + (" best" if row.drafts == found.best_drafts else "")}
    return [grids.grid("serve-drafts", found.rows, title, until, best)]


def disaggregation_blocks(found: records.Disaggregation, rate: float | None = None) -> list[laid.Block]:
    """Prefill and decode apart, for the asked rate where there is one, and whether that is worth it."""
    told = f", for {amount(rate, 'count')} requests/s" if rate else ""
    title = f"disaggregation: prefill and decode on replicas of their own{told}"
    if not found.pools:
        return [laid.Prose(f"{title}. {found.advice}")]
    columns = {
        "prefill": lambda pair: f"{pair.prefills} x {pair.prefill.copy_slice} {records.degrees_text(pair.prefill)}",
        "decode": lambda pair: f"{pair.decodes} x {pair.decode.copy_slice} {records.degrees_text(pair.decode)}",
        "batch": (lambda pair: f"{pair.decode.batch:,}", ""),
    }
    details = grids.summary("serve-disaggregation", found.pools[0], advice=found.advice)
    # pools that are recommended stand among the configurations
    table = grids.grid("serve-pools", found.pools, title, own=columns, without=("$/Mtok" if rate else "$/h",))
    return [details] if found.pays else [table, details]
