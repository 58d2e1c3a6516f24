"""Readers of what is built on DeepSeek's line: GLM 5's shared indexers, V4's compressed attention."""

from dataclasses import replace

from dragonscale.models.compressed import CompressedAttention
from dragonscale.models.ffn import Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import SPARSE, routed, with_shared
from dragonscale.models.huggingface.parts import Reader, d_model, decoder, latent_attention, mlp
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import Transformer, mtp_sections


def glm_dsa(f: Fields) -> Transformer:
    """GLM 5: an indexer, which some layers share with the one before, and a multi-token module without tables of its
    own."""
    heads, dim, top = (f.count(name) for name in ("index_n_heads", "index_head_dim", "index_topk"))
    own = latent_attention(f, index_heads=heads, index_dim=dim, index_top=top)
    reused, moe = replace(own, index_own=False), with_shared(f, score_bias=True)
    n_layers, first = f.n_layers(), f.natural("first_k_dense_replace")
    step = f.natural("moe_layer_freq") or 1
    sparse = f.either("mlp_layer_types", n_layers, SPARSE, lambda i: i >= first and i % step == 0)
    layers = [
        Layer(own if kind == "full" else reused, moe if each else mlp(f))
        for kind, each in zip(_indexers(f), sparse, strict=True)
    ]
    f.must_be("layer_types", None, ["indexed_attention"] * n_layers)
    modules = f.natural("num_nextn_predict_layers")
    return decoder(f, layers, extras=mtp_sections([Layer(own, moe)], d_model(f), f.count("vocab_size"), modules))


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
        inner.settle()
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


FAMILIES: dict[str, Reader] = {"deepseek_v4": deepseek_v4, "glm_moe_dsa": glm_dsa}
