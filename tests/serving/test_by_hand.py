"""Serving counted by hand: bytes that chips send each other in an iteration, weights and caches that they hold, what
travels between pools.

The formulas know of no layouts; they count tensors of Llama 3 70B and of Mixtral.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.engine import IDEAL, adjust, captured, filled, load_engine
from dragonscale.serving.engine.engine_settings import EngineExperts
from dragonscale.serving.engine.plan import mesh_axes, parse_serving_plan
from dragonscale.serving.iteration.balance import expert_slots, hot_load, longest_held
from dragonscale.serving.iteration.cache_transfer import CACHE_LATENCY_S, port_bandwidth
from dragonscale.serving.iteration.capacity import cache_per_chip, capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.iteration import Iteration, ServingLine
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.serving.iteration.step_table import StepTable
from dragonscale.serving.space.disaggregation import Pools, alone
from dragonscale.serving.space.frontier import Ask, Config, judge
from dragonscale.serving.space.space import Formats, Lot, stack
from dragonscale.serving.steady.prefix import rooms
from dragonscale.serving.steady.speculation import Draft, loop_seconds

LAYERS, D, F, HEADS, KV, SIZE, VOCAB = 80, 8192, 28672, 64, 8, 128, 128256
"""Llama 3 70B."""
EXPERTS, PICKS, E_LAYERS, E_D = 8, 2, 32, 4096
"""Mixtral 8x7B."""


def number(value: object) -> float:
    return float(numpy.ravel(value)[0])


def ring(size: int) -> float:
    return (size - 1) / size


def sent(
    model: str,
    on: str,
    plan: str,
    iteration: Iteration,
    engine: str = "generic",
    of: Callable[[ServingLine], bool] = bool,
) -> float:
    """Bytes that a chip sends inside the layers in one iteration."""
    lines = iteration_cost(deploy(model, on, plan, engine), iteration).lines
    return sum(
        number(line.wire_bytes) * line.times for line in lines if line.moves and line.section == "block" and of(line)
    )


def over(axis: str) -> Callable[[ServingLine], bool]:
    """Moves over an axis alone."""
    return lambda line: line.axes == (axis,)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_parallel_layers_sum_their_results_twice(tensor: int) -> None:
    """Behind attention and behind the MLP an AllReduce of every sequence's new residual."""
    moved = sent("llama3-70b", f"h100:{tensor}", f"tensor={tensor}", decode(64, 1000))
    assert moved == pytest.approx(LAYERS * 2 * 2 * 64 * D * 2 * ring(tensor))


def test_drafts_are_rows_of_their_own() -> None:
    plain, drafted = (sent("llama3-70b", "h100:8", "tensor=8", decode(64, 1000, queries)) for queries in (1, 4))
    assert drafted == pytest.approx(4 * plain)


def test_a_cache_split_along_sequences_gathers_queries_and_joins_results() -> None:
    """Sixteen chips for eight KV heads: two share each head, so that queries of two chips meet, and their results are
    scattered."""
    moved = sent("llama3-70b", "h100:16", "tensor=16,spread=sequence", decode(64, 1000), of=over("share"))
    assert moved == pytest.approx(LAYERS * 2 * 64 * HEADS / KV * SIZE * 2 * ring(2))
    assert sent("llama3-70b", "h100:16", "tensor=16", decode(64, 1000), of=over("share")) == 0


def test_a_prompt_split_over_context_gathers_its_keys() -> None:
    moved = sent("llama3-70b", "h100:16", "tensor=8,context=2", prefill(4096), of=over("context"))
    assert moved == pytest.approx(LAYERS * 2 * 4096 * KV / 8 * SIZE * 2 * ring(2))


def test_everybody_gathers_all_tokens_or_sends_them_to_their_experts() -> None:
    """Eight data ranks of eight tokens each. Gathered, a rank receives those of the others and scatters as many
    results; sent, each pick travels, in fp8 on its way out and in bf16 back."""
    gathered = sent("mixtral-8x7b", "h100:8", "tensor=1,data=8,expert=8", decode(64, 1000))
    assert gathered == pytest.approx(E_LAYERS * 2 * 64 * E_D * 2 * ring(8))
    exchanged = sent("mixtral-8x7b", "h100:8", "tensor=1,data=8,expert=8", decode(64, 1000), "sglang-ep")
    assert exchanged == pytest.approx(E_LAYERS * 8 * PICKS * E_D * (1 + 2) * ring(8))


def test_in_prefill_a_token_goes_once_to_a_chip_with_several_of_its_experts() -> None:
    """Two picks at random of eight chips: 1.875 chips. While decoding each pick is sent."""
    moved = sent("mixtral-8x7b", "h100:8", "tensor=1,data=8,expert=8", prefill(512, 8), "sglang-ep")
    picks = 8 * (1 - (1 - 1 / 8) ** PICKS)
    back = sent(
        "mixtral-8x7b",
        "h100:8",
        "tensor=1,data=8,expert=8",
        prefill(512, 8),
        "sglang-ep",
        of=lambda line: line.what == "Z",
    )
    assert back == pytest.approx(E_LAYERS * 512 * picks * E_D * 2 * ring(8))
    assert moved == pytest.approx(back * 1.5)


@pytest.mark.parametrize(("stages", "batch"), [(2, 64), (4, 64), (4, 2)])
def test_stages_hand_residuals_on(stages: int, batch: int) -> None:
    """A part of the batch for each stage crosses every cut once; with fewer sequences than stages one sequence does.
    Each of the chips of a stage sends its part."""
    cost = iteration_cost(deploy("llama3-70b", f"h100:{2 * stages}", f"tensor=2,pipe={stages}"), decode(batch, 1000))
    (hop,) = (line for line in cost.lines if line.axes == ("pipe",))
    assert hop.times == stages - 1
    assert number(hop.wire_bytes) == pytest.approx(max(batch / stages, 1) * D * 2 / 2)


def test_a_part_has_one_sequence_at_least_and_prompts_are_cut_at_the_budget() -> None:
    """Four stages: two sequences keep two of them busy; a prompt is not cut for the stages' sake."""
    few, many = (decode(count, 1000).one_part(4, 512) for count in (2, 64))
    assert (number(few.decodes), number(many.decodes)) == (1, 16)
    for prompts, tokens, parts, each in ((1, 300, 1, 300), (1, 1000, 1, 512), (8, 300, 2, 300), (1, 4000, 1, 1000)):
        part = prefill(tokens, prompts).one_part(4, 512)
        assert (number(part.prompts), number(part.tokens)) == (parts, each)


@pytest.mark.parametrize("spread", ["copy", "batch", "sequence"])
def test_three_axes_make_up_what_a_plan_calls_tensor(spread: str) -> None:
    """Experts take theirs first; of the rest the chips beyond the KV heads share them, where the cache is spread."""
    for tensor, expert, heads, axes in (
        (16, 1, 8, (1, 8, 2)),
        (8, 8, 4, (8, 1, 1)),
        (16, 4, 2, (4, 1, 4)),
        (8, 2, 8, (2, 4, 1)),
    ):
        found = mesh_axes(parse_serving_plan(f"tensor={tensor},expert={expert},spread={spread}"), heads)
        wanted = axes if spread != "copy" else (axes[0], axes[1] * axes[2], 1)
        assert tuple(number(found[name]) for name in ("expert", "tensor", "share")) == wanted


@pytest.mark.parametrize(("tensor", "pipe"), [(8, 1), (4, 2), (2, 4)])
def test_weights_of_a_chip(tensor: int, pipe: int) -> None:
    """A pipeline deals layers; both tables are counted on every chip, which are the outer ones'."""
    layer = 2 * D * HEADS * SIZE + 2 * D * KV * SIZE + 3 * D * F
    held = number(capacity(deploy("llama3-70b", "h100:8", f"tensor={tensor},pipe={pipe}", IDEAL)).weights)
    assert held == pytest.approx(2 * (LAYERS / pipe * layer / tensor + 2 * VOCAB * D / tensor), rel=1e-3)


@pytest.mark.parametrize(("tensor", "heads"), [(2, 4), (8, 1), (16, 1), (32, 1)])
def test_kv_heads_are_shared_where_there_are_more_chips(tensor: int, heads: int) -> None:
    held = number(cache_per_chip(deploy("llama3-70b", f"h100:{tensor}", f"tensor={tensor}"), 1000.0))
    assert held == pytest.approx(1000 * LAYERS * 2 * heads * SIZE * 2)


def test_a_cache_over_pipeline_and_data_ranks() -> None:
    """A stage caches its own layers; a sequence lies on one data rank, so that on average a chip has a quarter of
    each."""
    whole = 1000 * LAYERS * 2 * KV * SIZE * 2
    assert number(cache_per_chip(deploy("llama3-70b", "h100:8", "tensor=2,pipe=4"), 1000.0)) == pytest.approx(whole / 8)
    assert number(cache_per_chip(deploy("llama3-70b", "h100:8", "tensor=2,data=4"), 1000.0)) == pytest.approx(whole / 8)


def test_the_head_sees_the_last_token_of_each_prompt() -> None:
    for iteration, rows in ((prefill(512, 4), 4), (decode(64, 100), 64), (decode(64, 100, 3), 192)):
        cost = iteration_cost(deploy("llama3-70b", "h100:1", "weights=int4"), iteration)
        (head,) = (line for line in cost.lines if line.section == "head" and line.kind == "matmul")
        assert number(head.flops) == pytest.approx(2 * rows * D * VOCAB)


def test_prefixes_that_fit_beside_a_batch() -> None:
    """Sequences that begin alike hold the shared prefix once on every data rank, and their own pages beside it."""
    deployment = deploy("llama3-70b", "h100:8", "tensor=4,data=2,weights=fp8,compute=fp8,kv=fp8")
    room = capacity(deployment)
    each = number(room.per_token)
    found = rooms(deployment, 2048, 16, 4600, 100e9)
    own = 16 * (-(-4600 // room.page) * room.page - 2048) * each
    assert found.hbm == pytest.approx((number(room.cache) - own) / (2048 * each * 2))
    assert found.host == pytest.approx(100e9 / (2048 * each * 2))


def config(on: str, plan: str) -> Config:
    lot = Lot((parse_slice(on),), stack([parse_serving_plan(plan)], Formats("fp8", "fp8", "fp8"), "copy"))
    return judge(load_model("llama3-70b"), lot, alone(load_engine("generic")), ASK)[0]


ASK = Ask(4096, 256)


def test_a_cache_travels_as_fast_as_the_fewer_of_its_chips() -> None:
    """Those that have it and those that get it: all chips of one data rank, each through its own port."""
    wide, narrow, ranks = (
        config("h100:8", "tensor=8"),
        config("h100:2", "tensor=2"),
        config("h100:8", "tensor=4,data=2"),
    )
    port = port_bandwidth(wide.piece.chip)
    size = 4096 * LAYERS * 2 * KV * SIZE
    for start, end, chips in (
        (wide, narrow, 2),
        (narrow, wide, 2),
        (wide, wide, 8),
        (ranks, wide, 4),
        (wide, ranks, 4),
    ):
        pair = Pools(start, end, 1, 1, ASK)
        assert pair.transfer_s == pytest.approx(CACHE_LATENCY_S + size / (port * chips))
    network = narrow.piece.chip.network
    levels = tuple(replace(level, bandwidth=level.bandwidth / 10) for level in network.levels)
    slower = replace(narrow.piece.chip, network=replace(network, levels=levels))
    slow = replace(wide, piece=replace(wide.piece, chip=slower))
    for start, end in ((wide, slow), (slow, wide)):
        assert Pools(start, end, 1, 1, ASK).transfer_s == pytest.approx(CACHE_LATENCY_S + size / (port / 10 * 8))


def test_a_simulated_replica_sends_a_cache_through_the_ports_of_one_data_rank() -> None:
    formats = "weights=fp8,compute=fp8,kv=fp8"
    for plan, chips in (("tensor=8", 8), ("tensor=4,data=2", 4)):
        deployment = deploy("llama3-70b", "h100:8", f"{plan},{formats}")
        seconds = StepTable(deployment, 8192).transfer(4096)
        size = 4096 * LAYERS * 2 * KV * SIZE
        assert seconds == pytest.approx(CACHE_LATENCY_S + size / (chips * port_bandwidth(deployment.chip)))


def test_a_loop_of_drafts_verifies_them_and_one_more() -> None:
    """Seconds per token of the best count are those of drafting it and of a step with one query more, over the tokens
    it yields."""
    deployment = deploy("llama3-70b", "h100:4", "tensor=4,weights=fp8,compute=fp8,kv=fp8")
    plain = iteration_cost(deployment, decode(8.0, 2000)).expected
    seconds, count = loop_seconds(deployment, Draft((0.8, 0.5), part=0.05, counts=(3,)), 8.0, 2000, plain)
    verify = iteration_cost(deployment, decode(8.0, 2000, 4.0)).expected
    tokens = 1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.5
    assert number(count) == 3
    assert number(seconds) == pytest.approx(number(verify + 3 * 0.05 * plain) / tokens)


SIZES = ((2, 1), (4, 2), (8, 4), (256, 8))


def test_a_batch_is_filled_up_to_the_next_captured_size() -> None:
    """Written out: 1, 2, 4, 8, 16, 24 ... 256."""
    listed = [1, 2, 4, *range(8, 257, 8)]
    for batch in range(1, 257):
        assert number(filled(float(batch), SIZES)) == min(size for size in listed if size >= batch)
    assert number(filled(300.0, SIZES)) == 300
    assert number(filled(6.0, ((6, 2), (16, 8)))) == 6  # captured itself, though no multiple of the next step
    assert [bool(captured(batch, SIZES)) for batch in (256, 257)] == [True, False]


def test_spare_slots_divide_over_the_ranks() -> None:
    for ranks in (8, 24, 64, 72):
        slots = number(expert_slots(256.0, float(ranks), 32))
        assert slots == min(count for count in range(288, 400) if count % ranks == 0)
    assert number(expert_slots(256.0, 72.0, 0)) == 256


def test_the_busiest_rank_has_more_the_fewer_rows_there_are() -> None:
    """Chance alone adds standard deviations of a Poisson count: 1/sqrt(rows) of the mean; one rank has no other to
    wait for."""
    habits = EngineExperts(skew=1e-9, balanced=False)
    loads = [number(hot_load(habits, 256, 256, 8, rows)) for rows in (4.0, 64.0, 1e12)]
    assert loads[2] == pytest.approx(1.0, abs=1e-3)
    assert (loads[0] - 1) / (loads[1] - 1) == pytest.approx(4, rel=1e-3)
    assert loads[0] == pytest.approx(1 + 1.4236 / 2, rel=0.01)  # the largest of eight normal draws, of 4 rows +- 2
    assert number(hot_load(habits, 256, 256, 1, 4.0)) == 1.0
    held = [number(longest_held(8, count)) for count in (4.0, 16.0)]
    assert (held[0] - 1) / (held[1] - 1) == pytest.approx(2)
    assert longest_held(1, 4.0) == 1.0


def test_memory_that_engines_count_in_three_ways() -> None:
    """Of all, of what is free once weights are there, or for weights and cache: the workspace then lies in what is
    kept or in the rest."""
    plan = "tensor=8"
    found = {}
    for share_of in ("hbm", "free", "static"):
        memory = {"share": 0.9, "share_of": share_of, "reserve_bytes": 1e9, "rank_bytes": 0.0}
        found[share_of] = capacity(deploy("llama3-70b", "h100:8", plan, adjust(load_engine("generic"), memory=memory)))
    room = found["hbm"]
    hbm, weights, working = room.hbm, number(room.weights), number(room.working)
    assert number(room.cache) == pytest.approx(0.9 * hbm - weights - working - 1e9)
    assert number(found["free"].cache) == pytest.approx(0.9 * (hbm - weights - working - 1e9))
    assert number(found["static"].cache) == pytest.approx(0.9 * hbm - weights - 1e9)
