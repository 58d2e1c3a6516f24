"""What a question says of fine-tuning: its method, its optimizer by the name people use, and its usual step."""

from dataclasses import replace

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, nearest, unknown
from dragonscale.models.transformer import Transformer
from dragonscale.training.plan.plan import OPTIMIZERS, read_field
from dragonscale.training.plan.tuning import Tuning, lacking, meant_optimizer, optimizer_named, read_tuning

TUNED_STEP = {"batch": "16seq", "seq": "2048"}
"""The step of fine-tuning where nobody says one."""


def usual_step(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question that names a method with a usual batch and sequence where it has none, and notes on what was taken."""
    notes: list[str] = []
    if not question.method.strip() and (question.lora_rank is not None or question.lora_targets.strip()):
        question = replace(question, method="lora")
        notes.append("--method lora taken: a rank and targets are of adapters.")
    # only what nobody said; a batch or sequence that was typed stays
    missing = {name: usual for name, usual in TUNED_STEP.items() if not written(getattr(question, name)).strip()}
    if not question.method.strip() or not missing:
        return question, notes
    flags = " and ".join(f"--{name} {usual}" for name, usual in missing.items())
    return replace(question, **missing), [*notes, f"{flags} taken, as fine-tuning often has."]


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
