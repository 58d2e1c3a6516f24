"""Gemma 3n's language model: alternating updates, keys and values of earlier layers in the last ones, an input for each
layer."""

from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp
from dragonscale.models.gemma4 import AltUp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import Reader, biased_attention, decoder
from dragonscale.models.huggingface.windows import all_but_every, windows
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def gemma3n(f: Fields) -> Transformer:
    """The model that the config describes. Activations that are mostly zero are counted as if they were not."""
    n_layers, borrowed = f.n_layers(), f.natural("num_kv_shared_layers")
    width, streams = f.count("hidden_size_per_layer_input"), f.count("altup_num_inputs")
    extra = AltUp(streams, f.count("laurel_rank"), width)
    f.skip("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern")
    layers: list[Layer] = []
    for number, (span, d_ff) in enumerate(zip(windows(f, n_layers, all_but_every(5)), _widths(f), strict=True)):
        shared = number >= n_layers - borrowed > 0
        mixer = biased_attention(f, qk_norm="head", v_norm=True, window=span, kv="borrowed" if shared else "own")
        layers.append(Layer(mixer, Mlp(d_ff), "sandwich", extra=extra))
    return decoder(f, layers, layer_input=width, layer_vocab=f.count("vocab_size_per_layer_input"), altup=streams - 1)


def _widths(f: Fields) -> list[int]:
    """Each layer's hidden size: one for all, or a list."""
    n_layers = f.n_layers()
    if not isinstance(f.value("intermediate_size"), list):
        return [f.count("intermediate_size")] * n_layers
    listed = f.numbers("intermediate_size") or []
    if len(listed) != n_layers or 0 in listed:
        raise InputError(f"{f.what} has {len(listed)} entries in intermediate_size for {n_layers} layers.")
    return listed


FAMILIES: dict[str, Reader] = {"gemma3n_text": gemma3n}
