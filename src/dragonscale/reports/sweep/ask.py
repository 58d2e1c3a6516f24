"""The answer to `dscale sweep`, put together from what was asked."""

from dragonscale.listener import Listener
from dragonscale.questions.sweep import SweepQuestion
from dragonscale.reports.sweep.records import SweepReport
from dragonscale.reports.sweep.report import sweep


def ask(question: SweepQuestion, listener: Listener) -> SweepReport:
    """Answer every entry of a grid; Ctrl-C leaves what was answered until then."""
    listener.wait("Sweeping; Ctrl-C stops it, and what is answered by then stays in --out.")
    report = sweep(
        question.grid, question.out, question.jobs, question.ray, question.retry, question.cache, listener.step
    )
    return report.came_from(question, listener.notes)
