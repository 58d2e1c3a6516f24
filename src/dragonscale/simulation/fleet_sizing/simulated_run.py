"""Numbers of a run, as answers have them."""

import msgspec

from dragonscale.simulation.histogram import Estimate, Summary


class Latency(msgspec.Struct):
    """A distribution. `mean_low` and `mean_high` are a 95% interval, as are those of the 99th percentile; null where
    the run is too short to say."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean_low: float | None
    mean_high: float | None
    p99_low: float | None
    p99_high: float | None


class SimulatedRun(msgspec.Struct):
    """A short run of the headline under its traffic: `clients` that keep the batch of one replica full, or requests at
    the asked rate (of a large fleet a few replicas and their part of it). `latency` has `ttft_s`, `tpot_s`, `itl_s`,
    `e2e_s` and the time until a request is scheduled, `queue_s`. Where a result was near a target, latencies are means
    over `runs` with other random numbers, each of so many `requests`."""

    replicas: int
    clients: int | None
    rate_per_s: float | None
    requests: int
    latency: dict[str, Latency]
    output_tokens_per_s_per_chip: float
    meets_slo: bool
    runs: int = 1
    router: str = ""
    """How requests were given to replicas."""
    cached: float = 0.0
    """The part of prompt tokens that was found in prefix caches."""


def latency_of(summary: Summary) -> Latency:
    """A distribution as a record, in seconds."""
    mean_low, mean_high = _interval(summary.mean)
    p99_low, p99_high = _interval(summary.p99)
    return Latency(
        mean=summary.mean.value,
        p50=summary.p50.value,
        p90=summary.p90.value,
        p95=summary.p95.value,
        p99=summary.p99.value,
        max=summary.most,
        mean_low=mean_low,
        mean_high=mean_high,
        p99_low=p99_low,
        p99_high=p99_high,
    )


def _interval(estimate: Estimate) -> tuple[float | None, float | None]:
    return (estimate.low, estimate.high) if estimate.known else (None, None)
