"""The theory of serving: each closed form is where its own times cross, for floats, arrays and symbols alike."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.collectives import collective_time
from dragonscale.errors import InputError
from dragonscale.hardware import Chip, load_chip, parse_slice
from dragonscale.hardware.chip import Memory
from dragonscale.models import cache_bytes, load_model
from dragonscale.roofline import Rates, attention_cost, rates_of, roofline, solve_equal, symbol
from dragonscale.serving.limits import (
    attention_intensity,
    attention_prefill_length,
    batch_within,
    cache_over_flops,
    cache_over_weights,
    cached_attention_cost,
    critical_batch,
    decode_times,
    linear_cost,
    plateau,
    throughput,
)
from dragonscale.serving.limits_fleet import (
    evicted_per_step,
    free_bytes,
    largest_batch,
    pool_ratio,
    requests_per_second,
    smallest_slice,
    usd_per_million,
)
from dragonscale.serving.limits_found import find_limits
from dragonscale.serving.limits_sharding import (
    ONE_AXIS,
    TWO_AXES,
    chips_for_2d,
    decode_attention_moves,
    decode_ways,
    latency_bound_bytes,
    moves_seconds,
    prefill_ways,
)
from dragonscale.serving.limits_speculation import best_drafts, free_drafts, kept_tokens, tokens_per_loop
from dragonscale.sharding.mesh import Mesh, make_mesh
from dragonscale.sharding.wording import words
from dragonscale.training.rooflines import abstract_torus, layer_times, ring_mesh

B, C, D, F, G, K, M, N, P, S, W, H = (symbol(name) for name in "BCDFGKMNPSWH")
LETTERS = Rates({("matrix", "bf16"): C, ("matrix", "int8"): 2 * C}, {"hbm": W})
V5E = rates_of(load_chip("v5e"))
KV = 163840
"""Bytes of LLaMA-3 70B's int8 cache for a token."""


def equal(first: Any, second: Any) -> bool:
    return sympy.simplify(first - second) == 0


# What the formulas are.


def test_the_formulas_are_the_books():
    assert equal(decode_times(B, K * S, P, N, LETTERS).math, 2 * B * P / (N * C))
    assert equal(decode_times(B, K * S, P, N, LETTERS, weights="int8").weights, P / (N * W))
    assert equal(decode_times(B, K * S, P, N, LETTERS).cache, B * K * S / (N * W))
    assert equal(critical_batch(LETTERS), C / W)
    assert equal(critical_batch(LETTERS, "int8", "int8"), C / W)  # half the bytes, twice the FLOPs
    assert equal(critical_batch(LETTERS, "int4", "bf16"), C / (4 * W))
    assert equal(critical_batch(LETTERS, sparsity=symbol("E") / symbol("k")), symbol("E") / symbol("k") * C / W)
    assert equal(plateau(K * S, P, LETTERS), 1 / (2 * P / C + K * S / W))
    assert equal(cache_over_flops(K, P, LETTERS), 2 * P * W / (C * K))
    assert equal(cache_over_weights(K, P, "int8"), P / K)
    assert equal(attention_prefill_length(LETTERS, G), C / W * (G + 1) / G)


def test_each_limit_is_where_two_times_cross():
    step = decode_times(B, K * S, P, N, LETTERS, weights="int8")
    assert equal(solve_equal(step.math, step.weights, B)[0], critical_batch(LETTERS, "int8"))
    assert equal(solve_equal(step.math, step.cache, S)[0], cache_over_flops(K, P, LETTERS))
    assert equal(solve_equal(step.weights, step.cache, S)[0] * B, cache_over_weights(K, P, "int8"))
    times = roofline(cached_attention_cost(S, S, 4, kv="int8"), LETTERS).seconds
    assert equal(solve_equal(times["matrix"], times["hbm"], S)[0], attention_prefill_length(LETTERS, 4, kv="int8"))
    most = sympy.limit(throughput(B, step.math + step.cache, N), B, sympy.oo)
    assert equal(most, plateau(K * S, P, LETTERS))


def test_attention_is_that_of_the_roofline_and_the_cache_alone_gives_the_groups():
    whole = attention_cost(7, 5, 300, 3, 4, 128)
    assert attention_intensity(5, 300, 4) == pytest.approx(whole.intensity())
    assert equal(attention_intensity(1, S, G, cache_only=True), G)
    assert equal(attention_intensity(1, S, G, kv="int8", cache_only=True), 2 * G)
    assert sympy.limit(attention_intensity(1, S, G), S, sympy.oo) == G
    assert attention_intensity(1, 8192, 8) < attention_intensity(1, 8192, 8, cache_only=True)


def test_experts_used_compute_and_experts_held_load():
    sparse = decode_times(64, 0, 671e9, 64, V5E, active=37e9)
    dense = decode_times(64, 0, 37e9, 64, V5E)
    assert sparse.math == dense.math
    assert sparse.weights == pytest.approx(dense.weights * 671 / 37)
    assert linear_cost(1, 10, "int8").bytes["hbm"] == 10


def test_a_window_caps_what_is_read():
    sections = load_model("gemma3-27b").program().sections
    short, long = (sum(cache_bytes(sections, tokens).values()) for tokens in (1024, 131072))
    assert long < 128 * short / 3  # five of six layers stop growing
    assert decode_times(8, long, 27e9, 8, V5E).cache < 128 / 3 * decode_times(8, short, 27e9, 8, V5E).cache


# Splitting.


def lettered() -> Chip:
    """A torus of letters: C, W over both directions of an axis, W_hbm."""
    return replace(abstract_torus(C, W), memory={"hbm": Memory(0.0, symbol("W_hbm"))})  # pyright: ignore[reportArgumentType]


def test_ways_of_tensor_parallelism_are_the_books():
    assert equal(prefill_ways(F, lettered(), M), M * F * W / C)
    assert equal(decode_ways(F, B, lettered(), M), M * F * W / (B * symbol("W_hbm")))
    assert equal(decode_ways(F, B, lettered(), M, "int8"), M * F * W / (2 * B * symbol("W_hbm")))
    assert equal(chips_for_2d(F / D), 18 * F / D)


def test_ways_for_many_models_at_once():
    chip, widths = load_chip("v5e"), numpy.array([8192.0, 14336.0, 28672.0])
    for function in (lambda width: prefill_ways(width, chip, 2), lambda width: decode_ways(width, 64, chip)):
        assert function(widths) == pytest.approx([function(float(width)) for width in widths])
    assert chips_for_2d(widths / 4096) == pytest.approx(18 * widths / 4096)


def test_lines_of_a_torus_halve_the_limit():
    """A v5e's axes close into rings at 16 chips only: the book's 26 ways for two axes of LLaMA-3 70B are 14 on a 4x4."""
    chip, sizes = load_chip("v5e"), {"B": 64, "D": 8192, "F": 28672}
    limits = {}
    for shape in ("4x4", "16x16"):
        piece = parse_slice(f"v5e:{shape}")
        limits[shape] = layer_times(ONE_AXIS, sizes, make_mesh({"Y": piece.chips}, chip, piece)).ratio() * piece.chips
    assert limits["16x16"] == pytest.approx(prefill_ways(28672, chip, axes=2))
    assert limits["4x4"] == pytest.approx(14, rel=0.01)


def test_two_axes_win_just_beyond_their_crossover():
    """At the best split in real numbers, against all three axes for one."""
    chip, sizes = load_chip("v5p"), {"B": 64, "D": 8192, "F": 32768}
    for chips, better in ((71.0, False), (73.0, True)):
        across = math.sqrt(chips / 8)  # X = sqrt(N·D/(2F))
        two = layer_times(TWO_AXES, sizes, ring_mesh({"X": across, "Y": chips / across}, chip, {"Y": 2})).network("sum")
        one = 4 * 64 * 8192 / (3 * 2 * chip.network.link)  # pyright: ignore[reportAttributeAccessIssue]
        assert (two < one) is better


@pytest.mark.parametrize(
    ("spread", "moves"),
    [
        ("copy", ["AllReduce_YZ(X)"]),
        ("batch", ["AllToAll_Z(Q)", "AllToAll_Z(O)", "AllReduce_YZ(X)"]),
        ("sequence", ["AllGather_Z(Q)", "ReduceScatter_Z(O)", "AllReduce_YZ(X)"]),
    ],
)
def test_what_a_split_cache_sends(spread: str, moves: list[str]):
    assert [words(step) for step in decode_attention_moves(spread)] == moves


def test_exchanging_queries_is_cheaper_than_gathering_them():
    mesh, sizes = Mesh({"Y": 8, "Z": 8}, load_chip("v5e")), {"B": 4096, "N": 64, "H": 128, "D": 8192}
    copy, batch, sequence = (
        moves_seconds(decode_attention_moves(kind), sizes, mesh) for kind in ("copy", "batch", "sequence")
    )
    assert copy < batch < sequence


def test_a_spread_that_is_none_is_refused():
    with pytest.raises(InputError, match="no spread 'heads'"):
        decode_attention_moves("heads")


def test_latency_binds_exactly_below_its_bytes():
    mesh = Mesh({"X": 8}, load_chip("v5e"))
    least = latency_bound_bytes("all_gather", mesh.group(("X",)))
    assert least == 360000
    regimes = [collective_time("all_gather", least * part, mesh.group(("X",))).regime for part in (0.99, 1.01)]
    assert regimes == ["latency", "bandwidth"]


# What fits.


def test_the_smallest_slice_holds_it_and_the_next_smaller_does_not():
    v5e, h100 = load_chip("v5e"), load_chip("h100")
    for size in (1e9, 70e9, 140e9, 400e9, 4e12):
        piece = smallest_slice(v5e, size)
        assert piece is not None
        assert piece.hbm >= size
        assert piece.chips in (1, 4) or piece.hbm / 2 < size
    assert smallest_slice(v5e, 4.2e12) is None  # a pod of 256 holds 4.1 TB
    assert [str(smallest_slice(h100, size)) for size in (70e9, 140e9, 330e9, 700e9, 1.3e12)] == [
        "h100:1",
        "h100:2",
        "h100:8",
        "h100:16",
        "h100:24",
    ]


def test_nothing_fits_beside_weights_that_do_not():
    assert largest_batch(64e9, 70e9, 1e9) == 0
    assert free_bytes(64e9, 70e9) < 0
    assert largest_batch(80e9, 70e9, 1e9, reserved=5e9) == 5
    assert list(largest_batch(128e9, 70e9, KV * numpy.array([2048, 8192, 2**20]))) == [172, 43, 0]


def test_pools_turn_over_at_the_same_rate():
    ratio = pool_ratio(0.91, 43, 0.019, 512)
    assert ratio == pytest.approx(4.0, rel=0.01)  # the book takes 32 for 43 and gets 3
    assert ratio / 0.91 == requests_per_second(43, 0.019, 512)
    assert evicted_per_step(B, P, S) == B / S * (P + S)


def test_twice_the_tokens_cost_half():
    assert usd_per_million(200, 8, 1.2) == usd_per_million(100, 8, 1.2) / 2
    assert usd_per_million(1e6 / 3600, 1, 1.2) == pytest.approx(1.2)


# Speculation.


def test_drafts_pay_until_they_cost_more_than_they_bring():
    a = symbol("a")
    assert equal(tokens_per_loop(a, 3), (1 - a**4) / (1 - a))
    assert tokens_per_loop(1, 7) == kept_tokens(7) == 8
    assert tokens_per_loop(0.9, 0) == 1
    assert best_drafts(10, 1, 0) == 0  # never right
    assert best_drafts(10, 9, 0.5) == 0  # right at times, and dear
    assert best_drafts(10, 0, 0.5, most=5) == 5  # free: as many as may be
    assert free_drafts(480, critical_batch(V5E, "int8")) < 0
    with pytest.raises(InputError, match="one of 1 to 4, not 5"):
        kept_tokens(4, first_wrong=5)


# All of them for one model.

EVERY = [
    "critical batch",
    "prompt attention",
    "prefill ways",
    "decode ways",
    "cache over FLOPs",
    "cache over weights",
    "plateau",
]
FOUND = {
    ("llama3-70b", "v5p"): [*EVERY[:4], "chips for 2D", *EVERY[4:]],
    ("llama3-8b", "h100"): EVERY,
    ("mixtral-8x7b", "v5e"): [name for name in EVERY if "ways" not in name],
    ("gemma3-27b", "v6e"): EVERY[:4],  # windows: no one number of bytes per token
    ("deepseek-v3", "h200"): [
        name for name in EVERY if name != "prompt attention"
    ],  # a latent is key and value at once
}


@pytest.mark.parametrize(("model", "chip"), FOUND)
def test_formulas_with_their_letters_put_in_are_the_numbers(model: str, chip: str):
    found = find_limits(load_model(model), load_chip(chip), batch=32, weights="int8", kv="int8")
    assert [limit.name for limit in found] == FOUND[model, chip]
    for limit in found:
        value = limit.formula.subs({symbol(letter): number for letter, number in limit.letters.items()})
        assert float(value) == pytest.approx(limit.value), limit.name
        assert limit.value > 0


def test_a_mixture_needs_a_batch_larger_by_its_sparsity():
    dense, sparse = (find_limits(load_model(name), load_chip("v5e"))[0] for name in ("llama3-8b", "mixtral-8x7b"))
    assert str(sparse.formula) == "C*E/(W*k)"
    assert sparse.value == pytest.approx(4 * dense.value)  # 8 experts, 2 of them used


# Laws.


@given(batch=st.floats(1, 1e4), context=st.floats(1, 1e6), params=st.floats(1e8, 1e12), chips=st.integers(1, 256))
def test_no_batch_beats_the_plateau_and_no_step_its_parts(batch: float, context: float, params: float, chips: int):
    step = decode_times(batch, KV * context, params, chips, V5E, weights="int8")
    assert throughput(batch, step.lower, chips) <= plateau(KV * context, params, V5E) * (1 + 1e-9)
    assert step.lower >= max(step.math, step.weights, step.cache)
    twice = decode_times(2 * batch, KV * context, params, chips, V5E, weights="int8")
    assert step.lower < twice.lower
    assert twice.lower <= 2 * step.lower * (1 + 1e-9)


@given(slack=st.floats(1.01, 100), context=st.floats(64, 1e6), params=st.floats(1e8, 1e12), chips=st.integers(1, 256))
def test_the_batch_within_a_limit_takes_exactly_that_long(slack: float, context: float, params: float, chips: int):
    least = decode_times(0, 0, params, chips, V5E).weights
    batch = batch_within(slack * least, KV * context, params, chips, V5E)
    assert decode_times(batch, KV * context, params, chips, V5E).lower == pytest.approx(slack * least)
    assert batch_within(least / 2, KV * context, params, chips, V5E) < 0


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "step": (lambda b, s: decode_times(b, KV * s, 70e9, 16, V5E, weights="int8").lower, (32.0, 8192.0)),
    "batch": (lambda s, c: batch_within(s, KV * c, 70e9, 16, V5E), (0.02, 2048.0)),
    "plateau": (lambda s: plateau(KV * s, 70e9, V5E), (2048.0,)),
    "context": (lambda kv: cache_over_flops(kv, 70e9, V5E), (163840.0,)),
    "weights": (lambda kv, p: cache_over_weights(kv, p), (163840.0, 70e9)),
    "intensity": (lambda t, s, g: attention_intensity(t, s, g, kv="int8"), (128.0, 4096.0, 8.0)),
    "prompt": (lambda g: attention_prefill_length(V5E, g), (8.0,)),
    "fits": (lambda m, c: largest_batch(m, 70e9, c), (256e9, 1.3e9)),
    "pools": (lambda t, b: pool_ratio(t, b, 0.019, 512), (0.91, 43.0)),
    "cost": (lambda rate, chips: usd_per_million(rate, chips, 1.2), (1874.0, 8.0)),
    "evicted": (lambda b, g: evicted_per_step(b, 8192, g), (32.0, 4096.0)),
    "ways": (lambda f, b: decode_ways(f, b, load_chip("v5e")), (28672.0, 64.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats_arrays_and_symbols_agree(name: str):
    function, values = FUNCTIONS[name]
    plain = float(function(*values))
    arrays = function(*(numpy.array([value, 2 * value]) for value in values))
    letters = [symbol(f"x{place}") for place in range(len(values))]
    formula = sympy.sympify(function(*letters)).subs(dict(zip(letters, values, strict=True)))
    assert arrays[0] == pytest.approx(plain)
    assert float(formula) == pytest.approx(plain)
