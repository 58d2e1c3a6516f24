"""A model by the names that others know it by: its repository on the Hub, or its sizes.

>>> hub_id("llama3-70b"), preset_named("meta-llama/Meta-Llama-3-70B")
('meta-llama/Meta-Llama-3-70B', 'llama3-70b')
>>> model_of_sizes(
...     {
...         "model_type": "llama",
...         "hidden_size": 4096,
...         "intermediate_size": 14336,
...         "num_hidden_layers": 32,
...         "num_attention_heads": 32,
...         "num_key_value_heads": 8,
...         "vocab_size": 128256,
...     }
... )
'llama3-8b'
>>> model_of_sizes(
...     {
...         "model_type": "llama",
...         "hidden_size": 4096,
...         "intermediate_size": 14336,
...         "num_hidden_layers": 16,
...         "num_attention_heads": 32,
...         "num_key_value_heads": 8,
...         "vocab_size": 128256,
...     }
... )
'llama3-8b?num_hidden_layers=16'
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.terms import load_terms
from dragonscale.models import hub
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset, model_names, preset
from dragonscale.models.served_checkpoints import instruct_repository

TERMS = load_terms("models")

SIZES = TERMS.lists["sizes"]
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def hub_id(model: str) -> str:
    """What engines call a model: a preset's repository on the Hub, or the path or repository that it was named by."""
    text = read_asked(model).text
    if not is_preset(text):
        return f"./{text}" if text.startswith("-") else text  # a folder of such a name would be read as a flag
    source = str(preset(text).get("source", ""))
    found = hub.hub_name(source) if source else None
    return found.repo if found is not None else text


def is_changed(model: str) -> bool:
    """Whether fields are assumed behind a model's name. A question mark in a path is none of that.

    >>> is_changed("llama3-8b?head_dim=64"), is_changed("models/what?")
    (True, False)
    """
    return read_asked(model).text != model


def served_id(model: str) -> str:
    """What engines call the model that clients talk to: of a preset, or a model by its plain name, the checkpoint for
    chat; of a repository or path the one that was named, and the base where `base` is said.

    >>> served_id("llama3.1-8b"), served_id("meta-llama/Llama-3.1-8B"), served_id("llama3.1-8b-base")
    ('meta-llama/Llama-3.1-8B-Instruct', 'meta-llama/Llama-3.1-8B', 'meta-llama/Llama-3.1-8B')
    """
    named = read_asked(model).text.strip()
    repository = hub_id(model)
    if "/" in named or re.search(r"(?i)[-_](base|pt)$", named):
        return repository
    return instruct_repository(repository)


def preset_named(name: str) -> str:
    """The preset that a repository or a name stands for; the name itself where there is none."""
    text = name.strip()
    if text.lower() in _own_names():  # a preset that starts from another has its name in its fields
        return _own_names()[text.lower()]
    return str(preset(text)["name"]) if is_preset(text) else text


@cache
def _own_names() -> dict[str, str]:
    """Presets by their names, their repositories (for chat too) and the last parts of those."""
    found = {name.lower(): name for name in model_names()}
    for name in model_names():
        for repository in (hub_id(name), served_id(name)):
            found.setdefault(repository.lower(), name)
            found.setdefault(repository.lower().rpartition("/")[2], name)
    return found


@cache
def _presets() -> dict[str, dict[str, Any]]:
    return {name: _plain(preset(name)) for name in model_names()}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the language model, of a config that has others beside it."""
    inner = fields.get("text_config")
    flat = {**fields, **inner} if isinstance(inner, Mapping) else dict(fields)
    for name in EXPERTS:
        if flat.get(name):
            flat["experts"] = flat[name]
    return flat


def model_of_sizes(sizes: Mapping[str, Any], like: str = "") -> str:
    """The preset that has these fields of a `config.json`; or the nearest of its type, with what differs assumed
    (`llama3-8b?num_hidden_layers=16`). Fields that are not said, or None, agree with anything; `like` is preferred
    where several agree."""
    said = {name: value for name, value in _plain(sizes).items() if value is not None}
    kind = said.get("model_type")
    kin = {name: own for name, own in _presets().items() if not kind or own.get("model_type") == kind}
    if not kin:
        raise InputError(f"No preset is of type {said.get('model_type')}; give the model by --model.")
    wanted = [*SIZES, "experts"]

    def differing(name: str) -> list[str]:
        own = kin[name]
        return [key for key in wanted if key in said and _size(own, key) != said[key]]

    ranked = sorted(kin, key=lambda name: (len(differing(name)), name != like, len(name), name))
    best = ranked[0]
    changes = []
    for key in differing(best):
        spelt = key if key != "experts" else next((one for one in EXPERTS if one in kin[best]), "num_local_experts")
        changes.append(f"{spelt}={said[key]}")
    return f"{best}?{'&'.join(changes)}" if changes else best


def _size(own: Mapping[str, Any], key: str) -> Any:
    if own.get(key) is not None:
        return own[key]
    if key == "num_key_value_heads":
        return own.get("num_attention_heads")
    if key == "head_dim" and own.get("num_attention_heads"):
        return own["hidden_size"] // own["num_attention_heads"]
    return None
