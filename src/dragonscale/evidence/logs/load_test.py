"""What a load generator measured of a server: the traffic it made, and the latencies and rates that came of it.

Results of `vllm bench serve --save-result` and of `python -m sglang.bench_serving --output-file`, which have one
origin: a JSON object for each run; `--append-result` and SGLang write them one after another.

`request_rate` is infinite where all requests are sent at once, `max_concurrency` the most that are under way, and
`burstiness` the shape of a gamma distribution of gaps, so that 1 is Poisson. With `--save-detailed` the lengths of all
requests are there too. SGLang draws lengths of its `random` dataset evenly between `random_range_ratio` times the given
length and the length itself, and newer releases keep the server's own arguments in `server_info`.

GenAI-Perf's and AIPerf's `profile_export_*.json`: a table for each metric, with its unit, mean and percentiles.

    {"time_to_first_token": {"unit": "ms", "avg": 245.1, "p50": 240.2, "p99": 410.9, …}, "inter_token_latency": {…},
     "output_token_throughput": {"avg": 2048.5, …}, "input_sequence_length": {…}, "input_config": {…}}

`inter_token_latency` is a request's time after its first token over its other tokens, which others call TPOT. How
requests came is in `input_config`: in newer releases of AIPerf in the phase of it that is measured, in older ones and
in GenAI-Perf at places that differ by release, so that keys are looked for wherever they stand.

`dscale run serve --record`: a line of JSON for each request, when it came, what it had and what it waited for.

The file is a trace too (`simulation/trace_files.py`), so the same requests are simulated, each when it came, or when
the one ended that it followed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dragonscale.evidence.logs.text import LogText, formats, number
from dragonscale.simulation.trace_files import order_of

Table = dict[str, Any]


@dataclass(frozen=True)
class MeasuredTimes:
    """A latency over all requests, in seconds; what was not written is None."""

    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    p90: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class LoadTest:
    """A load test; zeros and None say nothing. `rate` is None where requests came as fast as they were taken, and
    `clients` the most of them that were answered at once. `burst` is the coefficient of variation of the gaps between
    requests, `spread` that of the lengths."""

    software: str
    requests: int
    prompt: float
    output: float
    ttft: MeasuredTimes
    tpot: MeasuredTimes
    output_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    failed: int = 0
    rate: float | None = None
    clients: int = 0
    burst: float = 1.0
    spread: float | None = None
    model: str = ""
    engine: str = ""
    plan: str = ""
    notes: tuple[str, ...] = field(default=())
    trace: str = ""
    """The file itself, where it says when each request came: the same ones are simulated."""
    slice: str = ""
    launch: dict[str, int] = field(default_factory=dict)
    """What the server was started with, by the flags of `dscale simulate`."""
    device: str = ""
    """What the driver calls the chips that served, where it is known."""
    kv_tokens: int = 0
    """What the cache of a replica had room for."""
    e2e: MeasuredTimes = MeasuredTimes()
    """Of whole requests."""

    @property
    def mean_clients(self) -> float | None:
        """Requests that were under way on average: by Little's law, what came in a second times how long it took."""
        if self.requests_per_s is None or self.ttft.mean is None or self.tpot.mean is None:
            return None
        return self.requests_per_s * (self.ttft.mean + self.tpot.mean * max(self.output - 1, 0))


def in_seconds(values: Sequence[Any], unit: float) -> MeasuredTimes:
    """The mean, the median and the 99th percentile, where they are times."""
    found = (number(value) for value in values)
    return MeasuredTimes(*(one * unit if one is not None and one > 0 else None for one in found))


def variation(several: Any) -> float | None:
    """The coefficient of variation of a list of numbers.

    >>> variation([2, 4]), variation([]), variation(None)
    (0.3333333333333333, None, None)
    """
    values = [one for value in several if (one := number(value)) is not None] if isinstance(several, list) else []
    if not values or not sum(values):
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def _burst(shape: float | None) -> float:
    """The variation of gaps whose gamma distribution has this shape."""
    return 1 / math.sqrt(shape) if shape and shape > 0 else 1.0


def _average(table: Table, key: str) -> float | None:
    return number(_metric(table, key).get("avg"))


class BenchServing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The results of `vllm bench serve` or `sglang.bench_serving`. `engines` are the servers that a backend may be of,
    as its name begins; `varies` is the key, with its value if that decides, of a rate that changes during the test, and
    `note` says so."""

    name: str
    named: bool
    """Whether a result names the model (`model_id`), by which the two are told apart."""
    engines: tuple[str, ...]
    varies: tuple[str, str]
    note: str

    def recognises(self, log: LogText) -> bool:
        return any(map(self._is_result, log.tables))

    def _is_result(self, table: Table) -> bool:
        own = {"completed", "total_input_tokens", "mean_ttft_ms", "model_id" if self.named else "backend"}
        return own <= table.keys() and ("model_id" in table) == self.named

    def read(self, log: LogText) -> LoadTest:
        """The last result of a file."""
        results = list(filter(self._is_result, log.tables))
        table = results[-1]
        done, rate = int(number(table["completed"]) or 0), number(table.get("request_rate"))
        notes = [f"The file holds {len(results)} results, and the last is taken."] if len(results) > 1 else []
        key, value = self.varies
        if table.get(key) == value if value else table.get(key):
            rate = number(table.get("request_throughput"))
            notes.append(f"{self.note}; they are simulated at the same mean rate.")
        sent, server = number(table.get("num_prompts")) or done, table.get("server_info")
        launched: Table = server if isinstance(server, dict) and not self.named else {}
        backend = str(table.get("backend") or table.get("endpoint_type") or "")
        tokens = (number(table.get(f"total_{side}_tokens")) or 0.0 for side in ("input", "output"))
        times = ([table.get(f"{part}_{name}_ms") for part in ("mean", "median", "p99")] for name in ("ttft", "tpot"))
        rates = (number(table.get(f"{what}_throughput")) for what in ("output", "request"))
        measured: list[Any] = [total / max(done, 1) for total in tokens]
        measured += [in_seconds(parts, 1e-3) for parts in times]
        return LoadTest(
            self.name,
            done,
            *measured,
            *rates,
            failed=max(int(number(table.get("failed", sent - done)) or 0), 0),
            rate=rate,
            clients=max(int(number(table.get("max_concurrency")) or 0), 0),
            burst=_burst(number(table.get("burstiness")) or 1.0),
            spread=self._spread(table),
            model=str(table.get("model_id") or launched.get("model_path") or ""),
            plan=_split(launched),
            engine=next((name for name in self.engines if backend.startswith(name)), ""),
            notes=tuple(notes),
        )

    def _spread(self, table: Table) -> float | None:
        """How much lengths vary: as they were, or as SGLang draws them."""
        spreads = [variation(table.get(name)) for name in ("input_lens", "output_lens")]
        least = number(table.get("random_range_ratio"))
        drawn = not self.named and str(table.get("dataset_name", "")).startswith("random")
        even = (1 - least) / (math.sqrt(3) * (1 + least)) if drawn and least is not None and 0 <= least <= 1 else None
        return max((spread for spread in spreads if spread is not None), default=even)


def _split(launched: Table) -> str:
    """The server's split, where it is one that tensor parallelism alone says."""
    tensor, others = launched.get("tp_size"), (launched.get("dp_size", 1), launched.get("pp_size", 1))
    return f"tp{tensor}" if isinstance(tensor, int) and others == (1, 1) else ""


BENCHES = msgspec.convert(formats()["bench"], tuple[BenchServing, ...])


class GenaiPerf:
    """The results of GenAI-Perf and AIPerf."""

    name = "AIPerf"
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}

    def recognises(self, log: LogText) -> bool:
        metrics = ("time_to_first_token", "inter_token_latency", "output_sequence_length")
        return log.table is not None and all(isinstance(log.table.get(name), dict) for name in metrics)

    def read(self, log: LogText) -> LoadTest:
        table = log.table or {}
        config: Any = table.get("input_config") or {}
        phase = _phase(config)
        lengths = [_metric(table, f"{side}_sequence_length") for side in ("input", "output")]
        names = next((one for key in ("model", "model_names", "models") for one in _values(config, key)), "")
        measured: list[Any] = [number(metric.get("avg")) or 0.0 for metric in lengths]
        measured += [self._times(table, name) for name in ("time_to_first_token", "inter_token_latency")]
        return LoadTest(
            "AIPerf" if "aiperf_version" in table else "GenAI-Perf",
            int(_average(table, "request_count") or 0),
            *measured,
            *(_average(table, name) for name in ("output_token_throughput", "request_throughput")),
            failed=int(_average(table, "error_request_count") or 0),
            rate=_first(phase, "request_rate") or _first(phase, "rate"),
            clients=max(int(_first(phase, "concurrency") or 0), 0),
            burst=_burst(_first(phase, "smoothness") or _first(phase, "arrival_smoothness")),
            spread=max((one for metric in lengths if (one := _deviation(metric)) is not None), default=None),
            model=_model_name(names),
        )

    def _times(self, table: Table, name: str) -> MeasuredTimes:
        metric = _metric(table, name)
        unit = self.units.get(str(metric.get("unit", "ms")), 1e-3)
        return in_seconds([metric.get(part) for part in ("avg", "p50", "p99")], unit)


def _phase(config: Any) -> Any:
    """The phase that was measured, which a warm-up may come before; the whole config where it has none."""
    phases = config.get("phases") if isinstance(config, dict) else None
    named = [one for one in phases if isinstance(one, dict)] if isinstance(phases, list) else []
    measured = [one for one in named if one.get("kind", one.get("name")) != "warmup"]
    return measured[-1] if measured else config


def _metric(table: Table, name: str) -> Table:
    found = table.get(name)
    return found if isinstance(found, dict) else {"avg": found}


def _deviation(metric: Table) -> float | None:
    mean, deviation = number(metric.get("avg")), number(metric.get("std"))
    return deviation / mean if mean and deviation is not None else None


def _values(config: Any, name: str, depth: int = 0) -> Iterator[Any]:
    """The values of a key, wherever it stands; tables of tables end somewhere."""
    if depth > 8:
        return
    if isinstance(config, dict):
        if config.get(name) not in (None, "", []):
            yield config[name]
        config = list(config.values())
    if isinstance(config, list):
        for one in config:
            yield from _values(one, name, depth + 1)


def _first(config: Any, name: str) -> float | None:
    return next((found for value in _values(config, name) if (found := number(value))), None)


def _model_name(value: Any) -> str:
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return _model_name(value.get("items") or value.get("name", ""))
    return value if isinstance(value, str) else ""


class ServedRecord:
    """The requests that our own server recorded."""

    name = "dscale run serve --record"
    launch = ("max_seqs", "token_budget", "replicas")

    def recognises(self, log: LogText) -> bool:
        return any(map(self._is_request, log.tables))

    def _is_request(self, table: Table) -> bool:
        return {"timestamp", "input_length", "output_length", "ttft_s", "tpot_s"} <= table.keys()

    def read(self, log: LogText) -> LoadTest:
        """All requests of a file."""
        every = list(filter(self._is_request, log.tables))
        first, count = every[0], len(every)
        stamps, prompts, outputs, ttfts, tpots = (
            [number(row[name]) or 0.0 for row in every]
            for name in ("timestamp", "input_length", "output_length", "ttft_s", "tpot_s")
        )
        came = [stamp / 1e3 for stamp in stamps]
        requests = list(zip(came, ttfts, tpots, outputs, strict=True))
        lasts = [at + ttft + tpot * (made - 1) for at, ttft, tpot, made in requests]
        span = max(lasts) - min(stamps) / 1e3
        followed = order_of(came, lasts)
        clients = count - len(followed) if followed else 0
        named = ("model", "engine", "plan", "slice", "device")
        words: dict[str, Any] = {name: str(first.get(name) or "") for name in named}
        lengths = sum(prompts) / count, sum(outputs) / count
        times = _times(ttfts), _times([tpot for _, _, tpot, made in requests if made > 1])
        rates = (sum(outputs) / span, count / span) if span > 0 else (None, None)
        return LoadTest(
            self.name,
            count,
            *lengths,
            *times,
            *rates,
            rate=None if clients else rates[1],
            clients=clients,
            spread=max((one for one in map(variation, (prompts, outputs)) if one is not None), default=None),
            trace=str(log.path),
            launch={name: int(value) for name in self.launch if (value := number(first.get(name)))},
            kv_tokens=int(number(first.get("kv_tokens")) or 0),
            e2e=_times([last - at for last, at in zip(lasts, came, strict=True)]),
            **words,
        )


def _times(values: list[float]) -> MeasuredTimes:
    """The mean and percentiles.

    >>> _times([1.0, 2.0, 6.0])
    MeasuredTimes(mean=3.0, p50=2.0, p99=6.0, p90=6.0, p95=6.0)
    """
    ranked = sorted(values)
    if not ranked:
        return MeasuredTimes()
    parts = (ranked[int(share * len(ranked))] for share in (0.5, 0.99, 0.9, 0.95))
    return MeasuredTimes(sum(ranked) / len(ranked), *parts)
