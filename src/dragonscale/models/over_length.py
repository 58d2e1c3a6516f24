"""A model over the length of its sequences.

The matmuls of a token cost the same at any length; the dot products of attention grow with it. For a dense model whose
MLP is four times as wide as the model (F = 4D, no KV sharing) and attention that is not causal the two meet near
T = 8D, the rule of the book; a causal model needs twice that, and a window may keep them from meeting at all.

>>> from dragonscale.models import simple
>>> model = simple("m", d_model=4096, d_ff=16384, n_layers=32, n_heads=32, vocab=1)
>>> round(overtaken_at(model, causal=False) / 4096, 1), round(overtaken_at(model, causal=True) / 4096, 1)
(8.0, 16.0)
"""

from collections.abc import Sequence

import numpy

from dragonscale.models.count import cache_bytes
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer

# No longer sequence is looked at.
MAX_TOKENS = 2.0**26
# Of the book: attention overtakes the matmuls at this many times d_model.
RULE = 8


def flops_over(model: Transformer, lengths: Sequence[float], causal: bool = True) -> dict[str, list[float]]:
    """Forward FLOPs of a token by part at each length of the sequence; `scores` are attention's dot products."""
    tokens = numpy.array(lengths, dtype=float)
    flops = forward_flops(model.program(), Workload(1, tokens, tokens, causal))
    # parts that do not depend on the length are one number: (lengths,) of it
    return {part: numpy.broadcast_to(total / tokens, tokens.shape).tolist() for part, total in flops.items()}


def cache_over(model: Transformer, lengths: Sequence[float], dtype: str = "bf16", hybrid: bool = True) -> list[float]:
    """Bytes that one sequence keeps while decoding; without `hybrid`, the whole sequence in windowed layers too."""
    tokens = numpy.array(lengths, dtype=float)
    cached = sum(cache_bytes(model.program(), tokens, dtype, hybrid=hybrid).values())
    return numpy.broadcast_to(cached, tokens.shape).tolist()


def overtaken_at(model: Transformer, causal: bool = True) -> float | None:
    """The tokens from which on attention's dot products cost more than all matmuls; None where they never do."""
    low, high = 1.0, MAX_TOKENS
    if _excess(model, high, causal) < 0:
        return None
    # the crossing lies between low and high; each turn halves their ratio's logarithm
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        if _excess(model, middle, causal) >= 0:
            high = middle
        else:
            low = middle
    return high


def _excess(model: Transformer, length: float, causal: bool) -> float:
    """FLOPs of the dot products less those of all matmuls, of one sequence."""
    flops = forward_flops(model.program(), Workload(1, length, length, causal))
    scores = float(flops.pop("scores", 0.0))
    return scores - sum(map(float, flops.values()))
