"""`dscale explain …` laid out: each quantity with its formula and the numbers put in, then what was solved."""

from dragonscale.app.explain.formulas import Explanation, FormulaLine
from dragonscale.sheets.sheet import Block, Prose, Sheet, Title


def explanation_sheet(explanation: Explanation) -> Sheet:
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
