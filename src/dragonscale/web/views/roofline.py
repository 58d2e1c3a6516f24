"""The view `roofline`: one operation on one chip, its time at best, what bounds it, and where that changes.

While a slider moves (`brief`) only the point is asked again; where another resource takes over is solved when it rests.
"""

from collections.abc import Callable
from typing import Any

from dragonscale.errors import InputError
from dragonscale.hardware.changes import with_changes
from dragonscale.listener import Listener
from dragonscale.reports.given import maybe_target, sizes_of
from dragonscale.reports.roofline.ask import ask
from dragonscale.reports.roofline.report import RooflineReport, roofline_curve
from dragonscale.rooflines.expression import parse_operation
from dragonscale.units import render
from dragonscale.web.amounts import amount
from dragonscale.web.asked import Asked
from dragonscale.web.views.notation import letters, marked
from dragonscale.web.words import question_of

LEVELS = {"hbm": "HBM", "pcie": "PCIe", "dcn": "DCN"}
POINTS = 97


def _record(asked: Asked) -> RooflineReport:
    if asked.brief:
        return ask(question_of("roofline", asked.fields), Listener(), solve=False)
    return asked.record


def notation_panel(asked: Asked) -> dict[str, Any]:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    given = str(asked.fields.get("expression", ""))
    try:
        question = question_of("roofline", asked.fields)
        operation, sizes = parse_operation(given), sizes_of(question.sizes)
        _record(asked)
    except InputError as error:
        return {"wrong": str(error), "at": marked(given, str(error)), "letters": []}
    return {"wrong": "", "at": None, "letters": letters(operation.indices, operation.sizes, sizes)}


def answer_panel(asked: Asked) -> dict[str, Any]:
    """The answer in a sentence, its numbers, and the time of each resource."""
    report = _record(asked)
    figures = [
        ("at best", amount(report.lower_s, "s", "roofline:lower_s"), "compute and memory overlap"),
        ("without overlap", amount(report.upper_s, "s", "roofline:upper_s"), "one after the other"),
        ("reaches", amount(report.attainable_flops_per_s, "FLOP/s", "roofline:attainable_flops_per_s"), _of_peak(report)),
        ("intensity", amount(report.intensity_flops_per_byte, "FLOP/byte", "roofline:intensity_flops_per_byte",
                             _per_byte(report.intensity_flops_per_byte)), "FLOPs per byte"),
        ("FLOPs", amount(report.flops, "FLOP", "roofline:flops", "" if report.flops is not None else report.flops_formula), report.flops_formula),
        ("bytes", amount(report.bytes, "bytes", "roofline:bytes", "" if report.bytes is not None else report.bytes_formula), report.bytes_formula),
        ("peak", amount(report.peak_flops_per_s, "FLOP/s", "roofline:peak_flops_per_s"), f"{report.compute_dtype}, {report.unit} unit"),
        ("bandwidth", amount(report.bandwidth_bytes_per_s, "bytes/s", "roofline:bandwidth_bytes_per_s"), LEVELS.get(report.memory, report.memory)),
    ]  # fmt: skip
    return {
        "sentence": _sentence(report), "advice": report.advice, "expression": report.expression, "chip": report.chip,
        "chip_title": report.chip_title, "bound_by": report.bound_by, "notes": list(report.notes_beside),
        "figures": [{"label": label, "number": number, "about": about} for label, number, about in figures if number["text"] != "–"],
        "resources": [
            {"name": row.name, "formula": row.formula, "role": "compute" if row.name in ("compute", "vector unit") else "hbm",
             "seconds": amount(row.seconds, "s", f"roofline:resource:{row.name}")}
            for row in report.resources
        ],
        "crossovers": [
            {"variable": row.variable, "value": row.value, "below": row.below, "above": row.above,
             "number": amount(row.value, "count", f"roofline:crossover:{row.variable}", f"{row.value:,.4g}")}
            for row in report.crossovers
        ],
    }  # fmt: skip


def _sentence(report: RooflineReport) -> str:
    if report.lower_s is None:
        return report.advice or report.headline()
    return f"{render(report.lower_s, 's')} at best on one {report.chip_title}, bound by {report.bound_by}."


def _of_peak(report: RooflineReport) -> str:
    if report.attainable_flops_per_s is None or not report.peak_flops_per_s:
        return ""
    return f"{report.attainable_flops_per_s / report.peak_flops_per_s:.1%} of the peak"


def _per_byte(intensity: float | None) -> str:
    return "" if intensity is None else f"{intensity:,.4g}"


def roof_panel(asked: Asked) -> dict[str, Any]:
    """The chip's roof, the operation below it, and where the roof bends."""
    report = _record(asked)
    if report.peak_flops_per_s is None or report.bandwidth_bytes_per_s is None:
        return {"roofs": [], "points": []}
    points: list[dict[str, Any]] = []
    if report.intensity_flops_per_byte and report.attainable_flops_per_s:
        points.append(
            _point(
                "this operation", report.intensity_flops_per_byte, report.attainable_flops_per_s, report.bound_by or ""
            )
        )
    for sample in report.samples:
        if not points or sample.intensity_flops_per_byte > 1.5 * points[-1]["intensity"]:
            name = f"{report.free[0]} = {sample.value:,.0f}"
            points.append(_point(name, sample.intensity_flops_per_byte, sample.attainable_flops_per_s, sample.bound_by))
    level = LEVELS.get(report.memory, report.memory.upper())
    name = f"{report.compute_dtype} over {level}"
    critical = report.critical_intensity_flops_per_byte
    return {
        "roofs": [{"name": name, "peak": report.peak_flops_per_s, "bandwidth": report.bandwidth_bytes_per_s}],
        "points": points,
        "ridge": amount(critical, "FLOP/byte", "roofline:critical_intensity_flops_per_byte", _per_byte(critical)),
    }  # fmt: skip


def _point(name: str, intensity: float, rate: float, bound: str) -> dict[str, Any]:
    return {
        "name": name,
        "intensity": intensity,
        "rate": rate,
        "bound": bound,
        "why": "roofline:attainable_flops_per_s",
    }


def curve_panel(asked: Asked) -> dict[str, Any]:
    """Time over one letter (`over` of the request, or the first that is open), the others as given; crossovers are rules."""
    question = question_of("roofline", asked.fields)
    operation, sizes = parse_operation(question.expression), sizes_of(question.sizes)
    names = [name for name in operation.indices if name not in operation.sizes]
    letter = asked.text("over") or next((name for name in names if name not in sizes), names[0] if names else "")
    chip, _ = maybe_target(with_changes(question.on, question.set))
    others = [name for name in names if name != letter and name not in sizes]
    if letter not in names or chip is None or others:
        return {"letter": "", "letters": names, "series": []}
    kept = {name: size for name, size in sizes.items() if name != letter}
    values = [2.0 ** (20 * place / (POINTS - 1)) for place in range(POINTS)]
    counting = {"weights_only": question.weights_only, "per_element": question.per_element}
    samples = roofline_curve(question.expression, chip, kept, letter, values, question.memory, **counting)
    open_fields = {**asked.fields, "sizes": ",".join(f"{name}={size}" for name, size in kept.items())}
    solved: RooflineReport = asked.ask("roofline", open_fields, brief=False)
    here = sizes.get(letter)
    at_here = None
    if here:
        [at_here] = roofline_curve(question.expression, chip, kept, letter, [float(here)], question.memory, **counting)
    return {
        "letter": letter, "letters": names,
        "x": {"label": letter, "unit": "count", "log": True}, "y": {"label": "time", "unit": "s", "log": True},
        "series": [
            {"name": "at best", "role": "compute", "points": [[one.value, one.lower_s] for one in samples]},
            {"name": "without overlap", "role": "overhead", "dashed": True, "points": [[one.value, one.upper_s] for one in samples]},
        ],
        "rules": [
            {"at": row.value, "text": f"{letter} = {row.value:,.4g}: {row.above} takes over from {row.below}", "role": "limit"}
            for row in solved.crossovers if row.variable == letter
        ],
        "marks": [{"x": float(here), "y": at_here.lower_s, "text": f"{letter} = {here:,}: {render(at_here.lower_s, 's')}, bound by {at_here.bound_by}"}]
        if here and at_here else [],
    }  # fmt: skip


PANELS: dict[str, Callable[[Any], Any]] = {
    "notation": notation_panel, "answer": answer_panel, "roof": roof_panel, "curve": curve_panel,
}  # fmt: skip
