"""Readers of what is built on DeepSeek's line: GLM 5's shared indexers, V4's compressed attention, LongCat's
shortcuts."""

from dataclasses import replace

from dragonscale.models.ffn import BesideMoe, Mlp, Moe
from dragonscale.models.huggingface.parts import ModelConfig, Reader, paired
from dragonscale.models.latent import CompressedAttention
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import Transformer, mtp_sections


def glm_dsa(f: ModelConfig) -> Transformer:
    """GLM 5: an indexer, which some layers share with the one before, and a multi-token module without tables of its
    own."""
    heads, dim, top = (f.count(name) for name in ("index_n_heads", "index_head_dim", "index_topk"))
    indexed = f.latent_attention(index_heads=heads, index_dim=dim, index_top=top)
    reused, moe = replace(indexed, index_own=False), f.with_shared(score_bias=True)
    sparse = f.sparse_from(f.natural("first_k_dense_replace"), f.natural("moe_layer_freq") or 1)
    mixers = [indexed if kind == "full" else reused for kind in _indexers(f)]
    layers = paired(mixers, [moe if each else f.mlp() for each in sparse])
    f.must_be("layer_types", None, ["indexed_attention"] * len(layers))
    modules = f.natural("num_nextn_predict_layers")
    return f.decoder(layers, extras=mtp_sections([Layer(indexed, moe)], f.d_model(), f.count("vocab_size"), modules))


def _indexers(f: ModelConfig) -> list[str]:
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


def deepseek_v4(f: ModelConfig) -> Transformer:
    """DeepSeek V4: a window and a compressed past, hash-routed first layers, several residual streams."""
    n_layers, streams = f.n_layers(), f.count("hc_mult")
    ratios = _ratios(f, n_layers)
    first = 3 if f.value("num_hash_layers") is None else f.natural("num_hash_layers")
    hashed = f.either("mlp_layer_types", n_layers, ("moe", "hash_moe"), lambda i: i < first)
    d_ff = f.count("moe_intermediate_size")
    shared = f.count("n_shared_experts", at_most=1) * d_ff
    plain = f.routed(d_ff, shared_d_ff=shared, score_bias=True)
    by_hash = f.routed(d_ff, shared_d_ff=shared, hashed=True)
    layers = [
        Layer(_compressed(f, ratio), by_hash if each else plain, streams=streams)
        for ratio, each in zip(ratios, hashed, strict=True)
    ]
    module = Layer(_compressed(f, 0), plain, streams=streams)
    modules = f.natural("num_nextn_predict_layers")
    extras = mtp_sections([module], f.d_model(), f.count("vocab_size"), modules)
    return f.decoder(layers, extras=(*extras, *_tables(f, by_hash, sum(hashed))))


def _tables(f: ModelConfig, moe: Moe, layers: int) -> tuple[Section, ...]:
    """The fixed tables of hash routing: whole numbers in the files, no parameters of the model."""
    if not layers:
        return ()
    dims = {"v": f.count("vocab_size"), "x": moe.experts_per_token}
    return (Section("tables", parsed(["router: T[b,t,x] = lookup(; W_hash:int32[v,x])"]), dims, layers),)


def _ratios(f: ModelConfig, n_layers: int) -> list[int]:
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


def _compressed(f: ModelConfig, ratio: int) -> CompressedAttention:
    names = ("num_attention_heads", "head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "sliding_window")
    sizes = [f.count(name) for name in names]
    heads, dim, top = (f.count(name) for name in ("index_n_heads", "index_head_dim", "index_topk"))
    indexer = {"index_heads": heads, "index_dim": dim, "index_top": top} if ratio == 4 else {}
    return CompressedAttention(*sizes, ratio=ratio or None, **indexer)


def longcat(f: ModelConfig) -> Transformer:
    """LongCat-Flash: two latent attentions and two MLPs in a layer, and experts beside them, some of which do nothing.

    Each of its layers is two of ours: the experts start from the first half's input and join at the end of the second.
    Of the `moe_topk` experts that a token is sent to, as many are real as are of all experts: LongCat's report keeps it
    so by a bias (27B of 560B parameters are used on average).
    """
    chosen, zero = f.count("moe_topk", "num_experts_per_tok"), f.natural("zero_expert_num")
    experts = f.count("n_routed_experts")
    real = max(1, round(chosen * experts / (experts + zero)))
    moe = f.routed(f.count("expert_ffn_hidden_size"), experts_per_token=real, zero_experts=zero, score_bias=True)
    mixer, dense = f.latent_attention(), Mlp(f.count("ffn_hidden_size"))
    return f.decoder([Layer(mixer, BesideMoe(dense, moe)), Layer(mixer, dense)] * f.n_layers("num_layers"))


FAMILIES: dict[str, Reader] = {"deepseek_v4": deepseek_v4, "glm_moe_dsa": glm_dsa, "longcat_flash": longcat}
