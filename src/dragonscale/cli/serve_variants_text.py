"""The text of other ways to serve: drafting, pools for prefill and decode, prefix caching."""

from typing import Any

from dragonscale.cli.show import amount, table

SHORT = {"tensor": "tp", "width": "w", "data": "dp", "expert": "ep", "context": "cp", "pipe": "pp"}


def ways_text(one: Any) -> str:
    """The sharding of a plan in a few letters."""
    ways = [f"{short}{getattr(one, name)}" for name, short in SHORT.items() if getattr(one, name) > 1]
    ways += [f"by {one.spread}"] if one.spread != "copy" else []
    return " ".join(ways) or "tp1"


def speculation_lines(found: Any) -> list[str]:
    """Drafts against time per token."""
    rows = [
        [
            row.drafts,
            amount(row.drafting_s, "s"),
            amount(row.verifying_s, "s"),
            f"{row.tokens:.2f}",
            amount(row.per_token_s, "s"),
            f"{row.speedup:.2f}x" + (" best" if row.drafts == found.best_drafts else ""),
        ]
        for row in found.rows
    ]
    header = ["drafts", "drafting", "verifying", "tokens", "per token", "faster"]
    if found.hurts_from_batch is None:
        until = f"Drafting helps at every batch that fits (up to {found.most_batch:,})."
    elif found.hurts_from_batch == 1:
        until = "Drafting does not pay at any batch."
    else:
        until = f"From a batch of {found.hurts_from_batch} on drafting only hurts."
    return [
        f"speculation: drafts by {found.drafter}, {', '.join(f'{chance:.0%}' for chance in found.acceptance)} accepted, batch {found.batch}",
        table(header, rows, right=[0, 1, 2, 3, 4], indent=2),
        until,
    ]


def disaggregation_lines(found: Any, rate: float | None = None) -> list[str]:
    """The best pools, for the asked rate where there is one, and whether they pay."""
    rows = [
        [
            f"{pair.prefills} x {pair.prefill.copy_slice} {ways_text(pair.prefill)}",
            f"{pair.decodes} x {pair.decode.copy_slice} {ways_text(pair.decode)}",
            pair.decode.batch,
            amount(pair.ttft_s, "s"),
            amount(pair.tpot_s, "s"),
            f"{pair.output_tokens_per_s_per_chip:,.0f}",
            pair.chips,
            _money(pair.usd_per_h, 0) if rate else _money(pair.cost_usd_per_mtok, 2),
        ]
        for pair in found.pools
    ]
    header = ["prefill", "decode", "batch", "TTFT", "TPOT", "tok/s/chip", "chips", "$/h" if rate else "$/Mtok"]
    asked = f", for {amount(rate, 'count')} requests/s" if rate else ""
    lines = [f"disaggregation: prefill and decode in pools of their own{asked}"]
    if rows:
        first = found.pools[0]
        lines += [
            table(header, rows, right=range(2, len(header)), indent=2),
            f"  prefill {first.prefill.plan}; decode {first.decode.plan}",
            f"  at {first.requests_per_s:.3g} requests/s prefill replicas are busy {first.prefill_load:.0%} of the time; TTFT is a mean, "
            f"1 in 20 takes {amount(first.ttft_p95_s, 's')}",
            f"  caches of {amount(first.transfer_bytes, 'bytes')} travel in {amount(first.transfer_s, 's')}, {amount(first.transfer_bytes_per_s, 'bytes/s')} in all of "
            f"{amount(first.port_bytes_per_s, 'bytes/s')} that the prefill pool can send",
        ]
    return [*lines, found.advice]


def _money(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def prefix_lines(found: Any) -> list[str]:
    """What a cached prefix saves."""
    return [
        f"prefix cache: {found.shared_tokens:,} tokens of each prompt, {amount(found.prefix_bytes, 'bytes')} on each chip",
        f"  prefill {amount(found.prefill_computed_s, 's')} computed, {amount(found.prefill_from_hbm_s, 's')} with the prefix in HBM, "
        f"{amount(found.prefill_from_host_s, 's')} loaded from the host",
        "  all requests share one, which every data rank holds once",
        f"  room for {max(1, int(found.prefixes_hbm)):,} in HBM, {found.prefixes_host:,.0f} in each 100GB of host memory per chip",
        found.advice,
    ]
