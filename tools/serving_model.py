"""A LLaMA-like model in plain PyTorch, for measuring whole steps: random weights, a cache, prefill and decode steps.

Weights are bf16, or fp8 for the layers' products with scales known beforehand. Pointwise work is `torch.compile`d
(`fused`) or one operation after the other (`eager`).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Shape:
    """The dims of a model."""

    name: str
    layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int

    @property
    def qkv(self) -> int:
        return (self.n_heads + 2 * self.n_kv_heads) * self.head_dim

    @property
    def token_bytes(self) -> int:
        return self.layers * 2 * self.n_kv_heads * self.head_dim * 2


SHAPES = {
    "1b": Shape("llama3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256),
    "3b": Shape("llama3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256),
    "7b": Shape("llama2-7b", 32, 4096, 11008, 32, 32, 128, 32000),
    "8b": Shape("llama3-8b", 32, 4096, 14336, 32, 8, 128, 128256),
    "14b": Shape("qwen2.5-14b", 48, 5120, 13824, 40, 8, 128, 152064),
    "32b": Shape("qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936),
    "70b-slice": Shape("llama3-70b/8", 80, 8192, 3584, 8, 1, 128, 16032),
    "tiny": Shape("tiny", 2, 256, 512, 4, 2, 64, 1000),
}


# Pointwise work, written so that a compiler may fuse each function into one kernel.


def first_norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def add_norm(x, delta, weight):
    x = x + delta
    return x, F.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def silu_mul(both):
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def rope_cache(qkv, cos, sin, keys, values, heads: int, kv: int):
    """Queries turned; keys turned and values, both written to their places in the cache ([B, KV, T, h] views)."""
    batch, length, _ = qkv.shape
    q, k, v = qkv.view(batch, length, heads + 2 * kv, -1).split((heads, kv, kv), 2)
    keys.copy_(rotate(k, cos, sin).transpose(1, 2))
    values.copy_(v.transpose(1, 2))
    return rotate(q, cos, sin)


def to_fp8(x):
    return (x * 0.5).clamp(-448, 448).to(FP8)


class Pointwise:
    """The functions above, compiled or not. fp8 products take their input in fp8 from the kernel before."""

    def __init__(self, how: str, fp8: bool) -> None:
        last = to_fp8 if fp8 else (lambda x: x)
        functions = {
            "first_norm": lambda x, w: last(first_norm(x, w)),
            "add_norm": lambda x, y, w: (lambda pair: (pair[0], last(pair[1])))(add_norm(x, y, w)),
            "end_norm": lambda x, y, w: add_norm(x, y, w)[1],
            "silu_mul": lambda both: last(silu_mul(both)),
            "rope_cache": rope_cache,
            "attended": last,
        }
        for name, function in functions.items():
            plain = how == "eager" or (name == "attended" and not fp8)
            setattr(self, name, function if plain else torch.compile(function))


class Model:
    """Weights, and one pass of tokens through them."""

    def __init__(self, shape: Shape, how: str = "fused", fp8: bool = False) -> None:
        self.shape, self.how, self.fp8 = shape, how, fp8
        self.point = Pointwise(how, fp8)
        d, h = shape.d_model, shape.head_dim
        self.layers = [
            (
                self.matrix(d, shape.qkv),
                self.matrix(shape.n_heads * h, d),
                self.matrix(d, 2 * shape.d_ff),
                self.matrix(shape.d_ff, d),
                torch.ones(d, device=DEVICE, dtype=BF16),
                torch.ones(d, device=DEVICE, dtype=BF16),
            )
            for _ in range(shape.layers)
        ]
        self.norm = torch.ones(d, device=DEVICE, dtype=BF16)
        self.embedding = torch.randn(shape.vocab, d, device=DEVICE, dtype=BF16)
        self.head = torch.randn(shape.vocab, d, device=DEVICE, dtype=BF16) / d**0.5
        self.one = torch.ones((), device=DEVICE)

    def matrix(self, k: int, n: int):
        weight = torch.empty(n, k, device=DEVICE, dtype=BF16).normal_(0, k**-0.5)
        return weight.to(FP8) if self.fp8 else weight

    def times(self, x, weight):
        if self.fp8:
            flat = x.view(-1, x.shape[-1])
            out = torch._scaled_mm(flat, weight.t(), self.one, self.one, out_dtype=BF16, use_fast_accum=True)
            return out.view(*x.shape[:-1], -1)
        return F.linear(x, weight)

    def forward(self, tokens, cos, sin, cache, first: int, attend):
        """Tokens [B, T] at positions from `first`; the next token of each sequence."""
        shape, point = self.shape, self.point
        batch, length = tokens.shape
        x = F.embedding(tokens, self.embedding)
        delta = None
        for (qkv, out, up, down, a, b), (keys, values) in zip(self.layers, cache, strict=True):
            if delta is None:
                y = point.first_norm(x, a)
            else:
                x, y = point.add_norm(x, delta, a)
            here = slice(first, first + length)
            q = point.rope_cache(
                self.times(y, qkv), cos, sin, keys[:, :, here], values[:, :, here], shape.n_heads, shape.n_kv_heads
            )
            o = attend(q, keys[:, :, : first + length], values[:, :, : first + length])
            x, y = point.add_norm(x, self.times(point.attended(o.reshape(batch, length, -1)), out), b)
            delta = self.times(point.silu_mul(self.times(y, up)), down)
        last = point.end_norm(x[:, -1:], delta[:, -1:], self.norm)
        return F.linear(last, self.head).argmax(-1)


def attend_one(q, keys, values):
    """One new token of each sequence: [B, 1, N, h] against [B, KV, S, h]; the heads of a group become queries."""
    batch, _, heads, size = q.shape
    kv = keys.shape[1]
    return F.scaled_dot_product_attention(q.view(batch, kv, heads // kv, size), keys, values)


def attend_grouped(q, keys, values):
    """The same by the library's own way of sharing heads."""
    return F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, enable_gqa=True)


def attend_flexibly(q, keys, values):
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q.transpose(1, 2), keys, values, enable_gqa=True)


def attend_prompt(q, keys, values):
    o = F.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, is_causal=True, enable_gqa=q.shape[2] != keys.shape[1]
    )
    return o.transpose(1, 2)


class Arena:
    """Memory from which every row's cache is cut, a block for each layer's keys and values; random numbers."""

    def __init__(self, shape: Shape, count: int) -> None:
        each = count // (2 * shape.layers)
        self.blocks = [torch.empty(each, device=DEVICE, dtype=BF16).normal_() for _ in range(2 * shape.layers)]

    def cache(self, shape: Shape, batch: int, length: int):
        dims = (batch, shape.n_kv_heads, length, shape.head_dim)
        each = batch * shape.n_kv_heads * length * shape.head_dim
        if each > self.blocks[0].numel():
            return None
        views = [block[:each].view(dims) for block in self.blocks]
        return list(zip(views[::2], views[1::2], strict=True))


def angles(shape: Shape, first: int, length: int):
    inverse = 500000.0 ** -(torch.arange(0, shape.head_dim, 2, device=DEVICE) / shape.head_dim)
    turns = torch.outer(torch.arange(first, first + length, device=DEVICE).float(), inverse).repeat(1, 2)
    return turns.cos().to(BF16)[:, None], turns.sin().to(BF16)[:, None]


def decode_step(model: Model, arena: Arena, batch: int, context: int, attend):
    """A step in which each sequence's token number `context` is computed; None where its cache does not fit."""
    cache = arena.cache(model.shape, batch, context)
    if cache is None:
        return None
    tokens = torch.randint(model.shape.vocab, (batch, 1), device=DEVICE)
    cos, sin = angles(model.shape, context - 1, 1)

    def step():
        tokens.copy_(model.forward(tokens, cos, sin, cache, context - 1, attend))

    return step


def prefill_step(model: Model, arena: Arena, batch: int, length: int):
    cache = arena.cache(model.shape, batch, length)
    if cache is None:
        return None
    tokens = torch.randint(model.shape.vocab, (batch, length), device=DEVICE)
    cos, sin = angles(model.shape, 0, length)
    return lambda: model.forward(tokens, cos, sin, cache, 0, attend_prompt)
