"""`dscale traffic`: what a trace is like, and a generator fitted to it.

Lengths are kept as some hundred pairs of a prompt and its output, evenly from all of them, so that they stay together.
Arrivals are a rate over time (in parts of some dozen requests) and the variation of gaps in a time that
runs as fast as that rate. Where the trace names the blocks of its prompts, a request that begins with the whole blocks
of an earlier one is the next turn of its session; what first turns share is a prefix.
"""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy

from dragonscale.blocks.sheet import Sheet, Title, table
from dragonscale.commands import grids
from dragonscale.commands.questions.simulate import TrafficQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.listener import Listener
from dragonscale.simulation import SimulatedRequest, read_trace
from dragonscale.tables import toml_value

PAIRS, PARTS, OF_A_PART, WINDOW = 512, 240, 25, 10.0
"""Pairs of lengths and parts of the rate that are kept at most, requests of a part at least, and the seconds in which
bursts are counted."""

STATISTICS = ("mean", "p50", "p90", "p99", "max")


class TrafficReport(Record):
    """What a trace is like. `gap_cv` is the coefficient of variation of the gaps between arrivals (1: Poisson),
    `dispersion` the variance of the arrivals in 10 s over their mean, `peak` the most over the mean; `repeated` the
    part of prompts that began like an earlier one; `traffic` the class that was fitted, as `--traffic` reads it."""

    trace: str
    requests: int
    seconds: float
    requests_per_s: float | None
    lengths: dict[str, dict[str, float]]
    correlation: float
    gap_cv: float
    dispersion: float
    peak: float
    repeated: float
    sessions: int
    turns: float
    think_s: float
    traffic: dict[str, Any]

    def headline(self) -> str:
        return f"{self.trace}: {self.requests:,} requests, {self.turns:.3g} turns a session"


def ask(question: TrafficQuestion, listener: Listener) -> TrafficReport:
    """Read a trace and fit a class to it."""
    requests = list(read_trace(question.file).read())
    return describe(Path(question.file).name, requests).came_from(question, listener.notes)


def describe(name: str, requests: Sequence[SimulatedRequest]) -> TrafficReport:
    """What requests are like, and the class that is fitted to them."""
    times = numpy.array([one.arrival_s for one in requests])
    tokens = numpy.array([(one.input_tokens, one.output_tokens) for one in requests])
    seconds, gaps = float(times[-1]), numpy.diff(times)
    counts = numpy.bincount((times // WINDOW).astype(int)) if seconds > 0 else numpy.array([len(times)])
    before, repeated, common = _linked(requests)
    later = [place for place, earlier in enumerate(before) if earlier >= 0]
    waits = [times[place] - times[before[place]] for place in later]
    sessions, think = len(requests) - len(later), float(numpy.mean(waits)) if waits else 0.0
    rate = (len(requests) - 1) / seconds if seconds > 0 else None
    fitted: dict[str, Any] = {"name": "trace", "rate": f"{rate or 1.0:.6g}/s", "turns": len(requests) / sessions}
    rows = zip(tokens, common, before, strict=True)
    first = [(own[0] - min(length, own[0] - 1), own[1]) for own, length, earlier in rows if earlier < 0]
    fitted |= {"think": f"{think:.4g}s", "pairs": _pairs(first)}
    added = [(max(tokens[k][0] - sum(tokens[before[k]]), 1), tokens[k][1]) for k in later]
    fitted |= {"later": _pairs(added)} if later else {}
    fitted |= _arrivals(times) if seconds > 0 else {}
    shared = [length for place, length in enumerate(common) if before[place] < 0 and length]
    if shared:
        groups = len({one.blocks[0] for one, length in zip(requests, common, strict=True) if length})
        fitted["prefixes"] = f"{groups}x{round(numpy.mean(shared))},share={len(shared) / sessions:.3g}"
    return TrafficReport(
        name,
        len(requests),
        seconds,
        rate,
        {name: _lengths(own) for name, own in zip(("prompt", "output"), tokens.T, strict=True)},
        float(numpy.corrcoef(tokens.T)[0, 1]) if min(tokens.std(axis=0)) > 0 else 0.0,
        float(gaps.std() / gaps.mean()) if seconds > 0 else 0.0,
        float(counts.var() / counts.mean()),
        float(counts.max() / counts.mean()),
        repeated,
        sessions,
        len(requests) / sessions,
        think,
        fitted,
    )


def _lengths(tokens: numpy.ndarray) -> dict[str, float]:
    percentiles = (float(numpy.percentile(tokens, int(name[1:]))) for name in STATISTICS[1:-1])
    return dict(zip(STATISTICS, (float(tokens.mean()), *percentiles, float(tokens.max())), strict=True))


def _pairs(tokens: Sequence[Any]) -> list[list[int]]:
    """Some pairs of lengths, evenly from all in their order."""
    every = sorted((int(prompt), int(output)) for prompt, output in tokens)
    places = numpy.linspace(0, len(every) - 1, min(PAIRS, len(every))).round().astype(int)
    return [list(every[place]) for place in places]


def _arrivals(times: numpy.ndarray) -> dict[str, Any]:
    """The rate over time, and how gaps vary in it."""
    number = min(max(len(times) // OF_A_PART, 1), PARTS)
    counts, edges = numpy.histogram(times, number)
    work = numpy.interp(times, edges, numpy.concatenate([[0.0], numpy.cumsum(counts)]))
    gaps = numpy.diff(work)
    parts = [round(float(part), 4) for part in counts / counts.mean()]
    return {"profile": parts, "every": f"{times[-1] / number:.6g}s", "burst": round(float(gaps.std() / gaps.mean()), 3)}


def _linked(requests: Sequence[SimulatedRequest]) -> tuple[list[int], float, list[int]]:
    """The place of the turn before each request, or -1; the part of prompts that began like an earlier one; and of each
    request the tokens that did."""
    ends, seen, before, common = dict[int, int](), set[int](), list[int](), list[int]()
    for place, one in enumerate(requests):
        whole = one.blocks[: one.input_tokens // one.block_tokens] if one.blocks else ()
        before.append(max((ends[block] for block in whole if block in ends), default=-1))
        known = sum(1 for _ in takewhile(seen.__contains__, one.blocks))
        common.append(min(known * one.block_tokens, one.input_tokens))
        seen.update(one.blocks)
        ends |= {whole[-1]: place} if whole else {}
    return before, sum(common) / sum(one.input_tokens for one in requests), common


def save_traffic(report: TrafficReport, path: str) -> str:
    """Write the class that was fitted."""
    lines = [f"{key} = {toml_value(value)}" for key, value in report.traffic.items()]
    Path(path).write_text("\n".join([f"# fitted to {report.trace}", "[[class]]", *lines]) + "\n", encoding="utf-8")
    return f"; `dscale simulate MODEL --on SLICE --traffic {path}` runs it"


def traffic_blocks(report: TrafficReport, _detail: bool) -> Sheet:
    """What the trace is like."""
    rows = [[name, *(f"{value:,.0f}" for value in own.values())] for name, own in report.lengths.items()]
    told = {"reuse": report if report.repeated else None, "sessions": report if report.turns > 1 else None}
    facts = grids.summary("traffic-facts", report, **told)
    return Sheet((Title(report.trace), facts, table(["tokens", *STATISTICS], rows, "lengths")))


bind(TrafficReport, Face(traffic_blocks, save=save_traffic))
