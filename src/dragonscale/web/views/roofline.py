"""The view `roofline`: one operation on one chip, its time at best, what bounds it, and where that changes.

While a slider moves (`brief`) only the point is asked again; where another resource takes over is solved when it rests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.app.given import maybe_target, sizes_of
from dragonscale.app.roofline import ask
from dragonscale.app.roofline_report import RooflineReport, Sample, roofline_curve, spelled
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.rooflines.expression import parse_operation
from dragonscale.physics.units import render
from dragonscale.web.amounts import amount, quantity
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, fields, figures_of, known, line, log_axis, mark, rule
from dragonscale.web.views.notation import letters, marked
from dragonscale.web.words import question_of

POINTS = 97
COMPUTE = ("compute", "vector unit")


def _record(asked: PageRequest) -> RooflineReport:
    if asked.brief:
        return ask(question_of("roofline", asked.fields), Listener(), solve=False)
    return asked.record


def notation_panel(asked: PageRequest) -> Card:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    given = str(asked.fields.get("expression", ""))
    try:
        question = question_of("roofline", asked.fields)
        operation, sizes = parse_operation(given), sizes_of(question.sizes)
        _record(asked)
    except InputError as error:
        return {"wrong": str(error), "at": marked(given, str(error)), "letters": []}
    return {"wrong": "", "at": None, "letters": letters(operation.indices, operation.sizes, sizes)}


def answer_panel(asked: PageRequest) -> Card:
    """The answer in a sentence, its numbers, and the time of each resource."""
    report = _record(asked)
    figures, memory = TABLES["roofline"]["answer"]["figures"], spelled(report.memory)
    resources = [
        {"name": spelled(row.name), "formula": row.formula, "role": "compute" if row.name in COMPUTE else "hbm"}
        | {"seconds": amount(row.seconds, "s", f"roofline:resource:{row.name}")}
        for row in report.resources
    ]
    crossovers = [
        {"variable": row.variable, "value": row.value, "below": spelled(row.below), "above": spelled(row.above)}
        | {"number": amount(row.value, "count", f"roofline:crossover:{row.variable}", f"{row.value:,.4g}")}
        for row in report.crossovers
    ]
    return {
        **fields(report, "advice expression chip chip_title bound_by"),
        "sentence": _sentence(report),
        "notes": list(report.notes_beside),
        "figures": known(figures_of(report, figures, "roofline", reached=_of_peak(report), memory=memory)),
        "resources": resources,
        "crossovers": crossovers,
    }


def _sentence(report: RooflineReport) -> str:
    if report.lower_s is None:
        return report.advice or report.headline()
    return (
        f"{render(report.lower_s, 's')} at best on one {report.chip_title}, bound by {spelled(report.bound_by or '')}."
    )


def _of_peak(report: RooflineReport) -> str:
    if report.attainable_flops_per_s is None or not report.peak_flops_per_s:
        return ""
    return f"{report.attainable_flops_per_s / report.peak_flops_per_s:.1%} of the peak"


def roof_panel(asked: PageRequest) -> Card:
    """The chip's roof, the operation below it, and where the roof bends."""
    report = _record(asked)
    if report.peak_flops_per_s is None or report.bandwidth_bytes_per_s is None:
        return {"roofs": [], "points": []}
    points = _trail(asked)
    if report.intensity_flops_per_byte and report.attainable_flops_per_s:
        point = _point(
            "this operation", report.intensity_flops_per_byte, report.attainable_flops_per_s, report.bound_by or ""
        )
        points = [one for one in points if not 0.6 < one["intensity"] / point["intensity"] < 1.6] + [point]
    name = f"{report.compute_dtype} over {spelled(report.memory)}"
    critical = "critical_intensity_flops_per_byte"
    return {
        "roofs": [{"name": name, "peak": report.peak_flops_per_s, "bandwidth": report.bandwidth_bytes_per_s}],
        "points": points,
        "ridge": quantity(critical, getattr(report, critical), f"roofline:{critical}"),
    }


def _trail(asked: PageRequest) -> list[dict[str, Any]]:
    """Where the operation would lie at other sizes of the letter that is varied, as far as it climbs the roof."""
    varied = _varied(asked)
    if varied is None:
        return []
    points: list[dict[str, Any]] = []
    for one in varied.at([4.0**power for power in range(10)]):
        if not points or one.attainable_flops_per_s > 1.2 * points[-1]["rate"]:
            name, role = (
                f"{varied.letter} = {one.value:,.0f}",
                "hbm:2" if one.bound_by == varied.question.memory else "compute:2",
            )
            point = _point(name, one.intensity_flops_per_byte, one.attainable_flops_per_s, one.bound_by)
            points.append(point | {"role": role})
    return points


def _point(name: str, intensity: float, rate: float, bound: str) -> Card:
    why = "roofline:attainable_flops_per_s"
    return {"name": name, "intensity": intensity, "rate": rate, "bound": bound, "why": why}


@dataclass(frozen=True)
class _Varied:
    """The letter that is varied, the sizes of the others, and the question they are of."""

    letter: str
    letters: list[str]
    sizes: dict[str, int]
    chip: Chip
    question: Any

    def at(self, values: Sequence[float]) -> list[Sample]:
        one = self.question
        counting = {"weights_only": one.weights_only, "per_element": one.per_element}
        others = {name: size for name, size in self.sizes.items() if name != self.letter}
        return roofline_curve(one.expression, self.chip, others, self.letter, values, one.memory, **counting)


def _varied(asked: PageRequest) -> _Varied | None:
    """The letter that `over` of the request names, or the first that is open; None where it cannot be varied alone."""
    question = question_of("roofline", asked.fields)
    operation, sizes = parse_operation(question.expression), sizes_of(question.sizes)
    names = _letters(operation)
    letter = asked.text("over") or next((name for name in names if name not in sizes), names[0] if names else "")
    chip, _ = maybe_target(with_changes(question.on, question.set))
    if letter not in names or chip is None or any(name != letter and name not in sizes for name in names):
        return None
    return _Varied(letter, names, sizes, chip, question)


def _letters(operation: Any) -> list[str]:
    return [name for name in operation.indices if name not in operation.sizes]


def curve_panel(asked: PageRequest) -> Card:
    """Time over one letter, the others as given; crossovers are rules."""
    varied = _varied(asked)
    if varied is None:
        open_letters = _letters(parse_operation(str(asked.fields.get("expression", ""))))
        return {"letter": "", "letters": open_letters, "series": []}
    letter, here = varied.letter, varied.sizes.get(varied.letter)
    samples = varied.at([2.0 ** (20 * place / (POINTS - 1)) for place in range(POINTS)])
    others = ",".join(f"{name}={size}" for name, size in varied.sizes.items() if name != letter)
    solved: RooflineReport = asked.ask("roofline", {**asked.fields, "sizes": others}, brief=False)
    marks: list[Card] = []
    if here:
        [now] = varied.at([float(here)])
        marks.append(mark(float(here), now.lower_s, f"{render(now.lower_s, 's')}, bound by {now.bound_by}"))
    crossed = [row for row in solved.crossovers if row.variable == letter]
    return {
        "letter": letter,
        "letters": varied.letters,
        "x": log_axis(letter, "count"),
        "y": log_axis("time", "s"),
        "series": [
            line("at best", "compute", [(one.value, one.lower_s) for one in samples]),
            line("without overlap", "overhead", [(one.value, one.upper_s) for one in samples], dashed=True),
        ],
        "rules": [
            rule(row.value, f"{letter} = {row.value:,.4g}: {row.above} takes over from {row.below}") for row in crossed
        ],
        "marks": marks,
    }


PANELS = {
    "notation": notation_panel,
    "answer": answer_panel,
    "roof": roof_panel,
    "curve": curve_panel,
}
