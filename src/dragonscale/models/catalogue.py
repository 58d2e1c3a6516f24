"""Presets: models by name, kept as data, and a user's own TOML files, which may build on them.

A preset is a table of the fields a `config.json` would have, so presets and configs go through the
same reader and can never disagree. Names are forgiving: case, punctuation, the organisation before a
slash and endings such as `-instruct` do not matter. Names of quantised checkpoints are presets with the
format that they are published in (`published.toml`).

>>> preset("Meta-Llama-3-70B-Instruct")["name"], preset("qwen3-32b-fp8")["quantization_config"]["weight_block_size"]
('llama3-70b', [128, 128])
>>> preset("lama3-70b")
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: There is no model 'lama3-70b'; did you mean 'llama3-70b'? Similar: ...
"""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError, shorten
from dragonscale.models.assumed import Assumed, assumed_fields
from dragonscale.models.names import checked_name, plain
from dragonscale.tables import beside, read_table

if TYPE_CHECKING:
    from dragonscale.models.transformer import Transformer

PRESETS = Path(__file__).with_name("presets")
_HEADER = re.compile(r'^\[("?)([^"\[\]]+)\1\]$', re.MULTILINE)
_ALIASES = re.compile(r"^aliases = (\[.*\])$", re.MULTILINE)
_SOURCE = re.compile(r'^source = "huggingface\.co/([\w.-]+/[\w.-]+)"', re.MULTILINE)
_ABOUT = ("source", "parameters", "checkpoint", "aliases", "base", "name")
"""Keys of a preset that say something about the model and are not fields of it."""


@cache
def _index() -> dict[str, tuple[str, str]]:
    """Every plain name and alias with the file and preset it stands for; scans text, parses nothing."""
    found: dict[str, tuple[str, str]] = {}
    repositories: dict[str, tuple[str, str]] = {}
    for path in sorted(PRESETS.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        headers = list(_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            name = header[2]
            body = text[header.end() : following.start() if following else len(text)]
            listed = _ALIASES.search(body)
            for alias in (name, *(json.loads(listed[1]) if listed else ())):
                found[plain(alias)] = (path.stem, name)
            source = _SOURCE.search(body)
            if source:
                repositories.setdefault(plain(source[1]), (path.stem, name))
    return repositories | found


def model_names() -> list[str]:
    """The names of all presets."""
    return sorted({name for _, name in _index().values()})


def preset_lines() -> list[tuple[str, str, int | None]]:
    """Every preset's name, model type, and its parameters where the file states them; no model is built for it.

    >>> next(line for line in preset_lines() if line[0] == "llama3-8b")
    ('llama3-8b', 'llama', 8030261248)
    """
    own = {name: _file(stem)[name] for stem, name in set(_index().values())}
    return [(name, str(preset(name).get("model_type", "")), own[name].get("parameters")) for name in sorted(own)]


def presets_that_take(tokens: int) -> list[str]:
    """Presets with a context of so many tokens, the nearest first.

    >>> presets_that_take(2_000_000)
    ['minimax-text-01', 'llama4-scout']
    """
    configs = {name: preset(name) for name in model_names()}
    known = ((one.get("text_config", one).get("max_position_embeddings", 0), name) for name, one in configs.items())
    return [name for context, name in sorted(known) if context >= tokens]


def is_preset(name: str) -> bool:
    """Whether a name, however it is spelt, is a preset's."""
    return plain(name) in _index()


ALIKE = 0.65
"""Names that are less alike (`difflib`'s ratio) are not told of."""
MOST_SIMILAR = 8


def nearest_preset(name: str) -> str:
    """The preset whose name is nearest, by what matters in it; empty if none is near.

    >>> nearest_preset("mistralai/Mixtral-8x7B-v0.2"), nearest_preset("zzz")
    ('mixtral-8x7b', '')
    """
    found = difflib.get_close_matches(plain(name)[:100], list(_index()), n=1, cutoff=ALIKE)
    return _index()[found[0]][1] if found else ""


OTHERWISE = {
    "-?(embed(ding)?|rerank(er)?)": "A model that embeds or ranks is served as its base (the nearest here: {base}) "
    "with --output 0.",
    r"-?\b(vl|vision|omni)\b": "A model that reads images is its text model (the nearest here: {base}) and what they "
    "add: `dscale simulate {base} --on h100:1 --rate 1/s --images 1x1024,encoder=675M`.",
    r"^[\d.]+[bm]$": "Of a model of which only the size is known, `dscale estimate --params {name}` tells what 6ND "
    "does, and a preset of about that size how it splits and serves: {alike}.",
}
"""What names of no preset are planned as, by what is in them."""


LATER = ("qwen3", "qwen2", "llama", "mistral")
"""Families that are named for a size, the latest first."""


def _alike(size: str) -> list[str]:
    """Presets with about so many parameters, one of each family that is named for it; none for what is no size.

    >>> _alike("8b"), _alike("7b")
    (['qwen3-8b', 'qwen2.5-7b', 'llama3-8b', 'mistral-7b-v0.3'], ['qwen3-8b', 'qwen2.5-7b', 'llama1-7b', 'mistral-7b'])
    """
    wanted = float(size[:-1] or 0) * (1e9 if size[-1:].lower() == "b" else 1e6) if size[:1].isdigit() else 0.0
    near = [(abs(count / wanted - 1), kind, name) for name, kind, count in preset_lines() if wanted and count]
    near = [one for one in near if one[0] < 0.2]
    found = [min((one for one in near if one[1] == kind), default=None) for kind in LATER]
    return [one[2] for one in found if one is not None]


def no_model(name: str, hint: str) -> InputError:
    """The error for a name that stands for nothing."""
    if name.startswith(("/", "./", "../", "~")):
        return InputError(f"There is no file or folder {shorten(name)}.")
    guess = instead(name)
    guess = f"; {guess}" if guess.startswith("did you") else f". {guess}".rstrip()
    matches = difflib.get_close_matches(plain(name)[:100], list(_index()), 16, ALIKE)  # nearest first
    alike = list(dict.fromkeys(_index()[match][1] for match in matches))[:MOST_SIMILAR]
    similar = f" Similar: {', '.join(sorted(alike))}." if alike else ""
    every = f"`dscale models` lists all {len(model_names())}."
    return InputError(f"There is no model {shorten(name)}{guess or '.'}{similar} {every} {hint}".rstrip())


def instead(name: str) -> str:
    """What a model of no preset is planned as, or the preset that was meant; empty where none is near."""
    for pattern, words in OTHERWISE.items():
        if re.search(pattern, name.lower()):
            base = nearest_preset(re.sub(pattern, "", name.lower())) or "MODEL"
            return words.format(base=base, name=name, alike=", ".join(_alike(name)))
    close = nearest_preset(name)
    return f"did you mean {close!r}?" if close else ""


@cache
def _file(stem: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((PRESETS / f"{stem}.toml").read_text(encoding="utf-8"))


def preset(name: str) -> dict[str, Any]:
    """A preset's table, with its base's fields under its own."""
    if not is_preset(name):
        raise no_model(name, "A config.json, a folder, a .gguf, a .toml or org/name of the Hub works too.")
    stem, found = _index()[plain(name)]
    table = _file(stem)[found]
    if "base" in table:
        table = _merged({k: v for k, v in preset(table["base"]).items() if k not in ("aliases", "name")}, table)
    rows = beside(__file__, "published.toml")["names"] if plain(name, "") != plain(name) else []
    stored = next((row["config"] for row in rows if re.search(row["name"], name.strip())), None)
    return {"name": found} | table | ({} if stored is None else {"name": name.strip(), "quantization_config": stored})


def published_fp8(name: str) -> str:
    """Who publishes a preset in fp8 beside 16 bits; empty where nobody is known to.

    >>> published_fp8("qwen3-32b")[:18], published_fp8("gemma3-27b")
    ('Qwen publishes it ', '')
    """
    return next((who for key, who in beside(__file__, "published.toml")["fp8"].items() if re.search(key, name)), "")


def preset_model(name: str, assume: Assumed | None = None, family: str = "") -> "Transformer":
    """The model that a preset describes."""
    return _from_table(preset(name), assume, family) if assume or family else _published(name)


@lru_cache(maxsize=32)
def _published(name: str) -> "Transformer":
    """A preset as it is: its file does not change while the program runs, and its program is written once."""
    return _from_table(preset(name), None, "")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; inner tables are merged too."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _from_table(table: Mapping[str, Any], assume: Assumed | None, family: str) -> "Transformer":
    from dragonscale.models.huggingface import load_config

    fields = {key: value for key, value in table.items() if key not in _ABOUT}
    model = load_config(fields, str(table["name"]), assume, family)
    return replace(model, sources={"config": str(table.get("source", ""))})


def toml_fields(path: Path) -> dict[str, Any]:
    """The table of a user's own model, its base's fields under its own."""
    table = {"name": path.stem} | read_table(path, "Model file")
    checked_name(table["name"], str(path))
    if "base" not in table:
        return {"source": str(path)} | table
    if not isinstance(table["base"], str):
        raise InputError(f"{shorten(str(path))} has a base of {shorten(table['base'])}, which is not a name.")
    below = preset(table["base"])
    return _merged(below, _spelt(table, below))


def toml_model(path: Path, assume: Assumed | None = None, family: str = "") -> "Transformer":
    """A user's own model: fields of a `config.json`, the book's letters, or a base with some of either changed."""
    table = toml_fields(path)
    if "model_type" in table or family:
        return _from_table(table, assume, family)
    from dragonscale.models.letters import simple_from

    return simple_from(assumed_fields(table, assume or {}), str(path))


def _spelt(table: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """The book's names turned into those that the base uses."""
    names = {
        word: next((n for n in spelt if n in below), spelt[0])
        for word, spelt in beside(__file__, "letters.toml").items()
    }
    return {key if key in below else names.get(key, key): value for key, value in table.items()}
