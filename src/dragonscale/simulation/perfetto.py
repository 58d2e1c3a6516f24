"""A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: the Chrome JSON event format.

Every replica is a thread whose slices are its activities, with counters for its pages, batch and queue; requests are
asynchronous slices from arrival to last token. The whole fleet has counters of its own over the run: replicas that are
up and busy, requests that run and wait, the used fraction of all caches. The first `limit` events after `start_s` are
kept, so that a trace of any run can be opened.
"""

import json
from collections.abc import Iterator
from typing import Any

from dragonscale.files import write_file
from dragonscale.simulation.replica_state import ReplicaState
from dragonscale.simulation.request import Sequence

# Process numbers of the groups of tracks.
FLEET = 0
REPLICAS = 1
REQUESTS = 2
COUNTERS = {
    "running": "requests running",
    "waiting": "requests waiting",
    "pages": "KV cache in use (%)",
    "replicas": "replicas up",
    "busy": "replicas busy (%)",
}
"""Titles of the series of a run; fractions are drawn as percent."""


class RequestRecorder:
    """Keeps the first events of a run."""

    def __init__(self, limit: int, start_s: float) -> None:
        self.limit, self.start_s = limit, start_s
        self.events: list[dict[str, Any]] = []
        self.seen: set[int] = set()

    def _fits(self, events: int) -> bool:
        return len(self.events) + events <= self.limit

    def activity(self, replica: ReplicaState, now: float, running: int, occupancy: float) -> None:
        """Record an iteration, or a run of decode steps."""
        if replica.began < self.start_s or not self._fits(2):
            return
        index, chunks, steps = replica.index, replica.chunks, replica.steps
        decodes = len(replica.batch.members)
        name = f"decode x{steps}"
        if chunks:
            name = f"prefill {sum(tokens for _, tokens in chunks)}"
            if steps:
                name += f" + decode {decodes}"
        start = replica.began * 1e6  # microseconds, as the format wants
        self.seen.add(index)
        self.events.append(
            {
                "name": name,
                "cat": "prefill" if chunks else "decode",
                "ph": "X",
                "ts": start,
                "dur": (now - replica.began) * 1e6,
                "pid": REPLICAS,
                "tid": index,
                "args": {"decodes": decodes, "steps": steps, "prompts": len(chunks)},
            }
        )
        values = {"pages": occupancy, "running": running, "waiting": len(replica.waiting)}
        self.events.append({"name": f"replica {index}", "ph": "C", "ts": start, "pid": REPLICAS, "args": values})

    def request(self, sequence: Sequence, replica: int, now: float) -> None:
        """Record a request that has ended."""
        request = sequence.request
        if request.arrival_s < self.start_s or not self._fits(3):
            return
        number = request.number
        common = {"cat": "request", "id": number, "pid": REQUESTS, "tid": 0, "name": f"request {number}"}
        arguments = {"input": request.input_tokens, "output": request.output_tokens, "replica": replica}
        self.events.append({**common, "ph": "b", "ts": request.arrival_s * 1e6, "args": arguments})
        self.events.append({**common, "ph": "n", "ts": sequence.first_s * 1e6, "args": {"event": "first token"}})
        self.events.append({**common, "ph": "e", "ts": now * 1e6})

    def trace(self, series: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
        """The whole document, with the fleet's means over time."""
        names = [("process_name", FLEET, 0, "fleet")]
        names += [("process_name", REPLICAS, 0, "replicas"), ("process_name", REQUESTS, 0, "requests")]
        names += [("thread_name", REPLICAS, index, f"replica {index}") for index in sorted(self.seen)]
        labels = [
            {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
            for kind, process, thread, name in names
        ]
        return {"displayTimeUnit": "ms", "traceEvents": [*labels, *_counters(series, self.start_s), *self.events]}


def _counters(series: dict[str, list[tuple[float, float]]], start_s: float) -> Iterator[dict[str, Any]]:
    """Counters of the whole fleet."""
    for name, title in COUNTERS.items():
        scale = 100 if title.endswith("(%)") else 1
        for seconds, value in series[name]:
            if seconds >= start_s:
                args = {"value": round(scale * value, 6)}
                yield {"name": title, "ph": "C", "ts": seconds * 1e6, "pid": FLEET, "tid": 0, "args": args}


def save_trace(trace: dict[str, Any], path: str) -> None:
    """Write a trace as JSON, one event a line."""
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace["traceEvents"])
    write_file(path, f'{{"displayTimeUnit":"ms","traceEvents":[\n{events}\n]}}\n', "The trace")
