"""A question about chips, read and answered."""

from dataclasses import replace

from dragonscale.app.chips.layout import LayoutReport, layout_report
from dragonscale.app.chips.report import ChipReport, ChipsReport, chip_report, chips_report
from dragonscale.app.chips.slices import SliceReport, slice_report
from dragonscale.app.given import maybe_target
from dragonscale.app.questions.facts import ChipsQuestion
from dragonscale.errors import InputError
from dragonscale.listener import Listener


def ask(question: ChipsQuestion, listener: Listener) -> ChipsReport | ChipReport | SliceReport | LayoutReport:
    """All chips, one, a slice, or a layout."""
    return _answer(question, listener).came_from(question, listener.notes)


def _answer(question: ChipsQuestion, listener: Listener) -> ChipsReport | ChipReport | SliceReport | LayoutReport:
    if question.source and (question.layout or not question.name):
        raise InputError("--source takes the numbers of one chip from one source; name the chip, such as h100.")
    if question.layout:
        return layout_report(question.layout)
    chip, piece = maybe_target(question.name, listener)
    if chip is None:
        return chips_report()
    if question.source:
        chip = chip.reading(question.source)
    return chip_report(chip) if piece is None else slice_report(replace(piece, chip=chip))
