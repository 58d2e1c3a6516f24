"""`python -m sglang.bench_serving --output-file`: a line of JSON for each run, appended to the file.

`request_rate` is infinite where all requests are sent at once. Lengths of the `random` dataset are drawn evenly between
`random_range_ratio` times the given length and the length itself. Newer releases keep the server's own arguments in
`server_info`.
"""

import math
from typing import Any

from dragonscale.evidence.logs.load_test import LoadTest, millis, variation
from dragonscale.evidence.logs.text import LogText, number

NAME, KIND = "sglang.bench_serving", "serving"


def recognises(log: LogText) -> bool:
    return any(map(_is_result, log.tables))


def _is_result(table: dict[str, Any]) -> bool:
    return {"completed", "total_input_tokens", "mean_ttft_ms", "backend"} <= table.keys() and "model_id" not in table


def read(log: LogText) -> LoadTest:
    """The last result of a file."""
    every = list(filter(_is_result, log.tables))
    table = every[-1]
    done, rate = int(number(table["completed"]) or 0), number(table.get("request_rate"))
    notes = [f"The file holds {len(every)} results, and the last is taken."] if len(every) > 1 else []
    if table.get("request_rate") == "trace":
        rate = number(table.get("request_throughput"))
        notes.append("Requests came as a trace has them; they are simulated at the same mean rate.")
    server = table.get("server_info")
    said: dict[str, Any] = server if isinstance(server, dict) else {}
    backend = str(table["backend"])
    return LoadTest(
        NAME,
        done,
        (number(table["total_input_tokens"]) or 0.0) / max(done, 1),
        (number(table.get("total_output_tokens")) or 0.0) / max(done, 1),
        millis(table, "ttft"),
        millis(table, "tpot"),
        number(table.get("output_throughput")),
        number(table.get("request_throughput")),
        rate=rate,
        clients=max(int(number(table.get("max_concurrency")) or 0), 0),
        spread=_spread(table),
        model=str(said.get("model_path") or ""),
        plan=_plan(said),
        engine=next((name for name in ("sglang", "vllm", "trt") if backend.startswith(name)), ""),
        notes=tuple(notes),
    )


def _plan(said: dict[str, Any]) -> str:
    """The server's split, where it is one that tensor parallelism alone says."""
    tensor = said.get("tp_size")
    return f"tp{tensor}" if isinstance(tensor, int) and said.get("dp_size", 1) == said.get("pp_size", 1) == 1 else ""


def _spread(table: dict[str, Any]) -> float | None:
    """How much lengths vary: as they were, or as they are drawn."""
    found = [variation(table.get(name)) for name in ("input_lens", "output_lens")]
    known = [one for one in found if one is not None]
    if known:
        return max(known)
    least = number(table.get("random_range_ratio"))
    if least is None or not str(table.get("dataset_name", "")).startswith("random"):
        return None
    return (1 - least) / (math.sqrt(3) * (1 + least))
