"""Checkpoints for engines that take their formats from the checkpoint: what a plan's weights are called, and read from a name.

TensorRT-LLM quantises nothing when it loads a model: its formats are those of the checkpoint. Where a plan has the model's own, the
checkpoint is the model's repository; otherwise it is a folder whose name ends in the format as TensorRT Model Optimizer and
NVIDIA's repositories call it, to be made before.

>>> from dragonscale.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.serving.plan import ServingPlan
>>> llama, chip = load_model("llama3-70b"), parse_slice("h100:8").chip
>>> checkpoint_word("trtllm", chip, llama, "llama3-70b", ServingPlan(8))
'meta-llama/Meta-Llama-3-70B'
>>> checkpoint_word("trtllm", chip, llama, "llama3-70b", ServingPlan(8, weights="fp8", compute="fp8"))
'Meta-Llama-3-70B-FP8'
>>> read_name("nvidia/Meta-Llama-3-70B-FP8")
('llama3-70b', 'FP8', True)
"""

from dataclasses import dataclass, replace

from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.hardware import Chip
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.serving.checkpoint import own_formats, stored_in
from dragonscale.serving.legality import WIDE
from dragonscale.serving.plan import ServingPlan

_PAIRS = {
    "FP8": ("fp8", "fp8"), "FP8-BLOCK": ("fp8", "fp8_block"), "W4A16-AWQ": ("int4", "bf16"), "W4A8-AWQ": ("int4", "fp8"),
    "NVFP4": ("nvfp4", "nvfp4"), "MXFP8": ("mxfp8", "mxfp8"), "W4A16-MXFP4": ("mxfp4", "bf16"), "W4A8-MXFP4-MXFP8": ("mxfp4", "mxfp8"),
    "MXFP4": ("mxfp4", "mxfp4"), "BF16": ("bf16", "bf16"), "FP16": ("fp16", "fp16"),
}  # fmt: skip
"""What a checkpoint's name ends in, and the weights and matmuls that it means."""
_ALSO = {"FP4": "NVFP4", "AWQ": "W4A16-AWQ", "INT4-AWQ": "W4A16-AWQ", "NVFP4-V2": "NVFP4", "FP4-V2": "NVFP4"}
_ATTENTION = "-ATTENTION-"
_QFORMATS = {"FP8": "fp8", "W4A16-AWQ": "int4_awq", "W4A8-AWQ": "w4a8_awq", "NVFP4": "nvfp4", "FP8-BLOCK": "fp8_pb_wo"}
"""What Model Optimizer's `hf_ptq.py --qformat` calls them."""


@dataclass(frozen=True)
class NamedFormats:
    """The formats that a checkpoint's name stands for, and the model."""

    model: str
    weights: str
    compute: str
    attention: str = ""
    kv: str = ""
    """The cache that the checkpoint asks for; empty where it says nothing."""


def own_or(engine: str, chip: Chip, model: Transformer, plan: ServingPlan) -> ServingPlan:
    """The plan as a checkpoint of its weights runs: in the model's own format, matmuls and attention are what that checkpoint and the
    engine have; nobody makes it again for others."""
    own = own_formats(engine, chip, model)
    if own is None or own.weights != plan.weights or plan.weights in WIDE:
        return plan
    return replace(plan, compute=own.compute, attention=own.attention)


def checkpoint_word(engine: str, chip: Chip, model: Transformer, name: str, plan: ServingPlan) -> str:
    """What an engine is given for a model in a plan's formats: its repository, or the folder of a quantised one."""
    own = own_formats(engine, chip, model)
    repo = hub_id(name)
    if own is not None and (own.weights == plan.weights or (own.weights in WIDE and plan.weights in WIDE)):
        return repo
    pair = (plan.weights, plan.compute)
    ending = next((word for word, one in _PAIRS.items() if one == pair), f"{plan.weights}-{plan.compute}".upper())
    wide = f"{_ATTENTION}{plan.attention.upper()}" if plan.attention else ""
    return f"{repo.rstrip('/').rpartition('/')[2]}-{ending}{wide}"


def how_made(word: str) -> str:
    """How a folder of a quantised checkpoint is made; empty of a repository."""
    if "/" in word:
        return ""
    ending = _ending(word.partition(_ATTENTION)[0])[1]
    by = f" by Model Optimizer's hf_ptq.py --qformat {_QFORMATS[ending]}" if ending in _QFORMATS else ""
    return f"{word} is a checkpoint in that format, to be made{by}: TensorRT-LLM does not quantise when it loads one."


def _ending(name: str) -> tuple[str, str]:
    """A name without the format that it ends in, and the format; the longest that fits."""
    upper = name.upper()
    for word in sorted((*_PAIRS, *_ALSO), key=len, reverse=True):
        if upper.endswith(f"-{word}") and len(name) > len(word) + 1:
            return name[: -len(word) - 1], _ALSO.get(word, word)
    return name, ""


def read_name(word: str) -> tuple[str, str, bool]:
    """The model that a checkpoint's name stands for, the format that it ends in (empty for the model's own), and whether it is one
    of NVIDIA's own repositories, which ask for an fp8 cache."""
    whole = preset_named(word)
    base, ending = _ending(word.partition(_ATTENTION)[0])
    if is_preset(word) and (not ending or hub_id(whole) == word):
        return whole, "", False
    for name in (base, *_folders(base)):
        if ending and is_preset(name):
            return preset_named(name), ending, word.lower().startswith("nvidia/")
    named = next((name for name in (word, *_folders(word)) if is_preset(name)), "")
    return preset_named(named) if named else whole, "", False


def _folders(path: str) -> list[str]:
    """Names that the last part of a path may be: a repository's own, or that of the Hub's cache (`models--meta-llama--Llama-3-70B`)."""
    last = path.rstrip("/").rpartition("/")[2]
    return [last, last.removeprefix("models--").replace("--", "/")]


def formats_named(engine: str, chip: Chip | None, word: str, given: str = "") -> NamedFormats:
    """The formats of a checkpoint by its name; `given` is the model that the user names instead."""
    model, ending, theirs = read_name(word)
    model = given or model
    attention = word.partition(_ATTENTION)[2].lower()
    if ending:
        weights, compute = _PAIRS[ending]
        if chip is not None and ending == "FP8" and theirs:
            own = own_formats(engine, chip, load_model(model))
            compute = own.compute if own is not None and own.weights == "fp8" else compute
        return NamedFormats(model, weights, compute, attention, "fp8" if theirs and ending in ("FP8", "NVFP4") else "")
    loaded = load_model(model)
    own = own_formats(engine, chip, loaded) if chip is not None else None
    if own is None:
        stored = stored_in(loaded)
        return NamedFormats(model, stored, stored)
    return NamedFormats(model, own.weights, own.compute, own.attention)
