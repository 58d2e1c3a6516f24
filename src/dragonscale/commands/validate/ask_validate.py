"""The answer to `dscale validate`, by the kind of what was measured."""

from functools import partial

from dragonscale.commands.charts.pictures import draw_scores
from dragonscale.commands.questions import validate
from dragonscale.commands.questions.flag import written
from dragonscale.commands.record import Face, bind
from dragonscale.commands.validate.measured_rl import ask_logged
from dragonscale.commands.validate.measured_run import ask_served, ask_trained
from dragonscale.commands.validate.validate_blocks import run_blocks, score_blocks
from dragonscale.commands.validate.validate_records import RunScore, Validation, save_measures, save_scores
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.evidence import collectives, finetune, inference, kernels, memory, rl, serving, training
from dragonscale.evidence.logs.reading import reader_of
from dragonscale.evidence.logs.text import LogText
from dragonscale.listener import Listener

_TRAINING, _SERVING = ("stack", "search", "limit", "batch", "seq"), ("engine", "choices")
_LOGGED = ("plan", "model", "on")
# Fields that only some kinds have.
_OWN = {
    **dict.fromkeys(_TRAINING, ("training",)),
    **dict.fromkeys(_SERVING, ("serving",)),
    **dict.fromkeys(_LOGGED, ("training", "serving", "rl")),
}
_SCORED = {"inference": inference, "collectives": collectives, "kernels": kernels, "memory": memory}
_SCORED |= {"finetune": finetune, "rl": rl}
TABLES = (".csv", ".csv.gz")


def ask(question: validate.ValidateQuestion, listener: Listener) -> Validation | RunScore:
    """A question of any kind; what its kind has no use for is refused."""
    if question.kind not in validate.KINDS:
        raise unknown("kind of measurements called", question.kind, list(validate.KINDS))
    # before the file is read
    for name, kinds in _OWN.items():
        if getattr(question, name) and question.kind not in kinds:
            raise InputError(f"{name} is for measured {' and '.join(kinds)}; leave it out for {question.kind}.")
    if question.kind == "training":
        fields = {name: getattr(question, name) for name in (*_LOGGED, *_TRAINING)}
        return ask_training(validate.TrainingScoreQuestion(question.file, **fields), listener)
    if question.kind == "serving":
        fields = {name: getattr(question, name) for name in (*_LOGGED, *_SERVING)}
        return ask_serving(validate.ServingScoreQuestion(question.file, **fields), listener)
    if question.kind == "rl":
        fields = {name: getattr(question, name) for name in _LOGGED}
        return ask_rl(validate.RlScoreQuestion(question.file, **fields), listener)
    return _score(question.kind, validate.ScoreQuestion(question.file), listener)


def ask_rl(question: validate.RlScoreQuestion, listener: Listener) -> Validation | RunScore:
    if written(question.plan):
        return ask_logged(question, listener)
    return _score("rl", question, listener)


def ask_training(question: validate.TrainingScoreQuestion, listener: Listener) -> Validation | RunScore:
    if log := _log(question):
        return ask_trained(question, log, listener)
    scores = training.validate(question.file, question.stack, question.search, question.limit, listener.step)
    return Validation("training", scores).came_from(question, listener.notes)


def ask_serving(question: validate.ServingScoreQuestion, listener: Listener) -> Validation | RunScore:
    if log := _log(question):
        return ask_served(question, log, listener)
    flags = {"choices": question.choices, "engine": bool(question.engine)}
    parts = tuple(name for name, wanted in flags.items() if wanted)
    scores = serving.validate(question.file, question.engine)
    return Validation("serving", scores, parts).came_from(question, listener.notes)


def _log(question: validate.TrainingScoreQuestion | validate.ServingScoreQuestion) -> LogText | None:
    """The file as the log of one run; None where it is a table of many."""
    named = [name for name in (*_LOGGED, "batch", "seq") if written(getattr(question, name, ""))]
    # a table of many runs
    if question.file.strip().lower().endswith(TABLES):
        if named:
            single, many = f"--{named[0]} is for the log of one run", f"{shorten(question.file)} is a table of runs"
            raise InputError(f"{single}, and {many} that each say their own.")
        return None
    log = LogText.at(question.file)
    # no log that is known: it is read as a table
    if not named and reader_of(log) is None:
        return None
    unused = [name for name in ("search", "limit", "choices") if getattr(question, name, None)]
    if unused:
        raise InputError(f"--{unused[0]} is for a table of measured runs, and {log.shown} is the log of one.")
    return log


def _score(kind: str, question: validate.ScoreQuestion, listener: Listener) -> Validation:
    return Validation(kind, _SCORED[kind].validate(question.file)).came_from(question, listener.notes)


ask_inference, ask_collectives, ask_kernels, ask_memory, ask_finetune = (
    partial(_score, kind) for kind in _SCORED if kind != "rl"
)
bind(Validation, Face(score_blocks, lambda answer, _: draw_scores(answer.scores, answer.kind), rows=save_scores))
bind(RunScore, Face(run_blocks, rows=save_measures))
