"""Tables of configurations and their frontier, and what stands beside one: largest rates, limits, drafting, pools."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount
from dragonscale.commands import grids
from dragonscale.commands.serve import serve_records as records
from dragonscale.serving.steady.targets import LATENCIES

MOST_POINTS = 8
"""Rows of the frontier that are shown."""


def counted(value: float | None, digits: int = 0) -> str:
    """A number as text, a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def rate_text(value: float) -> str:
    """Tokens a second, few of them with three digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def token_words(work: records.ServeRequest) -> tuple[float, str]:
    """How many tokens are counted of a request for each output token, and what they are called: of prompts alone those
    of the prompt."""
    return (work.prompt, "input tok/s") if work.output == 1 else (1, "tok/s")


def config_columns(work: records.ServeRequest) -> dict[str, Any]:
    """What a configuration is, in columns of any table."""
    each, digits = token_words(work)[0], 3 if work.output == 1 else 2
    return {
        "plan": records.plan_text,
        "formats": records.formats_text,
        "tok/s/chip": (lambda one: rate_text(each * one.output_tokens_per_s_per_chip), ""),
        "$/Mtok": (lambda one: counted(one.ranked_usd_per_mtok and one.ranked_usd_per_mtok / each, digits), ""),
    }


def configs_table(
    report: records.ServeReport, configs: Sequence[records.ConfigReport], title: str, foot: str = ""
) -> laid.Grid:
    """Configurations, one a line; with a rate, the chips and dollars of the fleet that serves it."""
    several, fleet = len({one.chip for one in configs}) > 1, configs[0].replicas is not None
    numbers = count(1)
    columns = config_columns(report.workload) | {
        "#": lambda _: next(numbers),
        # one token has no time per token
        "TPOT": (lambda one: "~" * (several and "tokens" in one.estimated) + amount(one.tpot_s or None, "s"), ""),
        "meets SLO": lambda one: "yes" if one.meets_slo else "no",
    }
    columns |= {} if fleet else {"chips": (lambda one: one.copies * one.chips, "")}
    missed = report.best is not None and not all(one.meets_slo for one in configs)
    without = [*["$/Mtok"] * fleet, *["meets SLO"] * (not missed)]
    return grids.grid("serve-fleets" if fleet else "serve-configs", configs, title, foot, columns, without)


def configs_foot(report: records.ServeReport) -> str:
    """What the table leaves open: other engines than the best's, numbers that rest on no run, whose
    prices were taken."""
    configs, chips = report.configs, list(dict.fromkeys(one.chip for one in report.configs))
    own = [records.engines_text(one) for one in configs if one.quantized == configs[0].quantized]
    rows = {
        name: [f"#{number}" for number, engine in enumerate(own, 1) if engine == name] for name in dict.fromkeys(own)
    }
    told = "; ".join(f"{', '.join(numbers)} by {name}" for name, numbers in [*rows.items()][1:])
    lines = [f"by {own[0]}; {told}"] if told else []
    lines += filter(None, [report.recommended_reason])
    if len(chips) > 1:
        slow = "~ never measured on that chip: ranked, sized and priced at the slow end of the band"
        lines += [slow] if any("tokens" in one.estimated for one in configs) else []
        kinds: dict[str, list[str]] = {}
        for row in report.prices:
            if row.chip in chips and row.kind:
                kinds.setdefault(row.kind, []).append(row.chip)
        told = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
        told += "; list prices are 1.5 to 2 times the market's" * (len(kinds) > 1)
        lines += [f"prices: {told}"] if told else []
    return "\n".join(lines)


def frontier_table(report: records.ServeReport) -> laid.Grid:
    """Tokens/s per user against tokens/s per chip: some of the configurations that none beats in both, the recommended
    one among them."""
    frontier, best = report.frontier, report.configs[0]
    step = max((len(frontier) - 1) / (MOST_POINTS - 1), 1)
    places = {min(round(number * step), len(frontier) - 1) for number in range(min(MOST_POINTS, len(frontier)))}
    for place, one in enumerate(frontier):
        alike = (one.slice, one.plan, one.batch) == (best.slice, best.plan, best.batch)
        if alike and (one.prefill is None) == (best.prefill is None) and place not in places:
            places ^= {place, min(places - {0, len(frontier) - 1}, key=lambda near: abs(near - place))}
    shown = [frontier[place] for place in sorted(places)]
    most = max(one.output_tokens_per_s_per_chip for one in shown)
    columns = config_columns(report.workload) | {"": lambda one: one.output_tokens_per_s_per_chip / most}
    part = f"{len(shown)} of " if len(shown) < len(frontier) else ""
    title = f"frontier: {part}{len(frontier)} configurations that no other beats in both"
    return grids.grid("serve-frontier", shown, title, own=columns, without=("$/Mtok",))


def configurations(report: records.ServeReport) -> list[laid.Block]:
    """The recommended configuration and others, those in narrower formats apart."""
    own = [one for one in report.configs if one.quantized == report.configs[0].quantized]
    apart = report.configs[len(own) :]
    blocks: list[laid.Block] = []
    if len(own) > 1 or configs_foot(report):
        title = f"configurations, the {'recommended' if own[0].meets_slo else 'nearest'} one first"
        blocks.append(configs_table(report, own, title, configs_foot(report)))
    if apart:
        title = "in narrower formats than the checkpoint's (what they cost in quality is said below)"
        blocks.append(configs_table(report, apart, title))
    return blocks


def _sizes(row: records.MaxRate) -> str:
    if row.replicas is None:
        return "–"
    return f"{row.prefill_replicas}+{row.replicas}" if row.prefill_replicas else f"{row.replicas}"


def limit_text(row: records.MaxRate) -> str:
    """What stops a larger rate: a latency or the queue."""
    return LATENCIES.get(row.limited_by[:-2], row.limited_by)


def _good_share(row: records.MaxRate) -> str:
    """The requests that meet every target, with the star of a row on the frontier: this column is always shown."""
    if row.requests_per_s is None:
        return "–"
    return f"{row.good_share:.1%}{'*' * row.on_frontier}"


def max_rates_table(report: records.ServeReport) -> laid.Grid:
    """What a replica of each finalist holds; a star where no other gives more good tokens at a lower TPOT."""
    columns = {
        "limited by": limit_text,
        "good": (_good_share, ""),
        "good tok/s/chip": (lambda row: f"{row.good_tokens_per_s_per_chip:,.0f}", ""),
        "replicas": (_sizes, ""),
    }
    rate, rows = report.workload.rate_per_s, report.max_rates
    without = ["prefill"] * all(row.prefill_requests_per_s is None for row in rows)
    without += ["$/Mtok"] if rate else ["replicas", "headroom", "$/h"]
    foot = ""
    if any(row.on_frontier for row in rows):
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
    # pools that are recommended stand at the head and among the configurations
    apart = None if found.pays else found.pools[0]
    details = grids.summary("serve-disaggregation", found.pools[0], advice=found.advice, apart=apart)
    table = grids.grid("serve-pools", found.pools, title, own=columns, without=("$/Mtok" if rate else "$/h",))
    return [details] if found.pays else [table, details]
