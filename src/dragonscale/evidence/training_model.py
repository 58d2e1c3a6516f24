"""The model that a row of measured training runs describes, as a Transformer.

Dims stand in columns of their own; what kind of attention each layer has is a short text: `MHA`, `GQA`,
`GQA alternating sliding-window-128/full`, `GQA chunked-8192 (3 of 4 layers)`, `MLA(q_lora1536,kv_lora512,qk128+64,v128)`,
`GQA sliding-1024 + global(hd512,kv2)`.
"""

import re
from dataclasses import replace

from dragonscale.evidence.collective_case import Skip, count
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Component, Layer
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.transformer import Transformer

Row = dict[str, str]

_MLA = re.compile(r"MLA\(q_lora(\d+),\s*kv_lora(\d+),\s*qk(\d+)\+(\d+),\s*v(\d+)\)")
_ALTERNATING = re.compile(r"alternating sliding-window-(\d+)")
_CHUNKED = re.compile(r"chunked-(\d+) \((\d+) of (\d+) layers\)")
_GLOBAL = re.compile(r"sliding-(\d+) \+ global\(hd(\d+),kv(\d+)\)")
GEMMA_PERIOD = 6
"""Gemma has five sliding layers for each global one."""


def model_of(row: Row) -> Transformer:
    """The model of a row, or a `Skip` that names the missing dims."""
    layers = _needed(row, "layers")
    d_model, vocab = _needed(row, "d_model"), _needed(row, "vocab")
    feeds = _feeds(row, layers)
    mixers = _mixers(row, layers)
    blocks = tuple(Layer(mixer, feed) for mixer, feed in zip(mixers, feeds, strict=True))
    extras = ()
    if predicts_more_tokens(row):
        extras = mtp_sections([blocks[-1]], d_model, vocab, 1, own_head=True)
    return Transformer(
        row["model"] or "model", d_model, vocab, blocks, tied=_flag(row, "tied_embeddings", False), extras=extras
    )


def predicts_more_tokens(row: Row) -> bool:
    """Whether the run trained a multi-token head: said in the notes or the model's label."""
    text = f"{row['model']} {row['notes']}".lower()
    return "mtp" in text and "w/o mtp" not in text and "without mtp" not in text


def _needed(row: Row, column: str) -> int:
    found = count(row, column)
    if not found:
        raise Skip(f"{column} not stated")
    return found


def _flag(row: Row, column: str, otherwise: bool) -> bool:
    return {"true": True, "false": False}.get(row[column].lower(), otherwise)


def _feeds(row: Row, layers: int) -> list[Component]:
    gated = _flag(row, "gated_mlp", True)
    experts = count(row, "experts")
    if not experts:
        return [Mlp(_needed(row, "d_ff"), gated)] * layers
    inner = count(row, "moe_d_ff") or _needed(row, "d_ff")
    shared = (count(row, "shared_experts") or 0) * inner
    bias = bool(_ALTERNATING.search(row["attention"]))
    moe = Moe(experts, _needed(row, "topk"), inner, shared, gated, bias, router_bias=bias)
    dense = count(row, "dense_layers") or 0
    if not dense:
        return [moe] * layers
    plain = Mlp(_needed(row, "d_ff"), gated)
    if dense * 2 == layers:  # every other layer a mixture, as Llama 4 Maverick has it
        return [plain if number % 2 == 0 else moe for number in range(layers)]
    return [plain if number < dense else moe for number in range(layers)]


def _mixers(row: Row, layers: int) -> list[Component]:
    text = row["mla"] or row["attention"]
    heads = _needed(row, "n_heads")
    latent = _MLA.search(text)
    if latent:
        q_rank, kv_rank, plain, rotary, value = map(int, latent.groups())
        return [LatentAttention(heads, q_rank, kv_rank, plain, rotary, value)] * layers
    if "mla" in text.lower():
        raise Skip("ranks of the latent attention not stated")
    kv_heads = count(row, "n_kv_heads") or heads
    size = count(row, "head_dim") or _needed(row, "d_model") // heads
    if heads % kv_heads:
        raise Skip("KV heads do not divide the heads")
    full = Attention(heads, kv_heads, size)
    alternating, chunked, both = (pattern.search(text) for pattern in (_ALTERNATING, _CHUNKED, _GLOBAL))
    if alternating:
        # Alternating windows of this kind are GPT-OSS's, with sinks in the softmax and biases everywhere.
        full = Attention(heads, kv_heads, size, qkv_bias=True, out_bias=True, sinks=True)
        near = replace(full, window=int(alternating[1]))
        return [near if number % 2 == 0 else full for number in range(layers)]
    if chunked:
        near = Attention(heads, kv_heads, size, chunk=int(chunked[1]))
        part, period = int(chunked[2]), int(chunked[3])
        return [near if number % period < part else full for number in range(layers)]
    if both:
        near = Attention(heads, kv_heads, size, window=int(both[1]))
        wide = Attention(heads, int(both[3]), int(both[2]))
        return [wide if number % GEMMA_PERIOD == GEMMA_PERIOD - 1 else near for number in range(layers)]
    if re.search(r"sliding|chunk|window", text):
        raise Skip(f"no reading of the attention {text[:60]!r}")
    return [full] * layers
