"""A Transformer as a record, and the program of named einsums that it stands for.

A `Transformer` is a run of layers between an embedding and a head. `program` writes it out as sections: equal layers
share one section with its repeat count, so a model of a hundred layers is a few dozen lines.

Multi-token prediction modules: further layers that guess the token after next, kept beside the model in its files.

A module norms the next token's embedding and the model's last hidden state, joins them, projects them back to the
model's width, runs one layer of the model's own kind and norms the result for the head. Most share the embedding and
the head with the model; some checkpoints hold copies of either.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dragonscale.models import count
from dragonscale.models.component import written
from dragonscale.models.count import cache_growth
from dragonscale.models.layer import Layer
from dragonscale.models.lora import Adapters, adapted
from dragonscale.models.program import Program, Section, parsed
from dragonscale.physics.numbers import Number


@dataclass(frozen=True)
class Quantization:
    """What a quantised checkpoint says beside the dtypes of its weights: the side of the square blocks that share a
    scale (0: none), the dtype of its activations (bf16: left as they are) and of its KV cache (empty: not said)."""

    block: int = 0
    activations: str = ""
    kv: str = ""


@dataclass(frozen=True, repr=False)
class Transformer:
    """A decoder-only model. `layers` is every layer in order.

    `positions` counts learnt position embeddings; `d_embed` is the width of an embedding narrower than the model, which
    is projected up after the lookup and down before the head; `layer_input` is the width of an embedding that every
    layer has for itself, and `layer_vocab` its vocabulary; `altup` counts streams beside the one that layers work on;
    `embed_rows` are those of an embedding that has more than the head. `extras` are sections that a checkpoint holds
    beside the language model: multi-token heads (`mtp`), a vision tower (`vision`). `weight_dtypes` gives the stored
    dtype of the parts that are not in `dtype`, `quantization` how they are meant to be multiplied. `context` is the
    longest sequence it was made for. `stored` are the bytes that the checkpoint's own files hold by format, where these
    were read; `task` is `embed`, `encode` or `rerank` where it answers with its prompt alone; `notes` what was made of
    a config that is not plain. `config` are the fields that it was read from, with what was assumed; empty where it was
    written in sizes.
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
    altup: int = 0
    embed_rows: int = 0
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
    quantization: Quantization = Quantization()
    sources: dict[str, str] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    adapters: Adapters = Adapters()
    task: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<Transformer {self.name}: {self.n_layers} layers, d_model {self.d_model}, vocab {self.vocab}>"

    @property
    def n_layers(self) -> int:
        """Layers in all, those of every kind."""
        return len(self.layers)

    @cached_property
    def _written(self) -> Program:
        return adapted(_program(self), self.adapters)

    def program(self) -> Program:
        """The model as sections of named einsums; written once per model."""
        return self._written


_SEEN = {"span": "window", "top": "index_top", "compress": "ratio", "chunk": "chunk", "shared": "shared"}
_SEEN["soft_cap"] = "soft_cap"
"""What a section has of its mixer, where that has it."""


def layer_section(layer: Layer, d_model: int, name: str, repeat: int, more: dict[str, int] | None = None) -> Section:
    """A layer's lines with their sizes and how far its attention sees."""
    reach = {field: getattr(layer.mixer, name) for field, name in _SEEN.items() if hasattr(layer.mixer, name)}
    return Section(name, layer.ops(), {"d": d_model} | (more or {}) | layer.dims, repeat, **reach)


def _program(model: Transformer) -> Program:
    streams = max((layer.streams for layer in model.layers), default=1)
    # d model, v vocabulary, o positions, as further streams of AltUp, ve rows of the embedding, dn its width
    dims = {"d": model.d_model, "v": model.vocab, "o": model.positions, "as": model.altup, "ve": model.embed_rows}
    dims["dn"] = model.d_embed or 0
    dims = {name: size for name, size in dims.items() if size}
    if model.altup:
        dims["d2"] = model.d_model
    if streams > 1:  # hyper-connections
        dims |= {"hs": streams, "hs2": streams, "h1": 1}
    if model.layer_input:
        wide = model.layer_input * model.n_layers
        dims |= {"pl": model.layer_input, "lw": wide, "vl": model.layer_vocab or model.vocab}
    kinds = Counter(model.layers)  # in the order in which they first come
    names: dict[Layer, str] = {}
    blocks: list[Section] = []
    for number, (layer, repeat) in enumerate(kinds.items()):
        names[layer] = f"block{number}" if len(kinds) > 1 else "block"
        blocks.append(layer_section(layer, model.d_model, names[layer], repeat, {"v": model.vocab}))
    around, shared = vars(model) | {"many": streams > 1}, ("W_embed",) if model.tied else ()
    sections = (
        Section("embed", parsed(written("embed", around.__getitem__)), dims, shared=shared),
        *blocks,
        Section("head", parsed(written("head", around.__getitem__)), dims, shared=shared),
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
    extras: Counter[str] = Counter()
    for section in program.extras:
        kind = section.name.partition(".")[0]  # mtp, vision
        extras[kind] += sum(count.parameters([section]).values())
    total = sum(by_part.values())
    return Counts(total, sum(active.values()), total + sum(extras.values()), by_part, active, dict(extras))


def unseen_parameters(model: Transformer) -> dict[str, int]:
    """Parameters that a checkpoint holds beside the language model for what it sees or hears with, by part."""
    return {part: size for part, size in count_parameters(model).extras_by_part.items() if part in ("vision", "audio")}


def kv_bytes_per_token(model: Transformer, dtype: str = "bf16") -> Number:
    """Cache bytes that each token adds, before any window is full. Fixed states add nothing."""
    return cache_growth(model.program().sections, dtype)


def mtp_sections(
    layers: list[Layer], d_model: int, vocab: int, modules: int, own_embed: bool = False, own_head: bool = False
) -> tuple[Section, ...]:
    """Sections of `modules` multi-token modules, each of these layers, for the `extras` of a model."""
    if modules == 0:
        return ()
    streams = layers[0].streams
    # dd: the embedding and the hidden state side by side
    dims = {"d": d_model, "dd": 2 * d_model, "v": vocab, "hs": streams, "hs2": streams, "h1": 1}
    there = {"own_embed": own_embed, "own_head": own_head, "many": streams > 1}
    blocks: list[Section] = []
    for number, layer in enumerate(layers):  # all but Nemotron's have one
        blocks.append(layer_section(layer, d_model, f"mtp.block{number}", modules, {"v": vocab}))
    return (
        Section("mtp.entry", parsed(written("mtp_entry", there.get)), dims, modules),
        *blocks,
        Section("mtp.exit", parsed(written("mtp_exit", there.get)), dims, modules),
    )


def attention_heads(model: Transformer) -> tuple[int | None, int | None]:
    """Query and KV heads of the layers that attend; None where they have no such count, as latent attention's KV."""
    mixers = [layer.mixer for layer in model.layers if hasattr(layer.mixer, "n_heads")]
    if not mixers:
        return None, None
    return getattr(mixers[0], "n_heads", None), getattr(mixers[0], "n_kv_heads", None)
