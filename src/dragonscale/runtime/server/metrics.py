"""The server's numbers for Prometheus: under vLLM's names, with its buckets, where they mean the same; others are
`dragonscale:`.

Dashboards, autoscalers and routers that are made for vLLM read these as they are. What only engines know (how full the
cache is, how many requests wait) is asked of them when somebody looks.
"""

from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Named = tuple[str, str]


class MetricNames(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`metrics.toml`: the name of each number and what it says."""

    buckets: dict[str, tuple[float, ...]]
    totals: dict[str, Named]
    times: dict[str, tuple[str, str, str]]
    gauges: dict[str, Named]
    counters: dict[str, Named]


NAMES = msgspec.toml.decode(
    (resources.files("dragonscale.runtime.server") / "metrics.toml").read_bytes(), type=MetricNames
)


class ServerMetrics(Collector):
    """Counts and times of requests; `stats` asks the engines for theirs."""

    def __init__(self, model: str, stats: Callable[[], dict[str, Any]]) -> None:
        self.registry = CollectorRegistry()
        names, registry = ["model_name"], self.registry
        totals = {key: Counter(*named, names, registry=registry) for key, named in NAMES.totals.items()}
        self.totals = {key: counter.labels(model) for key, counter in totals.items()}
        self.times: dict[str, Histogram] = {}
        for key, (name, says, buckets) in NAMES.times.items():
            every = Histogram(name, says, names, registry=registry, buckets=NAMES.buckets[buckets])
            self.times[key] = every.labels(model)
        done = Counter("vllm:request_success", "Requests that ended.", [*names, "finished_reason"], registry=registry)
        answers = Counter(
            "dragonscale:http_responses", "Answers by route and status.", ["route", "status"], registry=registry
        )
        self._done = {reason: done.labels(model, reason) for reason in ("stop", "length", "abort", "error")}
        self._answers, self._model, self._stats = answers, model, stats
        self.registry.register(self)

    def ended(self, reason: str) -> None:
        self._done["stop" if reason == "tool_calls" else reason].inc()

    def answered(self, route: str, status: int) -> None:
        self._answers.labels(route, str(status)).inc()

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        return []  # what engines count is not known before they are asked

    def collect(self) -> Iterator[Metric]:
        """What engines count, read when it is asked for."""
        workers = self._stats().get("workers", [])
        numbers = {str(one["index"]): one["stats"] | {"restarts": one["restarts"]} for one in workers}
        for stats in numbers.values():
            if pages := stats.get("pages_used", 0) + stats.get("pages_free", 0):
                stats["kv_usage"] = stats["pages_used"] / pages
        for name in dict.fromkeys(name for stats in numbers.values() for name in stats):
            kind = CounterMetricFamily if name in NAMES.counters else GaugeMetricFamily
            unnamed = f"dragonscale:{name}", f"{name.replace('_', ' ')} of an engine."
            family = kind(*(NAMES.counters | NAMES.gauges).get(name, unnamed), labels=["model_name", "engine"])
            for index, stats in numbers.items():
                if name in stats:
                    family.add_metric([self._model, index], stats[name])
            yield family
