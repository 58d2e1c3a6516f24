"""`dscale serve` laid out: what to run, how fast and at what cost, what bounds it and what to change; then where time
goes, others."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

from dragonscale.app import grids
from dragonscale.app.serve import serve_records as records
from dragonscale.app.serve.variant_sheet import (
    disaggregation_blocks,
    limits_table,
    max_rates_table,
    speculation_blocks,
)
from dragonscale.serving.ranking import CLOSE
from dragonscale.serving.targets import LATENCIES
from dragonscale.sheets import sheet as laid
from dragonscale.sheets.sheet import amount, facts, folded

MOST_POINTS = 8
"""Rows of the frontier that are shown."""


def counted(value: float | None, digits: int = 0) -> str:
    """A number as text, a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


CONFIG = {"plan": records.plan_text, "formats": records.formats_text}
"""What a configuration is, in columns of any table."""


def configs_table(
    report: records.ServeReport, configs: Sequence[records.ConfigReport], title: str, foot: str = ""
) -> laid.Grid:
    """Configurations, one a line; with a rate, the chips and dollars of the fleet that serves it."""
    several, fleet = len({one.chip for one in configs}) > 1, configs[0].replicas is not None
    numbers = count(1)
    columns = CONFIG | {
        "#": lambda _: next(numbers),
        # one token has no time per token
        "TPOT": (lambda one: "~" * (several and "tokens" in one.estimated) + amount(one.tpot_s or None, "s"), ""),
        "meets SLO": lambda one: "yes" if one.meets_slo else "no",
    }
    columns |= {} if fleet else {"chips": (lambda one: one.copies * one.chips, "")}
    missed = report.best is not None and not all(one.meets_slo for one in configs)
    without = () if missed else ("meets SLO",)
    return grids.grid("serve-fleets" if fleet else "serve-configs", configs, title, foot, columns, without)


def configs_foot(report: records.ServeReport) -> str:
    """What the table leaves open: other engines than the best's, numbers that rest on no run, whose
    prices were taken."""
    configs, chips = report.configs, list(dict.fromkeys(one.chip for one in report.configs))
    own = [one.engine for one in configs if one.quantized == configs[0].quantized]
    rows = {
        name: [f"#{number}" for number, engine in enumerate(own, 1) if engine == name] for name in dict.fromkeys(own)
    }
    told = "; ".join(f"{', '.join(numbers)} by {name}" for name, numbers in [*rows.items()][1:])
    lines = [f"by {own[0]}; {told}"] if told else []
    lines += filter(None, [lead_text(report)])
    if len(chips) > 1:
        guessed = list(dict.fromkeys(one.chip for one in configs if "tokens" in one.estimated))
        slow = "ranked, sized and priced at the slow end of the band"
        lines += [f"~ never measured: no such run on {', '.join(guessed)}; {slow}"] if guessed else []
        kinds: dict[str, list[str]] = {}
        for row in report.prices:
            if row.chip in chips and row.kind:
                kinds.setdefault(row.kind, []).append(row.chip)
        told = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
        told += "; list prices are 1.5 to 2 times the market's" * (len(kinds) > 1)
        lines += [f"prices: {told}"] if told else []
    return "\n".join(lines)


def lead_text(report: records.ServeReport) -> str:
    """Why the first is not the cheapest of those that are shown."""
    first, *others = (one for one in report.configs if one.quantized == report.configs[0].quantized)
    priced = [one for one in others if one.meets_slo and one.cost_usd_per_mtok]
    cheaper = [one for one in priced if one.paid < 0.995 * first.paid]
    close = all(first.paid <= (1 + CLOSE) * one.paid and first.chips < one.chips for one in cheaper)
    if cheaper and first.replicas is None and close:
        return f"#1 has the fewest chips of those within {CLOSE:.0%} of the lowest cost"
    if cheaper and first.data * first.expert == 1 and all(one.data * one.expert > 1 for one in cheaper):
        return "#1 is tensor parallelism alone; dealing out experts or attention gains less than the estimate's error"
    run = "#1 was run, and keeps its targets with a margin; the others were not"
    return run if cheaper and report.simulated else ""


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
    columns = CONFIG | {"": lambda one: one.output_tokens_per_s_per_chip / most}
    title = f"frontier: {len(frontier)} configurations that no other beats in both"
    return grids.grid("serve-frontier", shown, title, own=columns)


SEEN = 0.01
"""Terms of a smaller share of a step are left to `--explain`."""
REST, LEFT = "the rest", 1e-3
"""What terms that small are together, where that is more than rounding."""


def serve_sheet(report: records.ServeReport, detail: bool) -> laid.Sheet:
    """The whole answer: the summary first, then how it comes about."""
    blocks: list[laid.Block] = [title_of(report)]
    if not report.configs:
        return laid.Sheet((*blocks, *_trouble([*report.notes, report.advice])))
    first, work = report.configs[0], report.workload
    blocks += [] if first.meets_slo else _trouble(report.notes)
    blocks += [summary(report, first)]
    if work.output > 1:
        blocks.append(time_stack("decode", first.terms, detail, "list" if detail else "line"))
    if detail or work.output == 1:
        blocks.append(time_stack("prefill", first.prefill_terms, detail))
    if detail:
        blocks += [memory_stack(first), details(report, first)]
        if work.output > 1:
            blocks.append(grids.grid("serve-terms", first.terms, "every term of a decode step, of one chip"))
        title = "every term of a prompt that runs alone, of one chip"
        blocks.append(grids.grid("serve-terms", first.prefill_terms, title))
    blocks += configurations(report)
    blocks += [max_rates_table(report)] if report.max_rates else []
    frontier = len(report.frontier) > 1 and work.output > 1 and (detail or not work.goals)
    blocks += [frontier_table(report)] if frontier else []
    blocks += speculation_blocks(report.speculation) if report.speculation else []
    blocks += disaggregation_blocks(report.disaggregation, work.rate_per_s) if report.disaggregation else []
    if report.prefix:  # what a cached prefix saves, and where it could live
        blocks.append(grids.summary("serve-prefix", report.prefix, room=max(1, int(report.prefix.prefixes_hbm))))
    blocks += [limits_table(report.limits)] if detail and report.limits else []
    more = "bounds, memory by part, every term, the frontier of latency and throughput"
    blocks += [] if detail else [laid.Prose(f"--explain: {more}.", "dim")]
    blocks += [laid.Prose("\n".join(report.notes), "dim")] if report.notes and first.meets_slo else []
    return laid.Sheet(tuple(blocks))


def _trouble(sentences: list[str]) -> list[laid.Block]:
    """What is wrong, and below it what would help."""
    told = [one for one in sentences if one]
    more = "\n".join(told[1:])
    return [*(laid.Prose(one, "bad") for one in told[:1]), *([laid.Prose(more)] if more else [])]


def title_of(report: records.ServeReport) -> laid.Title:
    """The question as it was read."""
    work = report.workload
    cached = f" ({work.cached:.0%} cached)" if work.cached else ""
    engines = sorted(set(work.engines.values()))
    engine = f"engine {work.engine}" + (f" (auto: {work.engine_why})" if work.engine_why else "")
    if len(engines) > 1:
        engine = f"by the engine that people run on each chip ({', '.join(engines)})"
    asides = [f"prompts of {work.prompt:,} tokens{cached}, {several(work.output, 'output token')}, {engine}"]
    asked = [f"{LATENCIES[name]} within {goal.text}" for name, goal in work.goals.items()]
    asked += [f"{amount(work.rate_per_s, 'count')} requests/s"] if work.rate_per_s else []
    asides += [f"asked for: {', '.join(asked)}" if asked else ""]
    size = amount(work.parameters, "count")
    where = f" on {report.configs[0].slice}" if report.configs and len(report.frontier_by_chip) == 1 else ""
    return laid.Title(f"Serving {report.model} ({size} parameters){where}", "\n".join(filter(None, asides)))


def several(number: int, what: str) -> str:
    """A number of things, one of them without an s."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def summary(report: records.ServeReport, first: records.ConfigReport) -> laid.Facts:
    """What to run, in a dozen lines."""
    work = report.workload
    bound, change = report.bound_and_change
    met = "good" if work.goals else "key"
    late, slow = first.ttft_s > (work.ttft_s or math.inf), first.tpot_s > (work.tpot_s or math.inf)
    copies = f", {first.copies} of them on {first.slice}" if first.copies > 1 else ""
    ttft = _timed(report, first, "ttft")
    return facts(
        ("fleet", fleet_text(report, first), "key"),
        ("serve as" if first.meets_slo else "nearest", f"{records.config_text(first)}, by {first.engine}", "key"),
        *pools_facts(first),
        ("replica", f"{first.plan} on {first.copy_slice}{copies}") if first.prefill is None else None,
        ("drafts", drafts_text(report, first)),
        ("TTFT", ttft, "bad" if late else met),
        ("TPOT", tpot_text(report, first), "bad" if slow else met) if work.output > 1 else None,
        ("throughput", throughput_text(report, first), "key"),
        ("memory", memory_text(first)),
        ("max seqs", report.at_most),
        ("cost", cost_text(report, first)),
        ("bound by", bound),
        ("would help", change),
        ("better", report.comparison, "key"),
        ("simulated", simulated_text(work, report.simulated) if report.simulated else ""),
        ("error", error_text(report, first)),
    )


def details(report: records.ServeReport, first: records.ConfigReport) -> laid.Facts:
    """What stands behind the summary: bounds, a prompt alone, how many configurations were judged."""
    return facts(
        ("at best", bounds_text(first) if report.workload.output > 1 else ""),
        ("prefill", prefill_text(report, first)),
        ("KV cache", cache_text(first, report.workload.prompt + report.workload.output)),
        ("searched", several(report.searched, "configuration") + " judged" if report.searched else ""),
    )


def pools_facts(first: records.ConfigReport) -> list[tuple[str, str]]:
    """Both pools, where prefill and decode are on replicas of their own."""
    pool = first.prefill
    if pool is None:
        return []
    return [
        ("prefill on", f"{pool.replicas} x {pool.slice}: {pool.plan}, at {pool.load:.0%} of its rate"),
        ("decode on", f"{first.decodes} x {first.copy_slice}: {first.plan}"),
    ]


def drafts_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """How many tokens are drafted a step, by whom, and how often they are right."""
    found = report.speculation
    if found is None or not first.drafts:
        return ""
    chances = found.acceptance[: first.drafts]
    source = f" ({found.source}; --accept says another)" if found.source else ""
    drafts = several(first.drafts, "draft")
    return f"{drafts} a step by {found.drafter}, accepted {', '.join(f'{one:.2g}' for one in chances)}{source}"


def _timed(report: records.ServeReport, first: records.ConfigReport, name: str) -> str:
    """An expected time with its band and its target."""
    value, low, high = (amount(getattr(first, f"{name}{end}_s"), "s") for end in ("", "_low", "_high"))
    goals = report.workload.goals
    return f"{value} expected ({low} to {high})" + (f"; asked for: {goals[name].text}" if name in goals else "")


def tpot_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """The time per output token; beside a decode step alone (or a loop that drafts) where prefill of other requests
    comes between."""
    drafted = report.speculation.rows if report.speculation is not None else []
    loop = next((row.per_token_s for row in drafted if row.drafts == first.drafts), first.tpot_s)
    step = loop if first.drafts else first.decode_step_s
    longer = f"; {amount(step, 's')} without prefill of other requests" if first.tpot_s > 1.01 * step else ""
    return _timed(report, first, "tpot") + longer


def throughput_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """Tokens of a chip, of a user and of a replica."""
    text = f"{first.output_tokens_per_s_per_chip:,.0f} tok/s per chip"
    if first.tokens_low is not None and first.tokens_high is not None:
        text += f" ({first.tokens_low:,.0f} to {first.tokens_high:,.0f})"
    user = f", {first.tokens_per_s_per_user:,.0f} per user" if report.workload.output > 1 else ""
    of = "per replica" if first.prefill is None else f"of {several(first.chips, 'chip')}"
    return f"{text}{user}; {amount(first.requests_per_s, 'count')} requests/s {of}"


def error_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What the bands rest on."""
    often = "a guess" if len(first.estimated) == 3 else "80% intervals from published runs"
    return f"{often} ({report.expected_error.source})."


def simulated_text(work: records.ServeRequest, found: records.SimulatedRun) -> str:
    """What the run that confirms the headline gave: means, and the percentiles that were asked for."""
    names = dict.fromkeys((*(("ttft", "tpot") if work.output > 1 else ("ttft",)), *work.goals))
    asked = {name: goal.statistic for name, goal in work.goals.items() if goal.share}
    times = ", ".join(
        f"{LATENCIES[name]} {amount(one.mean, 's')} ({at} {amount(getattr(one, at), 's')})"
        for name in names
        for one, at in ((found.latency[f"{name}_s"], asked.get(name, "p95")),)
    )
    load = several(found.clients, "client") if found.clients else f"{amount(found.rate_per_s, 'count')} requests/s"
    where = "" if found.clients else f" to {several(found.replicas, 'replica')}"
    tokens = f", {found.output_tokens_per_s_per_chip:,.0f} tok/s per chip"
    return f"{times}{tokens}: {found.requests:,} requests, {load}{where}"


def cost_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What a million tokens cost."""
    if first.cost_usd_per_mtok is None:
        return ""
    at = "".join(f", at {row.text}" for row in report.prices if row.chip == first.chip)
    own = (first.cost_usd_per_mtok, first.cost_usd_per_mtok_input, first.cost_usd_per_mtok_output)
    both, prompt, output = (counted(value, 2) for value in own)
    guess = first.counted < 1 and first.replicas is None
    slow = f"; ranked at ${counted(first.ranked_usd_per_mtok, 2)}, the slow end of the band" * guess
    return f"${both} per million output tokens with their prompts (${prompt} input, ${output} output alone){at}{slow}"


def fleet_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What the asked rate takes."""
    rate = report.workload.rate_per_s
    if first.replicas is None or first.fleet_chips is None or not rate:
        return ""
    dollars = "" if first.fleet_usd_per_h is None else f", ${first.fleet_usd_per_h:,.0f}/h"
    times = (("TTFT", first.fleet_ttft_s), ("TPOT", first.fleet_tpot_s))
    there = "".join(f", {name} {amount(seconds, 's')}" for name, seconds in times if seconds and not first.prefill)
    there += f", ${counted(first.fleet_usd_per_mtok, 2)} per million" if first.fleet_usd_per_mtok else ""
    if first.prefill is not None:
        both = f"{several(first.prefill.replicas, 'prefill replica')} and {several(first.decodes, 'decode replica')}"
        return f"{both} for {amount(rate, 'count')} requests/s ({several(first.chips, 'chip')}){dollars}{there}"
    slices = f"{first.fleet_chips // (first.copies * first.chips):,} x {first.slice}"
    run = next(
        (one.requests_per_s for one in report.max_rates if (one.slice, one.plan) == (first.copy_slice, first.plan)), 0
    )
    each, how = (run, "/s by running") if run else (first.requests_per_s, "/s or less")
    return (
        f"{several(first.replicas, 'replica')} for {amount(rate, 'count')} requests/s: {slices} "
        f"({several(first.fleet_chips, 'chip')}){dollars}; each at {rate / first.replicas / each:.0%} "
        f"of {amount(each, 'count')}{how}{there}"
    )


def memory_text(first: records.ConfigReport) -> str:
    """What is used and what is left of a chip."""
    use = first.memory
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB a chip"
    if use is None:
        return used
    return f"{used}, {use.free_bytes / 1e9:.1f}GB free for KV cache; largest batch {first.max_batch:,}"


def cache_text(first: records.ConfigReport, length: int) -> str:
    """What the KV cache takes of it, and what nothing takes."""
    use = first.memory
    if use is None:
        return ""
    pages = f"{use.pages:,} pages of {use.page_tokens}" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    return (
        f"{pages}; {amount(use.sequence_bytes, 'bytes')} for {length:,} tokens, {amount(use.token_bytes, 'bytes')} a "
        f"token; {use.left_alone_bytes / 1e9:.1f}GB unused by the engine"
    )


def bounds_text(first: records.ConfigReport) -> str:
    """What a decode step cannot be shorter than; one number where both bounds agree."""
    kernels, everything = amount(first.roofline_s, "s"), amount(first.lower_s, "s")
    if kernels == everything:
        return f"{kernels} a decode step at datasheet rates"
    if first.lower_s > (first.roofline_s or 0.0):
        return f"{everything} a decode step at datasheet rates, for its collectives alone; {kernels} for its kernels"
    return f"{kernels} a decode step at datasheet rates kernel by kernel, {everything} with perfect overlap"


def prefill_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What of a prompt is computed, alone and in chunks beside the others."""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    chunks = f"{first.prefill_chunks} chunks of up to {first.chunk_tokens:,}"
    beside = f"; {amount(first.prefill_s, 's')} beside the others, in {chunks}" if first.prefill_chunks > 1 else ""
    alone = sum(row.expected_s for row in first.prefill_terms)
    return f"{amount(alone, 's')} for a prompt of {new:,} tokens with no other request running{beside}"


def memory_stack(first: records.ConfigReport) -> laid.StackedBar:
    """What fills the HBM of a chip; the rest of the bar is free or unused."""
    use, limit = first.memory, first.hbm_limit_bytes
    words = {"weights": "weights", "KV cache": "cache", "workspace": "working", "reserved": "reserve"}
    held = [(name, getattr(use, f"{field}_bytes")) for name, field in words.items()] if use is not None else []
    parts = [laid.BarPart(name, size, f"{size / 1e9:.1f}GB") for name, size in held if size > 0]
    return laid.StackedBar("memory", tuple(parts), limit, f"{first.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB", "line")


def time_stack(name: str, rows: list[Any], detail: bool, legend: str = "list") -> laid.StackedBar:
    """Where an iteration goes; its parts add up to it."""
    total = sum(row.expected_s for row in rows) or 1.0
    seen = [row for row in rows if detail or row.expected_s > SEEN * total]
    parts = [laid.BarPart(row.name, row.expected_s, amount(row.expected_s, "s")) for row in seen]
    rest = total - sum(part.value for part in parts)
    shown = folded(parts, "s")
    if rest > LEFT * total:
        if shown and shown[-1].name == REST:
            rest, shown = rest + shown[-1].value, shown[:-1]
        shown = (*shown, laid.BarPart(REST, rest, amount(rest, "s")))
    return laid.StackedBar(name, shown, total, amount(total, "s"), legend)


def configurations(report: records.ServeReport) -> list[laid.Block]:
    """The recommended configuration and others, those in narrower formats apart."""
    own = [one for one in report.configs if one.quantized == report.configs[0].quantized]
    apart = report.configs[len(own) :]
    blocks: list[laid.Block] = []
    if len(own) > 1 or configs_foot(report):
        blocks.append(configs_table(report, own, "configurations, the recommended one first", configs_foot(report)))
    if apart:
        title = "in narrower formats than the checkpoint's (what they cost in quality is said below)"
        blocks.append(configs_table(report, apart, title))
    return blocks
