"""Questions about models, formats and collectives that are asked so often that each has a function of
the calculator."""

from typing import Any

from dragonscale.errors import unknown
from dragonscale.models.count import cache_bytes
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.letters import simple
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.collectives import Group, Options, Switches, collective_time
from dragonscale.physics.collectives.tiers import tier_seconds
from dragonscale.physics.hardware.chip import Chip, dtype_bytes
from dragonscale.physics.hardware.slices import Slice
from dragonscale.physics.hardware.slices import chips_to_hold as chips_to_hold
from dragonscale.physics.numbers import Number, is_symbolic
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.physics.sharding.mesh import natural_mesh


def model(
    D: int,
    F: int,
    L: int,
    N: int,
    V: int,
    K: int = 0,
    H: int = 0,
    E: int = 0,
    k: int = 1,
    gated: bool = True,
    tied: bool = False,
) -> Transformer:
    """A model of equal layers from the book's letters: width, MLP width, layers, query heads, vocabulary; KV heads
    (K=0: as many as N), head size (H=0: D/N), experts and experts per token. Other functions take it, and a point takes
    a size: model(…).params."""
    sizes: dict[str, Any] = {"d_model": D, "d_ff": F, "n_layers": L, "n_heads": N, "vocab": V, "n_experts": E}
    sizes |= {"n_kv_heads": K or None, "head_dim": H or None, "experts_per_token": k}
    return simple("model", **sizes, gated=gated, tied=tied)


def params(model: Transformer) -> int:
    """Parameters in all."""
    return count_parameters(model).total


def active_params(model: Transformer) -> int:
    """Parameters that one token uses: without the embedding's lookup, with its own experts only."""
    return count_parameters(model).active


def flops(active_params: Number, tokens: Number, training: bool = True, recomputed: Number = 0) -> Number:
    """6·N·tokens of training (2·N·tokens forward with training=False), N the parameters that a token uses (a model
    has its own), and 2·N·tokens for a forward pass that is `recomputed` (0 to 1 of it)."""
    return model_flops(active_params, tokens, training, recomputed)


def train_flops(model: Transformer, seq: Number, batch: Number = 1, causal: bool = True) -> Number:
    """Forward and backward of `batch` sequences line by line, attention's dot products included."""
    return sum(training_flops(model.program().sections, Workload(batch, seq, seq, causal)).values())


def prefill_flops(model: Transformer, seq: Number, batch: Number = 1, causal: bool = True) -> Number:
    """Forward of `batch` prompts line by line, attention's dot products included."""
    return sum(forward_flops(model.program().sections, Workload(batch, seq, seq, causal)).values())


def kv_bytes(model: Transformer, tokens: Number = 1, dtype: str = "bf16", batch: Number = 1) -> Number:
    """The KV cache of `batch` sequences of so many tokens."""
    return batch * sum(cache_bytes(model.program().sections, tokens, dtype).values())


def weight_bytes(model: Transformer, dtype: str = "bf16") -> Number:
    """All parameters in one format."""
    return count_parameters(model).total * dtype_bytes(dtype)


def bytes(dtype: str) -> float:
    """Bytes of one element of a format, scales included."""
    return dtype_bytes(dtype)


def peak(chip: Chip, dtype: str = "bf16", unit: str = "matrix") -> float:
    """FLOP/s of the matrix or vector unit on operands of a format."""
    return chip.peak(dtype, unit)


def intensity(chip: Chip, dtype: str = "bf16", unit: str = "matrix", level: str = "hbm") -> float:
    """FLOPs per byte from which compute binds."""
    return chip.intensity(dtype, unit, level)


def all_gather(size: Number, on: Slice, axes: str = "", exact: bool = False) -> Number:
    """An AllGather of an array of `size` bytes (gathered) over axes of a slice, by default all: the larger of its
    bytes' and its hops' time. With exact=True each chip's own part does not travel."""
    return _collective("all_gather", size, on, axes, exact)


def reduce_scatter(size: Number, on: Slice, axes: str = "", exact: bool = False) -> Number:
    """A ReduceScatter of an array of `size` bytes."""
    return _collective("reduce_scatter", size, on, axes, exact)


def all_reduce(size: Number, on: Slice, axes: str = "", exact: bool = False) -> Number:
    """An AllReduce of an array of `size` bytes: a ReduceScatter and an AllGather."""
    return _collective("all_reduce", size, on, axes, exact)


def all_to_all(size: Number, on: Slice, axes: str = "", exact: bool = False) -> Number:
    """An AllToAll of an array of `size` bytes in all."""
    return _collective("all_to_all", size, on, axes, exact)


def permute(size: Number, on: Slice, axes: str = "", exact: bool = False) -> Number:
    """A CollectivePermute of `size` bytes of each chip to its neighbour."""
    return _collective("permute", size, on, axes, exact)


def gather_regime(size: Number, on: Slice, axes: str = "", exact: bool = False) -> str:
    """Which tier binds, in a sentence; nothing on a torus."""
    return _regime("all_gather", size, on, axes, exact)


def scatter_regime(size: Number, on: Slice, axes: str = "", exact: bool = False) -> str:
    return _regime("reduce_scatter", size, on, axes, exact)


def reduce_regime(size: Number, on: Slice, axes: str = "", exact: bool = False) -> str:
    return _regime("all_reduce", size, on, axes, exact)


def exchange_regime(size: Number, on: Slice, axes: str = "", exact: bool = False) -> str:
    return _regime("all_to_all", size, on, axes, exact)


def _regime(kind: str, size: Number, on: Slice, axes: str, exact: bool) -> str:
    group = _group(on, axes)
    if not isinstance(group, Switches) or is_symbolic(size) or not size:
        return ""
    seconds = tier_seconds(kind, size, group, Options(exact=exact))
    slowest = max(seconds, key=lambda tier: seconds[tier])
    return f"Bound by the {slowest} tier." if seconds[slowest] else ""


def _collective(kind: str, size: Number, on: Slice, axes: str, exact: bool) -> Number:
    return collective_time(kind, size, _group(on, axes), Options(exact=exact)).lower


def _group(on: Slice, axes: str) -> Group:
    mesh = natural_mesh(on)
    names = tuple(axes.replace(",", "")) if axes and axes not in mesh.axes else (axes,) if axes else tuple(mesh.axes)
    for name in names:
        if name not in mesh.axes:
            raise unknown(f"axis of {on}", name, mesh.axes)
    return mesh.group(names)
