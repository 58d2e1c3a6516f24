"""The planner's bounds and the book's closed forms are the same numbers, from two readings of the same shardings."""

from dataclasses import replace
from typing import Any

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.course.closed_forms.crossovers import (
    best_split,
    find_rules,
    least_tokens,
    power_splits,
    rank_splits,
)
from dragonscale.course.closed_forms.rooflines import layer_times, letters, ring_mesh
from dragonscale.course.closed_forms.schemes import SCHEMES, read_scheme, told, waits
from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer
from dragonscale.physics.collectives import Options
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.sharding.mesh import make_mesh
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change
from tests.book.formulas import numbers_of, span_of

EXACT = Options(exact=True)
LAYERS = 2
SEQUENCE = 4096
CUBE = parse_slice("v5p:4x4x4")
MIXED = read_scheme("fsdp+tp")


def feed_forward(d_model: int, d_ff: int) -> Transformer:
    """The book's model: blocks of two matrices and nothing else."""
    return Transformer("two matrices", d_model, 32768, (Layer(None, Mlp(d_ff, gated=False)),) * LAYERS)


def judged(plan: Plan, batch: int, d_model: int, d_ff: int, piece: Any = CUBE) -> dict[str, float]:
    """The terms of the ledger at datasheet rates, per layer."""
    found = blocks(make_job(feed_forward(d_model, d_ff), piece, batch, SEQUENCE), plan)
    return {name: seconds / LAYERS for name, seconds in found.items()}


def blocks(job: Job, plan: Plan) -> dict[str, float]:
    """The terms of the blocks' lines at datasheet rates, gradients in bf16 as the book has them."""
    book = replace(job, stack=change(job.stack, "state", scatter_bytes=2.0, reduce_bytes=2.0))
    return judge_one(book, plan).ledger.by("term", "bound_s", lambda line: line.section == "block")


sizes = st.tuples(st.sampled_from([4096, 8192, 16384]), st.sampled_from([16384, 32768, 53248]))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(power_splits(64)), sizes, st.integers(1, 3))
def test_mixed_fsdp_and_tensor_parallelism(ways: dict[str, int], dims: tuple[int, int], each: int) -> None:
    plan = Plan(fsdp=ways["X"], tensor=ways["Y"], microbatch=each)
    batch = each * ways["X"]
    terms = judged(plan, batch, *dims)
    mesh = make_mesh(ways, CUBE.chip, CUBE)
    book = layer_times(MIXED, {"B": batch * SEQUENCE, "D": dims[0], "F": dims[1]}, mesh, "both", EXACT)
    assert terms["mlp matmuls"] == pytest.approx(book.math, rel=1e-9)
    assert terms.get("tensor collectives", 0.0) == pytest.approx(book.comms["Y",], rel=1e-9)
    assert terms.get("fsdp collectives", 0.0) == pytest.approx(book.comms["X",], rel=1e-9)


@settings(max_examples=6, deadline=None)
@given(sizes, st.integers(1, 3))
def test_data_parallelism(dims: tuple[int, int], each: int) -> None:
    terms = judged(Plan(data=64, microbatch=each), 64 * each, *dims)
    mesh = make_mesh({"X": 64}, CUBE.chip, CUBE)
    sizes_of = {"B": 64 * each * SEQUENCE, "D": dims[0], "F": dims[1]}
    book = layer_times(read_scheme("dp"), sizes_of, mesh, "both", EXACT)
    assert terms["mlp matmuls"] == pytest.approx(book.math, rel=1e-9)
    assert terms["gradient reduction"] == pytest.approx(book.comms["X",], rel=1e-9)


def test_the_planner_turns_from_network_to_compute_where_the_rule_says() -> None:
    """Tokens per chip around C/(M_X W), with the gather's (N−1)/N put in."""
    (rule,) = find_rules(read_scheme("fsdp"), *letters(read_scheme("fsdp")))
    mesh = make_mesh({"X": 64}, CUBE.chip, CUBE)
    turn = float(rule.value.subs(numbers_of(CUBE.chip, {}, spans={"X": span_of(mesh, "X")}))) * 63 / 64
    assert turn == pytest.approx(850 * 63 / 64)
    model = feed_forward(8192, 32768)
    for length, bound in ((int(turn * 0.95), "fsdp collectives"), (int(turn * 1.05), "mlp matmuls")):
        terms = blocks(make_job(model, CUBE, 64, length), Plan(fsdp=64))
        assert max(("mlp matmuls", "fsdp collectives"), key=lambda name: terms[name]) == bound


def test_a_gate_costs_compute_and_weights_but_no_activations() -> None:
    """The third matrix of a gated layer reads what the second gathered: tensor parallelism goes 1.5 times as far."""
    plan = Plan(fsdp=16, tensor=4)
    models = (Transformer("one", 8192, 32768, (Layer(None, Mlp(32768, gated=gated)),)) for gated in (False, True))
    plain, gated = (blocks(make_job(model, CUBE, 16, 4096), plan) for model in models)
    assert gated["mlp matmuls"] == pytest.approx(1.5 * plain["mlp matmuls"])
    assert gated["fsdp collectives"] == pytest.approx(1.5 * plain["fsdp collectives"])
    assert gated["tensor collectives"] == pytest.approx(plain["tensor collectives"])


# One set of formulas, three kinds of number.


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("phase", ["forward", "backward", "both"])
def test_symbols_arrays_and_floats_agree(name: str, phase: str) -> None:
    scheme, chip = read_scheme(name), load_chip("v5p")
    pods = tuple(axis for axis in scheme.axes if axis == "P")
    axes = dict(zip(scheme.axes, (4, 64, 8), strict=False))
    spans = {axis: 2 for axis in axes if axis not in pods}
    lengths = {"B": 2**20, "D": 8192, "F": 28672}
    one = layer_times(scheme, lengths, ring_mesh(axes, chip, spans, pods), phase)
    batches = numpy.array([2**18, 2**20, 2**22], dtype=float)
    many = layer_times(scheme, lengths | {"B": batches}, ring_mesh(axes, chip, spans, pods), phase)
    symbols = layer_times(scheme, *letters(scheme, pods), phase)
    values = numbers_of(chip, dict(lengths), dict(axes), dict(spans))
    assert float(sympy.sympify(symbols.math).subs(values)) == pytest.approx(one.math)
    assert many.math[1] == pytest.approx(one.math)
    for key, seconds in one.comms.items():
        assert float(symbols.comms[key].subs(values)) == pytest.approx(seconds)
        assert numpy.broadcast_to(many.comms[key], 3)[1] == pytest.approx(seconds)


@settings(max_examples=10, deadline=None)
@given(st.integers(10, 22), st.integers(2, 12), st.sampled_from(["max", "sum"]))
def test_no_split_communicates_less_than_the_solved_one(tokens: int, chips: int, overlap: str) -> None:
    mixed = best_split(MIXED, *letters(MIXED), "X", "Y", overlap)
    chip = load_chip("v5p")
    lengths = {"B": 2**tokens, "D": 8192, "F": 32768}
    values = numbers_of(chip, lengths | {"N": 2**chips}, spans={"X": 2, "Y": 1})
    ratio = float(mixed.ratio.subs(values))
    meshes = [ring_mesh(ways, chip, {"X": 2}) for ways in power_splits(2**chips) if min(ways.values()) > 1]
    for split in rank_splits(MIXED, lengths, meshes, overlap):
        assert split.times.ratio(overlap) <= ratio * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(power_splits(4096)), st.sampled_from(["max", "sum"]))
def test_least_tokens_is_where_the_bound_turns(ways: dict[str, int], overlap: str) -> None:
    mesh, lengths = ring_mesh(ways, load_chip("v5p"), {"X": 2}), {"D": 8192, "F": 32768}
    least = least_tokens(MIXED, lengths, mesh, overlap)
    for batch in (2.0**14, 2.0**30) if least is None else (least * 1.001,):
        passes = [layer_times(MIXED, lengths | {"B": batch}, mesh, phase) for phase in ("forward", "backward")]
        assert all(times.bound(overlap) == "compute" for times in passes) is (least is not None)
    if least:
        passes = [layer_times(MIXED, lengths | {"B": least * 0.999}, mesh, p) for p in ("forward", "backward")]
        assert any(times.bound(overlap) == "comms" for times in passes)


# Schemes beyond the book's.


def test_sequence_parallelism_sends_what_splitting_the_width_sends() -> None:
    split = read_scheme("In[B_XY, D] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_XY, D]")
    assert [told(move) for move in split.backward_moves] == [told(move) for move in MIXED.backward_moves]
    assert layer_times(split, *letters(split), "both") == layer_times(MIXED, *letters(MIXED), "both")


def test_two_dimensional_weight_stationary() -> None:
    scheme = read_scheme("In[B, D_XY] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B, D_XY]")
    assert [told(move) for move in scheme.forward_moves] == ["AllGather_Y In", "AllReduce_X Tmp", "ReduceScatter_Y Out"]
    assert all(waits(move) for move in (*scheme.forward_moves, *scheme.backward_moves))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fdsp", "is no scheme"),
        ("In[B, D]", "is no layer"),
        ("In[B_X, D] · W[D, F] -> Out[B_X, G]", "which no operand has"),
    ],
)
def test_wrong_schemes_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_scheme(text)
