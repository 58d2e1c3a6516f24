"""What fits: weights, working memory and the cache on each chip, in bytes, tokens, pages and sequences.

The ideal is what the tensors themselves weigh; the reserved is what an engine takes: whole pages, its own overhead, the
part of the memory it leaves alone. A plan that reserves less than its ideal would be a bug.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.physics.numbers import Number, ceil_to, floor, maximum, minimum, where
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.resident_memory import bytes_of, cache_lines, weight_lines, workspace_lines


@dataclass(frozen=True)
class Capacity:
    """Bytes on the busiest chip, and the tokens of cache that one copy of the model has room for.

    `per_token` is what each token of a sequence adds on one chip, averaged over sequences that `data` or `batch`
    splits deal out; `fixed` is a sequence's state of fixed size (recurrences, full windows). While windows fill, a
    token adds `early` to the `state` of recurrences. `tokens` counts those of all sequences together; it is below zero
    where not even the weights fit.
    """

    hbm: float
    usable: Number
    weights: Number
    working: Number
    reserve: Number
    per_token: Number
    fixed: Number
    early: Number
    state: Number
    page: int
    places: Number
    """Ranks of a copy that sequences are dealt out to: one sequence takes the cache of one of them."""

    @property
    def cache(self) -> Number:
        """Bytes of each chip that are left for the cache."""
        return self.usable - self.weights - self.working - self.reserve

    @property
    def tokens(self) -> Number:
        """Tokens of cache in all, of sequences without a fixed state."""
        return self.cache / maximum(self.per_token, 1e-9)

    @property
    def fits(self) -> Any:
        """Whether weights and working memory leave room for anything at all."""
        return self.cache > 0

    def in_pages(self, tokens: Number) -> Number:
        """Tokens of a sequence, rounded up to whole pages."""
        return ceil_to(tokens, self.page) if self.page > 1 else tokens

    def sequence(self, tokens: Number) -> Number:
        """Bytes of a sequence of so many tokens on one chip: windows hold what there is until they are full."""
        return minimum(tokens * self.early + self.state, tokens * self.per_token + self.fixed)

    def sequences(self, tokens: Number) -> Number:
        """How many sequences of so many tokens fit, each rounded up to whole pages."""
        return floor(maximum(self.cache, 0.0) / self.sequence(self.in_pages(tokens)))

    def largest_request(self, most: float) -> int:
        """Tokens of the longest request that the cache holds, in whole pages: `most` where it holds that."""
        left, places = _number(self.cache), _number(self.places)
        if _number(self.sequence(self.in_pages(most))) * places <= left:
            return int(most)
        if left <= 0:
            return 0
        # Where windows are full, a token adds `per_token`; before, `early`. A sequence takes the lesser of both lines.
        room = left / places
        filling = (room - _number(self.state)) / max(_number(self.early), 1e-9)
        full = (room - _number(self.fixed)) / max(_number(self.per_token), 1e-9)
        tokens = min(max(filling, full, 0.0), most)
        return int(tokens // self.page) * self.page

    def printed_tokens(self, length: float) -> float:
        """Tokens of cache as engines print them: what it has room for in requests of a length."""
        return _number(self.cache) / max(_number(self.sequence(length)) / length, 1e-9)

    def held(self, sequences: Number, tokens: Number) -> Number:
        """Bytes in use on the busiest chip with so many sequences of so many tokens."""
        return self.weights + self.working + self.reserve + sequences * self.sequence(self.in_pages(tokens))


def cache_per_chip(deployment: Deployment, tokens: Number) -> Number:
    """Bytes that one sequence of `tokens` keeps on one chip, averaged over the data ranks that sequences are dealt out
    to."""
    return bytes_of(cache_lines(deployment, tokens))


def capacity(deployment: Deployment) -> Capacity:
    """The memory of one copy of the model."""
    engine = deployment.engine
    hbm = deployment.chip.visible
    far = 2.0**20
    near = cache_per_chip(deployment, far)
    slope = (cache_per_chip(deployment, 2 * far) - near) / far
    state = cache_per_chip(deployment, 0.0)
    weights = bytes_of(weight_lines(deployment))
    working = 0.0 if engine.name == "ideal" else bytes_of(workspace_lines(deployment))
    memory, plan = engine.memory, deployment.plan
    kept: Number = memory.reserve_bytes
    group: Number = 0.0
    if memory.group_bytes and deployment.chip.linked:
        group = where(plan.chips > 1, memory.group_bytes, 0.0)
    if memory.rank_bytes:
        kept = maximum(kept + memory.rank_bytes * plan.chips, memory.least_reserve_bytes)
    if memory.share_of == "static":
        # Weights and cache alone have the share of what is free after the start of the process group. The workspace
        # lies in what is kept, or in the rest.
        gone = memory.context_bytes + group
        static = (hbm - gone) * (memory.share - kept / hbm)
        kept = kept * (1 - gone / hbm)  # the fraction that it asks for is taken of what is free
        usable = gone + static + maximum(working, kept)
        kept = gone + maximum(kept - working, 0.0)
    elif memory.share_of == "free":
        kept = kept + group
        usable = hbm - (hbm - weights - working - kept) * (1 - memory.share)
    else:
        kept = kept + group
        usable = hbm * memory.share
    return Capacity(
        hbm=hbm,
        usable=usable,
        weights=weights,
        working=working,
        reserve=kept,
        per_token=slope,
        fixed=near - slope * far,
        early=cache_per_chip(deployment, 1.0) - state,
        state=state,
        page=memory.page,
        places=_places(deployment),
    )


def _places(deployment: Deployment) -> Number:
    """The ranks that sequences are dealt out to: those that split the batch of a cached array."""
    for section in deployment.sections:
        for op in section.ops:
            for array in op.inputs if op.function == "cache" else ():
                axes = deployment.rules(prompt=False).cached(array).dim("b").axes
                return deployment.mesh.size(*axes)
    return deployment.mesh.size("data")


def _number(value: Number) -> float:
    """A number, or the only one of an array."""
    return float(numpy.ravel(value)[0])
