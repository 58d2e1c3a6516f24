"""What a question says of fine-tuning: its method, its optimizer by the name people use, and its usual step."""

from dataclasses import replace
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, nearest, unknown
from dragonscale.models.transformer import Transformer
from dragonscale.training.plan.plan import OPTIMIZERS, read_field
from dragonscale.training.plan.tuning import Tuning, lacking, meant_optimizer, optimizer_named, read_tuning

TUNED_STEP = {"batch": "16seq", "seq": "2048"}
"""The step of fine-tuning where nobody says one."""


def usual_step(question: Any) -> tuple[Any, list[str]]:
    """A question that names a method with a usual batch and sequence where it has none."""
    notes: list[str] = []
    if not question.method.strip() and (question.lora_rank is not None or question.lora_targets.strip()):
        question, notes = replace(question, method="lora"), ["--method lora taken: a rank and targets are of adapters."]
    words = {name: word for name, word in TUNED_STEP.items() if not written(getattr(question, name)).strip()}
    if not question.method.strip() or not words:
        return question, notes
    said = " and ".join(f"--{name} {word}" for name, word in words.items())
    return replace(question, **words), [*notes, f"{said} taken, as fine-tuning often has."]


def asked_tuning(question: TrainQuestion, model: Transformer) -> tuple[Tuning, str]:
    """What is trained, checked, and a note on targets that the model lacks."""
    if question.lora_rank is not None and question.lora_rank < 1:
        raise InputError(f"--lora-rank is {question.lora_rank}; the rank of adapters is at least 1, such as 16.")
    words = question.method, question.lora_rank or 0, question.lora_targets, question.frozen, written(question.teacher)
    tuning, absent = read_tuning(model, *words), lacking(model, question.lora_targets.strip().lower())
    return tuning, f"{model.name} has no {', '.join(absent)}, and the other targets get adapters." if absent else ""


def read_optimizer(text: str) -> str:
    """An optimizer of a plan, as people call it."""
    name = optimizer_named(text)
    if name not in OPTIMIZERS:
        raise unknown("optimizer", text, OPTIMIZERS, close=nearest(name, OPTIMIZERS) or meant_optimizer(name))
    return read_field("optimizer", name)
