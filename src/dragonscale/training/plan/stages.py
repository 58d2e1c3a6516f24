"""Layers put into pipeline stages, and what a schedule makes of them.

A rank holds `virtual` chunks of layers, in order round the ranks. Layers are dealt evenly, what is left over to the
first chunks; or the embedding and the head count as a layer each (`ends`, Megatron's account-for-embedding and -loss),
or a plan lists the layers of every chunk. A schedule decides how long ranks wait (the bubble), how many microbatches'
activations they hold, and which rank has the ends.

f, b: forward and backward of one microbatch; w: the weights' part of b; P ranks, v chunks, M microbatches.

| schedule | bubble | held by the first rank | by the last |
|---|---|---|---|
| gpipe | (P−1)(f+b) | all M | all M |
| 1f1b | (P−1)(f+b) | P | 1 |
| interleaved | (P−1)(f+b)/v | P(1 + (P−1)/(Pv)) | 1 |
| zb-h1 | (P−1)(f+b−2w) | P | P, since the weights' part is put off |
| zbv | (P−1)(f+b−3w) | P | P; the first rank also has the last layers |
| dualpipe | (P/2−1)(f+2b−3w) | P+1, and the weights twice | the same |
| dualpipev | (P−1)(f+2b−3w)/2 | P+½ | the same; the first rank also has the last layers |

Sources: Narayanan et al. 2021 (interleaved), Qi et al. 2023 (zero bubble: H1; of the V shape the bubble of H2, whose
warm-up it shares), DeepSeek-AI 2024, table 2, and the README of its DualPipe repository (DualPipe; DualPipeV has 2P
stages of half the size on P ranks).
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.physics.numbers import Number, alone, maximum, minimum
from dragonscale.training.plan.plan import layers_of


@dataclass(frozen=True)
class StageLayers:
    """How many layers of each kind three ranks hold: the first, the last, and the fullest; arrays over plans."""

    first: dict[str, Any]
    last: dict[str, Any]
    fullest: dict[str, Any]

    def of_one(self) -> "StageLayers":
        """Those of a single plan, in plain numbers."""
        return StageLayers(alone(self.first), alone(self.last), alone(self.fullest))


def share_of_layers(word: str, counts: dict[str, Any], numbers: dict[str, Any]) -> Number:
    """The part of a rank's layers that a word such as `block:5` is about: five of each of its chunks, as Megatron
    counts them (`checkpointed_forward` in megatron/core/recompute.py runs for one chunk), of each kind of layer as
    large a part. A search has a number for each of its plans.

    >>> share_of_layers("block:5", {"block": 20}, {"virtual": 2}), share_of_layers("block", {"block": 20}, {})
    (0.5, 0.0)
    """
    layers = numbers.get(word, layers_of(word))
    if isinstance(layers, int) and not layers:
        return 0.0
    return minimum(layers * numbers["virtual"] / maximum(sum(counts.values()), 1), 1.0)


FOLDED = ("zbv", "dualpipev")
"""Schedules in the shape of a V: down the ranks and back, so that the first rank has both ends."""
BOTH_WAYS = ("dualpipe", "dualpipev")
"""Schedules that run one microbatch forward beside another backward."""
SPLIT_BACKWARD = ("zb-h1", *FOLDED, "dualpipe")


def stage_layers(order: tuple[str, ...], pipe: Any, virtual: Any, layout: str = "even") -> StageLayers:
    """Layers by kind on the ranks that matter, for arrays of pipeline sizes; without a layout, each as a search deals
    them."""
    kinds = sorted(set(order))
    pairs = numpy.stack([numpy.atleast_1d(pipe), numpy.atleast_1d(virtual)], axis=1).astype(int)
    distinct, inverse = numpy.unique(pairs, axis=0, return_inverse=True)
    tables = []
    for ranks, chunks in distinct.tolist():
        named = layout or layout_for(len(order), ranks, chunks)
        tables.append(_one_pipeline(order, kinds, ranks, chunks, named))
    found = []
    for place in range(3):
        columns = numpy.array([table[place] for table in tables])[inverse.ravel()]
        found.append({kind: columns[:, number] for number, kind in enumerate(kinds)})
    return StageLayers(*found)


def _one_pipeline(
    order: tuple[str, ...], kinds: list[str], pipe: int, virtual: int, layout: str
) -> tuple[list[int], list[int], list[int]]:
    held = [[0] * len(kinds) for _ in range(pipe)]
    start = 0
    for chunk, size in enumerate(chunk_sizes(len(order), pipe * virtual, layout)):
        for name in order[start : start + size]:
            held[chunk % pipe][kinds.index(name)] += 1
        start += size
    fullest = max(range(pipe), key=lambda rank: (sum(held[rank]), rank))
    return held[0], held[-1], held[fullest]


def chunk_sizes(layers: int, chunks: int, layout: str = "even") -> list[int]:
    """The layers of every chunk, in the order of the model.

    >>> chunk_sizes(10, 4), chunk_sizes(10, 4, "ends"), chunk_sizes(10, 4, "1-4-4-1")
    ([3, 3, 2, 2], [2, 3, 3, 2], [1, 4, 4, 1])
    """
    if layout not in ("even", "ends") and chunks > 1:
        return [int(size) for size in layout.split("-")]
    ends = layout == "ends" and chunks > 1
    base, extra = divmod(layers + 2 * ends, chunks)
    # What is left over goes to the first chunks; among ends, to those behind the one with the embedding.
    sizes = [base + (1 if ends <= chunk < extra + ends else 0) for chunk in range(chunks)]
    if ends:
        sizes[0] -= 1
        sizes[-1] -= 1
    return sizes


def layout_for(layers: int, pipe: int, virtual: int) -> str:
    """How a search deals layers: evenly, or with the ends counted where only that divides.

    >>> layout_for(126, 16, 8), layout_for(96, 8, 2), layout_for(61, 16, 1)
    ('ends', 'even', 'even')
    """
    chunks = pipe * virtual
    return "ends" if pipe > 1 and layers % chunks and (layers + 2) % chunks == 0 else "even"


def layout_problem(layers: int, pipe: int, virtual: int, layout: str) -> str:
    """Why layers cannot be dealt to the chunks of a pipeline this way; empty if they can."""
    chunks = pipe * virtual
    if pipe == 1:
        return ""
    if layout not in ("even", "ends"):
        sizes = chunk_sizes(layers, chunks, layout)
        if len(sizes) != chunks or sum(sizes) != layers:
            named = f"layout={layout} has {sum(sizes)} layers in {len(sizes)} chunks"
            return f"{named}, and the plan needs {layers} layers in {pipe} x {virtual}"
        return ""
    slots = layers + 2 * (layout == "ends")
    if chunks > slots:
        hint = "; layout=ends counts the embedding and the head as two more" if layout == "even" else ""
        held = f"{layers} layers" + (", its embedding and its head" if layout == "ends" else "")
        return f"{pipe} stages x {virtual} chunks need more than the model's {held}{hint}"
    return ""


def bubble(schedule: str, pipe: Number, virtual: Number, forward: Number, backward: Number, weight: Number) -> Number:
    """Seconds that a rank waits in one step."""
    both = forward + backward
    if schedule == "interleaved":
        return (pipe - 1) * both / virtual
    if schedule == "zb-h1":
        return (pipe - 1) * maximum(both - 2 * weight, 0.0)
    if schedule == "zbv":
        return (pipe - 1) * maximum(both - 3 * weight, 0.0)
    if schedule == "dualpipe":
        return maximum(pipe / 2 - 1, 0.0) * maximum(both + backward - 3 * weight, 0.0)
    if schedule == "dualpipev":
        return (pipe - 1) * maximum(both + backward - 3 * weight, 0.0) / 2
    return (pipe - 1) * both


def held_microbatches(schedule: str, pipe: Number, virtual: Number, microbatches: Number) -> Number:
    """Microbatches whose activations the first rank holds at once, in units of a whole rank's layers."""
    if schedule == "gpipe":
        return microbatches
    if schedule == "interleaved":
        return minimum(pipe + (pipe - 1) / virtual, microbatches)
    more = {"dualpipe": 1, "dualpipev": 0.5}.get(schedule, 0)
    return minimum(pipe + more, microbatches)


def held_last(schedule: str, pipe: Number, virtual: Number) -> Number:
    """The same of the last rank: one, of every chunk it has, unless the backward pass is split or
    everything is held."""
    if schedule == "gpipe":
        return float("inf")
    if schedule in SPLIT_BACKWARD:
        return held_microbatches(schedule, pipe, virtual, float("inf"))
    return 1.0 + 0 * virtual
