"""Routers: which replica gets a request, of a simulated fleet or of the workers of `dscale run serve`.

- `round_robin`: the next in turn.
- `least_loaded`: of those with a place in their batch the one with the fewest tokens of prompts to prefill, of these
  the one with the fewest requests. (By requests alone a replica from which many have just gone draws all that come
  next, which then wait for each other's prompts and end together again.)
- `prefix_affinity`: the one that was last given the longest prefix of this prompt, unless it is much busier than the
  least busy; then, and for new prefixes, the least loaded. (SGLang's router does this, with thresholds of the same
  kind.)
- `slo_aware`: the one whose predicted time to first token is shortest; prefixes it was last given count as cached.
- `session_sticky`: the one that had the session's last request; for new sessions the least loaded.
- `cache_aware`: the one with the least cost, blocks to prefill (its own queue's and those of this prompt that its cache
  lacks) and blocks in use, as NVIDIA Dynamo's KV router counts them, with its weight of 1 for the overlap.
- `cache_scores`: the one with the highest score, of 3 parts for the part of the prompt that its cache has, 2 for a
  short queue and 2 for an empty cache, as llm-d's scheduler weighs them by default.

Both look into the caches of replicas, whose events engines publish. Ties go round, so that equal replicas share the
work.
"""

from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

WORK = attrgetter("unprefilled", "load")
"""What the least loaded of those with a place has least of."""
MOST_HOMES = 200_000
"""Blocks, or sessions, whose last replica a router remembers."""
PREFIX, QUEUE, UNUSED = 3.0, 2.0, 2.0
"""Weights of llm-d's prefix-cache, queue and kv-cache-utilization scorers (its guide to intelligent scheduling)."""
BUSIER, MORE = 1.5, 32
"""A prefix does not hold a request on a replica with 1.5 times and 32 requests more than the least loaded has; SGLang's
router's defaults are balance_rel_threshold 1.5 and balance_abs_threshold 64 (32 in older versions)."""


class RoutedReplica(Protocol):
    """A replica as a router sees it: a simulated one, or a worker that serves."""

    @property
    def index(self) -> int: ...

    @property
    def load(self) -> float:
        """Requests that it has."""
        ...

    @property
    def full(self) -> bool:
        """Whether it has as many as it takes at once."""
        ...

    @property
    def unprefilled(self) -> int:
        """Tokens of their prompts that are still to be prefilled."""
        ...

    def predict(self, tokens: int, now: float) -> float:
        """Seconds until the first token of a prompt with so many tokens to prefill, given now."""
        ...


class RoutedRequest(Protocol):
    """A request as a router sees it: names of its prompt's leading blocks, each with everything before it."""

    @property
    def blocks(self) -> Sequence[int]: ...

    @property
    def block_tokens(self) -> int: ...


Target = TypeVar("Target", bound=RoutedReplica)


class Router:
    """Remembers whose turn it is and where prefixes went."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.turn = 0
        self.homes: OrderedDict[int, int] = OrderedDict()

    def choose(self, replicas: Sequence[Target], request: RoutedRequest, tokens: int, now: float) -> Target:
        """Whoever gets a request of which `tokens` are to be prefilled."""
        if self.kind == "round_robin":
            self.turn += 1
            return replicas[(self.turn - 1) % len(replicas)]
        if self.kind == "least_loaded":
            return self._least(replicas)
        if self.kind.startswith("cache"):
            return self._by_cache(replicas, request, tokens, now)
        if self.kind == "session_sticky":
            return self._same(replicas, request)
        home, cached_tokens = self._home(replicas, request)
        if self.kind == "slo_aware":
            wanted = [max(tokens - cached_tokens, 1) if replica is home else tokens for replica in replicas]
            home = self._best(
                replicas, [replica.predict(want, now) for replica, want in zip(replicas, wanted, strict=True)]
            )
        elif home is None or home.load > max(
            BUSIER * (least := min(replica.load for replica in replicas)), least + MORE
        ):
            home = self._least(replicas)
        for block in request.blocks:
            self.homes[block] = home.index
            self.homes.move_to_end(block)
        while len(self.homes) > MOST_HOMES:
            self.homes.popitem(last=False)
        return home

    def _same(self, replicas: Sequence[Target], request: Any) -> Target:
        """Who had the session before; one that is gone has lost its cache."""
        index = self.homes.pop(request.session, -1)
        target = next((replica for replica in replicas if replica.index == index), None) or self._least(replicas)
        if request.session >= 0:
            self.homes[request.session] = target.index
        if len(self.homes) > MOST_HOMES:
            self.homes.popitem(last=False)
        return target

    def _by_cache(self, replicas: Sequence[Any], request: RoutedRequest, tokens: int, now: float) -> Any:
        """By what caches have, and what else there is to do."""
        cached_tokens = [replica.cached(request) for replica in replicas]
        used = [replica.in_use(now) for replica in replicas]
        if self.kind == "cache_aware":
            costs = [
                replica.unprefilled + tokens - hit_tokens + tokens + used_tokens
                for replica, hit_tokens, (used_tokens, _) in zip(replicas, cached_tokens, used, strict=True)
            ]
            return self._best(replicas, costs)
        queues = [replica.queued for replica in replicas]
        shortest, longest = min(queues), max(queues)
        scores = [
            -PREFIX * hit_tokens / tokens
            - QUEUE * ((longest - queue) / (longest - shortest) if longest > shortest else 1.0)
            + UNUSED * used_tokens / capacity
            for hit_tokens, queue, (used_tokens, capacity) in zip(cached_tokens, queues, used, strict=True)
        ]
        return self._best(replicas, scores)

    def _least(self, replicas: Sequence[Target]) -> Target:
        """The least loaded. Nearly always the one with the least work has a place too."""
        turn, scores = self.turn, [*map(WORK, replicas)]
        target = self._best(replicas, scores)
        if target.full:
            self.turn = turn
            target = self._best(
                replicas, [(replica.full, *score) for replica, score in zip(replicas, scores, strict=True)]
            )
        return target

    def _best(self, replicas: Sequence[Target], scores: Sequence[Any]) -> Target:
        least, turn = min(scores), self.turn % len(replicas)
        index = scores.index(least, turn) if least in scores[turn:] else scores.index(least)
        self.turn = index + 1
        return replicas[index]

    def _home(self, replicas: Sequence[Target], request: RoutedRequest) -> tuple[Target | None, int]:
        """Who was last given the longest known prefix, and its tokens."""
        for depth in range(len(request.blocks) - 1, -1, -1):
            index = self.homes.get(request.blocks[depth])
            if index is not None:
                for replica in replicas:
                    if replica.index == index:
                        return replica, (depth + 1) * request.block_tokens
        return None, 0
