"""The answer to `dscale serve`: configurations, the frontier, and what bounds, costs and limits them."""

import time
from collections.abc import Sequence

from dragonscale.app.prices import price_rows
from dragonscale.app.serve.advice import advice, unfit
from dragonscale.app.serve.bills import keep_costs
from dragonscale.app.serve.config import CostedConfig, config_report, kind_of
from dragonscale.app.serve.errors import expected_error
from dragonscale.app.serve.judged import against_best
from dragonscale.app.serve.limits import limit_rows
from dragonscale.app.serve.margins import margin_notes
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import FrontierPoint, ServeReport, ServeRequest
from dragonscale.app.serve.refusals import (
    asked_refusal,
    chip_refusal,
    forced_notes,
    format_notes,
    possible,
    refused_notes,
)
from dragonscale.app.serve.remedies import left_out, missed
from dragonscale.app.serve.search import Progress, check_plan, parameter_count, ranked_apart, search
from dragonscale.app.serve.variants import disaggregation_report, prefix_report, speculation_report
from dragonscale.errors import InputError
from dragonscale.physics.hardware.prices import unpriced
from dragonscale.serving.bands import ServedKind, is_moe
from dragonscale.serving.frontier import Config, frontier
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.timed_shapes import untimed_experts


def answer(asked: ServeAsked, progress: Progress | None = None, brief: bool = False) -> ServeReport:
    """The report that answers a question. In brief without what is solved and tried around the best configuration:
    limits, speculation, prefixes, remedies, advice, and what would be better than a given plan."""
    start = time.perf_counter()
    if asked.saved is not None:
        _check(asked, asked.saved.plan)
    none = asked_refusal(asked)
    asked, refused = (asked, [none]) if none else possible(asked)
    nothing = bool(refused) and (bool(none) or all(chip_refusal(asked, chip) for chip, _ in asked.targets))
    configs = [] if nothing else search(asked, progress)
    seconds = time.perf_counter() - start
    chip = asked.targets[0][0]
    error = expected_error(ServedKind(chip.name, asked.engine_on(chip).name, is_moe(asked.model)))
    report = ServeReport(asked.model.name, _request(asked), [], [], len(configs), seconds, [], [], "", error)
    if nothing:
        report.notes = refused_notes(asked, refused, all_=True)
        return report
    if not configs:
        why, report.advice = unfit(asked, brief)
        report.notes = [*why, *refused_notes(asked, refused, all_=False)]
        return report
    chosen, apart = ranked_apart(asked, configs)
    best = chosen[0]
    chips = [chip for chip, _ in asked.targets]
    report.prices = price_rows(chips)
    report.workload = _request(asked, chosen)
    report.expected_error = expected_error(kind_of(asked, best))
    costed: list[CostedConfig] = []
    report.configs = [config_report(asked, one, full=True, costed=costed) for one in (*chosen, *apart)]
    keep_costs(report, costed[0])
    report.frontier = [config_report(asked, one) for one in frontier(configs)]
    report.frontier_by_chip = _by_chip(asked, configs)
    if brief:
        report.notes = [f"{text}." for text in report.configs[0].violations]
        report.notes += margin_notes(report.workload, report.configs[0])
        return report
    _add_variants(asked, best, report)
    report.notes = missed(asked, best) if not best.meets else left_out(asked, configs, chosen)
    report.notes += [unpriced(chips)] if unpriced(chips) else []
    report.notes += [
        *refused_notes(asked, refused, all_=False),
        *forced_notes(asked),
        *format_notes(asked, _told(asked, chosen, apart)),
        *_device_notes(chosen),
        *filter(None, [untimed_experts(costed[0].deployment)]),
        *margin_notes(report.workload, report.configs[0]),
    ]
    report.advice = advice(asked, best, report.configs[0], configs, report.limits)
    if asked.saved is not None and asked.against_best:
        against_best(asked, report, progress)
    return report


def _add_variants(asked: ServeAsked, best: Config, report: ServeReport) -> None:
    """Where the best configuration changes its nature, and what other ways to run it would bring."""
    report.limits = limit_rows(asked, best)
    report.speculation = speculation_report(asked, best)
    report.prefix = prefix_report(asked, best)
    if asked.question.disaggregate:
        report.disaggregation = disaggregation_report(asked, best)


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


def _device_notes(chosen: Sequence[Config]) -> list[str]:
    """How many devices an engine counts where a chip is several of them."""
    firsts = {one.piece.chip.name: one for one in reversed(chosen) if one.piece.chip.devices > 1}
    # other engines have flags of their own, or (the generic one) none
    firsts = {name: one for name, one in firsts.items() if one.engine.startswith("vllm")}
    return [
        f"On {name} tensor counts chips, and engines count devices, {one.piece.chip.devices} a chip: for "
        f"tensor={one.plan.tensor} give "
        f"vLLM --tensor-parallel-size {one.plan.tensor * one.piece.chip.devices}."
        for name, one in firsts.items()
    ]


def _by_chip(asked: ServeAsked, configs: Sequence[Config]) -> dict[str, list[FrontierPoint]]:
    """The frontier of each chip."""
    chips = sorted({one.piece.chip.name for one in configs})
    return {
        name: [_point(asked, one) for one in frontier([c for c in configs if c.piece.chip.name == name])]
        for name in chips
    }


def _point(asked: ServeAsked, one: Config) -> FrontierPoint:
    tpot = float(one.state.tpot) if asked.ask.output > 1 else 0.0
    return FrontierPoint(
        str(one.piece),
        str(one.plan),
        one.batch,
        tpot,
        float(one.state.ttft),
        1 / tpot if tpot else 0.0,
        one.tokens_per_chip,
        one.usd_per_mtok,
    )


def _request(asked: ServeAsked, chosen: Sequence[Config] = ()) -> ServeRequest:
    """What was asked, with the engine of the best configuration, here and on each chip."""
    ask, chip = asked.ask, chosen[0].piece.chip if chosen else asked.targets[0][0]
    names = {own.name: asked.engine_on(own).name for own, _ in asked.targets}
    names |= {one.piece.chip.name: one.engine for one in reversed(chosen)}
    return ServeRequest(
        ask.prompt,
        ask.output,
        ask.cached,
        ask.ttft,
        ask.tpot,
        ask.rate,
        parameter_count(asked),
        asked.engine_words(names[chip.name]),
        asked.why_engine(chip, names[chip.name]),
        {name: asked.engine_words(engine) for name, engine in names.items()},
    )
