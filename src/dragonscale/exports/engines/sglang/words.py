"""What SGLang is told of a plan beside its degrees: the checkpoint and its formats, experts, drafts.

SGLang quantises a 16-bit checkpoint while it loads it to `fp8` and `mxfp8`, on AMD's GPUs to `quark_mxfp4`; everything
else is a checkpoint that was quantised before, whose config says how. Weights in fp8 are multiplied in fp8 where the
GPU can, so that fp8 weights with 16-bit matmuls are such a checkpoint too, except on Ampere.

>>> from dragonscale.physics.hardware import load_chip
>>> online_words(load_chip("h100")), online_words(load_chip("a100"))
({('fp8', 'fp8'): 'fp8'}, {('fp8', 'bf16'): 'fp8'})
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.written import PlanDifference
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.serving.balance import expert_slots
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import NVIDIA, architecture, pairs
from dragonscale.serving.plan import ServingPlan, mesh_axes

_ONLINE = {
    ("fp8", "fp8"): "fp8",
    ("fp8", "bf16"): "fp8",
    ("mxfp8", "mxfp8"): "mxfp8",
    ("mxfp4", "mxfp4"): "quark_mxfp4",
}
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
CACHES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
OVERLAPPED = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "qwen3_moe", "mimo_v2", "mimo_v2_flash")
"""Types of models whose layers SGLang cuts into operations that two half-batches interleave
(srt/batch_overlap/operations_strategy.py)."""


def engine_word(run: ServingRun) -> str:
    """The engine without settings."""
    return run.file.engine.partition(",")[0].strip() or run.engine.name


def online_words(chip: Chip) -> dict[tuple[str, str], str]:
    """What `--quantization` makes of a 16-bit checkpoint on a chip, by weights and matmuls."""
    here, amd = pairs("sglang", chip), architecture(chip) not in NVIDIA
    found: dict[tuple[str, str], str] = {}
    for pair, word in _ONLINE.items():
        if pair in here and word not in found.values() and (amd or word != "quark_mxfp4"):
            found[pair] = word
    return found


def served(run: ServingRun) -> ServedCheckpoint:
    """The checkpoint for a plan's formats. Online quantisation takes the attention too."""
    plan = run.file.plan
    online = {} if plan.attention else online_words(run.slice.chip)
    return checkpoint_for(engine_word(run), run.slice.chip, run.model, run.file.model, plan, online)


def model_flags(run: ServingRun, found: ServedCheckpoint) -> dict[str, Any]:
    """The checkpoint, the name that clients use, and the formats."""
    narrow = run.model.quantization.kv  # what `auto` would take from the checkpoint
    cache = CACHES.get(found.plan.kv, "bf16" if narrow and found.dtype == "bf16" else "auto")
    return {
        "--model-path": found.word,
        "--served-model-name": found.served or None,
        "--dtype": DTYPES[found.dtype],
        "--quantization": found.online or None,
        "--kv-cache-dtype": cache,
    }


def sequence_ways(model: Transformer, plan: ServingPlan) -> int:
    """Ranks over which each sequence's cache is split (`--dcp-size`): those beyond the KV heads.

    >>> from dragonscale.models import load_model
    >>> [sequence_ways(load_model("llama3-8b"), ServingPlan(ways, spread="sequence")) for ways in (8, 16)]
    [1, 2]
    """
    sizes = divisible(model)
    heads = 1 if sizes.latent and not sizes.kv_heads else min(sizes.kv_heads, default=plan.tensor)
    return int(mesh_axes(plan, heads)["share"]) if plan.spread == "sequence" else 1


def expert_flags(run: ServingRun, plan: ServingPlan) -> tuple[dict[str, Any], tuple[PlanDifference, ...]]:
    """How experts are dealt out, and what the engine's expectation takes for granted of their exchange."""
    experts, world = divisible(run.model).experts, plan.data * plan.tensor
    if not experts or world == 1:
        return {}, ()
    habits = run.engine.experts
    exchanged = habits.exchange == "all_to_all"
    slots = int(expert_slots(experts, plan.expert, habits.redundant if exchanged else int(experts % plan.expert > 0)))
    flags: dict[str, Any] = {"--ep-size": plan.expert, "--ep-num-redundant-experts": slots - experts or None}
    if not exchanged:
        return flags, ()
    said: list[PlanDifference] = []
    amd = architecture(run.slice.chip) not in NVIDIA
    flags["--moe-a2a-backend"] = "mori" if amd else "deepep"
    if not amd:
        flags["--deepep-mode"] = {"prefill": "normal", "decode": "low_latency"}.get(run.role, "auto")
    flags |= {"--enable-eplb": habits.redundant > 0, "--enable-dp-lm-head": True, "--moe-dense-tp-size": 1}
    if habits.hidden and model_type(run.fields) in OVERLAPPED:
        flags["--enable-two-batch-overlap"] = True
    elif habits.hidden:
        why = "SGLang has that for DeepSeek, Qwen3 and MiMo"
        said.append(PlanDifference("two half-batches that hide the exchange", "one batch waits for it", why))
    return flags, tuple(said)


def draft_flags(run: ServingRun) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Who drafts, and a note where a checkpoint is to be named."""
    drafts = run.file.speculation
    if not drafts.drafts:
        return {}, ()
    chain = {
        "--speculative-num-steps": drafts.drafts,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": drafts.drafts + 1,
    }
    if drafts.draft:
        who = {"--speculative-algorithm": "STANDALONE", "--speculative-draft-model-path": hub_id(drafts.draft)}
        return {**who, **chain}, ()
    if has_own_heads(run.fields):
        return {"--speculative-algorithm": "EAGLE", **chain}, ()
    head = f"./{hub_id(run.file.model).rstrip('/').rpartition('/')[2]}-EAGLE3"
    note = f"{head} stands for a trained EAGLE-3 head of the model: put its path or repository there."
    return {"--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": head, **chain}, (note,)


def _flat(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = fields.get("text_config")
    return {**fields, **inner} if isinstance(inner, Mapping) else fields


def model_type(fields: Mapping[str, Any]) -> str:
    """The type of the language model."""
    return str(_flat(fields).get("model_type", ""))


def has_own_heads(fields: Mapping[str, Any]) -> bool:
    """Whether a checkpoint has layers that predict further tokens (multi-token prediction), which need
    no draft model."""
    return any(
        _flat(fields).get(name) for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    )
