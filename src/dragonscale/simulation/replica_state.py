"""The state of one replica: a queue, prompts in progress, a decoding batch, the pages of its cache, and counters."""

import heapq
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from dragonscale.serving.engine.chunk_shapes import chunk_sizes
from dragonscale.simulation.activities import ActivityLog
from dragonscale.simulation.batch import Batch
from dragonscale.simulation.fleet import Pool
from dragonscale.simulation.pages import Pages, Tier
from dragonscale.simulation.request import Sequence, SimulatedRequest
from dragonscale.simulation.result import Tally
from dragonscale.simulation.series import Series

FAIL, RETURN, ARRIVE, DELIVER, END, WAKE, SCALE, CHANCE = range(8)
"""Kinds of events, in the order in which those of one moment are handled: what comes from outside before an iteration
that ends at the same moment decides on its successor, and an idle replica wakes after everything else of the moment, so
that requests that arrive together are batched together."""

Leave = Callable[[Sequence, Any, float], None]
"""A sequence, the replica it leaves, and when."""


class Shared:
    """What all replicas of a run share: the event queue, the statistics, and two callbacks for sequences that leave."""

    def __init__(self, tally: Tally, series: Series, seed: int, leap: bool, finish: Leave, send: Leave) -> None:
        self.heap: list[tuple[Any, ...]] = []
        self.tally, self.series, self.log = tally, series, ActivityLog(tally, series)
        self.seed, self.leap = seed, leap
        self.finish, self.send = finish, send
        self.stores: dict[int, Tier] = {}  # of a pool's replicas together, by its first
        self.recorder: Any = None
        self.watch: Any = None


class ReplicaState:
    """The state of one replica; `prefills` marks a replica of a prefill pool, which sends its sequences on."""

    # With more than thirty attributes, access is slower without slots (CPython shares keys of small dicts only).
    __slots__ = (
        *("index", "pool", "shared", "prefills", "times", "scheduler", "static", "beside", "queries", "whole"),
        *("watermark_pages", "heap", "leap", "tally", "recorder", "book", "book_queue", "looks_late", "waiting"),
        *("settled", "poll", "sharing", "sizes"),
        *("queue_from", "version", "orders", "alive", "draining", "since", "iterations", "emitted", "prefilled"),
        *("epoch", "watched", "look_s", "pages", "batch", "prefilling", "sending", "busy", "woken", "began", "due"),
        *("steps", "chunks", "loading", "encoding", "load", "unprefilled", "extra"),
    )

    def __init__(self, index: int, pool: Pool, shared: Shared, prefills: bool = False) -> None:
        scheduler = pool.scheduler
        self.index, self.pool, self.shared, self.prefills = index, pool, shared, prefills
        self.times, self.scheduler = pool.times, scheduler
        self.static, self.beside, self.queries = scheduler.kind == "static", scheduler.beside, scheduler.queries
        self.whole = (scheduler.reserve == "whole" or self.static) and not prefills
        self.watermark_pages = 0
        if not scheduler.page_each:
            self.watermark_pages = int(scheduler.watermark * pool.pages)
        self.heap, self.leap, self.tally, self.recorder = shared.heap, shared.leap, shared.tally, shared.recorder
        self.book, self.book_queue = shared.log.rows.extend, shared.log.queues.extend
        self.sizes = chunk_sizes(scheduler.tokens, scheduler.chunk) if scheduler.chunk else ()
        self.settled, self.poll = 1 + scheduler.ahead, scheduler.poll
        self.looks_late = scheduler.ahead > 0 or scheduler.poll > 1
        self.waiting: deque[Sequence] = deque()
        self.queue_from = 0.0
        self.version = self.orders = 0  # a version outdates the events of those before it
        self.alive, self.draining = True, False
        self.since = 0.0  # up since
        self.iterations = self.emitted = self.prefilled = 0.0
        self.epoch = 0  # how often it died
        self.watched, self.look_s = shared.watch is not None, 0.0  # when it is looked at again, where somebody watches
        self.clear()

    def clear(self) -> None:
        """Start with an empty cache and nothing in progress."""
        pool, page = self.pool, self.scheduler.page_tokens
        self.pages = Pages(pool.pages, page, pool.share_prefixes, *self._tiers(page), pool.adapters)
        self.sharing = pool.share_prefixes
        self.extra = bool(pool.adapters or pool.image_s)  # requests may bring more than tokens
        self.batch = Batch(self.scheduler, self.times, not self.whole, self.shared.seed, self.tally)
        self.prefilling: list[Sequence] = []
        self.sending: dict[int, Sequence] = {}
        self.busy = False
        self.woken = inf  # when it will look for work
        self.began = self.due = 0.0
        self.steps = 0
        self.chunks: list[tuple[Sequence, int]] = []  # of prompts, in the iteration that runs
        self.loading = self.encoding = 0.0  # seconds of loads beside the next iteration, and of images before it
        self.load = 0  # requests it has
        self.unprefilled = 0  # tokens of them that are still to be prefilled

    def _tiers(self, page: int) -> tuple[tuple[Tier, ...], Tier | None]:
        """The replica's own tiers, which it loses when it dies, and the store that the pool's replicas share."""
        # from the last tier to the first, since each evicts into the one below
        below: Tier | None = None
        private: list[Tier] = []
        for tier in reversed(self.pool.tiers):
            if tier.shared:
                store = Tier(tier.tokens // page, None, page / tier.tokens_per_s)
                below = self.shared.stores.setdefault(id(self.pool), store)
            else:
                below = Tier(tier.tokens // page, below, page / tier.tokens_per_s)
                private.insert(0, below)
        return tuple(private), self.shared.stores.get(id(self.pool))

    @property
    def full(self) -> bool:
        """Whether all places of its batch are taken, or claimed by waiting requests."""
        return self.load >= self.scheduler.sequences

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self.waiting)

    def cached(self, request: SimulatedRequest) -> int:
        """Tokens of a prompt that are in its cache."""
        pages = self.pages
        return pages.until(request, pages.hits(request)[0]) * pages.page

    def wake(self, now: float) -> None:
        """Schedule a look for work after everything else that happens at this moment."""
        if not self.busy and self.alive and now < self.woken:
            self.woken = now
            heapq.heappush(self.heap, (now, WAKE, self.index, self.version, self))

    def enqueue(self, sequence: Sequence) -> bool:
        """Queue a request behind all of its priority and before those of lower priority; returns whether it is
        first."""
        waiting, priority = self.waiting, sequence.request.priority
        index = len(waiting)
        while index and waiting[index - 1].request.priority > priority:
            index -= 1
        waiting.insert(index, sequence)
        return index == 0

    def count_queue(self, now: float) -> None:
        """Record the queue's length until now, before it changes."""
        if self.waiting:
            self.book_queue((self.queue_from, now, len(self.waiting)))
        self.queue_from = now
