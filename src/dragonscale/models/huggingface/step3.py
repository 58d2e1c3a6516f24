"""StepFun's models: Step 3, whose queries pass through a narrow shared projection, and Step 3.5 and 3.7, with windows
and gates."""

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import SPARSE, routed
from dragonscale.models.huggingface.parts import Reader, attention, decoder, mlp
from dragonscale.models.huggingface.windows import SLIDING
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def _listed(f: Fields, first: int) -> list[int]:
    """The layers with experts: `moe_layers_enum`, numbers with commas between; without it all from `first` on."""
    value = f.value("moe_layers_enum")
    if value is None:
        return list(range(first, f.n_layers()))
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(str(part).strip().isdecimal() and len(str(part)) < 9 for part in parts):
        raise InputError(f"{f.what} has a moe_layers_enum that is no list of layers.")
    return [int(part) for part in parts]


def step3(f: Fields) -> Transformer:
    """Step 3: one KV head, queries through `share_q_dim` with a norm (multi-matrix factorisation), a shared expert."""
    size = f.count("head_dim")
    f.must_be("num_attention_groups", 1)
    f.skip("num_key_value_heads", "max_position_embedding", "norm_expert_weight", "use_moe", "moe_every_n_layer")
    mixer = Attention(f.count("num_attention_heads"), 1, size, q_rank=f.optional("share_q_dim") or size)
    moe = _experts(f)
    chosen = _listed(f, 1)
    layers = [Layer(mixer, moe if number in chosen else mlp(f)) for number in range(f.n_layers())]
    return decoder(f, layers, context=f.optional("max_seq_len", "max_position_embedding"))


def _experts(f: Fields, **options: object):
    return routed(f, None, shared_d_ff=f.count("share_expert_dim", "share_expert_dims"), **options)


def step35(f: Fields) -> Transformer:
    """Step 3.5 and 3.7 Flash: three windowed layers of four, with more heads; a gate per head; norms of queries and
    keys."""
    n_layers = f.n_layers()
    kinds, more = f.value("layer_types"), f.natural("num_nextn_predict_layers", "num_mtp_layers")
    if isinstance(kinds, list) and len(kinds) == n_layers + more:  # the released file lists its multi-token modules too
        f.given = {**f.given, "layer_types": kinds[:n_layers]}
    other = f.inner("attention_other_setting")
    heads = f.optional("num_sliding_attention_heads")
    if other is not None:
        heads = heads or other.optional("num_attention_heads")
        other.skip("attention_type", "num_attention_groups", "head_dim", "true_head_dim", "num_key_value_heads")
        other.settle()
    window = f.optional("sliding_window")
    near = f.either("layer_types", n_layers, SLIDING, lambda _: False)
    sparse, chosen = _listed(f, 3), None
    if f.value("mlp_layer_types") is not None:
        chosen = f.either("mlp_layer_types", n_layers, SPARSE, lambda _: False)
    bias, groups = f.flag("attention_bias"), f.count("num_attention_groups", "num_key_value_heads")
    gate = "head" if f.value("gating") in (None, True, "per-head") else "full"
    f.must_be("use_head_wise_attn_gate", True)
    f.skip(
        "per_layer_config",
        "num_nextn_predict_layers",
        "num_mtp_layers",
        "mtp_layer_types",
        "mtp_mlp_layer_types",
        "use_qk_norm",
    )
    f.skip("swiglu_limits_shared", "moe_router_scaling_factor", "use_moe_router_bias", "use_moe", "moe_every_n_layer")
    f.skip("norm_expert_weight", "need_fp32_gate", "partial_rotary_factors", "sink", "att_impl_type", "zero_centered")
    frame = {"n_kv_heads": groups, "qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "gate": gate}
    full = attention(f, **frame)
    local = attention(f, **frame, window=window, **({"n_heads": heads} if heads else {}))
    moe, dense = _experts(f, score_bias=True, shared_bias=f.flag("mlp_bias")), mlp(f, bias=f.flag("mlp_bias"))
    layers = [
        Layer(local if each else full, moe if (chosen[i] if chosen else i in sparse) else dense)
        for i, each in enumerate(near)
    ]
    return decoder(f, layers)


FAMILIES: dict[str, Reader] = {"step3_text": step3, "step3p5": step35}
