"""The answer to `dscale verify`: compile and compare."""

from typing import Any, ClassVar

import msgspec

from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.verify import verify_words as words
from dragonscale.commands.verify.verify_blocks import save_page, verify_blocks, verify_chart
from dragonscale.commands.verify.verify_question import VerifyAsked, read_question
from dragonscale.commands.verify.verify_words import sentence
from dragonscale.evidence.verify import comparing
from dragonscale.evidence.verify.fitting import fitting_plan
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.listener import Listener
from dragonscale.physics.units import render


# Answers carry attributes beside their fields (the question, notes), so they are not frozen as the comparison is.
class Verification(VerifyReport, Record, frozen=False):  # pyright: ignore[reportGeneralTypeIssues]
    """Planned and compiled side by side."""

    CHARTS: ClassVar[tuple[str, ...]] = ("compiled",)

    @classmethod
    def of(cls, report: VerifyReport) -> "Verification":
        """A comparison as an answer."""
        return cls(**msgspec.structs.asdict(report))

    @property
    def exit_code(self) -> int:
        return words.exit_code(self)

    def headline(self) -> str:
        return f"{words.title(self.request)}: {words.outcome(self)}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each number that was compared."""
        return [{"what": name, **msgspec.to_builtins(line)} for name, line in words.judged(self)]


def ask(question: VerifyQuestion, listener: Listener) -> Verification:
    """Read a question, tell how it was read, compile and compare."""
    understood = read_question(question)
    for text in understood.notes:
        listener.note(text)
    return verified(understood, listener, question.cache).came_from(understood, listener.notes)


def verified(understood: VerifyAsked, listener: Listener | None = None, cached: bool = True) -> Verification:
    """Compile a plan and lay the program beside it; where it does not fit, the advice names a plan that would."""
    if listener is not None:
        listener.wait(f"Compiling for {understood.request.slice}; this takes half a minute or more the first time.")
    report = comparing.verify(understood.request, understood.timeout, understood.memory, cached, understood.stack)
    return Verification.of(with_fitting_plan(report))


def with_fitting_plan(report: VerifyReport) -> VerifyReport:
    """A comparison with its advice completed by a plan that would fit, where its own does not and one would."""
    if report.fits_compiled or report.request.program != "train":
        return report
    fitting = fitting_plan(report)
    if fitting is None:
        return report
    plan, size = fitting
    advice = f"{sentence(report.advice)} The plan {plan} would fit, with {render(size, 'bytes')} on each chip."
    return msgspec.structs.replace(report, advice=advice.strip())


bind(Verification, Face(sheet=verify_blocks, draw=verify_chart, page=save_page))
