"""Pictures of the chapter on fine-tuning: what each way holds."""

from collections.abc import Callable

import dragonscale as ds
from dragonscale.blocks.charts import Bar, Chart, bars

WAYS = {
    "full: 16 bytes a parameter": "full",
    "LoRA: bf16 weights, adapters": "LoRA",
    "QLoRA: 4-bit weights, adapters": "QLoRA",
}
MODELS = ("llama3-8b", "llama3-70b")


def _held() -> Chart:
    drawn = []
    for model in MODELS:
        found = ds.estimate(model, lora_rank=16)
        drawn += [Bar(f"{model}, {way}", found[name]) for name, way in WAYS.items()]
    return bars(drawn, "What fine-tuning holds", "rank 16 beside every matmul; activations left out", "bytes")


PICTURES: dict[str, Callable[[], Chart]] = {"finetuning-held": _held}
