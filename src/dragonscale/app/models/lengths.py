"""A model over the length of its sequences: FLOPs of a token, bytes of the cache, and where attention overtakes the
matmuls.

The matmuls of a token cost the same at any length; the dot products of attention grow with it. For a dense model whose
MLP is four times as wide as the model (F = 4D, no KV sharing) and attention that is not causal the two meet near T =
8D, the rule of the book; a causal model needs twice that, and a window may keep them from meeting at all.

>>> from dragonscale.models import simple
>>> model = simple("m", d_model=4096, d_ff=16384, n_layers=32, n_heads=32, vocab=1)
>>> round(overtaken_at(model, causal=False) / 4096, 1), round(overtaken_at(model, causal=True) / 4096, 1)
(8.0, 16.0)
"""

from collections.abc import Sequence

from dragonscale.models.cache import cache_bytes
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer

LONGEST = 2.0**26
"""No sequence is looked at that is longer."""
RULE = 8
"""Of the book: attention overtakes the matmuls at this many times d_model."""


def flops_over(model: Transformer, lengths: Sequence[float], causal: bool = True) -> dict[str, list[float]]:
    """Forward FLOPs of a token by part at each length of the sequence; `scores` are attention's dot products."""
    import numpy

    tokens = numpy.array(lengths, dtype=float)
    found = forward_flops(model.program(), Workload(1, tokens, tokens, causal))
    return {part: numpy.broadcast_to(flops / tokens, tokens.shape).tolist() for part, flops in found.items()}


def cache_over(model: Transformer, lengths: Sequence[float], dtype: str = "bf16", hybrid: bool = True) -> list[float]:
    """Bytes that one sequence keeps while decoding; without `hybrid`, the whole sequence in windowed layers too."""
    import numpy

    tokens = numpy.array(lengths, dtype=float)
    kept = sum(cache_bytes(model.program(), tokens, dtype, hybrid=hybrid).values())
    return numpy.broadcast_to(kept, tokens.shape).tolist()


def overtaken_at(model: Transformer, causal: bool = True) -> float | None:
    """From how many tokens on attention's dot products cost more than all matmuls; None where they never do."""
    low, high = 1.0, LONGEST
    if _excess(model, high, causal) < 0:
        return None
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _excess(model, middle, causal) >= 0 else (middle, high)
    return high


def _excess(model: Transformer, length: float, causal: bool) -> float:
    flops = forward_flops(model.program(), Workload(1, length, length, causal))
    scores = float(flops.pop("scores", 0.0))
    return scores - sum(map(float, flops.values()))
