"""In which dtype a checkpoint stores which parts, from `torch_dtype` and `quantization_config`.

Published formats leave embeddings, head, norms and routers alone and quantise the projections; what each method and its
list of exceptions mean is read here once, by part of the model.
"""

import re
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.count import parameters
from dragonscale.models.transformer import Quantization, Transformer
from dragonscale.tables import beside

_TABLE = beside(__file__, "quantization.toml")
_PLAIN, _EXCEPTIONS, _METHODS, _EXPERTS = (_TABLE[name] for name in ("plain", "exceptions", "methods", "experts"))


def stored_dtype(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    """The dtype of what is not quantised; bf16 if the config does not say."""
    for fields in (config, inner):
        for name in ("dtype", "torch_dtype"):
            if isinstance(fields.get(name), str):
                return _PLAIN.get(fields[name].removeprefix("torch."), "bf16")
    return "bf16"


def weight_dtypes(
    model: Transformer, quantization: object, expert_dtype: object, dtype: str = "bf16"
) -> dict[str, str]:
    """The dtype of each part that is not stored in the model's own."""
    if quantization is None:
        return {}
    if not isinstance(quantization, Mapping):
        raise InputError(f"The quantization_config is {shorten(quantization)}, which is not an object.")
    parts = set(_TABLE["quantised"]) - _spared(quantization)
    stored = _method_dtype(quantization, dtype)
    dtypes = {part: stored for part in parameters(model.program().sections) if part in parts}
    if isinstance(expert_dtype, str) and "experts" in dtypes:
        if expert_dtype not in _EXPERTS:
            raise unknown("expert_dtype", expert_dtype, _EXPERTS)
        dtypes["experts"] = _EXPERTS[expert_dtype]
    # a part in the model's own dtype needs no entry
    return {part: kind for part, kind in dtypes.items() if kind != dtype}


def read_quantization(config: object) -> Quantization:
    """Blocks of scales, activations and KV cache, as a `quantization_config` has them.

    >>> read_quantization({"quant_method": "fp8", "weight_block_size": [128, 128]}).block
    128
    """
    if not isinstance(config, Mapping):
        return Quantization()
    group = _first_group(config)
    weights = group.get("weights")
    blocks = config.get("weight_block_size")  # DeepSeek's and Qwen's fp8: [128, 128]
    if not blocks and isinstance(weights, Mapping):
        blocks = weights.get("block_structure")  # compressed-tensors'
    block = 0
    if isinstance(blocks, list) and blocks and isinstance(blocks[0], int):
        block = blocks[0]
    # groups that name no activations leave them as they are
    activations = _kind(group.get("input_activations")) or ("bf16" if weights else "")
    kv = _kind(config.get("kv_cache_scheme"))
    if not kv and "fp8" in str(config.get("kv_cache_quant_algo")).lower():  # modelopt's
        kv = "fp8"
    return Quantization(block, activations, kv)


def _first_group(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of the `config_groups` of compressed-tensors and modelopt, or what Quark has for all layers."""
    groups, quark = quantization.get("config_groups"), quantization.get("global_quant_config")
    group = None
    if isinstance(groups, Mapping):
        group = next(iter(groups.values()), None)
    if group is None and isinstance(quark, Mapping):
        return {"weights": quark.get("weight"), "input_activations": quark.get("input_tensors")}
    if isinstance(group, Mapping):
        return group
    return {}


def _kind(scheme: object) -> str:
    """The dtype that bits and type of a scheme of compressed-tensors mean, or its name in one of Quark."""
    if not isinstance(scheme, Mapping):
        return ""
    if scheme.get("dtype") in _TABLE["quark"]:
        return _TABLE["quark"][scheme["dtype"]]
    bits, is_float = scheme.get("num_bits"), scheme.get("type") == "float"
    if bits not in (4, 8):
        return ""
    if not is_float:
        return f"int{bits}"
    # compressed-tensors' floats of 4 bits have NVFP4's scales
    return "nvfp4" if bits == 4 else "fp8"


def _spared(quantization: Mapping[str, Any]) -> set[str]:
    """Parts that the list of exceptions leaves alone."""
    listed: list[str] = []
    for name in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        value = quantization.get(name)
        if isinstance(value, list):
            listed += [str(entry).replace("\\", "") for entry in value]  # regular expressions escape their dots
    # Exceptions for a few named layers do not spare a part; patterns for all layers do, unless they mean a router.
    general = [entry for entry in listed if "*" in entry or not any(letter.isdigit() for letter in entry)]
    patterns = [entry for entry in general if not entry.rstrip("$*.").endswith(("gate", "router"))]
    spared: set[str] = set()
    for key, parts in _EXCEPTIONS.items():
        if any(key in entry for entry in patterns):
            spared.update(parts)
    return spared


def _method_dtype(quantization: Mapping[str, Any], dtype: str) -> str:
    method = quantization.get("quant_method") or quantization.get("quant_algo") or ""
    method = str(method).lower()
    if method in ("compressed-tensors", "modelopt", "quark"):
        return _from_groups(quantization)
    if method == "bitsandbytes" and quantization.get("load_in_4bit"):
        return "int4"
    if method in ("gptq", "awq") and quantization.get("bits") == 8:
        return "int8"
    if method in ("gguf", "mlx", "exl2"):
        return _nearest(str(quantization.get("file_type") or quantization.get("bits")))
    if method not in _METHODS:
        raise unknown("quant_method", method, [*_METHODS, "compressed-tensors", "modelopt", "quark"])
    return _METHODS.get(method, dtype)


def _nearest(text: str) -> str:
    """The dtype that comes nearest to a format of so many bits without being narrower, as for the types of GGUF.

    >>> _nearest("q4_k_m"), _nearest("UD-Q5_K_XL"), _nearest("2.4")
    ('int4', 'int8', 'int4')
    """
    bits = re.search(r"\d(\.\d+)?", text)
    if bits is None:
        raise InputError(f"The quantization_config has a format of {shorten(text)}, which names no bits.")
    # k-quants of four bits have some tensors of six, and scales besides: their files are a little larger than int4
    if float(bits[0]) <= 4:
        return "int4"
    return "int8"


def _from_groups(quantization: Mapping[str, Any]) -> str:
    """compressed-tensors, modelopt and quark: bits and kind of the first group's weights."""
    algorithm = str(quantization.get("quant_algo") or quantization.get("format") or "").lower()
    for kind in ("nvfp4", "mxfp4"):
        if kind in algorithm:
            return kind
    stored = _kind(_first_group(quantization).get("weights"))
    if stored:
        return stored
    if "fp8" in algorithm:
        return "fp8"
    raise InputError("The quantization_config does not say how many bits its weights have (config_groups.*.weights).")
