"""`dscale run serve --record`: a line of JSON for each request, when it came, what it had and what it waited for.

The file is a trace too (`simulation/trace_files.py`), so the same requests are simulated, each when it came. Where
clients waited for their answers before they asked again, when requests came depends on how fast the server was: then as
many clients are simulated.
"""

import heapq
from typing import Any

from dragonscale.evidence.logs.load_test import LoadTest, MeasuredTimes, variation
from dragonscale.evidence.logs.text import LogText, number

LAUNCH = ("max_seqs", "token_budget", "replicas")
FULL = 0.9
"""The part of the most requests at once that must be under way at nearly every arrival, where each follows an answer.
"""
NAME = "dscale run serve --record"


def recognises(log: LogText) -> bool:
    return any(map(_is_request, log.tables))


def _is_request(table: dict[str, Any]) -> bool:
    return {"timestamp", "input_length", "output_length", "ttft_s", "tpot_s"} <= table.keys()


def read(log: LogText) -> LoadTest:
    """All requests of a file."""
    every = list(filter(_is_request, log.tables))
    first = every[0]
    prompts, outputs = (_numbers(every, name) for name in ("input_length", "output_length"))
    stamps = _numbers(every, "timestamp")
    lasts = [
        at / 1e3 + ttft + tpot * (made - 1)
        for at, ttft, tpot, made in zip(
            stamps, _numbers(every, "ttft_s"), _numbers(every, "tpot_s"), outputs, strict=True
        )
    ]
    span = max(lasts) - min(stamps) / 1e3
    clients, ramp = _clients([at / 1e3 for at in stamps], lasts)
    spreads = [one for one in map(variation, (prompts, outputs)) if one is not None]
    return LoadTest(
        NAME,
        len(every),
        sum(prompts) / len(every),
        sum(outputs) / len(every),
        _times(_numbers(every, "ttft_s")),
        _times([tpot for tpot, made in zip(_numbers(every, "tpot_s"), outputs, strict=True) if made > 1]),
        sum(outputs) / span if span > 0 else None,
        len(every) / span if span > 0 else None,
        rate=len(every) / span if span > 0 and not clients else None,
        clients=clients,
        ramp=ramp,
        spread=max(spreads, default=None),
        model=str(first.get("model") or ""),
        engine=str(first.get("engine") or ""),
        plan=str(first.get("plan") or ""),
        trace="" if clients else str(log.path),
        slice=str(first.get("slice") or ""),
        launch={name: int(value) for name in LAUNCH if (value := number(first.get(name)))},
        device=str(first.get("device") or ""),
        kv_tokens=int(number(first.get("kv_tokens")) or 0),
    )


def _numbers(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [number(row[name]) or 0.0 for row in rows]


def _times(values: list[float]) -> MeasuredTimes:
    """The mean, the median and the 99th percentile.

    >>> _times([1.0, 2.0, 6.0])
    MeasuredTimes(mean=3.0, p50=2.0, p99=6.0)
    """
    ranked = sorted(values)
    if not ranked:
        return MeasuredTimes()
    return MeasuredTimes(sum(ranked) / len(ranked), ranked[len(ranked) // 2], ranked[int(0.99 * len(ranked))])


def _clients(stamps: list[float], lasts: list[float]) -> tuple[int, float]:
    """How many clients there were who each waited for their output, and the time over which they began; 0 where
    requests came by themselves.

    >>> _clients([0, 1, 2, 3, 4], [2, 3, 4, 5, 6]), _clients([0, 1, 2, 3, 4], [9, 9, 9, 9, 9])
    ((2, 1), (0, 0.0))
    """
    under_way: list[float] = []
    counts = []
    for stamp, last in zip(stamps, lasts, strict=True):
        while under_way and under_way[0] <= stamp:
            heapq.heappop(under_way)
        heapq.heappush(under_way, last)
        counts.append(len(under_way))
    most = max(counts)
    full = counts.index(most)
    steady = counts[full:]
    closed = most > 1 and len(steady) > most and sum(one >= FULL * most for one in steady) > FULL * len(steady)
    return (most, stamps[full] - stamps[max(full + 1 - most, 0)]) if closed else (0, 0.0)
