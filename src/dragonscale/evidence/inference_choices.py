"""What measured inference runs leave unsaid and can be looked up: MLPerf's latency limits, the lengths of ShareGPT."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Limits that 99 of 100 requests must keep: seconds to the first token, and for each further one."""

    ttft: float
    tpot: float


TARGETS = {
    ("llama2-70b", "mlperf_server"): Target(2.0, 0.200),
    ("llama2-70b", "mlperf_interactive"): Target(0.450, 0.040),
    ("llama3.1-405b", "mlperf_server"): Target(6.0, 0.175),
    ("llama3.1-405b", "mlperf_interactive"): Target(4.5, 0.080),
    ("llama3.1-8b", "mlperf_server"): Target(2.0, 0.100),
    ("llama3.1-8b", "mlperf_interactive"): Target(0.5, 0.030),
    ("mixtral-8x7b", "mlperf_server"): Target(2.0, 0.200),
    ("deepseek-r1", "mlperf_server"): Target(2.0, 0.080),
}
"""Limits of the data-centre suite of MLPerf Inference 5.1 by model and scenario (MLCommons inference rules)."""

SHAREGPT = {1024: (107, 325)}
"""Mean tokens of prompts and answers of ShareGPT's conversations under the LLaMA 2 tokenizer, of those where neither is
longer than a limit: 8,936 of 10,000."""


def target_of(model: str, scenario: str) -> Target | None:
    """The limits of a model's scenario, or None if it has none."""
    name = re.sub(r"-99(\.9)?$", "", model.lower()).replace("llama3_1", "llama3.1")
    return TARGETS.get((name, scenario))
