"""`dscale serve` laid out: what to run, how fast and at what cost, what bounds it and what to change; then where time
goes, others."""

import math
from typing import Any

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount, facts, folded
from dragonscale.commands import grids
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.variant_blocks import (
    configurations,
    counted,
    disaggregation_blocks,
    frontier_table,
    limit_text,
    limits_table,
    max_rates_table,
    rate_text,
    speculation_blocks,
    token_words,
)
from dragonscale.serving.steady.targets import LATENCIES

SHOWN_BYTES = 5e7
"""Memory that is told of: less rounds to 0.0GB."""
SEEN = 0.01
"""Terms of a smaller share of a step are left to `--explain`."""
REST, LEFT = "the rest", 1e-3
"""What terms that small are together, where that is more than rounding."""


def serve_blocks(report: records.ServeReport, detail: bool) -> laid.Sheet:
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
    free = not (work.goals or work.rate_per_s or len(report.frontier_by_chip) > 1)
    frontier = len(report.frontier) > 1 and work.output > 1 and (detail or free)
    blocks += [frontier_table(report)] if frontier else []
    blocks += speculation_blocks(report.speculation) if report.speculation else []
    blocks += disaggregation_blocks(report.disaggregation, work.rate_per_s) if report.disaggregation else []
    if report.prefix:  # what a cached prefix saves, and where it could live
        room = max(1, int(report.prefix.prefixes_hbm))
        blocks.append(grids.summary("serve-prefix", report.prefix, room=room, whose=shared_prefix_text(report)))
    blocks += [limits_table(report.limits)] if detail and report.limits else []
    more = "" if frontier or work.output == 1 else ", the frontier of latency and throughput"
    blocks += [] if detail else [laid.Prose(f"--explain: bounds, memory by part, every term{more}.", "dim")]
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
    output = several(work.output, "output token") if work.output > 1 else "prefill alone"
    asides = [f"prompts of {work.prompt:,} tokens{cached}, {output}, {engine}"]
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
    recommended = f"{records.config_text(first)}, by {records.engines_text(first)}"
    return facts(
        ("fleet", fleet_text(report, first), "key"),
        ("holds", holds_text(report, first), "key"),
        ("serve as" if first.meets_slo else "nearest", recommended, "key"),
        *pools_facts(first),
        ("replica", f"{first.plan} on {first.copy_slice}{copies}") if first.prefill is None else None,
        ("drafts", drafts_text(report, first)),
        ("TTFT", ttft, "bad" if late else met),
        ("TPOT", tpot_text(report, first), "bad" if slow else met) if work.output > 1 else None,
        ("throughput", throughput_text(report, first), "key"),
        ("memory", memory_text(first)),
        ("context", context_text(first)),
        ("max seqs", report.at_most),
        ("cost", cost_text(report, first)),
        ("bound by", bound),
        ("would help", change) if first.meets_slo else None,  # of a miss the sentences above say what would
        ("better", report.comparison, "key"),
        ("router", router_text(work, report.simulated)),
        ("simulated", simulated_text(work, report.simulated) if report.simulated else ""),
        ("error", error_text(report, first)),
        ("release", report.release),
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
        ("decode on", f"{first.decodes} x {first.copy_slice}: {first.plan}, places for {first.places}"),
    ]


def drafts_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """How many tokens are drafted a step, by whom, and how often they are right."""
    found = report.speculation
    if found is None or not first.drafts:
        return ""
    chances = found.acceptance[: first.drafts]
    source = f" ({found.source}; --accept says another)" if found.source else ""
    drafts = several(first.drafts, "draft")
    gain = f"; {found.server_gain:.2f}x the tokens/s of none at this batch" if found.server_gain else ""
    return f"{drafts} a step by {found.drafter}, accepted {', '.join(f'{one:.2g}' for one in chances)}{source}{gain}"


def _timed(report: records.ServeReport, first: records.ConfigReport, name: str) -> str:
    """An expected time with its band and its target."""
    value, low, high = (amount(getattr(first, f"{name}{end}_s"), "s") for end in ("", "_low", "_high"))
    goals, full = report.workload.goals, " at a full batch" * (first.replicas is not None and first.prefill is None)
    return f"{value} expected{full} ({low} to {high})" + (f"; asked for: {goals[name].text}" if name in goals else "")


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
    each, what = token_words(report.workload)
    text = f"{rate_text(each * first.output_tokens_per_s_per_chip)} {what} per chip"
    if first.tokens_low is not None and first.tokens_high is not None:
        text += f" ({rate_text(each * first.tokens_low)} to {rate_text(each * first.tokens_high)})"
    user = f", {first.tokens_per_s_per_user:,.0f} per user" if report.workload.output > 1 else ""
    of = "per replica" if first.prefill is None else f"of {several(first.chips, 'chip')}"
    return f"{text}{user}; {amount(first.requests_per_s, 'count')} requests/s {of}"


def error_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What the bands rest on."""
    alone = " These runs decode too; of prompts alone none is published." if report.workload.output == 1 else ""
    return f"{'' if first.estimated else '80% intervals from published runs: '}{report.expected_error.source}.{alone}"


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
    where += f", {found.runs} runs" if found.runs > 1 else ""
    each, what = token_words(work)
    tokens = f", {rate_text(each * found.output_tokens_per_s_per_chip)} {what} per chip"
    return f"{times}{tokens}: {found.requests:,} requests, {load}{where}"


def router_text(work: records.ServeRequest, found: records.SimulatedRun | None) -> str:
    """Which replica gets a request, where that decides what is found in caches; and how much of prompts that is."""
    if found is None or not found.router or not work.router:
        return ""
    return (
        f"{found.router}: {found.cached:.0%} of prompt tokens are found in prefix caches "
        f"({work.cached:.0%} with caches that forget nothing)"
    )


def cost_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What a million tokens cost."""
    if first.cost_usd_per_mtok is None:
        return ""
    at = "".join(f", at {row.text}" for row in report.prices if row.chip == first.chip)
    own = (first.cost_usd_per_mtok, first.cost_usd_per_mtok_input, first.cost_usd_per_mtok_output)
    both, prompt, output = (counted(value, 2) for value in own)
    guess = first.counted < 1 and first.replicas is None
    ranked, each = first.ranked_usd_per_mtok, report.workload.prompt if report.workload.output == 1 else 1
    slow = f"; ranked at ${counted(ranked and ranked / each, 3 if each > 1 else 2)}, the slow end of the band" * guess
    full = " at full batches" * (first.replicas is not None and first.prefill is None)
    apart = f"apart ${prompt} a million of input, ${output} of output"
    if report.workload.output == 1:
        return f"${counted(own[1], 3)} per million input tokens{full}{at}{slow}"
    return f"${both} per million output tokens{full}, prompts included ({apart}){at}{slow}"


def fleet_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What the asked rate takes."""
    rate = report.workload.rate_per_s
    if first.replicas is None or first.fleet_chips is None or not rate:
        return ""
    dollars = "" if first.fleet_usd_per_h is None else f", ${first.fleet_usd_per_h:,.0f}/h"
    times = (("TTFT", first.fleet_ttft_s), ("TPOT", first.fleet_tpot_s))
    shown = [f"{name} {amount(seconds, 's')}" for name, seconds in times if seconds and not first.prefill]
    there = f"; at this rate {', '.join(shown)} on average" if shown else ""
    if first.fleet_usd_per_mtok and report.workload.output > 1:
        there += f", ${counted(first.fleet_usd_per_mtok, 2)} per million output tokens"
    if first.prefill is not None:
        both = f"{several(first.prefill.replicas, 'prefill replica')} and {several(first.decodes, 'decode replica')}"
        chips = several(first.chips, "chip") + idle_text(first)
        return f"{both} for {amount(rate, 'count')} requests/s ({chips}){dollars}{there}"
    slices = f"{first.fleet_chips // (first.copies * first.chips):,} x {first.slice}"
    run = ran(report, first)
    each, how = (run and run.requests_per_s) or first.requests_per_s, "/s by running" if run else "/s or less"
    how += ", sized by the slow end of the band" if first.counted < 1 else ""
    spare, enough = "", first.enough_replicas
    if enough is not None and enough < first.replicas:
        spare = f"; rented one by one, {several(enough, 'replica')} would do (--on {first.copy_slice})"
    return (
        f"{several(first.replicas, 'replica')} for {amount(rate, 'count')} requests/s: {slices} "
        f"({several(first.fleet_chips, 'chip')}){dollars}; each at {rate / first.replicas / each:.0%} "
        f"of {amount(each, 'count')}{how}{there}{spare}"
    )


def shared_prefix_text(report: records.ServeReport) -> str:
    """Who shares the prefix: all requests, unless they come in sessions, each of which has its own conversation to
    find in the cache."""
    has_sessions = report.asked is not None and report.asked.session_calls > 1
    if has_sessions:
        return "; each session has one of its own"
    return "; all requests share one, which every data rank holds once"


def idle_text(first: records.ConfigReport) -> str:
    """How many of the chips that are billed no replica uses, and what they cost."""
    if not first.idle_chips:
        return ""
    dollars = "" if first.idle_usd_per_h is None else f" at ${first.idle_usd_per_h:,.0f}/h"
    return f", {first.idle_chips:,} of them idle{dollars}"


def ran(report: records.ServeReport, first: records.ConfigReport) -> records.MaxRate | None:
    """The largest rate of a replica of the recommended configuration, where `--max-rate` found one."""
    rates = (one for one in report.max_rates if (one.slice, one.plan) == (first.copy_slice, first.plan))
    return next((one for one in rates if one.requests_per_s), None)


def holds_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What a replica holds under the targets, and what stops more."""
    run = ran(report, first)
    if run is None or run.requests_per_s is None:
        return ""
    whole = f", {first.copies * run.requests_per_s:.3g}/s on {first.slice}" * (first.copies > 1)
    return f"{run.requests_per_s:.3g} requests/s per replica by running{whole}; limited by {limit_text(run)}"


def memory_text(first: records.ConfigReport) -> str:
    """What is used and what is left of a chip."""
    use = first.memory
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB a chip"
    if use is None:
        return used
    cache = f"KV cache {use.kv_cache_tokens:,} tokens"
    if use.ranks > 1:
        cache += f" ({use.kv_cache_tokens // use.ranks:,} a rank)"
    left = f"{use.free_bytes / 1e9:.1f}GB left for more KV cache"
    if use.left_alone_bytes >= SHOWN_BYTES:
        left += f" ({use.left_alone_bytes / 1e9:.1f}GB unused by the engine)"
    return f"{used}, {left}; largest batch {first.max_batch:,}; {cache}"


def context_text(first: records.ConfigReport) -> str:
    """The longest request that works."""
    use = first.memory
    if use is None or not use.largest_context:
        return ""
    if use.model_context and use.largest_context >= use.model_context:
        return f"up to {use.largest_context:,} tokens a request, all that the model was made for"
    own = f"; the model was made for {use.model_context:,}" if use.model_context else ""
    return f"up to {use.largest_context:,} tokens a request, which fill the KV cache{own}"


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
