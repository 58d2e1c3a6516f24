"""The answer to `dscale validate`, by the kind of what was measured."""

from importlib import import_module

from dragonscale.errors import InputError, unknown
from dragonscale.listener import Listener
from dragonscale.questions.validate import (
    KINDS,
    ScoreQuestion,
    ServingScoreQuestion,
    TrainingScoreQuestion,
    ValidateQuestion,
)
from dragonscale.reports.validate.records import Validation

_OWN = {"stack": "training", "search": "training", "jobs": "training", "engine": "serving", "choices": "serving"}
"""Fields that one kind has to itself."""


def ask(question: ValidateQuestion, listener: Listener) -> Validation:
    """A question of any kind; what its kind has no use for is refused."""
    if question.kind not in KINDS:
        raise unknown("kind of measurements called", question.kind, list(KINDS))
    for name, kind in _OWN.items():
        if getattr(question, name) and question.kind != kind:
            raise InputError(f"{name} is for measured {kind}; leave it out for {question.kind}.")
    if question.kind == "training":
        words = question.file, question.stack, question.search, question.jobs
        return ask_training(TrainingScoreQuestion(*words), listener)
    if question.kind == "serving":
        return ask_serving(ServingScoreQuestion(question.file, question.engine, question.choices), listener)
    return _scored(question.kind, ScoreQuestion(question.file), listener)


def ask_training(question: TrainingScoreQuestion, listener: Listener) -> Validation:
    from dragonscale.evidence.training import validate

    found = validate(question.file, question.stack, question.search, question.jobs, listener.step)
    return Validation("training", found).came_from(question, listener.notes)


def ask_serving(question: ServingScoreQuestion, listener: Listener) -> Validation:
    from dragonscale.evidence.serving import validate

    asked = {"choices": question.choices, "engine": bool(question.engine)}
    parts = tuple(name for name, wanted in asked.items() if wanted)
    return Validation("serving", validate(question.file, question.engine), parts).came_from(question, listener.notes)


def ask_inference(question: ScoreQuestion, listener: Listener) -> Validation:
    return _scored("inference", question, listener)


def ask_collectives(question: ScoreQuestion, listener: Listener) -> Validation:
    return _scored("collectives", question, listener)


def ask_kernels(question: ScoreQuestion, listener: Listener) -> Validation:
    return _scored("kernels", question, listener)


def ask_memory(question: ScoreQuestion, listener: Listener) -> Validation:
    return _scored("memory", question, listener)


def _scored(kind: str, question: ScoreQuestion, listener: Listener) -> Validation:
    found = import_module(f"dragonscale.evidence.{kind}").validate(question.file)
    return Validation(kind, found).came_from(question, listener.notes)
