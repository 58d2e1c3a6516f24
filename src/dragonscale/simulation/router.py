"""Routers: which replica gets a request, of a simulated fleet or of the workers of `dscale run serve`.

- `round_robin`: the next in turn.
- `least_loaded`: of those with a free place in their batch the one with the fewest prompt tokens to prefill, then the
  one with the fewest requests. (By requests alone, a replica from which many have just left would draw all that come
  next, which would then wait for each other's prompts and end together again.)
- `prefix_affinity`: the one that was last given the longest prefix of this prompt, unless it is much busier than the
  least busy; then, and for new prefixes, the least loaded. (SGLang's router does this, with similar thresholds.)
- `slo_aware`: the one whose predicted time to first token is shortest; prefixes it was last given count as cached.
- `session_sticky`: the one that had the session's last request; for new sessions the least loaded.
- `cache_aware`: the one with the least cost: blocks to prefill (its own queue's, and those of this prompt that its
  cache lacks) and blocks in use, as NVIDIA Dynamo's KV router counts them, with its weight of 1 for the overlap.
- `cache_scores`: the one with the highest score, of 3 parts for the fraction of the prompt that its cache has, 2 for a
  short queue and 2 for an empty cache, as llm-d's scheduler weighs them by default.

The last two look into the caches of replicas, which engines publish as events. Ties take turns, so that equal replicas
share the work.
"""

from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

WORK = attrgetter("unprefilled", "load")
"""The key by which the least loaded replica is found."""
MAX_HOMES = 200_000
"""Blocks, or sessions, whose last replica a router remembers."""
# Weights of llm-d's prefix-cache, queue and kv-cache-utilization scorers (its guide to intelligent scheduling).
PREFIX_WEIGHT = 3.0
QUEUE_WEIGHT = 2.0
UNUSED_WEIGHT = 2.0
# A prefix does not keep a request on a replica with more than 1.5 times and more than 32 requests above the least
# loaded. SGLang's router has balance_rel_threshold 1.5 and balance_abs_threshold 64 (32 in older versions).
MAX_LOAD_RATIO = 1.5
MAX_LOAD_GAP = 32


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
        """Tokens of their prompts that are not prefilled yet."""
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
        """The replica for a request of which `tokens` are to be prefilled."""
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
            ttft_s: list[float] = []
            for replica in replicas:
                left = max(tokens - cached_tokens, 1) if replica is home else tokens
                ttft_s.append(replica.predict(left, now))
            home = self._best(replicas, ttft_s)
        else:
            least = min(replica.load for replica in replicas)
            if home is None or home.load > max(MAX_LOAD_RATIO * least, least + MAX_LOAD_GAP):
                home = self._least(replicas)
        for block in request.blocks:
            self.homes[block] = home.index
            self.homes.move_to_end(block)
        while len(self.homes) > MAX_HOMES:
            self.homes.popitem(last=False)
        return home

    def _same(self, replicas: Sequence[Target], request: Any) -> Target:
        """The replica that had the session before; one that is gone has lost its cache."""
        index = self.homes.pop(request.session, -1)
        target = next((replica for replica in replicas if replica.index == index), None) or self._least(replicas)
        if request.session >= 0:
            self.homes[request.session] = target.index
        if len(self.homes) > MAX_HOMES:
            self.homes.popitem(last=False)
        return target

    def _by_cache(self, replicas: Sequence[Any], request: RoutedRequest, tokens: int, now: float) -> Any:
        """The best replica by what caches hold and how busy they are."""
        scores: list[float] = []  # the lowest wins
        if self.kind == "cache_aware":
            for replica in replicas:
                used_tokens, _ = replica.in_use(now)
                to_prefill = tokens - replica.cached(request)
                scores.append(replica.unprefilled + to_prefill + tokens + used_tokens)
            return self._best(replicas, scores)
        queues = [replica.queued for replica in replicas]
        shortest, longest = min(queues), max(queues)
        for replica, queue in zip(replicas, queues, strict=True):
            used_tokens, capacity = replica.in_use(now)
            # 1 for the shortest queue, 0 for the longest
            queue_score = (longest - queue) / (longest - shortest) if longest > shortest else 1.0
            score = -PREFIX_WEIGHT * replica.cached(request) / tokens - QUEUE_WEIGHT * queue_score
            scores.append(score + UNUSED_WEIGHT * used_tokens / capacity)
        return self._best(replicas, scores)

    def _least(self, replicas: Sequence[Target]) -> Target:
        """The least loaded replica with a free place, if any has one."""
        turn, scores = self.turn, [*map(WORK, replicas)]
        target = self._best(replicas, scores)
        if target.full:
            # rare: look again, at those with a place first, with the turn as it was
            self.turn = turn
            target = self._best(
                replicas, [(replica.full, *score) for replica, score in zip(replicas, scores, strict=True)]
            )
        return target

    def _best(self, replicas: Sequence[Target], scores: Sequence[Any]) -> Target:
        """The replica with the lowest score; of equal ones the next in turn."""
        least, turn = min(scores), self.turn % len(replicas)
        index = scores.index(least, turn) if least in scores[turn:] else scores.index(least)
        self.turn = index + 1
        return replicas[index]

    def _home(self, replicas: Sequence[Target], request: RoutedRequest) -> tuple[Target | None, int]:
        """The replica that was last given the longest known prefix, and the prefix's tokens."""
        for depth in range(len(request.blocks) - 1, -1, -1):
            index = self.homes.get(request.blocks[depth])
            if index is not None:
                for replica in replicas:
                    if replica.index == index:
                        return replica, (depth + 1) * request.block_tokens
        return None, 0
