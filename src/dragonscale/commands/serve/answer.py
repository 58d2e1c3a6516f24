"""The answer to `dscale serve`: the best configurations, confirmed by running them, what bounds them and what would
help, and other ways to serve."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dragonscale.commands.advised import Advice
from dragonscale.commands.serve.advice import advice
from dragonscale.commands.serve.bands import expected_error, kind_of
from dragonscale.commands.serve.beside import beside_rows
from dragonscale.commands.serve.better import better_than
from dragonscale.commands.serve.config import config_report, fleet_times
from dragonscale.commands.serve.confirm import as_run, sizing_job
from dragonscale.commands.serve.format_notes import refused_notes
from dragonscale.commands.serve.max_rate import SustainedRow, max_rates
from dragonscale.commands.serve.measured import counted_runs, measured_report
from dragonscale.commands.serve.notes import answer_notes, at_most, brief_notes
from dragonscale.commands.serve.recommended_reason import CHEAPER, recommended_reason
from dragonscale.commands.serve.rungs import climb, needed_text, rung_rows
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport, ServeRequest
from dragonscale.commands.serve.serve_verdict import verdict_text
from dragonscale.commands.serve.serving_remedies import left_out, missed
from dragonscale.commands.serve.unfit import unfit
from dragonscale.commands.serve.variant_records import FrontierPoint
from dragonscale.commands.serve.variants import disaggregation_report, prefix_report, speculation_report
from dragonscale.errors import InputError
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.serving.advice.ladder import PLAIN, Rung
from dragonscale.serving.advice.pools import search_pools
from dragonscale.serving.advice.refusals import Possible, possible
from dragonscale.serving.advice.search import (
    Progress,
    RankedByFormat,
    check_plan,
    paced_search,
    ranked_by_format,
    search,
)
from dragonscale.serving.advice.start_check import StartCheck, start_check
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.bands import ServedKind, is_moe
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import CLOSE, frontier
from dragonscale.simulation.fleet_sizing.capacity import SMALL_BUDGETS
from dragonscale.simulation.fleet_sizing.confirmation import Confirmed, confirm, in_order

BUDGET = (
    "Launched with --token-budget {} rather than the engine's {:,}: tokens wait less for prompts of other requests, so "
    "that the ITL asked for is met at a lower cost."
)
LONG = "Not simulated here, since a run with batches of {:,} takes longer than an answer; the next command runs it."

# Configurations, each with its row of the answer.
Rows = list[tuple[Config, ConfigReport]]


def answer(
    job: ServeAsked,
    progress: Progress | None = None,
    brief: bool = False,
    confirm: bool | None = None,
    rung: Rung = PLAIN,
) -> ServeReport:
    """The report that answers a question. Its headline is confirmed by running it (`confirm`; by default unless in
    brief). In brief the report is without what is solved and tried around the best configuration: limits, speculation,
    prefixes, remedies, advice, and what would be better than a given plan.

    The launch is plain unless flags say otherwise. `rung` is what was added to it because the targets are missed
    without."""
    began = time.perf_counter()
    if confirm is None:
        confirm = not brief
    if job.plan is not None:
        _check_given(job, job.plan)

    # what no engine runs, and what an engine refuses when it starts
    allowed = possible(job)
    job = replace(job, targets=allowed.targets)
    if allowed.is_nothing:
        report = _empty_report(job, 0, time.perf_counter() - began)
        report.notes = refused_notes(job, allowed, is_nothing=True)
        report.verdict = next(iter(report.notes), "")
        return report
    started = start_check(job)
    if started is not None and started.refusal and not job.force:
        report = _empty_report(job, 0, time.perf_counter() - began, started)
        report.notes, report.advice = [started.refusal], started.remedy
        report.verdict = f"Refuses to start: {started.verdict}."
        return report

    # everything that fits: replicas that do both, and pools for prefill and decode
    paced = paced_search(job, progress)
    configs = paced.configs
    job = replace(job, ask=replace(job.ask, tpot=paced.tpot))
    fleets = search_pools(job)
    report = _empty_report(job, len(configs) + len(fleets), time.perf_counter() - began, started)
    if not configs:
        why = unfit(job, brief)
        report.advice, report.verdict = why.bound, why.verdict
        _add_notes(report, why.sentences)
        report.notes += refused_notes(job, allowed, is_nothing=False)
        return report

    # the best of it, confirmed by running them
    choice = _choose(job, [*configs, *fleets], confirm)
    if rung is PLAIN and not _meets(choice):
        onwards = partial(_on_rung, progress=progress, confirm=confirm, brief=brief)
        climbed = climb(job, choice.ranked.native[0], onwards)
        if climbed is not None:
            return climbed
    budget = _with_smaller_budget(job, choice)
    if budget is not None:
        job, configs, choice = budget.job, budget.configs, budget.choice
        report.came_from(job, [])
    rows = _rows(job, choice, configs)
    run_notes = _add_runs(report, job, rows, choice)
    if job.question.max_rate:
        rows = _add_max_rates(report, job, rows, progress)
    _add_rows(report, job, rows, [*configs, *fleets])
    report.needs = needed_text(rung)
    if job.disaggregate:
        report.disaggregation = disaggregation_report(job, rows[0][0], report.configs[0], fleets, configs)
    if confirm and not brief:
        report.counted_runs = counted_runs(job, report.configs[0])
    if job.question.measured.strip():
        report.measured = measured_report(job, report, report.counted_runs)
    if not brief:
        report.beside = beside_rows(job, rows[0][0])
    report.verdict = verdict_text(report, job)
    if brief:
        report.notes = brief_notes(job, report, confirm, configs)
        return report

    # what bounds it, what would help, and other ways to serve
    same_formats = [config for config, row in rows if row.quantized == rows[0][1].quantized]
    ranked = RankedByFormat(same_formats, choice.ranked.narrower)
    results = _Results(configs, fleets, ranked, choice.runs, allowed, started)
    _add_advice(report, job, results, run_notes)
    report.verdict = verdict_text(report, job)
    if rung is PLAIN:
        report.rungs = rung_rows(job, report, partial(_on_rung, progress=progress, confirm=confirm))
    if budget is not None:
        report.notes.append(budget.note)
    if job.plan is not None and job.against_best:
        better = better_than(job, job.plan, report.configs[0], progress)
        if better is not None:
            report.better, report.comparison = better.row, better.comparison
    return report


def _on_rung(job: ServeAsked, rung: Rung, progress: Progress | None, confirm: bool, brief: bool = True) -> ServeReport:
    """The answer of a job to which something was added."""
    report = answer(job, progress, brief, confirm, rung)
    return report.came_from(report.asked or job, [])


def _check_given(job: ServeAsked, plan: ServingPlan) -> None:
    """Refuse a plan that cannot be; what is forced is one that could run and that no engine runs."""
    try:
        check_plan(job, plan)
    except InputError as error:
        if not job.force:
            raise
        raise InputError(
            f"{error} --force judges what no engine runs; this cannot even be judged: its parts are not whole."
        ) from None


def _empty_report(job: ServeAsked, searched: int, search_s: float, started: StartCheck | None = None) -> ServeReport:
    """The report of a question without configurations, with what an engine's start says of its plan."""
    chip = job.targets[0][0]
    engine = job.engine_on(chip)
    report = ServeReport(
        model=job.model.name,
        workload=_request(job),
        configs=[],
        frontier=[],
        searched=searched,
        search_s=search_s,
        limit_rows=[],
        notes=[],
        advice="",
        expected_error=expected_error(ServedKind(chip.name, engine.name, is_moe(job.model))),
        release=engine.described_release,
    )
    if started is not None:
        report.largest_context, report.kv_cache_tokens = started.largest_context, started.kv_cache_tokens
        report.starts = started.text
    return report


def _request(job: ServeAsked, best: Sequence[Config] = ()) -> ServeRequest:
    """What was asked, with the engine of the best configuration, here and on each chip."""
    ask = job.ask
    chip = job.targets[0][0]
    if best:
        chip = best[0].piece.chip
    names: dict[str, str] = {}
    for target, _ in job.targets:
        names[target.name] = job.engine_on(target).name
    for config in reversed(best):  # the best of a chip comes last
        names[config.piece.chip.name] = config.engine
    engines = {name: job.engine_spec(engine) for name, engine in names.items()}
    return ServeRequest(
        prompt=ask.prompt,
        output=ask.output,
        cached=ask.cached,
        ttft_s=ask.ttft,
        tpot_s=None if job.pace else ask.tpot,
        rate_per_s=ask.rate,
        parameters=int(count_parameters(job.model).total),
        engine=engines[chip.name],
        engine_why=job.why_engine(chip, names[chip.name]),
        engines=engines,
        itl_s=ask.itl,
        e2e_s=ask.e2e,
        statistics={name: goal.statistic for name, goal in job.goals.items()},
        router=job.router,
        pace_s=job.pace,
    )


@dataclass(frozen=True)
class _Choice:
    """The best configurations, and the runs that confirm them; where there are none, why."""

    ranked: RankedByFormat
    runs: list[Confirmed]
    why_not_run: str = ""


def _choose(job: ServeAsked, configs: Sequence[Config], by_running: bool) -> _Choice:
    """The best configurations in the order that runs give them; where no fleet that was run holds, others that should
    be quicker are run too."""
    ranked = ranked_by_format(job, configs)
    best = ranked.native
    runs: list[Confirmed] = []
    if by_running and best[0].meets:
        runs = confirm(sizing_job(job), best)
    if runs and job.ask.rate is not None and not any(run.config.meets for run in runs):
        quicker = _quicker(job, runs)
        more_runs: list[Confirmed] = []
        if quicker:
            more_runs = confirm(sizing_job(job), quicker)
        if any(run.config.meets for run in more_runs):
            best = [*quicker, *best][: job.top]
            runs = more_runs
    if runs:
        best = in_order(best, runs)
    why_not_run = ""
    if by_running and not runs:
        why_not_run = LONG.format(best[0].batch)
    return _Choice(replace(ranked, native=best), runs, why_not_run)


def _meets(choice: _Choice) -> bool:
    """Whether the best configuration meets the targets, when it is run where it was."""
    if choice.runs:
        return choice.runs[0].run.meets_slo is not False
    return choice.ranked.native[0].meets


def _quicker(job: ServeAsked, runs: Sequence[Confirmed]) -> list[Config]:
    """Configurations that were not run and meet the means that would bring the nearest of the runs, none of which
    holds, within its targets."""
    nearest = min(runs, key=lambda run: run.worst)
    if math.isinf(nearest.worst):  # its queue grows without end, which no ratio of latencies describes
        return []
    tighter = replace(job, ask=nearest.as_means(sizing_job(job)))
    tried = {run.config.place for run in runs}
    best = ranked_by_format(tighter, search(tighter)).native
    return [config for config in best if config.meets and config.place not in tried]


@dataclass(frozen=True)
class _BudgetChoice:
    """A question with another token budget, what it finds, and why it is taken."""

    job: ServeAsked
    configs: list[Config]
    choice: _Choice
    note: str


def _with_smaller_budget(job: ServeAsked, choice: _Choice) -> _BudgetChoice | None:
    """What a smaller token budget than the engine's serves better, where gaps between tokens have a percentile to meet.

    The longest gaps wait for prompts of others, which a smaller budget cuts into shorter iterations. What only costs a
    little less is no reason to launch otherwise than people do."""
    goal = job.goals.get("itl")
    is_given = job.limits.token_budget or job.batch or job.plan is not None
    if not choice.runs or goal is None or not goal.share or is_given:
        return None
    best = choice.ranked.native[0]
    default = job.engine_on(best.piece.chip, best.engine).scheduling.max_tokens
    best_rank = choice.runs[0].rank(job.ask)
    better: _BudgetChoice | None = None
    for budget in SMALL_BUDGETS:
        if budget >= default:
            continue
        smaller = replace(
            job,
            question=replace(job.question, token_budget=budget),
            limits=replace(job.limits, token_budget=budget),
        )
        configs = search(smaller)
        if not configs:
            continue
        other = _choose(smaller, configs, by_running=True)
        if not other.runs:
            continue
        # what is missed, what has no price, the cost, and the tokens
        rank = other.runs[0].rank(smaller.ask)
        *flaws, cost, _ = rank
        if (*flaws, cost / (1 - CLOSE)) < best_rank[:-1]:
            best_rank = rank
            better = _BudgetChoice(smaller, configs, other, BUDGET.format(budget, default))
    return better


def _rows(job: ServeAsked, choice: _Choice, configs: Sequence[Config]) -> Rows:
    """The best configurations and those in narrower formats as rows; with a rate also the times of their fleets."""
    rows: Rows = []
    for config in (*choice.ranked.native, *choice.ranked.narrower):
        row = config_report(job, config, full=True)
        if job.ask.rate is not None:
            # what requests wait for where replicas are loaded by the rate alone
            row.fleet_ttft_s, row.fleet_tpot_s = fleet_times(job, config, configs, row.replicas or 1)
        rows.append((config, row))
    return rows


def _add_runs(report: ServeReport, job: ServeAsked, rows: Rows, choice: _Choice) -> list[str]:
    """Put runs into the rows that they confirm; what they say of the first, or why there are none."""
    if not choice.runs:
        return [choice.why_not_run]
    report.simulated = choice.runs[0].run
    notes = as_run(job, rows, choice.runs)
    for _, row in rows:
        if row.simulated and job.goals:  # replicas rented one by one would be run too, which may take more of them
            row.enough_replicas = None
    return notes


def _add_max_rates(report: ServeReport, job: ServeAsked, rows: Rows, progress: Progress | None) -> Rows:
    """Add the largest rates that replicas hold; the rows in the order of the fleets that these take."""
    sustained = max_rates(job, rows, progress)
    rows = _by_held_rate(rows, sustained)
    report.max_rates = [finalist.rate for finalist in sustained]
    for finalist in sustained:
        if finalist.run is not None and finalist.row is rows[0][1]:
            report.simulated = finalist.run
    return rows


def _by_held_rate(rows: Rows, sustained: Sequence[SustainedRow]) -> Rows:
    """The configuration first whose fleet for the rate costs least, of those in the formats of the first."""
    first = rows[0][1]
    sized = [fleet.row for fleet in sustained if fleet.run is not None and fleet.row.quantized == first.quantized]
    cheapest = min((first, *sized), key=lambda row: row.paid)
    if cheapest.paid >= CHEAPER * first.paid:
        return rows
    return sorted(rows, key=lambda row: row[1] is not cheapest)


def _add_rows(report: ServeReport, job: ServeAsked, rows: Rows, configs: Sequence[Config]) -> None:
    """Add the configurations that are shown, and the frontier of all that were judged."""
    best, first = rows[0]
    report.configs = [row for _, row in rows]
    shown = [config for config, row in rows if row.quantized == first.quantized]
    report.prices = price_rows([chip for chip, _ in job.targets])
    report.workload = _request(job, shown)
    report.expected_error = expected_error(kind_of(job, best))
    report.at_most = at_most(job, best)
    report.release = job.engine_on(best.piece.chip, best.engine).described_release
    if first.memory is not None:
        report.largest_context, report.kv_cache_tokens = first.memory.largest_context, first.memory.kv_cache_tokens
    report.frontier = [config_report(job, config) for config in frontier(configs)]
    # each chip's own frontier, by the chip's name
    by_chip: dict[str, list[Config]] = {}
    for config in sorted(configs, key=lambda config: config.piece.chip.name):
        by_chip.setdefault(config.piece.chip.name, []).append(config)
    for name, of_chip in by_chip.items():
        report.frontier_by_chip[name] = [_frontier_point(job, config) for config in frontier(of_chip)]
    report.recommended_reason = recommended_reason(report)


def _frontier_point(job: ServeAsked, config: Config) -> FrontierPoint:
    tpot = float(config.state.tpot) if job.ask.output > 1 else 0.0
    return FrontierPoint(
        slice=str(config.piece),
        plan=str(config.plan),
        batch=config.batch,
        tpot_s=tpot,
        ttft_s=float(config.state.ttft),
        tokens_per_s_per_user=1 / tpot if tpot else 0.0,
        output_tokens_per_s_per_chip=config.tokens_per_chip,
        cost_usd_per_mtok=config.usd_per_mtok,
    )


@dataclass(frozen=True)
class _Results:
    """What was found for a question: configurations, pools, the best of both, their runs, and what was refused."""

    configs: list[Config]
    fleets: list[PooledConfig]
    ranked: RankedByFormat
    runs: list[Confirmed]
    allowed: Possible
    started: StartCheck | None


def _add_advice(report: ServeReport, job: ServeAsked, results: _Results, run_notes: list[str]) -> None:
    """Add other ways to serve, what would help, and notes."""
    first, configs = report.configs[0], results.configs
    best = first.config
    report.judged_job = job
    report.speculation = speculation_report(job, best)
    report.prefix = prefix_report(job, best)

    # why the targets are missed, or what the run of the best said
    if best.meets or results.runs:
        report.notes += run_notes
    else:
        _add_notes(report, missed(job, best))
    if best.meets:
        report.notes += left_out(job, configs, results.ranked.native)
    report.notes.append(unpriced([chip for chip, _ in job.targets], kind=job.question.pricing))
    report.notes += refused_notes(job, results.allowed, is_nothing=False)
    _add_notes(report, answer_notes(job, report, [*configs, *results.fleets], results.ranked, results.started))
    report.notes = list(filter(None, report.notes))

    # advice about the means that the run of the best says to aim at
    if results.runs:
        job = replace(job, ask=results.runs[0].as_means(sizing_job(job)))
    report.bottleneck = advice(job, best, first, configs)
    report.advice = report.bottleneck.text
    report.changes += report.bottleneck.changes


def _add_notes(report: ServeReport, notes: Sequence[Advice]) -> None:
    """Add notes to a report, and those that flags can follow to its changes."""
    for note in notes:
        report.notes.append(note.text)
        if note.flags:
            report.changes.append(note)
