"""What to serve with, in a sentence with its bands; the figures under it; every other configuration as a link; what to
ask next."""

from functools import partial

from dragonscale.blocks.amounts import amount, count, dollars, elsewhere, hour_text, quantities
from dragonscale.commands.serve.advice import beyond, near_misses
from dragonscale.commands.serve.recommended import next_command
from dragonscale.commands.serve.serve_blocks import error_text, simulated_text
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport, config_text, formats_text, plan_text
from dragonscale.physics.hardware import parse_target
from dragonscale.physics.units import render
from dragonscale.serving.advice.formats import known_engine
from dragonscale.serving.space.legal import model_caches
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


def answer_panel(request: PageRequest) -> Card:
    """The recommended configuration, whether it meets the targets, and the others."""
    report: ServeReport = request.record
    if not report.configs:
        sentence, *notes = [text for text in (*report.notes, report.advice) if text] or [report.headline()]
        none: Card = {"feasible": False, "meets": False, "sentence": sentence, "notes": notes, "configs": []}
        return none | {"sizes": _sizes(report, None)}
    config = report.configs[0]
    bound, _ = report.bound_and_change
    notes = [text for text in report.notes_beside if text not in report.notes]
    return {
        "feasible": True,
        "meets": config.meets_slo,
        "sentence": _sentence(report, config),
        "plan": plan_text(config),
        "config": config_text(config),
        "settings": _fields(request, report, config),
        **fields(config, "slice copy_slice engine violations"),
        "engine_why": report.workload.engine_why,
        "formats": formats_text(config),
        "bound_by": bound or config.bound_by,
        "advice": report.advice,
        "error": error_text(report, config),
        "dearer": report.recommended_reason,
        "better": report.comparison,
        "notes": [*filter(None, [enough_text(config)]), *map(_told_here, report.notes), *notes, *_variants(report)],
        **_headline_figures(report, config),
        "configs": [_row(request, report, other) for other in report.configs],
        "searched": report.searched,
        "sizes": _sizes(report, config),
        "point": {"x": config.tokens_per_s_per_user, "y": config.output_tokens_per_s_per_chip},
        "simulate": fields_of_command(next_command(report.asked, report)) or None if not request.brief else None,
    }


def _told_here(note: str) -> str:
    """A note as the page says it: what the command line does by its next command is a button here."""
    return note.replace("the next command runs it", "“Run it under traffic” runs it")


def _headline_figures(report: ServeReport, config: ConfigReport) -> Card:
    """The figures under the sentence: those of the fleet where a rate was asked for, and those of a replica apart."""
    if not has_fleet(report, config):
        return {"figures": _figures(report, config)}
    fleet: Card = {"figures": _with_met(fleet_figures(report, config))}
    if config.prefill is not None:  # whose times and rates are those of the fleet
        return fleet
    sentence = replica_text(report, config)
    return fleet | {
        "replica": {"title": "One replica at its full load", "about": sentence, "figures": _figures(report, config)}
    }


def _sentence(report: ServeReport, config: ConfigReport) -> str:
    """What to run and what it gives; where nothing meets the targets, what is nearest and by how much
    it misses them."""
    if has_fleet(report, config):
        what = fleet_sentence(report, config)
    else:
        times = " and ".join(f"{name.upper()} {render(value, 's')}" for name, _, value, *_ in _times(report, config))
        tokens = f"{config.output_tokens_per_s_per_chip:,.0f} tokens/s per chip"
        what = f"{tokens} at {times}{_price(report, config)}: {report.model} on {config.slice}."
    goals = report.workload.goals
    targets = " and ".join(f"{name.upper()} within {goal.text}" for name, goal in goals.items())
    if not targets:
        return what
    if config.meets_slo:
        # the bands are of a replica at its full load, which a fleet's replicas do not reach
        misses = [] if has_fleet(report, config) else near_misses(report.workload, config)
        how = f", {' and '.join(miss.name for miss in misses)} only just: its band reaches beyond" if misses else ""
        return f"{what} It meets {targets}{how}."
    return f"{what} It misses the SLO: {' and '.join(config.violations)}."


def _times(
    report: ServeReport, config: ConfigReport
) -> list[tuple[str, float | None, float, float | None, float | None]]:
    """Name, target, time and its band; one output token has no time of the others."""
    names = ("ttft", "tpot") if report.workload.output > 1 else ("ttft",)
    banded = [[getattr(config, f"{name}{end}_s") for end in ("", "_low", "_high")] for name in names]
    targets = [getattr(report.workload, f"{name}_s") for name in names]
    return [(name, target, *times) for name, target, times in zip(names, targets, banded, strict=True)]


def _band(low: float, high: float) -> str:
    return f"{render(low, 's')} to {render(high, 's')}"


def _figures(report: ServeReport, config: ConfigReport) -> list[Card]:
    """The headline numbers, each with its target or its band."""
    fleet, work = has_fleet(report, config), report.workload
    # beside a fleet these are the figures of one replica, else of the slice that was named
    copies, where = (1, config.copy_slice) if fleet else (config.copies, config.slice)
    requests = config.requests_per_s * copies
    figures = []
    for name, target, value, low, high in _times(report, config):
        # None where nothing was asked, or where the band has the target inside
        met = None if not target or beyond(value, high, target) else value <= target
        note = _about(target, low, high)
        figures.append(figure(name.upper(), amount(value, "s", f"{name}_s"), note, met=met))
    users = f"{config.tokens_per_s_per_user:,.3g} per user" if config.tokens_per_s_per_user else ""
    tokens = count(config.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip")
    derived = "" if config.prefill or copies != config.copies else "requests_per_s"
    served = amount(requests, "count/s", derived, f"{requests:,.3g}")
    figures += [
        figure("output tokens/s per chip", tokens, users),
        figure("requests/s", served, f"on {where}"),
    ]
    if work.output == 1 and config.cost_usd_per_mtok_input is not None:
        million = amount(config.cost_usd_per_mtok_input, "USD", text=f"${config.cost_usd_per_mtok_input:,.3f}")
        figures.append(figure("per million input tokens", million))
    elif config.cost_usd_per_mtok is not None:
        each = f"${config.cost_usd_per_mtok_input or 0:,.2f} input, "
        each += f"${config.cost_usd_per_mtok_output or 0:,.2f} output alone"
        figures.append(
            figure("per million output tokens", dollars(config.cost_usd_per_mtok, "cost_usd_per_mtok"), each)
        )
    limit = f"of {render(config.hbm_limit_bytes, 'bytes')} a chip"
    figures.append(figure("memory", amount(config.hbm_bytes, "bytes", "hbm_bytes"), limit))
    return _with_met(figures)


def _with_met(figures: list[Card]) -> list[Card]:
    """Figures, each of which says whether its target is met; None where it has none."""
    return [{"met": None, **row} for row in figures]


def _price(report: ServeReport, config: ConfigReport) -> str:
    """What a million tokens cost, for the sentence."""
    if report.workload.output == 1:
        million, digits, what = config.cost_usd_per_mtok_input, 3, "input"
    else:
        million, digits, what = config.cost_usd_per_mtok, 2, "output"
    return "" if million is None else f", ${million:,.{digits}f} per million {what} tokens"


def _about(target: float | None, low: float | None, high: float | None) -> str:
    notes = [f"asked for: {render(target, 's')}"] if target else []
    if low is not None and high is not None:
        notes.append(_band(low, high))
        notes += ["inside the band"] if target is not None and low < target < high else []
    return "; ".join(notes)


def _fields(request: PageRequest, report: ServeReport, config: ConfigReport) -> dict[str, str]:
    """The fields that ask for one configuration alone: its plan and batch, and its slice where several were named."""
    several = len(report.asked.targets) > 1 or report.asked.targets[0][1] is None
    where = config.slice if several else str(request.fields.get("on", "") or config.slice)
    engine = (
        {"engine": config.engine} if len(report.workload.engines) > 1 or config.engine != report.workload.engine else {}
    )
    if config.prefill is not None:  # which no plan says
        return {"on": str(request.fields.get("on", "") or config.slice), **engine}
    drafts = {"drafts": str(config.drafts)} if config.drafts else {}
    return {"on": where, "plan": config.plan, "batch": str(config.batch), **engine, **drafts}


def _row(request: PageRequest, report: ServeReport, config: ConfigReport) -> Card:
    there = _fields(request, report, config)
    why = partial(elsewhere, there) if config.prefill is None else lambda _: ""
    return {
        "plan": plan_text(config),
        "config": config_text(config),
        **fields(config, "slice engine bound_by"),
        "formats": formats_text(config),
        "batch": count(config.batch),
        **quantities(config, {"ttft": "ttft_s", "tokens": "output_tokens_per_s_per_chip"}, why),
        "tpot": amount(config.tpot_s or None, "s", why("tpot_s")),
        "cost": dollars(config.cost_usd_per_mtok, why("cost_usd_per_mtok")),
        "chips": count(config.fleet_chips or config.copies * config.chips),
        "hour": amount(config.fleet_usd_per_h, "USD/h", text=hour_text(config.fleet_usd_per_h)),
        "meets": config.meets_slo,
        "fields": there,
    }


def _sizes(report: ServeReport, config: ConfigReport | None) -> Card:
    """What the sliders stand at, and where they can go."""
    work, read = report.workload, report.asked
    chip = read.targets[0][0] if config is None else parse_target(config.copy_slice)[0]
    named = [
        slice_.chips for target_chip, slice_ in read.targets if slice_ is not None and target_chip.name == chip.name
    ]
    return {
        "batch": config.batch if config else None,
        "max_batch": config.max_batch if config else None,
        **fields(work, "prompt output"),
        "chips": next(iter(named), None) or (config.copies * config.chips if config else None),
        "chip": chip.name,
        "context": read.model.context or None,
        "rate": work.rate_per_s,
        "caches": list(dict.fromkeys(model_caches(known_engine(read.engine_on(chip).name, chip), chip, read.model))),
    }


def _variants(report: ServeReport) -> list[str]:
    """What speculation, disaggregation and cached prefixes would bring, where they were asked for."""
    run = report.simulated
    sentences = [f"Simulated: {simulated_text(report.workload, run)}."] if run is not None else []
    if (drafts := report.speculation) is not None:
        used, best = report.configs[0].drafts, drafts.best_drafts
        row = next((row for row in drafts.rows if row.drafts == used), None)
        gain = f", {row.speedup:.2f} times as fast" if row and used else ""
        better = f" ({best} would be the best number)" if best != used else ""
        until = f"; from batch {drafts.hurts_from_batch:,} on none pays" if drafts.hurts_from_batch else ""
        number = f"{used} draft{'' if used == 1 else 's'}"
        sentences.append(f"Speculation: {number} a step by {drafts.drafter}{gain}{better}{until}.")
    if report.disaggregation is not None:
        sentences.append(f"Disaggregation: {report.disaggregation.advice}")
    if report.prefix is not None:
        sentences.append(f"Cached prefix: {report.prefix.advice}")
    return sentences
