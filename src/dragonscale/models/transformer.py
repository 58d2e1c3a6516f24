"""A Transformer as a record, and the program of named einsums that it stands for.

A `Layer` is a mixer (attention of some kind) and a feed-forward part between norms; a `Transformer` is a run of layers
between an embedding and a head. `program` writes it out as sections: equal layers share one section with its repeat
count, so a model of a hundred layers is a few dozen lines.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dragonscale.models import count
from dragonscale.models.program import Op, Program, Section, parse_ops
from dragonscale.numbers import Number


class Component(Protocol):
    """Something that contributes lines and dims to a block: an attention, an MLP, a mixture of experts."""

    @property
    def dims(self) -> dict[str, int]: ...

    def lines(self) -> list[str]: ...


Norms = Literal["pre", "post", "sandwich", "pre-shared"]


@dataclass(frozen=True)
class Layer:
    """One block. `norms` says where they stand: before each half (`pre`), after it (`post`), both (`sandwich`), or one
    norm that both halves of a parallel block share (`pre-shared`)."""

    mixer: Component | None
    ffn: Component | None
    norms: Norms = "pre"
    norm_bias: bool = False
    parallel: bool = False
    extra: Component | None = None

    def _norm(self, output: str, source: str, name: str) -> str:
        bias = f", w_{name}_bias[d]" if self.norm_bias else ""
        return f"norm: {output}[b,t,d] = norm({source}[b,t,d]; w_{name}[d]{bias})"

    def lines(self) -> list[str]:
        """The program of the block, from the residual stream `R` back to it."""
        lines: list[str] = []
        before, after = self.norms in ("pre", "sandwich"), self.norms in ("post", "sandwich")
        halves = [(self.mixer, "A", "mixer"), (self.ffn, "M", "ffn")]
        if self.norms == "pre-shared":
            lines.append(self._norm("X", "R", "block"))
        for part, output, name in halves:
            if part is None:
                continue
            if before:
                lines.append(self._norm("X", "R", name))
            lines += part.lines()
            if after:
                lines.append(self._norm(output, output, f"{name}_after"))
            if not self.parallel:
                lines.append(f"residual: R[b,t,d] = add(R[b,t,d], {output}[b,t,d])")
        if self.parallel:
            lines.append("residual: R[b,t,d] = add(R[b,t,d], A[b,t,d], M[b,t,d])")
        return lines + (self.extra.lines() if self.extra else [])

    @property
    def dims(self) -> dict[str, int]:
        dims: dict[str, int] = {}
        for part in (self.mixer, self.ffn, self.extra):
            dims |= part.dims if part else {}
        return dims


@dataclass(frozen=True)
class Transformer:
    """A decoder-only model. `layers` is every layer in order; `positions` counts learnt position embeddings."""

    name: str
    d_model: int
    vocab: int
    layers: tuple[Layer, ...]
    tied: bool = False
    positions: int = 0
    head_bias: bool = False
    embed_norm: bool = False
    final_norm: bool = True
    final_norm_bias: bool = False
    extras: tuple[Section, ...] = ()
    context: int | None = None
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def program(self) -> Program:
        """The model as sections of named einsums."""
        return _program(self)


_OPS: dict[str, tuple[Op, ...]] = {}


def _parsed(lines: Iterable[str]) -> tuple[Op, ...]:
    """Lines are few and repeat from model to model: each text is parsed once."""
    text = "\n".join(lines)
    if text not in _OPS:
        _OPS[text] = parse_ops(text)
    return _OPS[text]


def layer_section(layer: Layer, d_model: int, name: str, repeat: int) -> Section:
    """A layer's lines with their sizes and how far its attention sees."""
    mixer = layer.mixer
    return Section(
        name,
        _parsed(layer.lines()),
        {"d": d_model} | layer.dims,
        repeat,
        span=getattr(mixer, "window", None),
        chunk=getattr(mixer, "chunk", None),
        top=getattr(mixer, "index_top", None),
    )


def _program(model: Transformer) -> Program:
    embed = ["embed: R[b,t,d] = lookup(; W_embed[v,d])"]
    if model.positions:
        embed.append("embed: R[b,t,d] = add(R[b,t,d]; W_position[o,d])")
    if model.embed_norm:
        embed.append("norm: R[b,t,d] = norm(R[b,t,d]; w_embed_norm[d])")
    head: list[str] = []
    if model.final_norm:
        bias = ", w_final_bias[d]" if model.final_norm_bias else ""
        head.append(f"norm: R[b,t,d] = norm(R[b,t,d]; w_final[d]{bias})")
    head.append(f"head: Y[b,t,v] = R[b,t,d] · {'W_embed' if model.tied else 'W_head'}[v,d]")
    if model.head_bias:
        head.append("head: Y[b,t,v] = bias(Y[b,t,v]; w_head[v])")
    dims = {"d": model.d_model, "v": model.vocab} | ({"o": model.positions} if model.positions else {})
    kinds: dict[Layer, int] = {}
    for layer in model.layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    blocks = [
        layer_section(layer, model.d_model, "block" if len(kinds) == 1 else f"block{number}", repeat)
        for number, (layer, repeat) in enumerate(kinds.items())
    ]
    sections = (Section("embed", _parsed(embed), dims), *blocks, Section("head", _parsed(head), dims))
    return Program(model.name, sections, model.extras)


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
    extras = {section.name: sum(count.parameters([section]).values()) for section in program.extras}
    total = sum(by_part.values())
    return Counts(total, sum(active.values()), total + sum(extras.values()), by_part, active, extras)


def kv_bytes_per_token(model: Transformer, dtype: str = "bf16") -> Number:
    """Cache bytes that each further token adds in a long sequence, before any window is full."""
    one = sum(count.cache_bytes(model.program().sections, 1, dtype).values())
    none = sum(count.cache_bytes(model.program().sections, 0, dtype).values())
    return one - none
