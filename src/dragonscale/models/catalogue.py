"""Models by name: presets kept as data, a path to a `config.json`, or a user's own TOML file.

A preset is a table of the fields a `config.json` would have, so presets and configs go through the same reader and can
never disagree. Names are forgiving: case, punctuation, the organisation before a slash and endings such as `-instruct`
do not matter.

>>> load_model("meta-llama/Meta-Llama-3-70B-Instruct").name
'llama3-70b'
>>> load_model("lama3-70b")
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: There is no model 'lama3-70b'; did you mean 'llama3-70b'? Known: ...
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.tables import read_table

if TYPE_CHECKING:
    from dragonscale.models.transformer import Transformer

PRESETS = Path(__file__).with_name("presets")
_HEADER = re.compile(r'^\[("?)([^"\[\]]+)\1\]$', re.MULTILINE)
_ALIASES = re.compile(r"^aliases = (\[.*\])$", re.MULTILINE)
_ENDINGS = re.compile(r"(?:-(?:instruct|chat|base|hf|it|pt|fp8|bf16|nvfp4|mxfp4|2507|preview))+$")
_ABOUT = ("source", "parameters", "checkpoint", "aliases", "base", "name")
"""Keys of a preset that say something about the model and are not fields of it."""


def plain(name: str) -> str:
    """A name without what does not matter; a point between digits does.

    >>> plain("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"), plain("llama3.1-405b")
    ('llama3.1405b', 'llama3.1405b')
    """
    name = name.strip().rsplit("/", 1)[-1].lower().replace("_", "-").removeprefix("meta-")
    return re.sub(r"[^a-z0-9.]", "", _ENDINGS.sub("", name))


@cache
def _index() -> dict[str, tuple[str, str]]:
    """Every plain name and alias with the file and preset it stands for; scans text, parses nothing."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(PRESETS.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        headers = list(_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            name = header[2]
            body = text[header.end() : following.start() if following else len(text)]
            listed = _ALIASES.search(body)
            for alias in (name, *(json.loads(listed[1]) if listed else ())):
                found[plain(alias)] = (path.stem, name)
    return found


def model_names() -> list[str]:
    """The names of all presets."""
    return sorted({name for _, name in _index().values()})


@cache
def _file(stem: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((PRESETS / f"{stem}.toml").read_text(encoding="utf-8"))


def preset(name: str) -> dict[str, Any]:
    """A preset's table, with its base's fields under its own."""
    key = plain(name)
    if key not in _index():
        raise unknown("model", name, model_names(), "A path to a config.json or a TOML file works too.")
    stem, found = _index()[key]
    table = _file(stem)[found]
    if "base" in table:
        table = _merged({k: v for k, v in preset(table["base"]).items() if k != "aliases"}, table)
    return {"name": found} | table


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; inner tables are merged too."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def load_model(name: str | Path) -> "Transformer":
    """The model that a name or a path stands for. See the module's examples."""
    text = str(name)
    if not text.strip():
        raise InputError("The model's name is empty; write a preset such as 'llama3-70b' or a path.")
    if len(text) < 4000 and "\0" not in text:
        path = Path(text)
        if path.suffix.lower() == ".toml":
            return _from_toml(path)
        if path.suffix.lower() == ".json" or path.is_dir() or (path.is_file() and plain(text) not in _index()):
            from dragonscale.models.huggingface import load_config

            return load_config(path)
    return _from_table(preset(text))


def _from_table(table: Mapping[str, Any]) -> "Transformer":
    from dragonscale.models.huggingface import load_config

    fields = {key: value for key, value in table.items() if key not in _ABOUT}
    model = load_config(fields, str(table["name"]))
    return replace(model, sources={"config": str(table.get("source", ""))})


def _from_toml(path: Path) -> "Transformer":
    """A user's own model: fields of a `config.json`, the book's letters, or a base with some of either changed."""
    table = {"name": path.stem} | read_table(path, "Model file")
    if not isinstance(table["name"], str):
        raise InputError(f"{shorten(str(path))} has a name of {shorten(table['name'])}, which is not text.")
    if "base" in table:
        if not isinstance(table["base"], str):
            raise InputError(f"{shorten(str(path))} has a base of {shorten(table['base'])}, which is not a name.")
        below = preset(table["base"])
        return _from_table(_merged(below, _spelt(table, below)))
    if "model_type" in table:
        return _from_table({"source": str(path)} | table)
    from dragonscale.models.letters import simple_from

    return simple_from(table, str(path))


_LETTERS = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "d_ff": ("intermediate_size", "moe_intermediate_size", "n_inner", "ffn_dim"),
    "n_heads": ("num_attention_heads", "n_head", "n_heads"),
    "n_kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "n_layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "vocab": ("vocab_size",),
    "n_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "tied": ("tie_word_embeddings",),
}


def _spelt(table: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """The book's names turned into those that the base uses."""
    names = {word: next((n for n in spelt if n in below), spelt[0]) for word, spelt in _LETTERS.items()}
    return {key if key in below else names.get(key, key): value for key, value in table.items()}
