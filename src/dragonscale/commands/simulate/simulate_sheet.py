"""A simulated run laid out: whether it holds, what bounds it and what to change; percentiles, the fleet, what became of
requests."""

from dataclasses import dataclass, replace

from dragonscale.blocks.sheet import BRIEF, EXPLAINED, Block, Column, Facts, Grid, Prose, Sheet, Title, several, table
from dragonscale.commands import grids
from dragonscale.commands.simulate.simulate_records import (
    NAMES,
    TITLES,
    CapacityReport,
    ClassReport,
    Latency,
    PoolRow,
    SimulateReport,
)
from dragonscale.commands.simulate.verdict import TRAFFIC
from dragonscale.physics.units import render

# The part of what comes that ends meanwhile in a run that is long enough.
NEARLY = 0.98

# Output tokens for each request up to which requests are prompts alone: embeddings and scores have one.
PROMPTS_ALONE = 1.01

# Words on the traffic that the short answer repeats.
MAX_TRAFFIC = 5

# Classes of traffic that the short answer shows.
MAX_ROWS = 4

# Replicas that a table lists.
MAX_REPLICA_ROWS = 32


def simulate_sheet(report: SimulateReport, detail: bool) -> Sheet:
    """The whole answer: the verdict first."""
    blocks: list[Block] = [_title(report), summary(report, detail)]
    if report.requests.finished:
        table_of_latencies = percentiles(report)
        blocks.append(replace(table_of_latencies, brief_rows=len(table_of_latencies.rows)))
    if report.classes:
        several_classes = len(report.classes) > 1
        blocks.append(
            replace(classes_table(report), level=BRIEF if several_classes else EXPLAINED, brief_rows=MAX_ROWS)
        )
    blocks.append(replace(fleet_table(report), level=BRIEF if len(report.fleet) > 1 else EXPLAINED))
    if detail and report.replicas:
        blocks.append(replicas_table(report))
    if report.notes:
        blocks.append(Prose("\n".join(report.notes), "dim", EXPLAINED))
    return Sheet(tuple(blocks))


def _title(report: SimulateReport) -> Title:
    traffic = ", ".join(f"{name} {value}" for name, value in report.traffic.items())
    verdict = verdict_fact(report)
    brief = ", ".join(f"{name} {value}" for name, value in list(report.traffic.items())[:MAX_TRAFFIC])
    fleet = ", ".join(f"{row.replicas} x {row.slice}" for row in report.fleet)
    return Title(
        f"{report.model} under traffic on {fleet}",
        f"traffic: {traffic}; seed {report.seed}",
        f"{verdict.text[:1].upper()}{verdict.text[1:]}.",
        verdict.tone,
        f"traffic: {brief}",
    )


def summary(report: SimulateReport, detail: bool = False) -> Facts:
    """Whether it holds, and what to do about it."""
    capacity, rates = report.capacity, report.rates
    alone = _prompts_alone(report)
    arrived, output, holds = "", "", None
    if capacity is not None and capacity.requests_per_s is not None:
        holds = capacity_text(report, capacity)
    if report.load is not None:  # random arrivals are not quite as many as asked for
        arrived = f" ({rates.arrived_per_s:.3g}/s came)"
    if not alone:
        per_chip = f"{rates.output_tokens_per_s_per_chip:,.0f} per chip"
        output = f"{rates.output_tokens_per_s:,.0f} output tokens/s ({per_chip}), "
    made_brief = output.removesuffix(", ") or f"{rates.input_tokens_per_s:,.0f} input tokens/s"
    return grids.summary(
        "simulate-facts",
        report,
        came=arrived,
        made=output,
        made_brief=made_brief,
        window=_window(report),
        goodput=goodput_text(report),
        cost=cost_text(report),
        change=None if report.bound_by == TRAFFIC else report.advice,
        remedy=report.remedy,
        holds=holds,
        holds_brief=holds and holds.partition("; ")[0].partition(" (")[0],
        requests=requests_text(report),
        used=use_text(report),
        used_brief=use_text(report, brief=True),
        goodput_brief=f"{rates.goodput_requests_per_s:.3g} requests/s: {rates.good_share:.1%} meet their targets",
        cost_brief=cost_text(report, brief=True),
        cache=report if report.cache_hit_rate or report.host_hit_rate else None,
        drafted=report.tokens_per_verify_step or None,
        planned=None if alone else report.analytic,
        power=power_text(report) if detail or report.mean_watts else None,
        adapters=report if report.adapter_loads else None,
        releases="; ".join(dict.fromkeys(row.release for row in report.fleet if row.release)),
    )


@dataclass(frozen=True)
class VerdictFact:
    """Whether the fleet holds, in a line, and its tone: good, bad or warn."""

    text: str
    tone: str


def verdict_fact(report: SimulateReport) -> VerdictFact:
    """Whether the fleet holds, against its targets."""
    grows = report.load is not None and report.load.grows
    if report.meets_slo is None:
        if not report.requests.finished:
            return VerdictFact("no request finished", "warn")
        if grows:
            return VerdictFact("overloaded: the queue grows", "bad")
        if report.load and report.load.is_burst:
            return VerdictFact(_burst(report), "warn")
        if report.load:
            return VerdictFact(f"keeps up: the queue does not grow{_behind(report)}", "good")
        return VerdictFact("done; no targets were given", "good")
    parts: list[str] = []
    if report.deadline_s:
        parts.append(f"the last ends after {render(report.simulated_s, 's')} of {render(report.deadline_s, 's')}")
    parts.append(", ".join(f"{report.told(name)} of {render(limit, 's')}" for name, limit in report.slo.items()))
    classes = [service for service in report.classes if service.slo]
    parts += map(_class_verdict, classes)
    if report.requests.refused and not report.meets_slo and not any(service.refused for service in classes):
        parts.append(f"{several(sum(report.requests.refused.values()), 'request')} refused")
    if grows:
        parts.append("the queue grows")
    text = "; ".join(filter(None, parts))
    if report.meets_slo and not grows:
        return VerdictFact(f"holds: {text}", "good")
    return VerdictFact(f"does not hold: {text}", "bad")


def _class_verdict(service: ClassReport) -> str:
    latencies = ", ".join(f"{NAMES[name]} {service.told(name)}" for name in service.slo)
    is_late = any(getattr(service.latency[name], at) > service.slo[name] for name, at in service.statistics.items())
    if service.refused and not service.meets_slo and not is_late:
        refused = f"{service.refused:,} of {several(service.arrived, 'request')} of {service.name} refused"
        return f"{refused}; the others meet {latencies}"
    return f"{service.name} {'meets' if service.meets_slo else 'misses'} {latencies}"


def _burst(report: SimulateReport) -> str:
    """What became of requests that came in less time than one takes."""
    served = report.requests.finished / report.simulated_s
    arrived_per_s = report.load.arrived_per_s if report.load else 0.0
    return (
        f"a burst of {report.requests.arrived:,} requests, served in {render(report.simulated_s, 's')} "
        f"({served:.3g}/s): too short to say whether it keeps up with {arrived_per_s:.3g}/s"
    )


def _behind(report: SimulateReport) -> str:
    """That fewer ended than came though nobody queues: batches grew, or the run was short."""
    rates = report.rates
    if rates.requests_per_s > NEARLY * rates.arrived_per_s:
        return ""
    return (
        f" ({rates.requests_per_s:.3g}/s ended of {rates.arrived_per_s:.3g}/s that came while it was measured; the "
        f"others were {'refused or ' if report.requests.refused else ''}still running)"
    )


def _window(report: SimulateReport) -> str:
    """Which part of the run its rates are of: not the start, nor where nothing comes any more."""
    seconds = report.rates.seconds
    if not 0 < seconds < report.simulated_s:
        return ""
    return f", over the {render(seconds, 's')} measured"


def goodput_text(report: SimulateReport) -> str:
    """What met the targets, and each target against p95 and p99."""
    if not report.slo and not any(service.slo for service in report.classes):
        return ""
    whose = {1: "the target", 2: "both targets"}.get(len(report.slo), "all targets")
    if report.classes:
        whose = "the targets of their class"
    rates = report.rates
    met = f"{rates.goodput_requests_per_s:.3g} requests/s: {rates.good_share:.1%} of requests meet {whose}"
    parts: list[str] = []
    for name, limit in report.slo.items():
        latency = report.latency[name]
        parts.append(f"{NAMES[name]} p95 {latency.p95 / limit:.2f}x, p99 {latency.p99 / limit:.2f}x")
    if not parts:
        return met
    return f"{met}; of the target: {'; '.join(parts)}"


def cost_text(report: SimulateReport, brief: bool = False) -> str:
    """The fleet's dollars, by the hour and by the token."""
    if report.rates.cost_usd_per_mtok is None:
        return ""
    prices = "; ".join(f"{row.chip} at {row.text}" for row in report.prices)
    parts: list[str] = []
    if report.usd_per_h:
        chips = f"{report.chips:,.0f} chip{'s' * (report.chips != 1)}"
        if report.chips != round(report.chips):
            chips = f"{report.chips:,.1f} chips on average"
        # slices that are rented whole may bring more chips than the pools take
        if any(pool.name == "prefill" for pool in report.fleet):
            chips += " in use"
        parts += [chips, f"${report.usd_per_h:,.2f}/h"]
    if report.usd:
        parts.append(f"${report.usd:,.2f} in all")
    per_million = _per_million(report, report.rates.cost_usd_per_mtok)
    parts.append(per_million if brief else f"{per_million} ({prices})")
    return ", ".join(parts)


def _prompts_alone(report: SimulateReport) -> bool:
    """Whether requests are prompts alone: embeddings, scores."""
    return report.rates.output_tokens_per_s <= PROMPTS_ALONE * report.rates.requests_per_s


def _per_million(report: SimulateReport, usd: float) -> str:
    """Dollars for a million output tokens, or for as many prompts' tokens."""
    rates = report.rates
    if _prompts_alone(report):
        return f"${usd * rates.output_tokens_per_s / rates.input_tokens_per_s:.3f} per million input tokens"
    return f"${usd:.2f} per million output tokens"


def power_text(report: SimulateReport) -> str:
    """Watts, and tokens of a joule, where the chips' power is known."""
    if not report.watts or not report.tokens_per_joule:
        return ""
    tokens = f"{report.tokens_per_joule:.3g} tokens a joule, prompts included"
    if report.mean_watts:
        return f"about {render(report.mean_watts, 'W')} of {render(report.watts, 'W')} at most, {tokens}"
    return f"{render(report.watts, 'W')} at most, {tokens}"


def capacity_text(report: SimulateReport, capacity: CapacityReport) -> str:
    """What was found by running: the largest rate, and what the asked rate takes."""
    has_targets = report.meets_slo is not None
    max_replicas = report.fleet[0].most_replicas
    text = f"{capacity.requests_per_s:.3g} requests/s at most"
    if max_replicas:  # which are not there from the beginning
        text += f" once all {max_replicas} replicas are up"
    text += _speed(report, capacity)
    if has_targets:
        text += f" (targets met), {capacity.goodput_requests_per_s:.3g}/s meet every target themselves"
    else:
        text += " (no growing queue)"
    if capacity.replicas is not None and capacity.chips is not None:
        text += f"; {_sizes_text(report, capacity, capacity.replicas, capacity.chips)}"
    return f"{text} ({capacity.runs} runs of {capacity.requests_per_run:,} requests)"


def _sizes_text(report: SimulateReport, capacity: CapacityReport, replicas: int, chips: int) -> str:
    """The replicas that hold the asked rate, with their chips and dollars."""
    text = "the change has"
    if report.bound_by == TRAFFIC:
        text = "the asked rate takes"
    text += f" {replicas} replica{'s' * (replicas != 1)}"
    if capacity.prefill_replicas:
        text += f" and {capacity.prefill_replicas} for prefill"
    elif len(report.fleet) > 1:
        text += f" of {report.fleet[0].slice} and the other pools"
    text += f", {chips:,} chip{'s' * (chips != 1)}"
    if capacity.usd_per_h is not None:
        text += f", ${capacity.usd_per_h:,.2f}/h"
    if capacity.usd_per_mtok is not None:
        text += f", {_per_million(report, capacity.usd_per_mtok)}"
    return text


def _speed(report: SimulateReport, capacity: CapacityReport) -> str:
    """The speed at which a trace has the largest rate."""
    reading = report.asked
    if reading is None or report.bound_by != TRAFFIC or capacity.requests_per_s is None:
        return ""
    question, rate = reading.question, reading.job.traffic.rate
    if not question.trace or not rate:
        return ""
    return f" (--speed {question.speed * capacity.requests_per_s / rate:.3g})"


def use_text(report: SimulateReport, brief: bool = False) -> str:
    """What replicas are used for; continuously batching ones are always busy."""
    main, prefill = report.use["serve"], report.use.get("prefill")
    prompts = f"prompts in {main.prompt_share:.0%} of the time, filling {main.budget_share:.0%} of the token budget"
    if prefill is not None:
        busy = [row.busy_share for row in report.replicas if row.pool == "prefill"]
        prompts = f"prefill busy {sum(busy) / len(busy):.0%}, filling {prefill.budget_share:.0%} of its token budget"
    cache = f"KV cache {report.kv_occupancy:.0%} full, {report.mean_waiting:,.1f} queueing"
    if brief:
        return f"batch {report.mean_batch:.1f}, {cache}"
    return f"batch {report.mean_batch:.1f} ({main.places_share:.0%} of places), {prompts}, {cache}"


def requests_text(report: SimulateReport) -> str:
    """What became of every request."""
    outcome = report.requests
    parts = [f"{outcome.arrived:,} in {render(report.simulated_s, 's')}: {outcome.finished:,} finished"]
    parts += [f"{count:,} refused ({reason})" for reason, count in outcome.refused.items()]
    if outcome.unfinished:
        parts.append(f"{outcome.unfinished:,} unfinished")
    if outcome.failures or (report.asked is not None and report.asked.question.fail):
        parts.append(f"{outcome.failures:,} replica failure{'s' * (outcome.failures != 1)}")
    if outcome.retried:
        parts.append(f"{outcome.retried:,} retried")
    if outcome.preempted:
        parts.append(f"{outcome.preempted:,} preemptions")
    return ", ".join(parts)


def percentiles(report: SimulateReport) -> Grid:
    """Latencies, each with its target."""
    rows = []
    for name, title in TITLES.items():
        if name in report.latency and report.latency[name].max > 0:  # answers of one token have no time between
            target = ""
            if name in report.statistics:
                target = f"{report.statistics[name]} {render(report.slo[name], 's')}"
            rows.append([title, *_times(report.latency[name]), target])
    heads = ("mean", "±", "p50", "p90", "p95", "p99")
    columns = ["latency", *(Column(head, right=True, keep={"±": 2, "p90": 3}.get(head, 9)) for head in heads)]
    if report.slo:
        columns.append(Column("target", right=True, keep=9))
    return table(columns, [row[: len(columns)] for row in rows], "percentiles", _front(report))


def classes_table(report: SimulateReport) -> Grid:
    """Classes of traffic, each against its own targets."""
    columns = {
        "TTFT": lambda row: row.told("ttft_s"),
        "TPOT": lambda row: row.told("tpot_s"),
        "meets": lambda row: {True: "yes", False: "no", None: "–"}[row.meets_slo],
        "queue": lambda row: render(row.waited["queue_s"], "s"),
        "prefill": lambda row: render(row.waited["prefill_s"], "s"),
    }
    without: list[str] = []
    if not any(row.earned_usd_per_h for row in report.classes):
        without.append("earns $/h")
    return grids.grid("simulate-classes", report.classes, own=columns, without=without)


def _front(report: SimulateReport) -> str:
    """What of the time before a request is scheduled is no queue."""
    if report.asked is None or not report.asked.job.fleet.overhead_s:
        return ""
    front = render(report.asked.job.fleet.overhead_s, "s")
    return f"Until scheduled: {front} of HTTP server and tokenizer for every request; the rest is queueing."


def _times(latency: Latency) -> list[str]:
    """The mean, half of its interval as a part of it, and the percentiles."""
    spread = ""
    if latency.mean_high is not None and latency.mean:
        half_width = (latency.mean_high - latency.mean) / latency.mean
        if half_width <= 1:  # a run too short for an interval says nothing by one
            spread = f"{half_width:.1%}"
    percentiles = (latency.p50, latency.p90, latency.p95, latency.p99)
    return [render(latency.mean, "s"), spread, *(render(seconds, "s") for seconds in percentiles)]


def _replicas(row: PoolRow) -> str:
    """Replicas of a pool, with how many autoscaling may make of them."""
    if row.most_replicas is None:
        return f"{row.replicas}"
    return f"{row.replicas} to {row.most_replicas}"


def fleet_table(report: SimulateReport) -> Grid:
    """The replicas, alike in each row, with what each of several pools reached on average."""
    use = report.use | {"decode": report.use["serve"]}  # of two pools the first is called so
    columns = {
        "replicas": _replicas,
        "router": lambda row: row.router.replace("_", " "),
        "KV full": lambda row: f"{use[row.name].kv_share:.0%}",
        "batch": lambda row: f"{use[row.name].mean_batch:.1f}",
        "TTFT": (lambda row: use[row.name].ttft_s or None, "s"),
        "TPOT": (lambda row: use[row.name].tpot_s or None, "s"),
    }
    without: list[str] = []
    if not any(row.takes for row in report.fleet):
        without.append("takes")
    if len(report.fleet) == 1:  # what all replicas reached stands above the table
        without += ["KV full", "batch", "TTFT", "TPOT"]
    return grids.grid("simulate-fleet", report.fleet, own=columns, without=without)


def replicas_table(report: SimulateReport, max_rows: int = MAX_REPLICA_ROWS) -> Grid:
    """What each replica did, at most so many of them."""
    left_out, foot = len(report.replicas) - max_rows, ""
    if left_out > 0:
        foot = f"and {left_out:,} more"
    return grids.grid("simulate-replicas", report.replicas[:max_rows], foot=foot)
