"""The largest models that a slice fine-tunes: as `dscale train MODEL --on … --method …` answers, whose search is asked
with its usual step and nothing beside it."""

import shlex
from collections.abc import Sequence

import msgspec

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.train_question import read_question
from dragonscale.errors import Infeasible, InputError
from dragonscale.physics.hardware import Slice
from dragonscale.training.advice.inverse import least_chips
from dragonscale.training.search.search import search

# Each way of fine-tuning as people write it, the one that needs least memory first.
METHODS = {"qlora": "QLoRA", "lora": "LoRA", "full": "all weights"}
# Chips up to which the search is short: a server.
MAX_CHIPS = 8


class TunedRow(msgspec.Struct):
    """The largest model that one way of fine-tuning takes."""

    method: str
    model: str
    sequence: int
    command: str


def largest_tuned(on: str, slice_: Slice, names: Sequence[str]) -> list[TunedRow]:
    """The largest of some models, which come in the order of their size, by each way of fine-tuning that fits any."""
    rows: list[TunedRow] = []
    if slice_.chips > MAX_CHIPS:
        return rows
    for method in METHODS:
        row = next(filter(None, (_tuned(on, name, method) for name in names)), None)
        if row is not None:
            rows.append(row)
    return rows


def _tuned(on: str, name: str, method: str) -> TunedRow | None:
    """A model by one way of fine-tuning; None where it does not fit, or no software does it there."""
    try:
        request = read_question(TrainQuestion(name, on, method=method))
        job = request.job.on_slice()
        if job.stack.name == "generic":  # no trainer for this chip is modelled, so none is promised
            return None
        if least_chips(job, job.slice.chip, None, None) > job.slice.chips:
            return None
        if not search(job, request.job.space).best:
            return None
    except (InputError, Infeasible):
        return None
    command = f"dscale train {shlex.quote(name)} --on {shlex.quote(on)} --method {method}"
    return TunedRow(method, name, job.sequence, command)


def tuned_text(rows: Sequence[TunedRow]) -> str:
    """What a slice fine-tunes, in a sentence.

    >>> tuned_text([TunedRow("qlora", "qwen3-14b", 2048, "")])
    'Fine-tunes at 2,048 tokens (dscale train): QLoRA up to qwen3-14b.'
    """
    if not rows:
        return ""
    parts = [f"{METHODS[row.method]} up to {row.model}" for row in rows]
    return f"Fine-tunes at {rows[0].sequence:,} tokens (dscale train): {', '.join(parts)}."
