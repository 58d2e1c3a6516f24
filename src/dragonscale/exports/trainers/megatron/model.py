"""A model in the arguments of Megatron-LM, and back: its `pretrain_gpt.py` is told every size by a flag of its own.

Only what those flags can say is written. A model whose blocks differ from them (scores that are capped, norms after a
block, attention beside the feed-forward half, states that are scanned) is refused: trained by Megatron-LM it would be
another.

>>> model_flags(
...     {
...         "model_type": "llama",
...         "hidden_size": 4096,
...         "intermediate_size": 14336,
...         "num_hidden_layers": 32,
...         "num_attention_heads": 32,
...         "num_key_value_heads": 8,
...         "vocab_size": 128256,
...     },
...     "llama3-8b",
...     8192,
... )["--num-query-groups"]
8
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.terms import load_terms

TERMS = load_terms("megatron")

_LLAMA = ("llama", "mistral", "phi3", "qwen2", "qwen3", "mixtral", "qwen3_moe", "deepseek", "glm4_moe", "gpt_oss")
_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
TYPES = (*_LLAMA, *_LATENT, "gpt2", "nemotron")
"""The types of model that `pretrain_gpt.py` can be told, as `config.json` names them."""
_WHY = TERMS.tables["missing_blocks"]
_ROTARY = TERMS.tables["rotary_bases"]
_EPSILON = TERMS.tables["norm_epsilons"]
_GROUPS = {"deepseek_v3": (8, 4, 2.5), "kimi_k2": (0, 0, 2.827), "deepseek_v2": (0, 0, 0), "glm4_moe": (0, 0, 1.0)}
"""Groups of experts, groups that a token may use, and the scale of its weights, where fields do not say."""
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by one set of names: GPT-2's own are those of the others."""
    flat = dict(fields)
    if flat.get("model_type") == "gpt2":
        size = flat.get("n_embd", 768)
        flat |= {
            "hidden_size": size,
            "num_hidden_layers": flat.get("n_layer", 12),
            "num_attention_heads": flat.get("n_head", 12),
            "intermediate_size": flat.get("n_inner") or 4 * size,
            "max_position_embeddings": flat.get("n_positions", 1024),
        }
    flat["experts"] = next((flat[name] for name in _EXPERTS if flat.get(name)), 0)
    return flat


def check_type(fields: Mapping[str, Any]) -> str:
    """The type of a model that the flags can say; any other is refused."""
    kind = str(fields.get("model_type", ""))
    if kind not in TYPES:
        has = f": it has no flag for {_WHY[kind]}" if kind in _WHY else ""
        raise TERMS.refused("type_not_built", kind=kind, has=has)
    return kind


def model_flags(fields: Mapping[str, Any], name: str, seq: int) -> dict[str, Any]:
    """The flags that say a model."""
    kind, own = check_type(fields), plain_fields(fields)
    heads, kv = own["num_attention_heads"], own.get("num_key_value_heads") or own["num_attention_heads"]
    width = own.get("head_dim") or own["hidden_size"] // heads
    ffn = own.get("intermediate_size") or own.get("moe_intermediate_size")
    flags: dict[str, Any] = {
        "--num-layers": own["num_hidden_layers"],
        "--hidden-size": own["hidden_size"],
        "--ffn-hidden-size": ffn,
        "--num-attention-heads": heads,
    }
    if kind in _LATENT:
        flags |= _latent(own)
    else:
        flags |= {"--group-query-attention": True, "--num-query-groups": kv} if kv != heads else {}
        flags |= {"--kv-channels": width}
    flags |= {"--max-position-embeddings": max(int(own.get("max_position_embeddings") or seq), seq)}
    flags |= _blocks(kind, own) | _positions(kind, own, name)
    if own["experts"]:
        flags |= _experts(kind, own)
    if own.get("num_nextn_predict_layers"):
        flags |= {"--mtp-num-layers": own["num_nextn_predict_layers"], "--mtp-loss-scaling-factor": 0.1}
    tied = own.get("tie_word_embeddings", kind == "gpt2")
    return flags | {"--untie-embeddings-and-output-weights": not tied, "--vocab-size": own["vocab_size"]}


def _latent(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "--multi-latent-attention": True,
        "--q-lora-rank": own.get("q_lora_rank") or None,
        "--kv-lora-rank": own["kv_lora_rank"],
        "--qk-head-dim": own["qk_nope_head_dim"],
        "--qk-pos-emb-head-dim": own["qk_rope_head_dim"],
        "--v-head-dim": own["v_head_dim"],
        "--kv-channels": own["v_head_dim"],
        "--qk-layernorm": True,
    }


def _blocks(kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {"--attention-dropout": 0.0, "--hidden-dropout": 0.0}
    if kind == "gpt2":
        return flags | {"--normalization": "LayerNorm"}
    if kind == "gpt_oss":  # sinks, a window in every other layer, a gate that is clamped; biases everywhere
        sinks = {
            "--softmax-type": "learnable",
            "--window-size": f"{own['sliding_window'] - 1},0",
            "--window-attn-skip-freq": 2,
        }
        gate = {"--quick-geglu": True, "--glu-linear-offset": 1.0, "--activation-func-clamp-value": 7.0}
        return flags | {"--normalization": "RMSNorm", "--norm-epsilon": 1e-5, **gate, **sinks}
    flags["--disable-bias-linear"] = True
    if kind == "nemotron":
        return flags | {"--normalization": "LayerNorm", "--apply-layernorm-1p": True, "--squared-relu": True}
    flags |= {
        "--normalization": "RMSNorm",
        "--norm-epsilon": own.get("rms_norm_eps") or _EPSILON.get(kind, 1e-5),
        "--swiglu": True,
    }
    if kind == "qwen2" or own.get("attention_bias"):
        flags["--add-qkv-bias"] = True
    if kind in ("qwen3", "qwen3_moe") or own.get("use_qk_norm"):
        flags["--qk-layernorm"] = True
    if own.get("sliding_window") and kind in ("mistral", "phi3", "mixtral"):
        flags["--window-size"] = f"{own['sliding_window']},0"
    return flags


def _positions(kind: str, own: Mapping[str, Any], name: str) -> dict[str, Any]:
    if kind == "gpt2":
        return {"--position-embedding-type": "learned_absolute"}
    if kind == "gpt_oss":
        yarn = {"--yarn-original-max-position-embeddings": 4096, "--yarn-beta-fast": 32.0, "--yarn-beta-slow": 1.0}
        return {"--position-embedding-type": "yarn", "--rotary-base": 150_000, "--rotary-scaling-factor": 32.0, **yarn}
    short = name.rsplit("/", 1)[-1].lower()
    base = own.get("rope_theta") or next((value for start, value in _ROTARY.items() if short.startswith(start)), 10_000)
    flags: dict[str, Any] = {"--position-embedding-type": "rope", "--rotary-base": int(base)}
    if kind in ("nemotron", "glm4_moe"):
        flags["--rotary-percent"] = 0.5
    scaling = own.get("rope_scaling")
    stretched = isinstance(scaling, Mapping) and scaling.get("rope_type") == "llama3"
    if stretched or short.startswith(("llama3.1", "llama3.2", "llama3.3")):
        factor = (
            scaling.get("factor", 8.0)
            if isinstance(scaling, Mapping)
            else 32.0
            if short.startswith("llama3.2")
            else 8.0
        )
        flags |= {"--use-rope-scaling": True, "--rope-scaling-factor": float(factor)}
    return flags


def _experts(kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
    size = own.get("moe_intermediate_size") or own["intermediate_size"]
    flags: dict[str, Any] = {
        "--num-experts": own["experts"],
        "--moe-router-topk": own.get("num_experts_per_tok") or 2,
        "--moe-ffn-hidden-size": size,
    }
    if dense := own.get("first_k_dense_replace"):
        flags["--moe-layer-freq"] = f"([0]*{dense}+[1]*{own['num_hidden_layers'] - dense})"
    if shared := own.get("n_shared_experts"):
        flags["--moe-shared-expert-intermediate-size"] = shared * size
    groups, chosen, scale = _GROUPS.get(kind, (0, 0, 0))
    groups, chosen = own.get("n_group") or groups, own.get("topk_group") or chosen
    if groups > 1:
        flags |= {"--moe-router-num-groups": groups, "--moe-router-group-topk": chosen}
    scale = own.get("routed_scaling_factor") or scale
    if kind in ("deepseek_v3", "kimi_k2", "glm4_moe"):
        flags |= {
            "--moe-router-score-function": "sigmoid",
            "--moe-router-enable-expert-bias": True,
            "--moe-router-pre-softmax": True,
        }
        flags |= {"--moe-router-load-balancing-type": "seq_aux_loss", "--moe-aux-loss-coeff": 1e-4}
    else:
        flags |= {
            "--moe-router-load-balancing-type": "aux_loss",
            "--moe-aux-loss-coeff": 1e-2 if kind == "mixtral" else 1e-3,
        }
        flags |= {"--moe-router-pre-softmax": True} if kind in ("deepseek", "deepseek_v2") else {}
    return flags | ({"--moe-router-topk-scaling-factor": scale} if scale and scale != 1 else {})
