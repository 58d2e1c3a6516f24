"""Laws that expected times obey, whatever the constants: no kernel beats the roofline, more work takes no less time,
and a number, an array and a formula give the same answer."""

from dataclasses import replace

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as some

from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.kernels import (
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    kernel_profile_for,
    launch_seconds,
    matmul_seconds,
    memory_seconds,
    quantise_seconds,
)
from dragonscale.physics.kernels.attention import keys_seen
from dragonscale.physics.kernels.dtypes import FORMATS, UNPACKING

CHIPS = some.sampled_from(chip_names())
DTYPES = some.sampled_from(["bf16", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4_bf16"])
SIZES = some.integers(1, 100_000)
HEADS = some.sampled_from([(1, 1), (4, 1), (32, 8), (64, 64), (128, 8)])
SLACK = 1 - 1e-9


@given(CHIPS, DTYPES, SIZES, SIZES, SIZES, some.integers(1, 64))
def test_no_matmul_beats_the_roofline(name: str, dtype: str, m: int, n: int, k: int, batch: int) -> None:
    chip, kind = load_chip(name), FORMATS[dtype]
    expected = matmul_seconds(m, n, k, dtype, kernel_profile_for(name), batch=batch)
    moved = batch * (m * k * kind.activation + n * k * kind.weight + 2 * m * n)
    assert expected >= 2 * batch * m * n * k / chip.peak(kind.compute) * SLACK
    assert expected >= moved / chip.bandwidth("hbm") * SLACK


@given(
    CHIPS, some.sampled_from(["bf16", "fp8"]), HEADS, some.integers(1, 256), some.integers(1, 32768), some.booleans()
)
def test_no_attention_beats_the_roofline(
    name: str, dtype: str, heads: tuple[int, int], batch: int, tokens: int, causal: bool
) -> None:
    chip, (q_heads, kv_heads) = load_chip(name), heads
    profile = kernel_profile_for(name)
    sizes = (batch, tokens, tokens, q_heads, kv_heads, 128, dtype, profile)
    forward = attention_seconds(*sizes, causal=causal)
    flops = 4 * batch * q_heads * 128 * tokens * tokens / (2 if causal else 1)
    element = FORMATS[dtype].weight
    assert forward >= flops / chip.peak(dtype) * SLACK
    assert forward >= batch * tokens * 128 * (4 * q_heads + 2 * element * kv_heads) / chip.bandwidth("hbm") * SLACK
    assert attention_backward_seconds(*sizes, causal=causal) >= 2.5 * flops / chip.peak(dtype) * SLACK
    decoding = decode_attention_seconds(batch, tokens, q_heads, kv_heads, 128, dtype, profile)
    assert decoding >= 2 * element * batch * tokens * kv_heads * 128 / chip.bandwidth("hbm") * SLACK


@given(CHIPS, DTYPES, some.integers(1, 20_000), some.sampled_from([(8, 128), (2, 8), (1, 16), (8, 256)]))
def test_no_mixture_beats_the_roofline(name: str, dtype: str, tokens: int, router: tuple[int, int]) -> None:
    chip, kind, (picks, experts) = load_chip(name), FORMATS[dtype], router
    expected = grouped_matmul_seconds(
        tokens, 4096, 1536, picks, experts, dtype, kernel_profile_for(name), routing="balanced"
    )
    active, size = min(experts, tokens * picks), 3 * 4096 * 1536
    assert expected >= active * size * kind.weight / chip.bandwidth("hbm") * SLACK
    assert expected >= 2 * tokens * picks * size / chip.peak(kind.compute) * SLACK


@given(CHIPS, DTYPES, SIZES, SIZES, SIZES, some.integers(1, 1000))
def test_a_larger_matmul_takes_no_less(name: str, dtype: str, m: int, n: int, k: int, more: int) -> None:
    profile = kernel_profile_for(name)
    base = matmul_seconds(m, n, k, dtype, profile)
    for larger in ((m + more, n, k), (m, n + more, k), (m, n, k + more)):
        assert matmul_seconds(*larger, dtype, profile) >= base * SLACK
    assert matmul_seconds(m, n, k, dtype, profile, batch=2) >= base * SLACK


@given(CHIPS, HEADS, some.integers(1, 128), some.integers(16, 16384))
def test_twice_the_attention_takes_no_less(name: str, heads: tuple[int, int], batch: int, tokens: int) -> None:
    """Within a tenth: splitting a sequence stops paying at some point, which saves joining it."""
    profile = kernel_profile_for(name)
    for one, two in ((batch, 2 * batch), (batch, batch)):
        longer = tokens if two != one else 2 * tokens
        first = attention_seconds(one, tokens, tokens, *heads, 128, "bf16", profile)
        assert attention_seconds(two, longer, longer, *heads, 128, "bf16", profile) >= 0.9 * first
        first = decode_attention_seconds(one, tokens, *heads, 128, "bf16", profile)
        assert decode_attention_seconds(two, longer, *heads, 128, "bf16", profile) >= 0.9 * first


@given(CHIPS, DTYPES, some.lists(some.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=20))
def test_one_shape_costs_the_same_among_many(name: str, dtype: str, shapes: list[tuple[int, int, int]]) -> None:
    profile = kernel_profile_for(name)
    m, n, k = numpy.array(shapes).T
    together = matmul_seconds(m, n, k, dtype, profile)
    alone = [matmul_seconds(*shape, dtype, profile) for shape in shapes]
    assert numpy.allclose(together, alone, rtol=1e-12)


def test_long_arrays_are_cut_into_blocks_without_a_trace() -> None:
    profile = kernel_profile_for("b200")
    m = numpy.arange(1, 50_001)
    together = matmul_seconds(m[:, None], numpy.array([512, 4096]), 4096, "fp8", profile)
    assert together.shape == (50_000, 2)
    for place in (0, 16_383, 16_384, 49_999):
        assert together[place, 1] == pytest.approx(matmul_seconds(int(m[place]), 4096, 4096, "fp8", profile), rel=1e-12)


@pytest.mark.parametrize("name", ["h100", "v5p"])
def test_formulas_agree_with_numbers(name: str) -> None:
    profile = kernel_profile_for(name)
    size = sympy.Symbol("m", positive=True)
    kernels = [
        lambda m: matmul_seconds(m, 4096, 1024, "bf16", profile),
        lambda m: attention_seconds(m, 2048, 2048, 32, 8, 128, "bf16", profile),
        lambda m: decode_attention_seconds(m, 2048, 32, 8, 128, "bf16", profile),
        lambda m: memory_seconds(m, profile),
    ]
    for kernel in kernels:
        formula = kernel(size)
        for number in (100, 8192):
            assert float(formula.subs(size, number)) == pytest.approx(float(kernel(number)), rel=1e-9)


@settings(max_examples=50)
@given(some.integers(1, 500), some.integers(0, 500), some.integers(1, 1200))
def test_keys_seen_counts_what_a_mask_leaves(queries: int, before: int, window: int) -> None:
    """Within one key: the formula integrates what a mask counts."""
    keys = queries + before
    counted = sum(min(before + place, window) for place in range(1, queries + 1)) / queries
    assert keys_seen(queries, keys, window, True) == pytest.approx(counted, abs=1)
    assert keys_seen(queries, keys, window, False) == min(keys, window)


def test_a_window_saves_time_and_a_mask_too() -> None:
    profile = kernel_profile_for("h100")
    whole = attention_seconds(1, 32768, 32768, 32, 8, 128, "bf16", profile)
    assert attention_seconds(1, 32768, 32768, 32, 8, 128, "bf16", profile, window=4096) < 0.35 * whole
    assert attention_seconds(1, 32768, 32768, 32, 8, 128, "bf16", profile, causal=False) > 1.8 * whole


def test_a_cached_prefix_is_read_but_not_computed_again() -> None:
    profile = kernel_profile_for("h100")
    chunk = attention_seconds(1, 2048, 16384, 32, 8, 128, "bf16", profile)
    all_at_once = attention_seconds(1, 16384, 16384, 32, 8, 128, "bf16", profile)
    assert attention_seconds(1, 2048, 2048, 32, 8, 128, "bf16", profile) < chunk < all_at_once


def test_warm_caches_are_faster_only_while_they_hold_the_keys() -> None:
    profile = kernel_profile_for("h100")
    small, large = (1, 8192, 32, 8, 128, "bf16", profile), (64, 8192, 32, 8, 128, "bf16", profile)
    assert decode_attention_seconds(*small, warm=True) < decode_attention_seconds(*small)
    assert decode_attention_seconds(*large, warm=True) == decode_attention_seconds(*large)


def test_small_things() -> None:
    profile = kernel_profile_for("h100")
    assert launch_seconds(profile, 3) == 3 * launch_seconds(profile)
    assert quantise_seconds(128, 4096, "bf16", profile) == 0
    assert quantise_seconds(128, 4096, "fp8", profile) > 0


def test_quicker_exponentials_save_the_same_seconds_of_either_pass() -> None:
    """Blackwell Ultra's special function units have twice the rate: half of a softmax's cost is gone, once a pass."""
    quick = kernel_profile_for("b300")
    assert (quick.exponentials, kernel_profile_for("gb300").exponentials) == (2.0, 2.0)
    assert all(kernel_profile_for(name).exponentials == 1.0 for name in ("b200", "gb200", "h100", "a100", "v5p"))
    plain = replace(quick, exponentials=1.0)
    sizes = (1, 65536, 65536, 64, 8, 128, "bf16")
    saved, also = (run(*sizes, plain) - run(*sizes, quick) for run in (attention_seconds, attention_backward_seconds))
    softmax = quick.attention.of("bf16").softmax
    assert saved / attention_seconds(*sizes, plain) == pytest.approx(softmax / 2 / (128 + softmax), rel=0.01)
    assert also == pytest.approx(saved, rel=0.01)


# Bits of an element, elements that share a scale, and bytes of the scale: NVFP4 (NVIDIA), the OCP's MX formats, and
# group-wise int4 (128 elements, an fp16 scale; zero points are left out).
SCALED = {
    "nvfp4": (4, 16, 1),
    "mxfp4": (4, 32, 1),
    "mxfp8": (8, 32, 1),
    "int4": (4, 128, 2),
    "fp4": (4, 1, 0),
    "fp8": (8, 1, 0),
    "int8": (8, 1, 0),
    "bf16": (16, 1, 0),
}


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in UNPACKING])
def test_bytes_of_a_format_are_its_bits_and_its_share_of_a_scale(name: str) -> None:
    weights, _, activations = name.partition("_")
    stored = FORMATS[name]
    if weights in SCALED:
        bits, block, scale = SCALED[weights]
        assert stored.weight == bits / 8 + scale / block
    if activations in SCALED:
        bits, block, scale = SCALED[activations]
        assert stored.activation == bits / 8 + scale / block
    assert weights in SCALED or name in ("fp16", "fp32", "tf32")
