"""The answer to `dscale compare`: each side asked as `train` or `serve` would be, then held against the first."""

from typing import Any

from dragonscale.app.compare.differences import difference, seconds_of
from dragonscale.app.compare.question import CompareAsked, Contender, read_question
from dragonscale.app.compare.records import CompareReport, Side
from dragonscale.app.compare.sides import DOLLARS, TOKENS, keyed, serving_side, training_side
from dragonscale.app.questions.compare import CompareQuestion
from dragonscale.app.questions.train import TrainQuestion
from dragonscale.app.serve.question import ServeQuestion
from dragonscale.app.serve.question import read_question as read_serving
from dragonscale.app.serve.report import answer
from dragonscale.app.train.ask import ask as ask_train
from dragonscale.app.train.saved import said_by
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.serving.plan_file import load_serving_plan
from dragonscale.training.plan_file import is_plan_path, load_training_file


class _OneSide(Listener):
    """Hears what one side says: a note that others say too is passed on once, and progress is counted by sides."""

    def __init__(self, outer: Listener) -> None:
        super().__init__()
        self.outer = outer

    def note(self, text: str) -> None:
        # a price that names several chips is whole over all sides
        if text not in self.outer.notes and "which is not asked about" not in text:
            self.outer.note(text)


def ask(question: CompareQuestion, listener: Listener) -> CompareReport:
    """Read a question, ask each side, compare them."""
    asked = read_question(question)
    answers = asked.given or _answers(asked, listener)
    return compared(answers, asked.serving).came_from(asked, listener.notes)


def _answers(asked: CompareAsked, listener: Listener) -> list[Any]:
    """The answer of each side; what nobody says of a plan that is written out is as the first file has it."""
    quiet, found = _OneSide(listener), []
    one, said = (_serve, served_by) if asked.serving else (_train, trained_by)
    files = [side.plan for side in asked.candidates if is_plan_path(side.plan)]
    job = said(files[0]) if files else {}
    for number, side in enumerate(asked.candidates):
        found.append(one(asked.question, side, {} if is_plan_path(side.plan) else job, quiet))
        listener.step(number + 1, len(asked.candidates))
    return found


def trained_by(path: str) -> dict[str, Any]:
    """What a file says of the run of its plan, by the names of flags."""
    return said_by(load_training_file(path))


def served_by(path: str) -> dict[str, Any]:
    """What a file says of the requests of its plan, by the names of flags."""
    saved = load_serving_plan(path)
    lengths = {"prompt": str(saved.traffic.prompt or ""), "output": str(saved.traffic.output or "")}
    words = {"model": saved.model, "on": saved.slice, "engine": saved.engine, **lengths}
    return {name: value for name, value in words.items() if value}


def _train(question: CompareQuestion, one: Contender, job: dict[str, Any], listener: Listener) -> Any:
    words = {name: getattr(question, name) for name in ("model", "batch", "seq", "tokens", "price", "dtype", "profile")}
    words |= {"on": one.on, "stack": one.software, "plan": one.plan, "measured": one.measured}
    given = {name: value for name, value in words.items() if value != ""}
    return ask_train(TrainQuestion(**(job | given), alone=bool(one.plan), top=1), listener)


def _serve(question: CompareQuestion, one: Contender, job: dict[str, Any], listener: Listener) -> Any:
    names = ("model", "prompt", "output", "ttft", "tpot", "batch", "price", "dtype", "profile")
    words = {name: getattr(question, name) for name in names}
    words |= {"on": one.on, "engine": one.software, "plan": one.plan}
    given = {name: value for name, value in words.items() if value != ""}
    own = served_by(one.plan) if is_plan_path(one.plan) else job
    whole = job | given | {"model": given.get("model", own.get("model", ""))}
    if not whole["model"]:
        raise InputError("The comparison lacks a model; give --model, such as llama3-70b.")
    asked = read_serving(ServeQuestion(**whole, top=1))
    for text in asked.notes:
        listener.note(text)
    return answer(asked)


def compared(answers: list[Any], serving: bool) -> CompareReport:
    """The report on answers of one kind: the first plan of each, or all plans of a single one."""
    made = serving_side if serving else training_side
    first = answers[0]
    if len(answers) == 1:
        sides = [made(first, place) for place in range(len(first.configs if serving else first.plans))]
    else:
        sides = [made(one) for one in answers]
    sides, kind = keyed(sides), "serving" if serving else "training"
    report = CompareReport(
        kind,
        " and ".join(dict.fromkeys(one.model for one in answers)),
        _workload(first, serving),
        sides,
        [difference(sides[0], side, kind) for side in sides[1:]],
        _winner(sides, kind),
        [],
    )
    works = {_workload(one, serving) for one in answers}
    report.notes += ["The sides are asked about different work."] if len(works) > 1 else []
    if any(side.terms and not side.feasible for side in sides):
        report.notes.append("Times of what cannot run are as if it could.")
    report.notes += _measured(sides)
    return report


def _measured(sides: list[Side]) -> list[str]:
    """Measured steps against each other, beside what was expected of them."""
    known = [(side, side.measured_s) for side in sides if side.measured_s]
    said = []
    for side, seconds in known[1:]:
        first, own = known[0]
        expected = seconds_of(side) / seconds_of(first)
        said.append(
            f"Measured, the step of {side.key} is {seconds / own:.2f}x that of {first.key}; {expected:.2f}x was "
            "expected."
        )
    return said


def _workload(answer: Any, serving: bool) -> str:
    work = answer.workload
    if serving:
        return f"prompts of {work.prompt:,} tokens, {work.output:,} output tokens"
    return f"{work.batch_tokens:,} tokens a step ({work.sequences:,} sequences of {work.seq:,})"


def _winner(sides: list[Side], kind: str) -> str:
    """The fastest side for its tokens; of serving the cheapest, or where prices lack, the one with most of a chip."""
    able = [side for side in sides if side.feasible]
    if not able:
        return ""
    if kind == "training":
        return min(able, key=lambda side: seconds_of(side) / side.tokens).key
    priced = all(side.figure(DOLLARS) for side in able)
    meets = [side for side in able if not side.problems] or able
    if priced:
        return min(meets, key=lambda side: _value(side, DOLLARS)).key
    return max(meets, key=lambda side: _value(side, TOKENS)).key


def _value(side: Side, name: str) -> float:
    found = side.figure(name)
    return 0.0 if found is None or found.value is None else found.value
