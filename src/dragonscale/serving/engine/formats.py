"""The kernels that a plan's formats mean: weights stored in one dtype, matmuls computed in another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.models.program import Section
from dragonscale.physics.gguf_mixtures import tensor_bytes
from dragonscale.physics.kernels.dtypes import FORMATS, UNPACKING, unpacked_name
from dragonscale.physics.stored_formats import GGUF_FILES, exl_bits
from dragonscale.physics.units import DTYPE_BYTES
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
    kind = weights.partition("_")[0] if exl_bits(weights) else GGUF_FILES.get(weights, weights)
    if weights not in DTYPE_BYTES and unpacked_name(kind, compute) in UNPACKING:
        return unpacked_name(kind, compute)
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
    if part in WIDE_PARTS and not (part == "head" and plan.weights in GGUF_FILES):
        return "bf16"
    if part in ATTENTION_PARTS and plan.attention:
        return plan.attention
    return product_format(plan.weights, plan.compute)


@dataclass(frozen=True)
class TensorPlace:
    """Where a weight is: the part of the model, its name, the dims of its section, the layers of the model, and whether
    the embedding is the output matrix too."""

    part: str
    name: str
    dims: Mapping[str, int]
    layers: int
    tied: bool = False


def weight_bytes(plan: ServingPlan, tensor: TensorPlace) -> float:
    """Bytes per stored weight of a tensor, scales included; in a GGUF file on average over the layers.

    >>> dims = {"d": 4096, "n": 32, "k": 8, "g": 128, "f": 14336}
    >>> weight_bytes(ServingPlan(weights="q4_k_m", compute="int8"), TensorPlace("head", "W_head", dims, layers=32))
    0.8203125
    """
    if (
        plan.weights in GGUF_FILES
        and tensor.part != "router"
        and not (tensor.part in ATTENTION_PARTS and plan.attention)
    ):
        return tensor_bytes(plan.weights, tensor.name, tensor.dims, tensor.layers, tensor.tied)
    bits = exl_bits(plan.weights)
    if bits is not None and tensor.part not in WIDE_PARTS:
        return bits / 8
    return float(FORMATS[part_format(plan, tensor.part)].weight)


def is_tied(sections: Iterable[Section]) -> bool:
    """Whether a model's embedding is its output matrix too."""
    return not any(weight.name == "W_head" for section in sections for op in section.ops for weight in op.weights)
