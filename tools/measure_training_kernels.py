"""Time the kernels of a training step on the GPU at hand, and whole layers made of them, as JSON lines.

Runs where PyTorch sees a GPU: `python tools/measure_training_kernels.py OUT.jsonl`. Medians over many repetitions with
a cold L2 cache and random data. The single kernels calibrate efficiency profiles; the layers only check them.
"""

import json
import sys

import torch
import torch._functorch.config
import torch.nn.functional as F
from triton.testing import do_bench

DEVICE = "cuda"
BF16 = torch.bfloat16


def seconds(function) -> float:
    return do_bench(function, warmup=15, rep=60, return_mode="median") / 1e3


def attention_rows():
    for heads, kv, dim in ((32, 8, 128), (64, 8, 128), (8, 1, 128), (16, 16, 128), (16, 16, 64), (96, 96, 128)):
        for batch, length in ((8, 1024), (4, 2048), (2, 4096), (1, 4096), (1, 8192), (2, 8192), (1, 32768)):
            if heads * batch * length * dim > 2**30:
                continue
            q = torch.randn(batch, heads, length, dim, device=DEVICE, dtype=BF16, requires_grad=True)
            k = torch.randn(batch, kv, length, dim, device=DEVICE, dtype=BF16, requires_grad=True)
            v = torch.randn_like(k, requires_grad=True)

            def forward(q=q, k=k, v=v, grouped=heads != kv):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

            out = forward()
            grad = torch.randn_like(out)
            there = seconds(forward)
            back = seconds(lambda o=out, g=grad, q=q, k=k, v=v: torch.autograd.grad(o, (q, k, v), g, retain_graph=True))
            yield {
                "kind": "attention",
                "q_heads": heads,
                "kv_heads": kv,
                "head_dim": dim,
                "batch": batch,
                "seq": length,
                "forward_s": there,
                "backward_s": back,
            }


def gemm_rows():
    shapes = [
        (8192, 4096, 6144),
        (8192, 4096, 4096),
        (8192, 4096, 28672),
        (8192, 14336, 4096),
        (8192, 8192, 8192),
        (8192, 8192, 3584),
        (8192, 3584, 8192),
        (4096, 8192, 2560),
        (2048, 12288, 4608),
        (2048, 4608, 12288),
        (2048, 12288, 6144),
        (8192, 4096, 128256),
        (16384, 16384, 13312),
        (1024, 2048, 8192),
        (4096, 2048, 2048),
    ]
    for m, k, n in shapes:
        a = torch.randn(m, k, device=DEVICE, dtype=BF16)
        w = torch.randn(n, k, device=DEVICE, dtype=BF16)
        g = torch.randn(m, n, device=DEVICE, dtype=BF16)
        yield {
            "kind": "gemm",
            "m": m,
            "k": k,
            "n": n,
            "forward_s": seconds(lambda a=a, w=w: a @ w.t()),
            "dgrad_s": seconds(lambda g=g, w=w: g @ w),
            "wgrad_s": seconds(lambda g=g, a=a: g.t() @ a),
        }


def pointwise_rows():
    def norm(x, w):
        return F.rms_norm(x, (x.shape[-1],), w)

    def glu(x, y):
        return F.silu(x) * y

    for rows, width in ((8192, 4096), (8192, 8192), (32768, 4096), (8192, 14336), (8192, 28672)):
        x = torch.randn(rows, width, device=DEVICE, dtype=BF16, requires_grad=True)
        y = torch.randn(rows, width, device=DEVICE, dtype=BF16, requires_grad=True)
        w = torch.ones(width, device=DEVICE, dtype=BF16, requires_grad=True)
        for name, function, inputs in (("rms_norm", norm, (x, w)), ("swiglu", glu, (x, y)), ("add", torch.add, (x, y))):
            for how in ("eager", "compiled"):
                run = torch.compile(function) if how == "compiled" else function
                out = run(*inputs)
                grad = torch.randn_like(out)
                there = seconds(lambda run=run, inputs=inputs: run(*inputs))
                back = seconds(
                    lambda out=out, inputs=inputs, grad=grad: torch.autograd.grad(out, inputs, grad, retain_graph=True)
                )
                yield {
                    "kind": "pointwise",
                    "name": name,
                    "how": how,
                    "rows": rows,
                    "width": width,
                    "forward_s": there,
                    "backward_s": back,
                }


def optimizer_rows():
    for count in (10**8, 10**9):
        p = torch.nn.Parameter(torch.randn(count, device=DEVICE))
        p.grad = torch.randn_like(p)
        adam = torch.optim.AdamW([p], fused=True)
        adam.step()
        yield {"kind": "adam", "parameters": count, "step_s": seconds(adam.step)}
    for rows, vocab in ((4096, 128256), (8192, 128256), (8192, 32000)):
        logits = torch.randn(rows, vocab, device=DEVICE, dtype=BF16, requires_grad=True)
        target = torch.randint(vocab, (rows,), device=DEVICE)

        def loss(logits=logits, target=target):
            return torch.autograd.grad(F.cross_entropy(logits.float(), target), logits)

        yield {
            "kind": "cross_entropy",
            "rows": rows,
            "vocab": vocab,
            "eager_s": seconds(loss),
            "compiled_s": seconds(torch.compile(loss)),
        }


class Block(torch.nn.Module):
    """A LLaMA block."""

    def __init__(self, d: int, f: int, n: int, k: int, h: int) -> None:
        super().__init__()
        self.n, self.k, self.h = n, k, h
        self.qkv = torch.nn.Linear(d, (n + 2 * k) * h, bias=False)
        self.o = torch.nn.Linear(n * h, d, bias=False)
        self.gate, self.up = torch.nn.Linear(d, f, bias=False), torch.nn.Linear(d, f, bias=False)
        self.down = torch.nn.Linear(f, d, bias=False)
        self.a, self.b = torch.nn.Parameter(torch.ones(d)), torch.nn.Parameter(torch.ones(d))

    def forward(self, x, cos, sin):
        batch, length, d = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (d,), self.a)).split((self.n * self.h, self.k * self.h, self.k * self.h), -1)
        q, k, v = (t.view(batch, length, -1, self.h).transpose(1, 2) for t in (q, k, v))

        def turn(t):
            left, right = t.chunk(2, -1)
            return t * cos + torch.cat((-right, left), -1) * sin

        o = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=self.n != self.k)
        x = x + self.o(o.transpose(1, 2).reshape(batch, length, -1))
        y = F.rms_norm(x, (d,), self.b)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def layer_rows():
    for name, d, f, n, k, h in (
        ("1b", 2048, 8192, 32, 8, 64),
        ("8b", 4096, 14336, 32, 8, 128),
        ("70b", 8192, 28672, 64, 8, 128),
    ):
        block = Block(d, f, n, k, h).to(DEVICE, BF16)
        compiled = torch.compile(block)
        for batch, length in ((1, 4096), (2, 4096), (1, 8192), (4, 2048)):
            x = torch.randn(batch, length, d, device=DEVICE, dtype=BF16, requires_grad=True)
            cos, sin = (
                torch.randn(length, h, device=DEVICE, dtype=BF16),
                torch.randn(length, h, device=DEVICE, dtype=BF16),
            )

            def step(x=x, cos=cos, sin=sin, compiled=compiled):
                compiled(x, cos, sin).backward(x)

            with torch.no_grad():
                there = seconds(lambda x=x, cos=cos, sin=sin, compiled=compiled: compiled(x, cos, sin))
            yield {
                "kind": "layer",
                "name": name,
                "d_model": d,
                "d_ff": f,
                "n_heads": n,
                "n_kv_heads": k,
                "head_dim": h,
                "batch": batch,
                "seq": length,
                "forward_s": there,
                "both_s": seconds(step),
            }


def main(path: str, *names: str) -> None:
    torch.manual_seed(0)
    torch._functorch.config.donated_buffer = False  # backward passes are timed many times on one graph
    chosen = names or ["gemm", "attention", "pointwise", "optimizer", "layer"]
    with open(path, "w") as file:
        for rows in (globals()[f"{name}_rows"] for name in chosen):
            for row in rows():
                file.write(json.dumps(row) + "\n")
                file.flush()
            print(rows.__name__, "done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
