"""Zamba 2: Mamba-2 layers, some with a Transformer block before them whose weights they share in turn."""

from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import Reader, d_model, decoder, split_evenly
from dragonscale.models.layer import Layer
from dragonscale.models.mamba import Mamba2
from dragonscale.models.shared_block import BlockThenMixer, SharedBlock
from dragonscale.models.transformer import Transformer

ALIASES = {"mamba": "linear_attention", "m": "linear_attention", "g": "hybrid"}


def zamba2(f: Fields) -> Transformer:
    """The model that the config describes."""
    d, n_layers = d_model(f), f.n_layers()
    inner, heads = f.count("mamba_expand") * d, f.count("n_mamba_heads")
    bias = f.flag("add_bias_linear")
    mamba = Mamba2(
        n_heads=heads,
        head_dim=split_evenly(f, inner, heads, "an inner size"),
        state=f.count("mamba_d_state"),
        n_groups=f.count("mamba_ngroups"),
        kernel=f.count("mamba_d_conv"),
        conv_bias=True,  # whatever `use_conv_bias` says (transformers' Zamba2MambaMixer)
        proj_bias=bias,
        out_bias=bias,
    )
    queries = f.count("num_attention_heads")
    size = split_evenly(f, 2 * d, queries, "twice the width")
    frame = {
        "d_model": d,
        "n_heads": queries,
        "n_kv_heads": f.optional("num_key_value_heads") or queries,
        "head_dim": size,
        "d_ff": f.optional("intermediate_size", "ffn_hidden_size") or 4 * d,
        "rank": f.count("adapter_rank"),
        "adapters": f.flag("use_shared_attention_adapter"),
        "bias": bias,
    }
    f.skip("attention_hidden_size", "attention_head_dim", "kv_channels", "num_query_groups", "hybrid_layer_ids")
    f.skip(
        "mamba_headdim",
        "use_mem_rope",
        "use_conv_bias",
        "use_mem_eff_path",
        "use_long_context",
        "num_logits_to_keep",
        "lora_rank",
    )
    f.skip("use_shared_block_lora", "use_shared_mlp_adapter", "gated_linear_unit", "ft_lora", "vocab_size_", "layers")
    blocks = [SharedBlock(number, **frame) for number in range(f.count("num_mem_blocks"))]
    layers, used = [], 0
    allowed = ("linear_attention", "hybrid", *ALIASES)
    for kind in f.kinds("layers_block_type", n_layers, allowed, _usual):
        if ALIASES.get(kind, kind) == "hybrid":
            layers.append(Layer(BlockThenMixer(blocks[used % len(blocks)], mamba), None))
            used += 1
        else:
            layers.append(Layer(mamba, None))
    return decoder(f, layers)


def _usual(number: int) -> str:
    """Of 54 layers those that are hybrid where a config does not list them (the default of transformers' class)."""
    return "hybrid" if number in (6, 12, 18, 24, 30, 36, 42, 47, 51) else "linear_attention"


FAMILIES: dict[str, Reader] = {"zamba2": zamba2}
