"""The answer to `dscale estimate`, put together from what was asked."""

from dragonscale.app.estimate import estimate_lines as lines
from dragonscale.app.estimate.estimate_question import EstimateAsked, read_question
from dragonscale.app.estimate.estimate_records import EstimateReport, Paper
from dragonscale.app.estimate.estimate_sheet import estimate_sheet
from dragonscale.app.questions.operations import EstimateQuestion
from dragonscale.app.record import Face, bind
from dragonscale.listener import Listener


def ask(question: EstimateQuestion, listener: Listener) -> EstimateReport:
    """Read a question, tell how it was read, and answer it."""
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return answer(asked).came_from(asked, listener.notes)


def answer(asked: EstimateAsked) -> EstimateReport:
    """Every line that can be worked out from what is known."""
    paper = Paper(asked.model.program().sections if asked.model is not None else ())
    lines.write_weights(asked, paper)
    if asked.training:
        # adapters are not trained on a whole run's tokens
        if asked.question.lora is None or asked.question.tokens.strip():
            lines.write_run(asked, paper)
        lines.write_state(asked, paper)
    if asked.serving:
        lines.write_cache(asked, paper)
        if asked.chip is not None:
            lines.write_serving(asked, paper)
    if asked.question.lora is not None:
        lines.write_finetuning(asked, paper)
    where = str(asked.piece) if asked.piece is not None else asked.chip.name if asked.chip is not None else ""
    sizes = asked.total, asked.active, asked.tokens, asked.seq, asked.context, asked.mfu
    letters, weights = dict(paper.letters.values), asked.question.weights
    report = EstimateReport(asked.name, where, *sizes, paper.lines, letters, [], weights)
    report.notes = _notes(asked, report)
    return report


def _notes(asked: EstimateAsked, report: EstimateReport) -> list[str]:
    notes = []
    fewest, largest = report.find("fewest chips"), report.find("largest batch")
    if asked.piece is not None and fewest is not None and fewest.value > asked.piece.chips:
        notes.append(f"{asked.piece} does not hold the weights and the batch: that takes {fewest.value:,.0f} chips.")
    elif largest is not None and largest.value < asked.batch:
        notes.append(f"Only {largest.value:,.0f} of {asked.batch:,} sequences fit beside the weights.")
    if asked.sparse and asked.model is None and asked.serving and asked.chip is not None:
        notes.append("A decode step reads every expert here, as a large batch does; a small one reads fewer.")
    if asked.chip is not None:
        notes.append(
            "Communication, workspace and launch gaps are left out: `dscale train` and `dscale serve` have them."
        )
    return notes


bind(EstimateReport, Face(estimate_sheet))
