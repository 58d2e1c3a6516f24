"""The answer to `dscale validate`, by the kind of what was measured."""

from importlib import import_module
from typing import TYPE_CHECKING

from dragonscale.app.questions.flag import written
from dragonscale.app.questions.validate import (
    KINDS,
    ScoreQuestion,
    ServingScoreQuestion,
    TrainingScoreQuestion,
    ValidateQuestion,
)
from dragonscale.app.validate.records import Validation
from dragonscale.app.validate.run_records import RunScore
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener

if TYPE_CHECKING:
    from dragonscale.evidence.logs.text import LogText

_TRAINING, _SERVING = ("stack", "search", "jobs", "batch", "seq"), ("engine", "choices")
_LOGGED = ("plan", "model", "on")
_OWN = {
    **dict.fromkeys(_TRAINING, ("training",)),
    **dict.fromkeys(_SERVING, ("serving",)),
    **dict.fromkeys(_LOGGED, ("training", "serving")),
}
"""Fields that only some kinds have."""
TABLES = (".csv", ".csv.gz")


def ask(question: ValidateQuestion, listener: Listener) -> Validation | RunScore:
    """A question of any kind; what its kind has no use for is refused."""
    if question.kind not in KINDS:
        raise unknown("kind of measurements called", question.kind, list(KINDS))
    for name, kinds in _OWN.items():
        if getattr(question, name) and question.kind not in kinds:
            raise InputError(f"{name} is for measured {' and '.join(kinds)}; leave it out for {question.kind}.")
    if question.kind == "training":
        words = {name: getattr(question, name) for name in (*_LOGGED, *_TRAINING)}
        return ask_training(TrainingScoreQuestion(question.file, **words), listener)
    if question.kind == "serving":
        words = {name: getattr(question, name) for name in (*_LOGGED, *_SERVING)}
        return ask_serving(ServingScoreQuestion(question.file, **words), listener)
    return _scored(question.kind, ScoreQuestion(question.file), listener)


def ask_training(question: TrainingScoreQuestion, listener: Listener) -> Validation | RunScore:
    log = _log(question)
    if log is not None:
        from dragonscale.app.validate.trained_run import ask_trained

        return ask_trained(question, log, listener)
    from dragonscale.evidence.training import validate

    found = validate(question.file, question.stack, question.search, question.jobs, listener.step)
    return Validation("training", found).came_from(question, listener.notes)


def ask_serving(question: ServingScoreQuestion, listener: Listener) -> Validation | RunScore:
    log = _log(question)
    if log is not None:
        from dragonscale.app.validate.served_run import ask_served

        return ask_served(question, log, listener)
    from dragonscale.evidence.serving import validate

    asked = {"choices": question.choices, "engine": bool(question.engine)}
    parts = tuple(name for name, wanted in asked.items() if wanted)
    return Validation("serving", validate(question.file, question.engine), parts).came_from(question, listener.notes)


def _log(question: TrainingScoreQuestion | ServingScoreQuestion) -> "LogText | None":
    """The file as the log of one run; None where it is a table of many."""
    given = [name for name in (*_LOGGED, "batch", "seq") if written(getattr(question, name, ""))]
    table = question.file.strip().lower().endswith(TABLES)
    if table and given:
        raise InputError(
            f"--{given[0]} is for the log of one run, and {shorten(question.file)} is a table of runs that each "
            "say their own."
        )
    if table:
        return None
    from dragonscale.evidence.logs.reading import reader_of
    from dragonscale.evidence.logs.text import LogText

    found = LogText.at(question.file)
    if not given and reader_of(found) is None:
        return None
    unused = [name for name in ("search", "jobs", "choices") if getattr(question, name, None)]
    if unused:
        raise InputError(f"--{unused[0]} is for a table of measured runs, and {found.shown} is the log of one.")
    return found


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
