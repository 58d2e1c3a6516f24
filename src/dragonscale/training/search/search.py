"""Every plan of a space that the stack can run judged, the best ones kept, in blocks that fit the cache.

The answer is optimal under the model over what is offered (`offer`, `space`); what is ruled out is counted. Plans that
are not feasible are counted by the limit they break, and the one that misses by least is kept, so that an empty answer
still says what to change.

The plans that a search shows: the recommended one first, then others by time, no two of them the same to a reader.

Twins, plans of one shape of mesh whose time and memory are the same to a thousandth, are shown once, as the simplest of
them; and of a shape at most `MAX_OF_A_SHAPE` are shown while there are others.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy

from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import (
    DEGREES,
    Job,
    Structure,
    degrees_of,
    judge_one,
    problems,
    structures,
)
from dragonscale.training.plan.legality import Legality, family, rules
from dragonscale.training.plan.plan import SOME_LAYERS, Plan, layer_policies, layers_of
from dragonscale.training.plan.simplicity import SAME, SLACK, handicap, points
from dragonscale.training.plan.stages import BOTH_WAYS
from dragonscale.training.search.allowed_space import fallback, offered, offered_alike, offered_words, refusals
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.fast import (
    Costs,
    PlanRows,
    Shapes,
    choose,
    cost_rows,
    judge_rows,
    lower_bounds,
    shapes_of,
    take,
)
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import deals, illegal, unrunnable
from dragonscale.training.search.run_kinds import needed_gains
from dragonscale.training.search.search_memory import SHAPE, Candidate, Keeper, SeenRows
from dragonscale.training.search.space import (
    Kind,
    Space,
    deals_heads,
    even_chunks,
    kind_of,
    kinds_of,
    rows_of,
    select_rows,
)

# Rows judged at once: small enough for a processor's cache, large enough that NumPy's overhead does not show.
BLOCK_ROWS = 16384

# Plans of the front whose lower bounds are checked.
FRONT_SAMPLE = 8

# Plans listed that leave no headroom in memory, beside the recommended one and others that do.
MAX_TIGHT = 2

# Bytes a second to the host from which a search offloads activations: NVLink-C2C of Grace, where NVIDIA's recipes do
# (Megatron-Bridge: Llama 3 70B on GB200, fsdp=64 with 20 layers); over PCIe no run is published.
MIN_OFFLOAD_BANDWIDTH = 200e9
# The best plans, which are tried with offloading too.
FINALISTS = 5
# The speedup from which offloading is recommended: it needs pinned host memory and is rare.
MIN_OFFLOAD_GAIN = 0.03

NOT_OFFERED = "not supported by the stack"
"""Plans that the stack cannot run, or that a search tries only when asked."""
Progress = Callable[[int, int], None]
"""Called with the plans judged so far, and how many there are."""

# Steps of a progress bar for each of several searches.
TICKS = 1000


def shared(progress: Progress | None, done: int, parts: int) -> Progress | None:
    """One bar over several searches: this is the search after `done` of `parts`."""
    if progress is None:
        return None
    return lambda finished, total: progress(int((done + finished / max(total, 1)) * TICKS), parts * TICKS)


@dataclass
class Found:
    """The result of a search: the recommended plan and others, the fastest, the best that `dscale run` and `dscale
    verify` take, the front of time against memory, and what became of the rest."""

    best: list[Candidate]
    front: list[Candidate]
    searched: int
    feasible: int
    misses: dict[str, int]
    nearest: Candidate | None
    seconds: float
    fastest: Candidate | None = None
    runs: Candidate | None = None

    @property
    def judged(self) -> int:
        """Plans that were costed: those that the stack can run."""
        return self.searched - self.misses.get(NOT_OFFERED, 0)


def search(
    job: Job,
    space: Space | None = None,
    count: int = 5,
    progress: Progress | None = None,
    slack: float = SLACK,
    bounded: bool = True,
) -> Found:
    """The recommended plan of a space and the best of other meshes (`simplicity` says which of those within the slack
    is recommended; without slack the fastest that leaves room in memory is), and the front of time against memory.

    An expected step is never below its lower bound. That bound hardly ever decides, so plans are first compared without
    it, which can only flatter them; if it changes nothing for those that are answered (of the front, a sample), it
    changes nothing at all, and otherwise the search is repeated with it; unless who asks judges its plans alone, with
    their bounds (`bounded` false).
    """
    start, requested = time.perf_counter(), space or Space()
    space = offered(job, requested)
    if refusals(job, requested):
        return Found([], [], 0, 0, {}, None, time.perf_counter() - start)
    dtype, free = space.words.dtype, SOME_LAYERS in space.remat and "offload" not in requested.named
    offloads = free and space.words.offload == "none" and job.slice.chip.host_link >= MIN_OFFLOAD_BANDWIDTH
    # The recommendation does not depend on how many plans are shown.
    pool_size = max(count, FINALISTS) if offloads else count
    # First without lower bounds, which hardly ever decide.
    keeper = Keeper(job, pool_size, slack, dtype)
    _run(keeper, space, progress, bounded=False)
    if not keeper.pools[0].size and (last_resort := fallback(job, requested, space)) is not None:
        _run(keeper, last_resort, progress, bounded=False)
        space = replace(space, remat=(*space.remat, *last_resort.remat))
    result = _result_of(keeper)
    shown = [*result.best, result.fastest]
    if count > 1:  # of a search for one plan nothing else is shown
        shown += [*result.front[:: -(-len(result.front) // FRONT_SAMPLE) or 1], result.runs]
    if bounded and _flattered(job, [candidate for candidate in shown if candidate is not None]):
        keeper = Keeper(job, pool_size, slack, dtype)
        _run(keeper, space, progress, bounded=True)
        result = _result_of(keeper)
    # Plans that the stack cannot run are counted, not costed.
    left_out = max(whole_size(job, requested) - result.searched, 0)
    misses = {NOT_OFFERED: left_out} | result.misses
    searched = result.searched + left_out
    best = [_alone(job, candidate, SOME_LAYERS in space.remat) for candidate in result.best]
    if offloads and best:
        best = _with_offload(job, best[:FINALISTS], slack) + best[FINALISTS:]
    fastest = result.fastest and _alone(job, result.fastest, False)
    # With fewer layers recomputed the recommended plan may be the fastest.
    if best and (fastest is None or best[0].seconds < fastest.seconds):
        fastest = best[0]
    elapsed = time.perf_counter() - start
    return replace(result, fastest=fastest, best=best[:count], searched=searched, misses=misses, seconds=elapsed)


def _result_of(keeper: Keeper) -> Found:
    """The result of a search as far as its plans were judged together."""
    ranked, runs = keeper.ranked(0), keeper.ranked(1)
    others = [*keeper.leading(), *keeper.tight()[:MAX_TIGHT]]
    best = listed(ranked, others, keeper.count, keeper.job.sequence)
    fastest = next(iter(keeper.front.labels), None)
    runnable = next((candidate for candidate in runs if not unrunnable(candidate.plan, keeper.job.model)), None)
    counts = (keeper.searched, keeper.feasible, keeper.misses)
    return Found(best, keeper.front.labels, *counts, keeper.nearest, 0.0, fastest, runnable)


def _alone(job: Job, candidate: Candidate, free: bool) -> Candidate:
    """A plan that recomputes some layers as it is judged alone; where their number is free, with as few as leave room:
    often fewer by one than the line between none and all of them says."""
    layers = layers_of(candidate.plan.remat)
    for count in range(layers, 0, -1):
        plan = replace(candidate.plan, remat=f"block:{count}")
        alone = judge_one(job, plan)
        roomy = leaves_room(job, plan, alone)
        if count < layers and not (free and roomy):
            break
        candidate = Candidate(plan, first_number(alone.seconds), first_number(alone.hbm_bytes), roomy)
    return candidate


def _with_offload(job: Job, best: list[Candidate], slack: float) -> list[Candidate]:
    """Plans, of which those that recompute some layers may have what these save in the host's memory instead; such a
    plan is recommended where it gains enough."""
    tried = [_offloaded(job, candidate) if layers_of(candidate.plan.remat) else candidate for candidate in best]

    def weighed(candidate: Candidate) -> float:
        gains = needed_gains(job, vars(candidate.plan), candidate.plan.zero, job_error(job), candidate.plan.dtype)
        return candidate.seconds * float(handicap(gains, slack))

    enough = weighed(best[0]) / (1 + MIN_OFFLOAD_GAIN)  # it must gain that much over the recommended plan
    sent = [candidate for candidate in tried if layers_of(candidate.plan.offload) and weighed(candidate) < enough]
    recommended = min(sent, key=weighed, default=best[0])
    return [recommended, *(candidate for candidate in tried if candidate.plan not in (recommended.plan, best[0].plan))]


def _offloaded(job: Job, candidate: Candidate) -> Candidate:
    """A plan that recomputes some layers with what these save in the host's memory instead, where that is faster and
    leaves room; one layer more, since one is on its way."""
    plan = replace(candidate.plan, remat="none", offload=f"activations:{layers_of(candidate.plan.remat) + 1}")
    if illegal(job, plan):
        return candidate
    alone = judge_one(job, plan)
    sent = Candidate(plan, first_number(alone.seconds), first_number(alone.hbm_bytes))
    roomy = leaves_room(job, plan, alone) and not problems(job, plan, alone)
    return sent if roomy and sent.seconds < candidate.seconds else candidate


def _flattered(job: Job, candidates: list[Candidate]) -> bool:
    """Whether the lower bound changes the time of any of these plans."""
    if not candidates:
        return False
    degrees = degrees_of([candidate.plan for candidate in candidates])
    changed: dict[str, Any] = dict.fromkeys(DEGREES, 1)
    settings = [
        replace(candidate.plan, **changed, remat=layer_policies(candidate.plan.remat)[0]) for candidate in candidates
    ]
    # Plans of the same settings and structure are judged in one batch.
    kinds, which = structures(job, degrees, candidates[0].plan.etp)  # a search does not vary it
    groups: dict[tuple[Plan, int], list[int]] = {}
    for index, group in enumerate(zip(settings, which.tolist(), strict=True)):
        groups.setdefault(group, []).append(index)
    for (plan, kind), mine in groups.items():
        folded, undivided = kinds[kind]
        rows = PlanRows(job, take(degrees, numpy.array(mine)), folded, dict(undivided))
        chosen = choose(rows, slice(0, len(rows)), rows.degrees["virtual"], plan.layout)
        least = lower_bounds(rows, plan, chosen, cost_rows(rows, plan, (plan.remat,), bound=True))
        if numpy.any(least > numpy.array([candidates[index].seconds for index in mine]) * (1 + 1e-9)):
            return True
    return False


def _run(keeper: Keeper, space: Space, progress: Progress | None, bounded: bool) -> None:
    """Judge every plan of a space, block by block; the keeper remembers the best. `bounded`: with lower bounds."""
    job, before = keeper.job, keeper.searched
    table = list(blocks(job, rows_of(job, space), space.words.etp))
    total = before + sum(block_size(job, space, kind, block) for kind, _, block in table)
    policies = tuple(dict.fromkeys(policy for remat in space.remat for policy in layer_policies(remat)))
    layout = space.words.layout
    if layout == "even" and keeper.layers:
        layout = ""  # the search deals the layers itself
    for (kind, (folded, undivided), block), (shapes, which) in zip(table, _shapes(job, table), strict=True):
        rows = PlanRows(job, block, folded, dict(undivided), shapes, which)
        batches: list[tuple[tuple[str, ...], SeenRows]] = []
        for schedules, (places, virtual) in batches_of(job, space, block):
            batches.append((schedules, keeper.batch(choose(rows, places, virtual, layout))))
        for settings in offered_words(job, space, kind, block):
            costs: dict[str, Costs] = {}  # by the schedule that costs the same before layers are put into stages
            least: list[Costs] = []
            if bounded:
                for policy in policies:
                    least.append(cost_rows(rows, replace(settings, remat=policy), (policy,), bound=True))
            for schedules, batch in batches:
                chosen = batch.chosen
                floor = [bound_costs.at(chosen.places) for bound_costs in least]
                batch_costs: dict[str, Costs] = {}  # the same, of the rows of this batch
                for schedule in schedules:
                    alike = costed_as(job, settings, schedule)
                    if alike not in costs:
                        costs[alike] = cost_rows(rows, replace(settings, schedule=alike), policies)
                    if alike not in batch_costs:
                        batch_costs[alike] = costs[alike].at(chosen.places)
                    named = replace(settings, schedule=schedule)
                    judged = judge_rows(rows, named, policies, chosen, batch_costs[alike], floor)
                    if settings.context_by == "ulysses":
                        judged = replace(judged, possible=judged.possible & deals_heads(job, settings, chosen.degrees))
                    for remat in space.remat:
                        plan = replace(named, remat=remat)
                        lines = [policies.index(policy) for policy in layer_policies(remat)]
                        if len(lines) == 1:
                            keeper.see(plan, batch, judged, lines[0], partial(rows.uneven_bytes, plan, chosen))
                            continue
                        # Some layers are recomputed: time and bytes between those of two policies.
                        some, between = judged.with_layers(chosen, lines, remat, keeper.room)
                        if len(some.degrees[SOME_LAYERS]):
                            keeper.see(plan, keeper.batch(some), between, 0, partial(rows.uneven_bytes, plan, some))
                    if progress is not None:
                        progress(keeper.searched, total)


def _shapes(job: Job, table: list[Any]) -> list[tuple[Shapes, Any]]:
    """The shapes that blocks of one structure share, for each block."""
    blocks_of: dict[Structure, list[int]] = {}
    for index, (_, structure, _) in enumerate(table):
        blocks_of.setdefault(structure, []).append(index)
    by_block: dict[int, tuple[Shapes, Any]] = {}
    for indices in blocks_of.values():
        shapes, which = shapes_of(job, [table[index][2] for index in indices])
        for index, rows in zip(indices, which, strict=True):
            by_block[index] = (shapes, rows)
    return [by_block[index] for index in range(len(table))]


def costed_as(job: Job, settings: Plan, schedule: str) -> str:
    """The schedule whose layers cost the same: 1F1B's, unless moves hide otherwise or travel less often."""
    if schedule in BOTH_WAYS and job.experts and job.stack.overlap.expert_two_way > job.stack.overlap.expert:
        return BOTH_WAYS[0]
    return schedule if schedule == "interleaved" and settings.zero == 2 else "1f1b"


def blocks(job: Job, table: dict[str, Any], etp: bool = False) -> Iterator[tuple[Kind, Structure, dict[str, Any]]]:
    """The table in blocks of rows of one kind and structure, still sorted by the stages of the pipeline."""
    kinds = kinds_of(job, table, etp)
    for kind in numpy.unique(kinds).tolist():
        # Rows are sorted by kind.
        start, stop = int(numpy.searchsorted(kinds, kind)), int(numpy.searchsorted(kinds, kind, side="right"))
        rows = select_rows(table, slice(start, stop))
        distinct, which = structures(job, rows, etp)
        for number, structure in enumerate(distinct):
            mine = rows if len(distinct) == 1 else select_rows(rows, which == number)
            for part in offered_alike(job, mine):
                for begin in range(0, len(part["pipe"]), BLOCK_ROWS):
                    yield kind_of(kind), structure, select_rows(part, slice(begin, begin + BLOCK_ROWS))


PickedRows = tuple[Any, Any]
"""Places of rows, and the chunks per rank of each."""


def batches_of(job: Job, space: Space, block: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], PickedRows]]:
    """Schedules with the rows that they can run. Without a pipeline every schedule is the same, and only one is tried;
    interleaving takes every row as often as there are ways to deal its layers evenly."""
    pipe = block["pipe"]
    # Rows are sorted by their stages, those without a pipeline first.
    staged, total = int(numpy.searchsorted(pipe, 2)), len(pipe)
    row = rules(job.stack.name, family(job.slice.chip), piped=True, tuned=job.tuning.tunes)
    rounds = job.batch // (block["data"] * block["fsdp"] * block["expert"] * block["microbatch"])
    if space.fixed.get("virtual", 1) == 1:
        if staged:
            yield ("1f1b",), (slice(0, staged), numpy.ones(staged, int))
        for names in _alike(row, space.schedule):
            if staged == total:  # no row has a pipeline
                break
            places = staged + numpy.flatnonzero(allowed(names[0], row, pipe[staged:], rounds[staged:]))
            if len(places):
                all_of_them = slice(staged, total) if len(places) == total - staged else places
                yield names, (all_of_them, numpy.ones(len(places), int))
    if "interleaved" in space.schedule:
        for picked in _dealt(job, space, row, pipe, rounds):
            yield ("interleaved",), picked


def _alike(row: Legality, schedules: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Schedules of one chunk a rank, those that every row can run together."""
    free: list[str] = []
    limited: list[tuple[str, ...]] = []  # each with the rows that it can run
    for name in schedules:
        if name == "interleaved":
            continue
        if name in LIMITED_SCHEDULES or name in row.rounds:
            limited.append((name,))
        else:
            free.append(name)
    if free:
        return [tuple(free), *limited]
    return limited


def _dealt(job: Job, space: Space, row: Legality, pipe: Any, rounds: Any) -> Iterator[PickedRows]:
    """Rows with each number of chunks that deals their layers evenly, about a block at a time."""
    pinned, layers = space.fixed.get("virtual"), job.model.n_layers
    places: list[Any] = []
    virtual: list[Any] = []
    runs = allowed("interleaved", row, pipe, rounds)
    for stages in numpy.unique(pipe[pipe > 1]).tolist():
        mine = numpy.flatnonzero(runs & (pipe == stages))
        if not len(mine):
            continue
        for chunks in even_chunks(layers, stages):
            if pinned in (None, chunks) and (space.force or deals(row, job.model.program().order, stages, chunks)):
                places.append(mine)
                virtual.append(numpy.full(len(mine), chunks))
            if sum(map(len, virtual)) >= BLOCK_ROWS:
                yield numpy.concatenate(places), numpy.concatenate(virtual)
                places, virtual = [], []
    if places:
        yield numpy.concatenate(places), numpy.concatenate(virtual)


def block_size(job: Job, space: Space, kind: Kind, block: dict[str, Any]) -> int:
    """The number of plans of a block."""
    rows = sum(len(names) * len(virtual) for names, (_, virtual) in batches_of(job, space, block))
    policies = len(space.remat) - space.remat.count(SOME_LAYERS)
    return rows * len(offered_words(job, space, kind, block)) * policies


def space_size(job: Job, space: Space | None = None) -> int:
    """The number of plans that a search would judge."""
    return _size(job, offered(job, space or Space()))


def _size(job: Job, space: Space) -> int:
    """The number of plans of a space."""
    table = blocks(job, rows_of(job, space), space.words.etp)
    return sum(block_size(job, space, kind, block) for kind, _, block in table)


def whole_size(job: Job, requested: Space) -> int:
    """The number of plans that were asked for, those too that the stack cannot run."""
    return _size(job, replace(requested, force=True))


# Schedules that not every pipeline can run, whatever the stack.
LIMITED_SCHEDULES = ("dualpipe",)


def allowed(schedule: str, row: Legality, pipe: Any, rounds: Any) -> Any:
    """Where a schedule can run: interleaving takes microbatches in rounds of the ranks (Narayanan et al. 2021), some
    stacks take all so, and a bidirectional pipeline has as many ranks on either side and feeds both ends."""
    if schedule == "dualpipe":
        return (pipe % 2 == 0) & (rounds % 2 == 0) & (rounds >= 2 * pipe)
    if schedule == "interleaved" or schedule in row.rounds:
        return rounds % pipe == 0
    return numpy.ones(len(pipe), bool)


# Plans listed of one shape of mesh, while there are others.
MAX_OF_A_SHAPE = 2


def shape_of(plan: Plan) -> tuple[int, ...]:
    """The part of the mesh that variants of a plan share."""
    return tuple(getattr(plan, name) for name in SHAPE)


def twins(candidate: Candidate, other: Candidate) -> bool:
    """Whether two plans are the same to a reader: of one shape, as fast and as full."""
    alike = (
        abs(candidate.seconds / other.seconds - 1) <= SAME and abs(candidate.hbm_bytes / other.hbm_bytes - 1) <= SAME
    )
    return alike and shape_of(candidate.plan) == shape_of(other.plan)


def listed(ranked: list[Candidate], leaders: list[Candidate], count: int, sequence: int) -> list[Candidate]:
    """The first of the ranked plans, then at most `count` - 1 different ones of these and of the leaders of other
    shapes."""
    if not ranked:
        return []

    def simpler_first(candidate: Candidate) -> tuple[float, int, float]:
        rounded = round(math.log(candidate.seconds) / math.log1p(SAME))
        return rounded, int(points(candidate.plan, vars(candidate.plan), sequence)), candidate.seconds

    shown, spare = ranked[:1], []
    shown_of_shape = Counter([shape_of(ranked[0].plan)])
    for candidate in sorted([*ranked[1:], *leaders], key=simpler_first):
        if len(shown) >= count:
            break
        if any(twins(candidate, other) for other in (*shown, *spare)):
            continue
        shape = shape_of(candidate.plan)
        if shown_of_shape[shape] < MAX_OF_A_SHAPE:
            shown_of_shape[shape] += 1
            shown.append(candidate)
        elif len(spare) < count:
            spare.append(candidate)
    rest = shown[1:] + spare[: max(count - len(shown), 0)]
    return [shown[0], *sorted(rest, key=lambda candidate: candidate.seconds)]
