"""What a trace of requests is like, and a traffic class fitted to it.

Lengths are kept as some hundred pairs of a prompt and its output, evenly from all of them, so that they stay together.
Arrivals are a rate over time (in parts of some dozen requests) and the variation of gaps in a time that runs as fast as
that rate. Where the trace names the blocks of its prompts, a request that begins with the whole blocks of an earlier
one is the next turn of its session; what first turns share is a prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec
import numpy
from numpy.typing import NDArray

from dragonscale.simulation.request import SimulatedRequest

# Pairs of lengths, and parts of the rate over time, that are kept at most.
MAX_PAIRS = 512
MAX_PARTS = 240
# Requests of a part of the rate at least: fewer would be noise.
MIN_REQUESTS = 25
# Seconds in which arrivals are counted to see bursts.
WINDOW_S = 10.0

STATISTICS = ("mean", "p50", "p90", "p99", "max")


class TraceFit(msgspec.Struct):
    """What a trace is like. `gap_cv` is the coefficient of variation of the gaps between arrivals (1: Poisson),
    `dispersion` the variance of the arrivals in 10 s over their mean, `peak` the most over the mean; `repeated` the
    fraction of prompt tokens that began like an earlier prompt; `traffic` the class that was fitted, as `--traffic`
    reads it."""

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


@dataclass
class PromptReuse:
    """Of each request in order: the index of the turn before it in its session (-1 for a first turn), and the tokens
    of its prompt that began like an earlier one; and over all prompts the fraction of such tokens."""

    previous: list[int] = field(default_factory=list[int])
    shared_tokens: list[int] = field(default_factory=list[int])
    repeated: float = 0.0


def fit_trace(name: str, requests: Sequence[SimulatedRequest]) -> TraceFit:
    """What requests are like, and the class that is fitted to them."""
    arrivals = numpy.array([request.arrival_s for request in requests])
    tokens = numpy.array([(request.input_tokens, request.output_tokens) for request in requests])  # (requests, 2)
    seconds, gaps = float(arrivals[-1]), numpy.diff(arrivals)
    # a trace without times is one burst
    windows = (arrivals // WINDOW_S).astype(int) if seconds > 0 else numpy.zeros(len(arrivals), int)
    counts = numpy.bincount(windows)
    prefixes = shared_prefixes(requests)
    later = [index for index, previous in enumerate(prefixes.previous) if previous >= 0]
    waits = [arrivals[index] - arrivals[prefixes.previous[index]] for index in later]
    sessions = len(requests) - len(later)
    think_s = float(numpy.mean(waits)) if waits else 0.0
    rate = (len(requests) - 1) / seconds if seconds > 0 else None
    turns = len(requests) / sessions
    traffic: dict[str, Any] = {
        "name": "trace",
        "rate": f"{rate or 1.0:.6g}/s",
        "turns": turns,
        "think": f"{think_s:.4g}s",
    }
    traffic |= _session_lengths(tokens, prefixes)
    if seconds > 0:
        traffic |= _arrivals(arrivals)
    traffic |= _common_prefixes(requests, prefixes, sessions)
    prompts, outputs = tokens.T
    return TraceFit(
        trace=name,
        requests=len(requests),
        seconds=seconds,
        requests_per_s=rate,
        lengths={"prompt": _statistics(prompts), "output": _statistics(outputs)},
        # of lengths that never vary there is none
        correlation=float(numpy.corrcoef(tokens.T)[0, 1]) if min(tokens.std(axis=0)) > 0 else 0.0,
        gap_cv=float(gaps.std() / gaps.mean()) if seconds > 0 else 0.0,
        dispersion=float(counts.var() / counts.mean()),
        peak=float(counts.max() / counts.mean()),
        repeated=prefixes.repeated,
        sessions=sessions,
        turns=turns,
        think_s=think_s,
        traffic=traffic,
    )


def _session_lengths(tokens: NDArray[numpy.int64], prefixes: PromptReuse) -> dict[str, Any]:
    """Pairs of lengths of first turns, without what they share with others; and of later turns, of which only what a
    turn adds to the one before is new."""
    first: list[tuple[int, int]] = []
    later: list[tuple[int, int]] = []
    for (prompt, output), previous, shared in zip(tokens, prefixes.previous, prefixes.shared_tokens, strict=True):
        if previous < 0:
            first.append((prompt - min(shared, prompt - 1), output))
        else:
            later.append((max(prompt - tokens[previous].sum(), 1), output))
    pairs: dict[str, Any] = {"pairs": _pairs(first)}
    if later:
        pairs["later"] = _pairs(later)
    return pairs


def _common_prefixes(requests: Sequence[SimulatedRequest], prefixes: PromptReuse, sessions: int) -> dict[str, Any]:
    """How many prefixes there are, their tokens on average, and the fraction of sessions that begin with one."""
    rows = zip(prefixes.previous, prefixes.shared_tokens, strict=True)
    shared = [tokens for previous, tokens in rows if previous < 0 and tokens]
    if not shared:
        return {}
    starts = zip(requests, prefixes.shared_tokens, strict=True)
    groups = len({request.blocks[0] for request, tokens in starts if tokens})
    return {"prefixes": f"{groups}x{round(numpy.mean(shared))},share={len(shared) / sessions:.3g}"}


def _statistics(tokens: NDArray[numpy.int64]) -> dict[str, float]:
    """Mean, percentiles and maximum of some lengths."""
    percentiles = numpy.percentile(tokens, (50, 90, 99)).tolist()
    return dict(zip(STATISTICS, (float(tokens.mean()), *percentiles, float(tokens.max())), strict=True))


def _pairs(tokens: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Some pairs of lengths, evenly from all in their order."""
    ordered = sorted((int(prompt), int(output)) for prompt, output in tokens)
    chosen = numpy.linspace(0, len(ordered) - 1, min(MAX_PAIRS, len(ordered))).round().astype(int)
    return [list(ordered[index]) for index in chosen]


def _arrivals(arrivals: NDArray[numpy.float64]) -> dict[str, Any]:
    """The rate over time, and how gaps vary once that is taken out."""
    parts = min(max(len(arrivals) // MIN_REQUESTS, 1), MAX_PARTS)
    counts, edges = numpy.histogram(arrivals, parts)
    # the number of requests expected by each arrival: in this time the rate is 1
    warped = numpy.interp(arrivals, edges, numpy.concatenate([[0.0], numpy.cumsum(counts)]))
    gaps = numpy.diff(warped)
    return {
        "profile": [round(float(part), 4) for part in counts / counts.mean()],
        "every": f"{arrivals[-1] / parts:.6g}s",
        "burst": round(float(gaps.std() / gaps.mean()), 3),
    }


def shared_prefixes(requests: Sequence[SimulatedRequest]) -> PromptReuse:
    """What prompts share with earlier ones, by the blocks that the trace names."""
    prefixes = PromptReuse()
    last_with: dict[int, int] = {}  # the last request whose prompt ended with a whole block
    seen: set[int] = set()
    for index, request in enumerate(requests):
        whole = request.blocks[: request.input_tokens // request.block_tokens] if request.blocks else ()
        prefixes.previous.append(max((last_with[block] for block in whole if block in last_with), default=-1))
        known_blocks = sum(1 for _ in takewhile(seen.__contains__, request.blocks))
        prefixes.shared_tokens.append(min(known_blocks * request.block_tokens, request.input_tokens))
        seen.update(request.blocks)
        if whole:
            last_with[whole[-1]] = index
    prefixes.repeated = sum(prefixes.shared_tokens) / sum(request.input_tokens for request in requests)
    return prefixes
