"""A model in the arguments of Megatron-LM, and back: its `pretrain_gpt.py` is told every size by a flag of its own.

Only what those flags can say is written. A model whose blocks differ from them (scores that are capped, norms after a
block, attention beside the feed-forward half, states that are scanned) is refused: trained by Megatron-LM it would be
another. Read is the preset of those sizes, or the nearest with what differs.

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
from functools import cache
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.keys import ReadFlags, whole
from dragonscale.exports.model_names import EXPERTS, model_of_sizes
from dragonscale.exports.terms import load_terms
from dragonscale.models.catalogue import model_names, preset
from dragonscale.models.load import model_fields
from dragonscale.training.plan.builds import trainers

TERMS = load_terms("megatron")

SCRIPT = "pretrain_gpt.py"

_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
TYPES = trainers()["megatron-lm"].types
"""The types of model that `pretrain_gpt.py` can be told, as `config.json` names them."""


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by one set of names: GPT-2's own are those of the others."""
    flat = dict(fields)
    if flat.get("model_type") == "gpt2":
        usual = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        flat |= {field: flat.get(own, usual.get(own)) for own, field in TERMS.tables["gpt2_sizes"].items()}
        flat["intermediate_size"] = flat.get("n_inner") or 4 * flat["hidden_size"]
    flat["experts"] = next((flat[name] for name in EXPERTS if flat.get(name)), 0)
    return flat


def check_type(fields: Mapping[str, Any], name: str) -> str:
    """The type of a model that the flags can say; any other is refused, with the trainer that builds it, if one does.
    `name` is the name or path that the model was loaded by."""
    kind = str(fields.get("model_type", ""))
    if kind not in TYPES:
        lacks = trainers()["megatron-lm"].lacks.get(kind, "")
        has = f": it has no flag for {lacks}" if lacks else ""
        bridge_builds = not trainers()["megatron-bridge"].refuses(fields, name)
        instead = "; --to megatron-bridge writes it" if bridge_builds else ""
        raise TERMS.refused("type_not_built", kind=kind, has=has, instead=instead)
    return kind


def model_flags(fields: Mapping[str, Any], name: str, seq: int) -> dict[str, Any]:
    """The flags that say a model."""
    kind, own = check_type(fields, name), plain_fields(fields)
    heads, latent, size = own["num_attention_heads"], kind in _LATENT, own.get("moe_intermediate_size")
    kv = own.get("num_key_value_heads") or heads
    values = {
        "latent": latent,
        "grouped": kv != heads and not latent,
        "kv": kv,
        "ffn": own.get("intermediate_size") or size,
        "channels": own.get("v_head_dim") if latent else own.get("head_dim") or own["hidden_size"] // heads,
        "positions": max(int(own.get("max_position_embeddings") or seq), seq),
    }
    flags = TERMS.group("sizes", own, **values) | _blocks(kind, own) | _positions(kind, own, name)
    flags |= _experts(kind, own, size or own["intermediate_size"]) if own["experts"] else {}
    return flags | TERMS.group("ends", own, untied=not own.get("tie_word_embeddings", kind == "gpt2"))


def _blocks(kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
    like, window = kind if kind in ("gpt2", "gpt_oss", "nemotron") else "llama", own.get("sliding_window")
    shown = window and kind in ("mistral", "phi3", "mixtral", "gpt_oss")
    values = {
        "epsilon": own.get("rms_norm_eps") or TERMS.tables["norm_epsilons"].get(kind, 1e-5),
        "biased": kind == "qwen2" or own.get("attention_bias"),
        "normed": kind in ("qwen3", "qwen3_moe") or own.get("use_qk_norm"),
        "window": f"{(window or 0) - (kind == 'gpt_oss')},0" if shown else "",
    }
    return TERMS.group(f"{like}_blocks", own, **values)


def _positions(kind: str, own: Mapping[str, Any], name: str) -> dict[str, Any]:
    short, bases = name.rsplit("/", 1)[-1].lower(), TERMS.tables["rotary_bases"]
    base = own.get("rope_theta") or next((value for start, value in bases.items() if short.startswith(start)), 10_000)
    scaling, factor = own.get("rope_scaling") if isinstance(own.get("rope_scaling"), Mapping) else None, 0.0
    if (scaling and scaling.get("rope_type") == "llama3") or short.startswith(("llama3.1", "llama3.2", "llama3.3")):
        usual = 32.0 if short.startswith("llama3.2") else 8.0
        factor = float(usual if scaling is None else scaling.get("factor", 8.0))
    group = f"{kind}_positions" if kind in ("gpt2", "gpt_oss") else "rotary_positions"
    return TERMS.group(group, own, kind=kind, base=int(base), factor=factor)


def _experts(kind: str, own: Mapping[str, Any], size: int) -> dict[str, Any]:
    dense, usual = own.get("first_k_dense_replace"), TERMS.tables["expert_groups"].get(kind, {})
    values = {
        "chosen": own.get("num_experts_per_tok") or 2,
        "size": size,
        "dealt": f"([0]*{dense}+[1]*{own['num_hidden_layers'] - dense})" if dense else "",
        "shared": (own.get("n_shared_experts") or 0) * size,
        "groups": own.get("n_group") or usual.get("groups", 0),
        "taken": own.get("topk_group") or usual.get("taken", 0),
    }
    router = "sigmoid_router" if kind in ("deepseek_v3", "kimi_k2", "glm4_moe") else "softmax_router"
    flags = TERMS.group("model_experts", own, **values) | TERMS.group(router, kind=kind)
    scale = own.get("routed_scaling_factor") or usual.get("scale", 0)
    return flags | ({"--moe-router-topk-scaling-factor": scale} if scale and scale != 1 else {})


_SIZES = TERMS.tables["sizes"]
_MAY_BE_NONE = ("--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size", "--q-lora-rank", "--kv-lora-rank")
_SAID = TERMS.lists["model_flags"]


def model_read(read: ReadFlags, kept: str, given: str = "") -> str:
    """The model that flags say: that which the user gives, that of an export's header where they agree with it, or the
    preset of those sizes. The flags are taken from the list; empty where they say no sizes."""
    said = {name: read.take(name) for name in (*_SIZES, *_SAID) if name in read.values}
    if "--num-layers" not in said or "--hidden-size" not in said:
        return ""
    if given:
        _fields(said)  # numbers that are none are refused
        return given
    if kept and _agrees(kept, said):
        return kept
    return _preset_of(said) or _nearest(said)


def _preset_of(said: Mapping[str, Any]) -> str:
    """The preset whose flags these are; where several have the same sizes, the one that agrees in the most of the
    others. Megatron-LM's own width of the feed-forward half, its gate and its heads count where nothing is said."""
    ranked: list[tuple[int, bool, int, str]] = []
    sizes = {flag: str(said[flag]) for flag in _SIZES if flag in said and _counts(flag, said)}
    if "--moe-ffn-hidden-size" not in said:
        sizes["--ffn-hidden-size"] = str(said.get("--ffn-hidden-size", _usual_width(said)))
    blocks = ["--swiglu", *([] if said.get("--multi-latent-attention") else ["--group-query-attention"])]
    for name in model_names():
        own = _preset_flags(name)
        alike = all(bool(own.get(flag)) == bool(said.get(flag)) for flag in blocks)
        if own and alike and all(str(own.get(flag)) == size for flag, size in sizes.items()):
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
    if int(sizes.get("num_experts") or 1) > 1:
        raise TERMS.wrong("gpt_of_experts", experts=sizes["num_experts"])
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


def _usual_width(said: Mapping[str, Any]) -> int:
    """The feed-forward half's width where no flag says it (megatron/training/arguments.py)."""
    hidden = whole(said["--hidden-size"], "--hidden-size")
    return int(4 * hidden * 2 / 3 / 64) * 64 if said.get("--swiglu") else 4 * hidden


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `config.json` that flags say. What Megatron-LM takes without a word is filled in."""
    own: dict[str, Any] = {
        field: whole(said[name], name, 0 if name in _MAY_BE_NONE else 1)
        for name, field in _SIZES.items()
        if said.get(name) is not None
    }
    if "--ffn-hidden-size" not in said:
        own["intermediate_size"] = _usual_width(said)
    if said.get("--multi-latent-attention"):
        own = {name: value for name, value in own.items() if name not in ("head_dim", "num_key_value_heads")}
    else:
        if not said.get("--group-query-attention"):
            own["num_key_value_heads"] = own.get("num_attention_heads")
        if "head_dim" not in own and "num_attention_heads" in own:
            own["head_dim"] = own["hidden_size"] // own["num_attention_heads"]
    if own.get("num_experts"):
        own.setdefault("num_experts_per_tok", 2)
    if said.get("--window-size"):
        width = whole(str(said["--window-size"]).strip("()").split(",")[0], "--window-size", -1)
        own |= {"sliding_window": width} if width > 0 else {}
    return own


def _kinds(said: Mapping[str, Any]) -> list[str]:
    """The types of model that have such blocks."""
    return TERMS.choice("kinds", said).split()
