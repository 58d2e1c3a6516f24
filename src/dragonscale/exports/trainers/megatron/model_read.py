"""The model that arguments of Megatron-LM say: the preset of those sizes, or the nearest with what differs."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.flags import ReadFlags
from dragonscale.exports.model_names import model_of_sizes
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import model_flags
from dragonscale.exports.values import whole
from dragonscale.models.catalogue import model_names, preset
from dragonscale.models.load import model_fields

TERMS = load_terms("megatron")

_SIZES = TERMS.tables["sizes"]
_MAY_BE_NONE = ("--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size", "--q-lora-rank", "--kv-lora-rank")
_SAID = TERMS.lists["model_flags"]


def model_read(read: ReadFlags, kept: str) -> str:
    """The model that flags say: that of an export's header where they agree with it, or the preset of those sizes.
    The flags are taken from the list; empty where they say no sizes."""
    said = {name: read.take(name) for name in (*_SIZES, *_SAID) if name in read.values}
    if "--num-layers" not in said or "--hidden-size" not in said:
        return ""
    if kept and _agrees(kept, said):
        return kept
    return _preset_of(said) or _nearest(said)


def _preset_of(said: Mapping[str, Any]) -> str:
    """The preset whose flags these are; where several have the same sizes, the one that agrees in the most of the
    others."""
    ranked: list[tuple[int, bool, int, str]] = []
    for name in model_names():
        own = _preset_flags(name)
        sizes = [flag for flag in _SIZES if flag in said and _counts(flag, said)]
        if own and all(str(own.get(flag)) == str(said[flag]) for flag in sizes):
            others = sum(str(own.get(flag)) != str(said[flag]) for flag in _SAID if flag in said)
            ranked.append((others, "base" in preset(name), len(name), name))
    return min(ranked)[-1] if ranked else ""


def _counts(flag: str, said: Mapping[str, Any]) -> bool:
    """Whether a flag says a size: without grouped queries their number is nothing, latent attention has its own widths,
    and layers that are all of experts have no dense feed-forward half."""
    if flag == "--num-query-groups":
        return bool(said.get("--group-query-attention"))
    if flag == "--kv-channels":
        return not said.get("--multi-latent-attention")
    if flag == "--ffn-hidden-size":
        return "--moe-ffn-hidden-size" not in said or "--moe-layer-freq" in said
    return flag != "--moe-router-topk" or "--num-experts" in said


@cache
def _preset_flags(name: str) -> dict[str, Any]:
    try:
        return model_flags(preset(name), name, 1)
    except Infeasible:
        return {}


def _nearest(said: Mapping[str, Any]) -> str:
    """The nearest preset of such blocks, with what differs."""
    kinds, found = _kinds(said), []
    for kind in kinds:
        sizes = _fields(said)
        if kind == "gpt2":
            return _gpt(sizes)
        if kind == "gpt_oss":
            sizes.pop("sliding_window", None)
        if kind in ("mixtral", "gpt_oss"):
            sizes["intermediate_size"] = sizes.pop("moe_intermediate_size", sizes["intermediate_size"])
        elif kind == "qwen3_moe":
            sizes["moe_intermediate_size"] = sizes.get("moe_intermediate_size", sizes.pop("intermediate_size"))
            sizes.pop("intermediate_size", None)
        found.append(model_of_sizes({**sizes, "model_type": kind}))
    return min(found, key=lambda name: name.count("="))


def _gpt(sizes: Mapping[str, Any]) -> str:
    """A GPT of these sizes, as GPT-2's config names them."""
    own = TERMS.tables["gpt2_sizes"]
    said = [f"{name}={sizes[field]}" for name, field in own.items() if field in sizes]
    if sizes["intermediate_size"] != 4 * sizes["hidden_size"]:
        said.append(f"n_inner={sizes['intermediate_size']}")
    return f"gpt3-175b?{'&'.join(said)}"


def _agrees(kept: str, said: Mapping[str, Any]) -> bool:
    try:
        own = model_flags(model_fields(kept), kept, 1)
    except InputError:
        return False
    return all(str(own.get(name)) == str(value) for name, value in said.items() if name in _SIZES)


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `config.json` that flags say. What Megatron-LM takes without a word is filled in."""
    own: dict[str, Any] = {
        field: whole(said[name], name, 0 if name in _MAY_BE_NONE else 1)
        for name, field in _SIZES.items()
        if said.get(name) is not None
    }
    hidden = own["hidden_size"]
    if "--ffn-hidden-size" not in said:
        own["intermediate_size"] = int(4 * hidden * 2 / 3 / 64) * 64 if said.get("--swiglu") else 4 * hidden
    if said.get("--multi-latent-attention"):
        own = {name: value for name, value in own.items() if name not in ("head_dim", "num_key_value_heads")}
    elif not said.get("--group-query-attention"):
        own["num_key_value_heads"] = own.get("num_attention_heads")
    if own.get("num_experts"):
        own.setdefault("num_experts_per_tok", 2)
    if said.get("--window-size"):
        width = whole(str(said["--window-size"]).strip("()").split(",")[0], "--window-size", -1)
        own |= {"sliding_window": width} if width > 0 else {}
    return own


def _kinds(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of model that have such blocks."""
    if said.get("--multi-latent-attention"):
        softmax = said.get("--moe-router-score-function", "softmax") == "softmax"
        return ("deepseek_v2",) if softmax else ("deepseek_v3", "kimi_k2")
    if said.get("--squared-relu"):
        return ("nemotron",)
    if said.get("--quick-geglu"):
        return ("gpt_oss",)
    if not said.get("--swiglu"):
        return ("gpt2",)
    if said.get("--num-experts"):
        if said.get("--moe-shared-expert-intermediate-size"):
            return ("glm4_moe",) if said.get("--moe-router-score-function") == "sigmoid" else ("deepseek",)
        return ("qwen3_moe",) if said.get("--qk-layernorm") else ("mixtral",)
    if said.get("--qk-layernorm"):
        return ("qwen3",)
    if said.get("--add-qkv-bias"):
        return ("qwen2",)
    return ("mistral",) if said.get("--window-size") else ("llama", "mistral", "phi3")
