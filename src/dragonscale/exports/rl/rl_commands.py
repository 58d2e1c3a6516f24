"""Commands of frameworks of reinforcement learning: written from a run by `rl_words.toml`, and read back.

The comment of an export keeps what a command has no word for (the chip, the mean length of answers, the finer settings
of the plan); what the command says counts.
"""

import functools
import math
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import Infeasible, InputError, unknown
from dragonscale.exports.engines.checkpoints import SCHEMES, plain_name, scheme_of
from dragonscale.exports.imported import Given, Source
from dragonscale.exports.keys import Key, KeyTable, dotted, flag_words, load_keys, read_flags, shell_lines, truth, whole
from dragonscale.exports.launchers.unwrap import unwrapped
from dragonscale.exports.rl.rl_file import RlFile, changed, values_of
from dragonscale.exports.runs import comments, kept_line
from dragonscale.physics.hardware import parse_slice
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan

FINER = ("remat", "age", "tokens_per_gpu", "ep", "etp")
"""Words that stand for several values, of which the comment has the one."""
NUMBERS = ("ahead", "share")
USUAL = {"algorithm", "samples", "prompts", "prompt", "output", "longest"}
USUAL |= {"mini_prompts", "mini_samples", "rollout_tensor"}
"""Words that the framework's own default says where a run does not."""
WORDS = ("algorithm", "mode", "trainer", "model", "rollout_dtype", "engine", "remat", "remat_method", "offload")


class RlTarget(msgspec.Struct, frozen=True):
    """A framework's part of `rl_words.toml`; `sections` are those of its settings, by when they are written."""

    name: str
    title: str
    style: str
    starts: dict[str, str]
    sections: dict[str, dict[str, Any]]
    marks: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    keys: str = ""
    apart: str = ""
    usual: dict[str, Any] = {}
    dynamic: str = ""
    adapters: str = ""
    other: dict[str, str] = {}
    wrong: dict[str, str] = {}

    def table(self) -> KeyTable:
        """Its names; of a dataclass the flags that a parser makes of them, with what launches it."""
        found = load_keys(self.keys or self.name)
        if self.style == "=":
            return found
        flags = {name if name.startswith("--") else f"--{name}": key for name, key in found.keys.items()}
        return msgspec.structs.replace(found, keys=flags | dict.fromkeys(self.sections.get("launch", {}), Key()))

    def programs(self) -> dict[str, list[str]]:
        """The last words of each start that are no flags, by mode."""
        return {mode: _program(start) for mode, start in self.starts.items()}


def _program(start: str) -> list[str]:
    words = shlex.split(start)
    if "-m" in words:
        return [words[words.index("-m") + 1]]
    plain = [word for word in words if not word.startswith("-") and word not in ("uv", "run", "python3")]
    return plain[:1] if plain[0].endswith(".py") else plain[:2]


@functools.cache
def targets() -> dict[str, RlTarget]:
    """The frameworks that are written and read, by name."""
    own = {*RlTarget.__struct_fields__} - {"name", "sections"}
    found: dict[str, RlTarget] = {}
    for name, row in shipped_table("exports.rl", "rl_words.toml").items():
        sections = {key: value for key, value in row.items() if key not in own}
        facts = {key: row[key] for key in own if key in row} | {"name": name, "sections": sections}
        found[name] = msgspec.convert(facts, RlTarget)
    return found


def target_of(name: str) -> RlTarget:
    """A framework by name."""
    if name not in targets():
        raise unknown("framework that an export is written for called", name, targets())
    return targets()[name]


def worded(row: Any, values: dict[str, Any]) -> Any:
    """What a setting is written as; None where it is left out."""
    if isinstance(row, str):
        value = values[row]
        return round(value, 4) if isinstance(value, float) else value
    if "set" in row:
        return row["set"]
    value = values[row["of"]]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text not in row and "other" not in row and isinstance(value, str):
        raise Infeasible(f"It is not written with {row['of']} {value}; it takes {', '.join(list(row)[1:])}.")
    return row.get(text, row.get("other", value))


def settings_of(target: RlTarget, file: RlFile) -> dict[str, Any]:
    """The settings of a run, by name."""
    hosts = parse_slice(file.slice).vms
    tags = {"launch", "always", file.mode, file.trainer, "split" if file.split else "", "several" if hosts > 1 else ""}
    values = values_of(file)
    tags |= set() if values["packed"] else {"padded"}
    rows = [pair for tag, section in target.sections.items() if tag in tags for pair in section.items()]
    return {name: worded(row, values) for name, row in rows}


def write_rl(file: RlFile, expected: tuple[str, ...] = (), command: str = "") -> dict[str, str]:
    """The script that starts a run, by its name."""
    target = target_of(file.stack)
    start = target.starts.get(f"{file.mode} {file.trainer}") or target.starts.get(file.mode)
    if start is None:
        raise Infeasible(f"{target.title} does not run {file.mode}; it runs {', '.join(target.starts)}.")
    settings, keys = settings_of(target, file), target.table()
    if target.style == "=":
        for name, value in settings.items():
            keys.check(name, None if value == "null" else value)
        words = [shlex.quote(f"{name}={_text(value)}") for name, value in settings.items()]
        body = " \\\n    ".join([start, *words])
    else:
        given = {name: None if value == "null" else value for name, value in settings.items()}
        body = shell_lines([*shlex.split(start), *flag_words(target.table(), given)])
    title = f"{target.title} {keys.version}: {file.model} on {file.slice}, {file.mode}, "
    title += f"trainer {file.train}, engine {file.rollout}."
    lines = [title, *(f"Expected: {text}" for text in expected), *(f"To do: {text}" for text in target.todo)]
    if ":" in file.train.remat and "block" not in settings.values():
        lines.append(f"Differs: recompute ({file.train.remat}) is all or nothing here; every layer is recomputed.")
    if file.trainer == "megatron-rl" and file.train.zero > 1:
        lines.append(f"Differs: Megatron shards optimizer state (zero=1), and not as zero={file.train.zero} does.")
    lines += [f"Made by: {command}"] if command else []
    kept_names = ("algorithm", "mean_output", "spread", "ahead", "trainer", "mode", "share")
    said = {name: getattr(file, name) for name in kept_names}
    said |= {"train": _plan_text(file.train), "rollout": str(file.rollout)}
    kept = kept_line({"model": file.model, "slice": file.slice, "stack": file.stack, "rl": said})
    return {f"{target.name}.sh": f"#!/bin/bash\n{comments([*lines, kept])}{body}\n"}


def _text(value: Any) -> str:
    text = str(value)
    return text.lower() if text in ("True", "False", "None") else text


def _plan_text(plan: Any) -> str:
    return ",".join(f"{name}={_text(value)}" for name, value in vars(plan).items())


@dataclass(frozen=True)
class ImportedRl:
    """A run as it was read; `unknown` are names that the framework's version does not have."""

    target: RlTarget
    file: RlFile
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


_REFERENCE = re.compile(r"\$\{([\w.-]+)\}")


def _config(source: Source, settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A config with those that its `defaults` name under it, and with the values that `${a.b}` stands for, as OmegaConf
    reads it."""
    notes = list[str]()
    named = [value for name, value in settings.items() if name == "defaults" and isinstance(value, str)]
    for inner, name in ((source.beside(name), name) for name in named):
        if inner is None:
            notes.append(f"Its defaults, {name}, are not here: what they say of the run is not read.")
        else:
            below, more = _config(inner, dict(dotted(inner.table or {})))
            settings, notes = below | settings, [*notes, *more]
    for _ in range(4):  # references to references
        for name, value in settings.items():
            found = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
            if found is not None and found[1] in settings:
                settings[name] = settings[found[1]]
    return settings, notes


def _said(source: Source) -> tuple[RlTarget, str, dict[str, Any], list[str]] | None:
    """Whose command or config it is, its mode and trainer where its program says them, its settings, unknown names."""
    for target in targets().values():
        table = source.table
        if table is not None:
            if target.marks and all(mark in table for mark in target.marks):
                dashes = "" if target.style == "=" else "--"
                return target, "", {f"{dashes}{name}": value for name, value in dotted(table)}, []
            continue
        for words in (command.words for command in source.commands):
            begins = {mode: _begins(words, own) for mode, own in target.programs().items()}
            matches = [mode for mode, at in begins.items() if at]
            settings, strange = _settings(target, words[begins[matches[0]] :]) if matches else ({}, [])
            if not settings or not {*settings} & {*target.sections["always"]}:
                continue
            config = next((word for word in words if "megatron" in word and "--config-name" in word), "")
            own = [one for one in matches if ("megatron" in one) == bool(config)] or matches
            several = len({*target.starts.values()}) < len(target.starts)
            return target, "" if several else own[0], settings, strange
    return None


def _begins(words: list[str], own: list[str]) -> int:
    """Where the arguments of a program begin; 0 where it is not started."""
    for at, word in enumerate(words):
        if (word == own[0] or word.endswith(f"/{own[0]}")) and words[at + 1 : at + len(own)] == own[1:]:
            return at + len(own)
    return 0


def _settings(target: RlTarget, words: list[str]) -> tuple[dict[str, Any], list[str]]:
    keys = target.table()
    if target.style == "=":
        pairs = [word.lstrip("+").partition("=") for word in words if "=" in word and not word.startswith("-")]
        strange = [name for name, _, _ in pairs if keys.known(name) is None]
        # an `override_…` takes what another software has names for
        return {name: value for name, _, value in pairs}, [name for name in strange if ".override_" not in name]
    read = read_flags(keys, words)
    return read.values, read.unknown


def _value(row: Any, text: Any, base: dict[str, Any]) -> tuple[str, Any] | None:
    """What a setting says of a run: a name of `values_of`, and its value; that of the base where it is written so."""
    name = row if isinstance(row, str) else row.get("of", "")
    plain = _text(text)
    if not name or plain == "-1":  # verl's word for all
        return None
    if not isinstance(row, str):
        if _text(worded(row, base)) == plain:
            return name, base[name]
        # of several values that have a word the first is meant
        words = {_text(row[value]): value for value in reversed(row) if value not in ("of", "other", "number")}
        if row.get("number") and plain not in words:
            return name, float(plain) != 0
        if plain not in words:
            return None if "other" in row or not plain.isdecimal() else (name, int(plain))
        plain = words[plain]
    if name in ("reference", "sequence", "packed"):
        return name, truth(plain, name)
    if name in NUMBERS:
        return name, float(plain)
    return name, plain if name in WORDS else whole(plain, name, least=0)


def _not_planned(source: Source, target: RlTarget, settings: dict[str, Any]) -> list[str]:
    """What settings that are not planned mean for the answer; refused where they are another trainer's."""
    on = {name for name, value in settings.items() if str(value).lower() not in ("false", "none", "null", "0", "")}
    if target.other:
        ours, theirs = (f"{target.other[name]}." for name in ("planned", "not_planned"))
        chosen = f"{ours}enabled" in on if f"{ours}enabled" in settings else any(name.startswith(ours) for name in on)
        if not chosen and any(name.startswith(theirs) for name in on):
            raise InputError(f"{source.shown} trains by {theirs[:-1]}, which is not planned; {ours[:-1]} is.")
    return [text for name, text in target.wrong.items() if name in on]


def _usual(target: RlTarget) -> dict[str, Any]:
    """What the framework takes where nothing is said."""
    rows = {name: row if isinstance(row, str) else row.get("of") for name, row in target.sections["always"].items()}
    found = {name: target.table().known(name) for name, word in rows.items() if word in USUAL}
    said = {name: key.default for name, key in found.items() if key is not None and key.default is not None}
    return said | target.usual


def read_rl(text: str, given: Given | None = None) -> ImportedRl:
    """The run that a command, a script or a config says."""
    source, beside = unwrapped(Source.of(text)), given or Given()
    found = _said(source)
    if found is None:
        names = ", ".join(target.title for target in targets().values())
        raise InputError(f"{source.shown} is neither a command nor a config of {names}.")
    target, start, settings, strange = found
    settings, notes = _config(source, settings) if source.table is not None else (settings, [])
    kept: dict[str, Any] = source.kept.get("rl", {})
    notes += _not_planned(source, target, settings)
    chips = beside.slice or str(source.launch.get("slice", "")) or source.kept_word("slice")
    base = RlFile(target.name, model=source.kept_word("model"), slice=chips)
    plans = {"train": parse_plan(kept["train"])} if "train" in kept else {}
    plans |= {"rollout": parse_serving_plan(kept["rollout"])} if "rollout" in kept else {}
    mode, _, trainer = start.partition(" ")
    told = {name: value for name, value in (("mode", mode), ("trainer", trainer)) if value}
    turns = bool(target.apart) and not settings.get(target.apart) and told.get("mode", "colocated") == "colocated"
    told |= {"mode": "one-step-off"} if turns and kept.get("mode", "colocated") == "colocated" else {}
    base = replace(base, **{**kept, **plans, **told}).settled
    if not plans:  # Megatron's optimizer state is sharded, of others all
        base = replace(base, train=Plan(zero=1 if base.trainer == "megatron-rl" else 3))
    if base.slice and ":" in base.slice:
        chips = parse_slice(base.slice).chips
        base = replace(base, train_chips=chips, rollout_chips=chips)
    if not base.slice:
        raise source.needs("its chips", "them by --on, such as h100")
    words, said = values_of(replace(base, train_chips=base.train_chips or 1, slice="")), dict[str, Any]()
    rows = {name: row for section in target.sections.values() for name, row in section.items()}
    settings = settings if kept else _usual(target) | settings
    for name in (name for name in rows if settings.get(name) is not None):
        pair = None if str(settings[name]) == "null" else _value(rows[name], settings[name], words)
        if pair is not None and (pair[1] != words[pair[0]] or pair[0] not in said):
            said[pair[0]] = pair[1]
    if target.dynamic and not kept:  # tokens of a chip, or sequences
        by_tokens = str(settings.get(target.dynamic)).lower() == "true"
        said.pop("microbatch" if by_tokens else "tokens_per_gpu", None)
        said["by_answers"] = not by_tokens
    if str(settings.get(target.adapters, 0)).lower() not in ("0", "none", "null", "false"):
        text = f"{target.adapters} trains adapters alone"
        notes.append(f"{text}: the update is planned of every weight, which takes more.")
    kept_ones = {name for name in FINER if kept and said.get(name) == words[name]}
    said = {name: value for name, value in said.items() if name not in kept_ones and name != "engine"}
    named = str(said.get("model", "")).rstrip("/")
    if (scheme := scheme_of(named)) and not kept and "rollout_dtype" not in said:  # the engine loads it as it is stored
        stored = SCHEMES[scheme][0]
        said["rollout_dtype"] = "fp8" if stored == "fp8" else base.rollout.weights
        notes += [f"Its engine has weights in {stored}, which is planned in bf16."] if stored != "fp8" else []
    said["model"] = beside.model or base.model or plain_name(named)
    file = changed(base, said)
    length, answer = said.get("longest", 0), said.get("output", math.inf)
    if "prompt" not in said and 0 < length <= answer:
        part = f"{file.prompt:,} of them are taken as the prompt's"
        notes.append(f"Prompt and answer have {length:,} tokens together: {part}.")
    mean = file.mean_output if 0 < file.mean_output <= file.output else math.ceil(file.output / 2)
    if base.slice and ":" in base.slice and parse_slice(base.slice).chips != parse_slice(file.slice).chips:
        notes.append(f"It is for {file.slice}, which counts, and not for {base.slice}.")
    return ImportedRl(target, replace(file, mean_output=mean), tuple(strange), tuple(notes))
