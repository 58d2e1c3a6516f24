"""The planned traffic as a load test: `aiperf profile`, NVIDIA's, which replaced GenAI-Perf (`genai-perf profile`) and
has its options.

Prompts are synthetic, of the planned lengths without spread, and answers go on to their planned end (`ignore_eos`).
With a rate requests come at random times of that rate; without one as many clients as the plan has sequences send one
request after the other. The part of a prompt that is expected in the prefix cache is one prefix that all prompts share.
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

ROUNDS = 8
"""Requests of each client: what is begun and what is left over at the end is then a small part."""
SECONDS = 300
"""How long requests come where there is a rate."""
LEAST, MOST = 100, 100_000


def write(run: ServingRun, software: Target) -> WrittenFiles:
    """The command of a load test, as a script."""
    table = load_keys("aiperf")
    words = ["aiperf", "profile", *flag_words(table, flags(run))]
    title = f"{table.software} {table.version}, against {software.title}"
    lines = ["#!/usr/bin/env bash", header(run, title) + "set -euo pipefail", "", shell_lines(words)]
    return WrittenFiles({"aiperf.sh": "\n".join(lines) + "\n"}, notes=_notes(run))


def flags(run: ServingRun) -> dict[str, Any]:
    """The traffic in its words."""
    traffic, replicas = run.file.traffic, run.file.replicas or 1
    rate = parse(traffic.rate, "count/s", "the rate") if traffic.rate else 0.0
    clients = max(run.file.batch, 1) * replicas
    shared = round(traffic.prompt * traffic.cached)
    count = round(rate * SECONDS) if rate else ROUNDS * clients
    return {
        "--model-names": [hub_id(run.file.model)],
        "--tokenizer": hub_id(run.file.model),
        "--url": ["http://127.0.0.1:8000"],
        "--endpoint-type": "completions",
        "--streaming": True,
        "--prompt-input-tokens-mean": max(traffic.prompt - shared, 1),
        "--prompt-input-tokens-stddev": 0,
        "--prompt-output-tokens-mean": traffic.output,
        "--prompt-output-tokens-stddev": 0,
        "--prompt-prefix-pool-size": 1 if shared else None,
        "--prompt-prefix-length": shared or None,
        "--extra-inputs": ["ignore_eos:true", f"min_tokens:{traffic.output}"],
        "--request-rate": rate or None,
        "--arrival-pattern": "poisson" if rate else None,
        "--concurrency": None if rate else clients,
        "--request-count": min(max(count, LEAST), MOST),
        "--warmup-request-count": min(clients, 32),
        "--random-seed": 0,
        "--goodput": _goodput(run),
        "--output-artifact-dir": "aiperf",
    }


def _goodput(run: ServingRun) -> str | None:
    """The targets, in milliseconds."""
    own = run.file.targets
    said = (("time_to_first_token", own.ttft), ("inter_token_latency", own.tpot))
    return " ".join(f"{name}:{parse(text, 's', name) * 1000:g}" for name, text in said if text) or None


def _notes(run: ServingRun) -> tuple[str, ...]:
    found = ["`dscale validate serving --plan … aiperf/profile_export_aiperf.json` scores what it measures."]
    if (run.file.replicas or 1) > 1 or run.prefill is not None:
        found.append("The load is that of all replicas: give --url the address of the router before them.")
    return tuple(found)
