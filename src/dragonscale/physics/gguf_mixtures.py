"""Which type a GGUF file of some kind stores a tensor in, averaged over the layers.

`llama-quantize` stores most tensors of a `q4_k_m` file in `q4_k`, and half of the values' and the FFN's output
projections in `q6_k`. The rules are data (`gguf_mixtures.toml`); from them follow bytes to the block.

>>> dims = {"d": 4096, "n": 32, "k": 32, "g": 128, "f": 11008}
>>> [8 * tensor_bytes("q4_k_m", name, dims, layers=32) for name in ("Wq", "Wd", "W_head")]
[4.5, 5.53125, 6.5625]
"""

import math
from collections.abc import Mapping

from dragonscale.physics.numbers import Number, first_number
from dragonscale.physics.stored_formats import BLOCKS, GGUF_FILES
from dragonscale.tables import beside

_FILE = beside(__file__, "gguf_mixtures.toml")
_WIDE_HEAD = "q6_k"
"""The type of the output matrix where a file's row says no other."""
_KEPT_BYTES = 4.0
"""Bytes of norms, routers and biases, which are never quantised."""
_BIG_LAYERS = 80


def tensor_bytes(file: str, weight: str, dims: Mapping[str, int], layers: Number, tied: bool = False) -> float:
    """Bytes of a weight of a tensor, on average over `layers`, in a GGUF file of a type.

    `weight` is the name of the tensor in the model's program, `dims` the sizes of its section; `tied` says that the
    embedding is the output matrix too.
    """
    tensor = _FILE["tensors"].get(weight)
    if tensor is None and not weight.startswith("W"):
        return _KEPT_BYTES
    row, tensor_name = 1, ""
    if tensor is not None:
        row, tensor_name = math.prod(dims.get(dim, 1) for dim in tensor["row"]), tensor["name"]
    # which layers are stored wider is a matter of whole layers, also where their number has a letter
    count = round(first_number(layers))
    types = _types(file, tensor_name, dims, count, tied)
    return sum(share * _block_bytes(name, row) for name, share in types.items())


def _types(file: str, tensor: str, dims: Mapping[str, int], layers: int, tied: bool) -> dict[str, float]:
    """The types of a tensor with the fraction of the layers that have it in each."""
    row = _FILE["files"][file]
    main = row["type"]
    if tensor == "output" or (tensor == "token_embd" and tied):
        return {row.get("head", _WIDE_HEAD): 1.0}
    if tensor == "token_embd":
        return {row.get("embed", main): 1.0}
    if "others" in row and "e" not in dims:
        return {row["others"]: 1.0}
    if "others" in row and not tensor.startswith("ffn"):
        return {row["others"]: 1.0}
    special = _special(file, tensor, dims)
    if special:
        return {special: 1.0}

    types = {main: 1.0}
    grouped = dims.get("n", 1) >= 4 * dims.get("k", 1)
    for rule in row.get("tensors", ()):
        if rule["name"] != tensor or (rule.get("heads") == "grouped" and not grouped):
            continue
        share = _share(rule.get("layers", ""), layers)
        types = {name: part * (1 - share) for name, part in types.items()}
        types[rule["type"]] = types.get(rule["type"], 0.0) + share
    if layers == _BIG_LAYERS and file not in _FILE["eight_experts"]["low"]:
        wider = _FILE["layers80"].get(tensor, {})
        return {wider.get(name, name): part for name, part in types.items()}
    return types


def _special(file: str, tensor: str, dims: Mapping[str, int]) -> str:
    """The type of a tensor of attention in models with eight experts; empty for other tensors and models."""
    rules = _FILE["eight_experts"]
    if dims.get("e") != 8 or file not in GGUF_FILES or file in ("q8_0", "mxfp4_moe"):
        return ""
    if file in rules["low"]:
        return rules["below_three_bits"].get(tensor, "")
    if tensor == "attn_output":
        return "q5_k" if file in rules["wide_output"] else ""
    return rules["other"].get(tensor, "")


def _share(layers: str, count: int) -> float:
    """The fraction of so many layers that a rule is for."""
    eighth = count // 8
    match layers:
        case "first8":
            return eighth / count
        case "first16":
            return (count // 16) / count
        case "inner":
            return (7 * count // 8 - eighth) / count
        case "more":
            chosen = (i < eighth or i >= 7 * count // 8 or (i - eighth) % 3 == 2 for i in range(count))
            return sum(chosen) / count
        case _:
            return 1.0


def _block_bytes(name: str, row: int) -> float:
    """Bytes of a weight in a type, or in the one that it falls back to where a row is no whole number of blocks."""
    elements, size = BLOCKS[name]
    if row % elements:
        elements, size = BLOCKS[_FILE["fallback"].get(name, "f16")]
    return size / elements
