"""Every term of iterations, and every line of memory, of deployments that use each choice once: what a change of the
physics changes is seen here first.

`accounts.json` has for each term of a decode step, of a prompt and of both together FLOPs, bytes, and seconds at
datasheet rates and expected; what lies in memory; and what the simulator's table makes of it. After a change that is
meant, `python -m tests.serving.test_accounts` writes it anew; read what differs.
"""

from pathlib import Path
from typing import Any

import numpy
import pytest

import dragonscale as ds
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.compiled_memory import program_lines
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.iteration.phases import Iteration, decode, iteration_cost, prefill
from dragonscale.serving.iteration.resident_memory import (
    _layer_lines,  # pyright: ignore[reportPrivateUsage]
    cache_lines,
    weight_lines,
    workspace_lines,
)
from dragonscale.serving.iteration.step_table import StepTable
from tests.accounts import assert_equal, read_account, write_accounts

ACCOUNTS = Path(__file__).with_name("accounts.json")
ITERATIONS = {
    "decode": decode(32, 3000),
    "one sequence": decode(1, 500),
    "drafts": decode(16, 2000, 4),
    "prompt": prefill(1500),
    "later chunk": prefill(512, 2, 4096),
    "mixed": Iteration(24, 2000, 1, 1, 700, 300),
}
CASES: dict[str, tuple[str, str, str, str]] = {
    "one chip": ("llama3-8b", "h100:1", "vllm", "tensor=1"),
    "tensor": ("llama3-70b", "h100:8", "vllm", "tensor=8"),
    "copies of KV heads": ("llama3-8b", "h100:16", "generic", "tensor=16"),
    "split cache": ("llama3-8b", "h100:16", "generic", "tensor=16,spread=batch"),
    "split sequences": ("llama3-8b", "h100:16", "generic", "tensor=16,spread=sequence"),
    "pipeline": ("llama3-70b", "h100:16", "vllm", "tensor=8,pipe=2"),
    "fp8": ("llama3-70b", "h100:4", "vllm", "tensor=4,weights=fp8,compute=fp8,kv=fp8"),
    "fp8, trtllm": ("llama3-70b", "h100:4", "trtllm", "tensor=4,weights=fp8,compute=fp8,kv=fp8"),
    "int4": ("llama3-70b", "h100:2", "vllm", "tensor=2,weights=int4"),
    "experts": ("mixtral-8x7b", "h100:4", "vllm", "tensor=4"),
    "experts apart": ("mixtral-8x7b", "h100:8", "vllm", "tensor=8,expert=8"),
    "fp4 experts": ("gpt-oss-120b", "b200:4", "vllm", "tensor=4,weights=mxfp4"),
    "wide experts": ("deepseek-v3", "h200:16", "vllm-ep", "data=16,expert=16,weights=fp8,compute=fp8"),
    "wide experts, sglang": ("deepseek-v3", "h200:16", "sglang-ep", "data=16,expert=16,weights=fp8,compute=fp8"),
    "latent": ("deepseek-v2-lite", "h100:2", "sglang", "tensor=2"),
    "sparse latent": ("deepseek-v3.2", "h200:8", "sglang", "tensor=8,weights=fp8,compute=fp8"),
    "windows": ("gemma3-27b", "h100:2", "vllm", "tensor=2"),
    "states": ("jamba-52b", "h100:4", "vllm", "tensor=4"),
    "delta rule": ("qwen3-next-80b-a3b", "h100:4", "sglang", "tensor=4"),
    "a torus": ("llama3-8b", "v5e:2x4", "vllm-tpu", "tensor=8"),
    "uneven heads": ("qwen2.5-14b", "v5e:4x4", "dragonscale", "tensor=16"),
    "width": ("llama3-70b", "v5p:2x2x4", "generic", "tensor=4,width=4"),
    "jetstream": ("llama3-8b", "v5e:2x4", "jetstream", "tensor=8"),
    "compiled experts": ("mixtral-8x7b", "v5p:2x2x2", "dragonscale", "tensor=4,data=2,expert=8"),
    "compiled experts on GPUs": ("mixtral-8x7b", "h100:8", "jax-program", "tensor=8"),
    "small experts": ("qwen3-30b-a3b", "h100:8", "vllm", "tensor=8"),
    "compiled": ("llama3-8b", "h100:8", "jax-program", "tensor=8"),
    "eager": ("llama3-8b", "h100:1", "torch-eager", "tensor=1"),
    "fastertransformer": ("llama2-13b", "a100:2", "fastertransformer", "tensor=2"),
    "amd": ("llama3-70b", "mi300x:4", "vllm", "tensor=4"),
}
TABLES = ("one chip", "wide experts, sglang", "compiled experts", "windows")
"""Cases whose table of the simulator is looked at, which takes longer."""


STEADY: dict[str, dict[str, Any]] = {
    "full batches": {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "prompt": 1024, "output": 256},
    "a rate": {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "prompt": 4000, "output": 64, "rate": "3/s"},
    "two at a time": {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "prompt": 2048, "output": 64, "batch": 2},
    "drafting": {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "accept": 0.8},
    "stopped by prompts": {"model": "llama3-8b", "on": "v5e:2x4", "plan": "tp8", "engine": "jetstream"},
}
"""Questions to `ds.serve`, whose first row is held."""


def one(value: Any) -> float:
    """The one value of a batch of one."""
    return float(numpy.ravel(value)[0])


def deployment_of(name: str) -> Deployment:
    """The deployment of a case."""
    model, where, engine, plan = CASES[name]
    return deploy(load_model(model), parse_slice(where), parse_serving_plan(plan), engine)


def account(name: str) -> dict[str, Any]:
    """Iterations and memory of a case."""
    deployment = deployment_of(name)
    parts: dict[str, Any] = {}
    for title, iteration in ITERATIONS.items():
        cost = iteration_cost(deployment, iteration)
        parts[title] = {
            "whole": [one(value) for value in (cost.expected, cost.lower, cost.roofline, cost.upper, cost.issued)],
            "host": [one(value) for value in (cost.host, cost.sampling, cost.issuing, cost.streaming)],
        }
        for term, group in (cost.terms | cost.wires).items():
            sums = (group.flops, group.moved, group.volume, group.lower, group.expected, group.exposed)
            parts[title][str(term)] = [one(value) for value in sums]
    for title, lines in (
        ("weights", weight_lines(deployment)),
        ("cache", cache_lines(deployment, 10_000.0)),
        ("workspace", workspace_lines(deployment)),  # the larger of what layers and what sampling need
        ("layers", _layer_lines(deployment)),
    ):
        sizes: dict[str, float] = {}
        for line in lines:
            sizes[line.what] = sizes.get(line.what, 0.0) + one(line.bytes)
        parts[title] = sizes
    room = capacity(deployment)
    if name in TABLES:
        table = StepTable(deployment, 8192)
        parts["table"] = [
            table.step(24, 48_000.0),
            table.step(24, 48_000.0, ((700, 300),)),
            table.step(0, 0.0, ((300, 0), (2500, 1000))),
            table.run(24, 48_000.0, 100),
            table.steps_within(24, 48_000.0, 1.0),
            table.draft(8, 9000.0, 3),
            table.transfer(1000),
        ]
    if deployment.engine.program.alive:  # what the compiler allocates
        for title in ("decode", "prompt"):
            sizes = {}
            for line in program_lines(deployment, ITERATIONS[title]):
                sizes[line.what] = sizes.get(line.what, 0.0) + one(line.bytes)
            parts[f"{title}, allocated"] = sizes
    parts["room"] = [one(value) for value in (room.usable, room.cache, room.sequences(3000), room.held(4, 3000))]
    return parts


@pytest.mark.parametrize("name", CASES)
def test_iterations_and_memory_add_up_as_they_did(name: str) -> None:
    assert_equal(account(name), read_account(ACCOUNTS, name), name)


def steady_account(name: str) -> dict[str, Any]:
    """The steady state of a replica: latencies, throughput and memory as `dscale serve` tells them."""
    row = ds.serve(**STEADY[name]).configs[0]
    fields = ("batch", "ttft_s", "tpot_s", "output_tokens_per_s_per_chip", "requests_per_s", "hbm_bytes")
    return {field: getattr(row, field) for field in fields}


@pytest.mark.parametrize("name", STEADY)
def test_steady_states_are_what_they_were(name: str) -> None:
    assert_equal(steady_account(name), read_account(ACCOUNTS, name), name)


if __name__ == "__main__":
    steady = {name: steady_account(name) for name in STEADY}
    write_accounts(ACCOUNTS, {name: account(name) for name in CASES} | steady)
