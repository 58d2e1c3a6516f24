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
import math
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
    """The file and preset of every plain name and alias. Scans the text of the files, as parsing them takes longer."""
    names: dict[str, tuple[str, str]] = {}
    repositories: dict[str, tuple[str, str]] = {}
    for path in sorted(PRESETS.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        headers = list(_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            name = header[2]
            body = text[header.end() : following.start() if following else len(text)]
            names[plain(name)] = (path.stem, name)
            aliases = _ALIASES.search(body)
            for alias in json.loads(aliases[1]) if aliases else ():
                names[plain(alias)] = (path.stem, name)
            source = _SOURCE.search(body)
            if source:  # of presets with one repository (a base and its variants) the first has its name
                repositories.setdefault(plain(source[1]), (path.stem, name))
    return repositories | names


def model_names() -> list[str]:
    """The names of all presets."""
    return sorted({name for _, name in _index().values()})


def preset_lines() -> list[tuple[str, str, int | None]]:
    """The name and model type of every preset, and its parameters where the file states them; builds no models.

    >>> next(line for line in preset_lines() if line[0] == "llama3-8b")
    ('llama3-8b', 'llama', 8030261248)
    """
    tables = {name: _file(stem)[name] for stem, name in set(_index().values())}  # without those of their bases
    return [(name, str(preset(name).get("model_type", "")), tables[name].get("parameters")) for name in sorted(tables)]


def presets_that_take(tokens: int) -> list[str]:
    """Presets with a context of at least so many tokens, the smallest context first.

    >>> presets_that_take(2_000_000)
    ['minimax-text-01', 'llama4-scout']
    """
    contexts: list[tuple[int, str]] = []
    for name in model_names():
        config = preset(name)
        context = config.get("text_config", config).get("max_position_embeddings", 0)
        if context >= tokens:
            contexts.append((context, name))
    return [name for _, name in sorted(contexts)]


def is_preset(name: str) -> bool:
    """Whether a name, in any spelling, is that of a preset."""
    return plain(name) in _index()


MIN_SIMILARITY = 0.65
"""Names that are less similar (`difflib`'s ratio) are not suggested."""
MAX_SUGGESTIONS = 8


def nearest_preset(name: str) -> str:
    """The preset whose name is nearest, by what matters in it; empty if none is near.

    >>> nearest_preset("mistralai/Mixtral-8x7B-v0.2"), nearest_preset("zzz")
    ('mixtral-8x7b', '')
    """
    return next(iter(_similar(name, 1)), "")


def _similar(name: str, count: int) -> list[str]:
    """The presets with the most similar names and aliases, the nearest first."""
    # the time grows with the length of the name, and no preset has a hundred letters
    matches = difflib.get_close_matches(plain(name)[:100], list(_index()), count, MIN_SIMILARITY)
    return [_index()[match][1] for match in matches]


OTHERWISE = {
    "-?(embed(ding)?|rerank(er)?)": "A model that embeds or ranks is served as its base (the nearest here: {base}) "
    "with --output 0.",
    r"-?\b(vl|vision|omni)\b": "A model that reads images is its text model (the nearest here: {base}) and what they "
    "add: `dscale simulate {base} --on h100:1 --rate 1/s --images 1x1024,encoder=675M`.",
    r"^[\d.]+[bm]$": "Of a model of which only the size is known, `dscale estimate --params {name}` tells what 6ND "
    "does, and a preset of about that size how it splits and serves: {alike}.",
}
"""What to plan instead of a model that has no preset, by a pattern in its name."""


MAX_SIZE_DIFFERENCE = 0.2
LATER = ("qwen3", "qwen2", "llama", "mistral")
"""Families that are named for a size, the latest first."""


def _alike(size: str) -> list[str]:
    """Presets with about so many parameters, one of each family of `LATER`; none for a text that is no size.

    >>> _alike("8b"), _alike("7b")
    (['qwen3-8b', 'qwen2.5-7b', 'llama3-8b', 'mistral-7b-v0.3'], ['qwen3-8b', 'qwen2.5-7b', 'llama1-7b', 'mistral-7b'])
    """
    nearest = _nearest_sizes(size)
    return [nearest[family][1] for family in LATER if family in nearest]


def preset_of_size(text: str) -> str:
    """A preset for a number of parameters: the latest that is named for it, or else the one nearest in size; empty for
    a text that is no size, or where none is near.

    >>> preset_of_size("8b"), preset_of_size("70B"), preset_of_size("13b"), preset_of_size("5000b")
    ('qwen3-8b', 'llama3.3-70b', 'llama2-13b', '')
    """
    size = text.strip().lower()
    if not re.fullmatch(r"\d+(\.\d+)?[bm]", size):
        return ""
    named: dict[str, str] = {}  # by family its latest
    for name, family, _ in preset_lines():
        # qwen2.5-7b, and no qwen2.5-math-7b
        if re.fullmatch(rf"[a-z]+[\d.]*-{re.escape(size)}", name):
            named[family] = max(name, named.get(family, ""))
    for family in LATER:
        if family in named:
            return named[family]
    return min(_nearest_sizes(size).values(), default=(0.0, ""))[1]


def _nearest_sizes(size: str) -> dict[str, tuple[float, str]]:
    """By family the preset nearest a size, behind how far it is from it."""
    scale = 1e9 if size[-1:].lower() == "b" else 1e6
    wanted = 0.0  # parameters
    if size[:1].isdigit():
        wanted = float(size[:-1] or 0) * scale
    if not wanted:
        return {}
    nearest: dict[str, tuple[float, str]] = {}  # by family: how far its nearest size is, and the preset
    for name, family, count in preset_lines():
        difference = abs(count / wanted - 1) if count else math.inf
        if difference < MAX_SIZE_DIFFERENCE:
            nearest[family] = min((difference, name), nearest.get(family, (math.inf, "")))
    return {family: nearest[family] for family in LATER if family in nearest}


def no_model(name: str, hint: str) -> InputError:
    """The error for a name that stands for nothing."""
    if name.startswith(("/", "./", "../", "~")):
        return InputError(f"There is no file or folder {shorten(name)}.")
    guess = instead(name)
    guess = f"; {guess}" if guess.startswith("did you") else f". {guess}".rstrip()
    # several aliases may be those of one preset
    suggestions = list(dict.fromkeys(_similar(name, 16)))[:MAX_SUGGESTIONS]
    similar = f" Similar: {', '.join(sorted(suggestions))}." if suggestions else ""
    listing = f"`dscale models` lists all {len(model_names())}."
    return InputError(f"There is no model {shorten(name)}{guess or '.'}{similar} {listing} {hint}".rstrip())


def instead(name: str) -> str:
    """What to plan instead of a model that has no preset, or the preset that was meant; empty where none is near."""
    for pattern, advice in OTHERWISE.items():
        if re.search(pattern, name.lower()):
            base = nearest_preset(re.sub(pattern, "", name.lower())) or "MODEL"
            return advice.format(base=base, name=name, alike=", ".join(_alike(name)))
    close = nearest_preset(name)
    return f"did you mean {close!r}?" if close else ""


@cache
def _file(stem: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((PRESETS / f"{stem}.toml").read_text(encoding="utf-8"))


def preset(name: str) -> dict[str, Any]:
    """A preset's table, merged over that of its base."""
    if not is_preset(name):
        raise no_model(name, "A config.json, a folder, a .gguf, a .toml or org/name of the Hub works too.")
    stem, preset_name = _index()[plain(name)]
    table = {"name": preset_name} | _file(stem)[preset_name]
    if "base" in table:
        base = {key: value for key, value in preset(table["base"]).items() if key not in ("aliases", "name")}
        table = _merged(base, table)
    if plain(name, "") != plain(name):
        # the name says how the weights are stored (llama3-70b-fp8), as publishers of such checkpoints do it
        for row in beside(__file__, "published.toml")["names"]:
            if re.search(row["name"], name.strip()):
                return table | {"name": name.strip(), "quantization_config": row["config"]}
    return table


def published_fp8(name: str) -> str:
    """Who publishes a preset in fp8 beside 16 bits; empty where nobody is known to.

    >>> published_fp8("qwen3-32b")[:18], published_fp8("gemma3-27b")
    ('Qwen publishes it ', '')
    """
    publishers = beside(__file__, "published.toml")["fp8"]
    return next((publisher for pattern, publisher in publishers.items() if re.search(pattern, name)), "")


def preset_model(name: str, assume: Assumed | None = None, family: str = "") -> "Transformer":
    """The model that a preset describes."""
    if assume or family:
        return _from_table(preset(name), assume, family)
    return _published(name)


@lru_cache(maxsize=32)
def _published(name: str) -> "Transformer":
    """An unchanged preset, built once: its file does not change while the program runs."""
    return _from_table(preset(name), None, "")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; inner tables are merged too."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            value = _merged(merged[key], value)
        merged[key] = value
    return merged


def _from_table(table: Mapping[str, Any], assume: Assumed | None, family: str) -> "Transformer":
    from dragonscale.models.huggingface import load_config

    fields = {key: value for key, value in table.items() if key not in _ABOUT}
    model = load_config(fields, str(table["name"]), assume, family)
    return replace(model, sources={"config": str(table.get("source", ""))})


def toml_fields(path: Path) -> dict[str, Any]:
    """The table of a user's model, merged over that of its base."""
    table = {"name": path.stem} | read_table(path, "Model file")
    checked_name(table["name"], str(path))
    if "base" not in table:
        return {"source": str(path)} | table
    if not isinstance(table["base"], str):
        raise InputError(f"{shorten(str(path))} has a base of {shorten(table['base'])}, which is not a name.")
    below = preset(table["base"])
    return _merged(below, _spelt(table, below))


def toml_model(path: Path, assume: Assumed | None = None, family: str = "") -> "Transformer":
    """A user's model: fields of a `config.json`, the book's letters, or a base with some of either changed."""
    table = toml_fields(path)
    if "model_type" in table or family:
        return _from_table(table, assume, family)
    from dragonscale.models.letters import simple_from

    return simple_from(assumed_fields(table, assume or {}), str(path))


def _spelt(table: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the book's names replaced by those that the base uses."""
    letters = beside(__file__, "letters.toml")
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key not in below and key in letters:
            names = letters[key]
            key = next((name for name in names if name in below), names[0])
        fields[key] = value
    return fields
