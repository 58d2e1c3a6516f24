"""What to serve with, in a sentence with its bands; the figures under it; every other configuration as a link; what to
ask next."""

from typing import Any

from dragonscale.app.serve.advice import beyond, near_misses
from dragonscale.app.serve.ask import next_command
from dragonscale.app.serve.formats import known_engine
from dragonscale.app.serve.records import ConfigReport, ServeReport, ServeRequest, config_text, formats_text, plan_text
from dragonscale.app.serve.sheet import error_text, fleet_text
from dragonscale.physics.hardware import parse_target
from dragonscale.physics.units import render
from dragonscale.serving.legality import caches
from dragonscale.serving.space import slices_of
from dragonscale.web.amounts import Amount, amount, count, elsewhere
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.commands import fields_of_command

MOST_CHIPS = 256


def answer_panel(asked: PageRequest) -> dict[str, Any]:
    """The recommended configuration, whether it meets the targets, and the others."""
    report: ServeReport = asked.record
    if not report.configs:
        told = [text for text in (*report.notes, report.advice) if text]
        said = told[0] if told else report.headline()
        return {
            "feasible": False,
            "meets": False,
            "sentence": said,
            "notes": told[1:],
            "configs": [],
            "sizes": _sizes(report, None),
        }
    one = report.configs[0]
    bound, change = report.bound_and_change
    beside = [text for text in report.notes_beside if text not in report.notes]
    return {
        "feasible": True,
        "meets": one.meets_slo,
        "sentence": _sentence(report, one),
        "plan": plan_text(one),
        "settings": _fields(asked, report, one),
        "slice": one.slice,
        "copy_slice": one.copy_slice,
        "engine": one.engine,
        "engine_why": report.workload.engine_why,
        "formats": formats_text(one),
        "bound_by": bound or one.bound_by,
        "advice": change,
        "violations": one.violations,
        "error": error_text(report, one),
        "fleet": fleet_text(report, one),
        "better": report.comparison,
        "notes": [*report.notes, *beside, *_variants(report)],
        "figures": _figures(report, one),
        "configs": [_row(asked, report, other) for other in report.configs],
        "searched": report.searched,
        "sizes": _sizes(report, one),
        "point": {"x": one.tokens_per_s_per_user, "y": one.output_tokens_per_s_per_chip},
        "simulate": fields_of_command(next_command(report.asked, report)) or None if not asked.brief else None,
    }


def _sentence(report: ServeReport, one: ConfigReport) -> str:
    """What to run and what it gives; where nothing meets the targets, what is nearest and by how much
    it misses them."""
    tokens = _band(
        f"{one.output_tokens_per_s_per_chip:,.0f}", one.tokens_low, one.tokens_high, lambda value: f"{value:,.0f}"
    )
    times = [_timed("TTFT", one.ttft_s, one.ttft_low_s, one.ttft_high_s)]
    if report.workload.output > 1:
        times.append(_timed("TPOT", one.tpot_s, one.tpot_low_s, one.tpot_high_s))
    what = f"{config_text(one)} serves {report.model} on {one.slice}: {', '.join(times)}, {tokens} tokens/s per chip."
    targets = _targets(report.workload)
    if not targets:
        return what
    if one.meets_slo:
        near = near_misses(report.workload, one)
        how = f"; {' and '.join(name for name, *_ in near)} only at the middle of the band" if near else ""
        return f"{what} It meets {targets}{how}."
    return f"{what} It misses the SLO: {' and '.join(one.violations)}."


def _timed(name: str, value: float, low: float | None, high: float | None) -> str:
    return f"{name} {_band(render(value, 's'), low, high, lambda bound: render(bound, 's'))}"


def _band(text: str, low: float | None, high: float | None, told: Any) -> str:
    return text if low is None or high is None else f"{text} ({told(low)} to {told(high)})"


def _targets(work: ServeRequest) -> str:
    pairs = (("TTFT", work.ttft_s), ("TPOT", work.tpot_s))
    return " and ".join(f"{name} within {render(value, 's')}" for name, value in pairs if value)


def _figures(report: ServeReport, one: ConfigReport) -> list[dict[str, Any]]:
    """The headline numbers, each with its target or its band."""
    work = report.workload
    rows: list[tuple[str, Amount, str, bool | None]] = [
        (
            "TTFT",
            amount(one.ttft_s, "s", "ttft_s"),
            _about(work.ttft_s, one.ttft_low_s, one.ttft_high_s),
            _met(one.ttft_s, one.ttft_high_s, work.ttft_s),
        ),
    ]
    if work.output > 1:
        about = _about(work.tpot_s, one.tpot_low_s, one.tpot_high_s)
        rows.append(("TPOT", amount(one.tpot_s, "s", "tpot_s"), about, _met(one.tpot_s, one.tpot_high_s, work.tpot_s)))
    users = f"{one.tokens_per_s_per_user:,.3g} per user" if one.tokens_per_s_per_user else ""
    rows.append(
        (
            "output tokens/s per chip",
            count(one.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip"),
            users,
            None,
        )
    )
    rows.append(
        (
            "requests/s",
            amount(
                one.requests_per_s * one.copies, "count/s", "requests_per_s", f"{one.requests_per_s * one.copies:,.3g}"
            ),
            f"on {one.slice}",
            None,
        )
    )
    if one.cost_usd_per_mtok is not None:
        each = f"${one.cost_usd_per_mtok_input or 0:,.2f} input, ${one.cost_usd_per_mtok_output or 0:,.2f} output alone"
        cost = amount(one.cost_usd_per_mtok, "USD", "cost_usd_per_mtok", f"${one.cost_usd_per_mtok:,.2f}")
        rows.append(("per million output tokens", cost, each, None))
    if one.replicas is not None and one.fleet_chips is not None:
        dollars = "" if one.fleet_usd_per_h is None else f", ${one.fleet_usd_per_h:,.0f}/h"
        about = f"for {work.rate_per_s or 0:,.3g} requests/s: {one.fleet_chips:,} chips{dollars}"
        rows.append(("replicas", count(one.replicas, "replicas"), about, None))
    rows.append(
        (
            "memory",
            amount(one.hbm_bytes, "bytes", "hbm_bytes"),
            f"of {render(one.hbm_limit_bytes, 'bytes')} a chip",
            None,
        )
    )
    return [{"label": label, "number": number, "about": about, "met": met} for label, number, about, met in rows]


def _about(target: float | None, low: float | None, high: float | None) -> str:
    band = f"{render(low, 's')} to {render(high, 's')}" if low is not None and high is not None else ""
    inside = low is not None and high is not None and target is not None and low < target < high
    return "; ".join(
        filter(None, (f"asked for: {render(target, 's')}" if target else "", band, "inside the band" if inside else ""))
    )


def _met(value: float, high: float | None, target: float | None) -> bool | None:
    """None where nothing was asked, or where the band has the target inside."""
    return None if not target or beyond(value, high, target) else value <= target


def _fields(asked: PageRequest, report: ServeReport, one: ConfigReport) -> dict[str, str]:
    """The fields that ask for one configuration alone: its plan and batch, and its slice where several were named."""
    several = len(report.asked.targets) > 1 or report.asked.targets[0][1] is None
    where = one.slice if several else str(asked.fields.get("on", "") or one.slice)
    engine = {"engine": one.engine} if len(report.workload.engines) > 1 or one.engine != report.workload.engine else {}
    return {"on": where, "plan": one.plan, "batch": str(one.batch), **engine}


def _row(asked: PageRequest, report: ServeReport, one: ConfigReport) -> dict[str, Any]:
    there = _fields(asked, report, one)
    return {
        "plan": plan_text(one),
        "slice": one.slice,
        "formats": formats_text(one),
        "engine": one.engine,
        "batch": count(one.batch),
        "ttft": amount(one.ttft_s, "s", elsewhere(there, "ttft_s")),
        "tpot": amount(one.tpot_s or None, "s", elsewhere(there, "tpot_s")),
        "tokens": count(one.output_tokens_per_s_per_chip, elsewhere(there, "output_tokens_per_s_per_chip")),
        "cost": amount(
            one.cost_usd_per_mtok,
            "USD",
            elsewhere(there, "cost_usd_per_mtok"),
            text="" if one.cost_usd_per_mtok is None else f"${one.cost_usd_per_mtok:,.2f}",
        ),
        "chips": count(one.fleet_chips or one.copies * one.chips),
        "meets": one.meets_slo,
        "bound_by": one.bound_by,
        "fields": there,
    }


def _sizes(report: ServeReport, one: ConfigReport | None) -> dict[str, Any]:
    """What the sliders stand at, and where they can go."""
    work, read = report.workload, report.asked
    chip = read.targets[0][0] if one is None else parse_target(one.copy_slice)[0]
    asked_chips = next(
        (piece.chips for own, piece in read.targets if piece is not None and own.name == chip.name), None
    )
    slices = {piece.chips: str(piece) for piece in reversed(slices_of(chip, MOST_CHIPS))}
    return {
        "batch": one.batch if one else None,
        "max_batch": one.max_batch if one else None,
        "prompt": work.prompt,
        "output": work.output,
        "chips": asked_chips or (one.copies * one.chips if one else None),
        "chip": chip.name,
        "slices": [[chips, name] for chips, name in sorted(slices.items())],
        "several": len(read.targets) > 1,
        "context": read.model.context or None,
        "rate": work.rate_per_s,
        "caches": list(dict.fromkeys(caches(known_engine(read.engine_on(chip).name, chip), chip))),
    }


def _variants(report: ServeReport) -> list[str]:
    """What speculation, disaggregation and cached prefixes would bring, where they were asked for."""
    found: list[str] = []
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
