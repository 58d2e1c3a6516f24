"""DeepSpeed's configs and commands, read as plans: a `ds_config.json` alone, or `deepspeed … script.py --deepspeed
ds_config.json …`.

Programs that call DeepSpeed have arguments of their own; those that most of them share (the Trainer's, and a few
spellings of the length of a sequence and of the model's name) are read. `"auto"` in a config stands for the Trainer's
argument of that meaning.

>>> flags_of(["train.py", "--bf16", "--max_seq_len", "512", "--deepspeed=ds.json"])
{'bf16': 'true', 'max_seq_len': '512', 'deepspeed': 'ds.json'}
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.exports.imported import Given, Imported, needs, run_tokens, slice_counted, training_file
from dragonscale.exports.keys import KeyTable, load_keys
from dragonscale.exports.model_names import hub_id, model_of_sizes, preset_named
from dragonscale.exports.shell import ShellCommand, documents
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.deepspeed.plan import (
    dtype_of,
    is_on,
    number_or_zero,
    part,
    plan_of,
    stage_of,
    zero_part,
)
from dragonscale.exports.values import whole
from dragonscale.models.catalogue import is_preset

TERMS = load_terms("deepspeed")

_CONFIGS = ("deepspeed", "deepspeed_config", "deepspeed-config", "ds_config", "deepspeed_config_file", "ds_config_path")
_LENGTHS = TERMS.lists["lengths"]
_NAMES = ("model_name_or_path", "config_name", "model_name", "model", "model_id", "base_model")
_OWN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})
_UNPLANNED = TERMS.lists["unplanned"]
_CHAT = "DeepSpeed-Chat"
"""Marks a config that its scripts make of their own flags (`--zero_stage`, `--dtype`)."""


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """The flags of any program, by name without dashes; one without a value is true."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and at < len(words) and not words[at].startswith("--"):
                value = words[at]
                at += 1
            found[name] = value or "true"
    return found


def _command(source: Source) -> ShellCommand | None:
    for command in source.commands:
        if command.launcher == "deepspeed":
            return command
        given = flags_of(command.words)
        if any(given.get(name, "").endswith(".json") for name in _CONFIGS):
            return command
    return None


def recognises(source: Source) -> bool:
    table = source.table
    if table is None:
        return _command(source) is not None
    return bool(_OWN & set(table)) and not {"compute_environment", "distributed_type"} & set(table)


def read(source: Source, given: Given) -> Imported:
    """The plan of a config or a command."""
    table = load_keys("deepspeed")
    command = None if source.table is not None else _command(source)
    flags = flags_of(command.words) if command is not None else {}
    config = dict(source.table or {}) if command is None else _config_of(source, command, flags)
    world = command.processes if command is not None else 0
    piece = slice_counted(source, given, world)
    chips = piece.chips if piece is not None else world
    if not chips:
        raise needs("how many GPUs there are", "the slice by --on h100:8", source)
    if world and chips != world:
        raise TERMS.wrong("processes", source=source, world=world, piece=piece, chips=chips)
    model = given.model or _model(source, flags)
    env = command.env if command is not None else {}
    plan, batch = plan_of(config, flags, env, chips)
    seq = next((whole(flags[name], name) for name in _LENGTHS if name in flags), 0)
    given = Given(given.model, str(piece) if piece is not None else given.slice)
    file = training_file(source, given, plan, batch, seq, model, "deepspeed")
    file = replace(file, tokens=_tokens(flags, batch * seq, file.tokens))
    chat = bool(config.pop(_CHAT, False))
    unplanned = _unplanned(config, flags)
    unknown = [name for name in _dotted(config) if not _known(table, name)]
    ignored = [f"--{name}" for name in flags if name not in (*_CONFIGS, *_LENGTHS, *_NAMES, *_READ)]
    notes = [] if model else ["The config does not say the model; give it by --model."]
    said = dtype_of(config, flags)[1]
    if chat:
        said = (
            f"DeepSpeed-Chat's scripts take --dtype fp16 where none is said: {plan.dtype} is read."
            if "dtype" not in flags
            else ""
        )
    notes += [said] if said else []
    notes += (
        ["mics_shard_size was removed in DeepSpeed 0.19; its groups are read as fsdp."]
        if "mics_shard_size" in zero_part(config)
        else []
    )
    return Imported("deepspeed", table.version, file, tuple(notes), tuple(ignored), tuple(unplanned), tuple(unknown))


_READ = TERMS.lists["read"]


def _config_of(source: Source, command: ShellCommand, flags: Mapping[str, str]) -> dict[str, Any]:
    """The config that a command names: beside it, or written by the script itself."""
    name = next((flags[one] for one in _CONFIGS if flags.get(one, "true") != "true"), "")
    found = source.beside(name)
    if found is not None and found.table is not None:
        return dict(found.table)
    for _, body in documents(source.text):
        text = re.sub(r"\$\{?(\w+)\}?", lambda match: command.env.get(match[1], '"auto"'), body)
        try:
            table = json.loads(text)
        except ValueError:
            continue
        if isinstance(table, dict) and _OWN & set(table):
            return table
    if name and "zero_stage" not in flags:
        raise TERMS.wrong("config_missing", source=source, name=name)
    stage = {"stage": stage_of(flags.get("zero_stage", "0") or 0)}
    if "zero_stage" in flags and not {"bf16", "fp16"} & set(flags):
        kind = {"bfloat16": "bf16", "bf16": "bf16"}.get(flags.get("dtype", "fp16"), "fp16")
        return {_CHAT: True, "zero_optimization": stage, kind: {"enabled": True}}
    return {"zero_optimization": stage, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}


def _model(source: Source, flags: Mapping[str, str]) -> str:
    kept = str(source.kept.get("model", ""))
    for name in _NAMES:
        if name in flags:
            found = source.beside(flags[name]) if flags[name].endswith(".json") else None
            if found is not None and found.table is not None:
                made = model_of_sizes(found.table, kept.partition("?")[0])
                return (
                    kept
                    if kept and made.partition("?")[0] == kept.partition("?")[0] and ("?" in made) == ("?" in kept)
                    else made
                )
            return (
                kept
                if kept and hub_id(kept) == flags[name]
                else preset_named(flags[name])
                if is_preset(flags[name])
                else flags[name]
            )
    return kept


def _unplanned(config: Mapping[str, Any], flags: Mapping[str, str]) -> list[str]:
    zero = zero_part(config)
    found = [
        f"zero_optimization.{name}"
        for name in _UNPLANNED
        if zero.get(name) not in (None, False, 1, {}) and not _nothing(zero.get(name))
    ]
    kind = str(part(config, "optimizer").get("type", "adamw")).lower()
    found += [f"optimizer.type={kind}"] if kind not in ("adam", "adamw", "muon", "sgd") else []
    bf16 = part(config, "bf16")
    found += [
        f"bf16.{name}" for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states") if is_on(bf16.get(name))
    ]
    return found + [
        f"--{name}"
        for name in ("use_liger_kernel", "lora_dim", "lora_r", "use_lora", "use_peft")
        if is_on(flags.get(name)) or number_or_zero(flags.get(name, 0)) > 1
    ]


def _nothing(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("device", "")) == "none"


def _dotted(config: Mapping[str, Any], path: str = "") -> Iterable[str]:
    for name, value in config.items():
        if isinstance(value, Mapping) and f"{path}{name}" not in (
            "optimizer.params",
            "scheduler",
            "zero_optimization.zenflow",
            "comms_logger",
        ):
            yield from _dotted(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


_SECTIONS = TERMS.lists["sections"]


def _known(table: KeyTable, name: str) -> bool:
    """Whether DeepSpeed has a name; parts of sections that are not in the table are taken as they are."""
    if table.known(name) is not None or name == "zero_optimization.mics_shard_size":
        return True
    head = name.partition(".")[0]
    return head != name and head not in _SECTIONS


def _tokens(flags: Mapping[str, str], step: int, kept: str) -> str:
    steps = whole(flags["max_steps"], "--max_steps") if number_or_zero(flags.get("max_steps", 0)) > 0 else 0
    return run_tokens(kept, steps, step)
