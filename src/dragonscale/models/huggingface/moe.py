"""Readers of MoE models over grouped-query attention whose form is no row of `families.toml`."""

from dataclasses import replace

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention, ExpertAttention, IndexedAttention, Indexer
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.parts import SLIDING, SPARSE, ModelConfig, Reader, by_layer, paired
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def dbrx(f: ModelConfig) -> Transformer:
    """DBRX: its attention and experts are described in objects of their own; layer norms without biases."""
    attn, ffn = f.inner("attn_config"), f.inner("ffn_config")
    attn.skip("attn_pdrop", "clip_qkv", "rope_theta", "kv_n_heads")
    ffn.skip("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    ffn.skip("uniform_expert_assignment")
    # the defaults are those of transformers' DbrxFFNConfig and DbrxAttentionConfig
    experts, chosen = ffn.optional("moe_num_experts") or 4, ffn.optional("moe_top_k") or 1
    moe = Moe(experts, chosen, ffn.optional("ffn_hidden_size") or 3584)
    layer = Layer(f.attention(n_kv_heads=attn.optional("kv_n_heads") or 1), moe)
    attn.settle()
    ffn.settle()
    return f.decoder([layer] * f.n_layers("n_layers"))


def hunyuan_moe(f: ModelConfig) -> Transformer:
    """Hunyuan A13B: experts in every layer beside one shared MLP of the same size."""
    for name, value in (("use_qk_norm", True), ("use_mixed_mlp_moe", True), ("num_shared_expert", 1)):
        per_layer = f.given.get(name)
        if isinstance(per_layer, list):  # one value for each layer, which is not checked
            f.read.add(name)
        else:
            f.must_be(name, value)
    # some releases give one number for all layers, some a list of equal ones
    d_ff = f.repeated("moe_intermediate_size") or f.repeated("intermediate_size")
    chosen = f.repeated("moe_topk") or f.count("num_experts_per_tok")
    moe = Moe(f.count("num_experts", "num_local_experts"), chosen, d_ff, shared_d_ff=d_ff)
    return f.decoder([Layer(f.biased_attention(qk_norm="head"), moe)] * f.n_layers())


def ernie_moe(f: ModelConfig) -> Transformer:
    """ERNIE 4.5 MoE: experts between two layer numbers, biases of their own for the shared experts and the head."""
    n_layers, bias = f.n_layers(), f.flag("use_bias")
    first, step = f.natural("moe_layer_start_index"), f.natural("moe_layer_interval") or 1
    last = n_layers - 1
    if f.value("moe_layer_end_index") not in (None, -1):
        last = f.natural("moe_layer_end_index")
    d_ff = f.count("moe_intermediate_size")
    shared = f.natural("moe_num_shared_experts") * d_ff
    moe = f.routed(d_ff, shared_d_ff=shared, score_bias=True, shared_bias=bias)
    mixer = f.attention(qkv_bias=bias, out_bias=bias)
    sparse = [first <= i <= last and (i + 1) % step == 0 for i in range(n_layers)]
    return f.decoder(paired([mixer] * n_layers, f.ffns(sparse, moe, bias=bias)), head_bias=bias)


def mimo_v2(f: ModelConfig) -> Transformer:
    """MiMo V2 Flash: windowed layers have sinks and more KV heads than the full ones."""
    window = f.optional("sliding_window")
    # without lists, the first layer and every sixth one see the whole sequence, and all but the first have experts
    local_layers, sparse_layers = f.numbers("hybrid_layer_pattern"), f.numbers("moe_layer_freq")
    windowed = f.either(
        "layer_types", SLIDING, lambda i: _at(f, local_layers, i, 0) if local_layers else i and (i + 1) % 6
    )
    sparse = f.either("mlp_layer_types", SPARSE, lambda i: _at(f, sparse_layers, i, 0) if sparse_layers else i)
    v_head_dim, bias = f.optional("v_head_dim"), f.flag("attention_bias")
    local_kv = f.optional("swa_num_key_value_heads") or 2 * f.count("num_key_value_heads")
    full = f.attention(v_head_dim=v_head_dim, qkv_bias=bias)
    f.must_be("swa_num_attention_heads", None, full.n_heads)
    f.must_be("swa_head_dim", None, full.head_dim)
    f.must_be("swa_v_head_dim", None, v_head_dim)
    f.must_be("add_swa_attention_sink_bias", None, True)
    local = f.attention(v_head_dim=v_head_dim, qkv_bias=bias, sinks=True, window=window, n_kv_heads=local_kv)
    return f.decoder(paired(by_layer(windowed, local, full), f.ffns(sparse, f.routed(score_bias=True))))


def llama4(f: ModelConfig) -> Transformer:
    """Llama 4's language model: chunked attention where positions rotate, full where they do not; experts on every
    `interleave_moe_layer_step`-th layer, with a shared expert as large as a routed one."""
    n_layers, chunk = f.n_layers(), f.optional("attention_chunk_size")
    rope_step = f.natural("no_rope_layer_interval") or 4
    # per layer: 1 where positions rotate, despite the field's name
    rotates = f.numbers("no_rope_layers") or [(i + 1) % rope_step != 0 for i in range(n_layers)]
    kinds = ("full_attention", "chunked_attention")
    chunked = f.either("layer_types", kinds, lambda i: i < len(rotates) and rotates[i])
    moe_step = f.count("interleave_moe_layer_step")
    sparse = f.numbers("moe_layers")
    if sparse is None:
        sparse = list(range(moe_step - 1, n_layers, moe_step))
    d_ff = f.count("intermediate_size")
    moe, dense = f.routed(d_ff, shared_d_ff=d_ff), Mlp(f.count("intermediate_size_mlp"))
    norm = "plain" if f.flag("use_qk_norm") else ""  # an L2 norm without a weight
    full = f.biased_attention(qk_norm=norm)
    mixers = by_layer(chunked, replace(full, chunk=chunk), full)
    return f.decoder(paired(mixers, by_layer(f.layers_in(sparse), moe, dense)))


def laguna(f: ModelConfig) -> Transformer:
    """Laguna: a gate per head, more heads in the windowed layers."""
    n_layers = f.n_layers()
    spans = f.windows(n_layers, lambda _: False)
    if f.value("num_attention_heads_per_layer"):
        listed = f.per_layer("num_attention_heads_per_layer")
    else:
        listed = [f.count("num_attention_heads")] * n_layers
    shared = f.natural("shared_expert_intermediate_size")
    moe = f.routed(shared_d_ff=shared, score_bias=True)
    mixers: list[Attention] = []
    for heads, span in zip(listed, spans, strict=True):  # all layers have the same number of KV heads
        mixers.append(f.attention(n_heads=heads, qk_norm="head", gate="head", window=span))
    return f.decoder(paired(mixers, f.ffns(f.sparse_from(1), moe)))


def jetmoe(f: ModelConfig) -> Transformer:
    """JetMoE: experts for the heads of the attention as well as for the MLP, the same number of each."""
    experts, chosen = f.counts("num_local_experts", "num_experts_per_tok")
    heads, size = f.counts("num_key_value_heads", "kv_channels")
    f.must_be("num_attention_heads", chosen * heads)  # the heads that a token uses
    mixer = ExpertAttention(experts, chosen, heads, size)
    moe = Moe(experts, chosen, f.count("intermediate_size", "ffn_hidden_size"), out_bias=True)
    return f.decoder([Layer(mixer, moe)] * f.n_layers("num_hidden_layers", "num_layers"))


INDEX = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
}
"""The released file's names, inside `sparse_attention_config`, and those of transformers."""


def minimax_m3(f: ModelConfig) -> Transformer:
    """MiniMax M3: full attention in a few layers, blocks of keys chosen by an indexer in the rest."""
    inner = f.inner("sparse_attention_config")
    freq = inner.numbers("sparse_attention_freq")  # per layer: 1 where an indexer chooses the keys
    inner.skip(
        "sparse_disable_index_value",
        "sparse_local_block",
        "sparse_init_block",
        "sparse_score_type",
        "use_sparse_attention",
    )
    sizes = {flat: inner.optional(nested) or f.count(flat) for nested, flat in INDEX.items()}
    inner.settle(text_only=True)
    # the indexer chooses whole blocks of keys
    top = sizes["index_block_size"] * sizes["index_topk_blocks"]
    full = f.attention(qk_norm="head")
    indexed = IndexedAttention(full, Indexer(sizes["index_n_heads"], sizes["index_head_dim"], top))
    moe = f.routed(f.count("intermediate_size"), shared_d_ff=f.natural("shared_intermediate_size"), score_bias=True)
    dense = Mlp(f.count("dense_intermediate_size"))
    chosen = f.either("layer_types", ("full_attention", "minimax_m3_sparse"), lambda i: _at(f, freq, i, 0))
    listed = f.numbers("moe_layer_freq")
    sparse = f.either("mlp_layer_types", SPARSE, lambda i: _at(f, listed, i, 1))
    return f.decoder(paired(by_layer(chosen, indexed, full), by_layer(sparse, moe, dense)))


def _at(f: ModelConfig, listed: list[int] | None, number: int, otherwise: int) -> int:
    """A layer's entry in a list of the config, and `otherwise` where there is no list."""
    if listed is None:
        return otherwise
    if len(listed) <= number:
        raise InputError(f"{f.what} has lists of kinds of layers that are shorter than its {f.n_layers()} layers.")
    return listed[number]


def _listed(f: ModelConfig, first: int) -> list[int]:
    """The layers with experts: `moe_layers_enum`, numbers with commas between; without it all from `first` on."""
    value = f.value("moe_layers_enum")
    if value is None:
        return list(range(first, f.n_layers()))
    parts = value
    if isinstance(value, str):
        parts = value.split(",")
    if not isinstance(parts, list) or not all(str(part).strip().isdecimal() and len(str(part)) < 9 for part in parts):
        raise InputError(f"{f.what} has a moe_layers_enum that is no list of layers.")
    return [int(part) for part in parts]


def step3(f: ModelConfig) -> Transformer:
    """Step 3: one KV head, queries through `share_q_dim` with a norm (multi-matrix factorisation), a shared expert."""
    size = f.count("head_dim")
    mixer = Attention(f.count("num_attention_heads"), 1, size, q_rank=f.optional("share_q_dim") or size)
    moe = f.routed(shared_d_ff=f.count("share_expert_dim", "share_expert_dims"))
    chosen = _listed(f, 1)
    ffns = f.ffns(f.layers_in(chosen), moe)
    return f.decoder(paired([mixer] * len(ffns), ffns), context=f.optional("max_seq_len", "max_position_embedding"))


def step35(f: ModelConfig) -> Transformer:
    """Step 3.5 and 3.7 Flash: three windowed layers of four, with more heads; a gate per head; norms of queries and
    keys."""
    n_layers = f.n_layers()
    kinds, more = f.value("layer_types"), f.natural("num_nextn_predict_layers", "num_mtp_layers")
    if isinstance(kinds, list) and len(kinds) == n_layers + more:  # the released file lists its multi-token modules too
        f.given = {**f.given, "layer_types": kinds[:n_layers]}
    other = f.inner("attention_other_setting")
    heads = f.optional("num_sliding_attention_heads")
    heads = heads or other.optional("num_attention_heads")
    # of these fields the windowed layers have the same as the full ones
    other.skip("attention_type", "num_attention_groups", "head_dim", "true_head_dim", "num_key_value_heads")
    other.settle()
    window = f.optional("sliding_window")
    is_local = f.either("layer_types", SLIDING, lambda _: False)
    sparse_layers = _listed(f, 3)  # the first three are dense
    sparse = f.either("mlp_layer_types", SPARSE, lambda i: i in sparse_layers)
    bias, groups = f.flag("attention_bias"), f.count("num_attention_groups", "num_key_value_heads")
    gate = "head" if f.value("gating") in (None, True, "per-head") else "full"
    frame = {"n_kv_heads": groups, "qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "gate": gate}
    full = f.attention(**frame)
    local = replace(full, window=window, n_heads=heads or full.n_heads)
    shared, biased = f.count("share_expert_dim", "share_expert_dims"), f.flag("mlp_bias")
    moe, dense = f.routed(shared_d_ff=shared, score_bias=True, shared_bias=biased), f.mlp(bias=biased)
    return f.decoder(paired(by_layer(is_local, local, full), by_layer(sparse, moe, dense)))


FAMILIES: dict[str, Reader] = {
    "jetmoe": jetmoe,
    "dbrx": dbrx,
    "hunyuan_v1_moe": hunyuan_moe,
    "ernie4_5_moe": ernie_moe,
    "mimo_v2_flash": mimo_v2,
    "llama4_text": llama4,
    "laguna": laguna,
    "minimax_m3_vl_text": minimax_m3,
    "minimax_m3": minimax_m3,
    "step3_text": step3,
    "step3p5": step35,
}
