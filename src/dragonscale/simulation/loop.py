"""The event loop: requests arrive, are routed, served, sent on and retried; replicas fail, return and are scaled."""

import heapq
import random
from collections.abc import Callable
from math import inf
from typing import Any

from dragonscale.simulation.activities import FRESH
from dragonscale.simulation.autoscaler import Autoscaler
from dragonscale.simulation.fleet import Fleet, Pool
from dragonscale.simulation.perfetto import RequestRecorder
from dragonscale.simulation.replica import Replica
from dragonscale.simulation.replica_state import ARRIVE, CHANCE, DELIVER, END, FAIL, RETURN, SCALE, WAKE, Shared
from dragonscale.simulation.request import Sequence, SimulatedRequest
from dragonscale.simulation.result import Checkpoint, SimulationOptions, Tally
from dragonscale.simulation.router import Router
from dragonscale.simulation.series import Series
from dragonscale.simulation.traffic import TrafficSource
from dragonscale.simulation.watch import ReplicaWatch

TOO_LONG = "longer than a replica's cache"
BEYOND_CONTEXT = "longer than the model's context"
BEYOND_SERVED_LENGTH = "longer than the engine is launched for"
NO_REPLICA = "no replica left"
NO_POOL = "no pool takes it"
QUEUE_FULL = "queue full"
CHECKPOINTS = 64
"""Arrivals, evenly over a run, at which its books are looked at."""
SERIES = ("up", "busy", "running", "waiting", "pages")


def send(router: Router, replicas: list[Replica], sequence: Sequence, now: float) -> None:
    """Give a request to a replica; if its session was running before the run, its earlier tokens are in the cache
    there."""
    request = sequence.request
    replica = router.choose(replicas, request, sequence.context, now)
    if request.warm and not sequence.ready and not sequence.retries:
        replica.pages.remember(request)
    replica.submit(sequence, now)


class Group:
    """Replicas of one pool. `active` ones take requests; `parked` requests wait until there is one."""

    def __init__(self, pool: Pool, shared: Shared, first_index: int, prefills: bool, name: str = "serve") -> None:
        self.pool, self.shared, self.prefills, self.name = pool, shared, prefills, name
        self.limit = pool.upto or inf
        self.up_s = 0.0  # seconds that replicas which are gone were up
        self.router, self.longest = Router(pool.router), pool.longest
        self.parked: list[Sequence] = []
        self.replicas = [Replica(first_index + i, pool, shared, prefills) for i in range(pool.replicas)]
        self.active = list(self.replicas)
        self.starting = 0
        self.scaler = Autoscaler(pool.autoscale, shared.tally) if pool.autoscale is not None else None
        self.link_free_s: dict[int, float] = {}

    def takes(self, request: SimulatedRequest) -> bool:
        """Whether a request of its class and length may come here."""
        tokens, kinds = request.input_tokens + request.output_tokens, self.pool.kinds
        return tokens <= self.limit and tokens - 1 <= self.longest and (not kinds or request.kind in kinds)

    def route(self, sequence: Sequence, now: float) -> None:
        """Give a request to a replica, or park it if there is none."""
        if self.active:
            send(self.router, self.active, sequence, now)
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
        self.up_s += now - replica.since
        self.shared.series.add("up", replica.since, now, 1)

    def let_go(self, now: float) -> None:
        """Those who were asked to leave and have nothing left to do are gone."""
        for replica in self.replicas:
            if replica.alive and replica.draining and not replica.busy and not replica.load and not replica.sending:
                replica.alive = False
                self.close(replica, now)

    def scale(self, wanted: int, index: int) -> Replica | None:
        """Towards so many replicas: one to start now is booked in `starting` (the returned one is dormant until
        opened); surplus ones are asked to leave, newest first."""
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
                return self.scale(wanted, index)
        self.starting += 1
        dormant = next((r for r in self.replicas if not r.alive and r.draining), None)
        if dormant is None:
            dormant = Replica(index, self.pool, self.shared, self.prefills)
            dormant.alive = False
            self.replicas.append(dormant)
        dormant.draining = False
        return dormant


class Simulation:
    """One simulation under way."""

    def __init__(self, fleet: Fleet, traffic: TrafficSource, options: SimulationOptions) -> None:
        total = self.total = traffic.requests
        first = int(options.warmup * total)
        last = total - int(options.cooldown * total) if options.cooldown else inf
        self.fleet, self.options, self.overhead_s = fleet, options, fleet.overhead_s
        self.context = fleet.context or inf
        self.served_length = fleet.served_length or inf
        self.tally = Tally(options.limits, first, last, options.keep)
        self.kinds = [Tally(limits, first, last, False) for limits in options.classes]
        self.series = Series(SERIES)
        self.shared = Shared(self.tally, self.series, options.seed, options.leap, self._finished, self._send)
        if options.events:
            self.shared.recorder = RequestRecorder(options.events, options.events_from_s)
        if options.watch:
            self.shared.watch = ReplicaWatch(options.watch)
        self.now = 0.0
        self.progress: Callable[[int], None] | None = None
        self.checkpoints: list[Checkpoint] = []
        self.departures: list[Checkpoint] = []
        self.look_every = max(total / CHECKPOINTS, 1.0)
        self.next_arrived = self.next_finished = self.look_every
        self.arrivals, self.after = traffic.start(options.seed)
        self.marks: dict[float, tuple[float, float, float, float]] = {}  # where the measured part begins and ends
        self.serve = Group(fleet.pool, self.shared, 0, False)
        self.groups = [self.serve]
        for number, pool in enumerate(fleet.others, 2):
            first_index = sum(len(group.replicas) for group in self.groups)
            self.groups.append(Group(pool, self.shared, first_index, False, f"serve {number}"))
        self.serving = tuple(self.groups)
        self.chooses = bool(fleet.others or fleet.pool.upto or fleet.pool.kinds)
        self.front = self.serve
        if fleet.prefill is not None:
            self.front = Group(fleet.prefill, self.shared, fleet.pool.replicas, True, "prefill")
            self.groups.append(self.front)
        self.to_zero = any(group.pool.autoscale and not group.pool.autoscale.least for group in self.groups)
        self.places: list[tuple[Group, Replica]] = [(g, r) for g in self.groups for r in g.replicas]
        for failure in fleet.failures:
            offset = fleet.pool.replicas if failure.pool == "prefill" else 0
            self._push(failure.at_s, FAIL, offset + failure.replica, failure.for_s, (failure.notice_s, -1.0))
        self.returns = 0  # of replicas, in the calendar
        self.ticks = 0  # looks of autoscalers and failures by chance in the calendar
        self.chance = random.Random(options.seed)
        for _, replica in self.places:
            self._doom(replica, 0.0)
        for group_index, group in enumerate(self.groups):
            if group.pool.autoscale:
                self._tick(group.pool.autoscale.every_s, group_index)

    def _push(self, time: float, kind: int, index: int, key: float = 0, what: Any = None) -> None:
        heapq.heappush(self.shared.heap, (time, kind, index, key, what))

    def _tick(self, time: float, group_index: int) -> None:
        self.ticks += 1
        self._push(time, SCALE, group_index)

    def _return(self, time: float, index: int, started: int) -> None:
        self.returns += 1
        self._push(time, RETURN, index, started)

    def _doom(self, replica: Replica, now: float) -> None:
        """Draw when a replica that came up now will fail."""
        faults = self.fleet.faults
        if faults is not None:
            self.ticks += 1
            at = now + self.chance.expovariate(1 / faults.mtbf_s)
            self._push(at, CHANCE, replica.index, faults.for_s, (faults.notice_s, now))

    def mark(self) -> tuple[float, float, float, float]:
        """The time, requests finished and their prompts' tokens, output tokens produced, by now."""
        self.tally.settle()
        emitted = sum(replica.flow(self.now) for _, replica in self.places)
        return self.now, self.tally.finished, self.tally.input_tokens, emitted

    @property
    def outstanding(self) -> int:
        """Requests that are neither finished nor refused."""
        return self.tally.arrived - self.tally.finished - sum(self.tally.refused.values())

    def go(self, progress: Callable[[int], None] | None = None) -> None:
        """Run to the end. `progress` gets the number of finished requests now and then."""
        heap, until, pop = self.shared.heap, self.options.until_s, heapq.heappop
        self.progress, end = progress, Replica.end
        self._pull()
        while heap:
            now, kind, index, key, what = pop(heap)
            if now > until:
                break
            self.now = now
            if kind == END:
                if what.version == key and what.busy:
                    end(what, now)
            elif kind == ARRIVE:
                if key:
                    self._pull()
                self._arrive(what, now)
                # the run has all its requests: drop those that sessions would have sent later
                if self.tally.arrived == self.total:
                    heap[:] = [event for event in heap if event[1] != ARRIVE]
                    heapq.heapify(heap)
            elif kind == WAKE:
                what.look(now)
            elif kind == DELIVER:
                self._deliver(now, *what)
            elif kind == FAIL:
                self._fail(now, index, key, *what)
            elif kind == CHANCE:
                self.ticks -= 1
                # a run ends when only looks, random failures and returns are left
                if len(heap) > self.ticks + self.returns:
                    self._fail(now, index, key, *what)
            elif kind == RETURN:
                group, replica = self.places[index]
                self.returns -= 1
                group.starting -= key
                group.open(replica, now)
                self._doom(replica, now)
                if self.chooses:  # requests that wait for another pool may be served here too
                    parked = [sequence for group in self.serving for sequence in group.parked]
                    for group in self.serving:
                        group.parked = []
                    for sequence in parked:
                        self._route(sequence, now)
            elif kind == SCALE:
                self._scale(index, now)
        self.now = (
            until if self.outstanding and until < inf else max(self.tally.last_end_s, self.tally.last_arrival_s, 0.0)
        )
        self._close()

    def _pull(self) -> None:
        """Put the next arrival of an open stream into the calendar."""
        request = next(self.arrivals, None)
        if request is not None:
            heapq.heappush(self.shared.heap, (request.arrival_s + self.overhead_s, ARRIVE, request.number, 1, request))

    def _arrive(self, request: SimulatedRequest, now: float) -> None:
        tally = self.tally
        if self.kinds:
            request = request._replace(number=tally.arrived)  # calls of sessions are made in another order
            self.kinds[request.kind].arrive(request)
        tally.arrived += 1
        tally.last_arrival_s = request.arrival_s
        number = request.number
        if number == tally.first or number == tally.last:  # the measured part begins or ends
            self.shared.log.settle()
            tally.open = number == tally.first
            self.marks[number] = self.mark()
        if tally.arrived >= self.next_arrived:
            self.next_arrived += self.look_every
            self.checkpoints.append(self._books(now))
        limit, longest = self.fleet.queue_limit, request.input_tokens + request.output_tokens - 1
        if longest >= self.context:
            self._refuse(request, BEYOND_CONTEXT, now)
        elif longest >= self.served_length:
            self._refuse(request, BEYOND_SERVED_LENGTH, now)
        elif longest > self.serve.longest and not self.chooses:
            self._refuse(request, TOO_LONG, now)
        elif limit is not None and self._full(limit):
            self._refuse(request, QUEUE_FULL, now)
        else:
            self._route(Sequence(request), now)

    def _books(self, now: float) -> Checkpoint:
        tally = self.tally
        away = tally.refused.get(QUEUE_FULL, 0) + tally.refused.get(NO_REPLICA, 0)
        waiting = sum(len(replica.waiting) for _, replica in self.places) + sum(len(g.parked) for g in self.groups)
        return Checkpoint(tally.arrived, now, tally.finished, sum(tally.refused.values()), away, waiting)

    def _full(self, limit: int) -> bool:
        fronts = self.serving if self.front is self.serve else (self.front,)
        active = [replica for group in fronts for replica in group.active]
        waiting = sum(len(replica.waiting) for replica in active) + sum(len(group.parked) for group in fronts)
        return waiting >= limit and all(replica.busy or replica.waiting for replica in active)

    def _route(self, sequence: Sequence, now: float) -> None:
        if self.chooses:
            self._choose(sequence, now)
        elif sequence.context > self.front.longest:
            self._refuse(sequence.request, TOO_LONG, now)
        else:
            self.front.route(sequence, now)
        if self.to_zero:
            self._rouse(now)

    def _choose(self, sequence: Sequence, now: float) -> None:
        """Give a request to one of the pools that take it: those for the shortest requests of them."""
        request = sequence.request
        taking = [group for group in self.serving if group.takes(request)]
        if not taking:
            self._refuse(request, NO_POOL, now)
            return
        least = min(group.limit for group in taking)
        taking = [group for group in taking if group.limit == least]
        replicas = [replica for group in taking for replica in group.active]
        if replicas:
            send(self.serve.router, replicas, sequence, now)
        else:
            taking[0].parked.append(sequence)

    def _refuse(self, request: SimulatedRequest, reason: str, now: float) -> None:
        self.tally.refuse(request, reason)
        if self.kinds:
            self.kinds[request.kind].refuse(request, reason)
        self._follow(request, now)

    def _follow(self, request: SimulatedRequest, now: float) -> None:
        """Whoever had this request may send another."""
        if self.tally.arrived >= self.total:
            return
        another = self.after(request, now) if self.after is not None else None
        if another is not None:
            self._push(another.arrival_s + self.overhead_s, ARRIVE, another.number, 0, another)

    def _finished(self, sequence: Sequence, replica: Replica, now: float) -> None:
        tally, shared = self.tally, self.shared
        tally.finish(sequence, now, replica.index)
        if self.kinds:
            self.kinds[sequence.request.kind].finish(sequence, now, replica.index)
        if len(shared.log.rows) > FRESH or len(shared.log.queues) > FRESH:
            shared.log.settle()
        if tally.finished >= self.next_finished:
            self.next_finished += self.look_every
            self.departures.append(self._books(now))
            if self.progress is not None:
                self.progress(tally.finished)
        if shared.recorder is not None:
            shared.recorder.request(sequence, replica.index, now)
        if self.after is not None:
            self._follow(sequence.request, now)

    def _send(self, sequence: Sequence, replica: Replica, now: float) -> None:
        """A prompt's cache leaves a prefill replica, after those it is sending already."""
        free = max(self.front.link_free_s.get(replica.index, 0.0), now)
        arrives = free + replica.times.transfer(sequence.context)
        self.front.link_free_s[replica.index] = arrives
        self._push(arrives, DELIVER, replica.index, sequence.order, (sequence, replica, replica.epoch))

    def _deliver(self, now: float, sequence: Sequence, source: Replica, epoch: int) -> None:
        """A cache has arrived; the token that came out of its prefill comes with it."""
        if source.epoch != epoch:
            return  # the sender died on the way, and the request began again
        source.delivered(sequence, now)
        self.tally.token(sequence, now)
        sequence.ready = True
        self.serve.route(sequence, now)
        if self.to_zero:
            self._rouse(now)

    def _fail(self, now: float, index: int, for_s: float, notice_s: float, since: float) -> None:
        """A replica dies, or is told that it will; not one that has come back `since` that was decided."""
        group, replica = self.places[index]
        if not replica.alive or since not in (-1.0, replica.since):
            return
        if notice_s and replica in group.active:
            group.active.remove(replica)
            self._push(now + notice_s, FAIL, index, for_s, (0.0, replica.since))
            return
        self.tally.failures += 1
        group.close(replica, now)
        self.front.link_free_s.pop(index, None)
        for sequence in replica.fail(now):
            sequence.reset()
            sequence.retries += 1
            self.tally.retried += 1
            self._route(sequence, now)
        if for_s < inf and not replica.draining:
            self._return(now + for_s, index, 0)

    def _scale(self, group_index: int, now: float) -> None:
        group = self.groups[group_index]
        rule = group.pool.autoscale
        assert rule is not None
        self._adjust(group, now)
        self.ticks -= 1
        if len(self.shared.heap) > self.ticks:  # something else is still to happen
            self._tick(now + rule.every_s, group_index)

    def _adjust(self, group: Group, now: float) -> None:
        """Ask for replicas, or let some go, as the pool's rule says now."""
        rule = group.pool.autoscale
        assert rule is not None
        assert group.scaler is not None
        group.let_go(now)
        wanted = group.scaler.wanted(group.active, len(group.parked), now)
        while (replica := group.scale(wanted, len(self.places))) is not None:
            if replica.index == len(self.places):
                self.places.append((group, replica))
            self._return(now + rule.startup_s, replica.index, 1)

    def _rouse(self, now: float) -> None:
        """A request that finds a pool without replicas asks for one at once, as a gateway before a fleet that scales
        to zero does; those that come meanwhile wait for it too."""
        for group in self.groups:
            if group.parked and group.scaler is not None and not group.active and not group.starting:
                self._adjust(group, now)

    def _close(self) -> None:
        """Settle the books."""
        for group in self.groups:
            if group.parked and self.options.until_s == inf:
                for sequence in group.parked:
                    self.tally.refuse(sequence.request, NO_REPLICA)
                group.parked.clear()
            for replica in group.replicas:
                replica.count_queue(self.now)
                if replica.alive:
                    group.up_s += self.now - replica.since
                    self.series.add("up", replica.since, self.now, 1)
                    if replica.busy and replica.began < self.now:
                        replica.settle(self.now)
        self.shared.log.settle()
        for tally in (self.tally, *self.kinds):
            tally.settle()
