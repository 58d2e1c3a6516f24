"""The planner's bound on an iteration is the book's formula, not something near it.

The formula takes all parameters in one format and split evenly. A real model's head stays in bf16, its embedding is
looked up rather than multiplied by, its norms weigh nothing, and W_K and W_V have only as many parts as there are KV
heads. With those said, the planner's roofline of LLaMA-3 70B on v5e slices equals the formula to the last digit.
"""

import numpy
import pytest

from dragonscale.course.closed_forms.decode_floor import critical_batch, decode_times
from dragonscale.models import count_parameters, kv_bytes_per_token, load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.rooflines import rates_of
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill

MODEL = load_model("llama3-70b")
PARTS = count_parameters(MODEL).by_part
DIMS = MODEL.program().sections[1].dims
V5E = rates_of(load_chip("v5e").reading("book"))
BATCH = numpy.array([2.0, 16, 32, 120, 240, 480])
"""Even, so that two places of sequences hold as many each; on both sides of the critical batches, 120 and 240."""
KEYS = 2047
"""Tokens cached before the step, which adds its own."""


def plan(dtype: str) -> str:
    return f"spread=batch,weights={dtype},kv={dtype},compute=bf16"


def book(piece: str, dtype: str):
    """The formula, for blocks in the plan's format and the head in bf16."""
    chips = parse_slice(piece).chips
    copies = max(chips / DIMS["k"], 1) - 1
    again = copies * MODEL.n_layers * 2 * DIMS["d"] * DIMS["k"] * DIMS["h"]
    blocks = PARTS["attention"] + PARTS["mlp"] + again
    cache = kv_bytes_per_token(MODEL, dtype) * (KEYS + 1)
    head = decode_times(BATCH, 0, PARTS["head"], chips, V5E)
    return decode_times(BATCH, cache, blocks, chips, V5E, weights=dtype).lower + head.lower


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.parametrize("piece", ["v5e:2x2", "v5e:2x4", "v5e:4x4", "v5e:4x8"])
def test_a_decode_steps_roofline_is_the_books(piece: str, dtype: str):
    cost = iteration_cost(deploy(MODEL, piece, plan(dtype)), decode(BATCH, KEYS))
    places = max(parse_slice(piece).chips // DIMS["k"], 1)
    whole = BATCH % places == 0
    assert cost.roofline[whole] == pytest.approx(book(piece, dtype)[whole], rel=1e-12)
    assert all(cost.roofline >= book(piece, dtype) * (1 - 1e-12))  # sequences that do not divide only cost more
    assert all(numpy.maximum(cost.compute, cost.memory) <= cost.roofline * (1 + 1e-12))  # more may overlap at best
    assert all(numpy.maximum(cost.roofline, cost.lower) <= cost.expected)


def test_the_book_rounds_by_under_three_percent():
    """70e9 parameters, all in int8, evenly over 4x4: what the chapter plots."""
    cache = kv_bytes_per_token(MODEL, "int8") * (KEYS + 1)
    rounded = decode_times(BATCH, cache, 70e9, 16, V5E, weights="int8").lower
    cost = iteration_cost(deploy(MODEL, "v5e:4x4", plan("int8")), decode(BATCH, KEYS))
    assert cost.roofline == pytest.approx(rounded, rel=0.035)
    assert all(cost.roofline > rounded)


def test_the_critical_batch_is_where_the_planners_blocks_turn_compute_bound():
    for dtype in ("bf16", "int8"):
        batch = critical_batch(V5E, weights=dtype)
        near = numpy.array([2 * (batch // 2), 2 * (batch // 2 + 1)])
        block = iteration_cost(deploy(MODEL, "v5e:4x4", plan(dtype)), decode(near, KEYS)).terms["mlp"]
        assert list(block.compute > block.memory) == [False, True]


def test_wires_bind_where_the_book_says_that_32_ways_are_too_many():
    """Compute-bound on a 4x8 the collectives take longer than everything else; with few sequences they do not."""
    cost = iteration_cost(deploy(MODEL, "v5e:4x8", plan("bf16")), decode(BATCH, KEYS))
    wires = sum(wire.lower for wire in cost.wires.values())
    assert list(wires > cost.roofline) == [False, False, False, False, True, True]


def test_a_prompts_products_take_two_flops_per_parameter_and_token():
    tokens = 8192
    cost = iteration_cost(deploy(MODEL, "v5e:2x4", plan("bf16")), prefill(tokens))
    products = sum(cost.terms[part].compute for part in ("attention", "mlp"))
    flops = model_flops(PARTS["attention"] + PARTS["mlp"], tokens, training=False)
    assert products == pytest.approx(flops / (8 * load_chip("v5e").peak("bf16")))
    assert cost.terms["head"].compute == pytest.approx(model_flops(PARTS["head"], 1, training=False) / (8 * 197e12))


def test_the_planner_keeps_as_many_bytes_per_token_as_the_book():
    room = capacity(deploy(MODEL, "v5e:4x4", plan("int8")))
    assert room.per_token * 16 == pytest.approx(kv_bytes_per_token(MODEL, "int8"))
    blocks, ends = PARTS["attention"] + PARTS["mlp"], PARTS["embed"] + PARTS["head"]
    assert room.weights * 16 >= blocks + 2 * ends
    assert room.weights * 16 == pytest.approx(blocks + 2 * ends, rel=0.03)  # W_K and W_V twice
