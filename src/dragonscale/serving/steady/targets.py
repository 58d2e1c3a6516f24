"""Latency targets: so many seconds on average or at a percentile.

`500ms` and `mean:500ms` are the mean of all requests, `p95:1s` is what 95% of them get or better.
"""

from typing import Any, NamedTuple

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse, render

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
"""Latencies that can have a target, as flags and as people write them: time to first token, time per output token of a
request, between any two tokens, and end to end."""
MEAN = "mean"
STATISTICS = (MEAN, "p50", "p90", "p95", "p99")


class LatencyTarget(NamedTuple):
    """Seconds that a statistic of a latency must not exceed."""

    seconds: float
    statistic: str = MEAN

    @property
    def share(self) -> float | None:
        """The fraction of requests that must meet it; None for a target of the mean."""
        return None if self.statistic == MEAN else int(self.statistic[1:]) / 100

    @property
    def at(self) -> str:
        return f"at {self.statistic}" if self.share else "on average"

    @property
    def text(self) -> str:
        """The target in a sentence; the mean is not mentioned.

        >>> LatencyTarget(0.5).text, LatencyTarget(1.0, "p95").text
        ('500ms', '1s at p95')
        """
        text = render(self.seconds, "s")
        return f"{text} {self.at}" if self.share else text


def read_target(text: str, flag: str, usual: str = MEAN) -> LatencyTarget | None:
    """A target from text, or None if there is none; `usual` is the statistic of one that names none.

    >>> read_target("p95:1s", "--ttft"), read_target("30ms", "--tpot")
    (LatencyTarget(seconds=1.0, statistic='p95'), LatencyTarget(seconds=0.03, statistic='mean'))
    """
    if not text.strip():
        return None
    parts = [part.strip().lower() for part in text.split(":")]
    statistic = parts[0] if len(parts) > 1 else usual
    # a last part like p95 is a statistic without a time
    if parts[-1] in STATISTICS or len(parts) > 2 or statistic not in STATISTICS:
        raise InputError(
            f"{flag} is {shorten(text)}; write a time for the mean (500ms), or p50, p90, p95 or p99 before it (p95:1s)."
        )
    seconds = parse(parts[-1], "s", flag)
    if seconds <= 0:
        raise InputError(f"{flag} is {shorten(text)}; it is more than nothing.")
    return LatencyTarget(seconds, statistic)


def read_targets(question: Any, usual: str = MEAN) -> dict[str, LatencyTarget]:
    """The targets of a question by the names of their latencies."""
    targets: dict[str, LatencyTarget] = {}
    for name in LATENCIES:
        target = read_target(getattr(question, name), f"--{name}", usual)
        if target is not None:
            targets[name] = target
    return targets
