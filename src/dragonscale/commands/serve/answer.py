"""The answer to `dscale serve`: configurations, the frontier, what limits them, what is better than a given plan, and
other ways to serve: drafting, disaggregated prefill and decode, prefix caching."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dragonscale.commands.serve import remedies
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.advice import advice, margin_advice
from dragonscale.commands.serve.config import config_report, deployed, expected_error, fleet_times, kind_of
from dragonscale.commands.serve.confirm import Confirmed, as_run, confirmed, in_order
from dragonscale.commands.serve.max_rate import HeldRate, max_rates
from dragonscale.commands.serve.recommended_reason import CHEAPER, recommended_reason
from dragonscale.commands.serve.search import (
    Progress,
    at_batches,
    check_plan,
    paced,
    parameter_count,
    ranked_apart,
    search,
)
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.start_check import start_check
from dragonscale.commands.serve.unfit import unfit
from dragonscale.commands.serve.variants import (
    disaggregation_report,
    limit_rows,
    prefix_report,
    search_pools,
    speculation_report,
)
from dragonscale.commands.simulate.capacity import SMALL_BUDGETS
from dragonscale.errors import InputError
from dragonscale.physics.hardware.price_rows import price_rows
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.physics.units import render
from dragonscale.serving.engine.checkpoint import is_quantized
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.timed_shapes import untimed_experts
from dragonscale.serving.space.bands import ServedKind, is_moe
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.legal import exchange_note
from dragonscale.serving.space.ranking import CLOSE, frontier
from dragonscale.serving.steady.targets import LATENCIES

BUDGET = (
    "Launched with --token-budget {} rather than the engine's {:,}: tokens wait less for prompts of other requests, so "
    "that the ITL asked for is met at a lower cost."
)
LONG = "Not simulated here, since a run with batches of {:,} takes longer than an answer; the next command runs it."


def answer(
    asked: ServeAsked, progress: Progress | None = None, brief: bool = False, confirm: bool | None = None
) -> records.ServeReport:
    """The report that answers a question, its headline confirmed by running it (`confirm`; unsaid, unless in brief). In
    brief without what is solved and tried around the best configuration: limits, speculation, prefixes, remedies,
    advice, and what would be better than a given plan."""
    start, confirm = time.perf_counter(), not brief if confirm is None else confirm
    if asked.saved is not None:
        _check(asked, asked.saved.plan)
    none = remedies.asked_refusal(asked)
    asked, refused = (asked, [none]) if none else remedies.possible(asked)
    nothing = bool(refused) and (bool(none) or all(remedies.chip_refusal(asked, chip) for chip, _ in asked.targets))
    started = None if nothing else start_check(asked)
    refuses = started is not None and bool(started.refusal) and not asked.question.force
    asked, configs = (asked, []) if nothing or refuses else paced(asked, progress)
    fleets = [] if nothing or refuses else search_pools(asked)
    seconds, chip = time.perf_counter() - start, asked.targets[0][0]
    error = expected_error(ServedKind(chip.name, asked.engine_on(chip).name, is_moe(asked.model)))
    report = records.ServeReport(
        asked.model.name, _request(asked), [], [], len(configs) + len(fleets), seconds, [], [], "", error
    )
    report.release = asked.engine_on(chip).described_release
    if started is not None:
        report.largest_context, report.kv_cache_tokens = started.largest_context, started.kv_cache_tokens
    if started is not None and refuses:
        report.notes, report.advice = [started.refusal], started.remedy
        return report
    if not configs:
        why, report.advice = unfit(asked, brief) if not nothing else ([], report.advice)
        report.changes = [one for one in why if one.flags]
        report.notes = [*(one.text for one in why), *remedies.refused_notes(asked, refused, all_=nothing)]
        return report
    chosen, apart, runs = _chosen(asked, [*configs, *fleets], confirm)
    other, budget = _with_budget(asked, chosen[0], runs)
    if other is not None:
        asked, configs, (chosen, apart, runs) = other
        report.came_from(asked, [])
    rows = [(one, config_report(asked, one, full=True)) for one in (*chosen, *apart)]
    if asked.ask.rate is not None:
        for one, row in rows:
            row.fleet_ttft_s, row.fleet_tpot_s = fleet_times(asked, one, configs, row.replicas or 1)
    report.simulated = runs[0].run if runs else None
    how = as_run(asked, rows, runs) if runs else [LONG.format(chosen[0].batch)] * confirm
    for _, row in rows:
        if row.simulated and asked.goals:  # replicas rented one by one would be run too, which may take more of them
            row.enough_replicas = None
    if asked.question.max_rate:
        held = max_rates(asked, rows, progress)
        report.max_rates = [one.rate for one in held]
        rows = _by_held_rate(rows, held)
        report.simulated = next((one.run for one in held if one.run and one.row is rows[0][1]), report.simulated)
        chosen = [one for one, row in rows if row.quantized == rows[0][1].quantized]
    best, chips = rows[0][0], [chip for chip, _ in asked.targets]
    report.configs = [row for _, row in rows]
    report.prices = price_rows(chips)
    report.workload = _request(asked, chosen)
    report.expected_error = expected_error(kind_of(asked, best))
    report.at_most = at_most(asked, best)
    report.release = asked.engine_on(best.piece.chip, best.engine).described_release
    if (use := report.configs[0].memory) is not None:
        report.largest_context, report.kv_cache_tokens = use.largest_context, use.kv_cache_tokens
    report.frontier = [config_report(asked, one) for one in frontier([*configs, *fleets])]
    report.frontier_by_chip = _by_chip(asked, [*configs, *fleets])
    report.recommended_reason = recommended_reason(report)
    if brief:
        report.notes = _brief_notes(asked, report, confirm, configs)
        return report
    vars(report)["unsolved"] = partial(limit_rows, asked, best)
    report.speculation, report.prefix = speculation_report(asked, best), prefix_report(asked, best)
    report.notes = how
    if not (best.meets or runs):
        missed = remedies.missed(asked, best)
        report.notes, report.changes = [one.text for one in missed], [one for one in missed if one.flags]
    if fleets or asked.question.disaggregate:
        report.disaggregation = disaggregation_report(asked, best, report.configs[0], fleets, configs)
    report.notes += remedies.left_out(asked, configs, chosen) if best.meets else []
    report.notes += filter(None, [unpriced(chips, kind=asked.question.pricing)])
    report.notes += remedies.refused_notes(asked, refused, all_=False)
    report.notes += [*_notes(asked, report, [*configs, *fleets], chosen, apart), *filter(None, [budget])]
    aimed = runs[0].as_means(asked) if runs else asked
    advised = advice(aimed, best, report.configs[0], configs)
    report.advised(advised.text, advised.bound, advised.change)
    report.changes += advised.changes
    if asked.saved is not None and asked.against_best:
        against_best(asked, report, progress)
    return report


def _by_held_rate(
    rows: list[tuple[Config, records.ConfigReport]], held: Sequence[HeldRate]
) -> list[tuple[Config, records.ConfigReport]]:
    """The configuration first whose fleet for the rate costs least, of those in the formats of the first."""
    first = rows[0][1]
    sized = [one.row for one in held if one.run is not None and one.row.quantized == first.quantized]
    least = min((first, *sized), key=lambda row: row.paid)
    if least.paid >= CHEAPER * first.paid:
        return rows
    return sorted(rows, key=lambda row: row[1] is not least)


Choice = tuple[list[Config], list[Config], list[Confirmed]]


def _chosen(asked: ServeAsked, configs: Sequence[Config], confirm: bool) -> Choice:
    """The best, those in narrower formats apart, and the runs that confirm them."""
    chosen, apart = ranked_apart(asked, configs)
    runs = confirmed(asked, chosen) if confirm and chosen[0].meets else []
    if runs and asked.ask.rate is not None and not any(one.config.meets for one in runs):
        others = _quicker(asked, runs)
        more = confirmed(asked, others) if others else []
        if any(one.config.meets for one in more):
            chosen, runs = [*others, *chosen][: asked.top], more
    return in_order(chosen, runs) if runs else chosen, apart, runs


def _quicker(asked: ServeAsked, runs: Sequence[Confirmed]) -> list[Config]:
    """Where no fleet held when it was run: what meets the means that would bring the nearest one within its targets,
    and was not run."""
    nearest = min(runs, key=lambda one: one.worst)
    if math.isinf(nearest.worst):
        return []
    tighter = nearest.as_means(asked)
    tried = {one.config.place for one in runs}
    chosen = ranked_apart(tighter, search(tighter))[0]
    return [one for one in chosen if one.meets and one.place not in tried]


def _with_budget(
    asked: ServeAsked, best: Config, runs: Sequence[Confirmed]
) -> tuple[tuple[ServeAsked, list[Config], Choice] | None, str]:
    """What another token budget than the engine's serves better where gaps between tokens have a percentile to meet:
    the longest of them wait for prompts of others, which a smaller budget cuts into shorter iterations. What only costs
    a little less is no reason to launch otherwise than people do."""
    goal, usual = asked.goals.get("itl"), asked.engine_on(best.piece.chip, best.engine).scheduling.max_tokens
    given = asked.limits.token_budget or asked.batch or asked.saved is not None
    least, found = runs[0].rank(asked) if runs else (), (None, "")
    for budget in SMALL_BUDGETS if runs and goal is not None and goal.share and not given else ():
        question, limits = replace(asked.question, token_budget=budget), replace(asked.limits, token_budget=budget)
        other = replace(asked, question=question, limits=limits)
        configs = search(other) if budget < usual else []
        choice = _chosen(other, configs, confirm=True) if configs else None
        if choice is None or not choice[2]:
            continue
        *flaws, cost, _ = rank = choice[2][0].rank(other)
        if (*flaws, cost / (1 - CLOSE)) < least[:-1]:
            least, found = rank, ((other, configs, choice), BUDGET.format(budget, usual))
    return found


def _brief_notes(asked: ServeAsked, report: records.ServeReport, confirm: bool, configs: Sequence[Config]) -> list[str]:
    late = [LATENCIES[name] for name, goal in asked.goals.items() if goal.share and not confirm]
    return [
        *(f"{text}." for text in report.configs[0].violations),
        *([f"In brief {' and '.join(late)} are judged by means, not by percentiles."] if late else []),
        *(one.text for one in margin_advice(report.workload, report.configs[0], configs)),
    ]


def _notes(
    asked: ServeAsked,
    report: records.ServeReport,
    configs: Sequence[Config],
    chosen: Sequence[Config],
    apart: Sequence[Config],
) -> list[str]:
    """What there is to know of the configurations that are told."""
    drafted = report.speculation.loss(chosen[0].drafts) if report.speculation else ""
    margins = margin_advice(report.workload, report.configs[0], configs)
    report.changes += [one for one in margins if one.flags]
    started = start_check(asked)
    return [
        *remedies.forced_notes(asked),
        *filter(None, [started.note or started.refusal] if started is not None else []),
        *_guess_notes(asked, chosen, configs),
        *remedies.format_notes(asked, _told(asked, chosen, apart)),
        *_device_notes(chosen),
        *_exchange_notes(chosen),
        *filter(None, (untimed_experts(deployed(asked, chosen[0])), drafted)),
        *(one.text for one in margins),
    ]


def _check(asked: ServeAsked, plan: ServingPlan) -> None:
    """Refuse a plan that cannot be; what is forced is one that could run and that no engine runs."""
    try:
        check_plan(asked, plan)
    except InputError as error:
        if not asked.question.force:
            raise
        raise InputError(
            f"{error} --force judges what no engine runs; this cannot even be judged: its parts are not whole."
        ) from None


def _told(asked: ServeAsked, chosen: Sequence[Config], apart: Sequence[Config]) -> list[Config]:
    """The configurations whose formats are told: the best on each chip, and the best in each narrower format."""
    firsts = {one.plan.weights: one for one in reversed(apart)}
    chips = {one.piece.chip.name: one for one in reversed(chosen)}
    return [*(reversed(chips.values()) if asked.several else chosen[:1]), *reversed(firsts.values())]


def _guess_notes(asked: ServeAsked, chosen: Sequence[Config], configs: Sequence[Config]) -> list[str]:
    """Which chips are ranked and sized by less than what is expected of them, and what would be first otherwise."""
    names = {name: f"{name} ({one.counted:.0%})" for one in chosen if one.counted < 1 for name in [one.piece.chip.name]}
    if not names or not (asked.several or asked.ask.rate):
        return []
    why = "Never measured, or nearly always slower than expected: ranked and sized by the slow end of the band"
    narrow = is_quantized(chosen[0].plan.weights, asked.model)
    alike = [one for one in configs if one.meets and is_quantized(one.plan.weights, asked.model) == narrow]
    hoped = min(alike or chosen, key=lambda one: (one.usd_per_h is None, one.cost * one.counted))
    first = f" At what is expected {hoped.plan} on {hoped.piece} would be first: measure it before you buy."
    first *= hoped.counted < 1 and hoped.piece.chip.name != chosen[0].piece.chip.name
    return [f"{why}, as part of what is expected: {', '.join(names.values())}.{first}"]


def _device_notes(chosen: Sequence[Config]) -> list[str]:
    """How many devices an engine counts where a chip is several of them."""
    firsts = {one.piece.chip.name: one for one in reversed(chosen) if one.piece.chip.devices > 1}
    # other engines have flags of their own, or (the generic one) none
    firsts = {name: one for name, one in firsts.items() if one.engine.startswith("vllm")}
    return [
        f"On {name} tensor counts chips, and engines count devices, {one.piece.chip.devices} a chip: for "
        f"tensor={one.plan.tensor} give vLLM --tensor-parallel-size {one.plan.tensor * one.piece.chip.devices}."
        for name, one in firsts.items()
    ]


def _exchange_notes(chosen: Sequence[Config]) -> list[str]:
    """That the recommended wide expert parallelism, of either pool, is run with another form of its engine."""
    best = chosen[0]
    replicas = (best.pools.prefill, best.pools.decode) if isinstance(best, PooledConfig) else (best,)
    found = (exchange_note(one.engine, one.piece.chip, one.plan) for one in replicas)
    return list(dict.fromkeys(text for text in found if text))


def _by_chip(asked: ServeAsked, configs: Sequence[Config]) -> dict[str, list[records.FrontierPoint]]:
    """The frontier of each chip."""
    chips: dict[str, list[Config]] = {}
    for one in sorted(configs, key=lambda one: one.piece.chip.name):
        chips.setdefault(one.piece.chip.name, []).append(one)
    return {name: [_point(asked, one) for one in frontier(own)] for name, own in chips.items()}


def _point(asked: ServeAsked, one: Config) -> records.FrontierPoint:
    tpot = float(one.state.tpot) if asked.ask.output > 1 else 0.0
    times = tpot, float(one.state.ttft), 1 / tpot if tpot else 0.0
    return records.FrontierPoint(
        str(one.piece), str(one.plan), one.batch, *times, one.tokens_per_chip, one.usd_per_mtok
    )


def _request(asked: ServeAsked, chosen: Sequence[Config] = ()) -> records.ServeRequest:
    """What was asked, with the engine of the best configuration, here and on each chip."""
    ask, chip = asked.ask, chosen[0].piece.chip if chosen else asked.targets[0][0]
    names = {own.name: asked.engine_on(own).name for own, _ in asked.targets}
    names |= {one.piece.chip.name: one.engine for one in reversed(chosen)}
    said = {name: asked.engine_words(engine) for name, engine in names.items()}
    tpot = None if asked.pace else ask.tpot
    work = ask.prompt, ask.output, ask.cached, ask.ttft, tpot, ask.rate, parameter_count(asked)
    goals = {name: goal.statistic for name, goal in asked.goals.items()}
    why = asked.why_engine(chip, names[chip.name])
    router = asked.router
    return records.ServeRequest(*work, said[chip.name], why, said, ask.itl, ask.e2e, goals, router, asked.pace)


def at_most(asked: ServeAsked, best: Config) -> str:
    """How many of the sequences that a launch allows at once fit, and what they get with all of these places taken."""
    if not asked.launched or best.is_fleet:
        return ""
    scheduling = asked.engine_on(best.piece.chip, best.engine, best.chips).scheduling
    allowed, most = scheduling.max_sequences * best.plan.data, best.most
    full = min(at_batches(asked, best, [most]), key=lambda one: float(one.state.tpot))
    times = f"TTFT {render(float(full.state.ttft), 's')}"
    times = f"TPOT {render(float(full.state.tpot), 's')}, {times}" if asked.ask.output > 1 else times
    fit = f"all {allowed:,} fit" if most >= allowed else f"{most:,} of {allowed:,} fit"
    return f"{fit} at these lengths; with {most:,} at once {times}, {full.tokens_per_chip:,.0f} tok/s per chip"


# A given serving plan against the best configuration of the same chips, engine and formats.
#
# Better means more output tokens a second of each chip: under the targets, or the pace that is kept without any; of a
# batch that was said, while requests wait no longer. With targets that the plan misses, meeting them is better.


WORTH = 1.02
"""A gain of less is within what simpler plans are allowed to lose."""


def against_best(asked: ServeAsked, report: records.ServeReport, progress: Progress | None) -> None:
    """Add to the report of a given plan what would be better, or that nothing is."""
    assert asked.saved is not None
    given, ask, plan = report.configs[0], asked.ask, asked.saved.plan
    # Under the pace of an answer without targets that it keeps too; else no slower than now, with some room, so that
    # rounding refuses no neighbour.
    free = asked.batch is None and (ask.tpot is None or given.tpot_s <= ask.tpot)
    targets = {
        "ttft": given.ttft_s * 1.005 if ask.ttft is None and not free else ask.ttft,
        "tpot": ask.tpot if "tpot" in asked.goals or free else given.tpot_s * 1.005 or None,  # one token has none
    }
    words = {"weights": plan.weights, "compute": plan.compute, "kv_dtype": plan.kv, "attention": plan.attention}
    question = replace(asked.question, plan="", batch="", **words)
    free = replace(asked, ask=replace(ask, **targets), saved=None, batch=None, question=question)
    if configs := search(free, progress):
        chosen = ranked_apart(free, configs)[0]
        percentiles = any(goal.share for goal in asked.goals.values()) and chosen[0].meets
        runs = confirmed(free, chosen) if percentiles else []
        report.better = config_report(free, runs[0].config if runs else chosen[0])
        report.comparison = comparison(given, report.better, len(configs))


def comparison(given: records.ConfigReport, best: records.ConfigReport, searched: int) -> str:
    """How far a plan is from the best, in a sentence or two."""
    own = given.output_tokens_per_s_per_chip
    gain = best.output_tokens_per_s_per_chip / own if own > 0 else math.inf
    line = f"{records.config_text(best)} on {best.copy_slice}"
    times = f"TTFT {render(best.ttft_s, 's')} and TPOT {render(best.tpot_s, 's')}"
    if not given.meets_slo and best.meets_slo:
        return f"It misses its targets; {line} meets them, with {times} and {_more(gain)} tokens/s a chip."
    if not best.meets_slo or gain < WORTH:
        return f"Nothing better among {searched:,} configurations of these chips, this engine and these formats."
    waits = " with requests waiting no longer" if best.ttft_s <= 1.005 * given.ttft_s else ""
    return f"{line} gives {_more(gain)} output tokens/s a chip{waits}: {times}."


def _more(gain: float) -> str:
    """A gain in per cent; a plan that gives no tokens at all has none to compare with."""
    return f"{gain - 1:+.0%}" if math.isfinite(gain) else "the first"
