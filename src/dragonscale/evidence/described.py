"""What published measurements mean by their words (the tables of `dialects.toml`), and what training and inference rows
share: the model by its dims, and the chips with the wires between them.

A typed row states both in columns of their own. What kind of attention each layer has is a short text: `MHA`, `GQA`,
`GQA alternating sliding-window-128/full`, `GQA chunked-8192 (3 of 4 layers)`,
`MLA(q_lora1536,kv_lora512,qk128+64,v128)`, `GQA sliding-1024 + global(hd512,kv2)`."""

import functools
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import msgspec

from dragonscale.evidence.rows import Row, count, readable, skip_if
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Component, Layer
from dragonscale.models.transformer import Transformer, mtp_sections
from dragonscale.physics.hardware import Chip, Slice, Torus, load_chip
from dragonscale.physics.hardware.slices import possible_shapes


@functools.cache
def words(kind: str) -> dict[str, Any]:
    """A table of `dialects.toml`."""
    text = (resources.files("dragonscale.evidence") / "dialects.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[kind]


def meaning(pairs: Sequence[tuple[str, str]], text: str) -> str:
    """What the first pattern that is found in a text stands for; empty if none is.

    >>> meaning(words("training")["stacks"], "nanotron docs/performance.md")
    'nanotron'
    """
    return next((meant for pattern, meant in pairs if re.search(pattern, text)), "")


def hint(row: Row, name: str) -> str:
    """What a row says under one of the `hints`: the number in it, or the words themselves; empty if
    nothing.

    >>> hint({"notes": "ZeRO-2, 320 prompts"}, "zero"), hint({"notes": ""}, "ring")
    ('2', '')
    """
    columns, pattern = words("hints")[name]
    found = re.search(pattern, " ".join(row[column] for column in columns))
    return next((part for part in found.groups() if part), found[0]) if found else ""


@dataclass(frozen=True)
class StatedNetwork:
    """What a text says: bytes per second out of a node or of one card, and the transport; zero and
    empty if nothing."""

    node: float = 0.0
    card: float = 0.0
    transport: str = ""

    def egress(self, local: float) -> float:
        """Bytes per second out of a node with `local` chips taking part, each with a card of its
        own; 0 if not said."""
        return self.node or self.card * local


def read_network(text: str) -> StatedNetwork:
    """What a description of an interconnect says about the network between nodes.

    >>> read_network("p4de: NVLink3 + EFA 4x100Gb/s per node")
    StatedNetwork(node=50000000000.0, card=0.0, transport='efa')
    >>> read_network("CX7 400Gb/s IB").card, read_network("p5: NVLink4 + EFA 3200Gb/s per node").node
    (50000000000.0, 400000000000.0)
    >>> read_network("NVLink4 (450GB/s/dir spec)")
    StatedNetwork(node=0.0, card=0.0, transport='')
    """
    text, known = text[:300], words("network")
    transport = meaning(known["transports"], text.lower())
    for pattern in known["rates"]:
        if found := re.search(pattern, text):
            return StatedNetwork(node=_bytes(found, known["named"]), transport=transport)
    found = re.search(known["one"], text)
    rate = _bytes(found, known["named"]) if found else 0.0
    if rate > known["largest_card"]:
        return StatedNetwork(node=rate, transport=transport)
    return StatedNetwork(card=rate, transport=transport)


def _bytes(match: re.Match[str], named: dict[str, float]) -> float:
    said = match.groupdict()
    if said.get("bytes"):
        return float(said["bytes"]) * 1e9
    if said.get("name"):
        return int(said["count"]) * named[said["name"].lower()]
    return int(said.get("count") or 1) * (float(said["rate"]) * (1e12 if said["scale"] == "T" else 1e9) / 8)


def read_torus(text: str) -> tuple[int, ...]:
    """The sizes of a torus in a text: `v6e-256 16x16 torus`, `Ironwood 2x2x1 ICI`; empty if it
    names none.

    >>> read_torus("v6e-256 16x16 torus"), read_torus("multislice DCN")
    ((16, 16), ())
    """
    found = re.search(words("network")["torus"], text[:300])
    return tuple(int(size) for size in found[1].split("x")) if found else ()


GEMMA_PERIOD = 6
"""Gemma has five sliding layers for each global one."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A typed row's model and machine; 0 and empty where there is nothing to state. `inferred`
    names the settings that the source leaves open, apart by `; `. `node` are the chips of a node
    and `egress` the bytes per second out of it (0: the chip's own), `shape` and `pods` the slice of
    a torus."""

    id: str
    source: str = ""
    inferred: str = ""
    model: str = "model"
    layers: int = 0
    d_model: int = 0
    d_ff: int = 0
    n_heads: int = 0
    n_kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 0
    experts: int = 0
    topk: int = 0
    shared_experts: int = 0
    moe_d_ff: int = 0
    dense_layers: int = 0
    gated_mlp: bool = True
    tied: bool = False
    mtp: bool = False
    parallel: bool = False
    attention: str = ""
    chip: str = ""
    chips: int = 0
    node: int = 0
    egress: float = 0.0
    transport: str = ""
    shape: str = ""
    pods: int = 1

    @property
    def marks(self) -> tuple[str, ...]:
        """What was inferred."""
        return tuple(filter(None, self.inferred.split("; ")))

    @property
    def slice(self) -> Slice:
        """The chips of a typed row and the wires between them."""
        chip = chip_of(self.chip)
        if isinstance(chip.network, Torus):
            skip_if(not re.fullmatch(r"\d+(x\d+)*", self.shape), "shape of the slice not stated")
            return Slice(chip, tuple(int(size) for size in self.shape.split("x")), self.pods)
        node, *above = chip.network.levels
        degree = self.node or node.degree
        leaf = replace(above[0], bandwidth=self.egress or above[0].bandwidth * degree / node.degree)
        network = replace(chip.network, levels=(replace(node, degree=degree), leaf, *above[1:]))
        return Slice(replace(chip, network=network), (self.chips,))


def described(row: Row, place: int) -> dict[str, Any]:
    """The columns of a typed row that say which model a published row is about."""
    return {name: count(row, name) for name in words("model")["dims"]} | {
        "id": row.get("id") or f"row {place}",
        "source": row["source"],
        "model": row["model"] or "model",
        "gated_mlp": row["gated_mlp"].lower() != "false",
        "tied": row.get("tied_embeddings", "").lower() == "true",
        "mtp": bool(hint(row, "mtp")),
        "attention": row["mla"] or row["attention"],
    }


MOST = {"layers": 2000, "dense_layers": 2000, "experts": 10**5}
MOST_SIZE = 10**8
"""Sizes of models that a row may have."""


def model_of(row: Described) -> Transformer:
    """The model of a row, or a `Skip` that names the missing dims."""
    _, d_model, vocab = (_dim(row, column) for column in ("layers", "d_model", "vocab"))
    feeds, mixers = _feeds(row), _mixers(row)
    blocks = tuple(map(Layer, mixers, feeds))
    if row.parallel:
        blocks = tuple(replace(block, parallel=True, norms="pre-shared") for block in blocks)
    extras = mtp_sections([blocks[-1]], d_model, vocab, 1, own_head=True) if row.mtp else ()
    return Transformer(row.model, d_model, vocab, blocks, tied=row.tied, extras=extras)


def _dim(row: Described, column: str) -> int:
    skip_if(not getattr(row, column), f"{column} not stated")
    skip_if(getattr(row, column) > MOST.get(column, MOST_SIZE), f"more {column} than any model has")
    return getattr(row, column)


def _feeds(row: Described) -> list[Component]:
    if not row.experts:
        return [Mlp(_dim(row, "d_ff"), row.gated_mlp)] * row.layers
    inner = row.moe_d_ff or _dim(row, "d_ff")
    bias = bool(re.search(words("attention")["alternating"], row.attention))
    shared = row.shared_experts * inner
    moe = Moe(row.experts, _dim(row, "topk"), inner, shared, row.gated_mlp, bias, router_bias=bias)
    if not row.dense_layers:
        return [moe] * row.layers
    plain = Mlp(_dim(row, "d_ff"), row.gated_mlp)
    # Where half of the layers are dense, every other one is, as Llama 4 Maverick has it; else the first ones.
    half = row.dense_layers * 2 == row.layers
    return [plain if (number % 2 == 0 if half else number < row.dense_layers) else moe for number in range(row.layers)]


def _mixers(row: Described) -> list[Component]:
    text, heads = row.attention, _dim(row, "n_heads")
    said = {kind: re.search(pattern, text) for kind, pattern in words("attention").items()}
    if latent := said["latent"]:
        q_rank, kv_rank, plain, rotary, value = map(int, latent.groups())
        return [LatentAttention(heads, q_rank, kv_rank, plain, rotary, value)] * row.layers
    skip_if("mla" in text.lower(), "ranks of the latent attention not stated")
    kv_heads, size = row.n_kv_heads or heads, row.head_dim or row.d_model // heads
    skip_if(heads % kv_heads, "KV heads do not divide the heads")
    full = Attention(heads, kv_heads, size)
    if found := said["alternating"]:
        # Alternating windows of this kind are GPT-OSS's, with sinks in the softmax and biases everywhere.
        full = replace(full, qkv_bias=True, out_bias=True, sinks=True)
        near = replace(full, window=int(found[1]))
        return [near if number % 2 == 0 else full for number in range(row.layers)]
    if found := said["chunked"]:
        near, part, period = replace(full, chunk=int(found[1])), int(found[2]), int(found[3])
        return [near if number % period < part else full for number in range(row.layers)]
    if found := said["global"]:
        near, wide = replace(full, window=int(found[1])), Attention(heads, int(found[3]), int(found[2]))
        return [wide if number % GEMMA_PERIOD == GEMMA_PERIOD - 1 else near for number in range(row.layers)]
    skip_if(said["unread"], f"no reading of the attention {text[:60]!r}")
    return [full] * row.layers


@functools.lru_cache(maxsize=64)
def chip_of(name: str) -> Chip:
    """A chip, with what its variant changes."""
    variant = words("chips").get(name.lower())
    if variant:
        return load_chip(variant["base"]).with_facts(**variant["facts"])
    return readable(load_chip, name.lower(), f"unknown chip {name.lower()[:40]!r}" if name else "chip not stated")


def machine(row: Row, chip: Chip, chips: int) -> dict[str, Any]:
    """The columns of a typed row that say on which chips a published row ran, and over which
    wires."""
    found = {"chip": row["chip"].lower(), "chips": chips, "transport": read_network(row["interconnect"]).transport}
    if isinstance(chip.network, Torus):
        return found | _torus(row, chip, chips)
    own = chip.network.levels[0].degree
    node = own
    if chips > own and chips % own:
        node = next((size for size in (64, 32, 16, 8, 4) if size <= own and chips % size == 0), 0)
    skip_if(not node, "chips do not fill whole nodes")
    egress = read_network(row["interconnect"]).egress(node)
    return found | {"node": 0 if node == own else node, "egress": egress}


def _torus(row: Row, chip: Chip, chips: int) -> dict[str, Any]:
    assert isinstance(chip.network, Torus)
    pods = int(hint(row, "slices") or 1)
    skip_if(not pods or chips % pods, "slices do not divide the chips")
    limit = math.prod(chip.network.pod)
    while chips // pods > limit or (chips // pods > 256 and chip.network.axes == 2):
        pods *= 2
    shape = read_torus(row["interconnect"])
    if math.prod(shape or (0,)) != chips // pods or len(shape) != chip.network.axes:
        shapes = [shape for shape in possible_shapes(chip) if math.prod(shape) == chips // pods]
        skip_if(not shapes, "no slice of this many chips")
        shape = min(shapes, key=lambda shape: max(shape) / min(shape))
    return {"shape": "x".join(map(str, shape)), "pods": pods}
