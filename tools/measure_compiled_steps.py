"""Time training steps of small models as nanoGPT and nanochat run them, on the GPU at hand, as JSON lines.

`python tools/measure_compiled_steps.py OUT.jsonl`. Weights in fp32 under bf16 autocast, the whole model and its loss
through torch.compile, attention by PyTorch's scaled_dot_product_attention, fused AdamW, no gradient accumulation. Each
line has the seconds of a step and of its kernels by kind, as torch.profiler names them: the constants of the stack
`torch-compile` are read off these.
"""

import json
import sys
import time
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn

# name: layers, width, heads, vocabulary, hidden dims over width, rotary and root-mean-square norms, sequences, tokens
MODELS = {
    "gpt2": (12, 768, 12, 50304, 4, False, 12, 1024),
    "gpt2-large-batch": (12, 768, 12, 50304, 4, False, 48, 1024),
    "gpt2-medium": (24, 1024, 16, 50304, 4, False, 16, 1024),
    "gpt2-xl": (48, 1600, 25, 50304, 4, False, 8, 1024),
    "nanochat-d12": (12, 768, 6, 65536, 4, True, 32, 2048),
    "nanochat-d20": (20, 1280, 10, 65536, 4, True, 32, 2048),
}
WARM_STEPS, TIMED_STEPS = 5, 20


class Block(nn.Module):
    """One layer: biases and GELU as in GPT-2, or rotary positions and squared ReLU as in nanochat."""

    def __init__(self, width: int, heads: int, expansion: int, modern: bool) -> None:
        super().__init__()
        self.heads, self.modern, bias = heads, modern, not modern
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = (
            nn.Linear(width, expansion * width, bias=bias),
            nn.Linear(expansion * width, width, bias=bias),
        )
        if not modern:
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, cos, sin):
        batch, tokens, width = x.shape
        y = F.rms_norm(x, (width,)) if self.modern else self.first(x)
        q, k, v = (part.view(batch, tokens, self.heads, -1) for part in self.qkv(y).split(width, -1))
        if self.modern:
            q, k = F.rms_norm(rotated(q, cos, sin), q.shape[-1:]), F.rms_norm(rotated(k, cos, sin), k.shape[-1:])
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
        y = F.rms_norm(x, (width,)) if self.modern else self.second(x)
        hidden = F.relu(self.up(y)).square() if self.modern else F.gelu(self.up(y))
        return x + self.down(hidden)


def rotated(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos + right * sin, right * cos - left * sin), -1).to(x.dtype)


class Model(nn.Module):
    """Embedding, layers, head and loss."""

    def __init__(self, layers, width, heads, vocab, expansion, modern, tokens) -> None:
        super().__init__()
        self.modern, self.width = modern, width
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        if modern:
            self.embed.to(torch.bfloat16)
        else:
            self.head.weight = self.embed.weight
            self.positions, self.norm = nn.Embedding(tokens, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList([Block(width, heads, expansion, modern) for _ in range(layers)])
        size = width // heads
        angles = torch.outer(torch.arange(tokens), 10000 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos()[None, :, None].bfloat16())
        self.register_buffer("sin", angles.sin()[None, :, None].bfloat16())

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.modern:
            x = F.rms_norm(x, (self.width,))
        else:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        x = F.rms_norm(x, (self.width,)) if self.modern else self.norm(x)
        logits = self.head(x)
        if self.modern:  # nanochat caps its logits, in fp32
            logits = 15 * torch.tanh(logits / 15)
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


KINDS = {
    "matmul": ("gemm", "nvjet", "cutlass", "cublas", "xmma"),
    "attention": ("flash", "fmha", "cudnn", "attention"),
    "optimizer": ("multi_tensor", "adam"),
    "elementwise": ("triton",),
}


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name; attention before matmuls, which cuDNN's kernels name too."""
    name = kernel.lower()
    for kind in ("optimizer", "elementwise", "attention", "matmul"):
        if any(part in name for part in KINDS[kind]):
            return kind
    return "other"


def measure(name: str) -> dict:
    """The step of a model, and the seconds of its kernels by kind."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.cuda.reset_peak_memory_stats()
    sizes = MODELS[name]
    vocab, sequences, tokens = sizes[3], sizes[-2], sizes[-1]
    model = Model(*sizes[:-2], tokens).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    data = torch.randint(vocab, (sequences, tokens + 1), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(data[:, :-1], data[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM_STEPS):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED_STEPS):
        step()
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - start) / TIMED_STEPS
    kernels, longest = Counter(), Counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    for event in profile.key_averages():
        kernels[kind_of(event.key)] += event.self_device_time_total / 3e6
        longest[event.key[:90]] += event.self_device_time_total / 3e6
    return {
        "model": name,
        "sizes": sizes,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "step_s": step_s,
        "tokens_per_s": sequences * tokens / step_s,
        "kernels_s": dict(kernels),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "longest": longest.most_common(14),
    }


def main() -> None:
    """Measure every model."""
    torch.set_float32_matmul_precision("high")
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for name in sys.argv[2:] or MODELS:
            row = measure(name)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print({key: row[key] for key in ("model", "step_s", "tokens_per_s", "kernels_s", "peak_bytes")}, flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
