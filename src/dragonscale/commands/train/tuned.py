"""What a question says of fine-tuning: its method, its optimizer by the name people use, and its usual step."""

from dataclasses import replace
from typing import Any

from dragonscale.commands.given import comma_list, target_of
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, nearest, unknown
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer
from dragonscale.physics.units import parse_length
from dragonscale.training.plan.plan import OPTIMIZERS, read_field
from dragonscale.training.plan.tuning import (
    DEFAULT_RANK,
    Tuning,
    lacking,
    meant_optimizer,
    optimizer_named,
    read_tuning,
    with_attention,
)

TUNED_STEP = {"batch": "16seq", "seq": "2048"}
"""The step of fine-tuning where nobody says one."""
USUAL_SEQUENCE = 8192
"""Tokens of a sequence in pretraining where nobody says: Llama 3 is pretrained so before its context is extended
(arXiv 2407.21783, section 3.4.1); models made for fewer tokens take theirs."""
CHIP_TOKENS = 2**16
"""Tokens of a chip and step that a slice of few chips gets, so that reducing gradients does not rule the step."""
USUAL_BATCH = 2**22
"""Tokens of a step in pretraining where nobody says: the 4M of Llama 2 (arXiv 2307.09288) and of Llama 3's start."""
LARGE_BATCH = 2**24
"""Tokens of a step on the largest slices: the 16M that Llama 3 405B ends with (arXiv 2407.21783, section 3.4.1)."""


def usual_step(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question with a usual batch and sequence where it has none, and notes on what was taken."""
    notes: list[str] = []
    if not question.method.strip() and (question.lora_rank is not None or question.lora_targets.strip()):
        question = replace(question, method="lora")
        notes.append("--method lora taken: a rank and targets are of adapters.")
    # only what nobody said; a batch or sequence that was typed stays
    missing = [name for name in TUNED_STEP if not written(getattr(question, name)).strip()]
    if not missing or not (written(question.model) and written(question.on)):
        return question, notes
    if question.method.strip():
        sequences = int(TUNED_STEP["batch"].removesuffix("seq"))
        # every chip gets a sequence
        usual = TUNED_STEP | {"batch": f"{max(sequences, most_chips(question.on) or 0)}seq"}
        why = "as fine-tuning often has"
    else:
        usual = _pretraining_step(question)
        why = "as pretraining often has"
        if "batch" in missing:
            why += f": {_batch_rule(question)}"
    flags_added = {name: usual[name] for name in missing}
    flags = " and ".join(f"--{name} {value}" for name, value in flags_added.items())
    return replace(question, **flags_added), [*notes, f"{flags} taken, {why}."]


def _pretraining_step(question: TrainQuestion) -> dict[str, str]:
    """The batch and sequence of pretraining a model on the chips of a question."""
    sequence = USUAL_SEQUENCE
    if question.seq.strip():
        sequence, _ = parse_length(question.seq, "--seq")
    else:
        model = load_model(with_assumed(question.model, question.assume, question.family))
        sequence = min(sequence, model.context or sequence)
    chips = most_chips(question.on)
    sequences = max(usual_batch(chips) // sequence, 1)
    if chips and chips < sequences:
        sequences -= sequences % chips  # every chip gets as many
    return {"batch": f"{sequences}seq", "seq": str(sequence)}


def usual_batch(chips: int | None) -> int:
    """Tokens of a step of pretraining on so many chips; None where it is not known how many.

    >>> [usual_batch(chips) // 2**10 for chips in (8, 64, 512, 2048, None)]
    [512, 4096, 4096, 16384, 4096]
    """
    if chips is None:
        return USUAL_BATCH
    # a sequence for each chip of a large slice, so that none waits
    return max(min(CHIP_TOKENS * chips, USUAL_BATCH), min(USUAL_SEQUENCE * chips, LARGE_BATCH))


def _batch_rule(question: TrainQuestion) -> str:
    chips = most_chips(question.on)
    if chips is None or CHIP_TOKENS * chips >= USUAL_BATCH:
        return "4Mi tokens a step, up to 16Mi beyond 512 chips"
    return f"64Ki tokens a chip, up to 4Mi a step ({usual_batch(chips):,} here)"


def most_chips(on: Any) -> int | None:
    """The chips of the largest slice that --on names; None where it names a chip alone, or any."""
    things = comma_list(on) if isinstance(on, str) else on
    if not isinstance(things, list | tuple):
        things = [things]
    counts: list[int] = []
    for thing in things:
        try:
            slice_ = target_of(thing)[1]
        except InputError:  # refused where it is read
            return None
        if slice_ is None:
            return None
        counts.append(slice_.chips)
    return max(counts, default=None)


def with_loss(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question whose loss and format of weights are said by flags of their own, as its method says them."""
    notes: list[str] = []
    loss, method = question.loss.strip().lower(), question.method.strip().lower()
    if loss in ("", "sft"):
        question = replace(question, loss="")
    elif method in ("", "full", "lora", "qlora"):
        changes: dict[str, Any] = {"loss": "", "method": loss}
        if method in ("lora", "qlora"):
            changes["lora_rank"] = question.lora_rank or DEFAULT_RANK
        if method == "qlora" and not question.frozen.strip():
            changes["frozen"] = "nf4"
        question = replace(question, **changes)
        notes.append(f"--loss {loss} is --method {loss}" + (" with adapters." if method in ("lora", "qlora") else "."))
    elif loss != method:
        raise InputError(f"--loss is {question.loss} and --method {question.method}; give one of them.")
    if question.rank.strip().isdigit():  # `--rank` orders plans, and people write the rank of adapters so too
        question = replace(question, rank="time", lora_rank=int(question.rank))
    adapters = question.lora_rank is not None or method in ("lora", "qlora")
    if question.dtype.strip().lower() in ("fp32", "float32") and adapters:
        question = replace(question, dtype="tf32", frozen=question.frozen or "fp32")
        notes.append(
            "--dtype fp32: weights and activations are in fp32, matmuls are timed at the rate of TF32 "
            "(torch.backends.cuda.matmul.allow_tf32), without which they are slower."
        )
    return question, notes


def asked_tuning(question: TrainQuestion, model: Transformer) -> tuple[Tuning, str]:
    """What is trained, checked, and a note on targets of adapters that the model lacks."""
    if question.lora_rank is not None and question.lora_rank < 1:
        raise InputError(f"--lora-rank is {question.lora_rank}; the rank of adapters is at least 1, such as 16.")
    tuning = read_tuning(
        model,
        question.method,
        question.lora_rank or 0,
        targets=question.lora_targets,
        frozen=question.frozen,
        teacher=written(question.teacher),
    )
    tuning = with_attention(tuning, question.attention)
    absent = lacking(model, question.lora_targets.strip().lower())
    if not absent:
        return tuning, ""
    return tuning, f"{model.name} has no {', '.join(absent)}, and the other targets get adapters."


def read_optimizer(text: str) -> str:
    """An optimizer of a plan, as people call it."""
    name = optimizer_named(text)
    if name not in OPTIMIZERS:
        raise unknown("optimizer", text, OPTIMIZERS, close=nearest(name, OPTIMIZERS) or meant_optimizer(name))
    return read_field("optimizer", name)
