"""The text of other ways to serve: drafting, pools for prefill and decode, prefix caching."""

from typing import Any

from dragonscale.cli.show import amount, table


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
        f"speculation: {found.drafter} draft, {', '.join(f'{chance:.0%}' for chance in found.acceptance)} accepted, batch {found.batch}",
        table(header, rows, right=[0, 1, 2, 3, 4], indent=2),
        until,
    ]


def disaggregation_lines(found: Any) -> list[str]:
    """The best pools and whether they pay."""
    rows = [
        [
            f"{pair.prefills} x {pair.prefill.copy_slice}",
            f"{pair.decodes} x {pair.decode.copy_slice}",
            pair.decode.batch,
            amount(pair.ttft_s, "s"),
            amount(pair.tpot_s, "s"),
            amount(pair.transfer_s, "s"),
            f"{pair.output_tokens_per_s_per_chip:,.0f}",
            "–" if pair.cost_usd_per_mtok is None else f"{pair.cost_usd_per_mtok:,.2f}",
        ]
        for pair in found.pools
    ]
    header = ["prefill", "decode", "batch", "TTFT", "TPOT", "transfer", "tok/s/chip", "$/Mtok"]
    lines = ["disaggregation: prefill and decode in pools of their own"]
    if rows:
        first = found.pools[0]
        lines += [
            table(header, rows, right=[2, 3, 4, 5, 6, 7], indent=2),
            f"  prefill {first.prefill.plan}; decode {first.decode.plan}",
            f"  at {first.requests_per_s:.3g} requests/s prefill replicas are busy {first.prefill_load:.0%} of the time; TTFT is a mean, "
            f"1 in 20 takes {amount(first.ttft_p95_s, 's')}",
            f"  caches of {amount(first.transfer_bytes, 'bytes')} travel, {amount(first.transfer_bytes_per_s, 'bytes/s')} in all of "
            f"{amount(first.port_bytes_per_s, 'bytes/s')} that the prefill pool can send",
        ]
    return [*lines, found.advice]


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
