"""Which chips, formats and parallelism each serving engine supports: the table `legality.toml`.

>>> from dragonscale.physics.hardware import load_chip
>>> runs_on("trtllm", load_chip("h100")), runs_on("trtllm", load_chip("mi300x")), runs_on("vllm", load_chip("v100"))
(True, False, False)
>>> rules("vllm").expert, rules("sglang").expert
('world', 'divides')
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.architecture import architecture
from dragonscale.physics.stored_formats import GGUF_FILES, GROUPS, STORED, exl_bits, read_format, stored_bytes
from dragonscale.plan.settings import merge_groups, shipped_table
from dragonscale.serving.engine.engine import engines

_NOT_ENGINES = ("quantize", "quality")
"""Tables of the file that are about formats."""
NVIDIA = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
WIDE = ("bf16", "fp16")


class EngineLegality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an engine supports: formats by architecture, and how it may split a model."""

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
    layers_anyhow: bool = False
    """Whether it deals layers over any number of chips, one after the other, whether or not that number divides
    the heads."""
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
    sixteen: str = ""
    """The 16-bit format that it takes for weights and cache, whichever the checkpoint has (empty: the checkpoint's)."""
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
    """Whether the table has a row for an engine or for the engine that it is based on."""
    if engine in _tables() and engine not in _NOT_ENGINES:
        return True
    return engine in engines() and bool(engines()[engine].base) and has_row(engines()[engine].base)


def _row(name: str, chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """An engine's table merged over the one that it is `like`; `chain` are the engines that led here."""
    if name in chain:
        raise InputError(f"The engine {name!r} starts from itself in what it can run.")
    if name not in _tables():
        base = engines()[name].base if name in engines() else ""
        return _row(base or "generic", (*chain, name))
    table = dict(_tables()[name])
    if like := table.pop("like", ""):
        return merge_groups(_row(like, (*chain, name)), table)
    return table


@functools.cache
def rules(engine: str) -> EngineLegality:
    """What an engine supports; one without a row has that of its base, or of `generic`."""
    return msgspec.convert(_row(engine) | {"name": engine}, EngineLegality)


def read_pair(word: str) -> tuple[str, str]:
    """The formats (weights, matmuls) that an entry of the table stands for.

    >>> read_pair("fp8"), read_pair("fp8_block"), read_pair("int4/bf16")
    (('fp8', 'fp8'), ('fp8', 'fp8_block'), ('int4', 'bf16'))
    """
    weights, _, compute = word.partition("/")
    return weights.removesuffix("_block"), compute or weights


def table_entry(weights: str) -> str:
    """The name that the table has for weights of a format: EXL2 and EXL3 at any number of bits are one entry.

    >>> table_entry("exl2_4.5"), table_entry("q4_k_m")
    ('exl2', 'q4_k_m')
    """
    return weights.partition("_")[0] if exl_bits(weights) else weights


def pair_word(weights: str, compute: str) -> str:
    """The entry of the table for formats of weights and matmuls."""
    return compute if weights == compute.removesuffix("_block") else f"{weights}/{compute}"


def pair_words(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The entries for some pairs; those of files together, as there are dozens.

    >>> pair_words([("fp16", "fp16"), ("q4_0", "int8"), ("q8_0", "int8")])
    ['fp16', 'GGUF (q4_k_m, q8_0 …)']
    """
    words: dict[str, None] = {}
    for weights, compute in pairs:
        words["GGUF (q4_k_m, q8_0 …)" if weights in GGUF_FILES else pair_word(weights, compute)] = None
    return list(words)


def chip_has(chip: Chip, weights: str, compute: str) -> bool:
    """Whether a chip multiplies one format and can store the other; EXL2's and EXL3's blocks fit any."""
    if weights.startswith("exl"):
        return chip.format(compute) == "native"
    return chip.format(compute.removesuffix("_block")) == "native" and chip.format(weights) != ""


@functools.cache
def _pairs_of(engine: str, *keys: str) -> tuple[tuple[str, str], ...]:
    """The format pairs under the first of some keys that an engine's table has."""
    formats = rules(engine).formats
    entries = next((formats[key] for key in keys if key in formats), ())
    return tuple(itertools.chain.from_iterable(listed_pairs(entry) for entry in entries))


def listed_pairs(entry: str) -> Iterator[tuple[str, str]]:
    """The pairs that an entry stands for: `gguf/int8` is all formats of GGUF files, `mlx/fp16` all of MLX."""
    weights, compute = read_pair(entry)
    members = {"gguf": tuple(GGUF_FILES), "mlx": tuple(name for name in GROUPS if name.startswith("mlx"))}
    for name in members.get(weights, (weights,)):
        yield name, compute


def pairs(engine: str, chip: Chip) -> list[tuple[str, str]]:
    """Formats (weights, matmuls) that an engine runs on a chip, the usual ones first."""
    kind = architecture(chip)
    # Blackwell cards without NVLink are sm120, for which fewer kernels are built
    card = ("sm120",) if kind == "blackwell" and not chip.linked else ()
    return [pair for pair in _pairs_of(engine, *card, kind, "any") if chip_has(chip, *pair)]


def caches(engine: str, chip: Chip) -> tuple[str, ...]:
    """Formats of the KV cache that an engine supports on a chip."""
    by_architecture = rules(engine).kv
    dtypes = by_architecture.get(architecture(chip), by_architecture.get("any", ()))
    return tuple(dtype for dtype in dtypes if chip.format(dtype))


def runs_on(engine: str, chip: Chip) -> bool:
    """Whether an engine runs on a chip at all."""
    return bool(pairs(engine, chip))


def current_engines(chip: Chip) -> list[str]:
    """Today's public engines that run on a chip; `generic` if none does."""
    names = [name for name in _tables() if name not in _NOT_ENGINES and rules(name).current and name in engines()]
    return [name for name in names if runs_on(name, chip) and not name.endswith("-ep")] or ["generic"]


def server_of(engine: str) -> str:
    """The engine's name without its mode: forms of one server can pass caches to each other."""
    return engine.removesuffix("-ep")


def tried(chip: Chip) -> tuple[str, ...]:
    """The formats that `--quantize any` tries on a chip."""
    table = _tables()["quantize"]
    return tuple(table.get(architecture(chip), table["any"]))


def quality(dtype: str) -> str:
    """A sentence on what weights of a format cost in quality, with its source; empty for 16 bits."""
    return _tables()["quality"].get(dtype.removesuffix("_block"), "")


QUANTIZE = ("fp8", "int8", "int4", "nvfp4", "mxfp4", "any")


def read_quantize(text: str) -> str:
    """The checked value of `--quantize`.

    >>> read_quantize("Q4_K_M"), read_quantize("awq")
    ('q4_k_m', 'int4')
    """
    name = read_format(text)
    if name and name not in QUANTIZE and stored_bytes(name) is None:
        raise unknown("format for --quantize called", text, [*QUANTIZE, *STORED])
    return name
