"""What `dscale train` was asked, read at the edge, and what a plan file says under its flags.

`dscale train --plan plan.toml` needs nothing else: the file names the model, the slice, the batch and
the sequence. A flag beside it wins, and where it says something else, that is noted. A plan that is
written out and a flag that contradicts it are both of one command line: that is refused.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.commands.asked_chips import asked_chips, asked_targets
from dragonscale.commands.foreign import as_training, foreign_plan, told
from dragonscale.commands.given import read_part, read_tokens
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.lengths import with_lengths
from dragonscale.commands.train.run_conditions import read_conditions
from dragonscale.commands.train.tuned import asked_tuning, read_optimizer, usual_step
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer, count_parameters, unseen_parameters
from dragonscale.physics.hardware import Chip, Slice, dtype_bytes, load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.training.advice.budget import batch_warning
from dragonscale.training.cost.evaluation import Job, make_job, nearest_jobs, unusual_jobs, usual_jobs, with_numerics
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.builds import ON_LIBRARY, meant, trainer_of, unbuilt
from dragonscale.training.plan.expert_load import dropped_share
from dragonscale.training.plan.plan import Plan, read_field
from dragonscale.training.plan.plan_file import (
    TrainingFile,
    given_settings,
    is_plan_path,
    load_training_file,
    parse_plan,
)
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.plan.stack import NUMERICS, change, load_stack, numerics_for, spelt_stack
from dragonscale.training.plan.tuning import FIELDS, Tuning
from dragonscale.training.search.allowed_space import offered
from dragonscale.training.search.space import CHOICES, Space, parse_space

_UNSAID: dict[str, tuple[Any, ...]] = {"stack": ("auto", ""), "skew": (1.0,), "capacity": (0.0,), "lora_rank": (None,)}
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
    question, packed = with_lengths(question)
    question, usual = usual_step(question)
    notes += [*packed, *usual]
    if question.largest == "batch" and not written(question.batch):
        question = replace(question, batch="1seq")  # the search begins there
    if missing := [what for name, what in _ASK.items() if not written(getattr(question, name))]:
        raise InputError(f"Give {', and '.join(missing)}; or a --plan file that has what is missing.")
    return question, notes


def _with_count(question: Any, saved: TrainingFile) -> Any:
    """The question with the file's own slice where `--on` is only its chip."""
    on = written(question.on)
    if not saved.slice or not is_chip(on) or parse_slice(saved.slice).chip.name != load_chip(on).name:
        return question
    return replace(question, on=saved.slice)


def said_by(saved: TrainingFile) -> dict[str, Any]:
    """What a file says, by the names of flags."""
    same = ("tokens", "price", "stack", "numerics", "documents", "skew", "capacity", *FIELDS)
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
    words = {"dtype": question.dtype, "optimizer": question.optimizer and read_optimizer(question.optimizer)}
    asked: dict[str, tuple[Any, ...]] = {name: (word,) for name, word in words.items() if word}
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
        value = next(iter(values))
        if name in named:
            notes.append(f"The plan file says {own} for --{name}; {value} is taken.")
        plan = replace(plan, **{name: value})
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


MOST_PLANS = 1000
RANKS = ("time", "cost")
LARGEST = ("batch", "model")
SLACKS = "write how much slower than the fastest a simpler plan may be, from 0 to 50%, such as 1%"
FREE = "write the part of memory that a recommended plan leaves free, from 0 to 50%, such as 8%"


@dataclass(frozen=True)
class TrainAsked:
    """The flags understood. `piece` is None where the question is which slice to take; `targets` are all chips and
    slices that were named, with their names as they were written."""

    question: TrainQuestion
    model: Transformer
    chip: Chip | None
    piece: Slice | None
    sequences: int
    sequence: int
    tokens: float | None
    plan: Plan | None
    space: Space
    deadline: float | None
    notes: list[str] = field(default_factory=list)
    documents: int | None = None
    targets: dict[str, tuple[Chip, Slice | None]] = field(default_factory=dict)
    everywhere: bool = False
    slack: float = SLACK
    taken: str = ""
    """The stack of the answer, of those that `auto` weighs."""
    headroom: float | None = None
    tuning: Tuning = Tuning()

    def job(self, piece: Slice | None = None) -> Job:
        where = piece or self.piece
        assert where is not None
        asked = self.question
        job = make_job(self.model, where, self.sequences, self.sequence, asked.stack, self.tuning)
        job = with_numerics(job, numerics_for(asked.numerics, (self.plan or offered(job, self.space).words).dtype))
        known = (*usual_jobs(job), *unusual_jobs(job), *nearest_jobs(job))
        job = next((one for one in known if one.stack.name == self.taken), job)
        room = {"capacity": asked.capacity} if asked.capacity else {}
        stack = change(job.stack, "experts", skew=job.stack.experts.skew * asked.skew, **room)
        words = {"documents": self.documents, "headroom": self.headroom, "run": read_conditions(asked)}
        return replace(job, stack=stack, **words)


def read_question(question: TrainQuestion) -> TrainAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    question, told = filled(question)
    named = with_assumed(question.model, question.assume, question.family)
    check_effect(question.set, "training")
    on, stack = asked_chips(question.on, question.set, question.profile), spelt_stack(question.stack)
    model = load_model(named)
    stack, trainer = _stack_meant(stack, model)
    question = replace(question, stack=stack, model=named, on=on, set="", profile="")
    where = asked_targets(question.on, question)
    chip, piece = where.targets[0] if len(where.targets) == 1 and not where.everywhere else (None, None)
    sequence, length = parse_length(question.seq, "--seq")
    sequences, note = read_batch(question.batch, sequence)
    _check_words(question)
    space = _space(question)
    plan, changed = read_given(question, space)
    if plan is not None and piece is None:
        raise InputError(f"--plan needs a slice to run on; --on is {shorten(question.on)}, write e.g. h100:64.")
    _check_plan(question, plan)
    total = count_parameters(model).total
    tokens = read_tokens(question.tokens, total, "the number of tokens") if question.tokens.strip() else None
    tuning, absent = asked_tuning(question, model)
    tuned = question.method.strip()  # the critical batch is of models that start from nothing
    warning = batch_warning(total, tokens, sequences * sequence) if tokens is not None and not tuned else ""
    deadline, (packed, document) = _deadline(question, piece), _documents(question, sequence)
    read = *model.notes, *told, trainer, _unseen(model), *changed, length, note, document, *where.read
    read = *read, _beyond(model, sequence), warning, absent
    notes = [text for text in (*read, _dropping(question, model), *where.notes) if text]
    return TrainAsked(
        question,
        model,
        chip,
        piece,
        sequences,
        sequence,
        tokens,
        plan,
        space,
        deadline=deadline,
        notes=notes,
        documents=packed,
        targets=where.named,
        everywhere=where.everywhere,
        slack=read_part(question.slack, "--slack", SLACKS, 0.0, 0.5),
        headroom=read_part(question.headroom, "--headroom", FREE, 0.0, 0.5) if question.headroom.strip() else None,
        tuning=tuning,
    )


def _stack_meant(stack: str, model: Transformer) -> tuple[str, str]:
    """The stack that a name means for a model, and what to say of it: that a library was named, or a trainer that does
    not build the model."""
    if stack == AUTO:
        return stack, ""
    named = meant(stack, model)
    note = ""
    if named != stack:
        titles = " and ".join(str(trainer.title) for one in ON_LIBRARY if (trainer := trainer_of(one)))
        note = f"{stack} is the library of {titles}; read as --stack {named}. "
    if reason := unbuilt(named, model):
        note += f"{reason}; the plan is what it would run, and no export is written for it."
    return named, note.strip()


def _unseen(model: Transformer) -> str:
    """That what a model sees or hears with is not trained, with its parameters."""
    left_out = unseen_parameters(model)
    if not left_out:
        return ""
    parts = " and ".join(f"{count:,} parameters of {part}" for part, count in left_out.items())
    return f"The text model alone is trained: {parts} are left out, with the tokens that they would make."


def _check_plan(question: TrainQuestion, plan: Plan | None) -> None:
    """Flags that a plan leaves nothing to do for are refused, rather than ignored."""
    if plan is None:
        if question.alone:
            raise InputError("--alone judges a plan by itself; give the plan with --plan tp8,fsdp8.")
        if question.measured.strip():
            raise InputError(
                "--measured is the step of a run, and needs the plan that ran: give --plan tensor=8,fsdp=64 too."
            )
        return
    searching = ["--fix"] if question.alone and question.fix.strip() else []
    searching += ["--remat"] if question.alone and "," in question.remat else []  # one policy is the plan's own
    searching += [f"--largest {question.largest}"] if question.largest else []
    if searching:
        raise InputError(f"--plan is judged as it is, and {searching[0]} is for a search; leave one of them out.")


def _beyond(model: Transformer, sequence: int) -> str:
    """A word on sequences of more tokens than a model has positions for."""
    if not model.context or sequence <= model.context:
        return ""
    more = f"{model.name} was made for at most {model.context:,} tokens, and sequences have {sequence:,}"
    return f"{more}: its positions would have to be extended, which is taken for granted here."


def _documents(question: TrainQuestion, sequence: int) -> tuple[int | None, str]:
    """Tokens of the documents that sequences are packed with, and a note on their reading; longer ones are cut at a
    sequence's end."""
    if not question.documents.strip():
        return None, ""
    length, note = parse_length(question.documents, "--documents")
    if question.stack != AUTO and load_stack(question.stack).kernels.masked_square:
        own = f"the program of stack {question.stack} is not timed with masked documents yet"
        raise InputError(
            f"--documents is {shorten(question.documents)}, and {own}; leave it out or take another --stack."
        )
    return length if length < sequence else None, note


def _dropping(question: TrainQuestion, model: Transformer) -> str:
    """What an expert's capacity means for the tokens; both it and a skew need experts."""
    experts = any("e" in section.dims for section in model.program().sections)
    if question.skew != 1 and not experts:
        raise InputError(f"--skew is the load of the busiest expert, and {model.name} has no experts.")
    if not question.capacity:
        return ""
    if not experts:
        raise InputError(f"--capacity is the experts' capacity factor, and {model.name} has no experts.")
    lost = dropped_share(question.skew, question.capacity)
    return (
        f"With a capacity of {question.capacity:g} and the busiest expert at {question.skew:g} times the mean "
        f"about {lost:.1%} of "
        "the rows routed to experts are dropped (loads between the busiest and the idlest taken to fall as a power)."
    )


def read_batch(text: str, sequence: int) -> tuple[int, str]:
    """A batch in tokens (`4M`) or sequences (`512seq`) as sequences, and a note where the reading needs one.

    `4M` tokens are no whole number of sequences of 8192; where the binary reading (4Mi) is one, that is what is meant.
    """
    stripped, many = text.strip(), read_sequences(text)
    if many is not None:
        return many, ""
    tokens = _whole(parse_count(stripped, "the batch"), text)
    if tokens % sequence == 0:
        return tokens // sequence, ""
    if stripped[-1:] in "kKmMGbBtT":
        binary = parse_count(stripped[:-1] + stripped[-1].upper().replace("B", "G") + "i", "the batch")
        many, left = divmod(binary, sequence)
        if not left:
            said = f"A batch of {stripped} tokens is not a whole number of sequences of {sequence}"
            return many, f"{said}; taken as {stripped}i, {binary:,} tokens ({many} sequences)."
    if tokens < sequence:
        less = f"A batch of {shorten(text)} tokens is less than one sequence of {sequence:,}"
        raise InputError(f"{less}; write a number of sequences such as {min(tokens, 512)}seq.")
    many = round(tokens / sequence)
    said = f"A batch of {stripped} tokens is not a whole number of sequences of {sequence:,}"
    return many, f"{said}; rounded to {many:,} sequences, {many * sequence:,} tokens."


def read_sequences(text: str) -> int | None:
    """A batch that is written in sequences; None where it is not.

    >>> read_sequences("192seq"), read_sequences("4M")
    (192, None)
    """
    match = re.fullmatch(r"(.*?)\s*(?:sequences|sequence|seqs|seq)", text.strip())
    return _whole(parse_count(match[1], "the batch"), text) if match else None


def _whole(number: int, text: str) -> int:
    if not 1 <= number <= 10**12:
        raise InputError(f"The batch is {shorten(text)}; it has at least one token and at most 10^12.")
    return number


def _check_words(question: TrainQuestion) -> None:
    if question.stack != AUTO:
        load_stack(question.stack)
    if question.numerics and question.numerics not in NUMERICS:
        raise unknown("way to add gradients called", question.numerics, NUMERICS)
    if not 1 <= question.skew <= 1000:
        raise InputError(f"--skew is {question.skew}; it is the busiest expert's tokens over the mean, at least 1.")
    if question.capacity and not 0.1 <= question.capacity <= 1000:
        said = "it is the expert capacity factor, such as 1.25, or 0 for no limit"
        raise InputError(f"--capacity is {question.capacity}; {said}.")
    if question.dtype:
        dtype_bytes(question.dtype)
    if question.rank not in RANKS:
        raise unknown("ranking", question.rank, RANKS)
    if question.largest and question.largest not in LARGEST:
        raise unknown("question of the largest", question.largest, LARGEST)
    if not 1 <= question.top <= MOST_PLANS:
        raise InputError(f"--top is {question.top}; ask for 1 to {MOST_PLANS} plans.")


def _space(question: TrainQuestion) -> Space:
    space = parse_space(question.fix)
    words = {"dtype": question.dtype, "optimizer": question.optimizer and read_optimizer(question.optimizer)}
    for name, word in words.items():
        if word and name not in given_settings(question.fix):
            space = replace(space, words=replace(space.words, **{name: word}))
    space = replace(space, force=question.force)
    if question.remat.strip():
        policies = tuple(dict.fromkeys(read_field("remat", one) for one in question.remat.split(",")))
        space = replace(space, remat=policies)
    return space


def _deadline(question: TrainQuestion, piece: Slice | None) -> float | None:
    if not question.deadline.strip():
        return None
    if piece is not None:
        asks = f"--deadline asks how many chips are needed, and --on {written(question.on)} says how many there are"
        raise InputError(f"{asks}; write --on {piece.chip.name}.")
    seconds = parse(question.deadline, "s", "the deadline")
    if seconds <= 0:
        raise InputError(f"--deadline is {shorten(question.deadline)}; it is longer than nothing.")
    return seconds
