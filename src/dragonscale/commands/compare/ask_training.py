"""A question about training answered: by the report of one stack and method, or by the comparison of several."""

from typing import Any

from dragonscale.commands.compare.compare_records import CompareReport
from dragonscale.commands.questions.flag import fields_of, written
from dragonscale.commands.questions.train import CompareQuestion, TrainQuestion
from dragonscale.commands.train.ask_train import ask as ask_train
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.listener import Listener
from dragonscale.training.plan.auto import AUTO


def ask(question: TrainQuestion, listener: Listener, brief: bool = False) -> TrainReport | Any:
    """The report of a training question; several stacks or methods, with commas between, are compared."""
    # Any stands for a CompareReport: callers of one plan need not rule it out before they read `.plans`
    if "," in f"{question.stack}{question.method}":
        return _compared(question, listener)
    return ask_train(question, listener, brief)


def _compared(question: TrainQuestion, listener: Listener) -> CompareReport:
    """The comparison of several stacks or methods."""
    # comparisons load serving too, which one plan does not need
    from dragonscale.commands.compare.ask_compare import ask as ask_compare

    names = {field.name for field in fields_of(CompareQuestion)} & {field.name for field in fields_of(TrainQuestion)}
    flags: dict[str, Any] = {name: getattr(question, name) for name in names}
    if question.stack == AUTO:
        flags["stack"] = ""
    plan = written(question.plan)
    return ask_compare(CompareQuestion(things=(plan,) if plan else (), **flags), listener)
