"""A measured rate or latency of a server beside what is expected of it, and what could have made the difference.

A benchmark counts in one of several ways: in a steady state, in which another request follows each that ends; or with a
fixed number of prompts that come together and are timed to the last token. A figure is judged against every way that
fits the question: it is normal where it lies in the band of one of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.plan.settings import shipped_table
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import at_batches
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.space import one_plan

# Ratio to the measured figure within which two things are the same.
ALIKE = 1.1

# Part of the gap, as a logarithm, that something has to explain to be named.
LEAST_EXPLAINED = 0.1

MAX_SUSPECTS = 4

# Requests in flight that are tried for the load that gives the measured rate.
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class MeasuredFigure(msgspec.Struct, frozen=True):
    """What was measured: `name` is a rate (`requests`, `output`, `total`, `user`, `chip`) or a time (`tpot`, `ttft`,
    `e2e`, `run`), `value` per second or in seconds."""

    name: str
    value: float

    @property
    def is_rate(self) -> bool:
        """Whether more of it is better."""
        return self.name in ("requests", "output", "total", "user", "chip")


@dataclass(frozen=True)
class CountedReading:
    """One way in which the figure may have been counted: what is expected then, and its band."""

    how: str
    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class RateSuspect:
    """Something that may have been otherwise in the run: what to look at, and what the figure would have been."""

    cause: str
    look: str
    value: float


@dataclass(frozen=True)
class ExplainedRate:
    """A measured figure with the ways to count it, the nearest first, and what could explain a slow one."""

    quantity: MeasuredFigure
    readings: list[CountedReading]
    suspects: list[RateSuspect]

    @property
    def nearest(self) -> CountedReading:
        """The reading that is nearest to what was measured."""
        return self.readings[0]

    @property
    def slowdown(self) -> float:
        """How many times as slow as the nearest reading; below 1 it is faster."""
        ratio = self.nearest.expected / self.quantity.value
        # a rate that is half as high is as slow as a time that is twice as long
        if self.quantity.is_rate:
            return ratio
        return 1 / ratio

    @property
    def verdict(self) -> str:
        """`normal`, `slow`, or `fast`: as no reading has it."""
        value = self.quantity.value
        if any(reading.low <= value <= reading.high for reading in self.readings):
            return "normal"
        return "slow" if self.slowdown > 1 else "fast"


def explain_rate(
    job: ServingJob,
    config: Config,
    quantity: MeasuredFigure,
    readings: Sequence[CountedReading],
    counted: Sequence[RateSuspect] = (),
) -> ExplainedRate:
    """A measured figure of a configuration beside its readings; of a slow one with what could explain it: `counted`,
    or fewer requests in flight, another launch, an older release."""
    nearest_first = sorted(readings, key=lambda reading: abs(math.log(reading.expected / quantity.value)))
    explained = ExplainedRate(quantity, nearest_first, [])
    if explained.verdict != "slow" or isinstance(config, PooledConfig):
        return explained
    return replace(explained, suspects=_suspects(job, config, explained, counted))


def _suspects(
    job: ServingJob, config: Config, explained: ExplainedRate, counted: Sequence[RateSuspect]
) -> list[RateSuspect]:
    """What could explain a slow figure, what comes nearest to it first."""
    suspects = [*counted, *_fewer_requests(job, config, explained.quantity), *_other_launches(job, config, explained)]
    suspects += _older_releases(job, config, explained)
    measured, expected = explained.quantity.value, explained.nearest.expected
    gap = abs(math.log(expected / measured))

    def distance(suspect: RateSuspect) -> float:
        return abs(math.log(suspect.value / measured))

    named = [suspect for suspect in suspects if distance(suspect) <= (1 - LEAST_EXPLAINED) * gap]
    return sorted(named, key=distance)[:MAX_SUSPECTS]


def figure_of(config: Config, job: ServingJob, name: str, copies: int = 1) -> float:
    """A quantity of a configuration in its steady state, of so many copies of it."""
    state, ask = config.state, job.ask
    requests = float(state.requests) * copies
    tpot = float(state.tpot)
    figures: dict[str, Any] = {
        "requests": requests,
        "output": requests * ask.output,
        "total": requests * (ask.output + ask.prompt),
        "user": 1 / tpot if tpot else 0.0,
        "chip": config.tokens_per_chip,
        "tpot": tpot,
        "ttft": float(state.ttft),
        "e2e": float(state.latency),
    }
    return figures[name]


def _fewer_requests(job: ServingJob, config: Config, quantity: MeasuredFigure) -> list[RateSuspect]:
    """The number of requests in flight whose steady state makes so little; none for times, which get shorter."""
    if quantity.name not in ("requests", "output", "total", "chip"):
        return []
    batches = [batch for batch in LOADS if batch < config.batch]
    judged = at_batches(job, config, batches)
    values = {one.batch: figure_of(one, job, quantity.name) for one in judged}
    if not values:
        return []
    batch = min(values, key=lambda batch: abs(math.log(values[batch] / quantity.value)))
    if quantity.value * ALIKE < values[batch] and batch == min(values):
        look = "not even one request at a time is that slow: look at how it was counted, and at idle time of the client"
        return [RateSuspect("one request at a time", look, values[batch])]
    cause = f"{batch:,} in flight rather than {config.batch:,}"
    if batch == 1:
        cause = f"one request at a time rather than {config.batch:,}"
    look = "the number of running requests in the engine's log, the client's concurrency"
    return [RateSuspect(cause, look, values[batch])]


def _other_launches(job: ServingJob, config: Config, explained: ExplainedRate) -> list[RateSuspect]:
    """The same under a launch that is slower: without graphs, with NCCL alone between chips."""
    engine = job.engine_on(config.piece.chip, config.engine)
    changes: list[tuple[str, str, dict[str, dict[str, Any]]]] = []
    if engine.host.graphs and engine.host.kernel_s:
        # what a kernel takes to issue is known where prompts are issued one by one
        changes.append(
            (
                "no CUDA graphs",
                "--enforce-eager, --disable-cuda-graph, or batches beyond those captured",
                {"host": {"graphs": False}},
            )
        )
    if config.plan.chips > 1 and engine.collectives.library != "nccl":
        changes.append(
            (
                "AllReduces by NCCL alone",
                "a log line that custom AllReduce is off, chips without NVLink between them",
                {"collectives": {"library": "nccl", "slowdown": 2.0}},
            )
        )
    suspects: list[RateSuspect] = []
    for cause, look, groups in changes:
        slower = judge(
            job.model,
            one_plan(config.piece, config.plan),
            adjust(engine, **groups),
            job.ask,
            [config.batch],
            job.draft_by(config.engine),
        )
        if slower:
            ratio = _slower_by(config, slower[0], job, explained.quantity)
            suspects.append(RateSuspect(cause, look, _scaled(explained, ratio)))
    return suspects


def _slower_by(config: Config, slower: Config, job: ServingJob, quantity: MeasuredFigure) -> float:
    """How many times as slow another launch is, by the measured quantity."""
    name = "e2e" if quantity.name == "run" else quantity.name
    ratio = figure_of(config, job, name) / figure_of(slower, job, name)
    return ratio if quantity.is_rate else 1 / ratio


def _scaled(explained: ExplainedRate, times: float) -> float:
    """What the nearest reading would be of something so many times as slow."""
    expected = explained.nearest.expected
    # slower is a lower rate and a longer time
    if explained.quantity.is_rate:
        return expected / times
    return expected * times


def _older_releases(job: ServingJob, config: Config, explained: ExplainedRate) -> list[RateSuspect]:
    """What older releases of the engine would give, where their developers published the difference."""
    engine = config.engine.partition("-")[0]
    rows = shipped_table("serving.advice", "older_releases.toml").get(engine, [])
    suspects: list[RateSuspect] = []
    gain = 1.0
    # the latest first: what came before an older release lacks the gains of the later ones too
    for row in sorted(rows, key=lambda row: row["before"], reverse=True):
        gain *= row["dense"]
        title = job.engine_on(config.piece.chip, config.engine).title or engine
        look = f"the release; {row['note']} ({row['source']})"
        suspects.append(RateSuspect(f"{title} before {row['before']}", look, _scaled(explained, gain)))
    return suspects
