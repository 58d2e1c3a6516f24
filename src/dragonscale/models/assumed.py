"""What a user says about a config beside what stands in it: `--assume key=value`, `--as FAMILY`.

Both can be written behind a model's name, as in the query of a web address, so that everything that
takes a model takes them and a saved plan keeps them:

>>> asked = read_asked("config.json?num_loops=ignore&head_dim=128&as=llama")
>>> asked.text, asked.assume, asked.family
('config.json', {'num_loops': 'ignore', 'head_dim': 128}, 'llama')
>>> write_asked("config.json", ["num_loops=ignore"], "llama")
'config.json?num_loops=ignore&as=llama'
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dragonscale.errors import InputError, shorten

IGNORE = "ignore"
Assumed = Mapping[str, Any]
"""Fields of a config with the values to take for them; `ignore` leaves a field out."""


@dataclass(frozen=True)
class Asked:
    """A model as it was written: where it is, fields assumed, and the family to read it as."""

    text: str
    assume: dict[str, Any] = field(default_factory=dict)
    family: str = ""


def read_asked(text: str) -> Asked:
    """Split what stands behind a question mark from a model's name or path."""
    where, mark, query = text.rpartition("?")
    if not mark or "=" not in query:
        return Asked(text)
    assume = read_assumptions(query.split("&"))
    family = assume.pop("as", "")
    if not isinstance(family, str):
        raise InputError(f"The model {shorten(text)} asks to be read as {shorten(family)}, which is no family.")
    return Asked(where, assume, family)


def write_asked(text: str, assume: Iterable[str] = (), family: str = "") -> str:
    """A model's text with what is assumed behind it."""
    read_assumptions(assume)  # refuses what would not be read back
    parts = list(map(str.strip, assume))
    if family:
        parts.append(f"as={family}")
    if not parts:
        return text
    # a model that has a query already gets more of it
    mark = "?" if read_asked(text).text == text else "&"
    return f"{text}{mark}{'&'.join(parts)}"


def with_assumed(model: Any, assume: str = "", family: str = "") -> Any:
    """The model of a question with what its flags `--assume` (several with commas) and `--as` say written behind it,
    so that whatever is made from the question (a saved plan, a verification) keeps them.

    >>> with_assumed("config.json", 'layer_types=["a","b"],head_dim=128', "llama")
    'config.json?layer_types=["a","b"]&head_dim=128&as=llama'
    """
    if not assume and not family:
        return model
    if not isinstance(model, str):
        raise InputError("--assume and --as are about a config; a Transformer has none.")
    return write_asked(model, _BETWEEN.split(assume) if assume else (), family)


_BETWEEN = re.compile(r",(?=\s*[\w.-]+=)")
"""A comma before the next key; those inside a list are part of a value."""


def read_assumptions(parts: Iterable[str]) -> dict[str, Any]:
    """`key=value` each; a value is JSON where it can be, else text.

    >>> read_assumptions(["qk_norm=true", "layer_types=ignore"])
    {'qk_norm': True, 'layer_types': 'ignore'}
    """
    assumptions: dict[str, Any] = {}
    for part in parts:
        key, mark, value = part.strip().partition("=")
        if not mark or not key or not value or "&" in part:
            raise InputError(f"--assume is {shorten(part)}; write key=value, or key=ignore to leave a field out.")
        try:
            assumptions[key] = json.loads(value)
        except (ValueError, RecursionError):
            assumptions[key] = value
    return assumptions


def assumed_fields(config: Mapping[str, Any], assume: Assumed) -> Mapping[str, Any]:
    """The config with those fields changed: at the top, or in the objects inside that have them. `text_config.key`
    names one place. A field that is nowhere is added, to the language model where that is an object of its own."""
    if not assume:
        return config
    # copies of the objects inside, so that the config itself stays as it is
    inside = {key: dict(value) for key, value in config.items() if isinstance(value, dict)}
    changed = {**config, **inside}
    for name, value in assume.items():
        table, dot, key = name.rpartition(".")
        if dot:
            if table not in inside:
                raise InputError(f"--assume is {shorten(name)}, but the config has no object {shorten(table)}.")
            homes = [inside[table]]
        else:
            homes = [home for home in (changed, *inside.values()) if key in home]
        if not homes and value == IGNORE:
            raise InputError(f"--assume {name}=ignore: the config has no field {shorten(name)}.")
        text = next((inside[name] for name in ("text_config", "llm_config") if name in inside), changed)
        for home in homes or [text]:
            if value == IGNORE:
                home.pop(key, None)
            else:
                home[key] = value
    return changed


def told_assumed(assume: Assumed) -> list[str]:
    """The note on what was assumed."""
    if not assume:
        return []
    parts = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in assume.items())
    return [f"Assumed: {', '.join(parts)}."]
