"""What to serve with, in a sentence with its bands; the figures under it; every other configuration as a link; what to
ask next."""

from functools import partial

from dragonscale.commands.serve.advice import beyond, near_misses
from dragonscale.commands.serve.recommended import next_command
from dragonscale.commands.serve.serve_blocks import error_text, simulated_text
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport, config_text, formats_text, plan_text
from dragonscale.physics.hardware import parse_target
from dragonscale.physics.units import render
from dragonscale.serving.advice.formats import known_engine
from dragonscale.serving.space.legal import model_caches
from dragonscale.web.amounts import amount, count, dollars, elsewhere, hour_text, quantities
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import Card, fields, figure
from dragonscale.web.views.serve_fleet import (
    enough_text,
    fleet_figures,
    fleet_sentence,
    has_fleet,
    replica_text,
)
from dragonscale.web.views.tracks import fields_of_command


def answer_panel(asked: PageRequest) -> Card:
    """The recommended configuration, whether it meets the targets, and the others."""
    report: ServeReport = asked.record
    if not report.configs:
        sentence, *notes = [text for text in (*report.notes, report.advice) if text] or [report.headline()]
        none: Card = {"feasible": False, "meets": False, "sentence": sentence, "notes": notes, "configs": []}
        return none | {"sizes": _sizes(report, None)}
    one = report.configs[0]
    bound, _ = report.bound_and_change
    beside = [text for text in report.notes_beside if text not in report.notes]
    return {
        "feasible": True,
        "meets": one.meets_slo,
        "sentence": _sentence(report, one),
        "plan": plan_text(one),
        "config": config_text(one),
        "settings": _fields(asked, report, one),
        **fields(one, "slice copy_slice engine violations"),
        "engine_why": report.workload.engine_why,
        "formats": formats_text(one),
        "bound_by": bound or one.bound_by,
        "advice": report.advice,
        "error": error_text(report, one),
        "dearer": report.recommended_reason,
        "better": report.comparison,
        "notes": [*filter(None, [enough_text(one)]), *map(_told_here, report.notes), *beside, *_variants(report)],
        **_headline_figures(report, one),
        "configs": [_row(asked, report, other) for other in report.configs],
        "searched": report.searched,
        "sizes": _sizes(report, one),
        "point": {"x": one.tokens_per_s_per_user, "y": one.output_tokens_per_s_per_chip},
        "simulate": fields_of_command(next_command(report.asked, report)) or None if not asked.brief else None,
    }


def _told_here(note: str) -> str:
    """A note as the page says it: what the command line does by its next command is a button here."""
    return note.replace("the next command runs it", "“Run it under traffic” runs it")


def _headline_figures(report: ServeReport, one: ConfigReport) -> Card:
    """The figures under the sentence: those of the fleet where a rate was asked for, and those of a replica apart."""
    if not has_fleet(report, one):
        return {"figures": _figures(report, one)}
    fleet: Card = {"figures": _with_met(fleet_figures(report, one))}
    if one.prefill is not None:  # whose times and rates are those of the fleet
        return fleet
    about = replica_text(report, one)
    return fleet | {
        "replica": {"title": "One replica at its full load", "about": about, "figures": _figures(report, one)}
    }


def _sentence(report: ServeReport, one: ConfigReport) -> str:
    """What to run and what it gives; where nothing meets the targets, what is nearest and by how much
    it misses them."""
    if has_fleet(report, one):
        what = fleet_sentence(report, one)
    else:
        times = " and ".join(f"{name.upper()} {render(value, 's')}" for name, _, value, *_ in _times(report, one))
        tokens = f"{one.output_tokens_per_s_per_chip:,.0f} tokens/s per chip"
        what = f"{tokens} at {times}{_price(report, one)}: {report.model} on {one.slice}."
    goals = report.workload.goals
    targets = " and ".join(f"{name.upper()} within {goal.text}" for name, goal in goals.items())
    if not targets:
        return what
    if one.meets_slo:
        # the bands are of a replica at its full load, which a fleet's replicas do not reach
        near = [] if has_fleet(report, one) else near_misses(report.workload, one)
        how = f", {' and '.join(miss.name for miss in near)} only just: its band reaches beyond" if near else ""
        return f"{what} It meets {targets}{how}."
    return f"{what} It misses the SLO: {' and '.join(one.violations)}."


def _times(report: ServeReport, one: ConfigReport) -> list[tuple[str, float | None, float, float | None, float | None]]:
    """Name, target, time and its band; one output token has no time of the others."""
    names = ("ttft", "tpot") if report.workload.output > 1 else ("ttft",)
    banded = [[getattr(one, f"{name}{end}_s") for end in ("", "_low", "_high")] for name in names]
    targets = [getattr(report.workload, f"{name}_s") for name in names]
    return [(name, target, *times) for name, target, times in zip(names, targets, banded, strict=True)]


def _band(low: float, high: float) -> str:
    return f"{render(low, 's')} to {render(high, 's')}"


def _figures(report: ServeReport, one: ConfigReport) -> list[Card]:
    """The headline numbers, each with its target or its band."""
    fleet, work = has_fleet(report, one), report.workload
    # beside a fleet these are the figures of one replica, else of the slice that was named
    copies, where = (1, one.copy_slice) if fleet else (one.copies, one.slice)
    requests = one.requests_per_s * copies
    figures = []
    for name, target, value, low, high in _times(report, one):
        # None where nothing was asked, or where the band has the target inside
        met = None if not target or beyond(value, high, target) else value <= target
        about = _about(target, low, high)
        figures.append(figure(name.upper(), amount(value, "s", f"{name}_s"), about, met=met))
    users = f"{one.tokens_per_s_per_user:,.3g} per user" if one.tokens_per_s_per_user else ""
    tokens = count(one.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip")
    derived = "" if one.prefill or copies != one.copies else "requests_per_s"
    served = amount(requests, "count/s", derived, f"{requests:,.3g}")
    figures += [
        figure("output tokens/s per chip", tokens, users),
        figure("requests/s", served, f"on {where}"),
    ]
    if work.output == 1 and one.cost_usd_per_mtok_input is not None:
        million = amount(one.cost_usd_per_mtok_input, "USD", text=f"${one.cost_usd_per_mtok_input:,.3f}")
        figures.append(figure("per million input tokens", million))
    elif one.cost_usd_per_mtok is not None:
        each = f"${one.cost_usd_per_mtok_input or 0:,.2f} input, ${one.cost_usd_per_mtok_output or 0:,.2f} output alone"
        figures.append(figure("per million output tokens", dollars(one.cost_usd_per_mtok, "cost_usd_per_mtok"), each))
    limit = f"of {render(one.hbm_limit_bytes, 'bytes')} a chip"
    figures.append(figure("memory", amount(one.hbm_bytes, "bytes", "hbm_bytes"), limit))
    return _with_met(figures)


def _with_met(figures: list[Card]) -> list[Card]:
    """Figures, each of which says whether its target is met; None where it has none."""
    return [{"met": None, **row} for row in figures]


def _price(report: ServeReport, one: ConfigReport) -> str:
    """What a million tokens cost, for the sentence."""
    if report.workload.output == 1:
        million, digits, what = one.cost_usd_per_mtok_input, 3, "input"
    else:
        million, digits, what = one.cost_usd_per_mtok, 2, "output"
    return "" if million is None else f", ${million:,.{digits}f} per million {what} tokens"


def _about(target: float | None, low: float | None, high: float | None) -> str:
    told = [f"asked for: {render(target, 's')}"] if target else []
    if low is not None and high is not None:
        told.append(_band(low, high))
        told += ["inside the band"] if target is not None and low < target < high else []
    return "; ".join(told)


def _fields(asked: PageRequest, report: ServeReport, one: ConfigReport) -> dict[str, str]:
    """The fields that ask for one configuration alone: its plan and batch, and its slice where several were named."""
    several = len(report.asked.targets) > 1 or report.asked.targets[0][1] is None
    where = one.slice if several else str(asked.fields.get("on", "") or one.slice)
    engine = {"engine": one.engine} if len(report.workload.engines) > 1 or one.engine != report.workload.engine else {}
    if one.prefill is not None:  # which no plan says
        return {"on": str(asked.fields.get("on", "") or one.slice), **engine}
    drafts = {"drafts": str(one.drafts)} if one.drafts else {}
    return {"on": where, "plan": one.plan, "batch": str(one.batch), **engine, **drafts}


def _row(asked: PageRequest, report: ServeReport, one: ConfigReport) -> Card:
    there = _fields(asked, report, one)
    why = partial(elsewhere, there) if one.prefill is None else lambda _: ""
    return {
        "plan": plan_text(one),
        "config": config_text(one),
        **fields(one, "slice engine bound_by"),
        "formats": formats_text(one),
        "batch": count(one.batch),
        **quantities(one, {"ttft": "ttft_s", "tokens": "output_tokens_per_s_per_chip"}, why),
        "tpot": amount(one.tpot_s or None, "s", why("tpot_s")),
        "cost": dollars(one.cost_usd_per_mtok, why("cost_usd_per_mtok")),
        "chips": count(one.fleet_chips or one.copies * one.chips),
        "hour": amount(one.fleet_usd_per_h, "USD/h", text=hour_text(one.fleet_usd_per_h)),
        "meets": one.meets_slo,
        "fields": there,
    }


def _sizes(report: ServeReport, one: ConfigReport | None) -> Card:
    """What the sliders stand at, and where they can go."""
    work, read = report.workload, report.asked
    chip = read.targets[0][0] if one is None else parse_target(one.copy_slice)[0]
    named = [piece.chips for own, piece in read.targets if piece is not None and own.name == chip.name]
    return {
        "batch": one.batch if one else None,
        "max_batch": one.max_batch if one else None,
        **fields(work, "prompt output"),
        "chips": next(iter(named), None) or (one.copies * one.chips if one else None),
        "chip": chip.name,
        "context": read.model.context or None,
        "rate": work.rate_per_s,
        "caches": list(dict.fromkeys(model_caches(known_engine(read.engine_on(chip).name, chip), chip, read.model))),
    }


def _variants(report: ServeReport) -> list[str]:
    """What speculation, disaggregation and cached prefixes would bring, where they were asked for."""
    run = report.simulated
    found = [f"Simulated: {simulated_text(report.workload, run)}."] if run is not None else []
    if (drafts := report.speculation) is not None:
        used, best = report.configs[0].drafts, drafts.best_drafts
        row = next((row for row in drafts.rows if row.drafts == used), None)
        gain = f", {row.speedup:.2f} times as fast" if row and used else ""
        better = f" ({best} would be the best number)" if best != used else ""
        until = f"; from batch {drafts.hurts_from_batch:,} on none pays" if drafts.hurts_from_batch else ""
        number = f"{used} draft{'' if used == 1 else 's'}"
        found.append(f"Speculation: {number} a step by {drafts.drafter}{gain}{better}{until}.")
    if report.disaggregation is not None:
        found.append(f"Disaggregation: {report.disaggregation.advice}")
    if report.prefix is not None:
        found.append(f"Cached prefix: {report.prefix.advice}")
    return found
