"""The table of what each serving engine runs: on which chips, in which formats, over which widths (`legality.toml`).

>>> from dragonscale.physics.hardware import load_chip
>>> runs_on("trtllm", load_chip("h100")), runs_on("trtllm", load_chip("mi300x")), runs_on("vllm", load_chip("v100"))
(True, False, False)
>>> rules("vllm").expert, rules("sglang").expert
('world', 'divides')
"""

import functools
from typing import Any

import msgspec

from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.plan.settings import merge_groups, shipped_table
from dragonscale.serving.engine.engine import engines

_OTHER = ("quantize", "quality")
"""Tables of the file that are no engine."""
NVIDIA = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
WIDE = ("bf16", "fp16")


class EngineLegality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an engine takes: formats by architecture, and how it may split a model."""

    name: str
    why: str
    runs: str
    """The chips it runs on, in words."""
    formats: dict[str, tuple[str, ...]]
    kv: dict[str, tuple[str, ...]]
    expert: str
    """`world`: experts are dealt over all ranks or over none; `divides`: over any part of them."""
    current: bool = False
    """Whether it is one of today's public engines, to be named in place of another."""
    uneven: bool = False
    """Whether ranks may differ by an expert."""
    redundant: bool = False
    """Whether experts are copied until they divide over the ranks."""
    pipe: bool = True
    data: bool = True
    width: bool = False
    context: bool = False
    spread: tuple[str, ...] = ("copy",)
    block: int = 0
    """What each rank's part of block-scaled weights must be a multiple of (0: nothing)."""
    group: int = 0
    """Inputs of int4 weights that share a scale, of which each rank must have whole groups (0: nothing)."""
    marlin: bool = False
    """Whether int4 weights take Marlin's shapes on NVIDIA's GPUs."""
    wide: bool = False
    """Whether it is data-parallel attention with experts over all ranks and nothing else (data > 1, expert = world)."""
    wide_form: str = ""
    """The form of the engine that runs wide expert parallelism over several servers."""
    mtp: bool = False
    """Whether it drafts with the multi-token modules of a checkpoint."""
    pools: bool = False
    """Whether it serves prefill and decode on replicas of their own."""
    latent_data: bool = False
    """Whether models with latent attention need attention data parallelism."""
    upcasts: bool = False
    """Whether a checkpoint in a format that it does not have there is widened to 16 bits when it is loaded."""
    kv_with: dict[str, str] = {}
    """The KV cache that goes with weights of a format, where it is not the 16-bit one."""
    kv_sparse: dict[str, str] = {}
    """The KV cache that it takes by itself for sparse attention behind an indexer, by architecture."""
    archived: str = ""
    instead: str = ""
    because: dict[str, str] = {}


def _tables() -> dict[str, dict[str, Any]]:
    return shipped_table("serving.engine", "legality.toml")


def has_row(engine: str) -> bool:
    """Whether the table has a row for an engine, its own or that of the engine that it is based on."""
    if engine in _tables() and engine not in _OTHER:
        return True
    return engine in engines() and bool(engines()[engine].base) and has_row(engines()[engine].base)


def _row(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    if name in seen:
        raise InputError(f"The engine {name!r} starts from itself in what it can run.")
    if name not in _tables():
        base = engines()[name].base if name in engines() else ""
        return _row(base or "generic", (*seen, name))
    table = dict(_tables()[name])
    like = table.pop("like", "")
    return merge_groups(_row(like, (*seen, name)), table) if like else table


@functools.cache
def rules(engine: str) -> EngineLegality:
    """The row of an engine; one without any has that of its base, or of `generic`."""
    return msgspec.convert(_row(engine) | {"name": engine}, EngineLegality)


def architecture(chip: Chip) -> str:
    """The architecture of a chip: what its file says, or else the one whose formats it has.

    >>> from dragonscale.physics.hardware import load_chip
    >>> architecture(load_chip("gb200")), architecture(load_chip("v6e"))
    ('blackwell', 'tpu-v6e')
    """
    if chip.architecture:
        return chip.architecture
    if chip.kind == "gpu":
        has = ((chip.format("nvfp4"), "blackwell"), (chip.format("fp8"), "hopper"), (chip.format("bf16"), "ampere"))
        return next((name for held, name in has if held == "native"), "volta")
    return "tpu7x" if chip.kind == "tpu" and chip.format("fp8") == "native" else "tpu-v5e" if chip.kind == "tpu" else ""


def read_pair(word: str) -> tuple[str, str]:
    """The weights and the matmuls that a word of the table means.

    >>> read_pair("fp8"), read_pair("fp8_block"), read_pair("int4/bf16")
    (('fp8', 'fp8'), ('fp8', 'fp8_block'), ('int4', 'bf16'))
    """
    weights, _, compute = word.partition("/")
    return weights.removesuffix("_block"), compute or weights


def pair_word(weights: str, compute: str) -> str:
    """The word of the table for weights and matmuls."""
    return compute if weights == compute.removesuffix("_block") else f"{weights}/{compute}"


def chip_has(chip: Chip, weights: str, compute: str) -> bool:
    """Whether a chip multiplies one format and can store the other."""
    return chip.format(compute.removesuffix("_block")) == "native" and chip.format(weights) != ""


@functools.cache
def _here(engine: str, *places: str) -> tuple[tuple[str, str], ...]:
    formats = rules(engine).formats
    return tuple(read_pair(word) for word in next((formats[place] for place in places if place in formats), ()))


def pairs(engine: str, chip: Chip) -> list[tuple[str, str]]:
    """Weights and matmuls that an engine runs on a chip, the usual ones first."""
    place = architecture(chip)
    small = ("sm120",) if place == "blackwell" and not chip.linked else ()
    return [pair for pair in _here(engine, *small, place, "any") if chip_has(chip, *pair)]


def caches(engine: str, chip: Chip) -> tuple[str, ...]:
    """Formats of the KV cache that an engine has on a chip."""
    found = rules(engine).kv
    return tuple(one for one in found.get(architecture(chip), found.get("any", ())) if chip.format(one))


def runs_on(engine: str, chip: Chip) -> bool:
    """Whether an engine runs on a chip at all."""
    return bool(pairs(engine, chip))


def current_engines(chip: Chip) -> list[str]:
    """Today's public engines that run on a chip, of those that are known; `generic` where none does."""
    names = [name for name in _tables() if name not in _OTHER and rules(name).current and name in engines()]
    return [name for name in names if runs_on(name, chip) and not name.endswith("-ep")] or ["generic"]


def server_of(engine: str) -> str:
    """The software that an engine is a form of: replicas of one pass caches to each other."""
    return engine.removesuffix("-ep")


def tried(chip: Chip) -> tuple[str, ...]:
    """The formats that `--quantize any` tries on a chip."""
    table = _tables()["quantize"]
    return tuple(table.get(architecture(chip), table["any"]))


def quality(dtype: str) -> str:
    """What weights of a format cost in quality, in a sentence with its source; empty for 16 bits."""
    return _tables()["quality"].get(dtype.removesuffix("_block"), "")


QUANTIZE = ("fp8", "int8", "int4", "nvfp4", "mxfp4", "any")


def read_quantize(text: str) -> str:
    """`--quantize`, checked."""
    if text and text not in QUANTIZE:
        raise unknown("format for --quantize called", text, QUANTIZE)
    return text
