"""Iterations of one deployment, tabulated: the planner's cost function at the pace of a simulator.

An iteration is products over all its new tokens, attention of its decoding sequences, attention of its prompts, the head
and the host. Each part depends on one, two or three numbers, and is computed once on a grid by `iteration_cost`; between
knots it is linear. Where the cost function is smooth the grid is coarse, where it has steps (tiles of the products) it
is fine, so a tabulated step differs from the computed one by well under a percent.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from dragonscale.hardware import Chip, Torus
from dragonscale.serving.capacity import cache_per_chip
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.phases import Iteration, IterationCost, iteration_cost
from dragonscale.serving.times import Piece

EVERY = 256
"""Up to so many tokens the products are computed for every number of them."""
TILE = 128
"""Rows of queries that attention kernels take at a time: its waves fill up in steps of so many tokens."""
LATENCY = 2e-5
"""Seconds before the first byte of a cache arrives at another replica: a remote write and its notice."""


def _geometric(first: float, last: float, ratio: float) -> list[float]:
    count = max(2, math.ceil(math.log(max(last / first, 1.001)) / math.log(ratio)) + 1)
    return [float(value) for value in numpy.geomspace(first, max(last, first * 1.001), count)]


@dataclass(frozen=True)
class StepCurve:
    """A function of one number by its knots, linear between them and beyond the last."""

    knots: list[float]
    values: list[float]

    def __call__(self, at: float) -> float:
        place = min(max(bisect_right(self.knots, at) - 1, 0), len(self.knots) - 2)
        low, high = self.knots[place], self.knots[place + 1]
        left = self.values[place]
        return left + (self.values[place + 1] - left) * (at - low) / (high - low)


@dataclass(frozen=True)
class Sheet:
    """A function of two numbers: a line in the second for every knot of the first."""

    knots: list[float]
    lines: list[StepCurve]

    def at(self, first: float) -> StepCurve:
        """The line in the second number at a value of the first."""
        place = min(max(bisect_right(self.knots, first) - 1, 0), len(self.knots) - 2)
        low, high = self.knots[place], self.knots[place + 1]
        part = min(max((first - low) / (high - low), 0.0), 1.0) if first <= high else (first - low) / (high - low)
        left, right = self.lines[place], self.lines[place + 1]
        if part == 0.0:
            return left
        return StepCurve(left.knots, [a + (b - a) * part for a, b in zip(left.values, right.values, strict=True)])


@dataclass
class StepTable:
    """Seconds of iterations of one deployment. Drafting a token takes a step of `drafter`, or
    `draft_part` of a step of the model itself."""

    deployment: Deployment
    longest: int = 32768
    drafter: "StepTable | None" = None
    draft_part: float = 0.0
    _lines: dict[int, StepCurve] = field(default_factory=dict, repr=False)
    _steps: dict[tuple[int, int], tuple[float, float, StepCurve, float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        engine = self.deployment.engine
        most = max(engine.scheduling.max_tokens, engine.scheduling.max_sequences, EVERY * 2)
        every = [float(tokens) for tokens in range(1, EVERY + 1)]
        fine = [float(edge + more) for edge in range(EVERY, min(most, 4096) + 64, 64) for more in (0, 1)][1:]
        tokens = numpy.array([*every, *fine, *(float(edge) for edge in range(4096 + 512, most + 512, 512))])
        self.decoding = _products(self.deployment, tokens, prompt=False)
        self.prompting = _products(self.deployment, tokens, prompt=True)
        self.head = _head(self.deployment, engine.scheduling.max_sequences)
        self.attending = _decoding(self.deployment, engine.scheduling.max_sequences, self.longest)
        self.prompts = _prompting(self.deployment, most, self.longest)
        token, prompt = {"decodes": 1, "keys": 16}, {"prompts": 1, "tokens": 16}
        probes = (iteration_cost(self.deployment, Iteration(**one)) for one in (token, prompt, token | prompt))
        self.floor_decode, self.floor_prompt, self.floor_mixed = (float(numpy.ravel(one.issuing)[0]) for one in probes)
        self.per_token = float(
            numpy.ravel(cache_per_chip(self.deployment, 2.0) - cache_per_chip(self.deployment, 1.0))[0]
        )

    def _host(self, decodes: int, prompts: int, tokens: int) -> float:
        host = self.deployment.engine.host
        return host.step_s + host.sequence_s * decodes + host.prompt_s * prompts + host.token_s * tokens

    def _line(self, decodes: int) -> StepCurve:
        """Attention of so many decoding sequences against the tokens each holds."""
        found = self._lines.get(decodes)
        if found is None:
            found = self._lines[decodes] = self.attending.at(float(decodes))
        return found

    def step(self, decodes: int, cached: float, pieces: Sequence[Piece] = (), queries: int = 1) -> float:
        """One iteration; see `StepTimes`."""
        stages = self.deployment.plan.pipe
        new = decodes * queries
        fresh = 0
        for piece in pieces:
            fresh += piece[0]
        rows = new + len(pieces)
        if not pieces:
            return self.run(decodes, cached, 1, queries)
        products = self.decoding if decodes else self.prompting
        seconds = products((new + fresh) / stages) + self.head(rows / stages)
        if decodes:
            drafts = 1.0 if queries == 1 else self._verify(decodes, queries)
            seconds += self._line(max(decodes // stages, 1))(cached / decodes) * drafts
        seconds += self._prompt_attention(pieces) / stages
        issuing = self.floor_mixed if decodes else self.floor_prompt
        floor = max(issuing, self.deployment.engine.host.stream_s * rows)
        return max(seconds, floor) + self._host(decodes, len(pieces), fresh)

    def _verify(self, decodes: int, queries: int) -> float:
        """Attention of several new tokens of each sequence over that of one: the cache is read once, products grow."""
        key = -(decodes * 64 + queries)
        if key not in self._lines:
            both = (
                iteration_cost(
                    self.deployment, Iteration(decodes=decodes, keys=1024, queries=numpy.array([1.0, float(queries)]))
                )
                .terms["scores"]
                .expected
            )
            self._lines[key] = StepCurve([0.0, 1.0], [float(both[1] / both[0])] * 2)
        return self._lines[key](0.0)

    def _prompt_attention(self, pieces: Sequence[Piece]) -> float:
        count = len(pieces)
        tokens = sum(piece[0] for piece in pieces) / count
        past = sum(piece[1] for piece in pieces) / count
        levels, sheets = self.prompts
        place = min(max(bisect_right(levels, count) - 1, 0), len(levels) - 2)
        part = (count - levels[place]) / (levels[place + 1] - levels[place])
        low = sheets[place].at(past)(tokens)
        return low + (sheets[place + 1].at(past)(tokens) - low) * part if part else low

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations of pure decoding; every sequence grows by one token a step."""
        return self._advance(decodes, cached, steps, math.inf, queries)[1] if steps > 0 and decodes > 0 else 0.0

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations of pure decoding within `seconds`."""
        return self._advance(decodes, cached, 1 << 60, seconds, queries)[0] if decodes > 0 and seconds > 0 else 0

    def _advance(self, decodes: int, cached: float, most: int, seconds: float, queries: int) -> tuple[int, float]:
        """The steps that are done before either `most` of them or `seconds` are over, and how long they take. Between two knots
        of the attention's line a step grows by the same amount each time, so a stretch is a sum of an arithmetic series."""
        fixed, floor, line, scale = self._pure(decodes, queries)
        knots, values = line.knots, line.values
        at, done, total = cached / decodes, 0, 0.0
        place = min(max(bisect_right(knots, at) - 1, 0), len(knots) - 2)
        while done < most:
            slope = scale * (values[place + 1] - values[place]) / (knots[place + 1] - knots[place])
            first = fixed + scale * values[place] + slope * (at - knots[place])
            ahead = most - done
            if place < len(knots) - 2:
                ahead = min(ahead, max(math.ceil(knots[place + 1] - at), 1))
            if first < floor:  # the host holds these up, until attention outgrows it
                slow = ahead if slope <= 0 else min(ahead, max(math.ceil((floor - first) / slope), 1))
                first, slope, ahead = floor, 0.0, slow
            taken = ahead * first + slope * ahead * (ahead - 1) / 2
            if total + taken > seconds:
                count = _within(first, slope, seconds - total)
                return done + count, total + count * first + slope * count * (count - 1) / 2
            total, done, at = total + taken, done + ahead, at + ahead
            while place < len(knots) - 2 and at >= knots[place + 1]:
                place += 1
        return done, total

    def _pure(self, decodes: int, queries: int) -> tuple[float, float, StepCurve, float]:
        """A decoding step as a constant, the host's floor, and a line in the tokens each sequence holds."""
        found = self._steps.get((decodes, queries))
        if found is None:
            stages, host = self.deployment.plan.pipe, self._host(decodes, 0, 0)
            fixed = self.decoding(decodes * queries / stages) + self.head(decodes * queries / stages)
            floor = max(self.floor_decode, self.deployment.engine.host.stream_s * decodes * queries)
            scale = 1.0 if queries == 1 else self._verify(decodes, queries)
            found = (fixed + host, floor + host, self._line(max(decodes // stages, 1)), scale)
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


def _rest(cost: IterationCost) -> Any:
    """An iteration without attention, head, sampling and host."""
    inside = sum(term.expected for name, term in cost.terms.items() if name not in ("scores", "head"))
    return inside + sum(wire.expected for wire in cost.wires.values())


def _products(deployment: Deployment, tokens: Any, prompt: bool) -> StepCurve:
    asked = Iteration(prompts=1, tokens=tokens) if prompt else Iteration(decodes=tokens, keys=16)
    values = numpy.broadcast_to(_rest(iteration_cost(deployment, asked, whole=True)), tokens.shape)
    return StepCurve([float(value) for value in tokens], [float(value) for value in values])


def _head(deployment: Deployment, most: int) -> StepCurve:
    rows = numpy.array(
        sorted({*range(1, 65), *(round(value) for value in _geometric(64, max(most, 128) * 2, 1.1))}), float
    )
    cost = iteration_cost(deployment, Iteration(decodes=rows, keys=16), whole=True)
    values = cost.sampling + cost.terms["head"].expected
    return StepCurve([float(row) for row in rows], [float(value) for value in values])


def _attention(deployment: Deployment, grids: dict[str, Any]) -> Any:
    """Seconds of attention on a grid of iterations; none in a model without."""
    shape = next(iter(grids.values())).shape
    asked = Iteration(**{name: grid.ravel() for name, grid in grids.items()})
    term = iteration_cost(deployment, asked, whole=True).terms.get("scores")
    return numpy.broadcast_to(0.0 if term is None else term.expected, math.prod(shape)).reshape(shape)


def _decoding(deployment: Deployment, most: int, longest: int) -> Sheet:
    batches = sorted({*range(1, 17), *(round(value) for value in _geometric(16, max(most, 32), 1.12))})
    keys = [1.0, *_geometric(16, max(longest, 64), 1.35)]
    grid = numpy.meshgrid(numpy.array(batches, float), numpy.array(keys), indexing="ij")
    values = _attention(deployment, {"decodes": grid[0], "keys": grid[1]})
    return Sheet([float(batch) for batch in batches], [StepCurve(keys, [float(v) for v in row]) for row in values])


def _prompting(deployment: Deployment, most: int, longest: int) -> tuple[list[float], list[Sheet]]:
    counts = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 256.0]
    edges = [float(edge + more) for edge in range(TILE, min(most, 4096) + 1, TILE) for more in (0, 1)]
    tokens = [16.0, 32.0, 64.0, *edges, *(_geometric(4096 * 1.15, most, 1.15) if most > 4096 * 1.15 else [])]
    past = [0.0, *_geometric(64, max(longest, 256), 1.3)]
    grid = numpy.meshgrid(numpy.array(counts), numpy.array(past), numpy.array(tokens), indexing="ij")
    values = _attention(deployment, {"prompts": grid[0], "past": grid[1], "tokens": grid[2]})
    sheets = [Sheet(past, [StepCurve(tokens, [float(v) for v in row]) for row in block]) for block in values]
    return counts, sheets
