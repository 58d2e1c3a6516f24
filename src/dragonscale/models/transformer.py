"""A Transformer as a record, and the program of named einsums that it stands for.

A `Transformer` is a run of layers between an embedding and a head. `program` writes it out as sections: equal layers
share one section with its repeat count, so a model of a hundred layers is a few dozen lines.
"""

from dataclasses import dataclass, field
from functools import cached_property

from dragonscale.models import count
from dragonscale.models.cache import cache_bytes
from dragonscale.models.layer import Layer
from dragonscale.models.program import Program, Section, parsed
from dragonscale.numbers import Number


@dataclass(frozen=True)
class Transformer:
    """A decoder-only model. `layers` is every layer in order.

    `positions` counts learnt position embeddings; `d_embed` is the width of an embedding narrower than the model, which
    is projected up after the lookup and down before the head; `layer_input` is the width of an embedding that every layer
    has for itself, and `layer_vocab` its vocabulary. `extras` are sections that a checkpoint holds beside the
    language model: multi-token heads (`mtp`), a vision tower (`vision`). `weight_dtypes` gives the stored dtype of the
    parts that are not in `dtype`. `context` is the longest sequence it was made for.
    """

    name: str
    d_model: int
    vocab: int
    layers: tuple[Layer, ...]
    tied: bool = False
    positions: int = 0
    d_embed: int | None = None
    layer_input: int = 0
    layer_vocab: int = 0
    head_bias: bool = False
    embed_norm: bool = False
    embed_norm_bias: bool = False
    final_norm: bool = True
    final_norm_weight: bool = True
    final_norm_bias: bool = False
    extras: tuple[Section, ...] = ()
    context: int | None = None
    dtype: str = "bf16"
    weight_dtypes: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def _written(self) -> Program:
        return _program(self)

    def program(self) -> Program:
        """The model as sections of named einsums; written once per model."""
        return self._written


def layer_section(layer: Layer, d_model: int, name: str, repeat: int, more: dict[str, int] | None = None) -> Section:
    """A layer's lines with their sizes and how far its attention sees."""
    mixer = layer.mixer
    return Section(
        name,
        layer.ops(),
        {"d": d_model} | (more or {}) | layer.dims,
        repeat,
        span=getattr(mixer, "window", None),
        chunk=getattr(mixer, "chunk", None),
        top=getattr(mixer, "index_top", None),
        compress=getattr(mixer, "ratio", None),
    )


def _embed_lines(model: Transformer, streams: int) -> list[str]:
    narrow = model.d_embed is not None
    lines = [f"embed: {'N[b,t,dn]' if narrow else 'R[b,t,d]'} = lookup(; W_embed[v,{'dn' if narrow else 'd'}])"]
    lines += ["embed: R[b,t,d] = N[b,t,dn] · W_in[dn,d]"] if narrow else []
    lines += ["embed: R[b,t,d] = add(R[b,t,d]; W_position[o,d])"] if model.positions else []
    if model.embed_norm:
        bias = ", w_embed_norm_bias[d]" if model.embed_norm_bias else ""
        lines.append(f"norm: R[b,t,d] = norm(R[b,t,d]; w_embed_norm[d]{bias})")
    if model.layer_input:
        lines += [
            "embed: L[b,t,lw] = lookup(; W_layers[vl,lw])",
            "layer_input: Lp[b,t,lw] = R[b,t,d] · W_layers_in[d,lw]",
            "norm: Lp[b,t,lw] = norm(Lp[b,t,lw]; w_layers_in[pl])",
            "embed: L[b,t,lw] = add(L[b,t,lw], Lp[b,t,lw])",
        ]
    return lines + (["hyper: R[b,t,hs,d] = mix(R[b,t,d])"] if streams > 1 else [])


def _head_lines(model: Transformer, streams: int) -> list[str]:
    lines: list[str] = []
    if streams > 1:
        lines += [
            "hyper: Hp[b,t,hs2] = R[b,t,hs,d] · W_head_hyper[hs2,hs,d]",
            "hyper: Hp[b,t,hs2] = bias(Hp[b,t,hs2]; w_head_hyper[hs2], w_head_scale[h1])",
            "hyper: R[b,t,d] = mix(R[b,t,hs,d], Hp[b,t,hs2])",
        ]
    if model.final_norm:
        bias = ", w_final_bias[d]" if model.final_norm_bias else ""
        weights = f"; w_final[d]{bias}" if model.final_norm_weight else ""
        lines.append(f"norm: R[b,t,d] = norm(R[b,t,d]{weights})")
    wide, source = ("dn", "N") if model.d_embed is not None else ("d", "R")
    lines += ["head: N[b,t,dn] = R[b,t,d] · W_out[d,dn]"] if model.d_embed is not None else []
    table = "W_embed" if model.tied else "W_head"
    lines.append(f"head: Y[b,t,v] = {source}[b,t,{wide}] · {table}[v,{wide}]")
    return lines + (["head: Y[b,t,v] = bias(Y[b,t,v]; w_head[v])"] if model.head_bias else [])


def _program(model: Transformer) -> Program:
    streams = max((layer.streams for layer in model.layers), default=1)
    dims = {"d": model.d_model, "v": model.vocab}
    dims |= {"o": model.positions} if model.positions else {}
    dims |= {"dn": model.d_embed} if model.d_embed is not None else {}
    dims |= {"hs": streams, "hs2": streams, "h1": 1} if streams > 1 else {}
    if model.layer_input:
        wide = model.layer_input * model.n_layers
        dims |= {"pl": model.layer_input, "lw": wide, "vl": model.layer_vocab or model.vocab}
    kinds: dict[Layer, int] = {}
    for layer in model.layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    names = {layer: "block" if len(kinds) == 1 else f"block{number}" for number, layer in enumerate(kinds)}
    blocks = [
        layer_section(layer, model.d_model, names[layer], repeat, {"v": model.vocab}) for layer, repeat in kinds.items()
    ]
    shared = ("W_embed",) if model.tied else ()
    sections = (
        Section("embed", parsed(_embed_lines(model, streams)), dims, shared=shared),
        *blocks,
        Section("head", parsed(_head_lines(model, streams)), dims, shared=shared),
    )
    return Program(model.name, sections, tuple(names[layer] for layer in model.layers), model.extras)


@dataclass(frozen=True)
class Counts:
    """What a model weighs: parameters in all, used per token, and in the checkpoint with its extras, by part."""

    total: int
    active: int
    checkpoint: int
    by_part: dict[str, int]
    active_by_part: dict[str, int]
    extras_by_part: dict[str, int]


def count_parameters(model: Transformer) -> Counts:
    """The model's parameters; `checkpoint` adds what its files hold beside it (multi-token heads, a vision tower)."""
    program = model.program()
    by_part = count.parameters(program.sections)
    active = count.parameters(program.sections, active=True)
    extras: dict[str, int] = {}
    for section in program.extras:
        kind = section.name.partition(".")[0]
        extras[kind] = extras.get(kind, 0) + sum(count.parameters([section]).values())
    total = sum(by_part.values())
    return Counts(total, sum(active.values()), total + sum(extras.values()), by_part, active, extras)


def kv_bytes_per_token(model: Transformer, dtype: str = "bf16") -> Number:
    """Cache bytes that each further token adds, before any window is full. Fixed states add nothing."""
    one = sum(cache_bytes(model.program().sections, 1, dtype).values())
    none = sum(cache_bytes(model.program().sections, 0, dtype).values())
    return one - none
