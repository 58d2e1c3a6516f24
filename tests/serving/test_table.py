"""Tabulated iterations against the cost function, between the knots of the table and beyond them."""

from dataclasses import replace
from functools import cache

import numpy
import pytest

from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import Iteration, iteration_cost
from dragonscale.serving.iteration.step_table import StepTable

BLOCK = "weights=fp8,compute=fp8_block"
DEPLOYED = {
    "dense": ("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8", "vllm", 2048),
    "experts on eight ranks": ("deepseek-v3", "h200:8", f"tensor=1,data=8,expert=8,{BLOCK}", "vllm", 2048),
    "experts on four ranks": ("qwen3-30b-a3b", "l40s:4", "tensor=1,data=4,expert=4", "vllm", 1024),
    "experts on TPUs": ("deepseek-v3", "tpu7x:2x2x2", "tensor=1,data=8,expert=8,weights=fp8,compute=fp8", "vllm", 1024),
    "dense on four ranks": ("llama3-8b", "h100:4", "tensor=1,data=4", "sglang", 512),
    "dense on eight ranks": ("llama3-8b", "h100:8", "tensor=1,data=8", "vllm", 1024),
}
BEYOND = 6
"""Times the token budget of all ranks."""


@cache
def table_of(name: str) -> StepTable:
    *given, budget = DEPLOYED[name]
    deployment = deploy(*given)
    engine = adjust(deployment.engine, scheduling={"max_tokens": budget, "max_sequences": 128})
    return StepTable(replace(deployment, launched_engine=engine))


def computed(table: StepTable, iteration: Iteration) -> float:
    return float(numpy.ravel(iteration_cost(table.deployment, iteration).expected)[0])


@pytest.mark.parametrize("name", DEPLOYED)
def test_decode_steps_are_those_of_the_cost_function_however_many_decode(name: str) -> None:
    table, random = table_of(name), numpy.random.default_rng(0)
    most = table.deployment.engine.scheduling.max_tokens * table.ranks * BEYOND
    for _ in range(40):
        decodes, keys = int(numpy.exp(random.uniform(0, numpy.log(most)))), int(random.integers(16, 8192))
        wanted = computed(table, Iteration(decodes=decodes, keys=keys))
        assert table.step(decodes, float(decodes * keys)) == pytest.approx(wanted, rel=0.05), (decodes, keys)


@pytest.mark.parametrize("name", ["dense", "experts on eight ranks"])
def test_verifying_drafts_is_that_of_the_cost_function_at_every_length(name: str) -> None:
    table = table_of(name)
    for decodes, keys, queries in ((8, 300, 2), (64, 2304, 3), (512, 1024, 4), (300, 8000, 2)):
        wanted = computed(table, Iteration(decodes=decodes, keys=keys, queries=float(queries)))
        found = table.step(decodes, float(decodes * keys), (), queries)
        assert found == pytest.approx(wanted, rel=0.02), (decodes, keys, queries)


@pytest.mark.parametrize("name", DEPLOYED)
def test_within_its_grid_a_step_is_off_by_no_more_than_a_percent(name: str) -> None:
    """Tiles of each rank are knots, and heads and caches of all ranks' sequences are in the grid."""
    table, random = table_of(name), numpy.random.default_rng(2)
    limits = table.deployment.engine.scheduling
    for _ in range(60):
        decodes = int(random.integers(1, limits.max_tokens * table.ranks))
        wanted = computed(table, Iteration(decodes=decodes, keys=64))
        assert table.step(decodes, 64.0 * decodes) == pytest.approx(wanted, rel=0.012), decodes


@pytest.mark.parametrize("name", DEPLOYED)
@pytest.mark.parametrize("beside", [False, True])
def test_prompts_are_those_of_the_cost_function_however_many_come(name: str, beside: bool) -> None:
    """Chunks of up to a rank's budget, alone and beside decoding sequences, of one rank to several times what all ranks
    have."""
    table, random = table_of(name), numpy.random.default_rng(1)
    budget = table.deployment.engine.scheduling.max_tokens
    for _ in range(40):
        tokens, count = int(random.integers(64, budget)), int(2 ** random.uniform(0, numpy.log2(BEYOND * table.ranks)))
        decodes = int(random.integers(1, 64)) if beside else 0
        wanted = computed(table, Iteration(decodes=decodes, keys=2048, prompts=count, tokens=tokens))
        found = table.step(decodes, decodes * 2048.0, [(tokens, 0)] * count)
        assert found == pytest.approx(wanted, rel=0.08), (decodes, count, tokens)
