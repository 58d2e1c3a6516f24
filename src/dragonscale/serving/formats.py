"""Which kernels a plan's formats mean: weights stored one way and matmuls computed another."""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.serving.plan import ServingPlan


@dataclass(frozen=True)
class Formats:
    """Dtypes of weights, matmuls and cache, of the attention where it differs, and of activations between chips."""

    weights: str = "bf16"
    compute: str = "bf16"
    kv: str = "bf16"
    attention: str = ""
    wire: str = "bf16"

    def __str__(self) -> str:
        return f"{self.weights}/{self.compute}, cache {self.kv}"


WIDE_PARTS = ("head", "embed", "router", "indexer", "norm", "hyper", "layer_input", "residual")
"""Parts that stay in bf16 whatever the plan says, as checkpoints have them."""
ATTENTION_PARTS = ("attention", "linear", "mamba", "conv")

_PAIRS = {
    ("int8", "bf16"): "int8_bf16",
    ("int8", "fp16"): "int8_bf16",
    ("fp8", "bf16"): "fp8_bf16",
    ("fp8", "fp16"): "fp8_bf16",
    ("int4", "bf16"): "int4_bf16",
    ("int4", "fp16"): "int4_bf16",
    ("int4", "int8"): "int4_bf16",
    ("int4", "fp8"): "int4_bf16",
    ("mxfp4", "bf16"): "mxfp4_bf16",
    ("mxfp4", "fp8"): "mxfp4_bf16",
    ("fp4", "bf16"): "mxfp4_bf16",
    ("nvfp4", "bf16"): "mxfp4_bf16",
    ("fp8", "fp8_block"): "fp8_block",
    ("fp4", "fp4"): "nvfp4",
    ("int4", "int4"): "int4_bf16",
    ("mxfp4", "nvfp4"): "mxfp4",
    ("mxfp4", "mxfp8"): "mxfp4",
}


def product_format(weights: str, compute: str) -> str:
    """The format of kernels that multiply weights stored in one dtype with activations in another.

    >>> product_format("int8", "bf16"), product_format("fp8", "fp8"), product_format("fp8", "fp8_block")
    ('int8_bf16', 'fp8', 'fp8_block')
    """
    if weights == compute and weights in FORMATS:
        return weights
    found = _PAIRS.get((weights, compute))
    if found is None:
        raise InputError(
            f"There are no kernels known for weights in {weights} and matmuls in {compute}; "
            f"give both the same dtype, or one of {', '.join('/'.join(pair) for pair in _PAIRS)}."
        )
    return found


def part_format(plan: ServingPlan, part: str) -> str:
    """The format of a part's matmuls.

    >>> plan = ServingPlan(weights="mxfp4", compute="bf16", attention="bf16")
    >>> part_format(plan, "experts"), part_format(plan, "attention"), part_format(plan, "head")
    ('mxfp4_bf16', 'bf16', 'bf16')
    """
    if part in WIDE_PARTS:
        return "bf16"
    if part in ATTENTION_PARTS and plan.attention:
        return plan.attention
    return product_format(plan.weights, plan.compute)


def weight_bytes(plan: ServingPlan, part: str) -> float:
    """Bytes of a stored weight of a part, scales included."""
    return float(FORMATS[part_format(plan, part)].weight)
