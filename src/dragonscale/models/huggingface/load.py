"""From a Hugging Face `config.json`, as a path or as a dict, to a `Transformer`.

>>> from dragonscale.models.transformer import count_parameters
>>> sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256, "intermediate_size": 14336}
>>> heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
>>> count_parameters(load_config({"model_type": "llama"} | sizes | heads)).total
8030261248

Nothing that could change the model is ignored, unless that is asked for:

>>> load_config({"model_type": "llama", "kv_borrowed_from": 2} | sizes | heads)
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: The llama config has the field kv_borrowed_from = 2, which Dragonscale does not
understand ...
>>> odd = {"model_type": "llama", "kv_borrowed_from": 2, "swa_rope_theta": 1e4} | sizes | heads
>>> for note in load_config(odd, assume={"kv_borrowed_from": "ignore"}).notes:
...     print(note)
Assumed: kv_borrowed_from=ignore.
Fields passed over, as they change no count: swa_rope_theta = 10000.0 (RoPE).

A model type that is not known is read as the family whose fields it has:

>>> load_config({"model_type": "llamb"} | sizes | heads).notes[0][:66]
"The model type 'llamb' is not known; its fields are those of llama"
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.assumed import Assumed, assumed_fields, told_assumed
from dragonscale.models.huggingface.families import FAMILIES
from dragonscale.models.huggingface.fields import SIZES, Fields, Findings, few, is_inert
from dragonscale.models.huggingface.nearest_family import match_note, matching_families
from dragonscale.models.huggingface.parts import ModelConfig
from dragonscale.models.huggingface.quantization import read_quantization, stored_dtype, weight_dtypes
from dragonscale.models.huggingface.towers import TOWERS
from dragonscale.models.names import safe_name
from dragonscale.models.transformer import Transformer
from dragonscale.tables import beside, read_regular

MOST_BYTES = 4_000_000
"""A config is a few kilobytes; anything much larger is not one."""

INSIDE = ("text_config", "llm_config", "language_config", "thinker_config")
"""Under which names a model that sees or hears keeps its language model."""


_file = cache(partial(beside, __file__))


def _defaults(model_type: str) -> dict[str, Any]:
    """What absent fields of a type mean."""
    return _file("defaults.toml").get(model_type, {})


def model_types() -> list[str]:
    """Every `model_type` that can be read."""
    return sorted({*FAMILIES, *_file("towers.toml")})


def read_config(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file, or in the `config.json` of a folder."""
    path = Path(path)
    try:
        if path.is_dir():
            path = path / "config.json"
        config = json.loads(read_regular(path, "Config file", MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        why = "it is not JSON"
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        raise InputError(f"{shorten(str(path))} cannot be read as a config.json: {why}.") from None
    if not isinstance(config, dict):
        raise InputError(f"{shorten(str(path))} holds JSON, but not an object with fields, as a config.json does.")
    return config


def load_config(
    source: str | Path | Mapping[str, Any], name: str = "", assume: Assumed | None = None, family: str = ""
) -> Transformer:
    """The model that a `config.json` describes. `assume` overrides fields of it ("ignore" leaves one out), `family`
    says as which model type it is read. See the module's examples."""
    if isinstance(source, Mapping):
        config = source
    else:
        config = read_config(source)
        path = Path(source)
        if path.is_dir():
            stem = path.resolve().name
        elif path.stem == "config":
            stem = path.parent.name
        else:
            stem = path.stem
        name = name or stem.replace("--", "/")  # the Hub's folders have -- for the slash
    config = assumed_fields(config, assume or {})
    findings = Findings()
    findings.notes += told_assumed(assume or {})
    model_type = config.get("model_type")
    if family:
        if family not in model_types():
            raise unknown("family", family, model_types(), "They are the model types of --as.")
        findings.notes.append(f"Read as {family}, as asked; the config's own model type is {shorten(model_type)}.")
        config, model_type = {**config, "model_type": family}, family
    if not model_type and "_diffusers_version" in config:
        kind = config.get("_class_name", "model")
        raise InputError(f"The config is of a {kind} of diffusers; only Transformers of tokens are planned here.")
    if not isinstance(model_type, str) or not model_type:
        raise InputError(
            "The config has no model_type, the field that says how to read it; `--as FAMILY` gives it one."
        )
    nested = [config[key] for key in INSIDE if isinstance(config.get(key), Mapping)]
    inner = nested[0] if nested else None
    if model_type in _file("towers.toml"):
        model = _read_outer(config, model_type, findings)
    elif model_type not in FAMILIES and inner is not None:
        model = _read_unknown_outer(config, inner, model_type, findings)
    else:
        model, inner = _read(config, model_type, findings), None
    # all fields that nobody understood, in one error
    findings.refuse(f"The {model_type} config")
    inner = inner or {}
    quantization = config.get("quantization_config", inner.get("quantization_config"))
    dtype = stored_dtype(config, inner)
    stored = weight_dtypes(model, quantization, config.get("expert_dtype"), dtype)
    label = safe_name(name or str(config.get("_name_or_path") or "") or model_type)
    return replace(
        model,
        name=label,
        dtype=dtype,
        weight_dtypes=stored,
        quantization=read_quantization(quantization),
        notes=tuple(findings.told()),
        config=dict(config),
    )


def _read(config: Mapping[str, Any], model_type: str, findings: Findings, nested: bool = False) -> Transformer:
    """A text model of its type or, of an unknown type, of the family that matches its fields best. At the top level
    its sizes must be given; inside another config they may be left to defaults."""
    if model_type in FAMILIES:
        defaults = _defaults(model_type)
        if not nested:
            # without its sizes a config is not that of some model: the class's own would be taken for them
            defaults = {key: value for key, value in defaults.items() if key not in SIZES}
        return _read_as(config, model_type, findings, defaults)[0]

    def read(family: str, family_findings: Findings) -> tuple[Transformer, int]:
        # no defaults: a field that the config lacks does not exist in its class
        return _read_as(config, family, family_findings, {})

    matches = matching_families(model_type, config, FAMILIES, read)
    if not matches:
        raise unknown("model type", model_type, model_types(), "`--as FAMILY` reads a config as one of them.")
    best = matches[0]
    if best.findings.refused:
        raise InputError(
            f"There is no model type {shorten(model_type)}; its fields are nearest to those of {best.family}, except "
            f"for {', '.join(few(best.findings.refused))}: `--as {best.family}` with `--assume key=ignore` for each of "
            "them counts without."
        )
    findings.notes.append(match_note(model_type, matches))
    findings.join(best.findings)
    return best.model


def _read_as(
    config: Mapping[str, Any], family: str, findings: Findings, defaults: Mapping[str, Any]
) -> tuple[Transformer, int]:
    """A text model as a family's, and how many fields that matter were understood."""
    fields = ModelConfig(config, defaults, f"The {config.get('model_type', family)} config", findings)
    fields.skip("model_type", "quantization_config", "torch_dtype", "dtype", "expert_dtype")
    model = FAMILIES[family](fields)
    fields.settle(text_only=True)
    understood = [name for name, value in config.items() if name in fields.read and not is_inert(name, value)]
    return model, len(understood)


def _read_inner(inner: Mapping[str, Any], text_type: str, findings: Findings) -> Transformer:
    kind = inner.get("model_type", text_type)
    if not isinstance(kind, str):
        raise InputError(f"The text_config has a model_type of {shorten(kind)}, which is not a name.")
    return _read(inner, kind, findings, nested=True)


def _read_outer(config: Mapping[str, Any], model_type: str, findings: Findings) -> Transformer:
    """A model that sees: text inside, tower beside. Older files have the text's fields at the top."""
    row = _file("towers.toml")[model_type]
    row = _file("towers.toml").get(row.get("like", ""), {}) | row  # its own entries win
    outer = Fields(config, _defaults(model_type), f"The {model_type} config", findings)
    where = next((key for key in INSIDE if config.get(key) is not None), INSIDE[0])
    inner = outer.value(where)
    outer.skip(*INSIDE)
    if inner is not None and not isinstance(inner, dict):
        raise InputError(f"The {model_type} config has a {where} of {shorten(inner)}, which is not an object.")
    sees = outer.value("vision_config")
    if inner is None:  # as in files from before text_config
        rest = {key: value for key, value in config.items() if key not in ("vision_config", "model_type")}
        model = _read(rest, row["text"], findings)
        outer.read.update(rest)
    else:
        model = _read_inner(inner, row["text"], findings)
        # InternVL's own files build the language model from its own config alone
        if "tie_word_embeddings" in config and where != "llm_config":
            model = replace(model, tied=outer.flag("tie_word_embeddings"))
        outer.skip("tie_word_embeddings")
    if sees is None:
        outer.settle()
        return model
    # What a tower has that is not understood costs the tower and not the answer: it is counted apart.
    tower_findings = Findings()
    try:
        if not isinstance(sees, dict):
            raise InputError(f"The {model_type} config has a vision_config of {shorten(sees)}, which is not an object.")
        eye = Fields(
            sees, _defaults(row.get("vision", "")), f"vision_config of the {model_type} config", tower_findings
        )
        eye.skip("model_type", "torch_dtype", "dtype", "vocab_size", "projection_dim")
        extras = TOWERS[row["tower"]](eye, outer, model.d_model)
        eye.check(row)
        outer.check(row.get("outer", {}))
        eye.settle()
        tower_findings.refuse("Its vision_config")
    except InputError as error:
        findings.notes.append(f"The vision tower is left out of the count: {error}")
        outer.settle(text_only=True)
        return model
    findings.join(tower_findings)
    outer.settle()
    return replace(model, extras=(*model.extras, *extras))


def _read_unknown_outer(
    config: Mapping[str, Any], inner: Mapping[str, Any], model_type: str, findings: Findings
) -> Transformer:
    """A model of an unknown type that has a language model inside: that alone is counted."""
    model = _read_inner(inner, "", findings)
    findings.notes.append(
        f"The model type {model_type!r} is not known; its language model alone is counted, not what it sees or "
        "hears with."
    )
    if "tie_word_embeddings" in config:
        outer = Fields(config, {}, f"The {model_type} config", findings)
        model = replace(model, tied=outer.flag("tie_word_embeddings"))
    return model
