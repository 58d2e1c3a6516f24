"""Layers put into pipeline stages, and what a schedule makes of them.

A rank holds `virtual` chunks of layers, in order round the ranks; what does not divide evenly goes to the first
chunks. The first rank also embeds, the last also has the head, so stages differ. A schedule decides how long ranks wait
(the bubble) and how many microbatches' activations they hold.

| schedule | bubble, in times of one microbatch (f forward, b backward, w the weight part of b) | held by the first rank |
|---|---|---|
| gpipe | (P−1)(f+b) | all M |
| 1f1b | (P−1)(f+b) | P |
| interleaved | (P−1)(f+b)/v | P(1 + (P−1)/(Pv)) |
| zb-h1 | (P−1)(f+b−2w) | P |
| dualpipe | (P/2−1)(f+b−3w) | P+1, and the weights twice |

Sources: Narayanan et al. 2021 (interleaved), Qi et al. 2023 (zero-bubble, H1), DeepSeek-AI 2024 (DualPipe).
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.numbers import Number, maximum, minimum


@dataclass(frozen=True)
class StageLayers:
    """How many layers of each kind three ranks hold: the first, the last, and the fullest; arrays over plans."""

    first: dict[str, Any]
    last: dict[str, Any]
    fullest: dict[str, Any]


def stage_layers(order: tuple[str, ...], pipe: Any, virtual: Any) -> StageLayers:
    """Layers by kind on the ranks that matter, for arrays of pipeline sizes."""
    kinds = sorted(set(order))
    pairs = numpy.stack([numpy.atleast_1d(pipe), numpy.atleast_1d(virtual)], axis=1).astype(int)
    distinct, inverse = numpy.unique(pairs, axis=0, return_inverse=True)
    tables = [_one_pipeline(order, kinds, int(ranks), int(chunks)) for ranks, chunks in distinct]
    found = []
    for place in range(3):
        columns = numpy.array([table[place] for table in tables])[inverse.ravel()]
        found.append({kind: columns[:, number] for number, kind in enumerate(kinds)})
    return StageLayers(*found)


def _one_pipeline(
    order: tuple[str, ...], kinds: list[str], pipe: int, virtual: int
) -> tuple[list[int], list[int], list[int]]:
    chunks = pipe * virtual
    base, extra = divmod(len(order), chunks)
    held = [[0] * len(kinds) for _ in range(pipe)]
    start = 0
    for chunk in range(chunks):
        size = base + (1 if chunk < extra else 0)
        for name in order[start : start + size]:
            held[chunk % pipe][kinds.index(name)] += 1
        start += size
    fullest = max(range(pipe), key=lambda rank: (sum(held[rank]), rank))
    return held[0], held[-1], held[fullest]


def bubble(schedule: str, pipe: Number, virtual: Number, forward: Number, backward: Number, weight: Number) -> Number:
    """Seconds that a rank waits in one step."""
    both = forward + backward
    if schedule == "interleaved":
        return (pipe - 1) * both / virtual
    if schedule == "zb-h1":
        return (pipe - 1) * maximum(both - 2 * weight, 0.0)
    if schedule == "dualpipe":
        return maximum(pipe / 2 - 1, 0.0) * maximum(both - 3 * weight, 0.0)
    return (pipe - 1) * both


def held_microbatches(schedule: str, pipe: Number, virtual: Number, microbatches: Number) -> Number:
    """Microbatches whose activations the first rank holds at once, in units of a whole rank's layers."""
    if schedule == "gpipe":
        return microbatches
    if schedule == "interleaved":
        return minimum(pipe + (pipe - 1) / virtual, microbatches)
    return minimum(pipe + 1 if schedule == "dualpipe" else pipe, microbatches)


def held_last(schedule: str, virtual: Number) -> Number:
    """Microbatches whose activations the last rank holds: one, of every chunk it has; all of them under GPipe."""
    if schedule == "gpipe":
        return float("inf")
    return 2.0 if schedule == "dualpipe" else 1.0 + 0 * virtual
