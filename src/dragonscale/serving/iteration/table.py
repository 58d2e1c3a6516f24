"""Iterations of one deployment, tabulated: the planner's cost function at the pace of a simulator.

An iteration is matmuls over all its new tokens, attention of its decoding sequences, attention of its prompts, the head
and the host. Each part depends on one, two or three numbers, and is computed once on a grid by `iteration_cost`;
between knots it is linear. Where the cost function is smooth the grid is coarse, where it has steps (tiles of the
matmuls) it is fine, so a tabulated step differs from the computed one by well under a percent. Grids reach as far as
all data ranks of a replica together can be asked for, and end with a knot far beyond, so that what is asked further out
follows the average growth and not the last tile's.

What the simulator asks of the planner: how long an iteration takes.

A `Piece` is a part of a prompt that one iteration prefills: its new tokens and those already in the cache (a shared
prefix, earlier chunks). Decoding sequences are summed up: how many there are and how many tokens their caches hold
together, since an iteration's time depends on nothing else.

Functions by their knots, linear between them: what a cost function is tabulated as.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy

from dragonscale.physics.hardware import Chip, Torus
from dragonscale.serving.iteration.capacity import cache_per_chip
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import Iteration, IterationCost, iteration_cost

Piece = tuple[int, int]
"""New tokens of a prompt, and tokens of it that the cache already holds."""


class StepTimes(Protocol):
    """Seconds of an engine's iterations on one replica."""

    def step(self, decodes: int, cached: float, pieces: Sequence[Piece] = (), queries: int = 1) -> float:
        """One iteration: `decodes` sequences that hold `cached` tokens in all get `queries` tokens each (one, or the
        drafts to verify and one), and `pieces` of prompts are prefilled beside them."""
        ...

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations of pure decoding one after the other, in which every sequence grows by
        one token a step."""
        ...

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations of pure decoding that end within `seconds`: the inverse of `run`."""
        ...

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to draft so many tokens for every sequence before they are verified; 0 without a draft."""
        ...

    def transfer(self, tokens: int) -> float:
        """Seconds to send the cache of so many tokens to another replica (disaggregation)."""
        ...


def geometric(first: float, last: float, ratio: float) -> list[float]:
    """Knots from the first to the last, each about `ratio` times the one before."""
    count = max(2, math.ceil(math.log(max(last / first, 1.001)) / math.log(ratio)) + 1)
    return [float(value) for value in numpy.geomspace(first, max(last, first * 1.001), count)]


def _between(knots: list[float], at: float) -> tuple[int, float]:
    """The knot before a value, and how far it lies on the way to the next; beyond the last by more than all of it."""
    place = bisect_right(knots, at, 1, len(knots) - 1) - 1
    low = knots[place]
    return place, (at - low) / (knots[place + 1] - low)


@dataclass(frozen=True)
class StepCurve:
    """A function of one number by its knots, linear between them and beyond the last."""

    knots: list[float]
    values: list[float]

    def __call__(self, at: float) -> float:
        knots, values = self.knots, self.values
        place = bisect_right(knots, at, 1, len(knots) - 1)
        low, left = knots[place - 1], values[place - 1]
        return left + (values[place] - left) * ((at - low) / (knots[place] - low))


@dataclass(frozen=True)
class CurveSheet:
    """A function of two numbers: a line in the second for every knot of the first."""

    knots: list[float]
    lines: list[StepCurve]

    def __call__(self, first: float, second: float) -> float:
        place, part = _between(self.knots, first)
        low = self.lines[place](second)
        return low if part <= 0.0 else low + (self.lines[place + 1](second) - low) * part

    def at(self, first: float) -> StepCurve:
        """The line in the second number at a value of the first."""
        place, part = _between(self.knots, first)
        left, right = self.lines[place], self.lines[place + 1]
        if part <= 0.0:
            return left
        return StepCurve(left.knots, [a + (b - a) * part for a, b in zip(left.values, right.values, strict=True)])


PureSteps = tuple[list[float], list[float], list[float], float]
"""Steps of so many decoding sequences against the tokens each holds: knots, seconds at each, the slope behind each, and
what the host takes at least."""
BesidePrompt = tuple[float, StepCurve, float, float, float]
"""An iteration of a prompt and decoding sequences, but for what these hold: matmuls and gaps, their attention, the head
with the prompt's attention, what the host takes at least, and what it takes beside."""
EVERY = 256
"""Up to so many tokens the matmuls are computed for every number of them."""
TILE = 128
"""Rows of queries that attention kernels take at a time: its waves fill up in steps of so many tokens."""
FINE = 4096
"""Up to so many tokens of one rank edges of tiles are knots; beyond, a tile is a small part of the whole."""
FAR = 4.0
"""The last knot of a grid over the one before it."""
KEPT = 65536
"""Values of a curve that are kept for the next time."""
LATENCY = 2e-5
"""Seconds before the first byte of a cache arrives at another replica: a remote write and its notice."""


@dataclass
class StepTable:
    """Seconds of iterations of one deployment. Drafting a token takes a step of `drafter`, or
    `draft_part` of a step of the model itself."""

    deployment: Deployment
    longest: int = 32768
    drafter: "StepTable | None" = None
    draft_part: float = 0.0
    _lines: dict[tuple[float, int], StepCurve] = field(default_factory=dict, repr=False)
    _attending: dict[int, CurveSheet] = field(default_factory=dict, repr=False)
    _steps: dict[tuple[int, int], PureSteps] = field(default_factory=dict, repr=False)
    _beside: dict[tuple[int, int, int, int], BesidePrompt] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        deployment, limits = self.deployment, self.deployment.engine.scheduling
        self.stages, self.ranks = int(deployment.plan.pipe), int(deployment.plan.data)
        self.budget = limits.max_tokens if limits.scheduler == "chunked" else math.inf
        most, sequences = max(limits.max_tokens, limits.max_sequences, EVERY * 2), limits.max_sequences * self.ranks
        self.decoding = lru_cache(KEPT)(_products(deployment, _token_knots(most, self.ranks)))
        counts = sorted({1, *(2**power for power in range(1, 16) if 2**power < self.ranks), self.ranks, self.ranks + 1})
        each = _token_knots(most)  # of each prompt, which one rank computes
        lines = [_products(deployment, each, min(count, self.ranks)) for count in counts]
        self.prompting = CurveSheet([float(count) for count in counts], lines)
        self.head = lru_cache(KEPT)(_head(deployment, sequences))
        self.sequences = sequences
        chunk = most * self.stages if limits.scheduler == "chunked" else max(most, self.longest)
        self.prompts = _prompting(deployment, chunk, self.longest)
        self.alone = lru_cache(KEPT)(self.prompts[1][0])
        token, prompt = {"decodes": 1, "keys": 16}, {"prompts": 1, "tokens": 16}
        probes = [iteration_cost(deployment, Iteration(**one)) for one in (token, prompt, token | prompt)]
        self.floor_decode, self.floor_prompt, self.floor_mixed = (float(numpy.ravel(one.issuing)[0]) for one in probes)
        # prompts issue other kernels than single tokens, and the gaps between kernels are counted with the sampling
        issued = (float(numpy.ravel(sum(line.issued * line.times for line in one.lines))[0]) for one in probes)
        plain, self.gaps_prompt, self.gaps_mixed = (deployment.engine.kernels.gap_s * count for count in issued)
        self.gaps_prompt, self.gaps_mixed = self.gaps_prompt - plain, self.gaps_mixed - plain
        sizes = deployment.engine.host.graph_sizes
        self.largest_graph = sizes[-1][0] * self.ranks if sizes else math.inf
        beyond = Iteration(decodes=(self.largest_graph + 1) * self.stages, keys=16) if sizes else None
        self.floor_eager = float(numpy.ravel(iteration_cost(deployment, beyond).issuing)[0]) if beyond else 0.0
        self.per_token = float(numpy.ravel(cache_per_chip(deployment, 2.0) - cache_per_chip(deployment, 1.0))[0])
        self.host, self.token_stream_s = deployment.engine.host, deployment.engine.host.token_stream_s

    def _host(self, decodes: float, prompts: float, tokens: float) -> float:
        host = self.host
        own = host.sequence_s * decodes + host.prompt_s * prompts + host.token_s * tokens
        return host.step_s + own / self.ranks

    def _loop(self, decodes: float) -> float:
        """What the engine's loop takes for so many sequences beyond the one of a probe."""
        return self.host.loop_sequence_s * (decodes - 1) / self.ranks

    def _line(self, decodes: float, queries: int) -> StepCurve:
        """Attention of so many decoding sequences, each with `queries` new tokens, against the tokens each holds."""
        found = self._lines.get((decodes, queries))
        if found is None:
            if queries not in self._attending:
                self._attending[queries] = _decoding(self.deployment, self.sequences, self.longest, queries)
            found = self._lines[(decodes, queries)] = self._attending[queries].at(float(decodes))
        return found

    def step(self, decodes: int, cached: float, pieces: Sequence[Piece] = (), queries: int = 1) -> float:
        """One iteration; see `StepTimes`. Of a pipeline's parts one is looked at, see `Iteration.one_part`."""
        if not pieces:
            return self.run(decodes, cached, 1, queries)
        stages, count = self.stages, len(pieces)
        if count == 1 and decodes and stages == 1:  # nearly always
            fresh, past = pieces[0]
            before, line, after, floor, host = self._beside.get((decodes, fresh, past, queries)) or self._one(
                decodes, fresh, past, queries
            )
            seconds = before + line(cached / decodes) + after
            return (seconds if seconds > floor else floor) + host
        fresh = 0
        for piece in pieces:
            fresh += piece[0]
        own = max(decodes / stages, 1.0) if decodes else 0.0
        prompts, share = (count, fresh) if stages == 1 else self._part(count, fresh)
        if decodes:
            seconds = self.decoding(own * queries + share) + self.gaps_mixed
            seconds += self._line(own, queries)(cached / decodes)
        else:
            filled = min(prompts, self.ranks)  # ranks that have a prompt
            seconds = self.prompting(filled, share / filled) + self.gaps_prompt
        seconds += self.head(own * queries + prompts) + self._prompt_attention(pieces) * share / fresh
        issuing = self.floor_mixed + self._loop(own) if decodes else self.floor_prompt
        floor = max(issuing, self.token_stream_s * (decodes * queries + count))
        return max(seconds, floor) + self._host(own, prompts, share)

    def _one(self, decodes: int, fresh: int, past: int, queries: int) -> BesidePrompt:
        """One prompt beside decoding sequences, kept for the next time."""
        own = float(decodes)
        after = self.head(own * queries + 1) + self.alone(past, fresh) * fresh / fresh
        floor = max(self.floor_mixed, self.token_stream_s * (decodes * queries + 1))
        before = self.decoding(own * queries + fresh) + self.gaps_mixed
        if len(self._beside) >= KEPT:
            self._beside.clear()
        found = before, self._line(own, queries), after, floor, self._host(own, 1, fresh)
        self._beside[(decodes, fresh, past, queries)] = found
        return found

    def _part(self, count: int, fresh: int) -> tuple[float, float]:
        """Prompts of the fullest of a pipeline's parts, and their new tokens."""
        prompts, mean = max(count / self.stages, 1.0), fresh / count
        return prompts, prompts * max(fresh / prompts / self.stages, min(mean, self.budget))

    def _prompt_attention(self, pieces: Sequence[Piece]) -> float:
        """Chunks of prompts one by one, as far as one kernel for all of them is not quicker."""
        alone, count = self.alone, len(pieces)
        if count == 1:
            return alone(pieces[0][1], pieces[0][0])
        tokens, past = sum(piece[0] for piece in pieces) / count, sum(piece[1] for piece in pieces) / count
        levels, sheets = self.prompts
        place = min(max(bisect_right(levels, count) - 1, 0), len(levels) - 2)
        part = (count - levels[place]) / (levels[place + 1] - levels[place])
        together = sheets[place](past, tokens)
        if part:
            together += (sheets[place + 1](past, tokens) - together) * part
        if pieces.count(pieces[0]) == count:
            return together
        mean = alone(past, tokens)
        return together / (count * mean) * sum(alone(piece[1], piece[0]) for piece in pieces) if mean else together

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations of pure decoding; every sequence grows by one token a step."""
        if steps <= 0 or decodes <= 0:
            return 0.0
        knots, values, slopes, floor = self._steps.get((decodes, queries)) or self._pure(decodes, queries)
        at = cached / decodes
        place = bisect_right(knots, at, 1, len(slopes))
        slope = slopes[place - 1]
        first = values[place - 1] + slope * (at - knots[place - 1])
        if first >= floor and at + steps <= knots[place]:  # all between two knots, as nearly always
            return steps * first + slope * steps * (steps - 1) / 2
        return self._advance(decodes, cached, steps, math.inf, queries)[1]

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations of pure decoding within `seconds`."""
        if decodes <= 0 or seconds <= 0:
            return 0
        knots, values, slopes, floor = self._steps.get((decodes, queries)) or self._pure(decodes, queries)
        at = cached / decodes
        place = bisect_right(knots, at, 1, len(slopes)) - 1
        first = values[place] + slopes[place] * (at - knots[place])
        if first >= floor and at + (count := _within(first, slopes[place], seconds)) < knots[place + 1]:
            return count
        return self._advance(decodes, cached, 1 << 60, seconds, queries)[0]

    def _advance(self, decodes: int, cached: float, most: int, seconds: float, queries: int) -> tuple[int, float]:
        """The steps that are done before either `most` of them or `seconds` are over, and how long they take. Between
        two knots of the attention's line a step grows by the same amount each time, so a stretch is a sum of an
        arithmetic series."""
        knots, values, slopes, floor = self._steps.get((decodes, queries)) or self._pure(decodes, queries)
        at, done, total, last = cached / decodes, 0, 0.0, len(slopes) - 1
        place = bisect_right(knots, at, 1, last + 1) - 1
        while True:
            slope, ahead = slopes[place], most - done
            first = values[place] + slope * (at - knots[place])
            if place < last and at + ahead > knots[place + 1]:
                ahead = max(math.ceil(knots[place + 1] - at), 1)
            if first < floor:  # the host holds these up, until attention outgrows it
                slow = ahead if slope <= 0 else min(ahead, max(math.ceil((floor - first) / slope), 1))
                first, slope, ahead = floor, 0.0, slow
            taken = ahead * first + slope * ahead * (ahead - 1) / 2
            if total + taken > seconds:
                count = _within(first, slope, seconds - total)
                return done + count, total + count * first + slope * count * (count - 1) / 2
            total, done = total + taken, done + ahead
            if done == most:
                break
            at += ahead
            while place < last and at >= knots[place + 1]:
                place += 1
        return done, total

    def _pure(self, decodes: int, queries: int) -> PureSteps:
        """Decoding steps of so many sequences, kept for the next time."""
        own = max(decodes / self.stages, 1.0)
        host = self._host(own, 0, 0)
        fixed = self.decoding(own * queries) + self.head(own * queries) + host
        issuing = self.floor_decode if own * queries <= self.largest_graph else self.floor_eager
        floor = max(issuing + self._loop(own), self.token_stream_s * decodes * queries) + host
        line = self._line(own, queries)
        pairs = itertools.pairwise(zip(line.knots, line.values, strict=True))
        slopes = [(right - left) / (end - start) for (start, left), (end, right) in pairs]
        found = line.knots, [fixed + value for value in line.values], slopes, floor
        self._steps[(decodes, queries)] = found
        return found

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to draft `tokens` tokens for every sequence."""
        if self.drafter is not None:
            return self.drafter.run(decodes, cached, tokens)
        return self.draft_part * tokens * self.step(decodes, cached) if self.draft_part else 0.0

    def transfer(self, tokens: int) -> float:
        """Seconds to send the cache of `tokens` tokens to another replica, every chip through its own port."""
        return LATENCY + tokens * self.per_token * _places(self.deployment) / port_bandwidth(self.deployment.chip)


def _places(deployment: Deployment) -> float:
    """Sequences lie on one of the `data` places: its chips alone send them."""
    return float(numpy.ravel(deployment.axes["data"])[0])


def port_bandwidth(chip: Chip) -> float:
    """Bytes per second that one chip can send out of its node or slice."""
    if isinstance(chip.network, Torus) or len(chip.network.levels) < 2:
        return float(chip.dcn or chip.host_link)
    inner, outer = chip.network.levels[:2]
    return float(outer.bandwidth / inner.degree)


def _within(first: float, slope: float, seconds: float) -> int:
    """The most terms of first, first + slope, … whose sum is at most `seconds`."""
    if abs(slope) < 1e-18:
        count = int(seconds / first)
    else:
        half = first - slope / 2
        count = int((math.sqrt(max(half * half + 2 * slope * seconds, 0.0)) - half) / slope)
    while count > 0 and count * first + slope * count * (count - 1) / 2 > seconds:
        count -= 1
    while (count + 1) * first + slope * (count + 1) * count / 2 <= seconds:
        count += 1
    return count


def _far(knots: list[float]) -> list[float]:
    """A grid with its last knot far beyond the others."""
    return [*knots, knots[-1] * FAR]


def _token_knots(most: int, ranks: int = 1) -> Any:
    """Numbers of tokens up to `most` on each rank: one by one, then on both sides of the edges of tiles, of all tokens
    and of each rank's, then in wide steps."""
    tiles = 64 * ranks  # a tile's rows on every rank; the first edge that is beyond the tokens taken one by one
    fine = min(most, FINE) + 64
    edges = {*range(EVERY, fine, 64), *range(-(-EVERY // tiles) * tiles, fine * ranks, tiles)}
    wide = range((FINE + 512) * ranks, (most + 512) * ranks, 512 * ranks)
    knots = {*range(1, EVERY + 1), *edges, *(edge + 1 for edge in edges), *wide}
    return numpy.array(_far([float(tokens) for tokens in sorted(knots)]))


def _rest(cost: IterationCost) -> Any:
    """An iteration without attention, head, sampling and host."""
    inside = sum(term.expected for name, term in cost.terms.items() if name not in ("scores", "head"))
    return inside + sum(wire.exposed for wire in cost.wires.values())


def _products(deployment: Deployment, tokens: Any, prompts: int = 0) -> StepCurve:
    """Iterations of so many single tokens, or of as many tokens in each of some prompts."""
    asked = Iteration(prompts=prompts, tokens=tokens) if prompts else Iteration(decodes=tokens, keys=16)
    values = numpy.broadcast_to(_rest(iteration_cost(deployment, asked, whole=True)), tokens.shape)
    return StepCurve([float(value) for value in tokens], [float(value) for value in values])


def _head(deployment: Deployment, most: int) -> StepCurve:
    counts = sorted({*range(1, 65), *(round(value) for value in geometric(64, max(most, 128) * 2, 1.1))})
    rows = numpy.array(_far([float(count) for count in counts]))
    cost = iteration_cost(deployment, Iteration(decodes=rows, keys=16), whole=True)
    values = cost.sampling + cost.terms["head"].expected
    return StepCurve([float(row) for row in rows], [float(value) for value in values])


def _attention(deployment: Deployment, grids: dict[str, Any]) -> Any:
    """Seconds of attention on a grid of iterations; none in a model without."""
    shape = next(iter(grids.values())).shape
    asked = Iteration(**{name: grid.ravel() for name, grid in grids.items()})
    term = iteration_cost(deployment, asked, whole=True).terms.get("scores")
    return numpy.broadcast_to(0.0 if term is None else term.expected, math.prod(shape)).reshape(shape)


def _decoding(deployment: Deployment, most: int, longest: int, queries: int) -> CurveSheet:
    counts = sorted({*range(1, 17), *(round(value) for value in geometric(16, max(most, 32), 1.12))})
    batches = _far([float(count) for count in counts])
    keys = _far([1.0, *geometric(16, max(longest, 64), 1.35)])
    grid = numpy.meshgrid(numpy.array(batches), numpy.array(keys), indexing="ij")
    values = _attention(deployment, {"decodes": grid[0], "keys": grid[1], "queries": numpy.full_like(grid[0], queries)})
    return CurveSheet(batches, [StepCurve(keys, [float(v) for v in row]) for row in values])


def _prompting(deployment: Deployment, most: int, longest: int) -> tuple[list[float], list[CurveSheet]]:
    counts = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 256.0]
    edges = [float(edge + more) for edge in range(TILE, min(most, FINE) + 1, TILE) for more in (0, 1)]
    tokens = _far([16.0, 32.0, 64.0, *edges, *(geometric(FINE * 1.15, most, 1.15) if most > FINE * 1.15 else [])])
    past = _far([0.0, *geometric(64, max(longest, 256), 1.3)])
    grid = numpy.meshgrid(numpy.array(counts), numpy.array(past), numpy.array(tokens), indexing="ij")
    values = _attention(deployment, {"prompts": grid[0], "past": grid[1], "tokens": grid[2]})
    sheets = [CurveSheet(past, [StepCurve(tokens, [float(v) for v in row]) for row in block]) for block in values]
    return counts, sheets
