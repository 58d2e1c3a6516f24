"""GGUF files: what a plan's weights are called in their names, and models read from names.

>>> read_gguf("unsloth/gpt-oss-20b-GGUF:F16"), read_gguf("/models/Meta-Llama-3-70B-Q4_K_M-00001-of-00002.gguf")
(('gpt-oss-20b', 'F16'), ('llama3-70b', 'Q4_K_M'))
>>> [kept_in(one) for one in ("Q4_K_M", "Q8_0", "BF16", "Q6_K", "MXFP4_MOE")]
['int4', 'int8', 'bf16', '', 'mxfp4']
"""

import re

from dragonscale.exports.model_names import preset_named
from dragonscale.exports.terms import load_terms
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.serving.checkpoint import own_formats
from dragonscale.serving.legality import pairs

TYPES = {"bf16": "BF16", "fp16": "F16", "int8": "Q8_0", "int4": "Q4_K_M", "mxfp4": "MXFP4_MOE"}
"""What `llama-quantize` calls a format; of the kinds of four bits the one that `-hf` takes unless it is told otherwise.
"""
_QUANT = re.compile(
    r"[-._](?:UD-|i1-)?(F32|F16|FP16|BF16|MXFP4_MOE|MXFP4|NVFP4|I?Q\d_(?:K_?)?(?:XXS|XS|S|M|L|XL|NL|0|1)?|I?Q\d_K|TQ\d_0)$",
    re.IGNORECASE,
)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def kept_in(quant: str) -> str:
    """The planner's format of a GGUF type; empty where it has none (kinds of 2, 3, 5 and 6 bits)."""
    word = quant.upper()
    if word.startswith(("Q4", "IQ4")):
        return "int4"
    return load_terms("llamacpp").tables["types"].get(word, "")


def read_gguf(name: str) -> tuple[str, str]:
    """The model and the type that a repository (`user/name-GGUF:Q4_K_M`) or a file stands for; an empty type is not
    said."""
    path, _, quant = name.partition(":") if "/" in name and not name.startswith("/") else (name, "", "")
    last = _SHARD.sub("", re.sub(r"\.gguf$", "", path.rstrip("/").rpartition("/")[2], flags=re.IGNORECASE))
    last = re.sub(r"[-_]gguf$", "", last, flags=re.IGNORECASE)
    found = _QUANT.search(last)
    if found:
        last, quant = last[: found.start()], quant or found[1]
    quant = re.sub(r"^(UD|i1)-", "", quant, flags=re.IGNORECASE).upper()
    tried = (last, last.partition("_")[2], re.sub(r"-(it|qat|chat|hf)+$", "", last), re.sub(r"-qat$", "", last))
    known = next((one for one in tried if one and is_preset(one)), "")
    return preset_named(known) if known else last, quant


def multiplied(chip: Chip, model: Transformer, weights: str) -> tuple[str, str]:
    """What llama.cpp multiplies weights of a format in, and the format of the attention's where it is another: Q8_0
    meets activations of 8 bits where the chip multiplies them, other narrow weights 16 bits; MXFP4 is for experts
    alone."""
    if weights in ("bf16", "fp16"):
        return weights, ""
    here, own = pairs("generic", chip), own_formats("generic", chip, model)
    wide = next((one for one in ("bf16", "fp16") if (one, one) in here), "bf16")
    compute = "int8" if weights == "int8" and ("int8", "int8") in here else wide
    return compute, own.attention if own is not None and own.weights == weights else ""
