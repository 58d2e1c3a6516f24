"""A LLaMA as anyone would write it in PyTorch: the program whose profile `tools.record_profiles` records."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Grouped queries, rotary positions, PyTorch's own kernel. PyTorch's counter of FLOPs wants as many key heads as
    query heads: they are copied where `repeats` is set."""

    repeats = False

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.heads, self.shared, self.size = (
            config["num_attention_heads"],
            config["num_key_value_heads"],
            config["head_dim"],
        )
        wide = config["hidden_size"]
        self.q_proj = nn.Linear(wide, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(wide, self.shared * self.size, bias=False)
        self.v_proj = nn.Linear(wide, self.shared * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, wide, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            proj(x).view(b, t, -1, self.size).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if self.repeats:
            k, v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
        made = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not self.repeats)
        return self.o_proj(made.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        wide, hidden = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(wide, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, wide, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and MLP, each behind its norm."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(config["hidden_size"]) for _ in range(2))
        self.self_attn, self.mlp = Attention(config), Mlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The model, up to its loss."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.size, self.theta = config["head_dim"], config["rope_theta"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        rates = self.theta ** (-torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.outer(places, rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of channels turned by their positions' angles."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin
