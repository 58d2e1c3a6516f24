"""A plain model from the book's letters, in Python or as a few lines of TOML.

>>> from dragonscale.models.transformer import count_parameters
>>> model = simple("mine", d_model=4096, d_ff=14336, n_layers=32, n_heads=32, n_kv_heads=8, vocab=128256)
>>> count_parameters(model).total
8030261248
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError, nearest, shorten
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def simple(
    name: str = "simple",
    *,
    d_model: int,
    d_ff: int,
    n_layers: int,
    n_heads: int,
    vocab: int,
    n_kv_heads: int | None = None,
    head_dim: int | None = None,
    gated: bool = True,
    tied: bool = False,
    n_experts: int = 0,
    experts_per_token: int = 1,
    shared_d_ff: int = 0,
    dense_layers: int = 0,
    dense_d_ff: int | None = None,
    window: int | None = None,
    bias: bool = False,
    positions: int = 0,
    context: int | None = None,
) -> Transformer:
    """A Transformer of equal layers; with `n_experts`, MoE layers after the first `dense_layers`. KV heads default to
    the query heads, their size to d_model / n_heads.

    `bias` puts biases on every projection and norm, as GPT has them; `positions` adds that many learnt positions.
    """
    if head_dim is None and d_model % n_heads:
        raise InputError(f"A d_model of {d_model} cannot be split over {n_heads} heads evenly; give head_dim.")
    mixer = Attention(
        n_heads, n_kv_heads or n_heads, head_dim or d_model // n_heads, window=window, qkv_bias=bias, out_bias=bias
    )
    dense = Layer(mixer, Mlp(dense_d_ff or d_ff, gated, bias), norm_bias=bias)
    layers = [dense] * n_layers
    if n_experts:
        moe = Moe(n_experts, experts_per_token, d_ff, shared_d_ff, gated, bias, shared_bias=bias)
        sparse = Layer(mixer, moe, norm_bias=bias)
        layers = ([dense] * dense_layers + [sparse] * n_layers)[:n_layers]
    return Transformer(
        name, d_model, vocab, tuple(layers), tied=tied, positions=positions, final_norm_bias=bias, context=context
    )


_MAY_BE_ZERO = ("n_experts", "shared_d_ff", "dense_layers", "positions")
FIELDS = {name: bool if kind is bool else int for name, kind in list(simple.__annotations__.items())[1:-1]}
"""The fields of a plain model in a file are the arguments of `simple`, all but the name."""
_NEEDED = [name for name in FIELDS if name not in (simple.__kwdefaults__ or {})]


def simple_from(table: Mapping[str, Any], where: str) -> Transformer:
    """A plain model from a table of a file, each field checked."""
    fields = {key: value for key, value in table.items() if key not in ("name", "source")}
    for key, value in fields.items():
        if key not in FIELDS:
            close = nearest(key, FIELDS)
            guess = f"; did you mean {close!r}?" if close else ""
            raise InputError(
                f"{shorten(where)} has the field {shorten(key)}, which a plain model has not{guess} Known: "
                f"{', '.join(FIELDS)}; or give model_type or base."
            )
        least = 0 if key in _MAY_BE_ZERO else 1
        highest = 10_000 if key in ("n_layers", "dense_layers") else 2**40
        kind = FIELDS[key]
        if type(value) is not kind or (kind is int and not least <= value <= highest):
            wanted = "true or false" if kind is bool else f"a whole number from {least} to {highest:,}"
            raise InputError(f"{shorten(where)} has {key} = {shorten(value)}, which is not {wanted}.")
    lacking = [key for key in _NEEDED if key not in fields]
    if lacking:
        raise InputError(
            f"{shorten(where)} lacks {', '.join(lacking)}; a model needs {', '.join(_NEEDED)}, or model_type, or base."
        )
    return simple(str(table.get("name", "simple")), **fields)
