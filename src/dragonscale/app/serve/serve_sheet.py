"""`dscale serve` laid out: what to run, how fast and at what cost, what bounds it and what to change; then where time
goes, others."""

import math
from typing import Any

from dragonscale.app.grids import grid
from dragonscale.app.serve import tables
from dragonscale.app.serve.serve_records import ConfigReport, ServeReport, config_text
from dragonscale.sheets.sheet import (
    BarPart,
    Block,
    Facts,
    Prose,
    Sheet,
    StackedBar,
    Title,
    amount,
    facts,
    folded,
)

SEEN = 0.01
"""Terms of a smaller share of a step are left to `--explain`."""
REST, LEFT = "the rest", 1e-3
"""What terms that small are together, where that is more than rounding."""


def serve_sheet(report: ServeReport, detail: bool) -> Sheet:
    """The whole answer: the summary first, then how it comes about."""
    blocks: list[Block] = [title_of(report)]
    if not report.configs:
        return Sheet((*blocks, *_trouble([*report.notes, report.advice])))
    first, work = report.configs[0], report.workload
    blocks += [] if first.meets_slo else _trouble(report.notes)
    blocks += [summary(report, first), memory_stack(first)]
    if work.output > 1:
        blocks.append(time_stack("decode", first.terms, detail))
    blocks.append(time_stack("prefill", first.prefill_terms, detail, "list" if work.output == 1 else "line"))
    if detail:
        if work.output > 1:
            blocks.append(grid("serve-terms", first.terms, "every term of a decode step, of one chip"))
        title = "every term of a prompt that runs alone, of one chip"
        blocks.append(grid("serve-terms", first.prefill_terms, title))
    blocks += configurations(report)
    blocks += [tables.frontier_table(report.frontier)] if len(report.frontier) > 1 and work.output > 1 else []
    blocks += tables.speculation_blocks(report.speculation) if report.speculation else []
    blocks += tables.disaggregation_blocks(report.disaggregation, work.rate_per_s) if report.disaggregation else []
    blocks += tables.prefix_blocks(report.prefix) if report.prefix else []
    blocks += [tables.limits_table(report.limits)] if detail and report.limits else []
    blocks += [Prose("\n".join(report.notes), "dim")] if report.notes and first.meets_slo else []
    return Sheet(tuple(blocks))


def _trouble(sentences: list[str]) -> list[Block]:
    """What is wrong, and below it what would help."""
    told = [one for one in sentences if one]
    more = "\n".join(told[1:])
    return [*(Prose(one, "bad") for one in told[:1]), *([Prose(more)] if more else [])]


def title_of(report: ServeReport) -> Title:
    """The question as it was read."""
    work = report.workload
    cached = f" ({work.cached:.0%} cached)" if work.cached else ""
    engines = sorted(set(work.engines.values()))
    engine = f"engine {work.engine}" + (f" (auto: {work.engine_why})" if work.engine_why else "")
    if len(engines) > 1:
        engine = f"by the engine that people run on each chip ({', '.join(engines)})"
    asides = [f"prompts of {work.prompt:,} tokens{cached}, {several(work.output, 'output token')}, {engine}"]
    asked = [
        f"{name} within {amount(value, 's')}" for name, value in (("TTFT", work.ttft_s), ("TPOT", work.tpot_s)) if value
    ]
    asked += [f"{amount(work.rate_per_s, 'count')} requests/s"] if work.rate_per_s else []
    searched = several(report.searched, "configuration") + " judged" if report.searched else ""
    asides += ["; ".join(filter(None, (f"asked for: {', '.join(asked)}" if asked else "", searched)))]
    size = amount(work.parameters, "count")
    where = f" on {report.configs[0].slice}" if report.configs and len(report.frontier_by_chip) == 1 else ""
    return Title(f"Serving {report.model} ({size} parameters){where}", "\n".join(filter(None, asides)))


def several(number: int, what: str) -> str:
    """A number of things, one of them without an s."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def summary(report: ServeReport, first: ConfigReport) -> Facts:
    """What to run, in a dozen lines."""
    work = report.workload
    bound, change = report.bound_and_change
    met = "good" if work.ttft_s or work.tpot_s else "key"
    late, slow = first.ttft_s > (work.ttft_s or math.inf), first.tpot_s > (work.tpot_s or math.inf)
    copies = f", {first.copies} of them on {first.slice}" if first.copies > 1 else ""
    ttft = _timed(first.ttft_s, first.ttft_low_s, first.ttft_high_s, work.ttft_s)
    return facts(
        ("serve as" if first.meets_slo else "nearest", f"{config_text(first)}, by {first.engine}", "key"),
        ("replica", f"{first.plan} on {first.copy_slice}{copies}"),
        ("TTFT", ttft, "bad" if late else met),
        ("TPOT", tpot_text(report, first), "bad" if slow else met) if work.output > 1 else None,
        ("throughput", throughput_text(report, first), "key"),
        ("error", error_text(report, first)),
        ("cost", cost_text(report, first)),
        ("fleet", fleet_text(report, first), "key"),
        ("memory", memory_text(first, work.prompt + work.output)),
        ("bound by", bound),
        ("to change", change),
        ("better", report.comparison, "key"),
        ("at best", bounds_text(first) if work.output > 1 else ""),
        ("prefill", prefill_text(report, first)),
    )


def _timed(value: float, low: float | None, high: float | None, target: float | None) -> str:
    """An expected time with its band and its target."""
    asked = f"; asked for: {amount(target, 's')}" if target else ""
    return f"{amount(value, 's')} expected ({amount(low, 's')} to {amount(high, 's')}){asked}"


def tpot_text(report: ServeReport, first: ConfigReport) -> str:
    """The time per output token; beside a decode step alone where prefill of other requests comes between."""
    text = _timed(first.tpot_s, first.tpot_low_s, first.tpot_high_s, report.workload.tpot_s)
    longer = first.tpot_s > 1.01 * first.decode_step_s and not first.drafts
    return text + (f"; {amount(first.decode_step_s, 's')} without prefill of other requests" if longer else "")


def throughput_text(report: ServeReport, first: ConfigReport) -> str:
    """Tokens of a chip, of a user and of a replica."""
    text = f"{first.output_tokens_per_s_per_chip:,.0f} tok/s per chip"
    if first.tokens_low is not None and first.tokens_high is not None:
        text += f" ({first.tokens_low:,.0f} to {first.tokens_high:,.0f})"
    user = f", {first.tokens_per_s_per_user:,.0f} per user" if report.workload.output > 1 else ""
    return f"{text}{user}; {amount(first.requests_per_s, 'count')} requests/s per replica"


def error_text(report: ServeReport, first: ConfigReport) -> str:
    """What the bands rest on."""
    often = "a guess" if len(first.estimated) == 3 else "80% intervals from published runs"
    return f"{often} ({report.expected_error.source})."


def cost_text(report: ServeReport, first: ConfigReport) -> str:
    """What a million tokens cost."""
    if first.cost_usd_per_mtok is None:
        return ""
    at = "".join(f", at {row.text}" for row in report.prices if row.chip == first.chip)
    own = (first.cost_usd_per_mtok, first.cost_usd_per_mtok_input, first.cost_usd_per_mtok_output)
    both, prompt, output = (tables.counted(value, 2) for value in own)
    return f"${both} per million output tokens with their prompts (${prompt} input, ${output} output alone){at}"


def fleet_text(report: ServeReport, first: ConfigReport) -> str:
    """What the asked rate takes."""
    rate = report.workload.rate_per_s
    if first.replicas is None or first.fleet_chips is None or not rate:
        return ""
    dollars = "" if first.fleet_usd_per_h is None else f", ${first.fleet_usd_per_h:,.0f}/h"
    slices = f"{first.fleet_chips // (first.copies * first.chips):,} x {first.slice}"
    return (
        f"{several(first.replicas, 'replica')} for {amount(rate, 'count')} requests/s: {slices} "
        f"({several(first.fleet_chips, 'chip')}){dollars}; each at {rate / first.replicas / first.requests_per_s:.0%} "
        f"of {amount(first.requests_per_s, 'count')}/s or less"
    )


def memory_text(first: ConfigReport, length: int) -> str:
    """What is used and what is left of a chip."""
    use = first.memory
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB a chip"
    if use is None:
        return used
    pages = f"{use.pages:,} pages of {use.page_tokens}" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    return (
        f"{used}; {use.free_bytes / 1e9:.1f}GB free for KV cache, {use.left_alone_bytes / 1e9:.1f}GB unused by the "
        f"engine; largest batch {first.max_batch:,} ({pages}; {amount(use.sequence_bytes, 'bytes')} of KV cache for "
        f"{length:,} tokens, {amount(use.token_bytes, 'bytes')} a token)"
    )


def bounds_text(first: ConfigReport) -> str:
    """What a decode step cannot be shorter than; one number where both bounds agree."""
    kernels, everything = amount(first.roofline_s, "s"), amount(first.lower_s, "s")
    if kernels == everything:
        return f"{kernels} a decode step at datasheet rates"
    return f"{kernels} a decode step at datasheet rates kernel by kernel, {everything} with perfect overlap"


def prefill_text(report: ServeReport, first: ConfigReport) -> str:
    """What of a prompt is computed, and in how many chunks."""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    chunks = f" in {first.prefill_chunks} chunks of up to {first.chunk_tokens:,}" if first.prefill_chunks > 1 else ""
    alone = sum(row.expected_s for row in first.prefill_terms)
    return f"{amount(alone, 's')} for a prompt of {new:,} tokens{chunks} with no other request running"


def memory_stack(first: ConfigReport) -> StackedBar:
    """What fills the HBM of a chip; the rest of the bar is free or unused."""
    use, limit = first.memory, first.hbm_limit_bytes
    words = {"weights": "weights", "KV cache": "cache", "workspace": "working", "reserved": "reserve"}
    held = [(name, getattr(use, f"{field}_bytes")) for name, field in words.items()] if use is not None else []
    parts = [BarPart(name, size, f"{size / 1e9:.1f}GB") for name, size in held if size > 0]
    return StackedBar("memory", tuple(parts), limit, f"{first.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB", "line")


def time_stack(name: str, rows: list[Any], detail: bool, legend: str = "list") -> StackedBar:
    """Where an iteration goes; its parts add up to it."""
    total = sum(row.expected_s for row in rows) or 1.0
    seen = [row for row in rows if detail or row.expected_s > SEEN * total]
    parts = [BarPart(row.name, row.expected_s, amount(row.expected_s, "s")) for row in seen]
    rest = total - sum(part.value for part in parts)
    shown = folded(parts, "s")
    if rest > LEFT * total:
        if shown and shown[-1].name == REST:
            rest, shown = rest + shown[-1].value, shown[:-1]
        shown = (*shown, BarPart(REST, rest, amount(rest, "s")))
    return StackedBar(name, shown, total, amount(total, "s"), legend)


def configurations(report: ServeReport) -> list[Block]:
    """The recommended configuration and others, those in narrower formats apart."""
    own = [one for one in report.configs if one.quantized == report.configs[0].quantized]
    apart = report.configs[len(own) :]
    blocks: list[Block] = []
    if len(own) > 1 or tables.configs_foot(report):
        blocks.append(
            tables.configs_table(report, own, "configurations, the recommended one first", tables.configs_foot(report))
        )
    if apart:
        title = "in narrower formats than the checkpoint's (what they cost in quality is said below)"
        blocks.append(tables.configs_table(report, apart, title))
    return blocks
