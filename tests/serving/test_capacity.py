"""What fits: reserved memory is never below the ideal, and the numbers of a known model come out by hand."""

import dataclasses

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.models import load_model
from dragonscale.models.transformer import count_parameters, kv_bytes_per_token
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number
from dragonscale.serving.engine.engine import IDEAL, adjust, load_engine
from dragonscale.serving.iteration.capacity import cache_per_chip, capacity
from dragonscale.serving.iteration.deployment import deploy
from tests.serving.deployments import Case, cases, deployed, model_of


def one(value: Number) -> float:
    return float(numpy.ravel(value)[0])


@settings(max_examples=120)
@given(case=cases(), sequences=st.integers(1, 500), tokens=st.integers(1, 30000))
def test_reserved_is_never_below_the_ideal(case: Case, sequences: int, tokens: int) -> None:
    deployment = deployed(case)
    real = capacity(deployment)
    # Windows are counted as full ones, which short sequences do not fill: those of engines that keep all tokens are
    # not.
    windows = {"whole_windows": deployment.engine.memory.whole_windows}
    ideal = capacity(deploy(model_of(case[0]), case[1], case[2], adjust(IDEAL, memory=windows)))
    assert one(real.held(sequences, tokens)) >= one(ideal.held(sequences, tokens)) * (1 - 1e-9)
    assert one(real.sequences(tokens)) <= one(ideal.sequences(tokens)) or deployment.engine.memory.share > 1
    assert one(real.weights) > 0
    assert one(real.per_token) >= 0
    longer = one(cache_per_chip(deployment, float(tokens * 2)))
    assert longer >= one(cache_per_chip(deployment, float(tokens))) * (1 - 1e-9)


@settings(max_examples=60)
@given(case=cases())
def test_all_chips_together_hold_the_model(case: Case) -> None:
    """Splitting never loses a weight: the chips hold at least the parameters in the narrowest format of the plan, where
    none is left on the host; with those, never more."""
    as_launched = deployed(case)
    engine = adjust(as_launched.engine, offload={"layers": 0, "expert_layers": 0})
    deployment = deploy(model_of(case[0]), case[1], case[2], engine)
    parameters = count_parameters(deployment.model).total
    narrowest = min(dtype_bytes(name) for name in (deployment.plan.weights, deployment.plan.attention or "bf16"))
    held = one(capacity(deployment).weights) * deployment.plan.chips
    assert held >= parameters * min(narrowest, 0.5) * 0.99
    assert one(capacity(as_launched).weights) * as_launched.plan.chips <= held * (1 + 1e-9)


def test_llama_3_70b_by_hand() -> None:
    room = capacity(deploy("llama3-70b", "h100:8", "tensor=8", IDEAL))
    assert one(room.weights) == pytest.approx(count_parameters(load_model("llama3-70b")).total * 2 / 8, rel=1e-3)
    assert one(room.per_token) == 80 * 2 * 8 * 128 * 2 / 8
    assert one(room.sequences(8192)) == (79.18 * 2**30 - one(room.weights)) // (8192 * 40960)


def test_cached_heads_are_copied_split_by_sequence_or_by_batch() -> None:
    """Sixteen ways share eight KV heads: copies double the cache, the other two ways to spread it do not."""
    whole = kv_bytes_per_token(load_model("llama3-70b"), "bf16")
    held = {
        spread: one(cache_per_chip(deploy("llama3-70b", "v5e:4x4", f"tensor=16,spread={spread}"), 1024.0)) * 16 / 1024
        for spread in ("copy", "batch", "sequence")
    }
    assert held["copy"] == pytest.approx(2 * whole)
    assert held["batch"] == pytest.approx(whole)
    assert held["sequence"] == pytest.approx(whole)


def test_a_latent_cache_is_copied_by_tensor_ways_and_not_by_data_ways() -> None:
    tensor = one(cache_per_chip(deploy("deepseek-v3", "h200:8", "tensor=8,expert=8"), 1000.0))
    data = one(cache_per_chip(deploy("deepseek-v3", "h200:8", "tensor=1,data=8,expert=8"), 1000.0))
    assert tensor == pytest.approx(1000 * 61 * 576 * 2)
    assert data == pytest.approx(tensor / 8)


def test_windows_stop_growing() -> None:
    """Gemma 3 has one full layer in six: far beyond its window of 1,024 tokens only that one's cache grows."""
    deployment = deploy("gemma3-27b", "h100:1", "", IDEAL)
    slope = one(cache_per_chip(deployment, 65536.0) - cache_per_chip(deployment, 32768.0)) / 32768
    start = one(cache_per_chip(deployment, 512.0)) / 512
    assert slope == pytest.approx(start * 10 / 62, rel=0.01)


@pytest.mark.parametrize("tokens", [64.0, 2048.0, 8192.0, 100_000.0])
def test_windows_hold_what_there_is_until_they_are_full(tokens: float) -> None:
    """Three of four layers of Llama 4 attend in chunks of 8,192 tokens."""
    deployment = deploy("llama4-maverick", "h200:8", "data=8,expert=8,weights=fp8,kv=fp8,compute=fp8", "trtllm")
    room = capacity(deployment)
    assert float(room.sequence(tokens)) == pytest.approx(float(cache_per_chip(deployment, tokens)))
    assert float(room.sequences(tokens)) == float(room.cache // cache_per_chip(deployment, tokens))


def test_room_for_every_row_of_gathered_tokens() -> None:
    """Maverick's tokens of eight ranks have 5,120 elements and go to an expert of 8,192 columns each: two bytes an
    element on the way in and out, and between two matmuls a gate and a value of two bytes; and the tokens themselves.
    """
    plan, tokens = "data=8,expert=8,weights=fp8,compute=fp8", 8 * 8192
    with_rows = capacity(deploy("llama4-maverick", "h200:8", plan, "trtllm"))
    engine = adjust(load_engine("trtllm"), memory={"expert_rows": False})
    without = capacity(deploy("llama4-maverick", "h200:8", plan, engine))
    assert float(with_rows.working - without.working) == tokens * (2 * 5120 + 4 * 8192 + 4 * 5120)
    dense = deploy("llama3-70b", "h200:8", "tensor=8", "trtllm")
    assert float(capacity(dense).working) < 2e9


def test_each_data_rank_has_an_iteration_of_its_own() -> None:
    """`max_tokens` and `max_sequences` are those of a rank: eight ranks work with no less memory each than one chip,
    and sample from 1,024 rows of 202,048 logits in 16 bits and in 32."""
    engine = adjust(load_engine("trtllm"), memory={"expert_rows": False})
    alone, ranks = (
        capacity(deploy("llama4-maverick", on, f"{split},weights=fp8", engine)).working
        for on, split in (("h200:1", "tensor=1"), ("h200:8", "data=8,expert=8"))
    )
    assert one(alone) == one(ranks) == 8192 * (4 * 5120 + 3 * 16384) * 2 + 1024 * 202048 * 6


def test_a_vision_tower_lies_beside_the_weights_in_sixteen_bits() -> None:
    model = load_model("llama4-maverick")
    blind = dataclasses.replace(model, extras=())
    tower = count_parameters(model).checkpoint - count_parameters(model).total
    for plan, ways in (("data=8,expert=8,weights=fp8", 1), ("tensor=8,weights=fp8", 8)):
        seeing, without = (capacity(deploy(one_of, "h200:8", plan, "trtllm")).weights for one_of in (model, blind))
        assert one(seeing) - one(without) == pytest.approx(2 * tower / ways)
    drafting = load_model("deepseek-v3")  # modules that draft are no part of what is held
    plain = dataclasses.replace(drafting, extras=())
    assert drafting.extras
    assert one(capacity(deploy(drafting, "h200:16")).weights) == one(capacity(deploy(plain, "h200:16")).weights)


def test_collectives_keep_memory_where_chips_have_links_of_their_own() -> None:
    group = load_engine("vllm").memory.group_bytes
    kept = {
        (on, plan): one(capacity(deploy("llama3-8b", on, plan, "vllm")).reserve)
        for on, plan in (("h100:1", ""), ("h100:2", "tensor=2"), ("l40s:1", ""), ("l40s:2", "tensor=2"))
    }
    assert kept["h100:2", "tensor=2"] - kept["h100:1", ""] == group > 1e9
    assert kept["l40s:2", "tensor=2"] == kept["l40s:1", ""] == kept["h100:1", ""]


def test_the_longest_request_lies_on_one_rank() -> None:
    """Eight ranks of attention have 94 layers of four KV heads each; tensor ways share the heads of one request."""
    plain = "weights=fp8,compute=fp8"
    ranks = capacity(deploy("qwen3-235b-a22b", "h200:8", f"tensor=1,data=8,expert=8,{plain}", "vllm"))
    token = 94 * 2 * 4 * 128 * 2
    assert ranks.largest_request(1e9) == one(ranks.cache) // (16 * token) * 16
    assert ranks.largest_request(4096.0) == 4096
    ways = capacity(deploy("qwen3-235b-a22b", "h200:8", f"tensor=4,data=2,expert=8,{plain}", "vllm"))
    assert ways.largest_request(1e9) == one(ways.cache) // (16 * token / 4) * 16
    assert ways.printed_tokens(4096.0) == pytest.approx(2 * one(ways.cache) / (token / 4))


def test_the_longest_request_of_windows_fills_the_full_layers() -> None:
    room = capacity(deploy("gemma3-27b", "l40s:2", "tensor=2", "vllm"))
    longest = room.largest_request(1e9)
    assert one(room.sequence(float(longest))) <= one(room.cache) < one(room.sequence(longest + 32.0))
    nothing = capacity(deploy("llama3.1-405b", "v5e:1x1", ""))
    assert nothing.largest_request(1e9) == 0


def test_pages_round_up() -> None:
    paged = adjust(load_engine("generic"), memory={"page": 256})
    room = capacity(deploy("llama3-8b", "h100:1", "", paged))
    assert one(room.sequences(257)) == one(room.sequences(512)) < one(room.sequences(256))


def test_what_does_not_fit_is_told_and_not_an_error() -> None:
    room = capacity(deploy("llama3.1-405b", "v5e:1x1", ""))
    assert not bool(numpy.all(room.fits))
    assert one(room.sequences(1024)) == 0


@pytest.mark.parametrize(("kv", "bytes_per_token"), [("bf16", 2 * 576), ("fp8", 576 + 2)])
def test_an_eight_bit_latent_has_one_scale(kv: str, bytes_per_token: int) -> None:
    """DeepSeek's cache is a latent of 512 elements and 64 that are rotated, in 61 layers; our own engine keeps a scale
    of two bytes with each latent of eight bits, the rotated part included."""
    plan = f"tensor=8,expert=8,weights=fp8,compute=fp8_block,kv={kv}"
    cached = cache_per_chip(deploy("deepseek-v3", "h200:8", plan, "dragonscale"), 1000.0)
    assert one(cached) == pytest.approx(1000 * 61 * bytes_per_token)
