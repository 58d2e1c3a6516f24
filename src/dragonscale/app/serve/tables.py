"""The tables of `dscale serve`: configurations, the frontier, terms, limits, and other ways to serve."""

from collections.abc import Sequence
from itertools import count

from dragonscale.app.grids import grid
from dragonscale.app.serve.serve_records import (
    ConfigReport,
    Disaggregation,
    LimitRow,
    PrefixCache,
    ServeReport,
    Speculation,
    degrees_text,
    formats_text,
    plan_text,
)
from dragonscale.sheets.sheet import Block, Grid, Prose, amount, facts

MOST_POINTS = 8
"""Rows of the frontier that are shown."""


def counted(value: float | None, digits: int = 0) -> str:
    """A number as text, a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


CONFIG = {"plan": plan_text, "formats": formats_text}
"""What a configuration is, in columns of any table."""


def configs_table(report: ServeReport, configs: Sequence[ConfigReport], title: str, foot: str = "") -> Grid:
    """Configurations, one a line; with a rate, the chips and dollars of the fleet that serves it."""
    several, fleet = len({one.chip for one in configs}) > 1, configs[0].replicas is not None
    numbers = count(1)
    columns = CONFIG | {
        "#": lambda _: next(numbers),
        # one token has no time per token
        "TPOT": (lambda one: "~" * (several and "tpot" in one.estimated) + amount(one.tpot_s or None, "s"), ""),
        "meets SLO": lambda one: "yes" if one.meets_slo else "no",
    }
    columns |= {} if fleet else {"chips": (lambda one: one.copies * one.chips, "")}
    missed = report.best is not None and not all(one.meets_slo for one in configs)
    without = () if missed else ("meets SLO",)
    return grid("serve-fleets" if fleet else "serve-configs", configs, title, foot, columns, without)


def configs_foot(report: ServeReport) -> str:
    """What the table leaves open: other engines than the best's, numbers that rest on no run, whose
    prices were taken."""
    configs, chips = report.configs, list(dict.fromkeys(one.chip for one in report.configs))
    own = [one.engine for one in configs if one.quantized == configs[0].quantized]
    rows = {
        name: [f"#{number}" for number, engine in enumerate(own, 1) if engine == name] for name in dict.fromkeys(own)
    }
    told = "; ".join(f"{', '.join(numbers)} by {name}" for name, numbers in [*rows.items()][1:])
    lines = [f"by {own[0]}; {told}"] if told else []
    if len(chips) > 1:
        guessed = list(dict.fromkeys(one.chip for one in configs if "tpot" in one.estimated))
        lines += [f"~ estimated, not fitted: no such run was measured on {', '.join(guessed)}"] if guessed else []
        kinds: dict[str, list[str]] = {}
        for row in report.prices:
            if row.chip in chips and row.kind:
                kinds.setdefault(row.kind, []).append(row.chip)
        told = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
        lines += [f"prices: {told}"] if told else []
    return "\n".join(lines)


def frontier_table(frontier: Sequence[ConfigReport]) -> Grid:
    """Speed of a user against throughput of a chip: some of the configurations that none beats in both."""
    step = max((len(frontier) - 1) / (MOST_POINTS - 1), 1)
    places = sorted({round(number * step) for number in range(min(MOST_POINTS, len(frontier)))})
    shown = [frontier[min(place, len(frontier) - 1)] for place in places]
    most = max(one.output_tokens_per_s_per_chip for one in shown)
    columns = CONFIG | {"": lambda one: one.output_tokens_per_s_per_chip / most}
    title = f"frontier: {len(frontier)} configurations that no other beats in both"
    return grid("serve-frontier", shown, title, own=columns)


def limits_table(limits: Sequence[LimitRow]) -> Grid:
    """Limits, solved at datasheet rates."""
    value = (lambda row: f"{row.value:,.4g}" if row.value < 1e4 else amount(row.value, "count"), "")
    return grid("serve-limits", limits, own={"": value})


# Other ways to serve, laid out: drafting, disaggregated prefill and decode, prefix caching.


def speculation_blocks(found: Speculation) -> list[Block]:
    """Drafts against time per token."""
    if found.hurts_from_batch is None:
        until = f"Drafting helps at every batch that fits (up to {found.most_batch:,})."
    elif found.hurts_from_batch == 1:
        until = "Drafting is not worth it at any batch."
    else:
        until = f"From a batch of {found.hurts_from_batch:,} on drafting only hurts."
    accepted = ", ".join(f"{chance:.0%}" for chance in found.acceptance)
    title = f"speculation: drafts by {found.drafter}, {accepted} accepted, batch {found.batch:,}"
    best = {"faster": lambda row: f"{row.speedup:.2f}x" + (" best" if row.drafts == found.best_drafts else "")}
    return [grid("serve-drafts", found.rows, title, until, best)]


def disaggregation_blocks(found: Disaggregation, rate: float | None = None) -> list[Block]:
    """Prefill and decode apart, for the asked rate where there is one, and whether that is worth it."""
    told = f", for {amount(rate, 'count')} requests/s" if rate else ""
    title = f"disaggregation: prefill and decode on replicas of their own{told}"
    if not found.pools:
        return [Prose(f"{title}. {found.advice}")]
    columns = {
        "prefill": lambda pair: f"{pair.prefills} x {pair.prefill.copy_slice} {degrees_text(pair.prefill)}",
        "decode": lambda pair: f"{pair.decodes} x {pair.decode.copy_slice} {degrees_text(pair.decode)}",
        "batch": (lambda pair: f"{pair.decode.batch:,}", ""),
    }
    first = found.pools[0]
    sent = f"{amount(first.transfer_bytes, 'bytes')} a request in {amount(first.transfer_s, 's')}"
    links = f"{amount(first.transfer_bytes_per_s, 'bytes/s')} of {amount(first.port_bytes_per_s, 'bytes/s')}"
    details = facts(
        ("worth it?", found.advice, "key"),
        ("prefill", f"{first.prefill.plan}, busy {first.prefill_load:.0%} at {first.requests_per_s:.3g} requests/s"),
        ("decode", first.decode.plan),
        ("TTFT", f"{amount(first.ttft_s, 's')} on average, {amount(first.ttft_p95_s, 's')} at p95"),
        ("KV transfer", f"{sent}; {links} that the prefill replicas can send"),
    )
    return [grid("serve-pools", found.pools, title, own=columns, without=("$/Mtok" if rate else "$/h",)), details]


def prefix_blocks(found: PrefixCache) -> list[Block]:
    """What a cached prefix saves, and where it could live."""
    times = (
        f"{amount(found.prefill_computed_s, 's')} computed, {amount(found.prefill_from_hbm_s, 's')} with the prefix in "
        f"HBM, {amount(found.prefill_from_host_s, 's')} loaded from the host"
    )
    room = (
        f"{max(1, int(found.prefixes_hbm)):,} in HBM, {found.prefixes_host:,.0f} in each 100GB of host memory per "
        "chip; all requests share one, which every data rank holds once"
    )
    size = f"{found.shared_tokens:,} tokens of each prompt, {amount(found.prefix_bytes, 'bytes')} on each chip"
    return [
        facts(("prefix cache", size), ("prefill", times), ("room for", room), ("saves", found.advice)),
    ]
