"""MiniMax M3's language model: full attention in a few layers, blocks of keys chosen by an indexer in the rest."""

from dragonscale.errors import InputError
from dragonscale.models.attention import IndexedAttention, Indexer
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import SPARSE, routed
from dragonscale.models.huggingface.parts import Reader, attention, decoder
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

KINDS = ("full_attention", "minimax_m3_sparse")
INDEX = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
}
"""The released file's names, inside `sparse_attention_config`, and those of transformers."""


def minimax_m3(f: Fields) -> Transformer:
    """The model that the config describes."""
    n_layers = f.n_layers()
    inner = f.inner("sparse_attention_config")
    freq = inner.numbers("sparse_attention_freq") if inner is not None else None
    if inner is not None:
        inner.skip(*INDEX, "sparse_local_block", "sparse_init_block", "sparse_score_type", "use_sparse_attention")
        inner.settle(text_only=True)
    sizes = {flat: _index(f, inner, old, flat) for old, flat in INDEX.items()}
    top = sizes["index_block_size"] * sizes["index_topk_blocks"]
    full = attention(f, qk_norm="head")
    near = IndexedAttention(full, Indexer(sizes["index_n_heads"], sizes["index_head_dim"], top))
    f.skip("index_local_blocks", "swiglu_alpha", "use_gemma_norm", "use_qk_norm", "qk_norm_type")
    f.must_be("use_routing_bias", True)
    moe = routed(f, f.count("intermediate_size"), shared_d_ff=f.natural("shared_intermediate_size"), score_bias=True)
    dense = Mlp(f.count("dense_intermediate_size"))
    chosen = f.either("layer_types", n_layers, KINDS, lambda i: _at(f, freq, i, 0))
    listed = f.numbers("moe_layer_freq")
    sparse = f.either("mlp_layer_types", n_layers, SPARSE, lambda i: _at(f, listed, i, 1))
    layers = [Layer(near if one else full, moe if two else dense) for one, two in zip(chosen, sparse, strict=True)]
    return decoder(f, layers)


def _index(f: Fields, inner: Fields | None, old: str, flat: str) -> int:
    return (inner.optional(old) if inner is not None else None) or f.count(flat)


def _at(f: Fields, listed: list[int] | None, number: int, otherwise: int) -> int:
    if listed is not None and len(listed) <= number:
        raise InputError(f"{f.what} has lists of kinds of layers that are shorter than its {f.n_layers()} layers.")
    return otherwise if listed is None else listed[number]


FAMILIES: dict[str, Reader] = {"minimax_m3_vl_text": minimax_m3, "minimax_m3": minimax_m3}
