"""Forward passes written again, plainly and in NumPy, from checkpoint tensors: nothing of the program's reading is
used."""

from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turn(x: np.ndarray, theta: float, interleaved: bool = False) -> np.ndarray:
    """Rotary embeddings of x [heads, tokens, size]."""
    size = x.shape[-1]
    out = np.empty_like(x)
    for position in range(x.shape[1]):
        for pair in range(size // 2):
            angle = position * theta ** (-2 * pair / size)
            i, j = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + size // 2)
            a, b = x[:, position, i], x[:, position, j]
            c, s = np.cos(angle), np.sin(angle)
            to = (pair, pair + size // 2)
            out[:, position, to[0]], out[:, position, to[1]] = a * c - b * s, b * c + a * s
    return out


def masked(scores: np.ndarray, window: int | None) -> np.ndarray:
    t = scores.shape[-1]
    for i in range(t):
        for j in range(t):
            if j > i or (window is not None and j <= i - window):
                scores[..., i, j] = -np.inf
    return softmax(scores)


def gqa(x: np.ndarray, w: Weights, p: str, c: dict[str, Any], window: int | None) -> np.ndarray:
    n, k = c["num_attention_heads"], c["num_key_value_heads"]
    h = c.get("head_dim") or c["hidden_size"] // n
    parts = []
    for name, heads in (("q", n), ("k", k), ("v", k)):
        y = x @ w[f"{p}self_attn.{name}_proj.weight"].T
        if f"{p}self_attn.{name}_proj.bias" in w:
            y = y + w[f"{p}self_attn.{name}_proj.bias"]
        y = y.reshape(len(x), heads, h).transpose(1, 0, 2)
        if f"{p}self_attn.{name}_norm.weight" in w:
            y = rms(y, w[f"{p}self_attn.{name}_norm.weight"], c["rms_norm_eps"])
        parts.append(y)
    q, key, v = turn(parts[0], c["rope_theta"]), turn(parts[1], c["rope_theta"]), parts[2]
    key, v = key.repeat(n // k, 0), v.repeat(n // k, 0)
    out = masked(q @ key.transpose(0, 2, 1) / np.sqrt(h), window) @ v
    return out.transpose(1, 0, 2).reshape(len(x), -1) @ w[f"{p}self_attn.o_proj.weight"].T


def mla(x: np.ndarray, w: Weights, p: str, c: dict[str, Any]) -> np.ndarray:
    n, nope, rope, v_dim, rank = (
        c[name]
        for name in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    q = rms(x @ w[f"{p}self_attn.q_a_proj.weight"].T, w[f"{p}self_attn.q_a_layernorm.weight"], c["rms_norm_eps"])
    q = (q @ w[f"{p}self_attn.q_b_proj.weight"].T).reshape(len(x), n, nope + rope).transpose(1, 0, 2)
    both = x @ w[f"{p}self_attn.kv_a_proj_with_mqa.weight"].T
    latent = rms(both[:, :rank], w[f"{p}self_attn.kv_a_layernorm.weight"], c["rms_norm_eps"])
    kv = (latent @ w[f"{p}self_attn.kv_b_proj.weight"].T).reshape(len(x), n, nope + v_dim).transpose(1, 0, 2)
    shared = turn(both[None, :, rank:], c["rope_theta"], interleaved=True).repeat(n, 0)
    query = np.concatenate([q[..., :nope], turn(q[..., nope:], c["rope_theta"], interleaved=True)], -1)
    key = np.concatenate([kv[..., :nope], shared], -1)
    out = masked(query @ key.transpose(0, 2, 1) / np.sqrt(nope + rope), None) @ kv[..., nope:]
    return out.transpose(1, 0, 2).reshape(len(x), -1) @ w[f"{p}self_attn.o_proj.weight"].T


def mlp(
    x: np.ndarray, w: Weights, p: str, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> np.ndarray:
    gate, up, down = (w[f"{p}{name}.weight"] for name in names)
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def mixture(x: np.ndarray, w: Weights, p: str, c: dict[str, Any]) -> np.ndarray:
    """Token by token: the router's choice, each chosen expert, their weighted sum."""
    kind = c["model_type"]
    mixtral = kind == "mixtral"
    base = f"{p}block_sparse_moe." if mixtral else f"{p}mlp."
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    count = c["num_experts_per_tok"]
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        logits = w[f"{base}gate.weight"] @ row
        scores = 1 / (1 + np.exp(-logits)) if kind == "deepseek_v3" else softmax(logits)
        ranked = scores.copy()
        if kind == "deepseek_v3":
            ranked = scores + w[f"{base}gate.e_score_correction_bias"]
            groups = ranked.reshape(c["n_group"], -1)
            best = np.argsort(-np.sort(groups, -1)[:, -2:].sum(-1))[: c["topk_group"]]
            for group in range(c["n_group"]):
                if group not in best:
                    groups[group] = -np.inf
            ranked = groups.reshape(-1)
        chosen = np.argsort(-ranked, kind="stable")[:count]
        weights = scores[chosen] / scores[chosen].sum()
        if kind == "deepseek_v3":
            weights = weights * c["routed_scaling_factor"]
        for e, weight in zip(chosen, weights, strict=True):
            out[i] += weight * mlp(row, w, f"{base}experts.{e}.", names)
    if f"{base}shared_experts.gate_proj.weight" in w:
        out = out + mlp(x, w, f"{base}shared_experts.")
    return out


def logits(tokens: np.ndarray, w: Weights, c: dict[str, Any]) -> np.ndarray:
    """Logits [t, v] of one sequence."""
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        normed = rms(x, w[f"{p}input_layernorm.weight"], c["rms_norm_eps"])
        latent = "kv_lora_rank" in c
        x = x + (mla(normed, w, p, c) if latent else gqa(normed, w, p, c, c.get("sliding_window")))
        normed = rms(x, w[f"{p}post_attention_layernorm.weight"], c["rms_norm_eps"])
        routed = f"{p}mlp.gate.weight" in w or f"{p}block_sparse_moe.gate.weight" in w
        x = x + (mixture(normed, w, p, c) if routed else mlp(normed, w, f"{p}mlp."))
    x = rms(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
