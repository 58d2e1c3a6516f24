"""The planned traffic as a load test: `vllm bench serve`, `python -m sglang.bench_serving`, or `aiperf profile`.

Prompts are random tokens of the planned lengths without spread, and answers go on to their planned end, so that what is
measured is what was planned. With a rate requests come at random times of that rate; without one as many clients as the
plan has sequences send one request after the other. The part of a prompt that is expected in the prefix cache is one
prefix that all prompts share, or, for SGLang's, the beginning of a group of prompts.
"""

from typing import Any

from dragonscale.exports.keys import flag_words, shell_lines
from dragonscale.exports.model_names import served_id
from dragonscale.exports.runs import ServingRun, header
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import WrittenFiles
from dragonscale.physics.units import parse
from dragonscale.serving.steady.targets import read_targets

TERMS = load_terms("loads")
ROUNDS = 8
"""Requests of each client: what is begun and what is left over at the end is then a small part."""
SECONDS = 300
"""How long requests come where there is a rate."""
LEAST, MOST = 100, 100_000
SHARING = 16
"""Prompts that begin alike."""


def _traffic(run: ServingRun, software: Target) -> dict[str, Any]:
    """The traffic of a run as load generators ask for it."""
    traffic, model = run.file.traffic, served_id(run.file.model)
    rate = parse(traffic.rate, "count/s", "the rate") if traffic.rate else 0.0
    clients, shared = max(run.file.batch, 1) * (run.file.replicas or 1), round(traffic.prompt * traffic.cached)
    count = min(max(round(rate * SECONDS) if rate else ROUNDS * clients, LEAST), MOST)
    targets = read_targets(run.file.targets)
    goodput = [f"{name}:{targets[name].seconds * 1000:g}" for name in ("ttft", "tpot") if name in targets]
    named = " ".join(goodput).replace("ttft", "time_to_first_token").replace("tpot", "inter_token_latency")
    values: dict[str, Any] = {"model": model, "traffic": traffic, "rate": rate, "at_rate": rate or "inf"}
    values |= {"clients": clients, "warmups": min(clients, 32), "count": count, "groups": -(-count // SHARING)}
    values |= {"shared": shared, "fresh": traffic.prompt - shared, "some_fresh": max(traffic.prompt - shared, 1)}
    values |= {"goodput": goodput, "named_goodput": named, "pools": run.prefill is not None}
    return values | {
        "dataset": "generated-shared-prefix" if shared else "random-ids",
        "ending": ["ignore_eos:true", f"min_tokens:{traffic.output}"],
        "of_sglang": software.name in ("sglang", "sgl-jax"),
    }


def write_load(load: Target, run: ServingRun, software: Target) -> WrittenFiles:
    """The command of a load test, as a script; `software` is what is tested."""
    table, own = load.key_table(), TERMS.tables[load.name]
    words = [*own["words"], *flag_words(table, TERMS.group(load.name, **_traffic(run, software)))]
    title = f"{table.software} {table.version}, against {software.title}"
    lines = ["#!/usr/bin/env bash", header(run, title) + "set -euo pipefail", "", shell_lines(words)]
    told = {"scored": own.get("scored"), "all_replicas": (run.file.replicas or 1) > 1 or run.prefill is not None}
    return WrittenFiles({own["file"]: "\n".join(lines) + "\n"}, notes=TERMS.notes(told, url=own["url"]))
