"""Tables of configurations and their frontier, and what stands beside one: largest rates, limits, drafting, pools."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount
from dragonscale.commands import grids
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.variant_records import DraftRow
from dragonscale.serving.steady.targets import LATENCIES

# Rows of the frontier that are shown.
MAX_POINTS = 8

# Rows that miss targets whose reasons are told.
MAX_MISSES = 3

# Chips that the short answer compares.
MAX_BRIEF_ROWS = 5


def number_text(value: float | None, digits: int = 0) -> str:
    """A number as text, a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def rate_text(value: float) -> str:
    """Tokens a second, few of them with three digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def token_unit(work: records.ServeRequest) -> tuple[float, str]:
    """How many tokens are counted of a request for each output token, and what they are called: of prompts alone those
    of the prompt."""
    if work.output == 1:
        return work.prompt, "input tok/s"
    return 1, "tok/s"


def config_columns(work: records.ServeRequest) -> dict[str, Any]:
    """What a configuration is, in columns of any table."""
    per_output, _ = token_unit(work)
    digits = 3 if work.output == 1 else 2

    def tokens(row: records.ConfigReport) -> str:
        return rate_text(per_output * row.output_tokens_per_s_per_chip)

    def dollars(row: records.ConfigReport) -> str:
        cost = row.ranked_usd_per_mtok
        return number_text(cost and cost / per_output, digits)

    return {
        "plan": records.plan_text,
        "formats": records.formats_text,
        "tok/s/chip": (tokens, ""),
        "$/Mtok": (dollars, ""),
    }


def configs_table(
    report: records.ServeReport, configs: Sequence[records.ConfigReport], title: str, foot: str = ""
) -> laid.Grid:
    """Configurations, one a line; with a rate, the chips and dollars of the fleet that serves it."""
    compares_chips = len({row.chip for row in configs}) > 1
    is_fleet = configs[0].replicas is not None
    numbering = count(1)  # one for each row, as the table is laid out from the top

    def tpot(row: records.ConfigReport) -> str:
        estimated = "~" if compares_chips and "tokens" in row.estimated else ""
        return estimated + amount(row.tpot_s or None, "s")  # one token has no time per token

    columns = config_columns(report.workload) | {
        "#": lambda _: next(numbering),
        "TPOT": (tpot, ""),
        "meets SLO": lambda row: "yes" if row.meets_slo else "no",
    }
    without: list[str] = []
    name = "serve-configs"
    if is_fleet:
        name = "serve-fleets"
        without.append("$/Mtok")
    else:
        columns["chips"] = (lambda row: row.copies * row.chips, "")
    if report.best is None or all(row.meets_slo for row in configs):
        without.append("meets SLO")
    return grids.grid(name, configs, title, foot, columns, without)


def configs_foot(report: records.ServeReport) -> str:
    """What the table leaves open: other engines than the best's, numbers that rest on no run, whose prices were
    taken."""
    lines = [_engines_line(report), report.recommended_reason, *_missing_lines(report)]
    chips = list(dict.fromkeys(row.chip for row in report.configs))
    if len(chips) > 1:
        if any("tokens" in row.estimated for row in report.configs):
            lines.append("~ never measured on that chip: ranked, sized and priced at the slow end of the band")
        lines.append(_prices_line(report, chips))
    return "\n".join(filter(None, lines))


def _missing_lines(report: records.ServeReport) -> list[str]:
    """What rows miss that the table shows by their means, where others meet the targets."""
    if report.best is None:
        return []
    lines: list[str] = []
    for number, row in enumerate(report.configs, 1):
        if not row.meets_slo and row.quantized == report.configs[0].quantized:
            lines.append(f"#{number} misses: {' and '.join(row.violations)}")
    return lines[:MAX_MISSES]


def _engines_line(report: records.ServeReport) -> str:
    """Which rows are by other engines than the first; empty where none is."""
    rows: dict[str, list[str]] = {}
    same_formats = [row for row in report.configs if row.quantized == report.configs[0].quantized]
    for number, row in enumerate(same_formats, 1):
        rows.setdefault(records.engines_text(row), []).append(f"#{number}")
    (first, _), *others = rows.items()
    if not others:
        return ""
    return f"by {first}; " + "; ".join(f"{', '.join(row_numbers)} by {name}" for name, row_numbers in others)


def _prices_line(report: records.ServeReport, chips: Sequence[str]) -> str:
    """Whose prices were taken; empty where no kind is known."""
    kinds: dict[str, list[str]] = {}
    for price in report.prices:
        if price.chip in chips and price.kind:
            kinds.setdefault(price.kind, []).append(price.chip)
    if not kinds:
        return ""
    line = "prices: " + "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
    if len(kinds) > 1:
        line += "; list prices are 1.5 to 2 times the market's"
    return line


def frontier_table(report: records.ServeReport) -> laid.Grid:
    """Tokens/s per user against tokens/s per chip: some of the configurations that none beats in both, the recommended
    one among them."""
    frontier, best = report.frontier, report.configs[0]
    last = len(frontier) - 1
    # rows evenly spread over the frontier, both ends included
    step = max(last / (MAX_POINTS - 1), 1)
    indices = {min(round(number * step), last) for number in range(min(MAX_POINTS, len(frontier)))}
    for index, row in enumerate(frontier):
        same_plan = (row.slice, row.plan, row.batch) == (best.slice, best.plan, best.batch)
        is_best = same_plan and (row.prefill is None) == (best.prefill is None)
        if is_best and index not in indices:  # in place of its nearest neighbour
            indices.remove(min(indices - {0, last}, key=lambda other: abs(other - index)))
            indices.add(index)
    shown = [frontier[index] for index in sorted(indices)]
    highest = max(row.output_tokens_per_s_per_chip for row in shown)
    columns = config_columns(report.workload) | {"": lambda row: row.output_tokens_per_s_per_chip / highest}
    counted = f"{len(frontier)}"
    if len(shown) < len(frontier):
        counted = f"{len(shown)} of {len(frontier)}"
    title = f"frontier: {counted} configurations that no other beats in both"
    return grids.grid("serve-frontier", shown, title, own=columns, without=("$/Mtok",))


def configurations(report: records.ServeReport) -> list[laid.Block]:
    """The recommended configuration and others, those in narrower formats apart."""
    first = report.configs[0]
    same_formats = [row for row in report.configs if row.quantized == first.quantized]
    narrower = report.configs[len(same_formats) :]
    foot = configs_foot(report)
    blocks: list[laid.Block] = []
    if len(same_formats) > 1 or foot:
        title = f"configurations, the {'recommended' if first.meets_slo else 'nearest'} one first"
        table = configs_table(report, same_formats, title, foot)
        compares_chips = len({row.chip for row in same_formats}) > 1
        blocks.append(replace(table, brief_rows=MAX_BRIEF_ROWS) if compares_chips else laid.explained(table))
    if narrower:
        title = "in narrower formats than the checkpoint's (what they cost in quality is said below)"
        blocks.append(laid.explained(configs_table(report, narrower, title)))
    return blocks


def limit_text(rate: records.MaxRate) -> str:
    """What stops a larger rate: a latency or the queue."""
    return LATENCIES.get(rate.limited_by.removesuffix("_s"), rate.limited_by)


def max_rates_table(report: records.ServeReport) -> laid.Grid:
    """What a replica of each finalist holds; a star where no other gives more good tokens at a lower TPOT."""

    def replicas(rate: records.MaxRate) -> str:
        if rate.replicas is None:
            return "–"
        if rate.prefill_replicas:
            return f"{rate.prefill_replicas}+{rate.replicas}"
        return f"{rate.replicas}"

    def good_share(rate: records.MaxRate) -> str:
        # the star of the frontier stands here, since this column is always shown
        if rate.requests_per_s is None:
            return "–"
        return f"{rate.good_share:.1%}{'*' * rate.on_frontier}"

    columns = {
        "limited by": limit_text,
        "good": (good_share, ""),
        "good tok/s/chip": (lambda rate: f"{rate.good_tokens_per_s_per_chip:,.0f}", ""),
        "replicas": (replicas, ""),
    }
    rates = report.max_rates
    without = ["replicas", "headroom", "$/h"]
    if report.workload.rate_per_s:
        without = ["$/Mtok"]
    if all(rate.prefill_requests_per_s is None for rate in rates):
        without.append("prefill")
    foot = ""
    if any(rate.on_frontier for rate in rates):
        foot = "* No other gives more good tokens, those of requests that meet every target, at a lower TPOT."
    return grids.grid("serve-max-rates", rates, foot=foot, own=columns, without=without)


def limits_table(limits: Sequence[records.LimitRow]) -> laid.Grid:
    """Limits, solved at datasheet rates."""

    def value(limit: records.LimitRow) -> str:
        return f"{limit.value:,.4g}" if limit.value < 1e4 else amount(limit.value, "count")

    return grids.grid("serve-limits", limits, own={"": (value, "")})


# Other ways to serve, laid out: drafting, disaggregated prefill and decode.


def speculation_blocks(speculation: records.Speculation) -> list[laid.Block]:
    """Drafts against time per token."""
    foot = f"From a batch of {speculation.hurts_from_batch or 0:,} on drafting only hurts."
    if speculation.hurts_from_batch is None:
        foot = f"With this acceptance drafting helps at every batch that fits (up to {speculation.most_batch:,})."
    elif speculation.hurts_from_batch == 1:
        foot = "Drafting is not worth it at any batch."
    accepted = ", ".join(f"{chance:.0%}" for chance in speculation.acceptance)
    drafts = f"drafts by {speculation.drafter}, {accepted} accepted"
    title = f"speculation: {drafts}, batch {speculation.batch:,}, decoding alone"

    def faster(loop: DraftRow) -> str:
        text = f"{loop.speedup:.2f}x"
        if loop.drafts == speculation.best_drafts:
            text += " best"
        return text

    return [grids.grid("serve-drafts", speculation.rows, title, foot, {"faster": faster})]


def disaggregation_blocks(disaggregation: records.Disaggregation, rate: float | None = None) -> list[laid.Block]:
    """Prefill and decode apart, for the asked rate where there is one, and whether that is worth it."""
    title = "disaggregation: prefill and decode on replicas of their own"
    if rate:
        title += f", for {amount(rate, 'count')} requests/s"
    pools = disaggregation.pools
    if not pools:
        return [laid.Prose(f"{title}. {disaggregation.advice}")]
    if disaggregation.pays:  # recommended pools stand at the head and among the configurations
        return [grids.summary("serve-disaggregation", pools[0], advice=disaggregation.advice, apart=None)]
    columns = {
        "prefill": lambda pair: f"{pair.prefills} x {pair.prefill.copy_slice} {records.degrees_text(pair.prefill)}",
        "decode": lambda pair: f"{pair.decodes} x {pair.decode.copy_slice} {records.degrees_text(pair.decode)}",
        "batch": (lambda pair: f"{pair.decode.batch:,}", ""),
    }
    table = grids.grid("serve-pools", pools, title, own=columns, without=("$/Mtok" if rate else "$/h",))
    return [table, grids.summary("serve-disaggregation", pools[0], advice=disaggregation.advice, apart=pools[0])]
