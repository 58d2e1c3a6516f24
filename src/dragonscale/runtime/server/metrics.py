"""The server's numbers for Prometheus: under vLLM's names, with its buckets, where they mean the same; others are
`dragonscale:`.

Dashboards, autoscalers and routers that are made for vLLM read these as they are. What only engines know (how full the
cache is, how many requests wait) is asked of them when somebody looks.
"""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_GAUGES = {
    "running": ("vllm:num_requests_running", "Number of requests in model execution batches."),
    "waiting": ("vllm:num_requests_waiting", "Number of requests waiting to be processed."),
    "kv_usage": ("vllm:kv_cache_usage_perc", "KV cache usage; 1 means 100 percent."),
}
_COUNTERS = {
    "prefix_queries": ("vllm:prefix_cache_queries", "Tokens that were looked up in the prefix cache."),
    "prefix_hits": ("vllm:prefix_cache_hits", "Tokens that were found in the prefix cache."),
    "drafted": ("vllm:spec_decode_num_draft_tokens", "Tokens that were drafted."),
    "accepted": ("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were accepted."),
    "preemptions": ("vllm:num_preemptions", "Requests that lost their pages and were computed again."),
}
_COUNTED = {"evictions", "tokens_in", "tokens_out", "steps", "restarts"}


class ServerMetrics(Collector):
    """Counts and times of requests; `stats` asks the engines for theirs."""

    def __init__(self, model: str, stats: Callable[[], dict[str, Any]]) -> None:
        self.registry = CollectorRegistry()
        names = ["model_name"]

        def counter(name: str, says: str) -> Counter:
            return Counter(name, says, names, registry=self.registry).labels(model)

        def times(name: str, says: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, says, names, registry=self.registry, buckets=buckets).labels(model)

        self.prompt_tokens = counter("vllm:prompt_tokens", "Number of prefill tokens processed.")
        self.output_tokens = counter("vllm:generation_tokens", "Number of generation tokens processed.")
        self.first_token = times("vllm:time_to_first_token_seconds", "Time to the first token.", _FIRST)
        self.between = times("vllm:inter_token_latency_seconds", "Time between tokens.", _EACH)
        self.per_token = times(
            "vllm:request_time_per_output_token_seconds", "Time per output token, of requests.", _EACH
        )
        self.whole = times("vllm:e2e_request_latency_seconds", "Time of requests from end to end.", _WHOLE)
        self.queued = times("vllm:request_queue_time_seconds", "Time that requests waited for their place.", _WHOLE)
        done = Counter(
            "vllm:request_success", "Requests that ended.", [*names, "finished_reason"], registry=self.registry
        )
        answers = Counter(
            "dragonscale:http_responses", "Answers by route and status.", ["route", "status"], registry=self.registry
        )
        self._done = {reason: done.labels(model, reason) for reason in ("stop", "length", "abort", "error")}
        self._answers, self._model, self._stats = answers, model, stats
        self.registry.register(self)

    def ended(self, reason: str) -> None:
        self._done[reason].inc()

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
            counts = name in _COUNTERS or name in _COUNTED
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            named = (
                _COUNTERS.get(name)
                or _GAUGES.get(name)
                or (f"dragonscale:{name}", f"{name.replace('_', ' ')} of an engine.")
            )
            family = kind(*named, labels=["model_name", "engine"])
            for index, stats in numbers.items():
                if name in stats:
                    family.add_metric([self._model, index], stats[name])
            yield family
