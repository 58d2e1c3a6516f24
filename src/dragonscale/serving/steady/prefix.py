"""Prefix caching: how often it hits, what a hit saves, and where the cache should live.

Keeping a prompt's cache costs memory for as long as it is kept; finding it again saves its prefill. In HBM a hit is
free but takes space from the batch. The host's memory has more space, but a hit is loaded over the host link, which is
still far quicker than computing it unless prompts are short or the link is slow.
"""

from dataclasses import dataclass

from dragonscale.physics.numbers import first_number
from dragonscale.serving.iteration.capacity import cache_per_chip, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import iteration_cost, prefill


@dataclass(frozen=True)
class Hit:
    """Seconds of one prompt's prefill: from scratch, with a prefix cached in HBM, and with the prefix loaded from the
    host."""

    computed: float
    from_hbm: float
    from_host: float

    @property
    def saved(self) -> float:
        """The fraction of the prefill that a hit in HBM saves."""
        return 1 - self.from_hbm / self.computed

    @property
    def host_pays(self) -> bool:
        """Whether loading from the host beats computing."""
        return self.from_host < self.computed


def hit(deployment: Deployment, prompt: int, shared: int) -> Hit:
    """The prefill of a prompt of which `shared` tokens are cached."""
    shared = min(shared, prompt - 1)
    steps = (prefill(prompt), prefill(prompt - shared, 1, shared))
    whole, rest = (first_number(iteration_cost(deployment, step).expected) for step in steps)
    link = deployment.chip.host_link
    loading = first_number(cache_per_chip(deployment, float(shared))) / link
    return Hit(whole, rest, rest + loading)


@dataclass(frozen=True)
class Rooms:
    """How many prefixes fit: in HBM beside a batch, including the one that the batch shares, and in the host's
    memory."""

    hbm: float
    host: float


def rooms(deployment: Deployment, prefix: int, batch: int, length: int, host_bytes: float = 0.0) -> Rooms:
    """How many prefixes of `prefix` tokens fit where, while `batch` sequences of `length` tokens decode that all begin
    with one of them.

    A prefix is stored once on every data rank. `host_bytes` is the host memory for each chip.
    """
    memory = capacity(deployment)
    # what a sequence does not share with others
    sequence_bytes = memory.sequence(memory.in_pages(float(length))) - prefix * memory.per_token
    spare = first_number(memory.cache - batch * sequence_bytes)
    prefix_bytes = first_number(prefix * memory.per_token * memory.places)
    return Rooms(max(spare, 0.0) / prefix_bytes, host_bytes / prefix_bytes)
