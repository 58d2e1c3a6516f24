"""The answer to `dscale verify`: compile and compare."""

from typing import Any, ClassVar

import msgspec

from dragonscale.app.questions.verify import VerifyQuestion
from dragonscale.app.record import Face, Record, bind
from dragonscale.app.verify import verify_words as words
from dragonscale.app.verify.fit import with_fitting_plan
from dragonscale.app.verify.html import save_page
from dragonscale.app.verify.verify_question import VerifyAsked, read_question
from dragonscale.app.verify.verify_sheet import verify_chart, verify_sheet
from dragonscale.evidence.verify import quiet
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.listener import Listener


# Record has no fields of its own, so nothing of a frozen record can change through it
class Verification(VerifyReport, Record, frozen=True):  # pyright: ignore[reportGeneralTypeIssues]
    """Planned and compiled side by side."""

    CHARTS: ClassVar[tuple[str, ...]] = ("compiled",)

    @classmethod
    def of(cls, report: VerifyReport) -> "Verification":
        """A comparison as an answer."""
        return cls(**{name: getattr(report, name) for name in VerifyReport.__struct_fields__})

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
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return verified(asked, listener, question.cache).came_from(asked, listener.notes)


def verified(asked: VerifyAsked, listener: Listener | None = None, cached: bool = True) -> Verification:
    """Compile a plan and lay the program beside it."""
    if listener is not None:
        listener.wait(f"Compiling for {asked.request.slice}; this takes half a minute or more the first time.")
    found = quiet.verify_quietly(asked.request, asked.timeout, asked.memory, cached, asked.stack)
    return Verification.of(with_fitting_plan(found))


bind(Verification, Face(sheet=verify_sheet, draw=verify_chart, page=save_page))
