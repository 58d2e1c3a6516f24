"""Prefix caching: how often it hits, what a hit saves, and where the cache should live.

Keeping a prompt's cache costs memory for as long as it is kept; finding it again saves its prefill. In HBM a hit is
free but the room is taken from the batch; in the host's memory there is more room, but a hit has to be loaded over the
host link, which is still far quicker than computing it unless prompts are short or the link is slow.
"""

from dataclasses import dataclass

import numpy

from dragonscale.serving.iteration.capacity import cache_per_chip, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import iteration_cost, prefill


@dataclass(frozen=True)
class Hit:
    """One prompt of which a prefix is cached: seconds from scratch, with the prefix in HBM, and loaded
    from the host."""

    computed: float
    from_hbm: float
    from_host: float

    @property
    def saved(self) -> float:
        """The part of the prefill that a hit in HBM saves."""
        return 1 - self.from_hbm / self.computed

    @property
    def host_pays(self) -> bool:
        """Whether loading from the host beats computing."""
        return self.from_host < self.computed


def hit(deployment: Deployment, prompt: int, shared: int) -> Hit:
    """A prompt of which `shared` tokens are cached."""
    shared = min(shared, prompt - 1)
    steps = (prefill(prompt), prefill(prompt - shared, 1, shared))
    whole, rest = (float(numpy.ravel(iteration_cost(deployment, step).expected)[0]) for step in steps)
    link = deployment.chip.host_link
    loading = float(numpy.ravel(cache_per_chip(deployment, float(shared)))[0]) / link
    return Hit(whole, rest, rest + loading)


@dataclass(frozen=True)
class Rooms:
    """Prefixes of so many tokens that fit beside a batch in HBM, the one that the batch shares included, and in the
    host's memory."""

    hbm: float
    host: float


def rooms(deployment: Deployment, prefix: int, batch: int, length: int, host_bytes: float = 0.0) -> Rooms:
    """How many prefixes of `prefix` tokens fit where, with `batch` sequences of `length` tokens decoding that all begin
    with one of them; a prefix is held once on every data rank. `host_bytes` is what the host spares for each chip."""
    room = capacity(deployment)
    own = room.sequence(room.in_pages(float(length))) - prefix * room.per_token
    spare = float(numpy.ravel(room.cache - batch * own)[0])
    each = float(numpy.ravel(prefix * room.per_token * room.places)[0])
    return Rooms(max(spare, 0.0) / each, host_bytes / each)
