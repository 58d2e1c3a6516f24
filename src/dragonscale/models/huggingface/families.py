"""Every model type that can be read, and the function that reads it.

Most families differ in a few fields: they are rows of `families.toml`, which says what a row may hold. Those with a
form of their own are functions, by kind of model in a file each; their rows say what fields must be and which do not
matter.
"""

from functools import partial
from typing import Any

from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface import deepseek, dense, hybrid, moe, statespace
from dragonscale.models.huggingface.parts import RULES, ModelConfig, Reader, all_but_every
from dragonscale.models.layer import Component, Layer
from dragonscale.models.transformer import Transformer
from dragonscale.tables import beside

Row = dict[str, Any]
_ROWS: dict[str, Row] = beside(__file__, "families.toml")
PLAIN: list[str] = _ROWS.pop("kin")["plain"]


def _value(f: ModelConfig, text: Any) -> Any:
    """A row's value: itself, a word or true where a flag is on (else None), or a number of the config."""
    if not isinstance(text, str):
        return text
    word, conditional, flags = text.partition("?")
    if conditional:
        is_on = [f.flag(name) for name in flags.split("|")]  # all of them are read
        if not any(is_on):
            return None
        if word.isdigit():
            return int(word)
        return word or True
    if not text.startswith("#"):
        return text
    names, has_default, otherwise = text[1:].partition(":")
    if has_default:  # `#field:8` is 8 where the field is null, 0 or absent
        return f.natural(*names.split("|")) or int(otherwise)
    return f.count(*names.split("|"))


def _options(f: ModelConfig, options: Row) -> Row:
    """The options that are on."""
    values = {name: _value(f, text) for name, text in options.items()}
    return {name: value for name, value in values.items() if value is not None}


def _mixer(f: ModelConfig, row: Row, window: int | None = None) -> Component:
    if "latent" in row:
        return f.latent_attention(**_options(f, row["latent"]))
    options = _options(f, row.get("full_heads", row.get("attention", {})))
    bias = options.pop("bias", False)  # a bias on all four projections
    options = {"qkv_bias": bias, "out_bias": bias, "window": window} | options
    if "full_heads" in row:
        return f.full_heads(**options)
    return f.attention(**options)


def _mlp(f: ModelConfig, row: Row) -> Mlp:
    options = _options(f, {"d_ff": "#intermediate_size"} | row.get("mlp", {}))
    return Mlp(options.pop("d_ff") or 4 * f.d_model(), **options)


def _experts(f: ModelConfig, row: Row) -> Moe:
    options = _options(f, {"d_ff": "#moe_intermediate_size"} | row["moe"])
    if "shared" in options:
        # the row counts shared experts; together they are one MLP of their summed width
        options["shared_d_ff"] = options.pop("shared") * options["d_ff"]
    return f.routed(**options)


def _spans(f: ModelConfig, row: Row, n_layers: int) -> list[int | None]:
    rule = _value(f, row.get("window"))
    if rule is None:
        return [None] * n_layers
    if isinstance(rule, str):
        return RULES[rule](f, n_layers)
    return f.windows(n_layers, all_but_every(rule))  # the last layer of every so many sees all keys


def _sparse(f: ModelConfig, row: Row, n_layers: int) -> list[bool]:
    """Which layers have experts: by a list in the config, or from a layer on, every so many."""
    if "sparse" not in row:
        return ["moe" in row] * n_layers
    if row["sparse"] == "qwen":
        return f.is_sparse()
    rule = {"every": 1, "listed": True} | _options(f, row["sparse"])
    if rule["listed"]:
        return f.sparse_from(rule["from"], rule["every"])
    return [number >= rule["from"] and number % rule["every"] == 0 for number in range(n_layers)]


def _read_row(row: Row, f: ModelConfig) -> Transformer:
    """The model that a config describes, as its family's row says to read it."""
    n_layers = f.n_layers(*row.get("layers", ()))
    experts = _experts(f, row) if "moe" in row else None
    options = _options(f, row.get("layer", {}))
    layers: list[Layer] = []
    for span, sparse in zip(_spans(f, row, n_layers), _sparse(f, row, n_layers), strict=True):
        # the dense size is read only where a layer is dense: some configs lack it
        layers.append(Layer(_mixer(f, row, span), experts if sparse else _mlp(f, row), **options))
    frame = _options(f, row.get("frame", {}))
    if "mtp" in row:
        # the row says whether a module has tables of its own: an embedding and a head
        frame["extras"] = f.multi_token([Layer(_mixer(f, row), experts or _mlp(f, row))], copies=row["mtp"])
    return f.decoder(layers, **frame)


def _read(row: Row, form: Reader, f: ModelConfig) -> Transformer:
    f.check(row | {"must": _options(f, row.get("must", {}))})
    return form(f)


def _families() -> dict[str, Reader]:
    rows = {name: _ROWS.get(row.get("like", ""), {}) | row for name, row in _ROWS.items()}
    forms: dict[str, Reader] = {name: partial(_read_row, row) for name, row in rows.items()}
    for module in (dense, moe, deepseek, hybrid, statespace):
        forms |= module.FAMILIES  # a row of these only says what fields must be
    return {name: partial(_read, rows.get(name, {}), form) for name, form in forms.items()}


FAMILIES: dict[str, Reader] = _families()
