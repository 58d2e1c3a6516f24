"""Layers dealt to pipeline stages, and what a schedule makes of them: the bubble, and the microbatches in flight.

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
from numpy.typing import NDArray

from dragonscale.physics.numbers import Number, alone, maximum, minimum
from dragonscale.training.plan.plan import layers_of


@dataclass(frozen=True)
class StageLayers:
    """How many layers of each kind three ranks have: the first, the last, and the fullest; numbers, or arrays of shape
    (plans,)."""

    first: dict[str, Any]
    last: dict[str, Any]
    fullest: dict[str, Any]

    def of_one(self) -> "StageLayers":
        """The layers of a single plan, as plain numbers."""
        return StageLayers(alone(self.first), alone(self.last), alone(self.fullest))


def share_of_layers(word: str, counts: dict[str, Any], degrees: dict[str, Any]) -> Number:
    """The share of a rank's layers that a word such as `block:5` concerns: five of each of its chunks, as Megatron
    counts them (`checkpointed_forward` in megatron/core/recompute.py runs for one chunk), the same share of each kind
    of layer. A search over the number of layers has it in `degrees`, under the word.

    >>> share_of_layers("block:5", {"block": 20}, {"virtual": 2}), share_of_layers("block", {"block": 20}, {})
    (0.5, 0.0)
    """
    layers = degrees.get(word, layers_of(word))
    if isinstance(layers, int) and not layers:
        return 0.0
    return minimum(layers * degrees["virtual"] / maximum(sum(counts.values()), 1), 1.0)


FOLDED = ("zbv", "dualpipev")
"""Schedules in the shape of a V: down the ranks and back, so that the first rank has both ends."""
BOTH_WAYS = ("dualpipe", "dualpipev")
"""Schedules that run one microbatch forward beside another backward."""
SPLIT_BACKWARD = ("zb-h1", *FOLDED, "dualpipe")


def stage_layers(order: tuple[str, ...], pipe: Any, virtual: Any, layout: str = "even") -> StageLayers:
    """Layers by kind on the ranks that matter, for arrays of pipeline sizes and chunks per rank. An empty layout lets
    each pipeline be dealt as a search deals it."""
    kinds = sorted(set(order))
    pairs = numpy.stack([numpy.atleast_1d(pipe), numpy.atleast_1d(virtual)], axis=1).astype(int)  # (plans, 2)
    # Many plans share a pipeline: the layers are dealt once for each distinct one.
    distinct, plan_pipeline = numpy.unique(pairs, axis=0, return_inverse=True)
    pipelines = []
    for ranks, chunks in distinct.tolist():
        layers = _layers_by_rank(order, kinds, ranks, chunks, layout or layout_for(len(order), ranks, chunks))
        fullest = max(range(ranks), key=lambda rank: (sum(layers[rank]), rank))
        pipelines.append((layers[0], layers[-1], layers[fullest]))
    counts = numpy.array(pipelines)[plan_pipeline.ravel()]  # (plans, 3 ranks, kinds)

    def of_rank(position: int) -> dict[str, NDArray[numpy.int64]]:
        return {kind: counts[:, position, column] for column, kind in enumerate(kinds)}

    return StageLayers(first=of_rank(0), last=of_rank(1), fullest=of_rank(2))


def _layers_by_rank(order: tuple[str, ...], kinds: list[str], pipe: int, virtual: int, layout: str) -> list[list[int]]:
    """How many layers of each kind every rank of a pipeline has: chunks go round the ranks."""
    layers = [[0] * len(kinds) for _ in range(pipe)]  # (ranks, kinds)
    start = 0
    for chunk, size in enumerate(chunk_sizes(len(order), pipe * virtual, layout)):
        for kind in order[start : start + size]:
            layers[chunk % pipe][kinds.index(kind)] += 1
        start += size
    return layers


def chunk_sizes(layers: int, chunks: int, layout: str = "even") -> list[int]:
    """The layers of every chunk, in the order of the model.

    >>> chunk_sizes(10, 4), chunk_sizes(10, 4, "ends"), chunk_sizes(10, 4, "1-4-4-1")
    ([3, 3, 2, 2], [2, 3, 3, 2], [1, 4, 4, 1])
    """
    if layout not in ("even", "ends") and chunks > 1:
        return [int(size) for size in layout.split("-")]
    ends = layout == "ends" and chunks > 1
    base, extra = divmod(layers + 2 * ends, chunks)
    # The remainder goes to the first chunks; where the ends count, to those after the chunk with the embedding.
    sizes = [base + (ends <= chunk < extra + ends) for chunk in range(chunks)]
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
    only_with_ends = layers % chunks != 0 and (layers + 2) % chunks == 0
    return "ends" if pipe > 1 and only_with_ends else "even"


def layout_problem(layers: int, pipe: int, virtual: int, layout: str) -> str:
    """Why layers cannot be dealt to the chunks of a pipeline this way; empty if they can."""
    chunks = pipe * virtual
    if pipe == 1:
        return ""
    if layout not in ("even", "ends"):
        sizes = chunk_sizes(layers, chunks, layout)
        if len(sizes) == chunks and sum(sizes) == layers:
            return ""
        has = f"layout={layout} has {sum(sizes)} layers in {len(sizes)} chunks"
        return f"{has}, and the plan needs {layers} layers in {pipe} x {virtual}"
    needs = f"{pipe} stages x {virtual} chunks need more than the model's {layers} layers"
    if layout == "ends" and chunks > layers + 2:
        return f"{needs}, its embedding and its head"
    if layout == "even" and chunks > layers:
        return f"{needs}; layout=ends counts the embedding and the head as two more"
    return ""


def bubble(schedule: str, pipe: Number, virtual: Number, forward: Number, backward: Number, weight: Number) -> Number:
    """Seconds that a rank waits in one step.

    `forward` and `backward` are its seconds for one microbatch; `weight` is the part of the backward pass that computes
    gradients of weights, which zero-bubble schedules put off to fill the bubble."""
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
    """Microbatches whose activations the first rank holds at once, in units of a whole rank's layers.

    These are the microbatches in flight: forward is done, backward is not."""
    if schedule == "gpipe":
        return microbatches
    if schedule == "interleaved":
        return minimum(pipe + (pipe - 1) / virtual, microbatches)
    further = {"dualpipe": 1, "dualpipev": 0.5}.get(schedule, 0)
    return minimum(pipe + further, microbatches)


def held_microbatches_last(schedule: str, pipe: Number, virtual: Number) -> Number:
    """Microbatches in flight on the last rank: one, of every chunk it has, unless the backward pass is split or all
    are held."""
    if schedule == "gpipe":
        return float("inf")
    if schedule in SPLIT_BACKWARD:
        return held_microbatches(schedule, pipe, virtual, float("inf"))
    return 1.0 + 0 * virtual
