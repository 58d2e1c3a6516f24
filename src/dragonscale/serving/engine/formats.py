"""The kernels that a plan's formats mean: weights stored in one dtype, matmuls computed in another."""

from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.plan import ServingPlan


@dataclass(frozen=True)
class Formats:
    """Dtypes of weights, matmuls and cache, of the attention if it differs, and of activations between chips."""

    weights: str = "bf16"
    compute: str = "bf16"
    kv: str = "bf16"
    attention: str = ""
    wire: str = "bf16"

    @classmethod
    def of(cls, plan: ServingPlan) -> "Formats":
        """The formats of a plan."""
        return cls(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)

    def applied_to(self, plan: ServingPlan) -> ServingPlan:
        """A plan in these formats."""
        return replace(
            plan, weights=self.weights, compute=self.compute, kv=self.kv, attention=self.attention, wire=self.wire
        )

    def __str__(self) -> str:
        return f"{self.weights}/{self.compute}, cache {self.kv}"


WIDE_PARTS = ("head", "embed", "router", "indexer", "norm", "hyper", "layer_input", "residual")
"""Parts that stay in bf16 whatever the plan says, as in published checkpoints."""
ATTENTION_PARTS = ("attention", "linear", "mamba", "conv")


def product_format(weights: str, compute: str) -> str:
    """The format of kernels that multiply weights stored in one dtype with activations in another.

    >>> product_format("int8", "bf16"), product_format("fp8", "fp8"), product_format("fp8", "fp8_block")
    ('int8_bf16', 'fp8', 'fp8_block')
    """
    if weights == compute and weights in FORMATS:
        return weights
    pairs: dict[str, str] = shipped_table("serving.engine", "formats.toml")["kernels"]
    name = pairs.get(f"{weights}/{compute}")
    if name is None:
        raise InputError(
            f"There are no kernels known for weights in {weights} and matmuls in {compute}; "
            f"give both the same dtype, or one of {', '.join(pairs)}."
        )
    return name


def part_format(plan: ServingPlan, part: str) -> str:
    """The kernel format of a part's matmuls.

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
    """Bytes per stored weight of a part, scales included."""
    return float(FORMATS[part_format(plan, part)].weight)
