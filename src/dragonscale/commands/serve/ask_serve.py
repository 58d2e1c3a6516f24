"""`dscale serve` asked: the question read and answered; and what can be made of the answer: the next command, a plan
file that `dscale simulate` takes as it is, ledgers, timelines."""

from dataclasses import replace

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.given import check_named
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.engines import add_engines, programs_of
from dragonscale.commands.serve.recommended import next_command, recommended
from dragonscale.commands.serve.serve_blocks import serve_blocks
from dragonscale.commands.serve.serve_charts import draw
from dragonscale.commands.serve.serve_question import ServeAsked, read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.listener import Listener
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.timeline import TimelinePass, save_timeline, timeline
from dragonscale.serving.engine import plan_file


def ask(question: ServeQuestion, listener: Listener, brief: bool = False) -> ServeReport:
    """The answer to a question, which is told first how it was read; in brief without what is solved or searched beside
    the answer."""
    engine, *others = programs_of(question.engine)
    asked = read_question(replace(question, engine=engine))
    for text in asked.notes:
        listener.note(text)
    report = answer(asked, listener.step, brief)
    for text in _context_notes(asked, report):
        listener.note(text)
    report = report.came_from(report.asked or asked, listener.notes)
    if others:
        add_engines(report, question, others)
    return report


def _context_notes(asked: ServeAsked, report: ServeReport) -> list[str]:
    """Whether a request of --max-context fits what is recommended; of a given plan the answer itself says so."""
    longest, largest = asked.served_length, report.largest_context
    if not asked.question.max_context.strip() or asked.plan is not None or longest is None or largest is None:
        return []
    if largest >= longest:
        return [f"A request of {longest:,} tokens fits: a replica takes up to {largest:,}."]
    return [
        f"A request of {longest:,} tokens does not fit what is recommended, which takes up to {largest:,}: split a "
        "copy over more chips (--plan tp8), or narrow the KV cache (--kv-dtype fp8)."
    ]


def save_iterations(report: ServeReport, path: str) -> str:
    """Write a prefill and a decode step of the first configuration as a timeline for ui.perfetto.dev."""
    best = report.first()
    passes = [TimelinePass(name, tuple(ledger.lines)) for name, ledger in report.ledgers.items()]
    save_timeline(timeline(passes, f"{report.model} on {best.copy_slice}: {best.plan}, batch {best.batch}"), path)
    return "; open it at https://ui.perfetto.dev"


def _save(report: ServeReport, path: str) -> str:
    """Write what a report recommends as TOML, for `--plan`, `dscale simulate` and `dscale verify`."""
    report.first()
    question = report.asked.question
    check_named(question.model, question.on, question.draft)
    plan_file.save_serving_plan(recommended(report.asked, report), path)
    return f"; `dscale simulate {path}` runs it under its traffic"


def _sheet(report: ServeReport, detail: bool) -> Sheet:
    """The answer laid out, with the command that runs it under traffic at its end."""
    sheet = serve_blocks(report, detail)
    command = report.asked and next_command(report.asked, report)
    if not command:
        return sheet
    why = "Next, under traffic:" if detail else "More with --explain. Next, under traffic:"
    return Sheet((*sheet.blocks, NextStep(command, why)))


def _ledger(report: ServeReport) -> Ledger:
    return report.ledgers["decode"]


def _verify(report: ServeReport) -> Record:
    from dragonscale.commands.verify.ask_verify import verified
    from dragonscale.commands.verify.verify_question import serving_question

    report.first()
    return verified(serving_question(report.asked, report))


bind(ServeReport, Face(_sheet, draw, _save, timeline=save_iterations, verify=_verify, ledger=_ledger))
