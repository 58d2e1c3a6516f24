"""Results of `vllm bench serve --save-result` and of `python -m sglang.bench_serving --output-file`, which have one
origin: a JSON object for each run; `--append-result` and SGLang write them one after another.

`request_rate` is infinite where all requests are sent at once, `max_concurrency` the most that are under way, and
`burstiness` the shape of a gamma distribution of gaps, so that 1 is Poisson. With `--save-detailed` the lengths of all
requests are there too. SGLang draws lengths of its `random` dataset evenly between `random_range_ratio` times the given
length and the length itself, and newer releases keep the server's own arguments in `server_info`.
"""

import math
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.logs.load_test import LoadTest, millis, variation
from dragonscale.evidence.logs.text import LogText, number

_ALWAYS = {"completed", "total_input_tokens", "mean_ttft_ms"}


@dataclass(frozen=True)
class BenchServing:
    """The results of one of the two. `engines` are the servers that a backend may be of, as its name begins; `varies`
    is the key, with its value if that decides, of a rate that changes during the test, and `note` says so."""

    name: str
    named: bool
    """Whether a result names the model (`model_id`), by which the two are told apart."""
    engines: tuple[str, ...]
    varies: tuple[str, str]
    note: str

    def recognises(self, log: LogText) -> bool:
        return any(map(self._is_result, log.tables))

    def _is_result(self, table: dict[str, Any]) -> bool:
        own = _ALWAYS | ({"model_id"} if self.named else {"backend"})
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
        shape = number(table.get("burstiness")) or 1.0
        sent = number(table.get("num_prompts")) or done
        server = table.get("server_info")
        said: dict[str, Any] = server if isinstance(server, dict) and not self.named else {}
        backend = str(table.get("backend") or table.get("endpoint_type") or "")
        return LoadTest(
            self.name,
            done,
            (number(table["total_input_tokens"]) or 0.0) / max(done, 1),
            (number(table.get("total_output_tokens")) or 0.0) / max(done, 1),
            millis(table, "ttft"),
            millis(table, "tpot"),
            number(table.get("output_throughput")),
            number(table.get("request_throughput")),
            failed=max(int(number(table.get("failed", sent - done)) or 0), 0),
            rate=rate,
            clients=max(int(number(table.get("max_concurrency")) or 0), 0),
            burst=1 / math.sqrt(shape) if shape > 0 else 1.0,
            spread=self._spread(table),
            model=str(table.get("model_id") or said.get("model_path") or ""),
            plan=_plan(said),
            engine=next((name for name in self.engines if backend.startswith(name)), ""),
            notes=tuple(notes),
        )

    def _spread(self, table: dict[str, Any]) -> float | None:
        """How much lengths vary: as they were, or as SGLang draws them."""
        spreads = [variation(table.get(name)) for name in ("input_lens", "output_lens")]
        least = number(table.get("random_range_ratio"))
        drawn = not self.named and str(table.get("dataset_name", "")).startswith("random") and least is not None
        even = (1 - least) / (math.sqrt(3) * (1 + least)) if drawn and least is not None else None
        return max((spread for spread in spreads if spread is not None), default=even)


def _plan(said: dict[str, Any]) -> str:
    """The server's split, where it is one that tensor parallelism alone says."""
    tensor = said.get("tp_size")
    return f"tp{tensor}" if isinstance(tensor, int) and said.get("dp_size", 1) == said.get("pp_size", 1) == 1 else ""


VLLM = BenchServing(
    "vllm bench serve",
    True,
    ("vllm", "sglang"),
    ("ramp_up_strategy", ""),
    "The rate of requests was raised during the test",
)
SGLANG = BenchServing(
    "sglang.bench_serving",
    False,
    ("sglang", "vllm", "trt"),
    ("request_rate", "trace"),
    "Requests came as a trace has them",
)
