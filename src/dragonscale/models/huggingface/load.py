"""From a Hugging Face `config.json`, as a path or as a dict, to a `Transformer`.

>>> from dragonscale.models.transformer import count_parameters
>>> sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256, "intermediate_size": 14336}
>>> heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
>>> count_parameters(load_config({"model_type": "llama"} | sizes | heads)).total
8030261248

Nothing that could change the model is ignored:

>>> load_config({"model_type": "llama", "kv_borrowed_from": 2} | sizes | heads)
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: The llama config has the field kv_borrowed_from = 2, which Dragonscale does not
understand for this kind of model; it could change the counts, so it is refused.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.huggingface.families import FAMILIES
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.quantization import read_quantization, stored_dtype, weight_dtypes
from dragonscale.models.huggingface.vision import WRAPPERS
from dragonscale.models.transformer import Transformer

MOST_BYTES = 4_000_000
"""A config is a few kilobytes; anything much larger is not one."""


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("defaults.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def model_types() -> list[str]:
    """Every `model_type` that can be read."""
    return sorted({*FAMILIES, *WRAPPERS})


def read_config(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file, or in the `config.json` of a folder."""
    path = Path(path)
    try:
        path = path / "config.json" if path.is_dir() else path
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{shorten(str(path))} has {path.stat().st_size:,} bytes; a config.json has at most {MOST_BYTES:,}."
            )
        given = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not JSON"
        raise InputError(f"{shorten(str(path))} cannot be read as a config.json: {why}.") from None
    if not isinstance(given, dict):
        raise InputError(f"{shorten(str(path))} holds JSON, but not an object with fields, as a config.json does.")
    return given


def load_config(source: str | Path | Mapping[str, Any], name: str = "") -> Transformer:
    """The model that a `config.json` describes. See the module's examples."""
    if isinstance(source, Mapping):
        given = source
    else:
        given = read_config(source)
        path = Path(source)
        stem = path.name if path.is_dir() else (path.parent.name if path.stem == "config" else path.stem)
        name = name or stem.replace("--", "/")
    model_type = given.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InputError("The config has no model_type, the field that says how to read it.")
    model = _read_outer(given, model_type) if model_type in WRAPPERS else _read(given, model_type)
    inner = given.get("text_config") if model_type in WRAPPERS else None
    inner = inner if isinstance(inner, Mapping) else {}
    quantization = given.get("quantization_config", inner.get("quantization_config"))
    dtype = stored_dtype(given, inner)
    stored = weight_dtypes(model, quantization, given.get("expert_dtype"), dtype)
    label = name or str(given.get("_name_or_path") or "") or model_type
    return replace(model, name=label, dtype=dtype, weight_dtypes=stored, quantization=read_quantization(quantization))


def _read(given: Mapping[str, Any], model_type: str, nested: bool = False) -> Transformer:
    """A text model. At the top level its sizes must be given; inside another config they may be left to defaults."""
    if model_type not in FAMILIES:
        raise unknown("model type", model_type, model_types())
    defaults = dict(_defaults().get(model_type, {}))
    if not nested:
        for size in ("hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "n_layers", "vocab_size"):
            defaults.pop(size, None)
    fields = Fields(given, defaults, f"The {model_type} config")
    fields.skip("model_type", "quantization_config", "torch_dtype", "dtype", "expert_dtype")
    model = FAMILIES[model_type](fields)
    fields.refuse_unread()
    return model


def _read_outer(given: Mapping[str, Any], model_type: str) -> Transformer:
    """A model that sees: text inside, tower beside. Older files have the text's fields at the top."""
    text_type, tower, vision_type = WRAPPERS[model_type]
    outer = Fields(given, _defaults().get(model_type, {}), f"The {model_type} config")
    inner = outer.value("text_config")
    if inner is not None and not isinstance(inner, dict):
        raise InputError(f"The {model_type} config has a text_config of {shorten(inner)}, which is not an object.")
    vision = outer.inner("vision_config", _defaults().get(vision_type, {}))
    if vision is not None:
        vision.skip("model_type", "torch_dtype", "dtype")
    if inner is None:
        rest = {key: value for key, value in given.items() if key not in ("vision_config", "model_type")}
        model = _read(rest, text_type)
        outer.read.update(rest)
    else:
        kind = inner.get("model_type", text_type)
        if not isinstance(kind, str):
            raise InputError(f"The text_config has a model_type of {shorten(kind)}, which is not a name.")
        model = _read(inner, kind, nested=True)
        if "tie_word_embeddings" in given:
            model = replace(model, tied=outer.flag("tie_word_embeddings"))
    if vision is not None:
        model = replace(model, extras=(*model.extras, *tower(vision, outer, model.d_model)))
        vision.refuse_unread()
    outer.refuse_unread()
    return model
