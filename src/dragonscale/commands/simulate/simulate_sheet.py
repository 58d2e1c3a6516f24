"""A simulated run laid out: whether it holds, what bounds it and what to change; percentiles, the fleet, what became of
requests."""

import math

from dragonscale.blocks.sheet import Block, Column, Facts, Grid, Prose, Sheet, Title, table
from dragonscale.commands import grids
from dragonscale.commands.simulate.simulate_records import (
    NAMES,
    TITLES,
    CapacityReport,
    ClassReport,
    Latency,
    SimulateReport,
)
from dragonscale.commands.simulate.verdict import TRAFFIC
from dragonscale.physics.units import render

NEARLY = 0.98
"""The part of what comes that ends meanwhile in a run that is long enough."""


def simulate_sheet(report: SimulateReport, detail: bool) -> Sheet:
    """The whole answer: the verdict first."""
    blocks: list[Block] = [_title(report), summary(report, detail)]
    if report.requests.finished:
        blocks.append(percentiles(report))
    blocks += [classes_table(report)] if report.classes else []
    blocks.append(fleet_table(report))
    blocks += [replicas_table(report)] if detail and report.replicas else []
    blocks += [Prose("\n".join(report.notes), "dim")] if report.notes else []
    return Sheet(tuple(blocks))


def _title(report: SimulateReport) -> Title:
    traffic = ", ".join(f"{name} {value}" for name, value in report.traffic.items())
    return Title(f"{report.model} under traffic", f"traffic: {traffic}; seed {report.seed}")


def summary(report: SimulateReport, detail: bool = False) -> Facts:
    """Whether it holds, and what to do about it."""
    found, rates = report.capacity, report.rates
    _, verdict, tone = verdict_fact(report)
    return grids.summary(
        "simulate-facts",
        report,
        verdict=verdict,
        tone=tone,
        # random arrivals are not quite as many as asked for
        came=f" ({report.rates.arrived_per_s:.3g}/s came)" if report.load is not None else "",
        made=""
        if _alone(report)
        else f"{rates.output_tokens_per_s:,.0f} output tokens/s ({rates.output_tokens_per_s_per_chip:,.0f} per chip), ",
        window=_window(report),
        goodput=goodput_text(report),
        cost=cost_text(report),
        change=report.advice if report.bound_by != TRAFFIC else None,
        holds=capacity_text(report, found) if found is not None and found.requests_per_s is not None else None,
        requests=requests_text(report),
        used=use_text(report),
        cache=report if report.cache_hit_rate or report.host_hit_rate else None,
        drafted=report.tokens_per_verify_step or None,
        planned=None if _alone(report) else report.analytic,
        power=power_text(report) if detail or report.mean_watts else None,
        adapters=report if report.adapter_loads else None,
        releases="; ".join(dict.fromkeys(row.release for row in report.fleet if row.release)),
    )


def verdict_fact(report: SimulateReport) -> tuple[str, str, str]:
    """Whether the fleet holds, against its targets."""
    grows = report.load is not None and report.load.grows
    queue = "the queue grows" if grows else ""
    if report.meets_slo is None:
        if not report.requests.finished:
            return "verdict", "no request finished", "warn"
        steady = f"keeps up: the queue does not grow{_behind(report)}" if report.load else "done; no targets were given"
        return ("verdict", "overloaded: the queue grows", "bad") if grows else ("verdict", steady, "good")
    ends = f"the last ends after {render(report.simulated_s, 's')}"
    last = f"{ends} of {render(report.deadline_s, 's')}" if report.deadline_s else ""
    text = ", ".join(f"{report.told(name)} of {render(limit, 's')}" for name, limit in report.slo.items())
    text = "; ".join(filter(None, (last, text, *(_class_verdict(one) for one in report.classes if one.slo))))
    if report.meets_slo and not grows:
        return "verdict", f"holds: {text}", "good"
    return "verdict", f"does not hold: {'; '.join(filter(None, (text, queue)))}", "bad"


def _class_verdict(one: ClassReport) -> str:
    words = ", ".join(f"{NAMES[name]} {one.told(name)}" for name in one.slo)
    return f"{one.name} {'meets' if one.meets_slo else 'misses'} {words}"


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
    return f", over the {render(seconds, 's')} measured" if 0 < seconds < report.simulated_s else ""


def goodput_text(report: SimulateReport) -> str:
    """What met the targets, and each target against p95 and p99."""
    if not report.slo and not any(one.slo for one in report.classes):
        return ""
    parts = []
    for name, limit in report.slo.items():
        shares = ", ".join(f"p{part} {getattr(report.latency[name], f'p{part}') / limit:.2f}x" for part in (95, 99))
        parts.append(f"{NAMES[name]} {shares}")
    both = {1: "the target", 2: "both targets"}.get(len(report.slo), "all targets")
    both = "the targets of their class" if report.classes else both
    rates = report.rates
    met = f"{rates.goodput_requests_per_s:.3g} requests/s: {rates.good_share:.1%} of requests meet {both}"
    return f"{met}; of the target: {'; '.join(parts)}" if parts else met


def cost_text(report: SimulateReport) -> str:
    """The fleet's dollars, by the hour and by the token."""
    if report.rates.cost_usd_per_mtok is None:
        return ""
    at = "; ".join(f"{row.chip} at {row.text}" for row in report.prices)
    mean = report.chips != round(report.chips)
    chips = f"{report.chips:,.1f} chips on average" if mean else f"{report.chips:,.0f} chip{'s' * (report.chips != 1)}"
    # slices that are rented whole may bring more chips than the pools take
    in_use = " in use" if any(pool.name == "prefill" for pool in report.fleet) else ""
    hourly = f"{chips}{in_use}, ${report.usd_per_h:,.2f}/h, " if report.usd_per_h else ""
    hourly += f"${report.usd:,.2f} in all, " if report.usd else ""
    return f"{hourly}{_per_million(report, report.rates.cost_usd_per_mtok)} ({at})"


def _alone(report: SimulateReport) -> bool:
    """Whether requests are prompts alone: embeddings, scores."""
    return report.rates.output_tokens_per_s <= 1.01 * report.rates.requests_per_s


def _per_million(report: SimulateReport, usd: float) -> str:
    """Dollars for a million output tokens, or for as many prompts' tokens."""
    rates = report.rates
    if _alone(report):
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


def capacity_text(report: SimulateReport, found: CapacityReport) -> str:
    """What was found by running."""
    goal = "targets met" if report.meets_slo is not None else "no growing queue"
    most = report.fleet[0].most_replicas  # which are not there from the beginning
    up = f" once all {most} replicas are up" if most else ""
    text = f"{found.requests_per_s:.3g} requests/s at most{up}{_speed(report, found)} ({goal})"
    text += (
        f", {found.goodput_requests_per_s:.3g}/s meet every target themselves" if report.meets_slo is not None else ""
    )
    if found.replicas is not None and found.chips is not None:
        apart = f" and {found.prefill_replicas} for prefill" if found.prefill_replicas else ""
        money = f", ${found.usd_per_h:,.2f}/h" if found.usd_per_h is not None else ""
        money += f", {_per_million(report, found.usd_per_mtok)}" if found.usd_per_mtok is not None else ""
        takes = "the asked rate takes" if report.bound_by == TRAFFIC else "the change has"
        count = f"{found.replicas} replica{'s' * (found.replicas != 1)}"
        count += f" of {report.fleet[0].slice} and the other pools" if len(report.fleet) > 1 and not apart else ""
        text += f"; {takes} {count}{apart}, {found.chips:,} chip{'s' * (found.chips != 1)}{money}"
    return f"{text} ({found.runs} runs of {found.requests_per_run:,} requests)"


def _speed(report: SimulateReport, found: CapacityReport) -> str:
    """The speed at which a trace has that rate."""
    asked = report.asked
    if asked is None or report.bound_by != TRAFFIC or not asked.question.trace or not asked.job.traffic.rate:
        return ""
    return f" (--speed {asked.question.speed * found.requests_per_s / asked.job.traffic.rate:.3g})"


def use_text(report: SimulateReport) -> str:
    """What replicas are used for; continuously batching ones are always busy."""
    own, prefill = report.use["serve"], report.use.get("prefill")
    prompts = f"prompts in {own.prompt_share:.0%} of the time, filling {own.budget_share:.0%} of the token budget"
    if prefill is not None:
        busy = [row.busy_share for row in report.replicas if row.pool == "prefill"]
        prompts = f"prefill busy {sum(busy) / len(busy):.0%}, filling {prefill.budget_share:.0%} of its token budget"
    cache = f"KV cache {report.kv_occupancy:.0%} full, {report.mean_waiting:,.1f} queueing"
    return f"batch {report.mean_batch:.1f} ({own.places_share:.0%} of places), {prompts}, {cache}"


def requests_text(report: SimulateReport) -> str:
    """What became of every request."""
    found = report.requests
    parts = [f"{found.arrived:,} in {render(report.simulated_s, 's')}: {found.finished:,} finished"]
    parts += [f"{count:,} refused ({reason})" for reason, count in found.refused.items()]
    parts += [f"{found.unfinished:,} unfinished"] if found.unfinished else []
    if found.failures or (report.asked is not None and report.asked.question.fail):
        parts.append(f"{found.failures:,} replica failure{'s' * (found.failures != 1)}")
    parts += [f"{found.retried:,} retried"] if found.retried else []
    parts += [f"{found.preempted:,} preemptions"] if found.preempted else []
    return ", ".join(parts)


def percentiles(report: SimulateReport) -> Grid:
    """Latencies, each with its target."""
    rows = []
    for name, title in TITLES.items():
        if name in report.latency and report.latency[name].max > 0:  # answers of one token have no time between
            at = report.statistics.get(name)
            target = f"{at} {render(report.slo[name], 's')}" if at else ""
            rows.append([title, *_times(report.latency[name]), target])
    heads = ("mean", "±", "p50", "p90", "p95", "p99")
    columns = ["latency", *(Column(head, right=True, keep={"±": 2, "p90": 3}.get(head, 9)) for head in heads)]
    columns.append(Column("target", right=True, keep=9 if report.slo else 1))
    kept = len(columns) if report.slo else len(columns) - 1
    return table(columns[:kept], [row[:kept] for row in rows], "percentiles", _front(report))


def classes_table(report: SimulateReport) -> Grid:
    """Classes of traffic, each against its own targets."""
    columns = {
        "TTFT": lambda row: row.told("ttft_s"),
        "TPOT": lambda row: row.told("tpot_s"),
        "meets": lambda row: {True: "yes", False: "no", None: "–"}[row.meets_slo],
        "queue": lambda row: render(row.waited["queue_s"], "s"),
        "prefill": lambda row: render(row.waited["prefill_s"], "s"),
    }
    without = [] if any(row.earned_usd_per_h for row in report.classes) else ["earns $/h"]
    return grids.grid("simulate-classes", report.classes, own=columns, without=without)


def _front(report: SimulateReport) -> str:
    """What of the time before a request is scheduled is no queue."""
    front = 0.0 if report.asked is None else report.asked.job.fleet.overhead_s
    if not front:
        return ""
    return (
        f"Until scheduled: {render(front, 's')} of HTTP server and tokenizer for every request; the rest is queueing."
    )


def _times(one: Latency) -> list[str]:
    part = (one.mean_high - one.mean) / one.mean if one.mean_high is not None and one.mean else math.inf
    spread = f"{part:.1%}" if part <= 1 else ""  # a run too short for an interval says nothing by one
    return [render(one.mean, "s"), spread, *(render(value, "s") for value in (one.p50, one.p90, one.p95, one.p99))]


def fleet_table(report: SimulateReport) -> Grid:
    """The replicas, alike in each row, with what each of several pools reached on average."""
    use = report.use | {"decode": report.use["serve"]}  # of two pools the first is called so
    columns = {
        "replicas": lambda row: f"{row.replicas}" + ("" if row.most_replicas is None else f" to {row.most_replicas}"),
        "router": lambda row: row.router.replace("_", " "),
        "KV full": lambda row: f"{use[row.name].kv_share:.0%}",
        "batch": lambda row: f"{use[row.name].mean_batch:.1f}",
        "TTFT": (lambda row: use[row.name].ttft_s or None, "s"),
        "TPOT": (lambda row: use[row.name].tpot_s or None, "s"),
    }
    without = [] if any(row.takes for row in report.fleet) else ["takes"]
    without += [] if len(report.fleet) > 1 else ["KV full", "batch", "TTFT", "TPOT"]
    return grids.grid("simulate-fleet", report.fleet, own=columns, without=without)


def replicas_table(report: SimulateReport, most: int = 32) -> Grid:
    """What each replica did, at most so many of them."""
    left = len(report.replicas) - most
    return grids.grid("simulate-replicas", report.replicas[:most], foot=f"and {left:,} more" if left > 0 else "")
