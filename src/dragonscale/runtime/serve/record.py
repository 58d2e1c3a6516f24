"""What a server did, as a trace: a line of JSON for each request, in the order in which they came.

The lines are those of a Mooncake trace (`timestamp` in ms, `input_length`, `output_length`, `hash_ids` of the prompt's blocks) with what
was measured beside it, so that `dscale simulate --trace` replays them and `dscale validate serving` scores the replay. A line waits for
those of requests that came before it: no more are held back than are under way.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TextIO

import msgspec

from dragonscale.errors import InputError

MASK = (1 << 53) - 1
"""Names of blocks are whole numbers that every reader of JSON keeps."""
KEPT = 20_000
"""Requests whose times are kept for medians."""


def block_names(prompt: Sequence[int], size: int) -> list[int]:
    """Names of a prompt's whole blocks, each of it and everything before it.

    >>> a, b = block_names([1, 2, 3, 4, 5], 2), block_names([1, 2, 9, 9], 2)
    >>> len(a), a[0] == b[0], a[1] == b[1]
    (2, True, False)
    """
    name, found = 0, []
    for start, end in pairwise(range(0, len(prompt) + 1, size)):
        name = hash((name, *prompt[start:end])) & MASK
        found.append(name)
    return found


class TrafficRecord:
    """Times of requests: kept for the sums at the end and, where there is a file, written."""

    def __init__(self, path: str = "", **facts: Any) -> None:
        self.facts, self.file = facts, _opened(path) if path else None
        self.began = self.latest = self.until = 0.0
        self.open: dict[str, tuple[float, str | None]] = {}
        self.ttft: deque[float] = deque(maxlen=KEPT)
        self.tpot: deque[float] = deque(maxlen=KEPT)
        self.requests = self.tokens = self.prompt_tokens = self.failed = 0

    def came(self, id: str, arrived: float) -> None:
        self.began = self.began or arrived
        if self.file is not None:  # in the order of a trace, though some were longer on their way here
            self.latest = max(self.latest, arrived - self.began)
            self.open[id] = self.latest, None

    def ended(
        self, id: str, prompt: Sequence[int], arrived: float, first: float, last: float, count: int, **more: Any
    ) -> None:
        """A request is over; one without a token counts as failed and has no line."""
        between, self.until = (last - first) / max(count - 1, 1), max(self.until, last)
        if count:
            self.requests, self.tokens = self.requests + 1, self.tokens + count
            self.prompt_tokens += len(prompt)
            self.ttft.append(first - arrived)
            if count > 1:
                self.tpot.append(between)
        else:
            self.failed += 1
        if self.file is None:
            return
        stamp, text = self.open[id][0], ""
        if count:
            line = {
                "timestamp": round(1e3 * stamp, 3), "input_length": len(prompt), "output_length": count,
                "hash_ids": block_names(prompt, size) if (size := self.facts.get("block_tokens")) else [], "ttft_s": round(first - arrived, 6),
                "tpot_s": round(between, 7), **more, **self.facts,
            }  # fmt: skip
            text = msgspec.json.encode(line).decode() + "\n"
        self.open[id] = stamp, text
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
