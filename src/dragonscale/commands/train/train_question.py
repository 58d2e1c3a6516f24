"""What `dscale train` was asked, read at the edge: flags become a `TrainingJob`, and what cannot be used is refused."""

import re
from dataclasses import dataclass, field, replace

from dragonscale.commands.asked_chips import AskedTargets, asked_chips, asked_targets
from dragonscale.commands.given import read_part, read_tokens
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.batch import read_batch
from dragonscale.commands.train.plan_flags import filled, read_given
from dragonscale.commands.train.run_conditions import read_conditions
from dragonscale.commands.train.tuned import asked_tuning, read_optimizer
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer, count_parameters, unseen_parameters
from dragonscale.physics.hardware import Slice, dtype_bytes
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.training.advice.budget import batch_warning
from dragonscale.training.advice.plan_advice import PlanAnswer
from dragonscale.training.advice.targets import Target
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.builds import ON_LIBRARY, meant, trainer_of, unbuilt
from dragonscale.training.plan.expert_load import dropped_share
from dragonscale.training.plan.plan import Plan, read_field
from dragonscale.training.plan.plan_file import given_settings
from dragonscale.training.plan.stack import NUMERICS, load_stack, spelt_stack
from dragonscale.training.search.space import Space, parse_space

MAX_PLANS = 1000
RANKS = ("time", "cost")
LARGEST = ("batch", "model")
SLACK_HINT = "write how much slower than the fastest a simpler plan may be, from 0 to 50%, such as 1%"
HEADROOM_HINT = "write the part of memory that a recommended plan leaves free, from 0 to 50%, such as 8%"


@dataclass(frozen=True)
class TrainRequest:
    """The flags understood: the job that they describe, and the flags themselves for what is to be shown of it."""

    question: TrainQuestion
    job: TrainingJob
    targets: dict[str, Target]
    """The chips and slices of `--on`, by their names as they were written."""
    everywhere: bool = False
    """Whether every chip of the catalogue was meant."""
    notes: list[str] = field(default_factory=list)
    """How flags were read, where that needs a sentence."""
    answered: PlanAnswer | None = None
    """Of an answer: its first plan as it was assessed, for the ledger, charts and files that are made of it."""


def read_question(question: TrainQuestion) -> TrainRequest:
    """A question with every flag checked; what cannot be used is refused in one sentence."""
    # the plan file first: it may say the model, the slice and the batch
    question, file_notes = filled(question)
    model_name = with_assumed(question.model, question.assume, question.family)
    check_effect(question.set, "training")
    on = asked_chips(question.on, question.set, question.profile)
    stack = spelt_stack(question.stack)
    model = load_model(model_name)
    stack, trainer_note = _stack_meant(stack, model)
    # changes and profiles are part of the chips' names from here on
    question = replace(question, stack=stack, model=model_name, on=on, set="", profile="")
    where = asked_targets(question.on, question)
    target = _only_slice(where)
    # a batch may be written in tokens, and needs the sequence to be read
    sequence, length_note = parse_length(question.seq, "--seq")
    sequences, batch_note = read_batch(question.batch, sequence)
    _check_values(question)
    # --fix belongs to the search, and a given plan must not contradict it
    space = _read_space(question)
    plan, plan_notes = read_given(question, space)
    if plan is not None and question.largest:
        space, plan = _space_of(plan, space), None
    if plan is not None and target is None:
        raise InputError(f"--plan needs a slice to run on; --on is {shorten(question.on)}, write e.g. h100:64.")
    _check_plan(question, plan)
    parameters = count_parameters(model).total
    tokens = None
    if question.tokens.strip():
        tokens = _read_run(question.tokens, parameters, sequences * sequence)
    tuning, targets_note = asked_tuning(question, model)
    # a batch beyond the critical one is a warning, never an error
    batch_size_note = ""
    if tokens is not None and not question.method.strip():  # the critical batch is of models that start from nothing
        batch_size_note = batch_warning(parameters, tokens, sequences * sequence)
    deadline = _read_deadline(question, target)
    documents, documents_note = _read_documents(question, sequence)
    notes = [*model.notes, *file_notes, trainer_note, _unseen_note(model), *plan_notes, length_note, batch_note]
    notes += [documents_note, *where.read, _context_note(model, sequence), batch_size_note, targets_note]
    notes += [_capacity_note(question, model), *where.notes]
    headroom = None
    if question.headroom.strip():
        headroom = read_part(question.headroom, "--headroom", HEADROOM_HINT, 0.0, 0.5)
    job = TrainingJob(
        model,
        target,
        sequences,
        sequence,
        tokens=tokens,
        documents=documents,
        tuning=tuning,
        plan=plan,
        space=space,
        targets=where.targets,
        stack=stack,
        numerics=question.numerics,
        skew=question.skew,
        capacity=question.capacity,
        conditions=read_conditions(question),
        slack=read_part(question.slack, "--slack", SLACK_HINT, 0.0, 0.5),
        headroom=headroom,
        deadline=deadline,
    )
    return TrainRequest(question, job, where.named, where.everywhere, list(filter(None, notes)))


def _read_run(text: str, parameters: float, step_tokens: int) -> float:
    """The tokens of a run, which may be written as its steps (`1000steps`)."""
    if steps := re.fullmatch(r"(.+?)\s*steps?", text.strip()):
        return float(parse_count(steps[1], "the number of steps")) * step_tokens
    return read_tokens(text, parameters, "the number of tokens")


def _only_slice(where: AskedTargets) -> Slice | None:
    """The slice that was named; None where there are several, or a chip alone."""
    if len(where.targets) != 1 or where.everywhere:
        return None
    return where.targets[0][1]


def _stack_meant(stack: str, model: Transformer) -> tuple[str, str]:
    """The stack that a name means for a model, and a note where a library was named, or a trainer that does not build
    the model."""
    if stack == AUTO:
        return stack, ""
    named = meant(stack, model)
    notes = []
    if named != stack:
        trainers = map(trainer_of, ON_LIBRARY)
        titles = " and ".join(str(trainer.title) for trainer in trainers if trainer)
        notes.append(f"{stack} is the library of {titles}; read as --stack {named}.")
    if reason := unbuilt(named, model):
        notes.append(f"{reason}; the plan is what it would run, and no export is written for it.")
    return named, " ".join(notes)


def _check_values(question: TrainQuestion) -> None:
    """Refuse names that are unknown and numbers out of range."""
    if question.stack != AUTO:
        load_stack(question.stack)
    if question.numerics and question.numerics not in NUMERICS:
        raise unknown("way to add gradients called", question.numerics, NUMERICS)
    if not 1 <= question.skew <= 1000:
        raise InputError(f"--skew is {question.skew}; it is the busiest expert's tokens over the mean, at least 1.")
    if question.capacity and not 0.1 <= question.capacity <= 1000:
        raise InputError(
            f"--capacity is {question.capacity}; it is the expert capacity factor, such as 1.25, or 0 for no limit."
        )
    if question.dtype:
        dtype_bytes(question.dtype)
    if question.rank not in RANKS:
        raise unknown("ranking", question.rank, RANKS)
    if question.largest and question.largest not in LARGEST:
        raise unknown("question of the largest", question.largest, LARGEST)
    if not 1 <= question.top <= MAX_PLANS:
        raise InputError(f"--top is {question.top}; ask for 1 to {MAX_PLANS} plans.")


def _read_space(question: TrainQuestion) -> Space:
    """The plans to search through: `--fix`, and what `--dtype`, `--optimizer` and `--remat` say where it does not."""
    space = parse_space(question.fix)
    # --fix is the more exact of two flags that name a setting
    in_fix = given_settings(question.fix)
    formats = {"dtype": question.dtype, "optimizer": question.optimizer and read_optimizer(question.optimizer)}
    for name, value in formats.items():
        if value and name not in in_fix:
            space = replace(space, words=replace(space.words, **{name: value}), named=space.named | {name})
    if question.remat.strip():
        policies = [read_field("remat", policy) for policy in question.remat.split(",")]
        space = replace(space, remat=tuple(dict.fromkeys(policies)))
    return replace(space, force=question.force)


def _space_of(plan: Plan, space: Space) -> Space:
    """The space of the plans that split a model as a given one does, on whatever number of data-parallel chips."""
    inner = {axis: getattr(plan, axis) for axis in ("pipe", "expert", "context", "tensor")}
    named = space.named | {"zero", "remat"}
    remat = space.remat if plan.remat == Plan().remat else (plan.remat,)
    return replace(space, zero=(plan.zero,), remat=remat, fixed=space.fixed | inner, words=plan, named=named)


def _check_plan(question: TrainQuestion, plan: Plan | None) -> None:
    """Refuse flags that need a plan where there is none, and flags of a search where one is given."""
    if plan is None:
        if question.alone:
            raise InputError("--alone judges a plan by itself; give the plan with --plan tp8,fsdp8.")
        if question.measured.strip():
            raise InputError(
                "--measured is the step of a run, and needs the plan that ran: give --plan tensor=8,fsdp=64 too."
            )
        return
    of_search = []
    if question.alone and question.fix.strip():
        of_search.append("--fix")
    if question.alone and "," in question.remat:  # a single policy is the plan's own
        of_search.append("--remat")
    if question.largest:
        of_search.append(f"--largest {question.largest}")
    if of_search:
        raise InputError(f"--plan is judged as it is, and {of_search[0]} is for a search; leave one of them out.")


def _read_deadline(question: TrainQuestion, target: Slice | None) -> float | None:
    """The deadline in seconds."""
    if not question.deadline.strip():
        return None
    if target is not None:
        raise InputError(
            f"--deadline asks how many chips are needed, and --on {written(question.on)} says how many there are; "
            f"write --on {target.chip.name}."
        )
    seconds = parse(question.deadline, "s", "the deadline")
    if seconds <= 0:
        raise InputError(f"--deadline is {shorten(question.deadline)}; it is longer than nothing.")
    return seconds


def _read_documents(question: TrainQuestion, sequence: int) -> tuple[int | None, str]:
    """Mean tokens of the documents that sequences are packed with, and a note on their reading; documents longer than a
    sequence are cut at its end, so each fills one."""
    if not question.documents.strip():
        return None, ""
    length, note = parse_length(question.documents, "--documents")
    if question.stack != AUTO and load_stack(question.stack).kernels.masked_square:
        raise InputError(
            f"--documents is {shorten(question.documents)}, and the program of stack {question.stack} is not timed "
            "with masked documents yet; leave it out or take another --stack."
        )
    return (length if length < sequence else None), note


def _unseen_note(model: Transformer) -> str:
    """A note that what a model sees or hears with is frozen, with its parameters."""
    left_out = unseen_parameters(model)
    if not left_out:
        return ""
    parts = " and ".join(f"{count:,} parameters of {part}" for part, count in left_out.items())
    return (
        f"The text model alone is trained: {parts} are frozen and counted as weights. Images are tokens of the "
        "sequence; the time of encoding them is left out."
    )


def _context_note(model: Transformer, sequence: int) -> str:
    """A note on sequences of more tokens than a model has positions for."""
    if not model.context or sequence <= model.context:
        return ""
    return (
        f"{model.name} was made for at most {model.context:,} tokens, and sequences have {sequence:,}: its positions "
        "would have to be extended, which is taken for granted here."
    )


def _capacity_note(question: TrainQuestion, model: Transformer) -> str:
    """A note on the tokens that an expert capacity drops; it and a skew are refused for a model without experts."""
    experts = any("e" in section.dims for section in model.program().sections)
    if question.skew != 1 and not experts:
        raise InputError(f"--skew is the load of the busiest expert, and {model.name} has no experts.")
    if not question.capacity:
        return ""
    if not experts:
        raise InputError(f"--capacity is the experts' capacity factor, and {model.name} has no experts.")
    dropped = dropped_share(question.skew, question.capacity)
    return (
        f"With a capacity of {question.capacity:g} and the busiest expert at {question.skew:g} times the mean about "
        f"{dropped:.1%} of the rows routed to experts are dropped (loads between the busiest and the idlest taken to "
        "fall as a power)."
    )
