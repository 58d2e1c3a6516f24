"""What a plan file says of a training run, under what the flags say.

`dscale train --plan plan.toml` needs nothing else: the file names the model, the slice, the batch and
the sequence. A flag beside it wins, and where it says something else, that is noted. A plan that is
written out and a flag that contradicts it are both of one command line: that is refused.
"""

from dataclasses import replace
from typing import Any

from dragonscale.app.foreign import as_training, foreign_plan, told
from dragonscale.app.questions.flag import written
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.training.plan import Plan, read_field
from dragonscale.training.plan_file import TrainingFile, given_settings, is_plan_path, load_training_file, parse_plan
from dragonscale.training.space import CHOICES, Space

_UNSAID: dict[str, tuple[Any, ...]] = {"stack": ("auto", ""), "skew": (1.0,), "capacity": (0.0,)}
"""What a flag holds where nobody gave it; nothing for all others."""
_ASK = {
    "model": "a model, such as llama3-8b",
    "on": "--on, the slice to run on, such as h100:64",
    "batch": "--batch, the tokens (4M) or sequences (512seq) of a step",
    "seq": "--seq, the tokens of a sequence",
}


def filled(question: Any) -> tuple[Any, list[str]]:
    """A `TrainQuestion` with what its flags leave open as the plan file has it, and notes on what they
    change."""
    notes: list[str] = []
    saved, foreign = None, foreign_plan(question.plan, question.model, question.on)
    if foreign is not None:
        notes += told(foreign)
        question, saved = as_training(question, foreign)
    elif is_plan_path(written(question.plan)):
        saved = load_training_file(written(question.plan))
    if saved is not None:
        question = _with_count(question, saved)
        words: dict[str, Any] = {}
        for name, value in said_by(saved).items():
            given = getattr(question, name)
            if given in _UNSAID.get(name, ("",)):
                words[name] = value
            elif name not in ("tokens", "price") and (own := written(given)) != str(value):
                flag = "the model" if name == "model" else f"--{name}"
                notes.append(f"The plan file says {value} for {flag}; {own} is taken.")
        question = replace(question, **words)
    for name, what in _ASK.items():
        if not written(getattr(question, name)):
            raise InputError(f"The question lacks {what}; give it, or a --plan file that says it.")
    return question, notes


def _with_count(question: Any, saved: TrainingFile) -> Any:
    """The question with the file's own slice where `--on` is only its chip."""
    on = written(question.on)
    if not saved.slice or not is_chip(on) or parse_slice(saved.slice).chip.name != load_chip(on).name:
        return question
    return replace(question, on=saved.slice)


def said_by(saved: TrainingFile) -> dict[str, Any]:
    """What a file says, by the names of flags."""
    same = ("tokens", "price", "stack", "documents", "skew", "capacity")
    sizes = {"batch": saved.batch and f"{saved.batch}seq", "seq": saved.seq and str(saved.seq)}
    values = {"model": saved.model, "on": saved.slice, **sizes, **{name: getattr(saved, name) for name in same}}
    return {name: value for name, value in values.items() if value}


def read_given(question: Any, space: Space) -> tuple[Plan | None, list[str]]:
    """The plan that a question names, with what flags say of its formats and recompute, and notes."""
    text = written(question.plan)
    if not text.strip():
        return None, []
    if question.rank != "time":
        raise InputError(f"--rank {question.rank} orders plans, and --plan gives one; leave out either.")
    plan, named, notes = parse_plan(text), given_settings(text), list[str]()
    asked = {"dtype": (question.dtype,)} if question.dtype else {}
    if question.remat.strip():
        asked["remat"] = tuple(read_field("remat", one) for one in question.remat.split(","))
    for name, values in asked.items():
        own = getattr(plan, name)
        if own in values or (name not in named and len(values) > 1):
            continue
        if name in named and not (is_plan_path(text) and len(values) == 1):
            raise InputError(
                f"The plan {shorten(text)} has {name}={own}, and --{name} is {','.join(values)}; leave out either."
            )
        if name in named:
            notes.append(f"The plan file says {own} for --{name}; {values[0]} is taken.")
        plan = replace(plan, **{name: values[0]})
    _check_fixed(plan, named, space, text, question)
    return plan, notes


def _check_fixed(plan: Plan, named: frozenset[str], space: Space, text: str, question: Any) -> None:
    """Settings that `--fix` pins and the plan has otherwise."""
    if not question.fix.strip():
        return
    words = {one: (getattr(space.words, one),) for one in given_settings(question.fix) if one not in CHOICES}
    pinned = {one: getattr(space, one) for one in given_settings(question.fix) if one in CHOICES}
    for name, values in {**words, **{one: (value,) for one, value in space.fixed.items()}, **pinned}.items():
        if name in named and getattr(plan, name) not in values:
            said = "|".join(map(str, values))
            raise InputError(
                f"The plan {shorten(text)} has {name}={getattr(plan, name)}, and --fix says {name}={said}; leave "
                "out either."
            )
