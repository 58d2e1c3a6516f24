"""Time whole steps of models as one would write them down at first, on the GPU at hand, as JSON lines.

`python tools/measure_plain_steps.py OUT.jsonl [eager|compiled]`. A second opinion beside `measure_serving_steps.py`,
written apart from it: queries, keys and values, gate and up are products of their own, the cache is [batch, tokens,
heads, size] and written by index, attention is the library's choice, whole layers are compiled or nothing is, and every
replay of the CUDA graph is waited for.
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIMS = ("layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "head_dim", "vocab")
MODELS = {
    "qwen2.5-7b": (28, 3584, 18944, 28, 4, 128, 152064),
    "mistral-7b": (32, 4096, 14336, 32, 8, 128, 32768),
}
POINTS = [("decode", batch, context) for context in (1024, 4096) for batch in (1, 8, 32, 128)]
POINTS += [("prefill", 1, tokens) for tokens in (256, 1024, 4096)]
if DEVICE == "cpu":  # a dry run
    MODELS, POINTS = {"tiny": (2, 128, 256, 4, 2, 32, 100)}, [("decode", 2, 16), ("prefill", 1, 8)]
HERE = {"device": DEVICE, "dtype": torch.bfloat16}


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, **HERE)


def turned(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Block(nn.Module):
    """One layer."""

    def __init__(self, d: int, f: int, n: int, k: int, h: int) -> None:
        super().__init__()
        self.shape = (n, k, h)
        self.query, self.key, self.value = linear(d, n * h), linear(d, k * h), linear(d, k * h)
        self.out, self.gate, self.up, self.down = linear(n * h, d), linear(d, f), linear(d, f), linear(f, d)
        self.first, self.second = nn.RMSNorm(d, **HERE), nn.RMSNorm(d, **HERE)

    def forward(self, x, cos, sin, keys, values, places, causal: bool):
        batch, length, _ = x.shape
        n, k, h = self.shape
        y = self.first(x)
        q = turned(self.query(y).view(batch, length, n, h), cos, sin)
        keys.index_copy_(1, places, turned(self.key(y).view(batch, length, k, h), cos, sin))
        values.index_copy_(1, places, self.value(y).view(batch, length, k, h))
        o = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), is_causal=causal, enable_gqa=True
        )
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, -1))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def replayed(step) -> float:
    """Median seconds of a step replayed from a graph."""
    for _ in range(3):
        step()
    if DEVICE == "cpu":
        return 0.0
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()
    taken = []
    for _ in range(15):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return sorted(taken)[len(taken) // 2]


def rows(name: str, how: str):
    count, d, f, n, k, h, vocab = MODELS[name]
    yield {"kind": "model", "model": name, **dict(zip(DIMS, MODELS[name], strict=True))}
    blocks = [Block(d, f, n, k, h) for _ in range(count)]
    embedding, head, norm = torch.randn(vocab, d, **HERE), linear(d, vocab), nn.RMSNorm(d, **HERE)
    for kind, batch, length in POINTS:
        layers = [torch.compile(block) for block in blocks] if how == "compiled" else blocks
        new = 1 if kind == "decode" else length
        cache = [torch.randn(batch, length, k, h, **HERE) for _ in range(2 * count)]
        tokens = torch.randint(vocab, (batch, new), device=DEVICE)
        cos, sin = torch.randn(new, 1, h, **HERE), torch.randn(new, 1, h, **HERE)
        places = torch.arange(length - new, length, device=DEVICE)

        def step(kind=kind, layers=layers, cache=cache, tokens=tokens, cos=cos, sin=sin, places=places):
            x = F.embedding(tokens, embedding)
            for layer, keys, values in zip(layers, cache[::2], cache[1::2], strict=True):
                x = layer(x, cos, sin, keys, values, places, kind == "prefill")
            chosen = head(norm(x[:, -1:])).argmax(-1)
            if kind == "decode":
                tokens.copy_(chosen)

        where = "context" if kind == "decode" else "tokens"
        yield {"kind": kind, "model": name, "script": "plain", "pointwise": how, "batch": batch, where: length} | {
            "s": replayed(step)
        }


def main(path: str, how: str = "eager") -> None:
    torch._dynamo.config.recompile_limit = 64
    with open(path, "w") as file, torch.no_grad():
        for name in MODELS:
            for row in rows(name, how):
                file.write(json.dumps(row) + "\n")
                file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
