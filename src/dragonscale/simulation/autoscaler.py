"""How many replicas an autoscaled pool wants, at each look.

By requests on each replica the number follows directly. The other signals are ratios, as in Kubernetes' Horizontal Pod
Autoscaler: a signal so many times its target asks for so many times the replicas, and within a tenth of the target
nothing changes (its default tolerance).
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from dragonscale.simulation.fleet import Autoscale
from dragonscale.simulation.result import Tally

TOLERANCE = 0.1


class Autoscaler:
    """One pool's rule, with what it saw at earlier looks."""

    def __init__(self, rule: Autoscale, tally: Tally) -> None:
        self.rule, self.tally = rule, tally
        self.last_firsts = 0, 0.0  # first tokens by the last look, and the sum of their TTFT
        self.wants: deque[tuple[float, int]] = deque()
        tally.watch_first = tally.watch_first or rule.on == "ttft"

    def wanted(self, active: Sequence[Any], parked: int, now: float) -> int:
        """Replicas that there should be; fewer than before only if all looks of `hold_s` agree."""
        rule = self.rule
        if rule.schedule:
            count = rule.planned(now)
        elif rule.on == "requests":
            count = math.ceil((sum(replica.load for replica in active) + parked) / rule.target)
        else:
            ratio = self._measured(active, parked, now) / rule.target
            count = len(active)
            if abs(ratio - 1) > TOLERANCE:
                count = math.ceil(len(active) * ratio)
        if not count and not rule.schedule and (parked or any(replica.load for replica in active)):
            count = 1  # zero only if there is nothing to do
        # scaling down: the most that any recent look wanted
        self.wants.append((now, count))
        while self.wants[0][0] < now - rule.hold_s:
            self.wants.popleft()
        return min(max(max(count for _, count in self.wants), rule.least), rule.most)

    def _measured(self, active: Sequence[Any], parked: int, now: float) -> float:
        """The signal: requests that wait on each replica, the used fraction of caches, or the mean TTFT of the requests
        that got their first token since the last look (of those that wait, if none did)."""
        if self.rule.on == "queue":
            return (sum(len(replica.waiting) for replica in active) + parked) / max(len(active), 1)
        if self.rule.on == "kv":
            return sum(1 - replica.pages.room / replica.pages.capacity for replica in active) / max(len(active), 1)
        (count, seconds), self.last_firsts = self.last_firsts, (self.tally.firsts, self.tally.firsts_s)
        if self.tally.firsts > count:
            return (self.tally.firsts_s - seconds) / (self.tally.firsts - count)
        return max((now - replica.waiting[0].request.arrival_s for replica in active if replica.waiting), default=0.0)
