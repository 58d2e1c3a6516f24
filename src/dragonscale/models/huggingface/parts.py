"""What most families share: readers of heads, windows, MLPs and the frame around the layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

Reader = Callable[[Fields], Transformer]


def d_model(f: Fields) -> int:
    """The width of the residual stream."""
    return f.count("hidden_size", "n_embd", "d_model", "n_embed", "dim")


def split_evenly(f: Fields, total: int, parts: int, what: str) -> int:
    """One part's share, or an error if it does not come out even."""
    if total % parts:
        raise InputError(f"{f.what} cannot split {what} of {total} over {parts} heads evenly.")
    return total // parts


def heads(f: Fields) -> dict[str, Any]:
    """Heads of a grouped-query attention, as arguments of `Attention`."""
    n_heads = f.count("num_attention_heads", "n_head", "n_heads")
    n_kv_heads = f.optional("num_key_value_heads") or n_heads
    head_dim = f.optional("head_dim", "attention_head_dim") or split_evenly(f, d_model(f), n_heads, "a hidden size")
    return {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim}


def attention(f: Fields, **options: Any) -> Attention:
    """Grouped-query attention with the family's own options."""
    frame: dict[str, Any] = heads(f) | {"soft_cap": bool(f.value("attn_logit_softcapping"))}
    return Attention(**(frame | options))


def full_heads(f: Fields, **options: Any) -> Attention:
    """Attention with as many KV heads as heads, unless said otherwise, that share the width evenly."""
    n_heads = f.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    size = split_evenly(f, d_model(f), n_heads, "a hidden size")
    frame: dict[str, Any] = {"n_heads": n_heads, "n_kv_heads": n_heads, "head_dim": size}
    return Attention(**(frame | options))


def biased_attention(f: Fields, **options: Any) -> Attention:
    """Attention whose `attention_bias` puts a bias on all four projections."""
    bias = f.flag("attention_bias")
    return attention(f, qkv_bias=bias, out_bias=bias, **options)


def mlp(f: Fields, **options: Any) -> Mlp:
    """A feed-forward part of `intermediate_size`."""
    return Mlp(f.count("intermediate_size"), **options)


def latent_attention(f: Fields, **options: Any) -> LatentAttention:
    """Multi-head latent attention."""
    f.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    return LatentAttention(
        n_heads=f.count("num_attention_heads"),
        q_rank=f.optional("q_lora_rank"),
        kv_rank=f.count("kv_lora_rank"),
        nope_dim=f.count("qk_nope_head_dim"),
        rope_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
        bias=f.flag("attention_bias"),
        **options,
    )


def _stretched(stated: int | None, scaling: object) -> int | None:
    """The context with YaRN's stretch of the original one, where a config states the shorter (vllm/config/model.py does
    the same; most state the stretched length)."""
    if stated is None or not isinstance(scaling, Mapping):
        return stated
    kind = scaling.get("rope_type") or scaling.get("type")
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if kind != "yarn" or not isinstance(factor, int | float) or not isinstance(original, int) or not 1 <= factor <= 1e6:
        return stated
    return max(stated, round(original * factor))


def decoder(f: Fields, layers: Sequence[Layer], **options: Any) -> Transformer:
    """The frame: embedding, layers, final norm and head."""
    spelt = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
    given = [f.natural(name) for name in spelt]  # some files have two, which need not agree
    scaling = f.value("rope_scaling") or f.value("rope_parameters")
    context = _stretched(next((length for length in given if length), None), scaling)
    frame: dict[str, Any] = {
        "name": f.text("model_type") or f.what,
        "d_model": d_model(f),
        "vocab": options.pop("vocab", None) or f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"),
        "context": context,
    }
    return Transformer(layers=tuple(layers), **(frame | options))
