"""Other ways to serve, laid out: drafting, disaggregated prefill and decode, prefix caching."""

from typing import Any

from dragonscale.app.serve.tables import degrees_text, money
from dragonscale.sheets.sheet import Block, Column, Prose, amount, facts, records, table


def speculation_blocks(found: Any) -> list[Block]:
    """Drafts against time per token."""
    if found.hurts_from_batch is None:
        until = f"Drafting helps at every batch that fits (up to {found.most_batch:,})."
    elif found.hurts_from_batch == 1:
        until = "Drafting is not worth it at any batch."
    else:
        until = f"From a batch of {found.hurts_from_batch:,} on drafting only hurts."
    accepted = ", ".join(f"{chance:.0%}" for chance in found.acceptance)
    title = f"speculation: drafts by {found.drafter}, {accepted} accepted, batch {found.batch:,}"
    columns = {
        "drafts": "drafts",
        "drafting": ("drafting_s", "s"),
        "verifying": ("verifying_s", "s"),
        "tokens": (lambda row: f"{row.tokens:.2f}", ""),
        "TPOT": ("per_token_s", "s"),
        "faster": lambda row: f"{row.speedup:.2f}x" + (" best" if row.drafts == found.best_drafts else ""),
    }
    return [records(found.rows, columns, title, until, how={"drafting": {"keep": 3}, "verifying": {"keep": 2}})]


def disaggregation_blocks(found: Any, rate: float | None = None) -> list[Block]:
    """Prefill and decode apart, for the asked rate where there is one, and whether that is worth it."""
    told = f", for {amount(rate, 'count')} requests/s" if rate else ""
    title = f"disaggregation: prefill and decode on replicas of their own{told}"
    if not found.pools:
        return [Prose(f"{title}. {found.advice}")]
    columns = [
        Column("prefill", wrap=True),
        Column("decode", wrap=True),
        Column("batch", right=True, keep=5),
        Column("TTFT", right=True),
        Column("TPOT", right=True),
        Column("tok/s/chip", right=True),
        Column("chips", right=True, keep=4),
        Column("$/h" if rate else "$/Mtok", right=True),
    ]
    rows = [
        [
            f"{pair.prefills} x {pair.prefill.copy_slice} {degrees_text(pair.prefill)}",
            f"{pair.decodes} x {pair.decode.copy_slice} {degrees_text(pair.decode)}",
            f"{pair.decode.batch:,}",
            amount(pair.ttft_s, "s"),
            amount(pair.tpot_s, "s"),
            f"{pair.output_tokens_per_s_per_chip:,.0f}",
            f"{pair.chips:,}",
            money(pair.usd_per_h, 0) if rate else money(pair.cost_usd_per_mtok),
        ]
        for pair in found.pools
    ]
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
    return [table(columns, rows, title), details]


def prefix_blocks(found: Any) -> list[Block]:
    """What a cached prefix saves, and where it could live."""
    times = (
        f"{amount(found.prefill_computed_s, 's')} computed, {amount(found.prefill_from_hbm_s, 's')} with the prefix in "
        f"HBM, {amount(found.prefill_from_host_s, 's')} loaded from the host"
    )
    room = (
        f"{max(1, int(found.prefixes_hbm)):,} in HBM, {found.prefixes_host:,.0f} in each 100GB of host memory per "
        "chip; "
        "all requests share one, which every data rank holds once"
    )
    size = f"{found.shared_tokens:,} tokens of each prompt, {amount(found.prefix_bytes, 'bytes')} on each chip"
    return [
        facts(("prefix cache", size), ("prefill", times), ("room for", room), ("saves", found.advice)),
    ]
