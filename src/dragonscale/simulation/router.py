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
        home, known = self._home(replicas, request)
        if self.kind == "slo_aware":
            wanted = [max(tokens - known, 1) if replica is home else tokens for replica in replicas]
            home = self._best(replicas, [one.predict(want, now) for one, want in zip(replicas, wanted, strict=True)])
        elif home is None or home.load > max(BUSIER * (least := min(one.load for one in replicas)), least + MORE):
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
        found = next((one for one in replicas if one.index == index), None) or self._least(replicas)
        if request.session >= 0:
            self.homes[request.session] = found.index
        if len(self.homes) > MOST_HOMES:
            self.homes.popitem(last=False)
        return found

    def _by_cache(self, replicas: Sequence[Any], request: RoutedRequest, tokens: int, now: float) -> Any:
        """By what caches have, and what else there is to do."""
        known = [one.cached(request) for one in replicas]
        used = [one.in_use(now) for one in replicas]
        if self.kind == "cache_aware":
            costs = [
                one.unprefilled + tokens - own + tokens + held
                for one, own, (held, _) in zip(replicas, known, used, strict=True)
            ]
            return self._best(replicas, costs)
        queues = [one.queued for one in replicas]
        least, most = min(queues), max(queues)
        scores = [
            -PREFIX * own / tokens
            - QUEUE * ((most - queue) / (most - least) if most > least else 1.0)
            + UNUSED * held / room
            for own, queue, (held, room) in zip(known, queues, used, strict=True)
        ]
        return self._best(replicas, scores)

    def _least(self, replicas: Sequence[Target]) -> Target:
        """The least loaded. Nearly always the one with the least work has a place too."""
        turn, scores = self.turn, [*map(WORK, replicas)]
        found = self._best(replicas, scores)
        if found.full:
            self.turn = turn
            found = self._best(replicas, [(one.full, *score) for one, score in zip(replicas, scores, strict=True)])
        return found

    def _best(self, replicas: Sequence[Target], scores: Sequence[Any]) -> Target:
        least, turn = min(scores), self.turn % len(replicas)
        place = scores.index(least, turn) if least in scores[turn:] else scores.index(least)
        self.turn = place + 1
        return replicas[place]

    def _home(self, replicas: Sequence[Target], request: RoutedRequest) -> tuple[Target | None, int]:
        """Who was last given the longest known prefix, and its tokens."""
        for place in range(len(request.blocks) - 1, -1, -1):
            index = self.homes.get(request.blocks[place])
            if index is not None:
                for replica in replicas:
                    if replica.index == index:
                        return replica, (place + 1) * request.block_tokens
        return None, 0
