"""`dscale explain …` laid out (each quantity with its formula and the numbers put in, then what was solved) and drawn
(the times behind an answer as bars)."""

from dragonscale.app.charts.roles import nothing_to_draw
from dragonscale.app.explain.formulas import Explanation, FormulaLine
from dragonscale.sheets.charts import Bar, Chart, bars
from dragonscale.sheets.sheet import Block, Prose, Sheet, Title

_BOUNDS = ("bound", "step", "total")
"""Words in the names of lines that are made of the others."""


def explanation_sheet(explanation: Explanation, detail: bool = False) -> Sheet:  # noqa: ARG001 - it is all detail
    """The lines, the crossovers and what the letters stand for; what bounds the answer comes last."""
    blocks: list[Block] = [Title(explanation.subject)]
    if explanation.lines:
        blocks.append(Prose("\n".join(part for line in explanation.lines for part in _line(line))))
    if explanation.crossovers:
        blocks.append(Prose("\n".join(["crossovers", *(f"  {text}" for text in explanation.crossovers)])))
    *notes, last = explanation.notes or [""]
    blocks += [Prose(note, "dim") for note in notes]
    return Sheet((*blocks, Prose(last, "key")))


def _line(line: FormulaLine) -> list[str]:
    numbers = [f"    = {line.numbers}"] if line.numbers != line.formula else []
    return [f"{line.name} = {line.value}", f"    = {line.formula}", *numbers]


def draw(explanation: Explanation, kind: str) -> Chart:  # noqa: ARG001  there is one kind
    """Every line that is a time, in the order of the explanation; crossovers in words below the title."""
    rows = [
        Bar(line.name.split(" = ")[0], line.value_si, _role(line.name))
        for line in explanation.lines
        if line.unit == "s" and line.value_si is not None
    ]
    if not rows:
        raise nothing_to_draw("no line of the explanation is a time with all its sizes known")
    crossing = explanation.crossovers[0] if explanation.crossovers else ""
    return bars(rows, explanation.subject, crossing, "s")


def _role(name: str) -> str:
    """What a line is of, by the words of its name."""
    if any(word in name for word in _BOUNDS):
        return "overhead"
    if "bytes" in name or "hbm" in name.lower():
        return "hbm"
    return "tensor" if any(word in name for word in ("latency", "bandwidth", "network", "collectives")) else "compute"
