"""Iterations of one deployment, tabulated: the planner's cost function at the pace of a simulator.

An iteration is matmuls over all its new tokens, attention of its decoding sequences, attention of its prompts, the head
and the host. Each part depends on one, two or three numbers. It is computed once on a grid by `iteration_cost` and is
linear between knots. Where the cost function is smooth the grid is coarse, where it has steps (tiles of the matmuls) it
is fine, so a tabulated step differs from the computed one by well under a percent. Grids reach as far as all data ranks
of a replica together can ask for, and end with a knot far beyond, so that extrapolation follows the average growth and
not the last tile's.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from dragonscale.physics.numbers import Number, first_number
from dragonscale.serving.iteration.cache_transfer import CACHE_LATENCY_S, port_bandwidth
from dragonscale.serving.iteration.capacity import cache_per_chip
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration, IterationCost
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.iteration.step_curves import CurveSheet, StepCurve, geometric
from dragonscale.serving.iteration.step_times import PromptChunk

FINE_TOKENS = 256
"""Up to so many tokens the matmuls are computed for every number of them."""
ATTENTION_TILE = 128
"""Rows of queries that an attention kernel handles at a time: its waves fill up in steps of so many tokens."""
MATMUL_TILE = 64
"""Rows of a matmul's tile."""
MAX_TILED_TOKENS = 4096
"""Up to so many tokens of one rank the edges of tiles are knots; beyond, a tile is a small part of the whole."""
LAST_KNOT_FACTOR = 4.0
"""The last knot of a grid over the one before it."""
CACHED_VALUES = 65536
"""Values of a curve that are cached."""


class DecodeSteps(NamedTuple):
    """Pure decode steps of so many sequences, by the cached tokens of each.

    Seconds at each knot without the host's floor, the slope behind it, and the floor: what the host needs at least.
    """

    knots: list[float]
    seconds: list[float]
    slopes: list[float]
    floor: float


class MixedStep(NamedTuple):
    """An iteration of one prompt chunk and decoding sequences, but for what these have cached.

    `before` are matmuls and gaps, `attention` the decoding sequences' by their cached tokens, `after` the head and the
    prompt's attention, `floor` what the host needs at least, and `host` its exposed seconds.
    """

    before: float
    attention: StepCurve
    after: float
    floor: float
    host: float


@dataclass
class StepTable:
    """Seconds of iterations of one deployment, for requests of up to `longest` tokens.

    Drafting a token takes a step of `drafter`, or `draft_part` of a step of the model itself.
    """

    deployment: Deployment
    longest: int = 32768
    drafter: "StepTable | None" = None
    draft_part: float = 0.0
    _attention_curves: dict[tuple[float, int], StepCurve] = field(default_factory=dict, repr=False)
    _attention_sheets: dict[int, CurveSheet] = field(default_factory=dict, repr=False)
    _decode_steps: dict[tuple[int, int], DecodeSteps] = field(default_factory=dict, repr=False)
    _mixed_steps: dict[tuple[int, int, int, int], MixedStep] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        deployment, limits = self.deployment, self.deployment.engine.scheduling
        self.stages, self.ranks = int(deployment.plan.pipe), int(deployment.plan.data)
        is_chunked = limits.scheduler == "chunked"
        self.budget = math.inf
        if is_chunked:
            self.budget = limits.max_tokens
        max_tokens = max(limits.max_tokens, limits.max_sequences, FINE_TOKENS * 2)  # of one rank
        self.sequences = limits.max_sequences * self.ranks
        # matmuls and moves of so many single tokens, or of prompts by the ranks that have one
        self.decoding = lru_cache(CACHED_VALUES)(_layers_curve(deployment, _token_knots(max_tokens, self.ranks)))
        powers = {2**power for power in range(16) if 2**power < self.ranks}
        busy_ranks = sorted({*powers, self.ranks, self.ranks + 1})
        prompt_tokens = _token_knots(max_tokens)  # of each prompt, which one rank computes
        curves = [_layers_curve(deployment, prompt_tokens, min(count, self.ranks)) for count in busy_ranks]
        self.prompting = CurveSheet(list(map(float, busy_ranks)), curves)
        self.head = lru_cache(CACHED_VALUES)(_head_curve(deployment, self.sequences))
        longest_chunk = max_tokens * self.stages if is_chunked else max(max_tokens, self.longest)
        self.prompts = _prefill_sheets(deployment, longest_chunk, self.longest)
        self.alone = lru_cache(CACHED_VALUES)(self.prompts.sheets[0])
        self._probe_host()
        self.per_token = first_number(cache_per_chip(deployment, 2.0) - cache_per_chip(deployment, 1.0))
        self.host, self.token_stream_s = deployment.engine.host, deployment.engine.host.token_stream_s

    def _probe_host(self) -> None:
        """Read the host's floors and the gaps between kernels off iterations of a few tokens; sizes do not matter."""
        deployment = self.deployment
        decode, prompt = {"decodes": 1, "keys": 16}, {"prompts": 1, "tokens": 16}
        probes = [iteration_cost(deployment, Iteration(**sizes)) for sizes in (decode, prompt, decode | prompt)]
        self.floor_decode, self.floor_prompt, self.floor_mixed = (first_number(cost.issuing) for cost in probes)
        # Prompts issue other kernels than single tokens. The head's curve, which has sampling and gaps, was computed
        # for single tokens, so prompts add the difference.
        gap_s = deployment.engine.kernels.gap_s
        decode_gaps, prompt_gaps, mixed_gaps = (gap_s * first_number(cost.issued) for cost in probes)
        self.gaps_prompt, self.gaps_mixed = prompt_gaps - decode_gaps, mixed_gaps - decode_gaps
        sizes = deployment.engine.host.graph_sizes
        self.largest_graph, self.floor_eager = math.inf, 0.0
        if sizes:
            # beyond the largest captured graph kernels are issued one by one
            self.largest_graph = sizes[-1][0] * self.ranks
            beyond = Iteration(decodes=(self.largest_graph + 1) * self.stages, keys=16)
            self.floor_eager = first_number(iteration_cost(deployment, beyond).issuing)

    def _host(self, decodes: float, prompts: float, tokens: float) -> float:
        """The host's exposed seconds in an iteration."""
        host = self.host
        exposed = host.sequence_s * decodes + host.prompt_s * prompts + host.token_s * tokens
        return host.step_s + exposed / self.ranks

    def _loop(self, decodes: float) -> float:
        """Seconds that the engine's loop takes for the sequences beyond the one of a probe."""
        return self.host.loop_sequence_s * (decodes - 1) / self.ranks

    def _attention(self, decodes: float, queries: int) -> StepCurve:
        """Attention of decoding sequences with `queries` new tokens each, by the cached tokens of each."""
        curve = self._attention_curves.get((decodes, queries))
        if curve is None:
            if queries not in self._attention_sheets:
                sheet = _decode_sheet(self.deployment, self.sequences, self.longest, queries)
                self._attention_sheets[queries] = sheet
            curve = self._attention_curves[(decodes, queries)] = self._attention_sheets[queries].at(float(decodes))
        return curve

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration; see `StepTimes`. Of a pipeline's parts one counts, see `Iteration.one_part`."""
        if not chunks:
            return self.run(decodes, cached, 1, queries)
        stages, count = self.stages, len(chunks)
        if count == 1 and decodes and stages == 1:  # the usual case of chunked prefill
            fresh, past = chunks[0]
            before, attention, after, floor, host = self._mixed_steps.get(
                (decodes, fresh, past, queries)
            ) or self._mixed_step(decodes, fresh, past, queries)
            seconds = before + attention(cached / decodes) + after
            return (seconds if seconds > floor else floor) + host
        fresh = 0
        for chunk in chunks:
            fresh += chunk[0]
        part_decodes = max(decodes / stages, 1.0) if decodes else 0.0
        prompts, part_tokens = (count, fresh) if stages == 1 else self._part(count, fresh)
        if decodes:
            seconds = self.decoding(part_decodes * queries + part_tokens) + self.gaps_mixed
            seconds += self._attention(part_decodes, queries)(cached / decodes)
        else:
            busy_ranks = min(prompts, self.ranks)  # each has a prompt
            seconds = self.prompting(busy_ranks, part_tokens / busy_ranks) + self.gaps_prompt
        seconds += self.head(part_decodes * queries + prompts) + self._prompt_attention(chunks) * part_tokens / fresh
        issuing = self.floor_mixed + self._loop(part_decodes) if decodes else self.floor_prompt
        floor = max(issuing, self.token_stream_s * (decodes * queries + count))
        return max(seconds, floor) + self._host(part_decodes, prompts, part_tokens)

    def _mixed_step(self, decodes: int, fresh: int, past: int, queries: int) -> MixedStep:
        """One prompt chunk beside decoding sequences, without a pipeline; cached."""
        if len(self._mixed_steps) >= CACHED_VALUES:
            self._mixed_steps.clear()
        step = MixedStep(
            before=self.decoding(float(decodes) * queries + fresh) + self.gaps_mixed,
            attention=self._attention(float(decodes), queries),
            after=self.head(float(decodes) * queries + 1) + self.alone(past, fresh) * fresh / fresh,
            floor=max(self.floor_mixed, self.token_stream_s * (decodes * queries + 1)),
            host=self._host(float(decodes), 1, fresh),
        )
        self._mixed_steps[(decodes, fresh, past, queries)] = step
        return step

    def _part(self, count: int, fresh: int) -> tuple[float, float]:
        """Prompts of the fullest of a pipeline's parts, and their new tokens."""
        prompts, mean = max(count / self.stages, 1.0), fresh / count
        return prompts, prompts * max(fresh / prompts / self.stages, min(mean, self.budget))

    def _prompt_attention(self, chunks: Sequence[PromptChunk]) -> float:
        """Attention of prompt chunks: the time of each alone, scaled by what one kernel for all of them gains."""
        alone, count = self.alone, len(chunks)
        if count == 1:
            return alone(chunks[0][1], chunks[0][0])
        all_tokens, all_past = zip(*chunks, strict=True)
        tokens, past = sum(all_tokens) / count, sum(all_past) / count
        levels, sheets = self.prompts
        index = min(max(bisect_right(levels, count) - 1, 0), len(levels) - 2)
        fraction = (count - levels[index]) / (levels[index + 1] - levels[index])
        together = sheets[index](past, tokens)  # as many chunks of the mean size
        if fraction:
            together += (sheets[index + 1](past, tokens) - together) * fraction
        if chunks.count(chunks[0]) == count:
            return together
        mean = alone(past, tokens)
        if not mean:
            return together
        return together / (count * mean) * sum(alone(chunk[1], chunk[0]) for chunk in chunks)

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations of pure decoding; every sequence grows by one token a step."""
        if steps <= 0 or decodes <= 0:
            return 0.0
        knots, values, slopes, floor = self._decode_steps.get((decodes, queries)) or self._pure(decodes, queries)
        keys = cached / decodes
        right = bisect_right(knots, keys, 1, len(slopes))
        slope = slopes[right - 1]
        first = values[right - 1] + slope * (keys - knots[right - 1])
        if first >= floor and keys + steps <= knots[right]:  # all between two knots: the usual case
            return steps * first + slope * steps * (steps - 1) / 2
        return self._advance(decodes, cached, steps, math.inf, queries)[1]

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations of pure decoding within `seconds`."""
        if decodes <= 0 or seconds <= 0:
            return 0
        knots, values, slopes, floor = self._decode_steps.get((decodes, queries)) or self._pure(decodes, queries)
        keys = cached / decodes
        index = bisect_right(knots, keys, 1, len(slopes)) - 1
        first = values[index] + slopes[index] * (keys - knots[index])
        if first >= floor and keys + (count := _within(first, slopes[index], seconds)) < knots[index + 1]:
            return count
        return self._advance(decodes, cached, 1 << 60, seconds, queries)[0]

    def _advance(self, decodes: int, cached: float, max_steps: int, seconds: float, queries: int) -> tuple[int, float]:
        """The steps that are done before `max_steps` or `seconds` are over, and their time.

        Between two knots of the attention's curve a step grows by the same amount each time, so the time of a stretch
        is the sum of an arithmetic series.
        """
        knots, values, slopes, floor = self._decode_steps.get((decodes, queries)) or self._pure(decodes, queries)
        keys, done, total, last = cached / decodes, 0, 0.0, len(slopes) - 1
        index = bisect_right(knots, keys, 1, last + 1) - 1
        # Invariant: `done` steps took `total` seconds, and sequences now have `keys` tokens, behind knot `index`.
        while True:
            slope, ahead = slopes[index], max_steps - done
            first = values[index] + slope * (keys - knots[index])
            if index < last and keys + ahead > knots[index + 1]:
                ahead = max(math.ceil(knots[index + 1] - keys), 1)
            if first < floor:  # the host is slower, until attention outgrows it
                if slope > 0:
                    ahead = min(ahead, max(math.ceil((floor - first) / slope), 1))
                first, slope = floor, 0.0
            stretch = ahead * first + slope * ahead * (ahead - 1) / 2
            if total + stretch > seconds:
                count = _within(first, slope, seconds - total)
                return done + count, total + count * first + slope * count * (count - 1) / 2
            total, done = total + stretch, done + ahead
            if done == max_steps:
                break
            keys += ahead
            while index < last and keys >= knots[index + 1]:
                index += 1
        return done, total

    def _pure(self, decodes: int, queries: int) -> DecodeSteps:
        """Pure decode steps of so many sequences; cached."""
        part_decodes = max(decodes / self.stages, 1.0)
        host = self._host(part_decodes, 0, 0)
        fixed = self.decoding(part_decodes * queries) + self.head(part_decodes * queries) + host
        issuing = self.floor_decode if part_decodes * queries <= self.largest_graph else self.floor_eager
        curve = self._attention(part_decodes, queries)
        points = itertools.pairwise(zip(curve.knots, curve.values, strict=True))
        steps = DecodeSteps(
            knots=curve.knots,
            seconds=[fixed + value for value in curve.values],
            slopes=[(right - left) / (end - start) for (start, left), (end, right) in points],
            floor=max(issuing + self._loop(part_decodes), self.token_stream_s * decodes * queries) + host,
        )
        self._decode_steps[(decodes, queries)] = steps
        return steps

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to draft `tokens` tokens for every sequence, with what a loop adds on the host."""
        overhead_s = self.deployment.engine.host.draft_step_s
        if self.drafter is not None:
            return overhead_s + self.drafter.run(decodes, cached, tokens)
        if not self.draft_part:
            return overhead_s
        return overhead_s + self.draft_part * tokens * self.step(decodes, cached)

    def transfer(self, tokens: int) -> float:
        """Seconds to send the cache of `tokens` tokens to another replica, every chip through its own port."""
        # a sequence lies on one data rank, whose chips alone send it
        ranks = first_number(self.deployment.axes["data"])
        return CACHE_LATENCY_S + tokens * self.per_token * ranks / port_bandwidth(self.deployment.chip)


def _within(first: float, slope: float, seconds: float) -> int:
    """The most terms of first, first + slope, … whose sum is at most `seconds`."""
    if abs(slope) < 1e-18:
        count = int(seconds / first)
    else:
        # n·first + slope·n·(n − 1)/2 = seconds, solved for n
        half = first - slope / 2
        count = int((math.sqrt(max(half * half + 2 * slope * seconds, 0.0)) - half) / slope)
    # rounding may be off by one either way
    while count > 0 and count * first + slope * count * (count - 1) / 2 > seconds:
        count -= 1
    while (count + 1) * first + slope * (count + 1) * count / 2 <= seconds:
        count += 1
    return count


def _extended(knots: Iterable[float]) -> list[float]:
    """A grid with one more knot far beyond the others."""
    grid = list(map(float, knots))
    return [*grid, grid[-1] * LAST_KNOT_FACTOR]


def _count_knots(exact: int, last: int, ratio: float) -> list[float]:
    """Whole numbers one by one up to `exact`, then each about `ratio` times the one before, and one far beyond."""
    return _extended(sorted({*range(1, exact + 1), *map(round, geometric(exact, last, ratio))}))


def _token_knots(max_tokens: int, ranks: int = 1) -> NDArray[numpy.float64]:
    """Numbers of tokens up to `max_tokens` on each rank, (knots,).

    One by one first; then on both sides of the edges of tiles, of all tokens and of each rank's; then in wide steps.
    """
    rank_tiles = MATMUL_TILE * ranks  # a tile of rows on every rank
    tiled = min(max_tokens, MAX_TILED_TOKENS) + MATMUL_TILE
    # a rank's tiles begin at the first edge beyond the tokens that are taken one by one
    first_edge = -(-FINE_TOKENS // rank_tiles) * rank_tiles
    edges = {*range(FINE_TOKENS, tiled, MATMUL_TILE), *range(first_edge, tiled * ranks, rank_tiles)}
    wide = range((MAX_TILED_TOKENS + 512) * ranks, (max_tokens + 512) * ranks, 512 * ranks)
    knots = {*range(1, FINE_TOKENS + 1), *edges, *(edge + 1 for edge in edges), *wide}
    return numpy.array(_extended(sorted(knots)))


def _layers_curve(deployment: Deployment, tokens: NDArray[numpy.float64], prompts: int = 0) -> StepCurve:
    """Matmuls and moves of so many single tokens, or of so many tokens in each of some prompts."""
    iteration = Iteration(decodes=tokens, keys=16)
    if prompts:
        iteration = Iteration(prompts=prompts, tokens=tokens)
    seconds = _without_attention(iteration_cost(deployment, iteration, whole=True))
    return StepCurve(tokens.tolist(), numpy.broadcast_to(seconds, tokens.shape).tolist())


def _without_attention(cost: IterationCost) -> Number:
    """An iteration without attention, head, sampling and host."""
    kernels = sum(term.expected for name, term in cost.terms.items() if name not in ("scores", "head"))
    return kernels + sum(wire.exposed for wire in cost.wires.values())


def _head_curve(deployment: Deployment, max_sequences: int) -> StepCurve:
    """The head and sampling, by the tokens that are sampled."""
    rows = numpy.array(_count_knots(64, max(max_sequences, 128) * 2, 1.1))
    cost = iteration_cost(deployment, Iteration(decodes=rows, keys=16), whole=True)
    return StepCurve(rows.tolist(), (cost.sampling + cost.terms["head"].expected).tolist())


def _attention_seconds(deployment: Deployment, **grids: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    """Seconds of attention on grids of an iteration's sizes, in their shape; zero for a model without attention."""
    shape = next(iter(grids.values())).shape
    iteration = Iteration(**{name: grid.ravel() for name, grid in grids.items()})
    scores = iteration_cost(deployment, iteration, whole=True).terms.get("scores")
    seconds = 0.0 if scores is None else scores.expected
    return numpy.broadcast_to(seconds, math.prod(shape)).reshape(shape)


def _decode_sheet(deployment: Deployment, max_sequences: int, longest: int, queries: int) -> CurveSheet:
    """Attention of decoding sequences: by how many there are, and the cached tokens of each."""
    batches = _count_knots(16, max(max_sequences, 32), 1.12)
    keys = _extended([1.0, *geometric(16, max(longest, 64), 1.35)])
    batch_grid, key_grid = numpy.meshgrid(numpy.array(batches), numpy.array(keys), indexing="ij")  # (batches, keys)
    query_grid = numpy.full_like(batch_grid, queries)
    seconds = _attention_seconds(deployment, decodes=batch_grid, keys=key_grid, queries=query_grid)
    return CurveSheet(batches, [StepCurve(keys, row) for row in seconds.tolist()])


class PrefillSheets(NamedTuple):
    """Attention of prompt chunks: for each of some `counts` of them a sheet by past tokens and new tokens."""

    counts: list[float]
    sheets: list[CurveSheet]


def _prefill_sheets(deployment: Deployment, longest_chunk: int, longest: int) -> PrefillSheets:
    counts = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 256.0]
    tokens = [16.0, 32.0, 64.0]
    for edge in range(ATTENTION_TILE, min(longest_chunk, MAX_TILED_TOKENS) + 1, ATTENTION_TILE):
        tokens += [float(edge), float(edge + 1)]  # both sides of the step
    if longest_chunk > MAX_TILED_TOKENS * 1.15:
        tokens += geometric(MAX_TILED_TOKENS * 1.15, longest_chunk, 1.15)
    tokens = _extended(tokens)
    past = _extended([0.0, *geometric(64, max(longest, 256), 1.3)])
    axes = (numpy.array(counts), numpy.array(past), numpy.array(tokens))
    count_grid, past_grid, token_grid = numpy.meshgrid(*axes, indexing="ij")  # (counts, past, tokens)
    seconds = _attention_seconds(deployment, prompts=count_grid, past=past_grid, tokens=token_grid)
    sheets = [CurveSheet(past, [StepCurve(tokens, row) for row in block]) for block in seconds.tolist()]
    return PrefillSheets(counts, sheets)
