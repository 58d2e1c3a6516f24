"""The view `roofline`: one operation on one chip, its time at best, what bounds it, and where that changes.

While a slider moves (`brief`) only the point is asked again; where another resource takes over is solved when it rests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.blocks.amounts import amount, quantity
from dragonscale.commands.given import maybe_target, sizes_of
from dragonscale.commands.roofline import ask
from dragonscale.commands.roofline_report import RooflineReport, Sample, roofline_curve, spelled
from dragonscale.listener import Listener
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.rooflines.operation import parse_operation
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, fields, figures_of, known, line, log_axis, mark, rule
from dragonscale.web.views.notation import notation_card
from dragonscale.web.words import question_of

POINTS = 97
COMPUTE = ("compute", "vector unit")


def _record(request: PageRequest) -> RooflineReport:
    if request.brief:
        return ask(question_of("roofline", request.fields), Listener(), solve=False)
    return request.record


def notation_panel(request: PageRequest) -> Card:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    return notation_card(request, parse_operation, _record)


def answer_panel(request: PageRequest) -> Card:
    """The answer in a sentence, its numbers, and the time of each resource."""
    report = _record(request)
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
    bound = spelled(report.bound_by or "")
    return f"{render(report.lower_s, 's')} at best on one {report.chip_title}, bound by {bound}."


def _of_peak(report: RooflineReport) -> str:
    reached, peak = report.attainable_flops_per_s, report.peak_flops_per_s
    return "" if reached is None or not peak else f"{reached / peak:.1%} of the peak"


def roof_panel(request: PageRequest) -> Card:
    """The chip's roof, the operation below it, and where the roof bends."""
    report = _record(request)
    if report.peak_flops_per_s is None or report.bandwidth_bytes_per_s is None:
        return {"roofs": [], "points": []}
    points, at, rate = _trail(request), report.intensity_flops_per_byte, report.attainable_flops_per_s
    if at and rate:
        points = [point for point in points if not 0.6 < point["intensity"] / at < 1.6]
        points.append(_point("this operation", at, rate, report.bound_by or ""))
    name = f"{report.compute_dtype} over {spelled(report.memory)}"
    critical = "critical_intensity_flops_per_byte"
    return {
        "roofs": [{"name": name, "peak": report.peak_flops_per_s, "bandwidth": report.bandwidth_bytes_per_s}],
        "points": points,
        "ridge": quantity(critical, getattr(report, critical), f"roofline:{critical}"),
    }


def _trail(request: PageRequest) -> list[Card]:
    """Where the operation would lie at other sizes of the letter that is varied, as far as it climbs the roof."""
    varied, points = _varied(request), list[Card]()
    for sample in varied.at([4.0**power for power in range(10)]) if varied else ():
        if varied and (not points or sample.attainable_flops_per_s > 1.2 * points[-1]["rate"]):
            position = sample.intensity_flops_per_byte, sample.attainable_flops_per_s
            role = "hbm:2" if sample.bound_by == varied.question.memory else "compute:2"
            points.append(_point(f"{varied.letter} = {sample.value:,.0f}", *position, sample.bound_by) | {"role": role})
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
        question = self.question
        counting = {"weights_only": question.weights_only, "per_element": question.per_element}
        return roofline_curve(
            question.expression, self.chip, self.others, self.letter, values, question.memory, **counting
        )

    @property
    def others(self) -> dict[str, int]:
        return {name: size for name, size in self.sizes.items() if name != self.letter}


def _varied(request: PageRequest) -> _Varied | None:
    """The letter that `over` of the request names, or the first that is open; None where it cannot be varied alone."""
    question = question_of("roofline", request.fields)
    names, sizes = _letters(question.expression), sizes_of(question.sizes)
    letter = request.text("over") or next((name for name in names if name not in sizes), names[0] if names else "")
    chip, _ = maybe_target(with_changes(question.on, question.set))
    if letter not in names or chip is None or any(name != letter and name not in sizes for name in names):
        return None
    return _Varied(letter, names, sizes, chip, question)


def _letters(expression: str) -> list[str]:
    operation = parse_operation(expression)
    return [name for name in operation.indices if name not in operation.sizes]


def curve_panel(request: PageRequest) -> Card:
    """Time over one letter, the others as given; crossovers are rules."""
    varied = _varied(request)
    if varied is None:
        return {"letter": "", "letters": _letters(str(request.fields.get("expression", ""))), "series": []}
    letter, here = varied.letter, varied.sizes.get(varied.letter)
    samples = varied.at([2.0 ** (20 * index / (POINTS - 1)) for index in range(POINTS)])
    others = ",".join(f"{name}={size}" for name, size in varied.others.items())
    solved: RooflineReport = request.ask("roofline", {**request.fields, "sizes": others}, brief=False)
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
            line("at best", "compute", [(sample.value, sample.lower_s) for sample in samples]),
            line("without overlap", "overhead", [(sample.value, sample.upper_s) for sample in samples], dashed=True),
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
