"""A question about an operation, read and answered."""

from dragonscale.app.given import maybe_target, sizes_of
from dragonscale.app.questions.operations import RooflineQuestion
from dragonscale.app.roofline.report import RooflineReport, roofline_report
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.hardware.chip import dtype_bytes


def ask(question: RooflineQuestion, listener: Listener, solve: bool = True) -> RooflineReport:
    """The roofline of the expression, on a chip or without one; `solve=False` leaves out where another resource takes
    over."""
    chip, piece = maybe_target(with_changes(question.on, question.set), listener)
    if piece is not None and piece.chips > 1:
        listener.note(f"A roofline is of one chip: using one {piece.chip.title} of {piece}.")
    if question.per_element is not None and question.per_element <= 0:
        raise InputError(f"--per-element is {question.per_element}; an element takes at least some FLOPs.")
    report = roofline_report(
        question.expression,
        chip,
        sizes_of(question.sizes),
        question.memory,
        solve,
        weights_only=question.weights_only,
        per_element=question.per_element,
    )
    dtype = report.compute_dtype
    if chip is not None and report.unit == "matrix" and dtype_bytes(dtype) < 2 and chip.format(dtype) != "native":
        listener.note(
            f"{chip.title} has no matmuls in {dtype}: such operands are multiplied as something wider, at its rate."
        )
    return report.came_from(chip, listener.notes)
