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
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError, shorten
from dragonscale.models.assumed import Assumed, assumed_fields
from dragonscale.models.names import checked_name, plain, spelled
from dragonscale.models.preset_files import entries, merged, reading, tables
from dragonscale.tables import beside, read_table

if TYPE_CHECKING:
    from dragonscale.models.transformer import Transformer

_ABOUT = ("source", "parameters", "checkpoint", "aliases", "base", "name", "task")
"""Keys of a preset that say something about the model and are not fields of it."""


def model_names() -> list[str]:
    """The names of all presets."""
    return sorted({name for _, name in entries().values()})


def preset_lines() -> list[tuple[str, str, int | None]]:
    """The name and model type of every preset, and its parameters where the file states them; builds no models.

    >>> next(line for line in preset_lines() if line[0] == "llama3-8b")
    ('llama3-8b', 'llama', 8030261248)
    """
    own = {entry.name: tables(entry.stem)[entry.name] for entry in set(entries().values())}  # without those of bases
    return [(name, str(preset(name).get("model_type", "")), own[name].get("parameters")) for name in sorted(own)]


ENCODERS = ("bert", "roberta", "xlm-roberta")
"""Model types that embed and do not generate."""


def presets_that_take(tokens: int) -> list[str]:
    """Presets with a context of at least so many tokens, the smallest context first.

    >>> presets_that_take(2_000_000)
    ['minimax-text-01', 'llama4-scout']
    """
    contexts: list[tuple[int, str]] = []
    for name in model_names():
        config = preset(name)
        context = config.get("text_config", config).get("max_position_embeddings", 0)
        if context >= tokens and "task" not in config and config["model_type"] not in ENCODERS:
            contexts.append((context, name))
    return [name for _, name in sorted(contexts)]


def is_preset(name: str) -> bool:
    """Whether a name, in any spelling, is that of a preset."""
    return reading(name) is not None


MIN_SIMILARITY = 0.65
"""Names that are less similar (`difflib`'s ratio) are not meant by each other."""
MAX_SUGGESTIONS = 6
MAX_SIZE_RATIO = 2.5
"""Presets that are this much larger or smaller than what was asked for are not suggested."""
_FAMILY = re.compile(r"[a-z]+")
_SIZE = re.compile(r"(?<![a-z\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])\b")


def nearest_preset(name: str) -> str:
    """The preset whose name is nearest, by what matters in it; empty if none is near.

    >>> nearest_preset("mistralai/Mixtral-8x7B-v0.2"), nearest_preset("zzz")
    ('mixtral-8x7b', '')
    """
    for neighbour in neighbours(name):
        if _similarity(name, neighbour) >= MIN_SIMILARITY:
            return neighbour
    return ""


def neighbours(name: str) -> list[str]:
    """Presets of the family and of about the size that a name says, the most alike first.

    >>> neighbours("qwen3.9-8b")[:3]
    ['qwen3-8b', 'qwen3-vl-8b', 'qwen3-reranker-8b']
    """
    families: dict[str, list[str]] = {}
    for preset_name in model_names():
        families.setdefault(_family(preset_name), []).append(preset_name)
    # a family may be misspelt, and a finetune's name often ends with that of its base
    close = difflib.get_close_matches(_family(name), families, 1, 0.75)
    if not close:
        return []
    size = _name_size(name)
    ranked: list[tuple[float, float, str]] = []
    for preset_name in families[close[0]]:
        other = _name_size(preset_name)
        if size and not size / MAX_SIZE_RATIO <= other <= size * MAX_SIZE_RATIO:
            continue
        distance = abs(math.log(other / size)) if size else 0.0
        ranked.append((round(distance, 1), -_similarity(name, preset_name), preset_name))
    return [preset_name for *_, preset_name in sorted(ranked)][:MAX_SUGGESTIONS]


def _family(name: str) -> str:
    match = _FAMILY.match(spelled(name))
    return match[0] if match else ""


def _name_size(name: str) -> float:
    """The billions of parameters that a name says (`8x7b` is 56); 0 where it says none."""
    match = _SIZE.search(spelled(name))
    if match is None:
        return 0.0
    # 8x7b has eight experts of seven billions, less what they share
    return float(match[1] or 1) * float(match[2]) * {"b": 1.0, "m": 1e-3}[match[3]]


def _similarity(name: str, preset_name: str) -> float:
    # the time grows with the length of the name, and no preset has a hundred letters
    return difflib.SequenceMatcher(None, plain(name)[:100], plain(preset_name)).ratio()


OTHERWISE = {
    "-?(embed(ding)?|rerank(er)?)": "A model that embeds or ranks is served as its base (the nearest here: {base}) "
    "with --output 0.",
    r"-?\b(vl|vision|omni)\b": "A model that reads images is its text model (the nearest here: {base}) and what they "
    "add: `dscale simulate {base} --on h100:1 --rate 1/s --images 1x1024,encoder=675M`.",
    r"^[\d.]+[bm]$": "Of a model of which only the size is known, `dscale estimate --params {name}` tells what 6ND "
    "does, and a preset of about that size how it splits and serves: {alike}.",
}
"""What to plan instead of a model that has no preset, by a pattern in its name."""


LATER = ("qwen3", "qwen2.5", "llama3.1", "gemma3", "mistral", "llama2")
"""Families that a size alone may mean, the latest first."""


def _alike(size: str) -> list[str]:
    """Presets of about a size, one of each family of `LATER`; none for a text that is no size.

    >>> _alike("8b")
    ['qwen3-8b', 'qwen2.5-7b', 'llama3.1-8b', 'mistral-7b', 'llama2-7b']
    """
    wanted = _name_size(size)
    alike: list[str] = []
    for family in LATER:
        # names that say a family and a size and nothing else
        sizes = {name: _name_size(name) for name in model_names() if re.fullmatch(rf"{family}-[\d.]+[bm]", name)}
        nearest = min(sizes, key=lambda name: abs(sizes[name] - wanted), default="")
        if wanted and nearest and abs(sizes[nearest] / wanted - 1) <= MAX_SIZE_DIFFERENCE:
            alike.append(nearest)
    return alike


def preset_of_size(text: str) -> str:
    """A preset for a number of parameters: the latest that is named for it, or else one near in size; empty for a text
    that is no size, or where none is near.

    >>> preset_of_size("8b"), preset_of_size("70B"), preset_of_size("13b"), preset_of_size("5000b")
    ('qwen3-8b', 'llama3.1-70b', 'llama2-13b', '')
    """
    size = text.strip().lower()
    if not re.fullmatch(r"[\d.]+[bm]", size):
        return ""
    alike = _alike(size)
    named = [name for name in alike if name.endswith(f"-{size}")]
    return next(iter(named or alike), "")


MAX_SIZE_DIFFERENCE = 0.2
"""Presets that differ by more of a size are not taken for it."""


def no_model(name: str, hint: str) -> InputError:
    """The error for a name that stands for nothing."""
    if name.startswith(("/", "./", "../", "~")):
        return InputError(f"There is no file or folder {shorten(name)}.")
    refused = unplanned(name)
    if refused is not None:
        return refused
    guess = instead(name)
    guess = f"; {guess}" if guess.startswith("did you") else f". {guess}".rstrip()
    suggestions = neighbours(name)
    similar = f" Similar: {', '.join(suggestions)}." if suggestions else ""
    listing = f"`dscale models` lists all {len(model_names())}."
    return InputError(f"There is no model {shorten(name)}{guess or '.'}{similar} {listing} {hint}".rstrip())


def unplanned(name: str) -> InputError | None:
    """The error for a name of which it is known why it cannot be planned; None for others."""
    for row in beside(__file__, "unplanned.toml")["models"]:
        if re.search(row["name"], spelled(name)):
            return InputError(f"{shorten(name)} is not planned here. {row['why']}")
    return None


def instead(name: str) -> str:
    """What to plan instead of a model that has no preset, or the preset that was meant; empty where none is near."""
    for pattern, advice in OTHERWISE.items():
        if re.search(pattern, name.lower()):
            base = nearest_preset(re.sub(pattern, "", name.lower())) or "MODEL"
            return advice.format(base=base, name=name, alike=", ".join(_alike(name)))
    close = nearest_preset(name)
    return f"did you mean {close!r}?" if close else ""


def preset(name: str) -> dict[str, Any]:
    """A preset's table, merged over that of its base."""
    target = reading(name)
    if target is None:
        raise no_model(name, "A config.json, a folder, a .gguf, a .toml or org/name of the Hub works too.")
    stem, preset_name = target.entry
    table = {"name": preset_name} | tables(stem)[preset_name]
    if "base" in table:
        base = {key: value for key, value in preset(table["base"]).items() if key not in ("aliases", "name")}
        table = merged(base, table)
    if plain(name, "") != plain(name):
        # the name says how the weights are stored (llama3-70b-fp8), as publishers of such checkpoints do it
        for row in beside(__file__, "published.toml")["names"]:
            match = re.search(row["name"], name.strip())
            if match and not ("unless" in row and "quantization_config" in table):
                return table | {"name": name.strip(), "quantization_config": row["config"] | match.groupdict()}
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


def _from_table(table: Mapping[str, Any], assume: Assumed | None, family: str) -> "Transformer":
    from dragonscale.models.huggingface import load_config

    fields = {key: value for key, value in table.items() if key not in _ABOUT}
    model = load_config(fields, str(table["name"]), assume, family)
    task = str(table.get("task") or model.task)
    return replace(model, sources={"config": str(table.get("source", ""))}, task=task)


def toml_fields(path: Path) -> dict[str, Any]:
    """The table of a user's model, merged over that of its base."""
    table = {"name": path.stem} | read_table(path, "Model file")
    checked_name(table["name"], str(path))
    if "base" not in table:
        return {"source": str(path)} | table
    if not isinstance(table["base"], str):
        raise InputError(f"{shorten(str(path))} has a base of {shorten(table['base'])}, which is not a name.")
    below = preset(table["base"])
    return merged(below, _spelt(table, below))


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
