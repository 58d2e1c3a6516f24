"""`dscale simulate` asked and answered: the run's numbers, the planner's beside them, what would hold, and the next
command."""

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.given import unnamed
from dragonscale.commands.questions.flag import fields_of, written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.record import Face, bind, shared
from dragonscale.commands.simulate import simulate_records as records
from dragonscale.commands.simulate.simulate_charts import draw
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.commands.simulate.simulate_sheet import simulate_sheet
from dragonscale.commands.simulate.verdict import change_flags, verdict_text
from dragonscale.listener import Listener
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.serving.space.fleet_cost import fleet_cost
from dragonscale.serving.space.frontier import Ask, judge
from dragonscale.serving.space.space import one_plan
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.simulation import SimulationResult, save_trace
from dragonscale.simulation.backlog import Backlog, load_of
from dragonscale.simulation.fleet_sizing.capacity import FleetCapacity, find_by_deadline, find_capacity
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob, NamedPool
from dragonscale.simulation.fleet_sizing.fleet_run import (
    cost_of_replicas,
    mean_replicas,
    replicas_with,
    run_fleet,
)
from dragonscale.simulation.fleet_sizing.fleet_traffic import ServiceClass
from dragonscale.simulation.fleet_sizing.missed_targets import missed_by_classes, missed_targets
from dragonscale.simulation.fleet_sizing.power import mean_watts, tokens_per_joule
from dragonscale.simulation.fleet_sizing.simulated_run import latency_of
from dragonscale.simulation.result import ClassResult

# Events of a timeline at most: some tens of megabytes, which the viewer opens.
MAX_EVENTS = 200_000

# The part of the progress that the run itself is; looking for what would hold is the rest.
RUN_SHARE = 0.5

# Steps of the progress while what would hold is looked for.
PROGRESS_STEPS = 1000

Progress = Callable[[int, int], None]


def ask(question: SimulateQuestion, listener: Listener, watch: int = 0) -> records.SimulateReport:
    """Read a question, say how it was read, and answer it; the run keeps what the first `watch` replicas do over
    time."""
    asked = replace(read_question(question), watch=watch)
    for note in asked.notes:
        listener.note(note)
    requests = max(asked.job.source.requests, 1)

    def running(done: int) -> None:
        listener.step(done, round(requests / RUN_SHARE))

    def searching(done: int, runs: int) -> None:
        share = RUN_SHARE + (1 - RUN_SHARE) * done / max(runs, 1)
        listener.step(round(share * PROGRESS_STEPS), PROGRESS_STEPS)

    report, _ = run_simulation(asked, running, searching)
    return report.came_from(asked, listener.notes)


def save_run(report: records.SimulateReport, path: str) -> str:
    """Write the run as a timeline for ui.perfetto.dev: every iteration of every replica, every request. The same seed
    gives the same run, so it is run again with its events kept."""
    asked: SimulateAsked = report.asked
    save_trace(run_fleet(asked.job, events=MAX_EVENTS, watch=asked.watch).trace, path)
    return "; open it at https://ui.perfetto.dev"


def next_command(report: records.SimulateReport) -> tuple[str, str]:
    """What to ask next, and why: the fleet that would hold, or the largest rate of one that does."""
    question = report.asked.original if report.asked is not None else None
    if question is None or not report.requests.finished:
        return "", ""
    if unnamed(*(getattr(question, field.name) for field in fields_of(SimulateQuestion))):
        return "", ""
    capacity = report.capacity
    grows = report.load is not None and report.load.grows
    if report.meets_slo is not False and not grows:
        if report.load is None:
            return "", ""
        if capacity is None:
            return command_of(replace(question, max_rate=True)), "Next, the largest rate that it holds:"
        replicas = sum(pool.replicas for pool in report.fleet)
        if capacity.replicas is None or capacity.replicas + capacity.prefill_replicas >= replicas:
            return "", ""
        return _changed_command(question, capacity), "Next, the smaller fleet:"
    if capacity is None or not capacity.change or question.trace:
        return "", ""
    return _changed_command(question, capacity), "Next, the fleet that would hold:"


def _changed_command(question: SimulateQuestion, capacity: records.CapacityReport) -> str:
    return command_of(replace(question, max_rate=None, **capacity.change))


def command_of(question: SimulateQuestion) -> str:
    """The command that asks a question.

    >>> command_of(SimulateQuestion("llama3-8b", on="h100:1", rate="4/s", max_rate=True))
    'dscale simulate llama3-8b --on h100:1 --rate 4/s --max-rate'
    """
    parts = ["dscale simulate"]
    for field in fields_of(SimulateQuestion):
        value = getattr(question, field.name)
        if field.place:
            parts.append(shlex.quote(written(value)))
        elif value != field.default:
            parts.append(field.flag if value is not False else f"--no-{field.flag[2:]}")
            if not field.switch:
                parts.append(shlex.quote(written(value)))
    return " ".join(parts)


def run_simulation(
    asked: SimulateAsked, progress: Callable[[int], None] | None = None, searching: Progress | None = None
) -> tuple[records.SimulateReport, SimulationResult]:
    """Simulate, find what would hold where this does not (or where that was asked), and report."""
    job = asked.job
    result = run_fleet(job, progress, watch=asked.watch)
    load = None
    if job.traffic.rate is not None:
        load = load_of(result, scaled=job.scales)
    capacity = None
    if load is not None and _wants_capacity(asked, result, load):
        capacity = find_capacity(job, result, load, searching)
    elif job.deadline_s and asked.question.max_rate is not False:
        capacity = find_by_deadline(job, result)
    report = _report(asked, result, load, capacity)
    report.result = result
    return report, result


def _wants_capacity(asked: SimulateAsked, result: SimulationResult, load: Backlog) -> bool:
    """Whether to look for what would hold."""
    if asked.question.max_rate is not None:
        return asked.question.max_rate
    if not result.outcome.finished:
        return False
    return load.grows or bool(missed_targets(result, asked.job.targets, asked.job.class_targets))


def _report(
    asked: SimulateAsked, result: SimulationResult, load: Backlog | None, capacity: FleetCapacity | None
) -> records.SimulateReport:
    job = asked.job
    counts = mean_replicas(job, result)
    cost = cost_of_replicas(job, counts)
    mean_w = mean_watts(job, result, counts)
    missed = missed_targets(result, job.targets, job.class_targets)
    meets = None
    if job.has_targets or job.deadline_s:
        late = result.seconds > job.deadline_s or result.outcome.finished < result.outcome.arrived
        meets = not missed and not (job.deadline_s and late)
    slo, statistics, ratios = dict[str, float](), dict[str, str](), dict[str, float]()
    for name, target in job.targets.items():
        slo[name], statistics[name] = target.seconds, target.statistic
        ratios[name] = job.reached(result, name) / target.seconds
    verdict = verdict_text(asked, result, load, missed, capacity)
    tokens_per_s = result.throughput.output_tokens_per_s
    chips = [pool.deployment.chip for pool in job.pools]
    unpriced_note = unpriced(chips, kind=asked.question.pricing)
    replicas: list[records.ReplicaRow] = []
    for replica in result.replicas:
        replicas.append(records.ReplicaRow(**shared(records.ReplicaRow, replica, busy_share=result.busy(replica))))
    return records.SimulateReport(
        **shared(
            records.SimulateReport,
            result,
            replicas=replicas,
            latency={name: latency_of(summary) for name, summary in result.latency.items()},
            classes=_class_reports(job, result, cost.usd_per_h),
        ),
        model=job.deployment.model.name,
        traffic=_described_traffic(asked),
        fleet=[_pool_row(job, pool) for pool in job.pools],
        seed=job.seed,
        simulated_s=result.seconds,
        requests=result.outcome,
        rates=records.SimulatedRates(
            **asdict(result.throughput),
            output_tokens_per_s_per_chip=tokens_per_s / cost.chips if cost.chips else 0.0,
            cost_usd_per_mtok=cost.usd_per_mtok(tokens_per_s),
        ),
        slo=slo,
        statistics=statistics,
        meets_slo=meets,
        deadline_s=job.deadline_s or None,
        usd=cost.usd_per_h and cost.usd_per_h * result.seconds / 3600 if job.deadline_s else None,
        watts=cost.watts,
        mean_watts=mean_w,
        tokens_per_joule=tokens_per_joule(result, cost.watts, mean_w),
        percentile=job.percentile,
        target_ratios=ratios,
        analytic=_analytic(asked, result),
        load=load and records.LoadReport(**shared(records.LoadReport, load)),
        capacity=capacity and _capacity_report(asked, capacity),
        chips=cost.chips,
        usd_per_h=cost.usd_per_h,
        bound_by=verdict.bound_by,
        advice=verdict.advice,
        remedy=verdict.remedy,
        notes=[unpriced_note] if unpriced_note else [],
        prices=price_rows(chips),
    )


def _described_traffic(asked: SimulateAsked) -> dict[str, Any]:
    """The traffic in the words of the flags that describe it."""
    if asked.tables:
        return {table.name: table.text for table in asked.tables}
    question = asked.question
    if question.trace:
        return {"trace": question.trace[:], "speed": question.speed}
    names = ["requests"]
    if question.clients:
        names.append("clients")
    else:
        names.append("arrivals")
        if question.rate:
            names.append("rate")
    names += ["prompt", "output", "lengths"]
    names += [name for name in ("prefixes", "adapters", "images", "deadline") if getattr(question, name)]
    return {name: getattr(question, name) for name in names}


def _pool_row(job: FleetJob, named: NamedPool) -> records.PoolRow:
    """A pool of the fleet as it begins."""
    deployment, pool = named.deployment, named.pool
    name = named.name
    if name == "serve" and job.prefill is not None:
        name = "decode"
    takes = [", ".join(job.traffic.classes[index].name for index in pool.kinds)]
    if pool.upto:
        takes.append(f"up to {pool.upto:,} tokens")
    if deployment.model.name != job.deployment.model.name:
        takes.append(deployment.model.name)
    return records.PoolRow(
        name=name,
        slice=str(deployment.piece),
        plan=str(deployment.plan),
        engine=deployment.engine.name,
        scheduler=pool.scheduler.kind,
        replicas=pool.replicas,
        chips=round(fleet_cost([(pool.replicas, deployment.piece)]).chips),
        kv_tokens=pool.kv_tokens,
        router=pool.router if named.name == "prefill" else job.fleet.pool.router,
        most_replicas=pool.autoscale.most if pool.autoscale else None,
        takes="; ".join(filter(None, takes)),
        release=deployment.engine.described_release,
    )


def _capacity_report(asked: SimulateAsked, capacity: FleetCapacity) -> records.CapacityReport:
    """What was found by running, in numbers."""
    job = asked.job
    # the run at the largest rate that holds; a trial without a rate shows why none does
    best = capacity.trial if capacity.rate is not None else None
    confirmed = capacity.confirmed
    run = confirmed or best
    asked_rate = job.traffic.rate or 0.0
    # of the pools that hold the asked rate; none where nothing that was tried does
    sizes = capacity.remedy and capacity.remedy.sizes
    chips = usd_per_h = usd_per_mtok = None
    if sizes is not None:
        counts = replicas_with(job, sizes.replicas, sizes.prefills)
        if confirmed is not None and any(pool.pool.autoscale for pool in job.pools):
            counts = mean_replicas(job, confirmed.result)  # of a fleet that grows
        cost = cost_of_replicas(job, counts)
        chips, usd_per_h = round(cost.chips), cost.usd_per_h
        served_rate = asked_rate
        if confirmed is None:
            served_rate = min(asked_rate, capacity.rate or asked_rate)
        usd_per_mtok = cost.usd_per_mtok(served_rate * job.traffic.output)
    good_share = goodput = None
    if best is not None and capacity.rate is not None:
        good_share = best.result.throughput.good_share
        goodput = capacity.rate * good_share
    return records.CapacityReport(
        requests_per_s=capacity.rate,
        goodput_requests_per_s=goodput,
        good_share=good_share,
        limited_by=capacity.limit,
        percentile=job.percentile,
        replicas=sizes and sizes.replicas,
        prefill_replicas=sizes.prefills if sizes is not None else 0,
        chips=chips,
        usd_per_h=usd_per_h,
        usd_per_mtok=usd_per_mtok,
        ttft_s=run and job.reached(run.result, "ttft_s"),
        tpot_s=run and job.reached(run.result, "tpot_s"),
        change=change_flags(asked.question, capacity.change),
        runs=capacity.runs,
        requests_per_run=capacity.requests,
    )


def _class_reports(job: FleetJob, result: SimulationResult, usd_per_h: float | None) -> list[records.ClassReport]:
    """Each class of traffic; what the fleet costs is divided by the time that their requests spend in replicas."""
    served_s = sum(class_result.served_s for class_result in result.classes) or 1.0
    seconds = result.throughput.seconds or 1.0
    reports: list[records.ClassReport] = []
    for service, class_result in zip(job.traffic.classes, result.classes, strict=False):
        reports.append(_class_report(service, class_result, seconds, class_result.served_s / served_s, usd_per_h))
    return reports


def _class_report(
    service: ServiceClass, result: ClassResult, seconds: float, served_share: float, fleet_usd_per_h: float | None
) -> records.ClassReport:
    """One class of traffic over the measured seconds of a run; it pays for its share of the fleet."""
    rate = result.measured / seconds
    queue_s, ttft_s, e2e_s, _ = (times.mean.value for times in result.latency.values())
    finished = max(result.finished, 1)
    # tokens of all requests that ended, at the rate of those that were measured
    input_tokens_per_s = rate * result.input_tokens / finished
    output_tokens_per_s = rate * result.output_tokens / finished
    usd_per_h = None if fleet_usd_per_h is None else served_share * fleet_usd_per_h
    usd_per_mtok = None
    if usd_per_h is not None and output_tokens_per_s:
        usd_per_mtok = float(usd_per_million(output_tokens_per_s, 1, usd_per_h))
    earned_usd_per_s = input_tokens_per_s * service.input_usd_per_mtok
    earned_usd_per_s += output_tokens_per_s * service.output_usd_per_mtok
    return records.ClassReport(
        **shared(
            records.ClassReport, result, latency={name: latency_of(times) for name, times in result.latency.items()}
        ),
        name=service.name,
        priority=service.priority,
        requests_per_s=rate,
        slo={name: target.seconds for name, target in service.targets.items()},
        statistics={name: target.statistic for name, target in service.targets.items()},
        meets_slo=not missed_by_classes([result], [service.targets]) if service.targets else None,
        goodput_requests_per_s=rate * result.good_share,
        waited={"queue_s": queue_s, "prefill_s": ttft_s - queue_s, "decode_s": e2e_s - ttft_s},
        input_tokens_per_s=input_tokens_per_s,
        output_tokens_per_s=output_tokens_per_s,
        served_share=served_share,
        usd_per_h=usd_per_h,
        usd_per_mtok=usd_per_mtok,
        earned_usd_per_h=3600 * earned_usd_per_s / 1e6,
    )


def _analytic(asked: SimulateAsked, result: SimulationResult) -> records.Analytic | None:
    """The planner's steady state at the mean batch; only of requests that are all alike, for which there is one."""
    question, job = asked.question, asked.job
    varied = (
        question.trace,
        question.prefixes,
        question.autoscale,
        question.adapters,
        question.images,
        question.drafts,
        job.traffic.classes,
    )
    alike = question.lengths in ("fixed", "varied") and len(job.pools) == 1 and not any(varied)
    if not alike or not result.outcome.finished:
        return None
    deployment = job.deployment
    # requests that run on one replica at a time
    batch = max(1, round(result.mean_running / max(job.fleet.pool.replicas, 1)))
    workload = Ask(job.traffic.prompt, job.traffic.output)
    plans = one_plan(deployment.piece, deployment.plan)
    configs = judge(deployment.model, plans, deployment.engine, workload, (batch,))
    if not configs:
        return None
    config = configs[0]
    return records.Analytic(config.batch, float(config.state.tpot), float(config.state.ttft))


def _sheet(report: records.SimulateReport, detail: bool) -> Sheet:
    command, why = next_command(report)
    sheet = simulate_sheet(report, detail)
    if command:
        sheet = Sheet((*sheet.blocks, NextStep(command, why if detail else f"More with --explain. {why}")))
    return sheet


bind(records.SimulateReport, Face(_sheet, draw, timeline=save_run))
