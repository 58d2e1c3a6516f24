"""What a server did, as a trace: a line of JSON for each request, in the order in which they came.

The lines are those of a Mooncake trace (`timestamp` in ms, `input_length`, `output_length`, `hash_ids` of the prompt's
blocks) with what was measured beside it, so that `dscale simulate --trace` replays them and `dscale validate serving`
scores the replay. A line is written when its request ends, and held back by nobody's; the file is put in order when it
is closed.
"""

import contextlib
import os
import sys
from collections import deque
from typing import Any, BinaryIO, NamedTuple

import msgspec

from dragonscale.errors import InputError
from dragonscale.runtime.server.front import Flight, block_names

KEPT = 20_000
"""Requests whose times are kept for medians."""


class _Stamped(msgspec.Struct):
    timestamp: float


class ServedLoad(NamedTuple):
    """What was served: tokens of a prompt and of an output on average; how many requests of a replica a request saw
    under way while it was, itself among them; and how many were on average over all the time, pauses too."""

    prompt: int
    output: int
    seen: int
    mean: float


class TrafficRecord:
    """Times of requests: kept for the sums at the end and, where there is a file, written."""

    def __init__(self, path: str = "", **facts: Any) -> None:
        self.facts, self.file = facts, _opened(path) if path else None
        self.began = self.latest = self.until = 0.0
        self.open: dict[str, float] = {}
        self.written, self.mixed = 0.0, False
        self.ttft: deque[float] = deque(maxlen=KEPT)
        self.tpot: deque[float] = deque(maxlen=KEPT)
        self.requests = self.tokens = self.prompt_tokens = self.failed = 0
        self.under_way, self.moment = 0, 0.0
        self.busy = self.beside = 0.0  # seconds of all requests, and those times how many were under way then

    def _passed(self, moment: float, more: int) -> None:
        """Time up to here has passed with as many under way as there were."""
        moment = max(moment, self.moment)
        span = (moment - self.moment) * self.under_way
        self.busy, self.beside = self.busy + span, self.beside + span * self.under_way
        self.under_way, self.moment = self.under_way + more, moment

    def came(self, flight: Flight) -> None:
        self.began = self.began or flight.arrived
        self._passed(flight.arrived, 1)
        if self.file is not None:  # in the order of a trace, though some were longer on their way here
            self.latest = max(self.latest, flight.arrived - self.began)
            self.open[flight.request.id] = self.latest

    def typical(self, replicas: int) -> ServedLoad | None:
        """The load of each of some replicas; None before the first request is over."""
        if not self.requests or not self.busy:
            return None
        lengths = round(self.prompt_tokens / self.requests), round(self.tokens / self.requests)
        mean = self.busy / max(self.moment - self.began, 1e-9) / replicas
        return ServedLoad(*lengths, max(round(self.beside / self.busy / replicas), 1), mean)

    def ended(self, flight: Flight, finish: str) -> None:
        """A request is over; one that was given up or failed has no line."""
        count = 0 if finish in ("error", "cancelled", "refused") else flight.tokens
        first, between = flight.first_s - flight.arrived, (flight.last_s - flight.first_s) / max(count - 1, 1)
        self.until, prompt = max(self.until, flight.last_s), flight.request.prompt
        self._passed(flight.last_s or self.moment, -1)
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
        stamp = self.open.pop(flight.request.id)
        if count:
            size = self.facts.get("block_tokens")
            line = {
                "timestamp": round(1e3 * stamp, 3),
                "input_length": len(prompt),
                "output_length": count,
                "hash_ids": block_names(prompt, size, flight.request.adapter) if size else [],
                "ttft_s": round(first, 6),
                "tpot_s": round(between, 7),
                "cached_tokens": flight.cached,
                "finish": finish,
                **self.facts,
            }
            self._write(msgspec.json.encode(line) + b"\n")
            self.mixed, self.written = self.mixed or stamp < self.written, stamp

    def _write(self, line: bytes) -> None:
        assert self.file is not None
        try:
            self.file.write(line)
        except OSError as error:  # a full disk ends the record, not the server
            print(f"The record ends here, for it cannot be written: {error.strerror}.", file=sys.stderr)
            with contextlib.suppress(OSError):
                self.file.close()
            self.file = None

    def close(self) -> None:
        """Write what is left, and put the lines in order; where that fails the file stays as it is."""
        file, self.file = self.file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
                if self.mixed and os.path.isfile(file.name):
                    _sort(file.name)


def _sort(path: str) -> None:
    """Put lines in the order of their times; no more than their places is held in memory."""
    read, begin, places = msgspec.json.Decoder(_Stamped).decode, 0, []
    with open(path, "rb") as file, open(f"{path}.sorted", "wb") as into:
        for line in file:
            places.append((read(line).timestamp, begin))
            begin += len(line)
        for _, begin in sorted(places):
            file.seek(begin)
            into.write(file.readline())
    os.replace(f"{path}.sorted", path)


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "wb", buffering=0)  # a line at a time: one that is killed leaves whole ones
    except OSError as error:
        raise InputError(f"The record {path} cannot be written: {error.strerror}.") from None
