"""What the page's field for a model asks: a line about the model that it names, and a config that was dropped, made
small.

A dropped `config.json` stands in the page's address, so that a link to it works for others too. Most of a config is
about tokens, training and file names and changes nothing that is counted: those fields are left out where the model
stays the same.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models import count_parameters, load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.huggingface import load_config
from dragonscale.models.huggingface.fields import is_inert
from dragonscale.models.names import safe_name
from dragonscale.models.transformer import Transformer
from dragonscale.physics.units import render
from dragonscale.web.amounts import amount
from dragonscale.web.page_request import PageRequest
from dragonscale.web.words import dropped_model, looks_like_file, question_of

LONGEST = 6000
"""Characters of a config that still goes into an address."""
_KEPT = ("torch_dtype", "dtype", "quantization_config", "model_type")


def line_panel(asked: PageRequest) -> dict[str, Any]:
    """A model in a line: `70.6B parameters, 80 layers, d_model 8,192`."""
    model = load_model(question_of("models", {"model": asked.fields.get("model", "")}, asked.dropped).model)
    counts = count_parameters(model)
    used = "" if counts.active >= counts.total * 0.9 else f" ({render(counts.active, 'count')} active)"
    size = render(counts.total, "count")
    return {
        "name": model.name,
        "parameters": amount(counts.total, "count", "model:parameters", size),
        "text": f"{size} parameters{used}, {model.n_layers} layers, d_model {model.d_model:,}",
        "notes": list(model.notes),
    }


def config_panel(asked: PageRequest) -> dict[str, Any]:
    """The config under `dropped`: the name that the field gives it, its text made small, and whether an address can
    hold it."""
    if len(asked.dropped) != 1:
        raise InputError("One config.json at a time is read; drop it on the page.")
    [(given, text)] = asked.dropped.items()
    model = dropped_model(given, text)
    whole: dict[str, Any] = json.loads(text)
    small = _smaller(whole)
    kept = small if _same(model, small) else whole
    written = json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
    return {
        "name": _name(given, whole),
        "text": written,
        "in_address": len(written) <= LONGEST,
        "characters": len(written),
    }


def _name(given: str, whole: Mapping[str, Any]) -> str:
    """What the model is called: as the config says, else as the file, else by its type; never like a file."""
    said = str(whole.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    stem = re.sub(r"(\.(json|txt))+$", "", given.rsplit("/", 1)[-1], flags=re.IGNORECASE)
    called = next((one for one in (said, stem if stem != "config" else "") if one), f"my-{whole.get('model_type')}")
    name = re.sub(r"[^\w.-]", "-", safe_name(called))[:60]
    name = f"my-{name}" if is_preset(name) else name
    return re.sub(r"[./]", "-", name) if looks_like_file(name) else name


def _smaller(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that change no count, at every depth."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _KEPT or not is_inert(name, value):
            found[name] = _smaller(value) if isinstance(value, Mapping) and name != "quantization_config" else value
    return found


def _same(model: Transformer, small: Mapping[str, Any]) -> bool:
    """Whether the smaller config is the same model in all that is counted."""
    try:
        other = load_config(small, model.name)
    except InputError:
        return False
    return str(other.program()) == str(model.program()) and other.weight_dtypes == model.weight_dtypes
