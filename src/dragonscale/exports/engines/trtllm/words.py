"""What TensorRT-LLM's own recipes choose for experts and drafts."""

from typing import Any

from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun
from dragonscale.serving.legality import architecture


def moe_backend(run: ServingRun) -> str:
    """The kernels of the experts: WIDEEP sends tokens by AllToAll; on Blackwell fp8 by blocks is DeepGEMM's, and four
    bits are TRTLLM's for low latency and CUTLASS's with attention data parallelism; MXFP4 on Hopper is Triton's
    (examples/configs/curated and the deployment guides)."""
    plan = run.file.plan
    if run.engine.name.endswith("-ep"):
        return "WIDEEP"
    blackwell = architecture(run.slice.chip) == "blackwell"
    if plan.weights == "mxfp4":
        return "TRTLLM" if blackwell else "TRITON"
    if blackwell and plan.compute == "fp8_block":
        return "DEEPGEMM"
    if blackwell and plan.weights == "nvfp4" and plan.data == 1:
        return "TRTLLM"
    return "CUTLASS"


def slots(run: ServingRun, experts: int) -> int:
    """Places for experts over all ranks, redundant ones among them: as many on every rank."""
    ways = run.file.plan.expert
    return -(-(experts + run.engine.experts.redundant) // ways) * ways


def spoken_drafts(run: ServingRun) -> dict[str, Any]:
    """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head."""
    drafts = run.file.speculation
    if drafts.draft:
        return {
            "decoding_type": "DraftTarget",
            "max_draft_len": drafts.drafts,
            "speculative_model": hub_id(drafts.draft),
        }
    if run.fields.get("num_nextn_predict_layers"):
        return {"decoding_type": "MTP", "num_nextn_predict_layers": drafts.drafts}
    name = hub_id(run.file.model).rpartition("/")[2]
    return {"decoding_type": "Eagle", "max_draft_len": drafts.drafts, "speculative_model": f"{name}-EAGLE3"}
