"""Models, training, serving and compiled programs as problems name them."""

# ruff: noqa: F401  what is imported here may stand in a problem

from typing import Any

from dragonscale.course.closed_forms.crossovers import power_splits
from dragonscale.course.closed_forms.decode_floor import decode_times, linear_cost
from dragonscale.course.closed_forms.rooflines import axis_bandwidth
from dragonscale.course.closed_forms.rules_of_thumb import DAY, YEAR
from dragonscale.course.closed_forms.serving_splits import latency_bound_bytes
from dragonscale.course.closed_forms.speculation import loop_seconds, seconds_for
from dragonscale.course.words import count, number
from dragonscale.evidence.xla.device_groups import group_shape
from dragonscale.evidence.xla.layouts import padded_bytes, read_arrays
from dragonscale.evidence.xla.op_work import op_bound, work_of_text
from dragonscale.evidence.xla.shardings import read_sharding
from dragonscale.models import Attention, Layer, Mlp, Moe, Transformer, cache_bytes, count_parameters, parameters
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.letters import simple
from dragonscale.models.load import load_model
from dragonscale.models.lora import adapted_parameters, adapter_parameters
from dragonscale.models.transformer import kv_bytes_per_token
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels.routing import route
from dragonscale.physics.rooflines import rates_of
from dragonscale.serving.iteration.cache_transfer import port_bandwidth
from dragonscale.serving.space.space import smallest_slice
from dragonscale.serving.steady.speculation import tokens_per_loop
from dragonscale.training.plan.pipeline_order import timeline


def params_of(model: str) -> float:
    """The parameters of a model."""
    return float(count_parameters(load_model(model)).total)


def adapter_size(model: Transformer, rank: int) -> float:
    """Parameters of LoRA adapters of a rank on every matrix of the layers."""
    return float(sum(adapter_parameters(model.program().sections[1:-1], rank).values()))


def experts_of(name: str) -> tuple[Moe, int, int]:
    """The MoE of a model's last layer, its layers that have one, and the model's width."""
    model = load_model(name)
    blocks = [layer.ffn for layer in model.layers if isinstance(layer.ffn, Moe)]
    return blocks[-1], len(blocks), model.d_model


def _one_layer(d: int, width: int, **more: Any) -> Transformer:
    return simple(d_model=d, d_ff=width, n_layers=1, n_heads=d // 128, head_dim=128, vocab=8, **more)


def expert_counts(d: int, width: int, experts: int, chosen: int) -> tuple[float, float]:
    """Parameters of one layer's experts, and those that a token uses."""
    counts = count_parameters(_one_layer(d, width, n_experts=experts, experts_per_token=chosen))
    held = counts.by_part["experts"]
    return float(held), float(held - (counts.total - counts.active - 8 * d))


def layer_flops(d: int, length: int, ratio: int = 4, causal: bool = False) -> dict[str, float]:
    """Training FLOPs by part of one layer with MHA as wide as the model and a gated MLP, for one sequence."""
    block = [section for section in _one_layer(d, ratio * d).program().sections if section.name == "block"]
    return {part: float(value) for part, value in training_flops(block, Workload(1, length, length, causal)).items()}


def cache_of_layers(mixers: list[Attention], tokens: int) -> float:
    """Bytes that layers with these kinds of attention keep of a sequence."""
    model = Transformer("layers", 4096, 32000, tuple(Layer(mixer, Mlp(16384)) for mixer in mixers))
    return float(sum(cache_bytes(model.program().sections, tokens).values()))


def sizes_of(model: str) -> tuple[float, int]:
    """A model's parameters, as its name rounds them, and the bytes of cache that a token takes in int8."""
    return 1e9 * float(model.rpartition("-")[2].rstrip("b")), int(kv_bytes_per_token(load_model(model), "int8"))


def model_sentence(model: str) -> str:
    """A model's sizes as a question tells them."""
    params, token = sizes_of(model)
    return f"{model} ({number(params)} parameters and {count(token)} bytes of cache a token, both int8; matmuls bf16)"


def loading_seconds(params: float, weights: str, chips: int, machine: Chip) -> float:
    """How long so many chips take to read the weights once."""
    return float(decode_times(1, 0, params, chips, rates_of(machine), weights=weights).weights)


def chips_in_time(fewest: int, params: float, weights: str, machine: Chip, limit: float) -> int:
    """So many chips, doubled until they read the weights within a time."""
    chips = fewest
    while loading_seconds(params, weights, chips, machine) > limit:
        chips *= 2
    return chips


def seconds_of_a_token(target: float, draft: float, chance: float, drafts: int) -> float:
    """The time of a token where a loop drafts so many, each right with a chance."""
    return float(seconds_for(1, loop_seconds(target, draft, drafts), tokens_per_loop(chance, drafts)))


def dot_line(m: int, k: int, n: int, dtype: str = "bf16") -> str:
    """A matmul as a line of HLO."""
    operands = f"{dtype}[{m},{k}] %x, {dtype}[{k},{n}] %w"
    return f"%dot = {dtype}[{m},{n}] dot({operands}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def projection_line(batch: int, length: int, width: int, heads: int, head: int) -> str:
    """A projection into heads as a line of HLO."""
    operands = f"bf16[{batch},{length},{width}] %x, bf16[{width},{heads},{head}] %w"
    return f"%fusion.169 = bf16[{batch},{length},{heads},{head}] fusion({operands}), kind=kOutput, calls=%fused"
