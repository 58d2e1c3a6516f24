"""Pictures of the chapter on training LLaMA-3 70B: the step on a v5p slice, its memory, and how it scales."""

from collections.abc import Callable
from functools import cache
from typing import Any

from dragonscale.blocks.charts import Bar, Chart, bars
from dragonscale.course.closed_forms.rules_of_thumb import state_bytes
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.activations import activation_bytes
from dragonscale.models.flops import Workload
from dragonscale.models.transformer import count_parameters

MODEL, SLICE, BATCH, SEQUENCE = "llama3-70b", "v5p:16x16x32", "4Mi", "4096"


@cache
def _answer() -> Any:
    from dragonscale.commands.train.ask_train import TrainQuestion, ask

    return ask(TrainQuestion(MODEL, SLICE, BATCH, SEQUENCE), Listener())


def _train(kind: str) -> Chart:
    return _answer().plot(kind)


def _held() -> Chart:
    """What all chips together must hold for one batch, by recompute policy."""
    model = load_model(MODEL)
    tokens = 2**22
    blocks = [section for section in model.program().sections if section.name == "block"]
    rows = [Bar("weights and Adam's moments", float(state_bytes(count_parameters(model).total)), "weights")]
    names = {
        "activations, no recompute": "none",
        "activations, matmuls kept": "matmuls",
        "activations, only inputs of blocks": "block",
    }
    for name, policy in names.items():
        kept = activation_bytes(blocks, Workload(1, tokens, tokens), policy)
        rows.append(Bar(name, float(sum(kept.values())), "activations"))
    return bars(
        rows, "LLaMA-3 70B: what a batch of 4Mi tokens must hold", "all chips together, bf16 activations", "bytes"
    )


PICTURES: dict[str, Callable[[], Chart]] = {
    "llama3-training-held": _held,
    "llama3-training-time": lambda: _train("time"),
    "llama3-training-mesh": lambda: _train("mesh"),
    "llama3-training-scaling": lambda: _train("scaling"),
}
