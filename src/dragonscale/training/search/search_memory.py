"""What a search remembers of the plans it sees: those near the fastest, the best of every shape of mesh, time against
memory.

Most plans are far from the best and cost a few comparisons. Those that are near are kept as rows of numbers
(`NearPlans`), and made into plans only when the search is over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy

from dragonscale.models.program import longest_run
from dragonscale.plan.finite import check_terms
from dragonscale.plan.pareto import Front
from dragonscale.training.cost.evaluation import DEGREES, Job
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import SOME_LAYERS, Plan
from dragonscale.training.plan.simplicity import handicap, order, points, setting_points
from dragonscale.training.plan.stages import layout_for
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.fast import Chosen, Judged
from dragonscale.training.search.headroom import room_bytes
from dragonscale.training.search.legal import counts_ends, unrunnable
from dragonscale.training.search.run_kinds import needed_gains

SHAPE = ("pipe", "expert", "context", "tensor")
"""Meshes that agree in these are variants of one plan: they differ in how replicas share their state."""

# What a point of simplicity adds to the time, as a fraction of it, when the best plan of a shape is chosen.
POINT_SHARE = 0.002
# Plans slower than the fastest by this factor are not recommended, so an uneven load of their experts is not judged.
MAX_SLOWDOWN = 1.1
# Plans of a pool before it is thinned.
MAX_ROWS = 8192

# Rows of a pool's table, which has a column for each plan. Rows 1 to 8 are the plan's degrees.
SETTINGS = 0  # index into the pool's settings
WEIGHED = 1 + len(DEGREES)  # seconds of a step, weighed by what is asked of plans of its kind
SECONDS = 10
HBM_BYTES = 11
POINTS = 12  # of simplicity
MICROBATCHES = 13
RECOMPUTED = 14  # layers of each chunk that are recomputed, where a search may choose their number


@dataclass(frozen=True)
class Candidate:
    """A plan with what a search compares."""

    plan: Plan
    seconds: float
    hbm_bytes: float
    roomy: bool = True
    """Whether it leaves headroom in memory (`headroom`), with an uneven load of experts too."""


@dataclass(frozen=True)
class SeenRows:
    """Rows that are judged together: where a shape of mesh begins and the number of each, how their time is weighed,
    with weights and gradients whole and with sharded ones, and of which of them our own program has the stages."""

    chosen: Chosen
    starts: Any
    shapes: Any
    weights: tuple[Any, Any]
    staged: Any

    def weight(self, settings: Plan) -> Any:
        """How the time of the rows is weighed under some words."""
        return self.weights[settings.zero >= 2]


@dataclass
class NearPlans:
    """The plans near the fastest: within the window, and at least `count` of them. `layers` are the model's."""

    count: int
    window: float
    layers: int
    fastest: float = numpy.inf
    last: float = numpy.inf
    settings: list[Plan] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    size: int = 0

    @property
    def limit(self) -> float:
        """What is slower is of no interest."""
        return max(self.fastest * (1 + self.window), self.last)

    def take(
        self, settings: Plan, chosen: Chosen, places: Any, times: tuple[Any, Any], hbm_bytes: Any, sequence: int
    ) -> None:
        """Keep those of some places whose weighed time is near."""
        weighed, seconds = times
        self.fastest = min(self.fastest, float(weighed.min()))
        is_near = weighed <= self.limit  # (places,)
        near_rows = places[is_near]
        degrees = {name: chosen.degrees[name][near_rows] for name in DEGREES}
        rounds = numpy.broadcast_to(chosen.microbatches, len(chosen))[near_rows]
        columns = [len(self.settings), *degrees.values(), weighed[is_near], seconds[near_rows], hbm_bytes[near_rows]]
        columns += [points(settings, degrees, sequence) + layout_points(settings, degrees, self.layers), rounds]
        columns += [chosen.degrees[SOME_LAYERS][near_rows] if SOME_LAYERS in chosen.degrees else 0]
        # A table of floats: a row for each quantity, a column for each plan.
        self.rows.append(numpy.stack([numpy.broadcast_to(column, len(near_rows)).astype(float) for column in columns]))
        self.settings.append(settings)
        self.size += len(near_rows)
        if self.size > MAX_ROWS or self.last == numpy.inf:
            self._thin()

    def _thin(self) -> None:
        """Leave out what is no longer near; of too many that are, the fastest of each mesh and words."""
        table = self.table()
        table = table[:, numpy.argsort(table[WEIGHED], kind="stable")]
        self.last = float(table[WEIGHED, self.count - 1]) if table.shape[1] >= self.count else numpy.inf
        table = table[:, table[WEIGHED] <= self.limit]
        # Of too many, microbatches are variants of one plan.
        if table.shape[1] > MAX_ROWS // 2:
            settings_and_mesh = [row for row in range(WEIGHED) if row != 1 + DEGREES.index("microbatch")]
            _, fastest = numpy.unique(table[settings_and_mesh], axis=1, return_index=True)
            table = table[:, numpy.sort(fastest)[: MAX_ROWS // 2]]
        self.rows, self.size = [table], table.shape[1]

    def table(self) -> Any:
        """Everything kept, a column for each plan."""
        return numpy.concatenate(self.rows, axis=1) if self.rows else numpy.empty((RECOMPUTED + 1, 0))

    def ranked(self, limit: float, slack: float) -> list[Candidate]:
        """The plans near the fastest, the recommended ones first, then those that are fast."""
        table = self.table()
        if not table.shape[1]:
            return []
        table = table[:, table[WEIGHED] <= self.limit]
        rare = table[WEIGHED] > (1 + 1e-9) * table[SECONDS]
        places = order(table[WEIGHED], table[HBM_BYTES] / limit, table[POINTS], table[MICROBATCHES], slack, rare)
        # The fastest as well, whatever is asked more of their kind.
        fastest = numpy.argsort(table[SECONDS], kind="stable")[: 4 * self.count]
        return [self._candidate(table[:, index]) for index in dict.fromkeys([*places[: self.count], *fastest])]

    def _candidate(self, row: Any) -> Candidate:
        degrees = {name: int(value) for name, value in zip(DEGREES, row[1:WEIGHED], strict=True)}
        if row[RECOMPUTED]:
            degrees[SOME_LAYERS] = int(row[RECOMPUTED])
        plan = dealt(self.settings[int(row[SETTINGS])], degrees, self.layers)
        return Candidate(plan, float(row[SECONDS]), float(row[HBM_BYTES]))


@dataclass
class Keeper:
    """What a search remembers of the plans it has seen. `pools` are of all plans that leave room in memory, of those
    that `dscale run` and `dscale verify` take; `least` are the least full plans of each, while
    none leaves room."""

    job: Job
    count: int
    slack: float
    dtype: str = "bf16"
    pools: list[NearPlans] = field(init=False)
    least: list[Candidate | None] = field(default_factory=lambda: [None, None])
    front: Front = field(default_factory=Front)
    shapes: dict[int, int] = field(default_factory=dict)
    leaders: list[tuple[Plan, dict[str, int], float, float] | None] = field(default_factory=list)
    scores: Any = field(default_factory=lambda: numpy.empty(0))
    misses: dict[str, int] = field(default_factory=dict)
    nearest: Candidate | None = None
    searched: int = 0
    feasible: int = 0

    def __post_init__(self) -> None:
        self.pools = [NearPlans(4 * self.count, self.slack, self.layers), NearPlans(1, self.slack, self.layers)]

    @cached_property
    def room(self) -> float:
        """Bytes that a recommended plan may fill."""
        return room_bytes(self.job)

    @cached_property
    def layers(self) -> int:
        """Layers of the model; 0 where the stack never counts the embedding and the head as two more."""
        row = rules(self.job.stack.name, family(self.job.slice.chip), tuned=self.job.tuning.tunes)
        return len(self.job.model.program().order) if counts_ends(row) else 0

    @cached_property
    def error(self) -> float:
        """How far off steps of the job's stack on its chips have been."""
        return job_error(self.job)

    def batch(self, chosen: Chosen) -> SeenRows:
        """Rows made ready to be seen under several words. Rows of one shape stand together."""
        # The degrees of a shape in one integer, with enough bits for each.
        key = numpy.zeros(len(chosen), numpy.int64)
        for name, bits in zip(SHAPE, (0, 14, 18, 18), strict=True):
            key = (key << bits) + chosen.degrees[name]
        starts = numpy.concatenate([[0], numpy.flatnonzero(key[1:] != key[:-1]) + 1])
        shapes = numpy.array([self.shapes.setdefault(shape, len(self.shapes)) for shape in key[starts].tolist()])
        more = len(self.shapes) - len(self.leaders)
        self.leaders += [None] * more
        self.scores = numpy.concatenate([self.scores, numpy.full(more, numpy.inf)])
        whole = needed_gains(self.job, chosen.degrees, 1, self.error, self.dtype)
        sharded = needed_gains(self.job, chosen.degrees, 3, self.error, self.dtype)
        weights = handicap(whole, self.slack), handicap(sharded, self.slack)
        return SeenRows(chosen, starts, shapes, weights, self.staged(chosen.degrees))

    def staged(self, degrees: dict[str, Any]) -> Any:
        """Which plans have stages that our own program runs: of one kind of layer, and even where there are several."""
        order, chunks = self.job.model.program().order, degrees["pipe"] * degrees["virtual"]
        longest = longest_run(order)[1].times
        ends = (len(order) % chunks != 0) & ((len(order) + 2) % chunks == 0) & bool(self.layers)
        return (degrees["pipe"] == 1) | ((chunks <= longest + 2 * ends) & (~ends | (longest == len(order))))

    def see(self, settings: Plan, batch: SeenRows, judged: Judged, line: int, uneven: Callable[[Any], Any]) -> None:
        """Take in a batch of plans: one remat policy's line of what was judged; `uneven` tells the bytes at some places
        where the load of experts is uneven."""
        chosen, limit, size = batch.chosen, self.job.slice.chip.visible, len(batch.chosen)
        seconds, hbm_bytes = judged.seconds[line], numpy.broadcast_to(judged.hbm_bytes[line], size)
        possible, fits = numpy.broadcast_to(judged.possible, size), hbm_bytes <= limit
        # All plans of a batch have a pipeline or none has.
        runs = not unrunnable(replace(settings, pipe=min(int(chosen.degrees["pipe"][0]), 2), context=2, tensor=2))
        if settings.remat != SOME_LAYERS:  # how many layers follows from memory: a variant, no plan of its own
            self.searched += size
            self._count(possible, fits)
            self.feasible += int(numpy.count_nonzero(possible & fits))
        good = possible & fits
        is_roomy = good & (hbm_bytes <= self.room)
        if self.job.experts:
            # Where the load of experts is uneven, fast plans may leave less room than it seems.
            fast = numpy.flatnonzero(is_roomy & (seconds <= MAX_SLOWDOWN * self.pools[0].fastest))
            if len(fast):
                uneven_bytes = uneven(fast)
                check_terms({"memory": numpy.where(numpy.isnan(uneven_bytes), uneven_bytes, 0.0)}, True, str(settings))
                is_roomy[fast] = uneven_bytes <= self.room
        places = numpy.flatnonzero(good)  # rows that lie on the network and fit

        def label(row: int) -> Candidate:
            degrees = {name: int(values[row]) for name, values in chosen.degrees.items()}
            costs = float(seconds[row]), float(hbm_bytes[row]), bool(is_roomy[row])
            return Candidate(dealt(settings, degrees, self.layers), *costs)

        if len(places):
            roomy = places[is_roomy[places]]
            for pool_index, pool in enumerate(self.pools[: 1 + runs]):
                counted, fit = roomy, places
                if pool_index:  # of plans that our own program runs
                    counted, fit = roomy[batch.staged[roomy]], places[batch.staged[places]]
                weighed = (seconds * batch.weight(settings))[counted]
                if len(counted) and weighed.min() <= pool.limit:
                    pool.take(settings, chosen, counted, (weighed, seconds), hbm_bytes, self.job.sequence)
                elif len(fit) and not pool.size and not len(counted):
                    self._fill(pool_index, seconds, hbm_bytes, fit, label)
            self.front.offer(seconds[places], hbm_bytes[places], lambda position: label(int(places[position])))
            if self.count > 1 and len(roomy):
                self._lead(settings, batch, numpy.where(is_roomy, seconds, numpy.inf), hbm_bytes)
        elif not self.feasible:
            self._miss(possible, hbm_bytes, label)

    def ranked(self, index: int) -> list[Candidate]:
        """The plans of a pool, the recommended one first; where none leaves room, the least full."""
        least = self.least[index]
        candidates = self.pools[index].ranked(self.job.slice.chip.visible, self.slack)
        return candidates or ([] if least is None else [least])

    def tight(self) -> list[Candidate]:
        """The plans that leave no room and that no other beats in both time and memory, the fastest first."""
        return [candidate for candidate in self.front.labels if not candidate.roomy]

    def leading(self) -> list[Candidate]:
        """The best plan of every shape that has one."""
        candidates: list[Candidate] = []
        for leader in self.leaders:
            if leader is not None:
                settings, degrees, step_s, hbm_bytes = leader
                candidates.append(Candidate(dealt(settings, degrees, self.layers), step_s, hbm_bytes))
        return candidates

    def _lead(self, settings: Plan, batch: SeenRows, seconds: Any, hbm_bytes: Any) -> None:
        """Remember the best plan of every shape."""
        weighed = seconds * batch.weight(settings)
        # The best time of each shape of the batch: (shapes,).
        scores = numpy.minimum.reduceat(weighed, batch.starts) * (1 + POINT_SHARE * setting_points(settings))
        for index in numpy.flatnonzero(scores < self.scores[batch.shapes]).tolist():
            shape = int(batch.shapes[index])
            if scores[index] < self.scores[shape]:
                start, stop = batch.starts[index], (*batch.starts[index + 1 : index + 2], len(seconds))[0]
                self.scores[shape] = scores[index]
                best = int(start + numpy.argmin(weighed[start:stop]))
                degrees = {name: int(values[best]) for name, values in batch.chosen.degrees.items()}
                self.leaders[shape] = (settings, degrees, float(seconds[best]), float(hbm_bytes[best]))

    def _fill(self, pool: int, seconds: Any, hbm_bytes: Any, places: Any, label: Callable[[int], Candidate]) -> None:
        """Remember the least full plan, to the percent, and of as full ones the fastest."""
        percent = numpy.ceil(hbm_bytes[places] / self.job.slice.chip.visible * 100)
        best = int(places[numpy.lexsort((seconds[places], percent))[0]])
        candidate, old = label(best), self.least[pool]
        if old is None or self._fullness(candidate) < self._fullness(old):
            self.least[pool] = candidate

    def _fullness(self, candidate: Candidate) -> tuple[float, float]:
        return float(numpy.ceil(candidate.hbm_bytes / self.job.slice.chip.visible * 100)), candidate.seconds

    def _count(self, possible: Any, fits: Any) -> None:
        for name, broken in (("torus", ~possible), ("memory", possible & ~fits)):
            self.misses[name] = self.misses.get(name, 0) + int(numpy.count_nonzero(broken))

    def _miss(self, otherwise: Any, hbm_bytes: Any, label: Callable[[int], Candidate]) -> None:
        places = numpy.flatnonzero(otherwise)
        if len(places):
            row = int(places[numpy.argmin(hbm_bytes[places])])
            if self.nearest is None or hbm_bytes[row] < self.nearest.hbm_bytes:
                self.nearest = label(row)


def dealt(settings: Plan, degrees: dict[str, int], layers: int) -> Plan:
    """A plan of the search, with the layout that its layers were dealt by and how many of them are recomputed."""
    layout, remat = settings.layout, settings.remat
    if layout == "even":
        layout = layout_for(layers, degrees["pipe"], degrees["virtual"])
    sizes = dict(degrees)
    if SOME_LAYERS in sizes:
        remat = f"block:{sizes.pop(SOME_LAYERS)}"
    return replace(settings, **sizes, layout=layout, remat=remat)


def layout_points(settings: Plan, degrees: dict[str, Any], layers: int) -> Any:
    """The point of a layout that plans get when their layers are dealt, which their words do not say yet.

    >>> numbers = {"pipe": numpy.array([2, 2, 1]), "virtual": numpy.array([41, 40, 1])}
    >>> layout_points(Plan(), numbers, 80).tolist()  # 80 layers and two ends
    [1, 0, 0]
    """
    if settings.layout != "even" or not layers:
        return 0
    stages, which = numpy.unique(numpy.stack([degrees["pipe"], degrees["virtual"]]), axis=1, return_inverse=True)
    uneven = [layout_for(layers, int(pipe), int(virtual)) != "even" for pipe, virtual in stages.T]
    return numpy.array(uneven, int)[which.reshape(-1)]
