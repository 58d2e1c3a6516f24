"""What a plan says beside the flags: `--plan` with a file that fills in what the flags leave out, and a plan that flags
and `--fix` must not contradict.

`dscale train --plan plan.toml` needs nothing else: the file names the model, the slice, the batch and the sequence. A
flag beside it wins, and a note tells where it differs. A plan that is written out on the same command line as a flag
that contradicts it is refused.
"""

from dataclasses import replace
from typing import Any

from dragonscale.commands.foreign import as_training, foreign_plan, told
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.lengths import with_lengths
from dragonscale.commands.train.tuned import read_optimizer, usual_step, with_loss
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.training.plan.plan import Plan, read_field
from dragonscale.training.plan.plan_file import (
    TrainingFile,
    given_settings,
    is_plan_path,
    load_training_file,
    parse_plan,
)
from dragonscale.training.plan.tuning import FIELDS
from dragonscale.training.search.space import CHOICES, Space

_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "stack": ("auto", ""),
    "skew": (1.0,),
    "capacity": (0.0,),
    "lora_rank": (None,),
}
"""What a flag holds where nobody gave it; all others are empty then."""
_NEEDED = {
    "model": "a model, such as llama3-8b",
    "on": "--on, the slice to run on, such as h100:64 (--on any looks for the cheapest)",
}


def filled(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question with what its flags leave open as its plan file or dataset has it, and notes on what they change."""
    notes: list[str] = []
    saved = None
    # a Megatron command, a torchtitan or MaxText config: read as a plan of ours first
    foreign = foreign_plan(question.plan, question.model, question.on)
    if foreign is not None:
        notes += told(foreign)
        question, saved = as_training(question, foreign)
    elif is_plan_path(written(question.plan)):
        saved = load_training_file(written(question.plan))
    if saved is not None:
        question, overruled = _with_file(question, saved)
        notes += overruled
    # the lengths of a dataset say --documents, --seq and --tokens where these are not given
    question, packing_notes = with_lengths(question)
    if question.largest == "batch" and not written(question.batch):
        question = replace(question, batch="1seq")  # the search for the largest begins there
    question, loss_notes = with_loss(question)
    question, tuning_notes = usual_step(question)
    tuning_notes = [*loss_notes, *tuning_notes]
    notes += [*packing_notes, *tuning_notes]
    missing = [description for flag, description in _NEEDED.items() if not written(getattr(question, flag))]
    if missing:
        raise InputError(f"Give {', and '.join(missing)}; or a --plan file that has what is missing.")
    return question, notes


def _with_file(question: TrainQuestion, saved: TrainingFile) -> tuple[TrainQuestion, list[str]]:
    """A question with what a plan file has for flags that were not given, and a note on each flag that overrules it."""
    on = written(question.on)
    if saved.slice and is_chip(on) and parse_slice(saved.slice).chip.name == load_chip(on).name:
        question = replace(question, on=saved.slice)  # --on names the file's own chip without a number
    notes: list[str] = []
    from_file: dict[str, Any] = {}
    for name, value in said_by(saved).items():
        flag_value = getattr(question, name)
        if flag_value in _DEFAULTS.get(name, ("",)):
            from_file[name] = value
        # prices and run lengths are expected to differ from those of a saved plan
        elif name not in ("tokens", "price") and written(flag_value) != str(value):
            flag = "the model" if name == "model" else f"--{name}"
            notes.append(f"The plan file says {value} for {flag}; {written(flag_value)} is taken.")
    return replace(question, **from_file), notes


def said_by(saved: TrainingFile) -> dict[str, Any]:
    """What a plan file says, by the names of flags."""
    values: dict[str, Any] = {
        "model": saved.model,
        "on": saved.slice,
        "batch": saved.batch and f"{saved.batch}seq",
        "seq": saved.seq and str(saved.seq),
    }
    for name in ("tokens", "price", "stack", "numerics", "documents", "skew", "capacity", *FIELDS):
        values[name] = getattr(saved, name)
    return {name: value for name, value in values.items() if value}


def read_given(question: TrainQuestion, space: Space) -> tuple[Plan | None, list[str]]:
    """The plan that `--plan` gives, with what flags say of its formats and recompute, and notes on what they change."""
    text = written(question.plan)
    if not text.strip():
        return None, []
    if question.rank != "time":
        raise InputError(f"--rank {question.rank} orders plans, and --plan gives one; leave out either.")
    plan = parse_plan(text)
    in_plan = given_settings(text)
    notes: list[str] = []
    for name, values in _settings_of_flags(question).items():
        of_plan = getattr(plan, name)
        # several values, such as --remat none,block, leave a setting that the plan does not name to it
        if of_plan in values or (name not in in_plan and len(values) > 1):
            continue
        # text and flags of one command line contradict each other; a file is only overruled
        if name in in_plan and not (is_plan_path(text) and len(values) == 1):
            raise InputError(
                f"The plan {shorten(text)} has {name}={of_plan}, and --{name} is {','.join(values)}; leave out either."
            )
        if name in in_plan:
            notes.append(f"The plan file says {of_plan} for --{name}; {next(iter(values))} is taken.")
        plan = replace(plan, **{name: next(iter(values))})
    _check_fixed(plan, in_plan, space, question)
    return plan, notes


def _settings_of_flags(question: TrainQuestion) -> dict[str, tuple[str, ...]]:
    """What `--dtype`, `--optimizer` and `--remat` allow of the settings of a plan."""
    allowed: dict[str, tuple[str, ...]] = {}
    if question.dtype:
        allowed["dtype"] = (question.dtype,)
    if question.optimizer:
        allowed["optimizer"] = (read_optimizer(question.optimizer),)
    if question.remat.strip():
        allowed["remat"] = tuple(read_field("remat", policy) for policy in question.remat.split(","))
    return allowed


def _check_fixed(plan: Plan, in_plan: frozenset[str], space: Space, question: TrainQuestion) -> None:
    """Refuse a plan with a setting that `--fix` pins to another value."""
    if not question.fix.strip():
        return
    # the values that --fix allows for each setting that it names
    pinned: dict[str, tuple[Any, ...]] = {name: (value,) for name, value in space.fixed.items()}
    for name in given_settings(question.fix):
        if name in CHOICES:
            pinned[name] = getattr(space, name)
        elif name not in pinned:
            pinned[name] = (getattr(space.words, name),)
    for name, values in pinned.items():
        if name in in_plan and getattr(plan, name) not in values:
            allowed = "|".join(map(str, values))
            raise InputError(
                f"The plan {shorten(written(question.plan))} has {name}={getattr(plan, name)}, and --fix says "
                f"{name}={allowed}; leave out either."
            )
