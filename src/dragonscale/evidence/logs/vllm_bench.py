"""`vllm bench serve --save-result`: one JSON object for each run; `--append-result` writes them one after another.

`request_rate` is `"inf"` where all requests are sent at once, `max_concurrency` the most that are under way, and
`burstiness` the shape of a gamma distribution of gaps, so that 1 is Poisson. With `--save-detailed` the lengths of all
requests are there too.
"""

import math
from typing import Any

from dragonscale.evidence.logs.load_test import LoadTest, millis, variation
from dragonscale.evidence.logs.text import LogText, number

NAME, KIND = "vllm bench serve", "serving"


def recognises(log: LogText) -> bool:
    return any(map(_is_result, log.tables))


def _is_result(table: dict[str, Any]) -> bool:
    return {"model_id", "completed", "total_input_tokens", "mean_ttft_ms"} <= table.keys()


def read(log: LogText) -> LoadTest:
    """The last result of a file."""
    every = list(filter(_is_result, log.tables))
    table = every[-1]
    done = int(number(table["completed"]) or 0)
    shape = number(table.get("burstiness")) or 1.0
    rate = number(table.get("request_rate"))
    notes = [f"The file holds {len(every)} results, and the last is taken."] if len(every) > 1 else []
    if table.get("ramp_up_strategy"):
        rate = number(table.get("request_throughput"))
        notes.append("The rate of requests was raised during the test; they are simulated at the same mean rate.")
    spreads = [variation(table.get(name)) for name in ("input_lens", "output_lens")]
    return LoadTest(
        NAME,
        done,
        (number(table["total_input_tokens"]) or 0.0) / max(done, 1),
        (number(table.get("total_output_tokens")) or 0.0) / max(done, 1),
        millis(table, "ttft"),
        millis(table, "tpot"),
        number(table.get("output_throughput")),
        number(table.get("request_throughput")),
        failed=max(int(number(table.get("failed", (number(table.get("num_prompts")) or done) - done)) or 0), 0),
        rate=rate,
        clients=max(int(number(table.get("max_concurrency")) or 0), 0),
        burst=1 / math.sqrt(shape) if shape > 0 else 1.0,
        spread=max((one for one in spreads if one is not None), default=None),
        model=str(table["model_id"]),
        engine=_engine(table),
        notes=tuple(notes),
    )


def _engine(table: dict[str, Any]) -> str:
    """The server behind the endpoint, where the endpoint is that of one server alone."""
    backend = str(table.get("backend") or table.get("endpoint_type") or "")
    return next((name for name in ("vllm", "sglang") if backend.startswith(name)), "")
