"""Costs that the book writes in closed form: elementwise work, tiled matmuls, attention, padding to a tile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragonscale.errors import InputError
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, dtype_bytes
from dragonscale.physics.hardware.parts import matrix_tile
from dragonscale.physics.numbers import Number, ceil_to, maximum, product
from dragonscale.physics.rooflines import Cost


def pointwise_cost(
    elements: Number, reads: int, writes: int, flops: Number, dtype: str = "fp32", level: str = "hbm"
) -> Cost:
    """Work on the vector unit: so many FLOPs per element, and arrays of that dtype read and written.

    >>> pointwise_cost(1024, reads=2, writes=1, flops=1).intensity()
    0.08333333333333333
    """
    moved = elements * (reads + writes) * dtype_bytes(dtype)
    return Cost(flops={("vector", dtype): elements * flops}, bytes={level: moved})


def matmul_flops(m: Number, k: Number, n: Number) -> Number:
    """FLOPs of [m, k] times [k, n], exactly: each of the m·n results is k products and k - 1 sums.

    The usual 2mkn counts one sum more.

    >>> matmul_flops(2, 3, 4)
    40
    """
    return m * n * (2 * k - 1)


def tiled_matmul_cost(m: Number, k: Number, n: Number, tile: tuple[int, int, int], dtype: str = "bf16") -> Cost:
    """A matmul cut into tiles (bm, bk, bn) that are read from HBM once for each output tile that needs them."""
    bm, bk, bn = tile
    tiles_m, tiles_k, tiles_n = m / bm, k / bk, n / bn
    elements = tiles_m * tiles_n * (tiles_k * (bm * bk + bk * bn) + bm * bn)
    return Cost(flops={("matrix", dtype): 2 * m * k * n}, bytes={"hbm": elements * dtype_bytes(dtype)})


def attention_cost(
    batch: Number,
    queries: Number,
    keys: Number,
    kv_heads: Number,
    groups: Number,
    head_dim: Number,
    dtype: str = "bf16",
) -> Cost:
    """Flash attention, forward and without a mask: queries, keys, values and the result each cross HBM once.

    `groups` query heads share each KV head.

    >>> attention_cost(1, 1024, 1024, 8, 4, 128).intensity()
    819.2
    """
    flops = 4 * batch * queries * keys * kv_heads * groups * head_dim
    elements = 2 * batch * head_dim * kv_heads * (queries * groups + keys)
    return Cost(flops={("matrix", dtype): flops}, bytes={"hbm": elements * dtype_bytes(dtype)})


@dataclass(frozen=True)
class StageTimes:
    """Times of several stages or resources of one thing."""

    seconds: dict[str, Number]

    @property
    def lower(self) -> Number:
        """All at once: the longest."""
        return maximum(*self.seconds.values(), 0)

    @property
    def upper(self) -> Number:
        """One after the other: their sum."""
        return sum(self.seconds.values())

    @property
    def bottleneck(self) -> str:
        """The longest by its name, for plain numbers."""
        return max(self.seconds, key=lambda name: self.seconds[name])


def bottleneck(*seconds: Number, **stages: Number) -> StageTimes:
    """Lower bound (all at once), upper bound (one after the other) and bottleneck of several times, by place or by
    name.

    >>> found = bottleneck(compute=3.0, hbm=5.0, ici=4.0)
    >>> found.lower, found.upper, found.bottleneck
    (5.0, 12.0, 'hbm')
    """
    named = {f"stage {place}": one for place, one in enumerate(seconds, 1)} | stages
    if not named:
        raise InputError("bottleneck takes times, such as bottleneck(compute=3ms, hbm=5ms).")
    return StageTimes(named)


@dataclass(frozen=True)
class CacheShape:
    """A KV cache: its bytes, those of one token, and its shape."""

    bytes: Number
    per_token: Number
    shape: str
    elements: Number = 0


def kv_cache(L: Number, K: Number, H: Number, S: Number = 1, batch: Number = 1, dtype: str = "bf16") -> CacheShape:
    """The KV cache of `batch` sequences of S tokens in L layers of K KV heads of size H: keys and values.

    >>> kv_cache(80, 8, 128, 8192)
    CacheShape(bytes=2684354560, per_token=327680, shape='[2, L=80, B=1, S=8192, K=8, H=128]', elements=1342177280)
    """
    elements = 2 * L * K * H
    token = elements * dtype_bytes(dtype)
    shape = f"[2, L={L}, B={batch}, S={S}, K={K}, H={H}]"
    return CacheShape(token * S * batch, token, shape, elements * S * batch)


def attention_length(model: Transformer, causal: bool = False) -> Number:
    """The sequence length at which attention's dot products take as many FLOPs as all matmuls with weights: 8D for a
    plain Transformer with F = 4D. With causal=True only the half that a mask leaves is counted.

    >>> from dragonscale.models.catalogue import preset_model
    >>> round(attention_length(preset_model("llama3-70b")))
    53026
    """
    long = 2**20
    parts = [
        forward_flops(model.program().sections, Workload(1, length, length, causal)) for length in (long, long // 2)
    ]
    scores, half = (float(part.get("scores", 0)) for part in parts)
    if not scores or not 3.9 < scores / half < 4.1:
        raise InputError(f"Attention of {model.name} does not grow with the square of its sequences.")
    return long * (sum(map(float, parts[0].values())) - scores) / scores


class PaddedShape(NamedTuple):
    """A shape rounded up to a tile, and the part of it that is useful."""

    shape: tuple[Number, ...]
    useful: Number


def padded(shape: Sequence[Number], tile: Sequence[int] | Chip) -> PaddedShape:
    """A shape rounded up to a tile, or to the MXU of a chip in its last two dims, and the part of the padded work that
    is useful.

    >>> padded((64, 128), (128, 128))
    PaddedShape(shape=(128, 128), useful=0.5)
    """
    if isinstance(tile, Chip):
        tile = ((1,) * len(shape) + matrix_tile(tile))[-len(shape) :]
    if len(shape) != len(tile):
        raise InputError(f"A shape of {len(shape)} sizes and a tile of {len(tile)} do not fit; give as many of each.")
    rounded = tuple(ceil_to(size, side) for size, side in zip(shape, tile, strict=True))
    return PaddedShape(rounded, product(shape) / product(rounded))
