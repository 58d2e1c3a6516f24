"""Laws of the readings: FLOPs, caches and activations, on floats, arrays and symbols."""

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.models import (
    REMAT,
    Attention,
    Layer,
    Mlp,
    Transformer,
    Workload,
    activation_bytes,
    cache_bytes,
    count_parameters,
    forward_flops,
    kv_bytes_per_token,
    load_model,
    parameters,
    saved_tensors,
    simple,
    training_flops,
)
from dragonscale.models.flops import key_pairs, keys_seen
from dragonscale.models.program import Section

sizes = st.integers(1, 5000)
VARIED = ["llama3-8b", "gemma2-9b", "llama4-scout", "deepseek-v3.2", "deepseek-v4-flash", "qwen3.5-27b", "gpt-oss-20b"]


def total(by_part):
    return sum(by_part.values())


def section(**reach):
    return Section("block", (), {}, **reach)


def test_matmul_flops_are_six_params_tokens():
    """6·params·tokens, the params being those of matrix multiplications: no embedding, no norms."""
    model = load_model("llama3-70b")
    flops = training_flops(model.program().sections, Workload(2, 1024, 1024))
    flops.pop("scores")
    counts = count_parameters(model).by_part
    assert total(flops) == 6 * 2048 * (counts["attention"] + counts["mlp"] + counts["head"])


def test_attention_flops_are_the_books():
    """12·B·T²·N·H for training with the full square, half of it under a causal mask."""
    model = load_model("llama3-8b")
    full = training_flops(model.program().sections, Workload(3, 512, 512, causal=False))["scores"]
    assert full == 32 * 12 * 3 * 512**2 * 32 * 128
    assert training_flops(model.program().sections, Workload(3, 512, 512))["scores"] == full / 2


def test_counts_without_embeddings_are_easy_to_get():
    parts = parameters(load_model("llama3-8b").program().sections)
    assert sum(size for part, size in parts.items() if part not in ("embed", "head")) == 6_979_588_096
    assert parts["embed"] == parts["head"] == 128256 * 4096


def by_hand(queries, keys, span=None, chunk=None, top=None, steps=8):
    """Pairs counted one position at a time, positions in steps fine enough to see the ramp."""
    points = keys - queries + (np.arange(queries * steps) + 0.5) / steps
    seen = points % chunk if chunk else points
    for cap in (span, top):
        seen = np.minimum(seen, cap) if cap else seen
    return seen.sum() / steps


@given(sizes, sizes, st.integers(1, 6000))
@settings(deadline=None)
def test_pairs_are_those_counted_by_hand(queries, before, reach):
    queries, keys = min(queries, 300), min(queries, 300) + before
    work = Workload(1, queries, keys)
    assert key_pairs(section(span=reach), work) == pytest.approx(by_hand(queries, keys, span=reach))
    assert key_pairs(section(top=reach), work) == pytest.approx(by_hand(queries, keys, top=reach))
    assert key_pairs(section(chunk=reach), work) == pytest.approx(by_hand(queries, keys, chunk=reach), rel=1e-3)
    assert key_pairs(section(), work) == pytest.approx(by_hand(queries, keys))


@given(sizes, sizes, st.integers(0, 100))
def test_a_window_longer_than_the_sequence_is_no_window(queries, before, more):
    work = Workload(1, queries, queries + before)
    for causal in (True, False):
        work = Workload(1, queries, queries + before, causal)
        full = key_pairs(section(), work)
        for reach in ("span", "top"):
            assert key_pairs(section(**{reach: work.keys + more}), work) == pytest.approx(full)
        assert key_pairs(section(chunk=work.keys + more + 1), work) == pytest.approx(full)


@given(sizes, sizes, st.integers(1, 6000))
def test_causal_sees_no_more_than_all(queries, before, reach):
    for kind in ({}, {"span": reach}, {"chunk": reach}, {"top": reach}):
        some = key_pairs(section(**kind), Workload(1, queries, queries + before))
        every = key_pairs(section(**kind), Workload(1, queries, queries + before, causal=False))
        assert 0 <= some <= every * (1 + 1e-12) + 1e-9


def test_a_decoding_step_sees_the_whole_past():
    assert keys_seen(section(), Workload(1, 1, 1000)) == 999.5
    assert keys_seen(section(span=100), Workload(1, 1, 1000)) == 100
    assert keys_seen(section(chunk=1024), Workload(1, 1, 1025)) == 0.5


def test_compressed_keys():
    pooled = section(span=128, compress=4, top=512)
    work = Workload(1, 1, 100_000)
    assert key_pairs(pooled, work, "s") == 128
    assert key_pairs(pooled, work, "m") == 512
    assert key_pairs(section(span=128, compress=128), work, "m") == pytest.approx(100_000 / 128, rel=1e-4)


@pytest.mark.parametrize("name", VARIED)
def test_one_formula_three_kinds_of_number(name):
    sections = load_model(name).program().sections
    batch, queries, before = sympy.symbols("B T P", positive=True, integer=True)
    formula = total(forward_flops(sections, Workload(batch, queries, queries + before)))
    cases = [(1, 7, 0), (2, 4096, 0), (3, 1, 9000), (1, 20_000, 5)]
    columns = [np.array(column, dtype=float) for column in zip(*cases, strict=True)]
    many = total(forward_flops(sections, Workload(columns[0], columns[1], columns[1] + columns[2])))
    for number, (b, t, p) in enumerate(cases):
        one = total(forward_flops(sections, Workload(b, t, t + p)))
        assert float(formula.subs({batch: b, queries: t, before: p})) == pytest.approx(one, rel=1e-12)
        assert many[number] == pytest.approx(one, rel=1e-12)


def test_a_formula_a_person_can_read():
    model = simple(d_model=2, d_ff=4, n_layers=1, n_heads=1, vocab=8)
    batch, length = sympy.symbols("B T", positive=True)
    scores = forward_flops(model.program().sections, Workload(batch, length, length))["scores"]
    assert sympy.expand(scores) == 4 * batch * length**2


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_fewer_kv_heads_never_cost_more(few, many):
    few, many = min(few, many), max(few, many)
    caches = [
        kv_bytes_per_token(simple(d_model=64, d_ff=64, n_layers=2, n_heads=8, n_kv_heads=heads, vocab=10))
        for heads in (few, many)
    ]
    assert caches[0] * many == caches[1] * few


@given(st.integers(1, 10**6), st.integers(1, 4096), st.sampled_from(VARIED))
def test_engines_reserve_at_least_what_is_needed(tokens, page, name):
    sections = load_model(name).program().sections
    ideal = total(cache_bytes(sections, tokens))
    paged = total(cache_bytes(sections, tokens, page=page))
    whole = total(cache_bytes(sections, tokens, page=page, hybrid=False))
    assert ideal <= paged <= whole


def test_windows_cap_the_cache():
    sections = load_model("mistral-7b").program().sections
    assert total(cache_bytes(sections, 10**6)) == total(cache_bytes(sections, 4096)) == 4096 * 131072
    assert total(cache_bytes(sections, 10**6, hybrid=False)) == 10**6 * 131072
    assert total(cache_bytes(sections, 100, page=64)) == 128 * 131072
    assert total(cache_bytes(sections, 100, dtype="fp8")) == 100 * 131072 / 2


def test_activations_of_a_gpt_block():
    """Korthikanti et al. count 34·s·b·h bytes with two dropout masks of one byte each: 32 without."""
    gpt = Transformer("gpt", 1024, 100, (Layer(Attention(16, 16, 64), Mlp(4096, gated=False)),))
    kept = activation_bytes(gpt.program().sections, Workload(2, 128, 128), "none")["block"]
    assert kept == 32 * 2 * 128 * 1024


@pytest.mark.parametrize("name", VARIED)
def test_keeping_less_keeps_less(name):
    program = load_model(name).program()
    work = Workload(1, 4096, 4096)
    kept = {policy: total(activation_bytes(program.sections, work, policy)) for policy in REMAT}
    assert kept["block"] < kept["matmuls"]
    assert kept["block"] < kept["selective"] < kept["none"]


def test_block_remat_keeps_only_the_stream():
    section = load_model("llama3-8b").program().sections[1]
    assert [str(array) for array in saved_tensors(section, "block")] == ["R[b, t, d]"]
    with pytest.raises(InputError, match="remat policy 'blok'; did you mean 'block'"):
        saved_tensors(section, "blok")


def test_tied_weights_count_once_and_work_twice():
    tied = simple(d_model=64, d_ff=128, n_layers=1, n_heads=4, vocab=1000, tied=True)
    untied = simple(d_model=64, d_ff=128, n_layers=1, n_heads=4, vocab=1000)
    assert count_parameters(untied).total - count_parameters(tied).total == 64_000
    assert count_parameters(untied).active == count_parameters(tied).active
    work = Workload(1, 8, 8)
    assert forward_flops(tied.program().sections, work) == forward_flops(untied.program().sections, work)


def test_single_layers_of_two_kinds_do_not_share_weights():
    layers = (Layer(Attention(4, 4, 16), Mlp(64)), Layer(Attention(4, 4, 16), Mlp(128)))
    each = [count_parameters(Transformer("m", 64, 10, (layer,))).total for layer in layers]
    both = count_parameters(Transformer("m", 64, 10, layers)).total
    frame = 2 * 10 * 64 + 64
    assert both == sum(each) - frame
