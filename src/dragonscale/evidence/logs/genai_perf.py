"""GenAI-Perf's and AIPerf's `profile_export_*.json`: a table for each metric, with its unit, mean and percentiles.

    {"time_to_first_token": {"unit": "ms", "avg": 245.1, "p50": 240.2, "p99": 410.9, …}, "inter_token_latency": {…},
     "output_token_throughput": {"avg": 2048.5, …}, "input_sequence_length": {…}, "input_config": {…}}

`inter_token_latency` is a request's time after its first token over its other tokens, which others call TPOT. How
requests came is in `input_config`: in newer releases of AIPerf in the phase of it that is measured, in older ones and
in GenAI-Perf at places that differ by release, so that keys are looked for wherever they stand.
"""

import math
from collections.abc import Iterator
from typing import Any

from dragonscale.evidence.logs.load_test import LoadTest, MeasuredTimes, in_seconds
from dragonscale.evidence.logs.text import LogText, number

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_SAYS = ("time_to_first_token", "inter_token_latency", "output_sequence_length")


def recognises(log: LogText) -> bool:
    return log.table is not None and all(isinstance(log.table.get(name), dict) for name in _SAYS)


def read(log: LogText) -> LoadTest:
    table = log.table or {}
    config: Any = table.get("input_config") or {}
    phase = _phase(config)
    shape = _first(phase, "smoothness") or _first(phase, "arrival_smoothness") or 1.0
    lengths = [_metric(table, f"{side}_sequence_length") for side in ("input", "output")]
    names = next((one for key in ("model", "model_names", "models") for one in _values(config, key)), "")
    return LoadTest(
        "AIPerf" if "aiperf_version" in table else "GenAI-Perf",
        int(_average(table, "request_count") or 0),
        _average(table, "input_sequence_length") or 0.0,
        _average(table, "output_sequence_length") or 0.0,
        _times(table, "time_to_first_token"),
        _times(table, "inter_token_latency"),
        _average(table, "output_token_throughput"),
        _average(table, "request_throughput"),
        failed=int(_average(table, "error_request_count") or 0),
        rate=_first(phase, "request_rate") or _first(phase, "rate"),
        clients=max(int(_first(phase, "concurrency") or 0), 0),
        burst=1 / math.sqrt(shape) if shape > 0 else 1.0,
        spread=max((one for metric in lengths if (one := _variation(metric)) is not None), default=None),
        model=_name(names),
    )


def _phase(config: Any) -> Any:
    """The phase that was measured, which a warm-up may come before; the whole config where it has none."""
    phases = config.get("phases") if isinstance(config, dict) else None
    named = [one for one in phases if isinstance(one, dict)] if isinstance(phases, list) else []
    measured = [one for one in named if one.get("kind", one.get("name")) != "warmup"]
    return measured[-1] if measured else config


def _metric(table: dict[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {"avg": found}


def _average(table: dict[str, Any], name: str) -> float | None:
    return number(_metric(table, name).get("avg"))


def _variation(metric: dict[str, Any]) -> float | None:
    mean, deviation = number(metric.get("avg")), number(metric.get("std"))
    return deviation / mean if mean and deviation is not None else None


def _times(table: dict[str, Any], name: str) -> MeasuredTimes:
    metric = _metric(table, name)
    unit = _UNITS.get(str(metric.get("unit", "ms")), 1e-3)
    return in_seconds([metric.get(part) for part in ("avg", "p50", "p99")], unit)


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


def _name(value: Any) -> str:
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return _name(value.get("items") or value.get("name", ""))
    return value if isinstance(value, str) else ""
