"""The answer to `dscale sweep`, put together from what was asked."""

from dragonscale.app.questions.sweep import SweepQuestion
from dragonscale.app.sweep.charts import check_columns
from dragonscale.app.sweep.grid import read_grid
from dragonscale.app.sweep.records import SweepReport
from dragonscale.app.sweep.report import sweep
from dragonscale.listener import Listener


def ask(question: SweepQuestion, listener: Listener) -> SweepReport:
    """Answer every entry of a grid; Ctrl-C leaves what was answered until then."""
    if question.columns:
        check_columns(question.columns, read_grid(question.grid))
    listener.wait("Sweeping; Ctrl-C stops it, and what is answered by then stays in --out.")
    report = sweep(
        question.grid, question.out, question.jobs, question.ray, question.retry, question.cache, listener.step
    )
    return report.came_from(question, listener.notes)
