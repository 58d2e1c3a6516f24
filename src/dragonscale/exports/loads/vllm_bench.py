"""The planned traffic as a load test: `vllm bench serve`, which measures any server with OpenAI's API.

Prompts are random tokens of the planned lengths and answers go on to their planned end (`--ignore-eos`), so that what
is measured is what was planned. With a rate requests come at random times of that rate; without one as many clients as
the plan has sequences send one request after the other. The part of a prompt that is expected in the prefix cache is
one prefix that all prompts share.
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
PERCENTILES = "50,90,99"


def write(run: ServingRun, software: Target) -> WrittenFiles:
    """The command of a load test, as a script."""
    table = load_keys("vllm-bench")
    words = ["vllm", "bench", "serve", *flag_words(table, flags(run))]
    title = f"{table.software} {table.version}, against {software.title}"
    lines = ["#!/usr/bin/env bash", header(run, title) + "set -euo pipefail", "", shell_lines(words)]
    return WrittenFiles({"vllm-bench.sh": "\n".join(lines) + "\n"}, notes=_notes(run))


def flags(run: ServingRun) -> dict[str, Any]:
    """The traffic in words of `vllm bench serve`."""
    traffic, replicas = run.file.traffic, run.file.replicas or 1
    rate = parse(traffic.rate, "count/s", "the rate") if traffic.rate else 0.0
    clients = run.file.batch * replicas
    shared = round(traffic.prompt * traffic.cached)
    prompts = round(rate * SECONDS) if rate else ROUNDS * clients
    return {
        "--base-url": "http://127.0.0.1:8000",
        "--backend": "openai",
        "--endpoint": "/v1/completions",
        "--model": hub_id(run.file.model),
        "--dataset-name": "random",
        "--random-input-len": traffic.prompt - shared,
        "--random-prefix-len": shared or None,
        "--random-output-len": traffic.output,
        "--random-range-ratio": 0.0,
        "--ignore-eos": True,
        "--request-rate": rate or "inf",
        "--max-concurrency": None if rate else clients,
        "--num-prompts": min(max(prompts, LEAST), MOST),
        "--num-warmups": min(clients, 32),
        "--seed": 0,
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--metric-percentiles": PERCENTILES,
        "--goodput": _goodput(run),
        "--save-result": True,
        "--result-filename": "vllm-bench.json",
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
