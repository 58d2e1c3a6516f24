"""`dscale serve` laid out as blocks: what to run, how fast and at what cost, what bounds it and what to change; then
where time goes, and other configurations."""

from dataclasses import replace

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount, facts, folded, several
from dragonscale.commands import grids
from dragonscale.commands.asked_chips import kernels_text
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.variant_blocks import (
    configurations,
    disaggregation_blocks,
    frontier_table,
    limit_text,
    limits_table,
    max_rates_table,
    number_text,
    rate_text,
    speculation_blocks,
    token_unit,
)
from dragonscale.commands.serve.variant_records import CountedRun
from dragonscale.serving.advice.bills import StepTerm
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.steady.targets import LATENCIES

# Memory from which a part is worth a word: less rounds to 0.0GB.
SHOWN_BYTES = 5e7

# Share of a step from which a term is shown without `--explain`.
SHOWN_SHARE = 0.01

# Bytes of a GiB, in which engines print their KV cache.
GIB = 2**30

# The terms of a bar that are too small to be shown.
REST = "the rest"

# Where a load runs that one slice may not hold.
ONE_SLICE = "the slice that was named"

# How a verdict on a measured figure is marked.
_MEASURED_TONES = {"normal": "good", "slow": "bad", "fast": "warn"}

# Share of a bar from which its rest is more than rounding.
LEAST_REST = 1e-3

# What would help that the short answer says.
MAX_REMEDIES = 3

# Parts of a chip's memory as the bar names them, and their fields.
MEMORY_PARTS = {"weights": "weights", "KV cache": "cache", "workspace": "working", "reserved": "reserve"}


def serve_blocks(report: records.ServeReport, detail: bool) -> laid.Sheet:
    """The whole answer: the summary first, then how it comes about."""
    title = title_of(report)
    if not report.configs:
        notes = [note for note in report.notes if note != report.verdict]
        return laid.Sheet((title, *_trouble([*notes, report.advice], laid.BRIEF)))
    first, work = report.configs[0], report.workload
    decodes = work.output > 1
    blocks: list[laid.Block] = [title]
    if not first.meets_slo:
        blocks += _trouble(report.notes, laid.EXPLAINED)  # which the verdict has said
    blocks.append(summary(report, first))
    if decodes:
        blocks.append(laid.explained(time_stack("decode", first.terms, detail, "list" if detail else "line")))
    if detail or not decodes:
        blocks.append(laid.explained(time_stack("prefill", first.prefill_terms, detail)))
    if detail:
        blocks += [memory_stack(first), details(report, first)]
        if decodes:
            blocks.append(grids.grid("serve-terms", first.terms, "every term of a decode step, of one chip"))
        prompt_title = "every term of a prompt that runs alone, of one chip"
        blocks.append(grids.grid("serve-terms", first.prefill_terms, prompt_title))

    blocks += configurations(report)
    if report.max_rates:
        blocks.append(laid.explained(max_rates_table(report)))
    # without targets, a rate or other chips, what there is to choose is latency against throughput
    is_open = not (work.goals or work.rate_per_s or len(report.frontier_by_chip) > 1)
    shows_frontier = len(report.frontier) > 1 and decodes and (detail or is_open)
    if shows_frontier:
        blocks.append(laid.explained(frontier_table(report)))
    if report.speculation:
        blocks += map(laid.explained, speculation_blocks(report.speculation))
    if report.disaggregation:
        blocks += map(laid.explained, disaggregation_blocks(report.disaggregation, work.rate_per_s))
    if report.prefix:
        fitting = max(1, int(report.prefix.prefixes_hbm))
        whose = shared_prefix_text(report)
        blocks.append(laid.explained(grids.summary("serve-prefix", report.prefix, room=fitting, whose=whose)))
    if detail and report.limits:
        blocks.append(limits_table(report.limits))
    if report.notes and first.meets_slo:
        blocks.append(laid.Prose("\n".join(report.notes), "dim", laid.EXPLAINED))
    return laid.Sheet(tuple(blocks))


def _trouble(sentences: list[str], level: str) -> list[laid.Block]:
    """What is wrong, and below it what would help; the short answer has as much of it as it has room for."""
    first, *others = [*filter(None, sentences), "", ""]
    brief, further = others[:MAX_REMEDIES], others[MAX_REMEDIES:]
    return [
        laid.Prose(first, "bad", level),
        laid.Prose("\n".join(filter(None, brief))),
        laid.Prose("\n".join(filter(None, further)), level=laid.EXPLAINED),
    ]


def title_of(report: records.ServeReport) -> laid.Title:
    """The question as it was read."""
    work = report.workload
    engine, why = f"engine {work.engine}", ""
    if work.engine_why:
        why = f" (auto: {work.engine_why})"
    engines = sorted(set(work.engines.values()))
    if len(engines) > 1:
        engine, why = "by the engine that people run on each chip", f" ({', '.join(engines)})"
    prompts = f"prompts of {work.prompt:,} tokens"
    if work.cached:
        prompts += f" ({work.cached:.0%} cached)"
    output = several(work.output, "output token") if work.output > 1 else "prefill alone"
    asides = [f"{prompts}, {output}, {engine}{why}"]
    targets = [f"{LATENCIES[name]} within {goal.text}" for name, goal in work.goals.items()]
    if work.rate_per_s:
        targets.append(f"{amount(work.rate_per_s, 'count')} requests/s")
    if targets:
        asides.append(f"asked for: {', '.join(targets)}")
    title = f"Serving {report.model} ({amount(work.parameters, 'count')} parameters)"
    if report.configs and len(report.frontier_by_chip) == 1:
        title += f" on {report.configs[0].slice}"
    tone = "good" if report.best is not None else "bad"
    return laid.Title(title, "\n".join(asides), report.verdict, tone, f"{prompts}, {output}, {engine}")


def summary(report: records.ServeReport, first: records.ConfigReport) -> laid.Facts:
    """What to run, in a dozen lines."""
    work = report.workload
    bound, change = report.bound_and_change
    helps = None
    if first.meets_slo:  # of a miss the sentences above say what would
        helps = laid.FactLine("would help", change, brief=report.bottleneck.brief if report.bottleneck else "")
    # several chips are compared in a table, which the short answer has room for in place of these lines
    compares_chips = len({row.chip for row in report.configs}) > 1
    measured = report.measured
    makes_room = compares_chips or measured is not None or not first.meets_slo
    aside = laid.EXPLAINED if makes_room else laid.BRIEF
    tone = _MEASURED_TONES.get(measured.verdict if measured else "", "")
    return facts(
        laid.FactLine("could be", measured.likely if measured else "", tone, _likeliest(report)),
        ("starts", report.starts, "good"),
        *[(row.engine, row.text) for row in report.engines],
        laid.FactLine("fleet", fleet_text(report, first), "key", fleet_text(report, first, brief=True)),
        ("holds", holds_text(report, first), "key"),
        laid.FactLine(
            "serve as" if first.meets_slo else "nearest",
            f"{records.config_text(first)}, by {records.engines_text(first)}",
            "key",
            records.config_text(first),
        ),
        ("", meanings_text(first), "dim"),
        *replica_facts(first),
        ("drafting", drafting_text(report), "key"),
        laid.FactLine("drafts", drafts_text(report, first), brief=drafts_text(report, first, brief=True)),
        laid.FactLine("TTFT", _time_text(report, first, "ttft"), _mark(work, first.ttft_s, work.ttft_s)),
        laid.FactLine(
            "TPOT",
            tpot_text(report, first),
            _mark(work, first.tpot_s, work.tpot_s),
            tpot_text(report, first, brief=True),
        ),
        laid.FactLine("throughput", throughput_text(report, first), "key", throughput_text(report, first, brief=True)),
        *[(name, counted_text(run)) for name, run in _named_runs(report)],
        ("beside", "; ".join(row.text for row in report.beside), "key"),
        laid.FactLine("memory", memory_text(first), brief=memory_text(first, brief=True), level=aside),
        laid.FactLine("context", f"{context_text(first)}{windows_text(first)}", level=aside),
        ("max seqs", report.at_most),
        laid.FactLine("cost", cost_text(report, first), brief=cost_text(report, first, brief=True)),
        laid.FactLine("bound by", bound, level=aside),
        helps and replace(helps, level=aside),
        laid.FactLine("could add", added_text(report), level=aside),
        ("better", report.comparison, "key"),
        laid.FactLine("router", router_text(work, report.simulated), level=laid.EXPLAINED),
        laid.FactLine("simulated", simulated_text(work, report.simulated), level=laid.EXPLAINED),
        laid.FactLine("error", error_text(report, first), brief=report.expected_error.brief),
        ("release", report.release or f"no release in particular ({work.engine})"),
    )


def _likeliest(report: records.ServeReport) -> str:
    """The first of the causes that a measured figure could have."""
    if report.measured is None or not report.measured.suspects:
        return ""
    first = report.measured.suspects[0]
    return f"{first.cause}: {first.look}"


def meanings_text(first: records.ConfigReport) -> str:
    """The abbreviations of the plan in words, of those that it has."""
    axes = [axis for axis in records.SHORT if getattr(first, axis) > 1]
    if first.prefill is not None:
        prefill = parse_serving_plan(first.prefill.plan)
        axes = [axis for axis in records.SHORT if getattr(first, axis) > 1 or getattr(prefill, axis) > 1]
    return ", ".join(records.MEANINGS[axis] for axis in axes)


def added_text(report: records.ServeReport) -> str:
    """What the plain launch could have beside, with what each would bring."""
    return "; ".join(rung.text for rung in report.rungs)


def _named_runs(report: records.ServeReport) -> list[tuple[str, CountedRun]]:
    """Runs of prompts that come together, each with its name in the summary."""
    named: list[tuple[str, CountedRun]] = []
    for run in report.counted_runs:
        name = "one batch" if run.lengths == "fixed" else "at once"
        if run.rate:
            name = f"at {amount(run.rate, 'count')}/s"
        named.append((name, run))
    return named


def counted_text(run: CountedRun) -> str:
    """A run that is timed from the first to the last token."""
    what = f"{several(run.requests, 'prompt')} of mixed lengths"
    if run.lengths == "fixed":
        what = f"{several(run.requests, 'request')} together, start to end"
        if run.requests == 1:
            what = "one request, start to end"
    if run.rate:
        what = f"{several(run.requests, 'request')} on {ONE_SLICE}"
    rates = f"{run.output_tokens_per_s:,.0f} output tok/s"
    if run.requests > 1:
        rates = f"{run.requests_per_s:.3g} requests/s, {rates}, {run.total_tokens_per_s:,.0f} in and out"
    return f"{amount(run.seconds, 's')} for {what}: {rates}, the first tokens after {amount(run.ttft_s, 's')}"


def _mark(work: records.ServeRequest, seconds: float, target: float | None) -> str:
    """How a time is marked: by its target where there are any."""
    if target and seconds > target:
        return "bad"
    return "good" if work.goals else "key"


def details(report: records.ServeReport, first: records.ConfigReport) -> laid.Facts:
    """What stands behind the summary: bounds, a prompt alone, how many configurations were judged."""
    work = report.workload
    return facts(
        ("at best", bounds_text(work, first)),
        ("prefill", prefill_text(report, first)),
        ("KV cache", cache_text(first, work.prompt + work.output)),
        ("searched", f"{several(report.searched, 'configuration')} judged"),
    )


def replica_facts(first: records.ConfigReport) -> list[laid.FactLine]:
    """The plan of a replica; of both pools, where prefill and decode are on replicas of their own."""
    pool = first.prefill
    if pool is None:
        replica = f"{first.plan} on {first.copy_slice}"
        if first.copies > 1:
            replica += f", {first.copies} of them on {first.slice}"
        return [laid.FactLine("replica", replica, level=laid.EXPLAINED)]
    return [
        laid.FactLine(
            "prefill on",
            f"{pool.replicas} x {pool.slice}: {pool.plan}, at {pool.load:.0%} of its rate",
            brief=f"{pool.replicas} x {pool.slice}, at {pool.load:.0%} of its rate",
        ),
        laid.FactLine(
            "decode on",
            f"{first.decodes} x {first.copy_slice}: {first.plan}, places for {first.places}",
            brief=f"{first.decodes} x {first.copy_slice}, places for {first.places}",
        ),
    ]


def drafting_text(report: records.ServeReport) -> str:
    """Whether the drafts that were asked for pay, and what other drafters would bring."""
    speculation = report.speculation
    if speculation is None or not speculation.asked:
        return ""
    text = speculation.verdict
    if speculation.others:
        others = [f"{row.drafter} {row.gain:.2f}x" for row in speculation.others]
        text += f". With as many drafts {', '.join(others)}"
    if speculation.alone:
        text += f". {speculation.alone}"
    return text


def drafts_text(report: records.ServeReport, first: records.ConfigReport, brief: bool = False) -> str:
    """How many tokens are drafted a step, by whom, and how often they are right."""
    speculation = report.speculation
    if speculation is None or not first.drafts:
        return ""
    chances = ", ".join(f"{chance:.2g}" for chance in speculation.acceptance[: first.drafts])
    text = f"{several(first.drafts, 'draft')} a step by {speculation.drafter}"
    if not brief:
        text += f", accepted {chances}"
    if speculation.source and not brief:
        text += f" ({speculation.source}; --accept says another)"
    if speculation.server_gain and not speculation.asked:
        text += f"; {speculation.server_gain:.2f}x the tokens/s of none at this batch"
    return text


def _time_text(report: records.ServeReport, first: records.ConfigReport, name: str) -> str:
    """An expected time with its band and its target."""
    value, low, high = (amount(getattr(first, f"{name}{end}_s"), "s") for end in ("", "_low", "_high"))
    # the replicas of a fleet are not full at its rate
    full = " at a full batch" if first.replicas is not None and first.prefill is None else ""
    text = f"{value} expected{full} ({low} to {high})"
    goal = report.workload.goals.get(name)
    if goal is None:
        return text
    if goal.share and report.simulated is not None:  # of a percentile the mean tells nothing
        simulated = getattr(report.simulated.latency[f"{name}_s"], goal.statistic)
        return f"{text}; {goal.statistic} {amount(simulated, 's')} of {amount(goal.seconds, 's')}"
    return f"{text}; asked for: {goal.text}"


def tpot_text(report: records.ServeReport, first: records.ConfigReport, brief: bool = False) -> str:
    """The time per output token; and that of a decode step alone (or a loop that drafts) where prefill of other
    requests comes between."""
    if report.workload.output == 1:
        return ""
    alone = first.decode_step_s
    if first.drafts:
        alone = first.tpot_s
    if first.drafts and report.speculation is not None:
        loops = report.speculation.rows
        alone = next((loop.per_token_s for loop in loops if loop.drafts == first.drafts), first.tpot_s)
    text = _time_text(report, first, "tpot")
    if first.tpot_s > 1.01 * alone and not brief:
        text += f"; {amount(alone, 's')} without prefill of other requests"
    return text


def throughput_text(report: records.ServeReport, first: records.ConfigReport, brief: bool = False) -> str:
    """Tokens of a chip, of a user and of a replica."""
    per_output, unit = token_unit(report.workload)
    text = f"{rate_text(per_output * first.output_tokens_per_s_per_chip)} {unit} per chip"
    if first.tokens_low is not None and first.tokens_high is not None:
        text += f" ({rate_text(per_output * first.tokens_low)} to {rate_text(per_output * first.tokens_high)})"
    if report.workload.output > 1:
        text += f", {first.tokens_per_s_per_user:,.0f} per user"
    if brief and report.workload.output > 1:
        return text
    whose = "per replica" if first.prefill is None else f"of {several(first.chips, 'chip')}"
    return f"{text}; {amount(first.requests_per_s, 'count')} requests/s {whose}"


def error_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What the bands rest on."""
    text = f"{report.expected_error.source}."
    if not first.estimated:
        text = f"80% intervals from published runs: {text}"
    borrowed = kernels_text(first.config.piece.chip)
    if borrowed:
        text += f" {borrowed}."
    if report.workload.output == 1:
        text += " These runs decode too; of prompts alone none is published."
    return text


def simulated_text(work: records.ServeRequest, run: records.SimulatedRun | None) -> str:
    """What the run that confirms the headline gave: means, and the percentiles that were asked for."""
    if run is None:
        return ""
    names = ["ttft"]
    if work.output > 1:
        names.append("tpot")
    times: list[str] = []
    for name in dict.fromkeys((*names, *work.goals)):
        goal = work.goals.get(name)
        statistic = goal.statistic if goal is not None and goal.share else "p95"
        latency = run.latency[f"{name}_s"]
        percentile = amount(getattr(latency, statistic), "s")
        times.append(f"{LATENCIES[name]} {amount(latency.mean, 's')} ({statistic} {percentile})")
    if run.clients:
        load = several(run.clients, "client")
    else:
        load = f"{amount(run.rate_per_s, 'count')} requests/s to {several(run.replicas, 'replica')}"
    if run.runs > 1:
        load += f", {run.runs} runs"
    per_output, unit = token_unit(work)
    tokens = f"{rate_text(per_output * run.output_tokens_per_s_per_chip)} {unit} per chip"
    return f"{', '.join(times)}, {tokens}: {run.requests:,} requests, {load}"


def router_text(work: records.ServeRequest, run: records.SimulatedRun | None) -> str:
    """Which replica gets a request, where that decides what is found in caches; and how much of prompts that is."""
    if run is None or not run.router or not work.router:
        return ""
    return (
        f"{run.router}: {run.cached:.0%} of prompt tokens are found in prefix caches "
        f"({work.cached:.0%} with caches that forget nothing)"
    )


def cost_text(report: records.ServeReport, first: records.ConfigReport, brief: bool = False) -> str:
    """What a million tokens cost."""
    if first.cost_usd_per_mtok is None:
        return ""
    work = report.workload
    prompts_alone = work.output == 1
    full = " at full batches" if first.replicas is not None and first.prefill is None else ""
    end = "".join(f", at {price.text}" for price in report.prices if price.chip == first.chip)
    if brief:
        end = end.partition(";")[0]
    if first.counted < 1 and first.replicas is None and not brief:
        per_output, _ = token_unit(work)
        ranked = first.ranked_usd_per_mtok
        digits = 3 if prompts_alone else 2
        end += f"; ranked at ${number_text(ranked and ranked / per_output, digits)}, the slow end of the band"
    if prompts_alone:
        return f"${number_text(first.cost_usd_per_mtok_input, 3)} per million input tokens{full}{end}"
    if brief:  # of the fleet, where there is one
        usd = first.fleet_usd_per_mtok or first.cost_usd_per_mtok
        return f"${number_text(usd, 2)} per million output tokens{end}"
    prompt = number_text(first.cost_usd_per_mtok_input, 2)
    output = number_text(first.cost_usd_per_mtok_output, 2)
    return (
        f"${number_text(first.cost_usd_per_mtok, 2)} per million output tokens{full}, prompts included "
        f"(apart ${prompt} a million of input, ${output} of output){end}"
    )


def fleet_text(report: records.ServeReport, first: records.ConfigReport, brief: bool = False) -> str:
    """What the asked rate takes."""
    work = report.workload
    rate = work.rate_per_s
    if first.replicas is None or first.fleet_chips is None or not rate:
        return ""
    dollars = ""
    if first.fleet_usd_per_h is not None:
        dollars = f", ${first.fleet_usd_per_h:,.0f}/h"
    per_token = ""
    if first.fleet_usd_per_mtok and work.output > 1:
        per_token = f", ${number_text(first.fleet_usd_per_mtok, 2)} per million output tokens"
    requests = f"for {amount(rate, 'count')} requests/s"
    if first.prefill is not None:
        prefills = several(first.prefill.replicas, "prefill replica")
        decodes = several(first.decodes, "decode replica")
        chips = several(first.chips, "chip") + idle_text(first)
        return f"{prefills} and {decodes} {requests} ({chips}){dollars}{per_token}"

    slices = f"{first.fleet_chips // (first.copies * first.chips):,} x {first.slice}"
    size = f"{several(first.replicas, 'replica')} {requests}: {slices} ({several(first.fleet_chips, 'chip')}){dollars}"
    if brief:
        return size
    run = ran(report, first)
    # what one replica takes: as simulated, or at most as its full batches have it
    capacity, how = first.requests_per_s, "/s or less"
    if run is not None and run.requests_per_s is not None:
        capacity, how = run.requests_per_s, "/s by running"
    if first.counted < 1:
        how += ", sized by the slow end of the band"
    text = f"{size}; each at {rate / first.replicas / capacity:.0%} of {amount(capacity, 'count')}{how}"
    times = []
    for name, seconds in (("TTFT", first.fleet_ttft_s), ("TPOT", first.fleet_tpot_s)):
        if seconds:
            times.append(f"{name} {amount(seconds, 's')}")
    if times:
        text += f"; at this rate {', '.join(times)} on average"
    text += per_token
    enough = first.enough_replicas
    if enough is not None and enough < first.replicas:
        text += f"; rented one by one, {several(enough, 'replica')} would do (--on {first.copy_slice})"
    return text


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
    text = f", {first.idle_chips:,} of them idle"
    if first.idle_usd_per_h is not None:
        text += f" at ${first.idle_usd_per_h:,.0f}/h"
    return text


def ran(report: records.ServeReport, first: records.ConfigReport) -> records.MaxRate | None:
    """The largest rate of a replica of the recommended configuration, where `--max-rate` found one."""
    for rate in report.max_rates:
        if (rate.slice, rate.plan) == (first.copy_slice, first.plan) and rate.requests_per_s:
            return rate
    return None


def holds_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What a replica holds under the targets, and what stops more."""
    run = ran(report, first)
    if run is None or run.requests_per_s is None:
        return ""
    text = f"{run.requests_per_s:.3g} requests/s per replica by running"
    if first.copies > 1:
        text += f", {first.copies * run.requests_per_s:.3g}/s on {first.slice}"
    return f"{text}; limited by {limit_text(run)}"


def memory_text(first: records.ConfigReport, brief: bool = False) -> str:
    """What is used of a chip, what engines print of the KV cache when they start, and what this batch leaves of it."""
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB a chip"
    memory = first.memory
    if memory is None:
        return used
    available = (memory.cache_bytes + memory.free_bytes) / GIB
    cache = f"KV cache {memory.kv_cache_tokens:,} tokens, {available:.1f}GiB a chip"
    if brief:
        return f"{used}; {cache}"
    text = f"{used}; {cache}, {memory.free_bytes / 1e9:.1f}GB of it left by this batch"
    if memory.ranks > 1:
        text += f"; {memory.kv_cache_tokens // memory.ranks:,} tokens a rank"
    text += f"; largest batch {first.max_batch:,}"
    if memory.left_alone_bytes >= SHOWN_BYTES:
        text += f"; {memory.left_alone_bytes / 1e9:.1f}GB unused by the engine"
    return text


def windows_text(first: records.ConfigReport) -> str:
    """What is left of the cache where sliding windows keep all tokens."""
    if first.memory is None or not first.memory.whole_windows_tokens:
        return ""
    return (
        f"; where the hybrid KV cache manager is off (--disable-hybrid-kv-cache-manager, KV connectors without it) "
        f"the cache holds {first.memory.whole_windows_tokens:,} tokens"
    )


def context_text(first: records.ConfigReport) -> str:
    """The longest request that works."""
    memory = first.memory
    if memory is None or not memory.largest_context:
        return ""
    text = f"up to {memory.largest_context:,} tokens a request"
    if memory.launched_context and memory.largest_context >= memory.launched_context:
        return f"{text}, as launched; the KV cache holds {memory.kv_cache_tokens:,} tokens of all requests together"
    if not memory.model_context:
        return f"{text}, which fill the KV cache"
    if memory.largest_context >= memory.model_context:
        return f"{text}, all that the model was made for"
    return f"{text}, which fill the KV cache; the model was made for {memory.model_context:,}"


def cache_text(first: records.ConfigReport, length: int) -> str:
    """What the KV cache takes of a chip, and what nothing takes."""
    memory = first.memory
    if memory is None:
        return ""
    size = f"{memory.tokens:,.0f} tokens"
    if memory.page_tokens > 1:
        size = f"{memory.pages:,} pages of {memory.page_tokens}"
    return (
        f"{size}; {amount(memory.sequence_bytes, 'bytes')} for {length:,} tokens, "
        f"{amount(memory.token_bytes, 'bytes')} a token; {memory.left_alone_bytes / 1e9:.1f}GB unused by the engine"
    )


def bounds_text(work: records.ServeRequest, first: records.ConfigReport) -> str:
    """What a decode step cannot be shorter than; one number where both bounds agree."""
    if work.output == 1:
        return ""
    by_kernel, overlapped = amount(first.roofline_s, "s"), amount(first.lower_s, "s")
    if by_kernel == overlapped:
        return f"{by_kernel} a decode step at datasheet rates"
    if first.lower_s > (first.roofline_s or 0.0):
        return f"{overlapped} a decode step at datasheet rates, for its collectives alone; {by_kernel} for its kernels"
    return f"{by_kernel} a decode step at datasheet rates kernel by kernel, {overlapped} with perfect overlap"


def prefill_text(report: records.ServeReport, first: records.ConfigReport) -> str:
    """What of a prompt is computed, alone and in chunks beside the others."""
    # what no prefix cache has
    new_tokens = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    alone = sum(term.expected_s for term in first.prefill_terms)
    text = f"{amount(alone, 's')} for a prompt of {new_tokens:,} tokens with no other request running"
    if first.prefill_chunks > 1:
        chunks = f"{first.prefill_chunks} chunks of up to {first.chunk_tokens:,}"
        text += f"; {amount(first.prefill_s, 's')} beside the others, in {chunks}"
    return text


def memory_stack(first: records.ConfigReport) -> laid.StackedBar:
    """What fills the HBM of a chip; the rest of the bar is free or unused."""
    limit = first.hbm_limit_bytes
    # bytes; what is free is the part of the bar that no part fills
    parts: list[laid.BarPart] = []
    for name, field in MEMORY_PARTS.items():
        size = getattr(first.memory, f"{field}_bytes", 0)
        if size > 0:
            parts.append(laid.BarPart(name, size, f"{size / 1e9:.1f}GB"))
    return laid.StackedBar("memory", tuple(parts), limit, f"{first.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB", "line")


def time_stack(name: str, terms: list[StepTerm], detail: bool, legend: str = "list") -> laid.StackedBar:
    """Where an iteration goes; its parts add up to it."""
    total = sum(term.expected_s for term in terms) or 1.0  # seconds
    parts: list[laid.BarPart] = []
    for term in terms:
        if detail or term.expected_s > SHOWN_SHARE * total:
            parts.append(laid.BarPart(term.name, term.expected_s, amount(term.expected_s, "s")))
    rest = total - sum(part.value for part in parts)
    shown = folded(parts, "s")
    if rest > LEAST_REST * total:
        if shown and shown[-1].name == REST:  # where the smallest of many were folded already
            rest, shown = rest + shown[-1].value, shown[:-1]
        shown = (*shown, laid.BarPart(REST, rest, amount(rest, "s")))
    return laid.StackedBar(name, shown, total, amount(total, "s"), legend)
