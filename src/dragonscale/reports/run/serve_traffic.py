"""What a server did, as a trace: a line of JSON for each request, in the order in which they came.

The lines are those of a Mooncake trace (`timestamp` in ms, `input_length`, `output_length`, `hash_ids` of the prompt's blocks) with what
was measured beside it, so that `dscale simulate --trace` replays them and `dscale validate serving` scores the replay. A line waits for
those of requests that came before it: no more are held back than are under way.
"""

from collections import deque
from typing import Any, TextIO

import msgspec

from dragonscale.errors import InputError
from dragonscale.runtime.server.front import Flight, block_names

KEPT = 20_000
"""Requests whose times are kept for medians."""


class TrafficRecord:
    """Times of requests: kept for the sums at the end and, where there is a file, written."""

    def __init__(self, path: str = "", **facts: Any) -> None:
        self.facts, self.file = facts, _opened(path) if path else None
        self.began = self.latest = self.until = 0.0
        self.open: dict[str, tuple[float, str | None]] = {}
        self.ttft: deque[float] = deque(maxlen=KEPT)
        self.tpot: deque[float] = deque(maxlen=KEPT)
        self.requests = self.tokens = self.prompt_tokens = self.failed = 0

    def came(self, flight: Flight) -> None:
        self.began = self.began or flight.arrived
        if self.file is not None:  # in the order of a trace, though some were longer on their way here
            self.latest = max(self.latest, flight.arrived - self.began)
            self.open[flight.request.id] = self.latest, None

    def ended(self, flight: Flight, finish: str) -> None:
        """A request is over; one that was given up or failed has no line."""
        count = 0 if finish in ("error", "cancelled") else flight.tokens
        first, between = flight.first_s - flight.arrived, (flight.last_s - flight.first_s) / max(count - 1, 1)
        self.until, prompt = max(self.until, flight.last_s), flight.request.prompt
        if count:
            self.requests, self.tokens = self.requests + 1, self.tokens + count
            self.prompt_tokens += len(prompt)
            self.ttft.append(first)
            if count > 1:
                self.tpot.append(between)
        else:
            self.failed += 1
        if self.file is None:
            return
        (stamp, _), text = self.open[flight.request.id], ""
        if count:
            size = self.facts.get("block_tokens")
            line = {
                "timestamp": round(1e3 * stamp, 3), "input_length": len(prompt), "output_length": count,
                "hash_ids": block_names(prompt, size) if size else [], "ttft_s": round(first, 6), "tpot_s": round(between, 7),
                "cached_tokens": flight.cached, "finish": finish, **self.facts,
            }  # fmt: skip
            text = msgspec.json.encode(line).decode() + "\n"
        self.open[flight.request.id] = stamp, text
        while self.open and (ready := next(iter(self.open.values()))[1]) is not None:
            del self.open[next(iter(self.open))]
            self.file.write(ready)

    def close(self) -> None:
        if self.file is not None:
            self.file.writelines(text for _, text in self.open.values() if text)
            self.file.close()
            self.file = None


def _opened(path: str) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"The record {path} cannot be written: {error.strerror}.") from None
