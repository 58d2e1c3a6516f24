"""Readers of DeepSeek's line and those built on it: latent attention, sparse indexers, V4's compressed attention."""

from dataclasses import replace

from dragonscale.models.compressed import CompressedAttention
from dragonscale.models.ffn import Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import SPARSE, routed, with_shared
from dragonscale.models.huggingface.parts import Reader, alike, d_model, decoder, latent_attention, mlp, qkv_biased
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Component, Layer
from dragonscale.models.mtp import mtp_sections
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import Transformer


def _layers(f: Fields, mixer: Component, moe: Moe, bias: bool = False) -> list[Layer]:
    """Dense layers first, then experts (every `moe_layer_freq`-th in some)."""
    n_layers, first = f.n_layers(), f.natural("first_k_dense_replace")
    step = f.natural("moe_layer_freq") or 1
    sparse = f.either("mlp_layer_types", n_layers, SPARSE, lambda i: i >= first and i % step == 0)
    return [Layer(mixer, moe if each else mlp(f, bias=bias)) for each in sparse]


def _modules(f: Fields, mixer: Component, moe: Moe, copies: bool) -> tuple[Section, ...]:
    modules = f.natural("num_nextn_predict_layers")
    return mtp_sections([Layer(mixer, moe)], d_model(f), f.count("vocab_size"), modules, copies, copies)


def deepseek_v2(f: Fields) -> Transformer:
    """DeepSeek V2 and V2-Lite."""
    bias = f.flag("mlp_bias")
    return decoder(f, _layers(f, latent_attention(f), with_shared(f, shared_bias=bias), bias))


def deepseek_v3(f: Fields) -> Transformer:
    """DeepSeek V3, R1, Kimi K2, and V3.2 with its indexer. The files hold copies of the embedding and head for the
    multi-token module."""
    indexed = f.text("model_type") == "deepseek_v32"
    mixer, moe = _indexed(f) if indexed else latent_attention(f), with_shared(f, score_bias=True)
    return decoder(f, _layers(f, mixer, moe), extras=_modules(f, mixer, moe, copies=True))


def _indexed(f: Fields) -> LatentAttention:
    return latent_attention(
        f,
        index_heads=f.count("index_n_heads"),
        index_dim=f.count("index_head_dim"),
        index_top=f.count("index_topk"),
    )


def glm_dsa(f: Fields) -> Transformer:
    """GLM 5: an indexer, which some layers share with the one before, and a multi-token module without tables of its own."""
    own, moe = _indexed(f), with_shared(f, score_bias=True)
    layers = [
        replace(layer, mixer=own if kind == "full" else replace(own, index_own=False))
        for layer, kind in zip(_layers(f, own, moe), _indexers(f), strict=True)
    ]
    f.must_be("layer_types", None, ["indexed_attention"] * len(layers))
    return decoder(f, layers, extras=_modules(f, own, moe, copies=False))


def _indexers(f: Fields) -> list[str]:
    """Which layers choose keys themselves: a list, a pattern of F and S, or one of every few."""
    pattern = f.text("index_topk_pattern")
    freq, offset = f.natural("index_topk_freq") or 1, f.given.get("index_skip_topk_offset", 2)
    skipped = f.natural("index_skip_topk_offset") if offset != 2 else 2
    f.skip("index_skip_topk_offset")

    def otherwise(number: int) -> str:
        if pattern:
            return "shared" if number < len(pattern) and pattern[number] == "S" else "full"
        return "full" if max(number - skipped + 1, 0) % freq == 0 else "shared"

    return f.kinds("indexer_types", f.n_layers(), ("full", "shared"), otherwise)


def glm4_lite(f: Fields) -> Transformer:
    """GLM 4.7 Flash: latent attention, few experts, its first layer dense."""
    mixer, moe = latent_attention(f), with_shared(f, score_bias=True)
    f.must_be("first_k_dense_replace", 1)
    f.must_be("moe_layer_freq", 1)
    sparse = f.either("mlp_layer_types", f.n_layers(), SPARSE, lambda i: i > 0)
    layers = [Layer(mixer, moe if each else mlp(f)) for each in sparse]
    return decoder(f, layers, extras=_modules(f, mixer, moe, copies=True))


_RATIO_KINDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def deepseek_v4(f: Fields) -> Transformer:
    """DeepSeek V4: a window and a compressed past, hash-routed first layers, several residual streams."""
    n_layers, streams = f.n_layers(), f.count("hc_mult")
    f.must_be("num_key_value_heads", 1)
    f.skip("qk_rope_head_dim", "intermediate_size")
    ratios = _ratios(f, n_layers)
    first = 3 if f.value("num_hash_layers") is None else f.natural("num_hash_layers")
    hashed = f.either("mlp_layer_types", n_layers, ("moe", "hash_moe"), lambda i: i < first)
    d_ff = f.count("moe_intermediate_size")
    shared = f.count("n_shared_experts", at_most=1) * d_ff
    plain = routed(f, d_ff, shared_d_ff=shared, score_bias=True)
    by_hash = routed(f, d_ff, shared_d_ff=shared, hashed=True)
    layers = [
        Layer(_compressed(f, ratio), by_hash if each else plain, streams=streams)
        for ratio, each in zip(ratios, hashed, strict=True)
    ]
    module = Layer(_compressed(f, 0), plain, streams=streams)
    modules = f.natural("num_nextn_predict_layers")
    extras = mtp_sections([module], d_model(f), f.count("vocab_size"), modules)
    return decoder(f, layers, extras=(*extras, *_tables(f, by_hash, sum(hashed))))


def _tables(f: Fields, moe: Moe, layers: int) -> tuple[Section, ...]:
    """The fixed tables of hash routing: whole numbers in the files, no parameters of the model."""
    if not layers:
        return ()
    dims = {"v": f.count("vocab_size"), "x": moe.experts_per_token}
    return (Section("tables", parsed(["router: T[b,t,x] = lookup(; W_hash:int32[v,x])"]), dims, layers),)


def _ratios(f: Fields, n_layers: int) -> list[int]:
    """How many tokens each layer's pooled keys stand for, 0 for a window alone."""
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    inner = f.inner("compress_rates")
    if inner is not None:
        rates = {kind: inner.count(kind) for kind in rates}
        inner.refuse_unread()
    listed = f.numbers("compress_ratios")
    if listed is not None:
        return (listed + [0] * n_layers)[:n_layers]
    names = tuple(_RATIO_KINDS.values())
    kinds = f.kinds("layer_types", n_layers, names, lambda i: _RATIO_KINDS[128 if i < 2 or i % 2 == 0 else 4])
    return [rates.get(kind, 0) for kind in kinds]


def _compressed(f: Fields, ratio: int) -> CompressedAttention:
    indexed = ratio == 4
    heads, dim, top = f.count("index_n_heads"), f.count("index_head_dim"), f.count("index_topk")
    return CompressedAttention(
        n_heads=f.count("num_attention_heads"),
        head_dim=f.count("head_dim"),
        q_rank=f.count("q_lora_rank"),
        o_rank=f.count("o_lora_rank"),
        o_groups=f.count("o_groups"),
        window=f.count("sliding_window"),
        ratio=ratio or None,
        index_heads=heads if indexed else None,
        index_dim=dim if indexed else None,
        index_top=top if indexed else None,
    )


FAMILIES: dict[str, Reader] = {
    # DeepSeek MoE 16B: full attention, dense first layers, shared experts
    "deepseek": lambda f: decoder(f, _layers(f, qkv_biased(f), with_shared(f))),
    "deepseek_v2": deepseek_v2,
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "deepseek_v32"), deepseek_v3),
    "deepseek_v4": deepseek_v4,
    "glm_moe_dsa": glm_dsa,
    "glm4_moe_lite": glm4_lite,
    # MiniCPM 3 and Youtu: latent attention over a dense MLP
    **dict.fromkeys(
        ("minicpm3", "youtu"), alike(lambda f: Layer(latent_attention(f), mlp(f, bias=f.flag("mlp_bias"))))
    ),
    # Mistral 4: latent attention, a shared expert, no correction to the routing scores
    "mistral4": lambda f: decoder(f, _layers(f, latent_attention(f), with_shared(f))),
}
