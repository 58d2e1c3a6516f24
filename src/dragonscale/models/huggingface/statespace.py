"""Readers of state-space models, alone (Mamba) or mixed with softmax attention (Jamba, Nemotron-H, Granite 4,
Falcon-H1, Zamba 2)."""

from collections.abc import Callable, Iterable

from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.parts import LINEAR, ModelConfig, Reader, by_layer, paired
from dragonscale.models.layer import Both, Component, Layer
from dragonscale.models.mamba import BlockThenMixer, Mamba, Mamba2, SharedBlock
from dragonscale.models.transformer import Transformer


def jamba(f: ModelConfig) -> Transformer:
    """Jamba: Mamba with norms of its own, one attention in eight, experts in every other layer."""
    d, n_layers = f.d_model(), f.n_layers()
    period, offset = f.count("attn_layer_period"), f.natural("attn_layer_offset")
    expert_period, start = f.count("expert_layer_period"), f.natural("expert_layer_offset")
    rank = _step_rank(f, "mamba_dt_rank", ("auto",))
    state, kernel = f.counts("mamba_d_state", "mamba_d_conv")
    biases = f.flag("mamba_conv_bias"), f.flag("mamba_proj_bias")
    mamba = Mamba(f.count("mamba_expand") * d, state, rank, kernel, *biases, norms=True)
    experts = f.natural("num_experts", "num_local_experts")
    moe = f.mlp()
    if experts > 1:  # dense and routed MLPs have one size
        moe = f.routed(f.count("intermediate_size"))
    mixers = by_layer((i % period == offset for i in range(n_layers)), f.attention(), mamba)
    return f.decoder(paired(mixers, f.ffns((i % expert_period == start for i in range(n_layers)), moe)))


def _step_rank(f: ModelConfig, name: str, automatic: tuple[str | None, ...]) -> int:
    """The rank of the projection to step sizes: where automatic, a sixteenth of the width, as in Mamba's own code."""
    if f.value(name) in automatic:
        return -(-f.d_model() // 16)
    return f.count(name)


def _mamba2(f: ModelConfig, norm: bool, inner: int | None = None, out_bias: bool | None = None) -> Mamba2:
    """The Mamba-2 of Bamba, Granite 4 and Falcon-H1."""
    heads = f.count("mamba_n_heads")
    inner = inner or f.count("mamba_expand") * f.d_model()
    size = inner // heads
    if f.value("mamba_d_head") not in (None, "auto"):
        size = f.count("mamba_d_head")
    if heads * size != inner:
        raise InputError(f"{f.what} has {heads} Mamba heads of {size}, which are not its inner size of {inner}.")
    state, groups, kernel = f.counts("mamba_d_state", "mamba_n_groups", "mamba_d_conv")
    conv_bias, bias = f.flag("mamba_conv_bias"), f.flag("mamba_proj_bias")
    if out_bias is None:  # one flag for the projections in and out
        out_bias = bias
    return Mamba2(heads, size, state, groups, kernel, conv_bias, proj_bias=bias, out_bias=out_bias, norm=norm)


def bamba(f: ModelConfig) -> Transformer:
    """Bamba: attention in the layers listed, Mamba-2 in the rest."""
    listed = f.numbers("attn_layer_indices") or []
    bias = f.flag("mlp_bias")
    mamba = _mamba2(f, norm=True)
    mixers = by_layer(f.layers_in(listed), f.biased_attention(), mamba)
    return f.decoder(paired(mixers, [f.mlp(bias=bias)] * len(mixers)))


def granite_hybrid(f: ModelConfig) -> Transformer:
    """Granite 4: Mamba-2 in nine layers of ten, a shared MLP, and experts in the larger ones."""
    kinds = _kinds(f, f.n_layers(), LINEAR, lambda _: LINEAR[0])
    shared = f.natural("shared_intermediate_size")
    ffn: Component
    if f.natural("num_local_experts") > 0:
        ffn = f.routed(f.count("intermediate_size"), shared_d_ff=shared)
    else:
        ffn = Mlp(f.count("shared_intermediate_size"))
    # a model without Mamba layers need not have Mamba's fields
    mamba = _mamba2(f, norm=True) if LINEAR[0] in kinds else None
    mixers = by_layer((kind == LINEAR[1] for kind in kinds), f.biased_attention(), mamba)
    return f.decoder(paired(mixers, [ffn] * len(kinds)))


def _kinds(f: ModelConfig, n_layers: int, known: Iterable[str], otherwise: Callable[[int], str]) -> list[str]:
    """The kind of every layer: `layer_types`, or as released `layers_block_type`, which has shorter names for some."""
    name = "layers_block_type" if "layers_block_type" in f.given else "layer_types"
    aliases = {"mamba": LINEAR[0], "attention": LINEAR[1]}
    return [aliases.get(kind, kind) for kind in f.kinds(name, n_layers, (*known, *aliases), otherwise)]


def falcon_h1(f: ModelConfig) -> Transformer:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    inner, norm = f.optional("mamba_d_ssm"), f.flag("mamba_rms_norm")
    mixer = Both(f.biased_attention(), _mamba2(f, norm, inner, f.flag("projectors_bias")))
    layer = Layer(mixer, f.mlp(bias=f.flag("mlp_bias")))
    return f.decoder([layer] * f.n_layers())


# the letters of hybrid_override_pattern
_PATTERN = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}


def nemotron_h(f: ModelConfig) -> Transformer:
    """Nemotron-H and Nemotron 3: every layer is one thing alone, Mamba-2, attention, an MLP or experts."""
    pattern = f.text("hybrid_override_pattern")
    block_types = f.value("layers_block_type", "layer_types")
    if pattern and any(letter not in _PATTERN for letter in pattern):
        raise InputError(f"{f.what} has a hybrid_override_pattern with letters other than M, E, * and -.")
    # num_hidden_layers may be absent where the layers are listed
    if pattern:
        count = len(pattern)
    elif isinstance(block_types, list):
        count = len(block_types)
    else:
        count = f.n_layers()
    cycle = list(_PATTERN.values())  # the kinds in turn, where nothing says which layer is what
    kinds = _kinds(f, count, cycle, lambda i: _PATTERN[pattern[i]] if pattern else cycle[i % 4])
    layers = [_nemotron_layer(f, kind) for kind in kinds]
    module: list[Layer] = []
    if f.natural("num_nextn_predict_layers"):  # each is two layers of the model's kinds
        module = [_nemotron_layer(f, "full_attention"), _nemotron_layer(f, "moe")]
    return f.decoder(layers, extras=f.multi_token(module))


def _nemotron_layer(f: ModelConfig, kind: str) -> Layer:
    """A layer of one kind, whose fields need not be given where no layer is of it."""
    if kind == "linear_attention":
        return Layer(_plain_mamba2(f, "mamba_num_heads", "mamba_head_dim", "ssm_state_size"), None)
    if kind == "full_attention":
        return Layer(f.biased_attention(window=f.optional("sliding_window")), None)
    if kind == "mlp":
        return Layer(None, f.mlp(gated=False, bias=f.flag("mlp_bias")))
    f.must_be("mlp_bias", False)  # it would give the experts biases too
    # Nemotron 3's experts work at a smaller width, with one projection down to it and one up
    latent = f.optional("moe_latent_size")
    shared = f.count("moe_shared_expert_intermediate_size")
    return Layer(None, f.routed(shared_d_ff=shared, gated=False, score_bias=True, latent=latent))


def _plain_mamba2(f: ModelConfig, heads: str, size: str, state: str) -> Mamba2:
    """Mamba-2 with one flag for all biases of its projections."""
    groups, kernel = f.count("mamba_n_groups", "n_groups"), f.count("mamba_d_conv", "conv_kernel")
    conv_bias, bias = f.flag("mamba_conv_bias", "use_conv_bias"), f.flag("use_bias")
    return Mamba2(f.count(heads), f.count(size), f.count(state), groups, kernel, conv_bias, bias, bias)


def mamba1(f: ModelConfig) -> Transformer:
    """Mamba and Falcon-Mamba: nothing but the mixer."""
    rank = _step_rank(f, "time_step_rank", (None, "auto"))
    inner = f.optional("intermediate_size", "d_inner") or f.count("expand") * f.d_model()
    biases = f.flag("use_conv_bias"), f.flag("use_bias")
    mixer = Mamba(inner, f.count("state_size"), rank, f.count("conv_kernel"), *biases)
    return f.decoder([Layer(mixer, None)] * f.n_layers("num_hidden_layers", "n_layer"))


def mamba2(f: ModelConfig) -> Transformer:
    """Mamba-2 alone."""
    mixer = _plain_mamba2(f, "num_heads", "head_dim", "state_size")
    return f.decoder([Layer(mixer, None)] * f.n_layers())


_ZAMBA_KINDS = {"mamba": "linear_attention", "m": "linear_attention", "g": "hybrid"}


def zamba2(f: ModelConfig) -> Transformer:
    """Zamba 2: Mamba-2 layers, some with a Transformer block before them whose weights they share in turn."""
    d, n_layers = f.d_model(), f.n_layers()
    inner, heads = f.count("mamba_expand") * d, f.count("n_mamba_heads")
    bias, queries = f.flag("add_bias_linear"), f.count("num_attention_heads")
    state, groups, kernel = f.counts("mamba_d_state", "mamba_ngroups", "mamba_d_conv")
    head_dim = f.split_evenly(inner, heads, "an inner size")
    # with a bias, whatever `use_conv_bias` says (transformers' Zamba2MambaMixer)
    mamba = Mamba2(heads, head_dim, state, groups, kernel, conv_bias=True, proj_bias=bias, out_bias=bias)
    # the block reads the stream beside the first embedding, so its heads share twice the width
    kv, size = f.optional("num_key_value_heads") or queries, f.split_evenly(2 * d, queries, "twice the width")
    d_ff = f.optional("intermediate_size", "ffn_hidden_size") or 4 * d
    adapters = f.count("adapter_rank"), f.flag("use_shared_attention_adapter")
    frame = (d, queries, kv, size, d_ff, *adapters, bias)
    blocks = [SharedBlock(number, *frame) for number in range(f.count("num_mem_blocks"))]
    layers, used = [], 0  # used: hybrid layers so far
    allowed = ("linear_attention", "hybrid", *_ZAMBA_KINDS)
    for kind in f.kinds("layers_block_type", n_layers, allowed, _usual):
        if _ZAMBA_KINDS.get(kind, kind) == "hybrid":
            # hybrid layers take the shared blocks in turn
            layers.append(Layer(BlockThenMixer(blocks[used % len(blocks)], mamba), None))
            used += 1
        else:
            layers.append(Layer(mamba, None))
    return f.decoder(layers)


def _usual(number: int) -> str:
    """Of 54 layers those that are hybrid where a config does not list them (the default of transformers' class)."""
    return "hybrid" if number in (6, 12, 18, 24, 30, 36, 42, 47, 51) else "linear_attention"


FAMILIES: dict[str, Reader] = {
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite_hybrid,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "mamba": mamba1,
    "falcon_mamba": mamba1,
    "mamba2": mamba2,
    "zamba2": zamba2,
}
