"""Readers of what is built on DeepSeek's line: GLM 5's shared indexers, V4's compressed attention, LongCat's
shortcuts."""

from dataclasses import replace

from dragonscale.models.ffn import BesideMoe, Mlp, Moe
from dragonscale.models.huggingface.parts import ModelConfig, Reader, by_layer, paired
from dragonscale.models.latent import CompressedAttention
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import Transformer


def glm_dsa(f: ModelConfig) -> Transformer:
    """GLM 5: an indexer, which some layers share with the one before, and a multi-token module without tables of its
    own."""
    indexed = f.latent_attention(**_indexer(f))
    reused, moe = replace(indexed, index_own=False), f.with_shared(score_bias=True)
    sparse = f.sparse_from(f.natural("first_k_dense_replace"), f.natural("moe_layer_freq") or 1)
    layers = paired(by_layer(_has_indexer(f), indexed, reused), f.ffns(sparse, moe))
    f.must_be("layer_types", None, ["indexed_attention"] * len(layers))
    return f.decoder(layers, extras=f.multi_token([Layer(indexed, moe)]))


def _indexer(f: ModelConfig) -> dict[str, int]:
    """The options of an attention with DeepSeek's lightning indexer."""
    heads, dim, top = f.counts("index_n_heads", "index_head_dim", "index_topk")
    return {"index_heads": heads, "index_dim": dim, "index_top": top}


def _has_indexer(f: ModelConfig) -> list[bool]:
    """Which layers choose keys themselves: a list, a pattern of F and S, or one of every few."""
    pattern = f.text("index_topk_pattern")
    freq = f.natural("index_topk_freq") or 1
    skipped = 2  # the default, where the field is absent; null counts as 0
    if "index_skip_topk_offset" in f.given:
        skipped = f.natural("index_skip_topk_offset")

    def has_indexer(number: int) -> bool:
        if pattern:
            return pattern[number : number + 1] != "S"
        # the first `skipped` layers have one each, then every `freq`-th
        return max(number - skipped + 1, 0) % freq == 0

    return f.either("indexer_types", ("shared", "full"), has_indexer)


# the tokens that a pooled key stands for in each kind of layer; 0 for a window alone
_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def deepseek_v4(f: ModelConfig) -> Transformer:
    """DeepSeek V4: a window and a compressed past, hash-routed first layers, several residual streams."""
    n_layers, streams = f.n_layers(), f.count("hc_mult")
    ratios = _ratios(f, n_layers)
    first = 3  # layers routed by a hash of the token, where num_hash_layers is null
    if f.value("num_hash_layers") is not None:
        first = f.natural("num_hash_layers")
    hashed = f.either("mlp_layer_types", ("moe", "hash_moe"), lambda i: i < first)
    d_ff = f.count("moe_intermediate_size")
    shared = f.count("n_shared_experts", at_most=1) * d_ff
    plain = f.routed(d_ff, shared_d_ff=shared, score_bias=True)
    by_hash = f.routed(d_ff, shared_d_ff=shared, hashed=True)
    layers: list[Layer] = []
    for ratio, ffn in zip(ratios, by_layer(hashed, by_hash, plain), strict=True):
        layers.append(Layer(_compressed(f, ratio), ffn, streams=streams))
    # its module has a window alone, without compressed keys
    module = Layer(_compressed(f, 0), plain, streams=streams)
    return f.decoder(layers, extras=(*f.multi_token([module]), *_tables(f, by_hash, sum(hashed))))


def _tables(f: ModelConfig, moe: Moe, layers: int) -> tuple[Section, ...]:
    """The fixed tables of hash routing: whole numbers in the files, no parameters of the model."""
    if not layers:
        return ()
    dims = {"v": f.count("vocab_size"), "x": moe.experts_per_token}
    return (Section("tables", parsed(["router: T[b,t,x] = lookup(; W_hash:int32[v,x])"]), dims, layers),)


def _ratios(f: ModelConfig, n_layers: int) -> list[int]:
    """How many tokens each layer's pooled keys stand for, 0 for a window alone."""
    # a config has either layer_types with a rate for each kind, or one ratio for each layer
    window, sparse, heavy = _RATIOS
    ratios, inner = dict(_RATIOS), f.inner("compress_rates")
    if inner.given:
        ratios[sparse], ratios[heavy] = inner.counts(sparse, heavy)
    inner.settle()
    listed = f.numbers("compress_ratios")
    if listed is not None:
        return (listed + [0] * n_layers)[:n_layers]
    defaults = [heavy, heavy] + [heavy, sparse] * n_layers  # two layers of the large ratio, then both in turn
    kinds = f.kinds("layer_types", n_layers, (window, sparse, heavy), defaults.__getitem__)
    return [ratios[kind] for kind in kinds]


def _compressed(f: ModelConfig, ratio: int) -> CompressedAttention:
    sizes = f.counts("num_attention_heads", "head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "sliding_window")
    indexer = _indexer(f)
    if ratio != 4:  # at the large ratio there are few keys, and every one is read
        indexer = {}
    return CompressedAttention(*sizes, ratio=ratio or None, **indexer)


def longcat(f: ModelConfig) -> Transformer:
    """LongCat-Flash: two latent attentions and two MLPs in a layer, and experts beside them, some of which do nothing.

    Each of its layers is two of ours: the experts start from the first half's input and join at the end of the second.
    Of the `moe_topk` experts that a token is sent to, as many are real as are of all experts: LongCat's report keeps it
    so by a bias (27B of 560B parameters are used on average).
    """
    chosen, zero = f.count("moe_topk", "num_experts_per_tok"), f.natural("zero_expert_num")
    experts = f.count("n_routed_experts")
    # zero experts hand on their input: of a token's choices, the mean number that are real
    real = max(1, round(chosen * experts / (experts + zero)))
    moe = f.routed(f.count("expert_ffn_hidden_size"), experts_per_token=real, zero_experts=zero, score_bias=True)
    mixer, dense = f.latent_attention(), Mlp(f.count("ffn_hidden_size"))
    return f.decoder([Layer(mixer, BesideMoe(dense, moe)), Layer(mixer, dense)] * f.n_layers("num_layers"))


FAMILIES: dict[str, Reader] = {"deepseek_v4": deepseek_v4, "glm_moe_dsa": glm_dsa, "longcat_flash": longcat}
