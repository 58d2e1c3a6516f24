"""What `dscale estimate` was asked, read at the edge."""

from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.commands.given import read_part, read_tokens, target_of
from dragonscale.commands.questions.flag import check_limits, written
from dragonscale.commands.questions.operations import EstimateQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Chip, Slice, dtype_bytes
from dragonscale.physics.hardware.prices import priced_targets
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.engine.checkpoint import stored_in

CONTEXT, PROMPT = 8192, 2048
MFU = "write the part of the peak that is reached, such as 40% or 0.4"


@dataclass(frozen=True)
class EstimateAsked:
    """The flags understood. `model` is None where only its parameters are known, `chip` where none
    was named, `piece` where a chip was named alone. A question about a run leaves out serving, one
    about serving leaves out the run; one about neither gets both."""

    question: EstimateQuestion
    name: str
    model: Transformer | None
    total: float
    active: float
    chip: Chip | None
    piece: Slice | None
    tokens: float
    seq: int
    mfu: float
    batch: int
    context: int
    prompt: int
    training: bool
    serving: bool
    notes: list[str] = field(default_factory=list)

    @property
    def sparse(self) -> bool:
        """Whether it is an MoE, of whose experts a token uses some."""
        if self.model is None:
            return self.active != self.total
        return any("x" in section.dims and "e" in section.dims for section in self.model.program().sections)


def read_question(question: EstimateQuestion) -> EstimateAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    size = _sizes(question)
    model = size.model
    notes: list[str] = []
    chip, slice_ = _place(question, notes)
    seq = _length(question.seq, "--seq", CONTEXT, notes)
    context = _length(question.context, "--context", CONTEXT, notes)
    prompt = _length(question.prompt, "--prompt", PROMPT, notes)
    # without another format the weights are as the checkpoint stores them
    stored = "bf16"
    if model is not None:
        stored = stored_in(model)
    question = replace(question, weights=question.weights or stored)
    for dtype in (question.dtype, question.weights, question.kv_dtype):
        dtype_bytes(dtype)
    batch = 1
    if question.batch.strip():
        batch = parse_count(question.batch, "--batch")
    if batch < 1:
        raise InputError(f"--batch is {shorten(question.batch)}; at least one sequence is decoded.")
    _check_rank(question, model)
    # what is given says what the question is about
    run, decode = bool(question.tokens.strip()), any((question.batch, question.context, question.prompt))
    if not model:
        notes += ["Without an architecture there is no attention term, KV cache or activation."]
    return EstimateAsked(
        question,
        size.name,
        model,
        size.total,
        size.active,
        chip,
        slice_,
        read_tokens(question.tokens.strip() or "chinchilla", size.total),
        seq,
        read_part(question.mfu, "--mfu", MFU, 1e-9, 1.0),
        batch,
        context,
        prompt,
        training=run or not decode,
        serving=decode or not run,
        notes=notes,
    )


@dataclass(frozen=True)
class _ModelSize:
    """The model if one was named, its name, its parameters and those that a token uses."""

    model: Transformer | None
    name: str
    total: float
    active: float


def _sizes(question: EstimateQuestion) -> _ModelSize:
    """How large the model is, by its name or by --params."""
    # exactly one of the two
    if bool(written(question.model)) == bool(question.params.strip()):
        if question.params.strip():
            what = "both a model and --params"
        else:
            what = "neither a model nor --params"
        raise InputError(f"The estimate has {what}; write `dscale estimate llama3-70b`, or --params 70e9.")
    if not question.params.strip():
        if question.active.strip():
            raise InputError("--active goes with --params; a model says itself what a token uses.")
        model = load_model(question.model)
        counts = count_parameters(model)
        return _ModelSize(model, model.name, counts.total, counts.active)
    total = parse(question.params, "count", "--params")
    if question.active.strip():
        # a dense model uses all parameters for a token
        active = parse(question.active, "count", "--active")
    else:
        active = total
    if not 1 <= active <= total:
        parameters = question.active or question.params
        raise InputError(
            f"{shorten(parameters)} parameters are used of {total:g}; at least one is, and no more than all."
        )
    return _ModelSize(None, "a model", total, active)


def _place(question: EstimateQuestion, notes: list[str]) -> tuple[Chip | None, Slice | None]:
    on: Any = question.on
    if not written(on).strip():
        if question.price.strip():
            raise InputError("--price needs --on: a chip, such as h100, or a slice of them.")
        return None, None
    if isinstance(on, str) and slice_note(on):
        notes += [slice_note(on)]
    (priced,), strange = priced_targets(question.price, [target_of(on)])
    notes += strange
    return priced


def _length(text: str, what: str, usual: int, notes: list[str]) -> int:
    if not text.strip():
        return usual
    length, note = parse_length(text, what)
    if note:
        notes += [note]
    return length


def _check_rank(question: EstimateQuestion, model: Transformer | None) -> None:
    check_limits(question)
    if model is None and question.lora_rank is not None:
        raise InputError("--lora-rank counts adapters from a model's matmuls; name a model instead of --params.")
