"""A model as MaxText 0.2.5 has it: one of its own configs by name, or the sizes of a decoder that it knows.

`model_name` brings the sizes of `configs/models/NAME.yml`, and those win over a YAML file of one's own (only words of
the command line win over them, with `override_model_config`). So a model that MaxText has no name for is written
without one: its decoder and its sizes, under the names of `base.yml`.

>>> model_keys("llama3-70b", {"model_type": "llama"})
{'model_name': 'llama3-70b'}
>>> model_of({"model_name": "deepseek3-671b"}, {})
'deepseek-v3'
>>> model_of({"model_name": "llama3-8b"}, {"base_num_decoder_layers": "16"})
'llama3-8b?num_hidden_layers=16'
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.exports.model_names import model_of_sizes
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import whole
from dragonscale.models.catalogue import is_preset, preset

TERMS = load_terms("maxtext")

NAMES: Mapping[str, str] = {name: name for name in TERMS.lists["same_names"]} | TERMS.tables["names"]
"""MaxText's name of each preset that it has a config of."""
_ALSO = TERMS.tables["other_names"]
_PRESETS = {**{own: name for name, own in reversed(NAMES.items())}, **_ALSO}

DECODERS = TERMS.tables["decoders"]
SIZES = TERMS.tables["sizes"]
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CYCLES = ("gemma3", "gemma4", "gpt-oss", "llama4", "qwen3-next", "qwen3.5", "deepseek4", "deepseek3.2")
"""Names of models whose scanned block is several layers, or whose layers differ in more than being dense or not."""
_DENSE_FIRST = ("deepseek", "kimi")
"""Names of models whose first layers are dense: MaxText runs those before its pipeline."""


def experts_of(fields: Mapping[str, Any]) -> int:
    """Experts of a layer, by the fields of a Hugging Face config."""
    inner = fields.get("text_config")
    flat = {**fields, **inner} if isinstance(inner, Mapping) else fields
    return next((int(flat[name]) for name in _EXPERTS if flat.get(name)), 0)


def model_keys(model: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that name a model, or say its decoder and sizes."""
    name, _, changed = model.partition("?")
    if not changed and is_preset(name) and (own := NAMES.get(str(preset(name)["name"]))):
        return {"model_name": own}
    decoder = DECODERS.get(str(fields.get("model_type", "")))
    if decoder is None:
        kind, known = fields.get("model_type", "?"), ", ".join(DECODERS)
        raise TERMS.refused("no_model", model=model, kind=kind, count=len(NAMES), decoders=known)
    return _sizes(decoder, fields)


def _sizes(decoder: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    heads = int(fields["num_attention_heads"])
    experts = experts_of(fields)
    wide = int(fields.get("moe_intermediate_size") or fields["intermediate_size"])
    table: dict[str, Any] = {
        "model_name": "default",
        "decoder_block": decoder,
        "base_emb_dim": fields["hidden_size"],
        "base_num_query_heads": heads,
        "base_num_kv_heads": int(fields.get("num_key_value_heads") or heads),
        "head_dim": int(fields.get("head_dim") or int(fields["hidden_size"]) // heads),
        # a model of experts alone has one width under both names
        "base_mlp_dim": wide if experts else fields["intermediate_size"],
        "base_num_decoder_layers": fields["num_hidden_layers"],
        "vocab_size": fields["vocab_size"],
        "mlp_activations": ["silu", "linear"],
        "logits_via_embedding": bool(fields.get("tie_word_embeddings", False)),
        "enable_dropout": False,
    }
    if experts:
        table |= {"num_experts": experts, "num_experts_per_tok": fields["num_experts_per_tok"]}
        table["base_moe_mlp_dim"] = wide
    if decoder == "qwen2":
        table["attention_bias"] = True
    if decoder.startswith("qwen3"):
        table["use_qk_norm"] = True
    return table


def alike(own: Mapping[str, Any]) -> bool:
    """Whether the layers of a model are one block each, and attend alike."""
    return not str(own["model_name"]).startswith(_CYCLES)


def pipelines(own: Mapping[str, Any]) -> bool:
    """Whether all layers of a model can be dealt to stages."""
    return alike(own) and not str(own["model_name"]).startswith(_DENSE_FIRST)


def merged_layers(own: Mapping[str, Any]) -> int:
    """Layers of the model that one decoder layer of MaxText is: Gemma 2's local and global attention are one block."""
    return 2 if str(own["model_name"]).startswith("gemma2") else 1


def model_of(own: Mapping[str, Any], words: Mapping[str, Any], kept: str = "") -> str:
    """The model that a config says: by MaxText's name, with what the command line changes, or by sizes; empty where it
    says neither. `kept` is preferred where it has the same name there."""
    name = str({**own, **words}.get("model_name") or "default").removesuffix("-Instruct")
    if name != "default":
        if is_preset(kept) and NAMES.get(str(preset(kept)["name"])) == name:
            return kept
        found = _PRESETS.get(name) or (str(preset(name)["name"]) if is_preset(name) else "")
        changes = [f"{ours}={words[theirs]}" for ours, theirs in SIZES.items() if found and theirs in words]
        return f"{found}?{'&'.join(changes)}" if changes else found
    every = {**own, **words}
    if "base_emb_dim" not in every:
        return kept
    types = {decoder: kind for kind, decoder in DECODERS.items()}
    sizes = {ours: whole(every[theirs], theirs, 0) for ours, theirs in SIZES.items() if every.get(theirs) is not None}
    if sizes.get("experts", 1) > 1:
        sizes.pop("moe_intermediate_size" if every.get("decoder_block") == "mixtral" else "intermediate_size", None)
    else:
        dense = ("experts", "num_experts_per_tok", "moe_intermediate_size")
        sizes = {name: value for name, value in sizes.items() if name not in dense}
    return model_of_sizes({"model_type": types.get(str(every.get("decoder_block", "llama2")), ""), **sizes}, kept)
