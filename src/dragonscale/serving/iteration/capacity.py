"""What fits on a chip: weights, working memory and KV cache, in bytes, tokens, pages and sequences.

The ideal is the bytes of the tensors alone; the reserved is what an engine takes: whole pages, its own overhead, and
the fraction of the memory that it leaves alone. A plan never reserves less than its ideal.
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.physics.numbers import Number, ceil_to, first_number, floor, maximum, minimum, where
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.resident_memory import bytes_of, cache_lines, weight_lines, workspace_lines


@dataclass(frozen=True)
class Capacity:
    """Bytes on the fullest chip, and the tokens of KV cache that one copy of the model holds.

    The cache of a sequence is piecewise linear in its tokens. While sliding windows fill, a token adds `early` bytes to
    the `state` of recurrent layers; once they are full, `per_token` bytes to `fixed` (recurrent states and full
    windows). All are bytes on one chip, averaged over the sequences that `data` or `batch` splits deal out.

    `tokens` counts those of all sequences together; it is negative if not even the weights fit.
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
    """Ranks of a copy that sequences are dealt out to; a sequence uses the cache of one of them."""

    @property
    def cache(self) -> Number:
        """Bytes of each chip that are left for the KV cache."""
        return self.usable - self.weights - self.working - self.reserve

    @property
    def tokens(self) -> Number:
        """Tokens of KV cache in all, for sequences without a fixed state."""
        return self.cache / maximum(self.per_token, 1e-9)

    @property
    def fits(self) -> Any:
        """Whether weights and working memory leave any cache at all."""
        return self.cache > 0

    def in_pages(self, tokens: Number) -> Number:
        """Tokens of a sequence, rounded up to whole pages."""
        if self.page <= 1:
            return tokens
        return ceil_to(tokens, self.page)

    def sequence(self, tokens: Number) -> Number:
        """Bytes of a sequence of so many tokens on one chip; the lesser of the lines before and after windows fill."""
        return minimum(tokens * self.early + self.state, tokens * self.per_token + self.fixed)

    def sequences(self, tokens: Number) -> Number:
        """The number of sequences of so many tokens that fit, each rounded up to whole pages."""
        return floor(maximum(self.cache, 0.0) / self.sequence(self.in_pages(tokens)))

    def largest_request(self, limit: float) -> int:
        """Tokens of the longest request that the cache holds, in whole pages, or `limit` if it holds more."""
        cache, places = first_number(self.cache), first_number(self.places)
        if first_number(self.sequence(self.in_pages(limit))) * places <= cache:
            return int(limit)
        if cache <= 0:
            return 0
        # Invert both lines of `sequence`. It is their minimum, so the larger of the two solutions holds.
        share = cache / places
        filling = (share - first_number(self.state)) / max(first_number(self.early), 1e-9)
        full = (share - first_number(self.fixed)) / max(first_number(self.per_token), 1e-9)
        tokens = min(max(filling, full, 0.0), limit)
        return int(tokens // self.page) * self.page

    def printed_tokens(self, length: float) -> float:
        """Tokens of cache as engines print them at startup: counted in requests of a length."""
        return first_number(self.cache) / max(first_number(self.sequence(length)) / length, 1e-9)

    def held(self, sequences: Number, tokens: Number) -> Number:
        """Bytes in use on the fullest chip with so many sequences of so many tokens."""
        return self.weights + self.working + self.reserve + sequences * self.sequence(self.in_pages(tokens))


def cache_per_chip(deployment: Deployment, tokens: Number) -> Number:
    """Bytes of cache of one sequence on one chip, averaged over the data ranks that sequences are dealt out to."""
    return bytes_of(cache_lines(deployment, tokens))


def capacity(deployment: Deployment) -> Capacity:
    """The memory of one copy of the model under an engine."""
    engine, plan = deployment.engine, deployment.plan
    hbm = deployment.chip.visible
    # Fit the line of full windows at a length beyond every window, and that of filling ones at its origin.
    long = 2.0**20
    long_bytes = cache_per_chip(deployment, long)
    per_token = (cache_per_chip(deployment, 2 * long) - long_bytes) / long
    state = cache_per_chip(deployment, 0.0)
    weights = bytes_of(weight_lines(deployment))
    working = 0.0 if engine.name == "ideal" else bytes_of(workspace_lines(deployment))
    memory = engine.memory
    reserve: Number = memory.reserve_bytes
    group: Number = 0.0
    if memory.group_bytes and deployment.chip.linked:
        group = where(plan.chips > 1, memory.group_bytes, 0.0)
    if memory.rank_bytes:
        reserve = maximum(reserve + memory.rank_bytes * plan.chips, memory.least_reserve_bytes)
    if memory.share_of == "static":
        # SGLang's mem_fraction_static: weights and cache alone get the share of what is free once the process group
        # has started. The workspace lies in the reserve, or in the rest.
        started = memory.context_bytes + group
        static = (hbm - started) * (memory.share - reserve / hbm)
        reserve = reserve * (1 - started / hbm)  # the engine asks for a fraction of what is free
        usable = started + static + maximum(working, reserve)
        reserve = started + maximum(reserve - working, 0.0)
        # it takes that share whatever else has to fit: the first full iteration is then out of memory
        usable = where(usable > hbm, minimum(usable, weights + working + reserve), usable)
    elif memory.share_of == "free":
        reserve = reserve + group
        usable = hbm - (hbm - weights - working - reserve) * (1 - memory.share)
    else:
        reserve = reserve + group
        usable = hbm * memory.share
    return Capacity(
        hbm=hbm,
        usable=usable,
        weights=weights,
        working=working,
        reserve=reserve,
        per_token=per_token,
        fixed=long_bytes - per_token * long,
        early=cache_per_chip(deployment, 1.0) - state,
        state=state,
        page=memory.page,
        places=_places(deployment),
    )


def _places(deployment: Deployment) -> Number:
    """The ranks that sequences are dealt out to: those that split the batch dim of a cached array."""
    for section in deployment.sections:
        for op in section.ops:
            if op.function == "cache":
                # the batch dim of every cached array is split alike
                axes = deployment.rules(prompt=False).cached(op.inputs[0]).dim("b").axes
                return deployment.mesh.size(*axes)
    return deployment.mesh.size("data")
