"""`dscale simulate` asked and answered: the run's numbers, the planner's beside them, what would hold, and the next
command."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.given import unnamed
from dragonscale.commands.questions.flag import fields_of, written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.record import Face, bind, shared
from dragonscale.commands.simulate import simulate_records as records
from dragonscale.commands.simulate.capacity import FleetCapacity, find_by_deadline, find_capacity, missed_targets
from dragonscale.commands.simulate.missed import missed_classes
from dragonscale.commands.simulate.power import mean_watts, tokens_of
from dragonscale.commands.simulate.simulate_charts import draw
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.commands.simulate.simulate_sheet import simulate_sheet
from dragonscale.commands.simulate.verdict import verdict
from dragonscale.listener import Listener
from dragonscale.physics.hardware.price_book import site_watts
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Ask, judge
from dragonscale.serving.space.space import one_plan
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.simulation import Pool, SimulationResult, Summary, save_trace, simulate
from dragonscale.simulation.backlog import Backlog, load_of

EVENTS = 200_000
"""Events of a timeline at most: some tens of megabytes, which the viewer opens."""
SEARCHING = 0.5
"""The part of the progress that the run itself is; looking for what would hold is the rest."""


def ask(question: SimulateQuestion, listener: Listener, watch: int = 0) -> records.SimulateReport:
    """Read a question, tell how it was read, and answer it; the run keeps what the first `watch`
    replicas do over time."""
    asked = read_question(question)
    asked = replace(asked, options=replace(asked.options, watch=watch))
    for text in asked.notes:
        listener.note(text)
    total = max(asked.traffic.source.requests, 1)

    def running(done: int) -> None:
        listener.step(done, round(total / SEARCHING))

    def searching(done: int, runs: int) -> None:
        listener.step(round((SEARCHING + (1 - SEARCHING) * done / max(runs, 1)) * 1000), 1000)

    return run_simulation(asked, running, searching)[0].came_from(asked, listener.notes)


def save_run(report: records.SimulateReport, path: str) -> str:
    """Write the run as a timeline for ui.perfetto.dev: every iteration of every replica, every request. The same seed
    gives the same run, so it is run again with its events kept."""
    asked: SimulateAsked = report.asked
    result = simulate(asked.fleet, asked.traffic.source, replace(asked.options, events=EVENTS))
    save_trace(result.trace, path)
    return "; open it at https://ui.perfetto.dev"


def next_command(report: records.SimulateReport) -> tuple[str, str]:
    """What to ask next, and why: the fleet that would hold, or the largest rate of one that does."""
    question = report.asked.original if report.asked is not None else None
    if question is None or not report.requests.finished:
        return "", ""
    if unnamed(*(getattr(question, field.name) for field in fields_of(SimulateQuestion))):
        return "", ""
    found = report.capacity
    holds = report.meets_slo is not False and not (report.load is not None and report.load.grows)
    if holds:
        if report.load is None:
            return "", ""
        if found is not None:
            have = [pool.replicas for pool in report.fleet]
            fewer = found.replicas is not None and found.replicas + found.prefill_replicas < sum(have)
            return (_changed(question, found), "Next, the smaller fleet:") if fewer else ("", "")
        return command_of(replace(question, max_rate=True)), "Next, the largest rate that it holds:"
    if found is None or not found.change or question.trace:
        return "", ""
    return _changed(question, found), "Next, the fleet that would hold:"


def _changed(question: SimulateQuestion, found: records.CapacityReport) -> str:
    return command_of(replace(question, max_rate=None, **found.change))


def command_of(question: SimulateQuestion) -> str:
    """The command that asks a question.

    >>> command_of(SimulateQuestion("llama3-8b", on="h100:1", rate="4/s", max_rate=True))
    'dscale simulate llama3-8b --on h100:1 --rate 4/s --max-rate'
    """
    words = ["dscale simulate"]
    for field in fields_of(SimulateQuestion):
        value = getattr(question, field.name)
        if field.place:
            words.append(shlex.quote(written(value)))
        elif value != field.default:
            words.append(field.flag if value is not False else f"--no-{field.flag[2:]}")
            words += [] if field.switch else [shlex.quote(written(value))]
    return " ".join(words)


# The answer to `dscale simulate`: the run's numbers, the planner's beside them, what would hold, and what to change.


Progress = Callable[[int, int], None]


def run_simulation(
    asked: SimulateAsked, progress: Callable[[int], None] | None = None, searching: Progress | None = None
) -> tuple[records.SimulateReport, SimulationResult]:
    """Simulate, find what would hold where this does not (or where that was asked), and report."""
    result = simulate(asked.fleet, asked.traffic.source, asked.options, progress)
    scaled = asked.fleet.pool.autoscale is not None
    load = None if asked.traffic.rate is None else load_of(result, scaled)
    found = None
    if load is not None and _wanted(asked, result, load):
        found = find_capacity(asked, result, load, searching)
    elif asked.deadline_s and asked.question.max_rate is not False:
        found = find_by_deadline(asked, result)
    return _report(asked, result, load, found).came_of(result), result


def _wanted(asked: SimulateAsked, result: SimulationResult, load: Backlog) -> bool:
    """Whether to look for what would hold."""
    if asked.question.max_rate is not None:
        return asked.question.max_rate
    if not result.outcome.finished:
        return False
    return load.grows or bool(missed_targets(result, asked.targets, asked.class_targets))


def _report(
    asked: SimulateAsked, result: SimulationResult, load: Backlog | None, found: FleetCapacity | None
) -> records.SimulateReport:
    counts = up_replicas(asked, result)
    chips, hourly, watts = fleet_chips(asked, counts), fleet_usd_per_h(asked, counts), fleet_watts(asked, counts)
    drawn = mean_watts(asked, result, counts)
    missed = missed_targets(result, asked.targets, asked.class_targets)
    late = result.seconds > asked.deadline_s or result.outcome.finished < result.outcome.arrived
    bound, advice = verdict(asked, result, load, missed, found)
    kinds = [one.chip for _, one, _ in asked.pools]
    tokens = result.throughput.output_tokens_per_s
    each = tokens / chips if chips else 0.0
    cost = float(usd_per_million(tokens, 1, hourly)) if hourly is not None and tokens > 0 else None
    rows = [
        records.ReplicaRow(**shared(records.ReplicaRow, one, busy_share=result.busy(one))) for one in result.replicas
    ]
    latency = {name: latency_of(summary) for name, summary in result.latency.items()}
    classes = _classes(asked, result, hourly)
    return records.SimulateReport(
        **shared(records.SimulateReport, result, replicas=rows, latency=latency, classes=classes),
        model=asked.deployment.model.name,
        traffic=_described(asked),
        fleet=_pools(asked),
        seed=asked.options.seed,
        simulated_s=result.seconds,
        requests=result.outcome,
        rates=records.SimulatedRates(
            **vars(result.throughput), output_tokens_per_s_per_chip=each, cost_usd_per_mtok=cost
        ),
        slo={name: target.seconds for name, target in asked.targets.items()},
        statistics={name: target.statistic for name, target in asked.targets.items()},
        meets_slo=not (missed or (asked.deadline_s and late)) if asked.has_targets or asked.deadline_s else None,
        deadline_s=asked.deadline_s or None,
        usd=hourly and hourly * result.seconds / 3600 if asked.deadline_s else None,
        watts=watts,
        mean_watts=drawn,
        tokens_per_joule=_tokens_per_joule(result, watts, drawn),
        percentile=asked.percentile,
        target_ratios={name: asked.reached(result, name) / target.seconds for name, target in asked.targets.items()},
        analytic=_analytic(asked, result),
        load=load and records.LoadReport(**shared(records.LoadReport, load)),
        capacity=found and _capacity(asked, found),
        chips=chips,
        usd_per_h=hourly,
        bound_by=bound,
        advice=advice,
        notes=[sentence] if (sentence := unpriced(kinds, kind=asked.question.pricing)) else [],
        prices=price_rows(kinds),
    )


def _tokens_per_joule(result: SimulationResult, limit: float | None, drawn: float | None) -> float | None:
    """By what the fleet draws, where that is known, over all of the run; else by its chips' limits."""
    if drawn:
        return tokens_of(result) / (drawn * result.seconds) if result.seconds else None
    throughput = result.throughput
    return (throughput.output_tokens_per_s + throughput.input_tokens_per_s) / limit if limit else None


def _described(asked: SimulateAsked) -> dict[str, Any]:
    """The traffic in the words of the flags that describe it."""
    if asked.traffic.classes:
        return {one.name: one.text for one in asked.traffic.classes}
    names, question = ["requests"], asked.question
    if question.trace:
        return {"trace": question.trace[:], "speed": question.speed}
    names += ["clients"] if question.clients else ["arrivals", *(["rate"] if question.rate else [])]
    names += ["prompt", "output", "lengths"]
    names += [name for name in ("prefixes", "adapters", "images", "deadline") if getattr(question, name)]
    return {name: getattr(question, name) for name in names}


def _pools(asked: SimulateAsked) -> list[records.PoolRow]:
    def row(name: str, deployment: Deployment, pool: Pool) -> records.PoolRow:
        name = "decode" if name == "serve" and asked.prefill is not None else name
        where = str(deployment.piece), str(deployment.plan), deployment.engine.name, pool.scheduler.kind
        chips, most = pool.replicas * deployment.piece.chips, pool.autoscale.most if pool.autoscale else None
        other = deployment.model.name if deployment.model.name != asked.deployment.model.name else ""
        kinds = [asked.traffic.classes[kind].name for kind in pool.kinds]
        takes = filter(None, (", ".join(kinds), f"up to {pool.upto:,} tokens" if pool.upto else "", other))
        own = pool.replicas, chips, pool.kv_tokens, asked.fleet.pool.router if name != "prefill" else pool.router
        return records.PoolRow(name, *where, *own, most, "; ".join(takes), deployment.engine.described_release)

    return [row(*one) for one in asked.pools]


def up_replicas(asked: SimulateAsked, result: SimulationResult) -> list[float]:
    """Replicas of each pool; on average where it grows and shrinks."""
    return [result.use[name].replicas if pool.autoscale else float(pool.replicas) for name, _, pool in asked.pools]


def sized(asked: SimulateAsked, replicas: float, prefills: int) -> list[float]:
    """Replicas of each pool where the first, and the one that prefills, have so many."""
    own = {"serve": replicas, "prefill": prefills}
    return [own.get(name, pool.replicas) for name, _, pool in asked.pools]


def fleet_chips(asked: SimulateAsked, counts: Sequence[float]) -> float:
    """Chips of so many replicas of each pool."""
    return sum(count * one.piece.chips for count, (_, one, _) in zip(counts, asked.pools, strict=True))


def fleet_usd_per_h(asked: SimulateAsked, counts: Sequence[float]) -> float | None:
    """Dollars for an hour of so many replicas; None where a price is not known."""
    prices = [one.chip.price for _, one, _ in asked.pools]
    if None in prices:
        return None
    rows = zip(counts, prices, asked.pools, strict=True)
    return sum(count * one.piece.chips * price for count, price, (_, one, _) in rows if price)


def fleet_watts(asked: SimulateAsked, counts: Sequence[float]) -> float | None:
    """Watts of the fleet at its chips' limits, with their share of hosts; None where a chip's power is not known."""
    watts = [site_watts(one.chip) for _, one, _ in asked.pools]
    if None in watts:
        return None
    rows = zip(counts, watts, asked.pools, strict=True)
    return sum(count * one.piece.chips * each for count, each, (_, one, _) in rows if each)


def _capacity(asked: SimulateAsked, found: FleetCapacity) -> records.CapacityReport:
    """What was found by running, in numbers."""
    best = found.trial if found.rate is not None else None
    run = found.confirmed or best
    rates = best.result.throughput if best is not None else None
    replicas, prefills = found.replicas, found.prefills
    scales = any(pool.autoscale for _, _, pool in asked.pools)
    counts = None if replicas is None else sized(asked, replicas, prefills)
    if found.confirmed is not None and scales:  # of a fleet that grows, on average
        counts = up_replicas(asked, found.confirmed.result)
    hourly = None if counts is None else fleet_usd_per_h(asked, counts)
    chips = None if counts is None else round(fleet_chips(asked, counts))
    output, rate = asked.traffic.output, asked.traffic.rate or 0.0
    served = min(rate, found.rate or rate) if found.confirmed is None else rate
    cost = None if hourly is None or not served else float(usd_per_million(served * output, 1, hourly))
    ttft, tpot = (run and asked.reached(run.result, name) for name in ("ttft_s", "tpot_s"))
    return records.CapacityReport(
        requests_per_s=found.rate,
        goodput_requests_per_s=rates and found.rate and found.rate * rates.good_share,
        good_share=rates and rates.good_share,
        limited_by=found.limit,
        percentile=asked.percentile,
        replicas=replicas,
        prefill_replicas=prefills,
        chips=chips,
        usd_per_h=hourly,
        usd_per_mtok=cost,
        ttft_s=ttft,
        tpot_s=tpot,
        change=found.change,
        runs=found.runs,
        requests_per_run=found.requests,
    )


def _classes(asked: SimulateAsked, result: SimulationResult, hourly: float | None) -> list[records.ClassReport]:
    """Each class of traffic; what the fleet costs is divided by the time that their requests spend in replicas."""
    seconds, held = result.throughput.seconds or 1.0, sum(own.served_s for own in result.classes) or 1.0
    found = list[records.ClassReport]()
    for one, own in zip(asked.traffic.classes, result.classes, strict=False):
        rate, (queue, ttft, e2e, _) = own.measured / seconds, (times.mean.value for times in own.latency.values())
        inputs, outputs = (rate * count / max(own.finished, 1) for count in (own.input_tokens, own.output_tokens))
        share, latency = own.served_s / held, {name: latency_of(times) for name, times in own.latency.items()}
        usd = None if hourly is None else share * hourly
        found.append(
            records.ClassReport(
                **shared(records.ClassReport, own, latency=latency),
                name=one.name,
                priority=one.priority,
                requests_per_s=rate,
                slo={name: goal.seconds for name, goal in one.targets.items()},
                statistics={name: goal.statistic for name, goal in one.targets.items()},
                meets_slo=not missed_classes([own], [one.targets]) if one.targets else None,
                goodput_requests_per_s=rate * own.good_share,
                waited={"queue_s": queue, "prefill_s": ttft - queue, "decode_s": e2e - ttft},
                input_tokens_per_s=inputs,
                output_tokens_per_s=outputs,
                served_share=share,
                usd_per_h=usd,
                usd_per_mtok=None if usd is None or not outputs else float(usd_per_million(outputs, 1, usd)),
                earned_usd_per_h=3600 * (inputs * one.input_price + outputs * one.output_price) / 1e6,
            )
        )
    return found


def latency_of(summary: Summary) -> records.Latency:
    """A distribution as a record."""

    def interval(estimate: Any) -> tuple[float | None, float | None]:
        return (estimate.low, estimate.high) if estimate.known else (None, None)

    p50, p90, p95, p99 = (one.value for one in (summary.p50, summary.p90, summary.p95, summary.p99))
    most, ends = summary.most, (*interval(summary.mean), *interval(summary.p99))
    return records.Latency(summary.mean.value, p50, p90, p95, p99, most, *ends)


def _analytic(asked: SimulateAsked, result: SimulationResult) -> records.Analytic | None:
    """The planner's steady state at the mean batch; only of requests that are all alike, for which there is one."""
    question = asked.question
    varies = question.trace or question.prefixes or question.autoscale or asked.traffic.classes
    alike = question.lengths in ("fixed", "varied") and not varies
    alike = alike and len(asked.pools) == 1 and not (question.adapters or question.images or question.drafts)
    if not alike or not result.outcome.finished:
        return None
    deployment = asked.deployment
    lot = one_plan(deployment.piece, deployment.plan)
    running = max(1, round(result.mean_running / max(asked.fleet.pool.replicas, 1)))
    found = judge(deployment.model, lot, deployment.engine, Ask(asked.traffic.prompt, asked.traffic.output), (running,))
    return records.Analytic(found[0].batch, float(found[0].state.tpot), float(found[0].state.ttft)) if found else None


def _sheet(report: records.SimulateReport, detail: bool) -> Sheet:
    command, why = next_command(report)
    sheet = simulate_sheet(report, detail)
    return Sheet((*sheet.blocks, NextStep(command, why))) if command else sheet


bind(records.SimulateReport, Face(_sheet, draw, timeline=save_run))
