"""MaxText's YAML files and command lines, read as plans: `python3 -m MaxText.train base.yml key=value …`, by its older
and newer names.

Words of the command line win over the file that they name, and both over `base.yml`. xpk's `--device-type` and
`--num-slices` say the slice; otherwise it is said by `--on`, or every mesh axis is.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported, Source, safe_yaml, slice_given, slice_word, training_file
from dragonscale.exports.keys import load_keys, options, truth, whole
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.maxtext import maxtext_words as maxtext
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import Slice, load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.training.plan.plan import Plan

TERMS = load_terms("maxtext")

_PROGRAMS = ("train", "train.py", "train_compile", "train_compile.py")
_READ = frozenset((*TERMS.lists["read"], *maxtext.SIZES.values(), *maxtext.TENSORS))
_CHANGES = TERMS.lists["changes"]


def _command(source: Source) -> ShellCommand | None:
    for command in source.commands:
        for word in command.words:
            last = word.replace("/", ".").removesuffix(".py").rsplit(".", 1)[-1]
            if last in _PROGRAMS and "maxtext" in word.lower():
                return command
    return None


def recognises(source: Source) -> bool:
    table = source.table
    if table is None:
        return _command(source) is not None
    mesh = any(name.startswith(("ici_", "dcn_")) and name.endswith("_parallelism") for name in table)
    own = {"per_device_batch_size", "max_target_length", "remat_policy", "base_config", "model_name", "base_emb_dim"}
    return mesh or (("per_device_batch_size" in table or "max_target_length" in table) and len(own & set(table)) >= 2)


def _config(source: Source) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a file says, and what a command line says over it."""
    if source.table is not None:
        return source.table, {}
    command = _command(source)
    assert command is not None
    words = {name[2:].lower(): _value(value) for name, value in command.env.items() if name.startswith("M_")}
    pairs = [word.partition("=") for word in command.words if "=" in word and not word.startswith("-")]
    words |= {name: _value(value) for name, _, value in pairs}
    file = next((word for word in command.words if word.endswith((".yml", ".yaml")) and "=" not in word), "")
    found = source.beside(file)
    return (found.table if found is not None else None) or {}, words


def _value(text: str) -> Any:
    """A word's value, as YAML reads it; what is no YAML (a glob, a date that is none) is text."""
    found = safe_yaml(text)
    return found[0] if found else text or None


def _launched(source: Source) -> str:
    """The slice that xpk is asked for."""
    if source.table is not None:
        return ""
    flags: dict[str, str] = {}
    for command in source.commands:
        if "xpk" in " ".join(command.words[:3]):
            flags |= {name.replace("_", "-"): "".join(values[:1]) for name, values in options(command.words)}
    kind, slices = flags.get("device-type") or flags.get("tpu-type", ""), flags.get("num-slices", "1")
    if not kind:
        return ""
    name, _, shape = kind.partition("-")
    return (f"{name}:{shape}" if "x" in shape else kind) + (f"*{slices}" if slices not in ("", "1") else "")


def read(source: Source, given: Given) -> Imported:
    """The plan of a YAML file or a command."""
    (own, words), table = _config(source), load_keys("maxtext")
    every = {**own, **words}
    named = slice_word(given.slice, source.kept_word("slice") or _launched(source))
    given = Given(given.model, _sized(named, every))
    piece = slice_given(source, given)
    axes = maxtext.degrees(every, piece, source.shown)
    model = given.model or maxtext.model_of(own, words, source.kept_word("model"))
    if not model:
        raise source.needs("a model that is known here", "it by --model")
    remat, note = maxtext.remat_of(every)
    seq = _count(every, "max_target_length", 2048)
    plan, batch, notes = _plan(every, axes, piece, remat)
    plan = replace(plan, etp=plan.tensor > 1 and maxtext.experts_of(model_fields(model)) > 0)
    stack = source.kept_word("stack") or ("maxtext" if every.get("hardware", "tpu") == "tpu" else "xla-gpu")
    steps = max(_count(every, "steps", -1), 0)
    file = training_file(source, given, plan, batch, seq, model, stack, steps)
    if "capacity_factor" in every or "sparse_matmul" in every:
        factor = _number(every, "capacity_factor", -1)
        dense = factor > 0 and not _truth(every.get("sparse_matmul", True))
        file = replace(file, capacity=factor if dense else 0.0)
    left = [name for name in every if name not in _READ and not name.endswith("_parallelism")]
    unknown = [name for name in every if table.known(name) is None and not name.endswith("_parallelism")]
    usual = {name: (table.known(name) or table.keys["dtype"]).default for name in _CHANGES}
    changes = [name for name in _CHANGES if name in every and every[name] != usual[name]]
    changes += ["weight_dtype"] if str(every.get("weight_dtype", "float32")) != "float32" else []
    ignored = [name for name in left if name not in unknown and name not in changes]
    told = tuple(filter(None, (note, *notes)))
    return Imported("maxtext", table.version, file, told, tuple(ignored), tuple(changes), tuple(unknown))


def _sized(text: str, every: Mapping[str, Any]) -> str:
    """The slice of a chip that is named alone, where the mesh says every axis."""
    sizes: dict[str, list[Any]] = {"ici_": [], "dcn_": []}
    for name, value in every.items():
        if name[:4] in sizes and name.endswith("_parallelism"):
            sizes[name[:4]].append(value)
    said = [size for own in sizes.values() for size in own]
    settled = all(isinstance(size, int) and size > 0 for size in said)
    if not is_chip(text) or "ici_fsdp_parallelism" not in every or not settled:
        return text
    chip, inside, slices = load_chip(text), math.prod(sizes["ici_"]), math.prod(sizes["dcn_"])
    if chip.kind != "tpu":
        return f"{text}:{inside * slices}"
    alone = parse_slice(f"{max(inside // maxtext.devices_per_chip(chip), 1)}x{text}")
    return f"{alone}*{slices}" if slices > 1 else str(alone)


def _plan(
    every: Mapping[str, Any], axes: dict[str, int], piece: Slice | None, remat: str
) -> tuple[Plan, int, list[str]]:
    """The plan, the batch in sequences, and notes."""
    notes: list[str] = []
    chips = math.prod(axes.values())
    devices = chips * (maxtext.devices_per_chip(piece.chip) if piece is not None else 1)
    passes = _count(every, "gradient_accumulation_steps", 1)
    each = _number(every, "per_device_batch_size", 12.0)
    one = round(each * devices)  # sequences of a forward pass
    if one < 1 or abs(one - each * devices) > 1e-6 * one:
        raise TERMS.wrong("whole_batch", each=each, devices=devices, sequences=each * devices)
    pieces = 1
    if axes["pipe"] > 1:
        pieces = _count(every, "num_pipeline_microbatches", -1)
        pieces = axes["pipe"] if pieces == -1 else pieces
        told = {"pipeline_passes": passes > 1}
        notes += TERMS.notes(told, passes=passes, pieces=pieces, microbatches=passes * pieces)
    ranks = axes["data"] * axes["fsdp"] * axes["expert"]
    if one % (ranks * pieces):
        stages = f" x {pieces} microbatches" if pieces > 1 else ""
        raise TERMS.wrong("batch_ranks", each=each, one=one, ranks=ranks, stages=stages)
    zero = 3
    if _truth(every.get("shard_optimizer_over_data")) and axes["fsdp"] == 1:
        axes, zero = {**axes, "fsdp": axes["data"], "data": 1}, 1
    repeats = _repeats(every, axes["pipe"]) if axes["pipe"] > 1 else 1
    strategy = str(every.get("context_parallel_strategy", "all_gather")).lower()
    notes += TERMS.notes({"usp": strategy == "usp"})
    ways: dict[str, Any] = axes
    plan = Plan(
        **ways,
        microbatch=one // (ranks * pieces),
        virtual=repeats,
        remat=remat,
        zero=zero,
        dtype=maxtext.dtype_of(every),
        schedule="1f1b" if axes["pipe"] == 1 else "interleaved" if repeats > 1 else "gpipe",
        context_by=TERMS.tables["strategies_read"].get(strategy, "gather") if axes["context"] > 1 else "gather",
        optimizer=_optimizer(every, notes),
        offload="optimizer" if _truth(every.get("optimizer_memory_host_offload")) else "none",
    )
    return plan, one * passes, notes


def _repeats(every: Mapping[str, Any], stages: int) -> int:
    """Rounds of a circular pipeline: said, or what the layers make of it."""
    said = _count(every, "num_pipeline_repeats", -1)
    if said != -1:
        return said
    layers = _count(every, "base_num_decoder_layers", 0) or _layers(str(every.get("model_name", "")))
    return max(layers // (stages * _count(every, "num_layers_per_pipeline_stage", 1)), 1) if layers else 1


def _layers(name: str) -> int:
    model = maxtext.model_of({"model_name": name}, {})
    return int(model_fields(model)["num_hidden_layers"]) // maxtext.merged_layers({"model_name": name}) if model else 0


def _optimizer(every: Mapping[str, Any], notes: list[str]) -> str:
    kind = str(every.get("opt_type", "adamw"))
    known = TERMS.tables["optimizers_read"]
    if kind not in known:
        raise InputError(f"opt_type is {kind}; MaxText has {', '.join(known)}.")
    if known[kind] == "adam" and str(every.get("mu_dtype") or "") == "bfloat16":
        notes.append(TERMS.say("first_moment"))
        return "adam-bf16"
    return known[kind]


def _truth(value: Any) -> bool:
    return value is not None and truth(value, "A switch of MaxText")


_OPEN = ("steps", "num_pipeline_repeats", "num_pipeline_microbatches")


def _count(every: Mapping[str, Any], name: str, usual: int) -> int:
    """A whole number, at least 1; -1 leaves some open."""
    if every.get(name) is None or (name in _OPEN and str(every[name]) == "-1"):
        return usual
    return whole(every[name], name)


def _number(every: Mapping[str, Any], name: str, usual: float) -> float:
    value = every.get(name, usual)
    try:
        number = float(str(value).replace("_", "")) if not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number > 1e12:
        raise InputError(f"{name} is {value}; write a number.")
    return number
