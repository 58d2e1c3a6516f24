"""What requests must get: so many seconds of a latency, on average or at a percentile.

`500ms` and `mean:500ms` are the mean of all requests, `p95:1s` is what 95% of them get or better.
"""

from typing import Any, NamedTuple

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse, render

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
"""Latencies that can have a target, as flags and as people write them: to the first token, per output token of a
request, between any two tokens, and of whole requests."""
MEAN = "mean"
STATISTICS = (MEAN, "p50", "p90", "p95", "p99")


class LatencyTarget(NamedTuple):
    """Seconds that a statistic of a latency is to stay within."""

    seconds: float
    statistic: str = MEAN

    @property
    def share(self) -> float | None:
        """The part of requests that have to meet it; None where the mean does."""
        return None if self.statistic == MEAN else int(self.statistic[1:]) / 100

    @property
    def at(self) -> str:
        return f"at {self.statistic}" if self.share else "on average"

    @property
    def text(self) -> str:
        """As sentences have it; the mean goes without saying.

        >>> LatencyTarget(0.5).text, LatencyTarget(1.0, "p95").text
        ('500ms', '1s at p95')
        """
        return render(self.seconds, "s") + (f" {self.at}" if self.share else "")


def read_target(text: str, flag: str, usual: str = MEAN) -> LatencyTarget | None:
    """A target as it is written; `usual` is the statistic of one that names none. Nothing is none.

    >>> read_target("p95:1s", "--ttft"), read_target("30ms", "--tpot")
    (LatencyTarget(seconds=1.0, statistic='p95'), LatencyTarget(seconds=0.03, statistic='mean'))
    """
    if not text.strip():
        return None
    words = [part.strip().lower() for part in text.split(":")]
    statistic = words[0] if len(words) > 1 else usual
    if words[-1] in STATISTICS or len(words) > 2 or statistic not in STATISTICS:
        raise InputError(
            f"{flag} is {shorten(text)}; write a time for the mean (500ms), or p50, p90, p95 or p99 before it (p95:1s)."
        )
    seconds = parse(words[-1], "s", flag)
    if seconds <= 0:
        raise InputError(f"{flag} is {shorten(text)}; it is more than nothing.")
    return LatencyTarget(seconds, statistic)


def read_targets(question: Any, usual: str = MEAN) -> dict[str, LatencyTarget]:
    """The targets of a question by the names of their latencies."""
    found = {name: read_target(getattr(question, name), f"--{name}", usual) for name in LATENCIES}
    return {name: target for name, target in found.items() if target is not None}
