"""The text of `dscale serve`: the best configurations, where the time and the memory of the best go, the frontier."""

import textwrap
from collections.abc import Sequence
from typing import Any

from dragonscale.cli.serve_variants_text import disaggregation_lines, prefix_lines, speculation_lines, ways_text
from dragonscale.cli.show import WIDTH, amount, bar, table

FILLS = "█▓▒░▚▞▤▥◆"
MOST_POINTS = 8


def text_of(report: Any) -> str:
    """The whole answer."""
    lines = [*_heading(report), ""]
    if not report.configs:
        return "\n".join([*lines, *report.notes, report.advice])
    best = report.configs[0]
    own = [one for one in report.configs if one.quantized == best.quantized]
    lines += [configs_table(own), ""]
    if len(own) < len(report.configs):
        lines += [
            "in narrower formats than the checkpoint's (what they cost in quality is said below)",
            configs_table(report.configs[len(own) :]),
            "",
        ]
    lines[-1:] = [*table_notes(report), ""]
    lines += [*best_lines(report, best), ""]
    if len(report.frontier) > 1 and report.workload.output > 1:
        lines += [frontier_table(report.frontier), ""]
    for part, shown in (
        (report.speculation, speculation_lines),
        (report.disaggregation, lambda found: disaggregation_lines(found, report.workload.rate_per_s)),
        (report.prefix, prefix_lines),
        (report.limits, limit_lines),
    ):
        if part:
            lines += [*shown(part), ""]
    return "\n".join([*lines, *report.notes, report.advice])


def _heading(report: Any) -> list[str]:
    work = report.workload
    cached = f" ({work.cached:.0%} of them cached)" if work.cached else ""
    several = sorted(set(work.engines.values()))
    engine = work.engine if len(several) < 2 else f"by the engine that people run on each chip ({', '.join(several)})"
    lines = [
        f"{report.model} ({amount(work.parameters, 'count')} parameters), {engine}",
        f"prompts of {work.prompt:,} tokens{cached}, {counted(work.output, 'output token')}",
    ]
    if work.engine_why:
        lines.insert(1, f"{work.engine}: {work.engine_why}")
    asked = [
        f"{name} within {amount(value, 's')}" for name, value in (("TTFT", work.ttft_s), ("TPOT", work.tpot_s)) if value
    ]
    asked += [f"{amount(work.rate_per_s, 'count')} requests/s"] if work.rate_per_s else []
    told = counted(report.searched, "configuration") + (f"; asked for: {', '.join(asked)}" if asked else "")
    return [*lines, told] if report.searched else lines


def formats_text(one: Any) -> str:
    """Formats in one word where they agree: weights/matmuls, and the cache where it differs."""
    weights, compute, cache = (one.dtypes[name] for name in ("weights", "compute", "kv"))
    if compute.startswith(weights):  # fp8, fp8_block
        return compute if cache == weights else f"{compute} kv {cache}"
    return f"{weights}/{compute}" if cache == compute else f"{weights}/{compute} kv {cache}"


def plan_text(one: Any) -> str:
    """A plan in a few letters, with its copies."""
    return (f"{one.copies}x " if one.copies > 1 else "") + ways_text(one)


def configs_table(configs: Sequence[Any]) -> str:
    """The best configurations, one a line; with a rate, the chips and dollars of the fleet that serves it."""
    fleet, several = configs[0].replicas is not None, len({_chip(one) for one in configs}) > 1
    last = ["chips", "$/h"] if fleet else ["$/Mtok"]
    rows = [
        [
            number,
            one.slice,
            plan_text(one),
            formats_text(one),
            one.batch,
            amount(one.ttft_s, "s"),
            ("~" if several and "tpot" in one.estimated else "") + _tpot(one.tpot_s),
            f"{one.output_tokens_per_s_per_chip:,.0f}",
            *([one.fleet_chips, _hourly(one.fleet_usd_per_h)] if fleet else [dollars(one.cost_usd_per_mtok)]),
        ]
        for number, one in enumerate(configs, 1)
    ]
    header = ["#", "slice", "plan", "formats", "batch", "TTFT", "TPOT", "tok/s/chip", *last]
    return table(header, rows, right=[0, *range(4, len(header))])


def _chip(one: Any) -> str:
    return one.copy_slice.partition(":")[0]


def table_notes(report: Any) -> list[str]:
    """What the table leaves open: other engines than the best's, numbers that rest on no run, whose prices were taken."""
    configs, chips = report.configs, list(dict.fromkeys(_chip(one) for one in report.configs))
    own = [one.engine for one in configs if one.quantized == configs[0].quantized]
    rows = {
        name: [f"#{number}" for number, engine in enumerate(own, 1) if engine == name] for name in dict.fromkeys(own)
    }
    told = "; ".join(f"{', '.join(numbers)} by {name}" for name, numbers in [*rows.items()][1:])
    notes = [f"by {own[0]}; {told}"] if told else []
    if len(chips) == 1:
        return [line for note in notes for line in textwrap.wrap(note, WIDTH)]
    guessed = list(dict.fromkeys(_chip(one) for one in configs if "tpot" in one.estimated))
    notes += [f"~ estimated, not fitted: no such run was measured on {', '.join(guessed)}"] if guessed else []
    kinds: dict[str, list[str]] = {}
    for row in report.prices:
        if row.chip in chips and row.kind:
            kinds.setdefault(row.kind, []).append(row.chip)
    told = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
    notes += [f"prices: {told}"] if told else []
    return [line for note in notes for line in textwrap.wrap(note, WIDTH)]


def counted(number: int, what: str) -> str:
    """A number of things, one of them without an s."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _tpot(seconds: float) -> str:
    """The time per token; an answer of one token has none."""
    return amount(seconds, "s") if seconds else "–"


def _hourly(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def best_lines(report: Any, best: Any) -> list[str]:
    """The best configuration: its steps, its memory, its costs."""
    copies = f"{best.copies} replicas on {best.slice}" if best.copies > 1 else f"on {best.slice}"
    lines = [f"best: {best.plan}", f"      {copies}, batch {best.batch}" + (" each" if best.copies > 1 else "")]
    if report.workload.output > 1:
        lines += ["", *_stacked("decode", [(row.name, row.expected_s) for row in best.terms]), _bounds(best)]
    lines += ["", *_stacked("prefill", [(row.name, row.expected_s) for row in best.prefill_terms])]
    lines.append(f"  {prefill_label(report, best)}")
    lines += ["", *_memory(best, report.workload.prompt + report.workload.output), "", *_costs(report, best)]
    return [*lines, *band_lines(report, best)]


def prefill_label(report: Any, best: Any) -> str:
    """What of a prompt the prefill is: all of it, in so many chunks."""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    chunks = (
        f" in {best.prefill_chunks} chunks of up to {best.chunk_tokens:,} tokens" if best.prefill_chunks > 1 else ""
    )
    return f"whole prompt of {new:,} tokens{chunks}, with no other request running"


def band_lines(report: Any, best: Any) -> list[str]:
    """The expected numbers with their bands, and what these rest on."""
    shown = [
        f"TPOT {_band(best.tpot_s, best.tpot_low_s, best.tpot_high_s)}",
        f"TTFT {_band(best.ttft_s, best.ttft_low_s, best.ttft_high_s)}",
        f"{best.output_tokens_per_s_per_chip:,.0f} tok/s/chip ({best.tokens_low:,.0f} to {best.tokens_high:,.0f})",
    ]
    often = "a guess" if len(best.estimated) == len(shown) else "80% intervals from published runs"
    told = f"{', '.join(shown[report.workload.output == 1 :])}; {often} ({report.expected_error.source})."
    return textwrap.wrap(told, WIDTH, initial_indent="expected ", subsequent_indent="  ")


def _band(value: float, low: float, high: float) -> str:
    return f"{amount(value, 's')} ({amount(low, 's')} to {amount(high, 's')})"


def _bounds(best: Any) -> str:
    """What a decode step cannot be shorter than; one number where both bounds agree."""
    kernels, all_over = amount(best.roofline_s, "s"), amount(best.lower_s, "s")
    if kernels == all_over:
        return f"  bound at datasheet rates: {kernels}"
    return f"  bounds at datasheet rates: {kernels} kernel by kernel, {all_over} if everything overlaps"


def _drawn(fills: str, parts: list[tuple[str, float]], total: float, width: int) -> str:
    drawn, filled = "", 0.0
    for fill, (_, size) in zip(fills, parts, strict=False):
        filled += max(size, 0.0)
        drawn += fill * (round(filled / total * width) - len(drawn))
    return drawn


def _stacked(name: str, parts: list[tuple[str, float]], width: int = 60) -> list[str]:
    """One bar of an iteration, and its longest parts with their shares."""
    total = sum(seconds for _, seconds in parts) or 1.0
    drawn = _drawn(FILLS, parts, total, width)
    lines = [f"{name:<8}|{drawn.ljust(width, '·')}| {amount(total, 's')} expected"]
    named = [
        f"{fill} {part} {amount(seconds, 's')} ({seconds / total:.0%})"
        for fill, (part, seconds) in zip(FILLS, parts, strict=False)
        if seconds > 0.01 * total
    ]
    return lines + wrapped(named)


def wrapped(parts: list[str]) -> list[str]:
    """Short texts side by side, as many as a line holds."""
    lines, line = [], " "
    for part in parts:
        if len(line) + len(part) + 2 > WIDTH:
            lines.append(line)
            line = " "
        line += f" {part} "
    return [one.rstrip() for one in [*lines, line] if one.strip()]


def _memory(best: Any, length: int, width: int = 60) -> list[str]:
    use = best.memory
    words = {"weights": "weights", "KV cache": "cache", "workspace": "working", "reserved": "reserve"}
    words |= {"free pages": "free", "unused": "left_alone"}
    parts = [(shown, getattr(use, f"{name}_bytes")) for shown, name in words.items()]
    limit = best.hbm_limit_bytes
    drawn = _drawn("█▓▒░·-", parts, limit, width)
    named = [f"{fill} {name} {size / 1e9:.1f}" for fill, (name, size) in zip("█▓▒░·-", parts, strict=True)]
    pages = f"pages of {use.page_tokens} tokens: {use.pages:,}" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    return [
        f"memory  |{drawn[:width].ljust(width)}| {best.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB",
        *wrapped(named),
        f"  {pages}, {amount(use.token_bytes, 'bytes')} of each chip per token",
        f"  largest batch {best.max_batch:,}; a sequence of {length:,} tokens takes {amount(use.sequence_bytes, 'bytes')} of each chip",
    ]


def _costs(report: Any, best: Any) -> list[str]:
    """What tokens cost, and the fleet for the rate."""
    if best.cost_usd_per_mtok is None:
        lines = []
    else:
        chip = best.copy_slice.partition(":")[0]
        at = "".join(f" (at {row.text})" for row in report.prices if row.chip == chip)
        lines = [
            f"per million tokens: ${dollars(best.cost_usd_per_mtok_input)} input, ${dollars(best.cost_usd_per_mtok_output)} output; "
            f"${dollars(best.cost_usd_per_mtok)} output with its prompts{at}"
        ]
    if best.replicas is not None:
        money = "" if best.fleet_usd_per_h is None else f", ${best.fleet_usd_per_h:,.0f}/h"
        slices = f"{best.fleet_chips // (best.copies * best.chips):,} x {best.slice}"
        lines.append(
            f"{amount(report.workload.rate_per_s, 'count')} requests/s: {counted(best.replicas, 'replica')} at "
            f"{report.workload.rate_per_s / best.replicas / best.requests_per_s:.0%} of "
            f"{amount(best.requests_per_s, 'count')}/s or less, {slices} ({counted(best.fleet_chips, 'chip')}){money}"
            + (
                "; targets are means here, `dscale simulate` tells percentiles"
                if report.workload.ttft_s or report.workload.tpot_s
                else ""
            )
        )
    return lines


def frontier_table(frontier: Sequence[Any]) -> str:
    """Speed of a user against throughput of a chip: some of the configurations that none beats in both."""
    step = max((len(frontier) - 1) / (MOST_POINTS - 1), 1)
    places = sorted({round(number * step) for number in range(min(MOST_POINTS, len(frontier)))})
    shown = [frontier[min(place, len(frontier) - 1)] for place in places]
    most = max(one.output_tokens_per_s_per_chip for one in shown)
    rows = [
        [
            f"{one.tokens_per_s_per_user:,.0f}",
            f"{one.output_tokens_per_s_per_chip:,.0f}",
            bar(one.output_tokens_per_s_per_chip / most, 16),
            one.slice,
            plan_text(one),
            formats_text(one),
            one.batch,
        ]
        for one in shown
    ]
    header = ["tok/s/user", "tok/s/chip", "", "slice", "plan", "formats", "batch"]
    return f"frontier ({len(frontier)} configurations that no other beats in both)\n" + table(
        header, rows, right=[0, 1, 6]
    )


def _short(formula: str) -> str:
    """A formula that fits beside its name and number, or where to read it."""
    return formula if len(formula) <= WIDTH - 36 else "see `dscale explain serve`"


def limit_lines(limits: Sequence[Any]) -> list[str]:
    """Solved limits at datasheet rates."""
    rows = [
        [row.name, f"{row.value:,.4g}" if row.value < 1e4 else amount(row.value, "count"), _short(row.formula)]
        for row in limits
    ]
    return [
        "limits at datasheet rates (`dscale explain serve` says what they count)",
        table(["limit", "", "formula"], rows, right=[1], indent=2),
    ]
