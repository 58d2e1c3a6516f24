"""Where a plan does not fit by the compiler: the fastest plan of the same slice that would.

Plans are taken from the planner's front of time against memory, fastest first, and each is weighed as the verification
weighs memory, with the compiler's excess over that on top.

The answer to `dscale verify`: compile and compare.
"""

from typing import Any, ClassVar

import msgspec

from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.verify import verify_words as words
from dragonscale.commands.verify.verify_blocks import save_page, verify_blocks, verify_chart
from dragonscale.commands.verify.verify_question import VerifyAsked, read_question
from dragonscale.commands.verify.verify_words import sentence
from dragonscale.errors import InputError
from dragonscale.evidence.verify import comparing
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import render
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.search.headroom import headroom
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space

SPACE = "pipe=1,zero=3,schedule=1f1b"
"""What a plan to fall back on may look like: everything but pipelines."""


def with_fitting_plan(report: VerifyReport) -> VerifyReport:
    """The report, its advice completed by a plan that would fit; as it is where it fits, or where nothing would."""
    if report.fits_compiled or report.request.program != "train":
        return report
    plan, size = fitting_plan(report) or ("", 0.0)
    said = f"The plan {plan} would fit, with {render(size, 'bytes')} on each chip."
    return msgspec.structs.replace(report, advice=f"{sentence(report.advice)} {said}".strip()) if plan else report


def fitting_plan(report: VerifyReport) -> tuple[str, float] | None:
    """The fastest plan that would fit with room to spare, and the bytes it would take; None where there is none."""
    asked = report.request
    job = make_job(load_model(asked.model), parse_slice(asked.slice), asked.batch, asked.sequence)
    excess = max(1.0, (report.peak.ratio if report.peak is not None else None) or 1.0)
    for one in sorted(search(job, parse_space(SPACE)).front, key=lambda candidate: candidate.seconds):
        try:
            planned = plan_of(msgspec.structs.replace(asked, plan=str(one.plan)))
        except InputError:  # the runtime cannot run it
            continue
        size = planned.peak_bytes * excess
        if size <= (1 - headroom(job)) * report.limit_bytes and str(one.plan) != asked.plan:
            return str(one.plan), size
    return None


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
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return verified(asked, listener, question.cache).came_from(asked, listener.notes)


def verified(asked: VerifyAsked, listener: Listener | None = None, cached: bool = True) -> Verification:
    """Compile a plan and lay the program beside it."""
    if listener is not None:
        listener.wait(f"Compiling for {asked.request.slice}; this takes half a minute or more the first time.")
    report = comparing.verify(asked.request, asked.timeout, asked.memory, cached, asked.stack)
    return Verification.of(with_fitting_plan(report))


bind(Verification, Face(sheet=verify_blocks, draw=verify_chart, page=save_page))
