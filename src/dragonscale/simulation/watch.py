"""What each replica does over time, for those who want to see a fleet and not only its sums.

A replica is looked at when an activity ends, at most once in `every_s`, and whenever it runs out of work; it counts as
unchanged until the next look. When looks become too many, `every_s` doubles and only the last look of each interval is
kept, so that a run of any length takes the same memory, and nothing is computed between looks.
"""

from typing import Any, NamedTuple

import numpy

FIRST_S = 0.01
LOOKS = 512
"""Most looks at one replica; thinning leaves about half."""
MOMENTS = 160
"""Equal intervals by which a finished run is described."""
QUANTITIES = ("running", "waiting", "pages", "tokens")


class ReplicaLook(NamedTuple):
    """A replica at one time: its requests, the used fraction of its cache, and the tokens that had come out."""

    seconds: float
    running: int
    waiting: int
    pages: float
    emitted: float


class ReplicaWatch:
    """Looks at the first `max_replicas` replicas of a run."""

    def __init__(self, max_replicas: int) -> None:
        self.max_replicas, self.every_s = max_replicas, FIRST_S
        self.looks: dict[int, list[ReplicaLook]] = {}

    def look(self, replica: Any, now: float) -> float:
        """Note a replica's state; returns when it is to be looked at again."""
        if replica.index >= self.max_replicas:
            return float("inf")
        pages = replica.pages
        used = 1 - pages.room / pages.capacity
        running = replica.batch.live + len(replica.prefilling)
        looks = self.looks.setdefault(replica.index, [])
        looks.append(ReplicaLook(now, running, len(replica.waiting), used, replica.emitted))
        if len(looks) > LOOKS:
            self.every_s *= 2
            self.looks = {index: self._thinned(replica_looks) for index, replica_looks in self.looks.items()}
        return now + self.every_s if replica.busy else now

    def _thinned(self, looks: list[ReplicaLook]) -> list[ReplicaLook]:
        return list({int(look.seconds / self.every_s): look for look in looks}.values())

    def tracks(self, until: float) -> dict[str, list[tuple[float, float]]]:
        """(seconds, value) at equal intervals up to the end, by quantity and replica (`running:0`, …).

        Requests and the used fraction of the cache are those last seen, tokens per second the slope between looks.
        """
        tracks: dict[str, list[tuple[float, float]]] = {}
        edges = numpy.linspace(0.0, until, MOMENTS + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        for index, looks in sorted(self.looks.items()) if until > 0 else ():
            seconds, *kinds, emitted = numpy.array(looks, float).T
            before = numpy.searchsorted(seconds, middles, "right")
            rows = [numpy.append(0.0, values)[before] for values in kinds]
            out = numpy.interp(edges, numpy.append(0.0, seconds), numpy.append(0.0, emitted))
            rows.append(numpy.diff(out) / (until / MOMENTS))
            for name, values in zip(QUANTITIES, rows, strict=True):
                tracks[f"{name}:{index}"] = list(zip(middles.tolist(), values.tolist(), strict=True))
        return tracks
