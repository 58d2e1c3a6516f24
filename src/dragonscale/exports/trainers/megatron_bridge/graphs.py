"""CUDA graphs of a Megatron-Bridge recipe: what the stack `megatron-bridge` is timed with, where the library takes it.

Graphs are Transformer Engine's, a layer at a time: whole layers of a dense model; of layers with experts the parts
whose shapes are fixed (attention, the router and what prepares the exchange), since the number of tokens that an expert
gets is not. Megatron-Core refuses them beside blocks that are recomputed whole, and a router inside a recomputed MoE
layer; Megatron-FSDP has a mode of its own for them.
"""

from typing import Any

from dragonscale.exports.trainers.megatron.settle import MegatronRun
from dragonscale.exports.written import PlanDifference

ENVIRONMENT = {"NCCL_GRAPH_REGISTER": "0"}
"""What graphs need beside an allocator with expandable segments."""


def no_graphs(settled: MegatronRun) -> str:
    """Why a run of the stack has no graphs; empty where it has."""
    plan = settled.plan
    if settled.fsdp:
        return "Megatron-FSDP gathers weights inside the layers that graphs would record"
    if plan.remat == "block":
        return "Megatron-Core takes whole blocks run again with a graph of the whole iteration alone"
    if str(settled.fields.get("model_type", "")).startswith("gemma4"):
        return "the library has none for this model"
    return ""


def wanted(settled: MegatronRun) -> bool:
    """Whether the expectation counts launches as graphs have them."""
    return settled.run.file.stack == "megatron-bridge" and settled.architecture in ("hopper", "blackwell")


def graph_fields(settled: MegatronRun) -> dict[str, Any]:
    """The fields that turn graphs on; none where there are none."""
    if not wanted(settled) or no_graphs(settled):
        return {}
    modules = [] if not settled.experts else ["attn"]
    if settled.experts and "moe" not in settled.plan.remat.split("+"):
        # with a capacity the host has to learn how many tokens are dropped before the exchange
        modules += ["moe_router"] if settled.run.file.capacity else ["moe_router", "moe_preprocess"]
    return {
        "model.cuda_graph_impl": "transformer_engine",
        "model.cuda_graph_modules": modules,
        "model.use_te_rng_tracker": True,
        "rng.te_rng_tracker": True,
    }


def graph_differences(settled: MegatronRun) -> tuple[PlanDifference, ...]:
    """That graphs are counted and not recorded."""
    why = no_graphs(settled) if wanted(settled) else ""
    return (
        (PlanDifference("CUDA graphs, which the expectation counts on,", "every kernel is launched by the host", why),)
        if why
        else ()
    )
