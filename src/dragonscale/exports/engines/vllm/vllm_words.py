"""The words of `vllm serve` as people write them: its commands in a text, JSON in options, dotted keys, sizes such as
8k, `--config` files."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import needs
from dragonscale.exports.keys import load_keys
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import truth
from dragonscale.exports.values import whole as plain_whole

MOST_COUNT = 999_999_999


def serve_commands(source: Source) -> list[ShellCommand]:
    """The commands of a text that start vLLM's server, words from the model on."""
    found: list[ShellCommand] = []
    for command in source.commands:
        at = _after_program(command.words)
        if at is not None:
            found.append(replace(command, words=command.words[at:]))
    return found


def _after_program(words: Sequence[str]) -> int | None:
    """Where the words of the server begin; None where a command is not one."""
    for place, word in enumerate(words):
        if word.endswith(("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")):
            return place + 1
        if word.rsplit("/", 1)[-1] == "vllm" and words[place + 1 : place + 2] == ["serve"]:
            return place + 2
    return None


def is_config(source: Source) -> bool:
    """Whether a table is the YAML of `--config`: mostly names of vLLM, a model or a size among them."""
    if not source.table:
        return False
    table = load_keys("vllm")
    names = [f"--{str(name).replace('_', '-')}" for name in source.table]
    others = [name for name in source.table if load_keys("trtllm").known(str(name))]
    if any(table.known(f"--{str(name).replace('_', '-')}") is None for name in others):
        return False  # TensorRT-LLM's YAML, which has many names in common
    return table.mostly(names) and bool({"--model", "--tensor-parallel-size", "--max-num-seqs"} & {*names})


def read_words(words: Sequence[str], source: Source) -> ReadFlags:
    """The flags of a command, those of its `--config` file under its own, JSON read and dotted keys joined."""
    table = load_keys("vllm")
    plain, dotted = _dotted(words)
    read = read_flags(table, plain)
    if name := read.values.get("--config"):
        beside = source.beside(str(name))
        if beside is None or beside.table is None:
            missing = f"what --config {shorten(str(name))} holds"
            raise needs(missing, "the folder that has it, or the flags themselves", source)
        under = read_flags(table, table_words(beside.table))
        read.values = {**under.values, **read.values}
        read.words = read.words or under.words
        read.unknown += [one for one in under.unknown if one not in read.unknown]
    for name, key in ((name, table.known(name)) for name in list(read.values)):
        if key is not None and key.type == "json" and isinstance(read.values[name], str):
            read.values[name] = _json(name, read.values[name])
    for name, inner in dotted.items():
        base = read.values.get(name)
        read.values[name] = {**(base if isinstance(base, Mapping) else {}), **inner}
    return read


def _dotted(words: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """`--speculative-config.method ngram` as keys of that option's JSON; the other words as they are."""
    rest: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        dotted = re.fullmatch(r"(--?[a-zA-Z][\w-]*)\.([\w.]+?)\+?(?:=(.*))?", word, re.DOTALL)
        if dotted is None:
            rest.append(word)
            continue
        key = load_keys("vllm").known(dotted[1]) or load_keys("vllm").known(dotted[1].replace("_", "-"))
        text = dotted[3]
        if text is None and at < len(words):
            text, at = words[at], at + 1
        try:
            value = json.loads(text or "")
        except ValueError:
            value = text
        found.setdefault(key.name if key is not None else dotted[1], {})[dotted[2]] = value
    return rest, found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(f"{name} is {shorten(text)}, which is no JSON.") from None


def table_words(table: Mapping[str, Any]) -> list[str]:
    """A config's table as the words that it stands for."""
    words: list[str] = []
    for name, value in table.items():
        flag = f"--{str(name).replace('_', '-')}"
        key = load_keys("vllm").known(flag)
        if isinstance(value, bool) or (key is not None and key.type == "flag"):
            words.append(flag if truth(value, str(name)) else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]
    return words


def whole(read: ReadFlags, name: str, default: int = 1) -> int:
    """A flag's whole number: degrees and counts."""
    value = read.values.pop(name, None)
    return default if value is None else plain_whole(value, name, most=MOST_COUNT)


def tokens(read: ReadFlags, name: str, default: int = 0) -> int:
    """A flag's number of tokens, which vLLM takes as 8k (1000) and 8K (1024) too.

    >>> tokens(ReadFlags({"--max-num-batched-tokens": "2.5k"}), "--max-num-batched-tokens")
    2500
    """
    value = read.values.get(name)
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([kmgKMG])", str(value).strip())
    if found is None:
        return whole(read, name, default)
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[found[2]]
    size = Fraction(found[1]) * scale
    if not 1 <= size <= MOST_COUNT:
        raise InputError(f"{name} is {shorten(str(value))}; it is from 1 to {MOST_COUNT:,} tokens.")
    read.values.pop(name)
    return int(size)


def is_tpu(source: Source) -> bool:
    """Whether a command is meant for TPUs: by its environment, its image, its connector, or what an export keeps."""
    if str(source.kept.get("engine", "")):
        return str(source.kept["engine"]).startswith("vllm-tpu")
    variables, marks = {name for command in source.commands for name in command.env}, load_terms("vllm-tpu").lists
    return bool({*marks["variables"]} & variables) or any(word in source.text for word in marks["marks"])
