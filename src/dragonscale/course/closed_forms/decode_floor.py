"""The floor under a decode step, and what follows from it (book, chapters 7 and 8).

A decode step multiplies every weight by a batch of one token per sequence and reads each sequence's own cache. The
weights are shared by the batch, so a larger one hides their loading under compute; a cache is not, so its loading never
hides:

    step = max(2·B·P/(N·C), bytes·P/(N·W)) + B·cache/(N·W)

Attention's own FLOPs are left out: with few query heads to a cached head they take far less time than the bytes. So is
communication, which `limits_sharding` compares with these times. Everything takes floats, arrays or symbols, with the
machine given as `Rates`:

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.physics.rooflines import rates_of
>>> v5e = rates_of(load_chip("v5e"))
>>> step = decode_times(120, 163840 * 2048, 70e9, 16, v5e, weights="int8")
>>> round(step.lower * 1e3, 2), round(throughput(120, step.lower, 16))
(8.4, 892)
>>> round(critical_batch(v5e)), round(critical_batch(v5e, weights="int8"))
(240, 120)

and on letters the answers are the book's formulas:

>>> from dragonscale.physics.rooflines import Rates, symbol
>>> abstract = Rates({("matrix", "bf16"): symbol("C")}, {"hbm": symbol("W")})
>>> critical_batch(abstract, weights="int8")
C/(2*W)
>>> decode_times(symbol("B"), symbol("K"), symbol("P"), symbol("N"), abstract).lower
B*K/(N*W) + Max(2*P/(N*W), 2*B*P/(C*N))
"""

from dataclasses import dataclass

from dragonscale.course.closed_forms.costs import attention_cost
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.numbers import Number, maximum, minimum
from dragonscale.physics.rooflines import Cost, Rates, roofline
from dragonscale.physics.rooflines.model_flops import model_flops


@dataclass(frozen=True)
class DecodeTimes:
    """Seconds of a decode step by what takes them: the matmuls, loading the weights, reading the caches."""

    math: Number
    weights: Number
    cache: Number

    @property
    def linear(self) -> Number:
        """The weights' part: loading them overlaps with multiplying by them."""
        return maximum(self.math, self.weights)

    @property
    def lower(self) -> Number:
        """The whole step at best."""
        return self.linear + self.cache


def linear_cost(
    tokens: Number, params: Number, weights: str = "bf16", compute: str = "bf16", active: Number | None = None
) -> Cost:
    """Multiplying a few tokens by a model's matrices: 2 FLOPs per parameter and token, and every parameter read once.

    With `active`, those that one token uses: a batch large enough to touch every expert still loads all `params`.
    """
    flops = model_flops(params if active is None else active, tokens, training=False)
    return Cost(flops={("matrix", compute): flops}, bytes={"hbm": params * dtype_bytes(weights)})


def decode_times(
    batch: Number,
    cache: Number,
    params: Number,
    chips: Number,
    rates: Rates,
    *,
    weights: str = "bf16",
    compute: str = "bf16",
    active: Number | None = None,
) -> DecodeTimes:
    """A decode step of `batch` sequences with `cache` bytes each, everything split evenly over the chips."""
    linear = roofline(linear_cost(batch, params, weights, compute, active), rates).seconds
    cached = roofline(Cost(bytes={"hbm": batch * cache}), rates).seconds
    return DecodeTimes(linear["matrix"] / chips, linear["hbm"] / chips, cached["hbm"] / chips)


def critical_batch(rates: Rates, weights: str = "bf16", compute: str = "bf16", sparsity: Number = 1) -> Number:
    """Tokens from which a matmul is bound by compute: beta·alpha, with alpha the FLOPs that the chip does in the
    format of the matmuls while one byte arrives, and beta half the bytes of a weight.

    An MoE spreads its tokens: `sparsity` is E/k, experts held over experts used.
    """
    one = roofline(linear_cost(1, 1, weights, compute), rates).seconds
    return one["hbm"] / one["matrix"] * sparsity


def batch_within(
    seconds: Number,
    cache: Number,
    params: Number,
    chips: Number,
    rates: Rates,
    *,
    weights: str = "bf16",
    compute: str = "bf16",
    active: Number | None = None,
) -> Number:
    """The largest batch, not rounded, whose decode step takes no longer than `seconds`; below 0 where loading the
    weights takes longer already. The step is the larger of two lines in the batch, so the first to reach the limit
    decides."""
    one = decode_times(1, cache, params, chips, rates, weights=weights, compute=compute, active=active)
    return minimum((seconds - one.weights) / one.cache, seconds / (one.math + one.cache))


def throughput(batch: Number, step: Number, chips: Number = 1) -> Number:
    """Tokens per second, per chip if their number is given: each step gives every sequence one token."""
    return batch / (step * chips)


def plateau(cache: Number, params: Number, rates: Rates, compute: str = "bf16") -> Number:
    """Tokens per second and chip that no batch exceeds: where compute bounds the matmuls, time grows with the batch as
    fast as tokens do. `params` are those that one token uses."""
    one = decode_times(1, cache, params, 1, rates, compute=compute)
    return 1 / (one.math + one.cache)


def cache_over_flops(cache_per_token: Number, params: Number, rates: Rates, compute: str = "bf16") -> Number:
    """The context from which reading a sequence's cache takes longer than multiplying its token by the weights,
    whatever the batch: from there on the cache decides the throughput."""
    one = decode_times(1, cache_per_token, params, 1, rates, compute=compute)
    return one.math / one.cache


def cache_over_weights(cache_per_token: Number, params: Number, weights: str = "bf16") -> Number:
    """Cached tokens, over all sequences, that take as many bytes as the weights: beyond, a larger batch saves little.

    >>> round(cache_over_weights(819200, 13e9) / 8192, 1)  # LLaMA-2 13B: sequences of 8k
    3.9
    """
    return linear_cost(1, params, weights).bytes["hbm"] / cache_per_token


def cached_attention_cost(
    queries: Number, keys: Number, groups: Number = 1, kv: str = "bf16", compute: str = "bf16", cache_only: bool = False
) -> Cost:
    """Attention of one sequence and one KV head that `groups` query heads share, per element of a head: keys and values
    in the cache's format, queries and results in that of the matmuls. `cache_only` counts the cache's bytes alone, to
    which decoding comes down."""
    whole = attention_cost(1, queries, keys, 1, groups, 1, compute)
    cached = attention_cost(1, queries, keys, 1, 0, 1, kv).bytes["hbm"]
    asked = 0 if cache_only else attention_cost(1, queries, 0, 1, groups, 1, compute).bytes["hbm"]
    return Cost(whole.flops, {"hbm": cached + asked})


def attention_intensity(
    queries: Number, keys: Number, groups: Number = 1, kv: str = "bf16", compute: str = "bf16", cache_only: bool = False
) -> Number:
    """FLOPs per byte of attention: S·T/(S+T) for multi-head attention, T/2 when a prompt attends to itself, and about
    the number of query heads per cached head when decoding. The batch is not in it: every sequence brings its own
    cache.

    >>> (
    ...     attention_intensity(8192, 8192),
    ...     round(attention_intensity(1, 8192), 3),
    ...     round(attention_intensity(1, 8192, 8), 2),
    ... )
    (4096.0, 1.0, 7.99)
    """
    return cached_attention_cost(queries, keys, groups, kv, compute, cache_only).intensity()


def attention_prefill_length(rates: Rates, groups: Number = 1, kv: str = "bf16", compute: str = "bf16") -> Number:
    """The prompt length from which attention of a prompt to itself is bound by compute. FLOPs grow with its square and
    bytes with it, so it is the ratio of times for one token."""
    one = roofline(cached_attention_cost(1, 1, groups, kv, compute), rates).seconds
    return one["hbm"] / one["matrix"]
