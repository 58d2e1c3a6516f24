"""What single choices do to a step and to its memory."""

import math
from dataclasses import replace

import msgspec
import pytest

from dragonscale.models import simple
from dragonscale.physics.hardware import load_chip
from dragonscale.training.plan.stack import change, load_stack, stacks
from dragonscale.training.plan.stages import (
    bubble,
    chunk_sizes,
    held_microbatches,
    held_microbatches_last,
    layout_problem,
    stage_layers,
)
from dragonscale.training.plan.timers import expected_timer, power_factor
from tests.training.plans import DENSE, SPARSE, held, job_of, judged, seconds, term

PIPED = "fsdp=2,tensor=4,pipe=8,zero=1"


def with_stack(job, group, **changes):
    return replace(job, stack=change(job.stack, group, **changes))


def test_every_stack_says_why():
    assert all(len(stack.why) > 20 for stack in stacks().values())


def test_switches_are_inherited_to_any_depth():
    """hai-llm starts from megatron-bridge, which starts from megatron-core."""
    core, bridge, hai = (load_stack(name) for name in ("megatron-core", "megatron-bridge", "hai-llm"))
    assert hai.state == bridge.state == core.state
    assert hai.memory == core.memory
    assert (hai.overlap.expert_two_way, bridge.overlap.expert, core.overlap.expert) == (0.95, 0.6, 0.0)
    assert hai.overlap.send == core.overlap.send == 1.0


@pytest.mark.parametrize(
    ("plan", "together"),
    [
        ("fsdp=64,zero=3", 8),  # all in every layer
        ("fsdp=64,zero=2", 8),
        ("data=4,fsdp=16,zero=3", 2),  # replicas wait once a step
        ("pipe=4,fsdp=16,zero=3", 2),
        ("fsdp=8,tensor=8,zero=3", 8),
        ("context=64,zero=3", 8),  # state is sharded over context and experts too
        ("fsdp=64,zero=1", 1),
        ("data=64,zero=3", 1),  # nothing is sharded
    ],
)
def test_machines_that_share_state_wait_in_every_layer(plan, together):
    """A doubling of the machines costs `straggle`, of those that share state by ZeRO-2 or 3 `layer_straggle` too."""
    job = job_of("h100:64")
    found = judged(plan, job=with_stack(job, "host", straggle=0.01, layer_straggle=0.1))
    whole, share = seconds(found), term(found, "stragglers")
    assert share / (whole - share) == pytest.approx(0.01 * 3 + 0.1 * math.log2(together))


def test_interleaving_shrinks_the_bubble_and_holds_more():
    plain, chunks = judged(PIPED), judged(PIPED, virtual=4, schedule="interleaved")
    assert term(chunks, "pipeline bubble") == pytest.approx(term(plain, "pipeline bubble") / 4)
    assert held(chunks, "activations") > held(plain, "activations")


def test_dualpipe_holds_the_layers_of_two_stages():
    plain, dual = judged(PIPED), judged(PIPED, schedule="dualpipe")
    layers = {line.section: line.bytes for line in plain.ledger.held if line.part == "weights"}
    twice = {line.section: line.bytes for line in dual.ledger.held if line.part == "weights"}
    assert twice["block"] == pytest.approx(2 * layers["block"])
    assert {"embed", "head"} < set(twice)  # both ends lie on either outer rank
    assert held(dual, "optimizer") < 1.5 * held(plain, "optimizer")
    assert term(dual, "pipeline bubble") < term(plain, "pipeline bubble")


def test_gpipe_holds_every_microbatch():
    assert held_microbatches("gpipe", 8, 1, 32) == 32
    assert held_microbatches("1f1b", 8, 1, 32) == 8
    assert bubble("zb-h1", 8, 1, 1.0, 2.0, 1.0) < bubble("1f1b", 8, 1, 1.0, 2.0, 1.0)


def test_layers_that_do_not_divide_go_to_the_first_ranks():
    deal = stage_layers(("block",) * 10, [4], [1], "even")
    assert (int(deal.first["block"][0]), int(deal.last["block"][0]), int(deal.fullest["block"][0])) == (3, 2, 3)


def test_a_last_stage_with_fewer_layers_makes_room_for_the_head():
    wide = simple("wide", d_model=2048, d_ff=8192, n_layers=64, n_heads=16, vocab=512000)
    job = job_of(model=wide)
    stacks = (msgspec.structs.replace(job.stack, balanced=flag) for flag in (False, True))
    even, balanced = (judged(PIPED, replace(job, stack=stack)) for stack in stacks)
    assert seconds(balanced) < seconds(even)


def test_narrow_formats_are_faster_and_keep_their_master_copy():
    job = job_of("b200:64", stack="megatron-core")
    wide, narrow, four = (judged(PIPED, job, dtype=dtype) for dtype in ("bf16", "mxfp8", "nvfp4"))
    assert seconds(four) < seconds(narrow) < seconds(wide)
    assert held(narrow, "optimizer") == held(wide, "optimizer")
    assert held(four, "weights") < held(narrow, "weights") < held(wide, "weights")
    assert held(narrow, "activations") < held(wide, "activations")


def test_narrow_matmuls_gather_what_they_read_in_their_format():
    """A layer's gathers over `tensor` halve in fp8; sums, and what the head reads, stay in bf16."""
    job = job_of(stack="megatron-core")
    wide, narrow = (judged("fsdp=16,tensor=4,zero=1", job, dtype=dtype) for dtype in ("bf16", "fp8"))

    def moved(verdict):
        lines = [line for line in verdict.ledger.lines if line.term == "tensor collectives"]
        names = {(line.section, line.kind) for line in lines}
        return {
            name: sum(line.total("wire_bytes") for line in lines if (line.section, line.kind) == name) for name in names
        }

    before, after = moved(wide), moved(narrow)
    assert {name for name in before if after[name] != before[name]} == {("block", "all_gather")}
    assert after["block", "all_gather"] == pytest.approx(before["block", "all_gather"] / 2)
    kept = with_stack(job, "state", narrow_gathers=False)
    assert moved(judged("fsdp=16,tensor=4,zero=1", kept, dtype="fp8")) == before


def test_a_stack_that_keeps_both_copies_holds_more():
    job = job_of()
    wide, narrow = judged(PIPED, job), judged(PIPED, job, dtype="fp8")
    assert held(narrow, "weights") == pytest.approx(1.5 * held(wide, "weights"))


def test_offload_keeps_nothing_and_shows_on_a_slow_link():
    job = job_of(sequence=512, batch=1024)
    chip = job.slice.chip.with_facts(pcie=1e8)
    slow = replace(job, slice=replace(job.slice, chip=chip))
    block, away, late = (
        judged("fsdp=64,remat=block", job),
        judged("fsdp=64,remat=offload", job),
        judged("fsdp=64,remat=offload", slow),
    )
    assert held(away, "activations") == 0 < held(block, "activations")
    assert seconds(block) <= seconds(away) < seconds(late)
    assert term(late, "host offload") > 0


def test_a_ring_of_keys_holds_less_than_gathering_them():
    gather, ring = judged("fsdp=8,context=8"), judged("fsdp=8,context=8", context_by="ring")
    assert held(ring, "workspace") < held(gather, "workspace")
    there, back = (
        {line.what: line for line in one.ledger.lines if line.term == "context collectives"} for one in (ring, gather)
    )
    assert there["K"].kind == "permute"
    assert there["K"].times == 7 * back["K"].times
    assert there["K"].total("wire_bytes") == pytest.approx(back["K"].total("wire_bytes"))
    assert there["dK"].times == 8 * back["dK"].times  # gradients go all the way home


def test_moments_of_optimizers():
    sizes = [
        held(judged("data=64,zero=0", optimizer=name), "optimizer")
        for name in ("adam", "muon", "adam-bf16", "adam8", "sgd")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(sizes[-1] * 3)


def test_a_lower_power_limit_costs_less_than_its_part():
    h100 = load_chip("h100")
    factor = power_factor(h100.with_facts(power=500.0), h100)
    assert 500 / 700 < factor < 1
    fast, slow = (expected_timer(chip, "bf16", load_stack("generic")) for chip in (h100, h100.with_facts(power=500.0)))
    assert fast.matmul(8192, 8192, 8192, 1, True) < slow.matmul(8192, 8192, 8192, 1, True)


def test_small_models_wait_for_the_host():
    tiny = simple("tiny", d_model=512, d_ff=2048, n_layers=8, n_heads=8, vocab=32000)
    job = job_of("a100:8", model=tiny, batch=64, sequence=512, stack="megatron-deepspeed")
    assert term(judged("data=8,zero=0", job), "host") > 0.5 * seconds(judged("data=8,zero=0", job))


def test_unfused_attention_grows_with_the_square():
    short, long = (
        judged("fsdp=64", job_of(sequence=size, batch=8192 * 64 // size, stack="megatron-2021"))
        for size in (1024, 4096)
    )
    assert term(long, "attention (QK, softmax, PV)") == pytest.approx(
        4 * term(short, "attention (QK, softmax, PV)"), rel=0.1
    )


def test_a_token_is_sent_once_to_a_chip_with_several_of_its_experts():
    job = job_of(model=SPARSE)
    every, once = (judged("data=8,expert=8", with_stack(job, "experts", dedup=flag)) for flag in (False, True))
    rows = (sum(line.total("wire_bytes") for line in one.ledger.lines if line.what == "D") for one in (once, every))
    assert next(rows) / next(rows) == pytest.approx(1 - (7 / 8) ** 8)


def test_gradients_travel_under_the_backward_pass():
    job = job_of()
    hidden, shown = (judged("data=64,zero=1", with_stack(job, "overlap", gradient=part)) for part in (0.95, 0.0))
    assert term(hidden, "gradient reduction") < term(shown, "gradient reduction")


def test_the_published_runs_of_the_examples():
    """Llama 3.1 405B on 2048 H100s as MLPerf 5.0 ran it: 14.2 s a step, 52.5 GiB."""
    model = simple("405b", d_model=16384, d_ff=53248, n_layers=126, n_heads=128, n_kv_heads=8, vocab=128256)
    job = job_of("h100:2048", model=model, batch=1152, sequence=8192, stack="megatron-core")
    plan = "fsdp=16,tensor=8,context=2,pipe=8,virtual=8,zero=1,dtype=fp8,schedule=interleaved"
    verdict = judged(plan, job)
    assert seconds(verdict) == pytest.approx(14.2, rel=0.1)
    assert held(verdict) / 2**30 == pytest.approx(52.5, rel=0.1)
    assert DENSE.n_layers == 32


def test_the_embedding_and_the_head_can_count_as_layers():
    """Llama 3 405B: 126 layers, an embedding and a head are the 128 chunks of 16 ranks with 8 each."""
    assert chunk_sizes(126, 128, "ends") == [0, *[1] * 126, 0]
    assert not layout_problem(126, 16, 8, "ends")
    assert "layout=ends" in layout_problem(126, 16, 8, "even")
    assert "10 layers in 2 chunks" in layout_problem(12, 4, 1, "5-5")
    assert not layout_problem(12, 4, 1, "2-4-4-2")


def test_a_custom_layout_lightens_the_stage_with_the_head():
    wide = simple("wide", d_model=2048, d_ff=8192, n_layers=64, n_heads=16, vocab=512000)
    job = job_of(model=wide)
    job = replace(job, stack=msgspec.structs.replace(job.stack, balanced=False))
    even, light = judged(PIPED, job), judged(PIPED, job, layout="9-9-9-9-9-9-9-1")
    assert term(light, "uneven stages") < term(even, "uneven stages")


@pytest.mark.parametrize(
    ("schedule", "waits"),
    [
        ("gpipe", 7 * 3),
        ("1f1b", 7 * 3),
        ("zb-h1", 7 * 1),
        ("zbv", 0),
        ("dualpipe", 3 * 2),
        ("dualpipev", 3.5 * 2),
    ],
)
def test_bubbles_are_the_published_ones(schedule, waits):
    """f = 1, b = 2, w = 1 on eight ranks: DeepSeek-V3's table 2, and Qi et al. for the V shape."""
    assert bubble(schedule, 8, 1, 1.0, 2.0, 1.0) == waits


def test_split_backward_passes_hold_as_much_on_the_last_rank():
    for schedule in ("zb-h1", "zbv", "dualpipe", "dualpipev"):
        assert held_microbatches_last(schedule, 8, 1) == held_microbatches(schedule, 8, 1, 64) >= 8
    assert held_microbatches_last("1f1b", 8, 1) == 1


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1", "zbv", "dualpipe", "dualpipev"])
@pytest.mark.parametrize("stack", ["hai-llm", "megatron-bridge", "maxtext"])
def test_no_more_hides_than_there_are_kernels_to_hide_it_under(stack, schedule):
    """On a network a hundredth as fast the exchange between experts is longer than everything else."""
    job = job_of(model=SPARSE, stack=stack)
    network = job.slice.chip.network
    slow = tuple(replace(level, bandwidth=level.bandwidth / 100) for level in network.levels)
    chip = replace(job.slice.chip, network=replace(network, levels=slow))
    job = replace(job, slice=replace(job.slice, chip=chip))
    verdict = judged(
        "expert=8,data=2,pipe=4,zero=1", job, schedule=schedule, virtual=2 if schedule == "interleaved" else 1
    )
    lines = verdict.ledger.lines
    moved = [line for line in lines if line.term in ("expert all-to-all", "tensor collectives")]
    hidden = sum(line.total("expected_s") - line.total("exposed_s") for line in moved)
    kernels = sum(line.total("expected_s") for line in lines if line.flops or line.kind == "elementwise")
    assert 0 <= hidden <= kernels * (1 + 1e-9)


def test_attention_of_our_own_program_multiplies_whole_squares():
    """As XLA compiles it: every query with every key, forward two products of 128 elements a head (QK and PV), backward
    five (the scores again, and the gradients of Q, K, V and of the scores)."""
    ledger = judged("fsdp8 block", job_of("h100:8", batch=64, sequence=4096, stack="dragonscale")).ledger
    by_phase = {line.phase: line.flops for line in ledger.lines if line.kind == "attention"}
    square = 2 * 4096**2 * 32 * 128  # of one sequence and 32 heads
    assert by_phase["forward"] == by_phase["recompute"] == pytest.approx(2 * square)
    assert by_phase["backward"] == pytest.approx(5 * square)
