"""The planned traffic as a load test: `python -m sglang.bench_serving`, which comes with SGLang.

Prompts are random tokens of the planned lengths (`--random-range-ratio 1`; without it they are anything up to them) and
answers go on to their planned end, so that what is measured is what was planned. With a rate requests come at random
times of that rate; without one as many clients as the plan has sequences send one request after the other. Where a part
of each prompt is expected in the prefix cache, prompts are groups that share so long a beginning.
"""

from typing import Any

from dragonscale.exports.flags import flag_words, shell_lines
from dragonscale.exports.header import header
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.target import Target
from dragonscale.exports.written import WrittenFiles
from dragonscale.physics.units import parse

EACH = 8
"""Requests of each client: what is begun and what is left over at the end is then a small part."""
LASTING = 300
"""Seconds for which requests come where there is a rate."""
FEWEST, MOST = 100, 100_000
SHARING = 16
"""Prompts that begin alike."""
PORTS = {"sglang": 30000, "sgl-jax": 30000}
OTHERS = 8000
"""The port of other engines."""


def write(run: ServingRun, software: Target) -> WrittenFiles:
    """The command of a load test, as a script."""
    table = load_keys("sglang-bench")
    words = ["python", "-m", "sglang.bench_serving", *flag_words(table, flags(run, software))]
    title = f"{table.software} {table.version}, against {software.title}"
    lines = ["#!/usr/bin/env bash", header(run, title) + "set -euo pipefail", "", shell_lines(words)]
    return WrittenFiles({"sglang-bench.sh": "\n".join(lines) + "\n"}, notes=_notes(run))


def flags(run: ServingRun, software: Target) -> dict[str, Any]:
    """The traffic in words of the load generator."""
    traffic = run.file.traffic
    rate = parse(traffic.rate, "count/s", "the rate") if traffic.rate else 0.0
    clients = max(run.file.batch, 1) * (run.file.replicas or 1)
    count = min(max(round(rate * LASTING) if rate else EACH * clients, FEWEST), MOST)
    return {
        "--backend": "sglang" if software.name in PORTS else "vllm",
        "--base-url": f"http://127.0.0.1:{PORTS.get(software.name, OTHERS)}",
        "--model": hub_id(run.file.model),
        **_prompts(run, count),
        "--num-prompts": count,
        "--request-rate": rate or "inf",
        "--max-concurrency": None if rate else clients,
        "--warmup-requests": min(clients, 32),
        "--flush-cache": True if software.name in PORTS else None,
        "--pd-separated": True if run.prefill is not None else None,
        "--seed": 1,
        "--goodput": _goodput(run),
        "--output-file": "sglang-bench.jsonl",
        "--output-details": True,
    }


def _prompts(run: ServingRun, count: int) -> dict[str, Any]:
    traffic = run.file.traffic
    shared = round(traffic.prompt * traffic.cached)
    if not shared:
        return {
            "--dataset-name": "random-ids",
            "--random-input-len": traffic.prompt,
            "--random-output-len": traffic.output,
            "--random-range-ratio": 1.0,
        }
    return {
        "--dataset-name": "generated-shared-prefix",
        "--gsp-num-groups": -(-count // SHARING),
        "--gsp-prompts-per-group": SHARING,
        "--gsp-system-prompt-len": shared,
        "--gsp-question-len": traffic.prompt - shared,
        "--gsp-output-len": traffic.output,
        "--gsp-range-ratio": 1.0,
    }


def _goodput(run: ServingRun) -> list[str] | None:
    """The targets, in milliseconds."""
    own = run.file.targets
    said = [(name, getattr(own, name)) for name in ("ttft", "tpot") if getattr(own, name)]
    return [f"{name}:{parse(text, 's', name) * 1000:g}" for name, text in said] or None


def _notes(run: ServingRun) -> tuple[str, ...]:
    if (run.file.replicas or 1) == 1 and run.prefill is None:
        return ()
    return ("The load is that of all replicas: give --base-url the address of the router before them.",)
