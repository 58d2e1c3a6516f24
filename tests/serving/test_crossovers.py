"""Limits solved from the ledger against the book's closed forms: equal where its assumptions hold, and by how much they
differ."""

import pytest

from dragonscale.course.closed_forms.decode_floor import cache_over_flops, critical_batch, decode_times, plateau
from dragonscale.course.closed_forms.rooflines import axis_bandwidth
from dragonscale.course.closed_forms.serving_splits import decode_degree, one_axis, prefill_degree
from dragonscale.models import load_model
from dragonscale.models.transformer import count_parameters, kv_bytes_per_token
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of, symbol
from dragonscale.serving.advice.crossovers import ServingLimit, find_limits
from dragonscale.serving.iteration.deployment import deploy

V5E = load_chip("v5e")
RATES = rates_of(V5E)
MODEL = load_model("llama3-70b")


def limits(plan: str, model: str = "llama3-70b", on: str = "v5e:4x4", batch: int = 64) -> dict[str, ServingLimit]:
    return {limit.name: limit for limit in find_limits(deploy(model, on, plan), batch, 8192)}


@pytest.mark.parametrize(
    ("weights", "compute"), [("bf16", "bf16"), ("int8", "bf16"), ("int8", "int8"), ("int4", "bf16")]
)
def test_the_critical_batch_is_the_books(weights: str, compute: str) -> None:
    found = limits(f"tensor=16,weights={weights},compute={compute}")["critical batch"]
    scales = 1 / 32 if weights == "int4" else 0.0  # the book's 4-bit weights have no scales, ours 1/64 byte each
    assert found.value == pytest.approx(critical_batch(RATES, weights, compute) * (1 + scales), rel=1e-9)


def test_experts_need_a_batch_larger_by_their_sparsity() -> None:
    found = limits("tensor=8,expert=8", "mixtral-8x7b", "v5p:2x2x2")["critical batch"]
    assert found.text == "C*E/(W_hbm*k)"
    assert found.value == pytest.approx(critical_batch(rates_of(load_chip("v5p")), sparsity=8 / 2), rel=1e-9)


def test_degrees_are_the_books_and_what_it_leaves_out() -> None:
    """The book has two matrices D x F and all bytes travel. A layer has three, and attention's for two more
    collectives; of a ring's bytes (Y-1)/Y travel; and beyond the KV heads each chip has a head of its own, whose
    matmuls no further chip makes smaller."""
    chip = load_chip("v5e")
    d, f, heads, size = (MODEL.program().sections[1].dims[name] for name in "dfnh")
    split, copied = 3 * d * f + 2 * d * size * heads, 2 * d * size  # elements of a layer, over all chips and on each
    sent = 4 * one_axis(64, d, axis_bandwidth(chip)) / 2  # two AllReduces are four of the book's halves
    found = limits("tensor=16", on="v5e:16x16", batch=64)  # on a whole pod axes close into rings
    for name, seconds in (
        ("max TP hidden in prefill", 2 * 64 / chip.peak("bf16")),
        ("max TP hidden in decode", 2 / chip.bandwidth("hbm")),
    ):
        exact = (split * seconds + sent) / (sent - copied * seconds)
        assert found[name].value == pytest.approx(exact, rel=1e-9)
    first_order = split / (2 * d * f) / 2  # more matrices, twice the collectives
    assert found["max TP hidden in prefill"].value == pytest.approx(1 + prefill_degree(f, chip) * first_order, rel=0.06)
    assert found["max TP hidden in decode"].value == pytest.approx(
        1 + decode_degree(f, 64, chip) * first_order, rel=0.2
    )


def test_wider_activations_on_the_wire_halve_what_hides() -> None:
    narrow, wide = (
        limits(f"tensor=16,weights=int8,compute=int8,wire={wire}", on="v5e:16x16")["max TP hidden in prefill"].value - 1
        for wire in ("int8", "bf16")
    )
    assert narrow == pytest.approx(2 * wide, rel=0.02)  # beyond the KV heads each chip computes one of its own


def test_context_at_which_the_cache_decides() -> None:
    """The book counts every parameter; an embedding is looked up, not multiplied, and norms are no matmuls."""
    found = limits("tensor=8", on="v5p:2x2x2")
    cache, rates = kv_bytes_per_token(MODEL, "bf16"), rates_of(load_chip("v5p"))
    counts = count_parameters(MODEL)
    assert found["context where KV reads dominate"].value == pytest.approx(
        cache_over_flops(cache, counts.active, rates), rel=2e-5
    )
    reads = decode_times(64, cache, counts.active, 8, rates)
    assert found["context where KV reads pass weights"].value == pytest.approx(
        float(reads.weights / reads.cache), rel=2e-5
    )
    assert found["max tok/s/chip"].value == pytest.approx(plateau(cache * 8192, counts.active, rates), rel=2e-5)


@pytest.mark.parametrize(
    ("model", "on", "plan"),
    [
        ("llama3-8b", "h100:1", "tensor=1"),
        ("gemma3-27b", "v6e:2x4", "tensor=8"),
        ("deepseek-v3", "h200:8", "tensor=8,expert=8,weights=fp8,compute=fp8_block"),
    ],
)
def test_formulas_with_their_letters_put_in_are_the_numbers(model: str, on: str, plan: str) -> None:
    found = list(find_limits(deploy(model, on, plan), 32, 4096))
    names = {limit.name for limit in found}
    assert names >= {"critical batch", "context where KV reads pass weights", "largest batch"}
    assert any(name.endswith("hidden in prefill") for name in names)
    for limit in found:
        assert limit.value > 0
        if limit.formula is not None:
            values = {symbol(letter): value for letter, value in limit.letters.items()}
            assert float(limit.formula.subs(values)) == pytest.approx(limit.value, rel=1e-6), limit.name
