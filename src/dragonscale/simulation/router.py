"""Routers: which replica gets a request.

- `round_robin`: the next in turn.
- `least_loaded`: the one with the fewest requests.
- `prefix_affinity`: the one that was last given the longest prefix of this prompt, unless it is much busier than the
  least busy; then, and for new prefixes, the least loaded. (SGLang's router does this, with thresholds of the same kind.)
- `slo_aware`: the one whose predicted time to first token is shortest; prefixes it was last given count as cached.

Ties go round, so that equal replicas share the work.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from dragonscale.simulation.replica import Replica
from dragonscale.simulation.request import SimulatedRequest

MOST_HOMES = 200_000
"""Blocks whose last replica a router remembers."""
BUSIER, MORE = 1.5, 32
"""A prefix does not hold a request on a replica with 1.5 times and 32 requests more than the least loaded has; SGLang's
router's defaults are balance_rel_threshold 1.5 and balance_abs_threshold 64 (32 in older versions)."""

Choose = Callable[[Sequence[Replica], SimulatedRequest, int, float], Replica]


class Router:
    """Remembers whose turn it is and where prefixes went."""

    def __init__(self, kind: str) -> None:
        self.turn = 0
        self.homes: OrderedDict[int, int] = OrderedDict()
        self.choose: Choose = getattr(self, kind)

    def round_robin(self, replicas: Sequence[Replica], request: SimulatedRequest, tokens: int, now: float) -> Replica:
        """The next."""
        del request, tokens, now
        self.turn += 1
        return replicas[(self.turn - 1) % len(replicas)]

    def least_loaded(self, replicas: Sequence[Replica], request: SimulatedRequest, tokens: int, now: float) -> Replica:
        """The one with the fewest requests, the next in turn among equals."""
        del request, tokens, now
        return self._best(replicas, [replica.load for replica in replicas])

    def prefix_affinity(
        self, replicas: Sequence[Replica], request: SimulatedRequest, tokens: int, now: float
    ) -> Replica:
        """The home of its longest known prefix."""
        del tokens, now
        home, _ = self._home(replicas, request)
        loads = [replica.load for replica in replicas]
        least = min(loads)
        if home is None or (home.load > BUSIER * least and home.load > least + MORE):
            home = self._best(replicas, loads)
        self._remember(request, home)
        return home

    def slo_aware(self, replicas: Sequence[Replica], request: SimulatedRequest, tokens: int, now: float) -> Replica:
        """The one that promises the earliest first token."""
        home, known = self._home(replicas, request)
        waits = [replica.predict(max(tokens - known, 1) if replica is home else tokens, now) for replica in replicas]
        best = self._best(replicas, waits)
        self._remember(request, best)
        return best

    def _best(self, replicas: Sequence[Replica], scores: Sequence[float]) -> Replica:
        least, count = min(scores), len(replicas)
        place = self.turn % count
        while scores[place] != least:
            place = (place + 1) % count
        self.turn = place + 1
        return replicas[place]

    def _home(self, replicas: Sequence[Replica], request: SimulatedRequest) -> tuple[Replica | None, int]:
        """Who was last given the longest known prefix, and its tokens."""
        for place in range(len(request.blocks) - 1, -1, -1):
            index = self.homes.get(request.blocks[place])
            if index is not None:
                for replica in replicas:
                    if replica.index == index:
                        return replica, (place + 1) * request.block_tokens
        return None, 0

    def _remember(self, request: SimulatedRequest, replica: Replica) -> None:
        for block in request.blocks:
            self.homes[block] = replica.index
            self.homes.move_to_end(block)
        while len(self.homes) > MOST_HOMES:
            self.homes.popitem(last=False)
