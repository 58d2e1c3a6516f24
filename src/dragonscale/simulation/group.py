"""A pool while it runs: its replicas, which of them take requests, and how many there should be."""

import math

from dragonscale.simulation.fleet import Pool
from dragonscale.simulation.replica import Replica
from dragonscale.simulation.replica_state import Shared
from dragonscale.simulation.request import Sequence
from dragonscale.simulation.router import Router


class Group:
    """Replicas of one pool. `active` ones take requests; `parked` requests wait until there is one."""

    def __init__(self, pool: Pool, shared: Shared, first_index: int, prefills: bool) -> None:
        self.pool, self.shared, self.prefills = pool, shared, prefills
        self.router = Router(pool.router)
        self.parked: list[Sequence] = []
        self.replicas = [Replica(first_index + i, pool, shared, prefills) for i in range(pool.replicas)]
        self.active = list(self.replicas)
        self.starting = 0
        self.link_free_s: dict[int, float] = {}

    def route(self, sequence: Sequence, now: float) -> None:
        """Give a request to a replica, or park it if there is none."""
        if self.active:
            self.router.choose(self.active, sequence.request, sequence.context, now).submit(sequence, now)
        else:
            self.parked.append(sequence)

    def open(self, replica: Replica, now: float) -> None:
        """A replica takes requests from now on."""
        replica.alive, replica.draining = True, False
        replica.since = replica.queue_from = now
        self.active.append(replica)
        parked, self.parked = self.parked, []
        for sequence in parked:
            self.route(sequence, now)

    def close(self, replica: Replica, now: float) -> None:
        """A replica is gone: book the time it was there."""
        if replica in self.active:
            self.active.remove(replica)
        self.shared.series.add("up", replica.since, now, 1)

    def scale(self, now: float, index: int) -> Replica | None:
        """Compare the load with the target: the number of replicas to start now is booked in `starting`, by the caller
        one at a time (the returned one is dormant until opened); surplus ones are asked to leave, newest first."""
        rule = self.pool.autoscale
        assert rule is not None
        for replica in self.replicas:  # those who were asked to leave and have nothing left to do
            if replica.alive and replica.draining and not replica.busy and not replica.load and not replica.sending:
                replica.alive = False
                self.close(replica, now)
        load = sum(replica.load for replica in self.active) + len(self.parked)
        wanted = min(max(math.ceil(load / rule.target), rule.least), rule.most)
        there = len(self.active) + self.starting
        if wanted < len(self.active):
            for replica in self.active[wanted:]:
                replica.draining = True
            del self.active[wanted:]
            return None
        if wanted <= there:
            return None
        for replica in self.replicas:
            if replica.alive and replica.draining:  # still there: take it back
                replica.draining = False
                self.active.append(replica)
                return self.scale(now, index)
        self.starting += 1
        dormant = next((r for r in self.replicas if not r.alive and r.draining), None)
        if dormant is None:
            dormant = Replica(index, self.pool, self.shared, self.prefills)
            dormant.alive = False
            self.replicas.append(dormant)
        dormant.draining = False
        return dormant
