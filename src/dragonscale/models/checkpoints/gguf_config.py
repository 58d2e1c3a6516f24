"""From a GGUF header to the fields of a `config.json`, which the families' readers take.

`gguf.toml` says which model type an architecture is and which key is which field. What has no key is
told by the tensors: a vocabulary by its embedding, a tied head by having none, biases by being there.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.models.checkpoints.gguf import Gguf


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("gguf.toml").read_text(encoding="utf-8"))


def architectures() -> list[str]:
    """The architectures of GGUF files that can be read."""
    return sorted(_table()["architectures"])


def config_of(header: Gguf, family: str = "") -> dict[str, Any]:
    """The config that a header amounts to. With `family`, an architecture that is not known is read by
    the common keys."""
    name = header.keys.get("general.architecture")
    if not isinstance(name, str):
        raise InputError("The GGUF file does not say its general.architecture.")
    known = _table()["architectures"]
    if name not in known and not family:
        raise unknown("GGUF architecture", name, known, "`--as FAMILY` reads it as a model type.")
    row = known.get(name, {"type": family})
    names = _table()["keys"] | row.get("fields", {})
    config = {field: _one(header, f"{name}.{key}") for key, field in names.items() if field}
    config = {field: value for field, value in config.items() if value is not None}
    config |= row.get("fixed", {}) | _told_by_tensors(header)
    for field in row.get("drop", ()):
        config.pop(field, None)
    config["model_type"] = _model_type(row, header)
    if not config.get("num_experts") and not config.get("num_local_experts"):
        config = {field: value for field, value in config.items() if "experts" not in field or "routed" in field}
    # llama.cpp counts multi-token modules among the blocks
    config["num_hidden_layers"] = config.get("num_hidden_layers", 0) - config.get("num_nextn_predict_layers", 0)
    return _latent(config, header, name) if row.get("latent") else config


def _model_type(row: dict[str, Any], header: Gguf) -> str:
    has = header.shapes
    if "dense_type" in row and not any("_exps" in tensor for tensor in has):
        return row["dense_type"]
    if "unbiased_type" in row and not any("exp_probs_b" in tensor for tensor in has):
        return row["unbiased_type"]
    return row["type"]


def _one(header: Gguf, key: str) -> Any:
    """A value; one that is repeated for every layer counts once."""
    value = header.keys.get(key)
    if not isinstance(value, list):
        return value
    if not value or any(entry != value[0] for entry in value):
        raise InputError(f"The GGUF file has a {key} that differs from layer to layer, which is not understood.")
    return value[0]


def _told_by_tensors(header: Gguf) -> dict[str, Any]:
    shapes = header.shapes
    found: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in shapes}
    if len(shapes.get("token_embd.weight", ())) == 2:  # the fastest dim first
        found["vocab_size"] = shapes["token_embd.weight"][1]
    biases = {"attention_bias": "attn_q.bias", "attention_out_bias": "attn_output.bias", "mlp_bias": "ffn_up.bias"}
    return found | {field: True for field, name in biases.items() if f"blk.0.{name}" in shapes}


def _latent(config: dict[str, Any], header: Gguf, name: str) -> dict[str, Any]:
    """The sizes of heads of latent attention."""
    whole = _one(header, f"{name}.attention.key_length_mla") or config.pop("head_dim", 0)
    config["v_head_dim"] = _one(header, f"{name}.attention.value_length_mla") or config.get("v_head_dim")
    config["qk_nope_head_dim"] = whole - config.get("qk_rope_head_dim", 0)
    config.pop("head_dim", None)
    config.setdefault("q_lora_rank", None)
    return config
