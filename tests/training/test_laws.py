"""Laws that hold for every plan; some of them other planners break."""

from dataclasses import replace

import numpy
import pytest

from dragonscale.models import simple
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import degrees_of, judge, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import change
from tests.training.plans import DENSE, SPARSE, held, job_of, judged, seconds, sent, term

PLANS = (
    "fsdp=64",
    "fsdp=8,tensor=8,zero=1",
    "fsdp=2,tensor=4,pipe=8,zero=1,microbatch=2",
    "data=4,fsdp=16,context=1",
    "fsdp=8,context=4,tensor=2",
    "fsdp=4,tensor=4,pipe=4,virtual=4,schedule=interleaved,zero=1",
)


@pytest.mark.parametrize("stack", ["generic", "megatron-core", "torchtitan", "megatron-2021", "maxtext"])
@pytest.mark.parametrize("plan", PLANS)
def test_recomputing_less_is_never_slower_and_keeping_less_never_larger(plan, stack):
    job = job_of(stack=stack)
    none, selective, block = (judged(plan, job, remat=remat) for remat in ("none", "selective", "block"))
    assert seconds(none) <= seconds(selective) <= seconds(block)
    assert held(none, "activations") >= held(selective, "activations") >= held(block, "activations")
    assert held(none) >= held(selective)


@pytest.mark.parametrize("plan", PLANS)
def test_terms_add_up_and_stay_above_the_bound(plan):
    verdict = judged(plan, remat="selective")
    exposed = sum(verdict.ledger.by("term", "exposed_s").values())
    assert exposed == pytest.approx(seconds(verdict), rel=1e-12)
    assert verdict.lower <= verdict.upper
    assert verdict.lower <= seconds(verdict)
    assert all(line.exposed_s <= line.expected_s * (1 + 1e-9) for line in verdict.ledger.lines)
    assert sum(verdict.ledger.memory.values()) == pytest.approx(held(verdict), rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_state_divides_by_every_axis_that_shards_it(zero):
    small = held(judged("data=64", zero=zero), "optimizer")
    for axis in ("tensor", "pipe"):
        split = held(judged(f"data=32,{axis}=2", zero=zero), "optimizer")
        assert split == pytest.approx(small / 2, rel=0.12), axis  # the ends of a pipeline are not split by it
    for axis in ("fsdp", "context"):
        split = held(judged(f"data=32,{axis}=2", zero=zero), "optimizer")
        assert split == pytest.approx(small / 2 if zero else small, rel=1e-3), axis


def test_each_stage_of_zero_shards_what_it_says():
    one, two, three = (judged("fsdp=64", zero=zero) for zero in (1, 2, 3))
    none = judged("fsdp=64", zero=0)
    assert held(one, "optimizer") < held(none, "optimizer")
    assert held(one, "gradients") == held(none, "gradients")
    assert held(two, "gradients") < held(one, "gradients")
    assert held(two, "weights") == held(none, "weights")
    assert held(three, "weights") == 0
    assert held(three, "gathered weights") > 0


@pytest.mark.parametrize("layers", [4, 8])
def test_experts_exchange_tokens_in_every_layer(layers):
    from dragonscale.models import simple
    from dragonscale.plan.gradients import read_training
    from dragonscale.plan.rules import training_rules

    model = simple(
        "m", d_model=1024, d_ff=512, n_layers=layers, n_heads=8, vocab=32000, n_experts=16, experts_per_token=2
    )
    section = model.program().sections[1]
    moves = [move for move in read_training(section, training_rules()).moves if move.step.kind == "all_to_all"]
    assert [move.phase for move in moves].count("forward") == 2
    assert [move.phase for move in moves].count("backward") == 2
    verdict = judged("data=8,expert=8", job_of(model=model))
    one = judged("data=8,expert=8", job_of(model=replace(model, layers=model.layers[:1])))
    name = "expert all-to-all"
    assert sent(verdict, name) == pytest.approx(layers * sent(one, name))


def test_a_plan_alone_is_the_same_in_a_batch():
    words = Plan(remat="selective", zero=1)
    plans = [
        replace(words, data=data, fsdp=64 // (data * tensor * pipe), tensor=tensor, pipe=pipe, microbatch=micro)
        for data in (1, 2)
        for tensor in (1, 2, 4, 8)
        for pipe in (1, 2, 4)
        for micro in (1, 2)
    ]
    job = job_of()
    together = judge(job, words, degrees_of(plans))
    for place, plan in enumerate(plans):
        alone = judge_one(job, plan)
        for name in ("seconds", "lower", "upper", "hbm_bytes"):
            got = float(numpy.broadcast_to(getattr(together, name), (len(plans),))[place])
            assert got == pytest.approx(first_number(getattr(alone, name)), rel=1e-12), (plan, name)


FASTER = ("memory.hbm.bandwidth", "levels.node.bandwidth", "levels.leaf.bandwidth", "pcie", "matrix.bf16")


@pytest.mark.parametrize("plan", [*PLANS, "fsdp=64,remat=offload"])
@pytest.mark.parametrize("fact", FASTER)
def test_faster_parts_never_slow_a_step(plan, fact):
    job = job_of()
    chip = job.slice.chip
    better = chip.with_facts(**{fact: chip.facts[fact].value * 1.5})
    quick = replace(job, slice=replace(job.slice, chip=better))
    assert seconds(judged(plan, quick)) <= seconds(judged(plan, job)) * (1 + 1e-9)


def test_more_memory_never_makes_a_plan_infeasible():
    from dragonscale.training.cost.evaluation import problems

    job, plan = job_of(), parse_plan("fsdp=64,remat=block")
    assert not problems(job, plan, judge_one(job, plan))
    chip = job.slice.chip.with_facts(**{"memory.hbm.capacity": 200e9})
    larger = replace(job, slice=replace(job.slice, chip=chip))
    assert not problems(larger, plan, judge_one(larger, plan))


BASE = "data=2,fsdp=4,context=2,tensor=4,zero=1,microbatch=2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence", False),
        ("context_by", "ring"),
        ("dtype", "fp8"),
        ("dtype", "mxfp8"),
        ("dtype", "int8"),
        ("zero", 0),
        ("zero", 2),
        ("zero", 3),
        ("remat", "selective"),
        ("remat", "matmuls"),
        ("remat", "block"),
        ("remat", "offload"),
        ("optimizer", "adam-bf16"),
        ("optimizer", "adafactor"),
        ("optimizer", "muon"),
        ("optimizer", "sgd"),
        ("microbatch", 4),
    ],
)
def test_no_option_is_ignored(name, value):
    base, other = judged(BASE), judged(BASE, **{name: value})
    assert (seconds(base), held(base)) != (seconds(other), held(other))


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved", "zb-h1", "dualpipe"])
def test_no_schedule_is_ignored(schedule):
    plan = "fsdp=2,tensor=4,pipe=8,zero=1,virtual=" + ("2" if schedule == "interleaved" else "1")
    base, other = judged(plan, schedule="1f1b"), judged(plan, schedule=schedule)
    assert (seconds(base), held(base)) != (seconds(other), held(other))


def test_skewed_routing_is_slower():
    job = job_of(model=SPARSE)
    skewed = replace(job, stack=change(job.stack, "experts", skew=1.5))
    assert seconds(judged("data=8,expert=8", skewed)) > seconds(judged("data=8,expert=8", job))


def test_accumulating_gradients_repeats_the_passes_and_not_the_update():
    once, often = judged("data=64,zero=1", microbatch=4), judged("data=64,zero=1", microbatch=1)
    assert term(once, "optimizer") == pytest.approx(term(often, "optimizer"))
    assert term(often, "weight and gradient copies") == pytest.approx(4 * term(once, "weight and gradient copies"))
    assert held(once, "activations") == pytest.approx(4 * held(often, "activations"))


def test_the_loss_and_the_optimizer_have_flops_and_bytes():
    verdict = judged("fsdp=64", job_of(model=DENSE))
    lines = verdict.ledger.lines
    logits = 256 * 4096 * DENSE.vocab / 64
    loss = sum(line.total("flops") for line in lines if line.what == "loss" and not line.moves)
    assert loss == pytest.approx(6 * logits)
    (update,) = (line for line in lines if line.kind == "optimizer")
    assert update.flops / update.hbm_bytes == pytest.approx(14 / 30)
    assert update.flops > 0


def test_model_flops_are_those_of_the_terms():
    job = job_of(model=DENSE)
    verdict = judged("fsdp=64", job)
    assert verdict.flops * job.slice.chips == pytest.approx(job.model_flops, rel=1e-12)


@pytest.mark.parametrize("stack", ["generic", "megatron-core", "torchtitan"])
@pytest.mark.parametrize("plan", ["fsdp=64", "fsdp=8,tensor=8", "fsdp=8,tensor=2,pipe=4", "fsdp=16,context=4"])
def test_stages_of_zero_trade_memory_for_traffic(plan, stack):
    """With several microbatches: what a stage no longer holds it sends more often."""
    job = job_of(stack=stack, batch=1024)
    if job.stack.memory.pipe_whole and "pipe" in plan:
        pytest.skip(
            "torch's pipelines keep weights and gradients whole for a step, so that stages 2 and 3 send as often as 1"
        )
    stages = [judged(plan, job, zero=zero) for zero in (0, 1, 2, 3)]
    assigned = ("weights and optimizer", "compute copy", "gradients added up")  # where XLA assigns the buffers
    state = [sum(held(one, part) for part in ("weights", "gradients", "optimizer", *assigned)) for one in stages]
    wires = [sent(one, "fsdp collectives") + sent(one, "gradient reduction") for one in stages]
    assert state == sorted(state, reverse=True)
    whole = stack == "torchtitan" and "pipe" in plan  # FSDP2 keeps weights and gradients whole under a pipeline
    assert state[1] < state[0]
    assert state[3] == state[1] if whole else state[3] < state[1]
    assert wires[1] * 1.5 < wires[2] <= wires[3]  # ZeRO-2 scatters with every microbatch, ZeRO-1 once


@pytest.mark.parametrize("name", ["tensor", "context", "expert", "weight", "gradient", "send"])
def test_more_overlap_is_never_slower(name):
    for model, plan in (
        (DENSE, "fsdp=4,tensor=4,pipe=4,zero=1"),
        (DENSE, "fsdp=8,context=8"),
        (SPARSE, "expert=16,fsdp=4"),
    ):
        job = job_of(model=model)
        less, more = (replace(job, stack=change(job.stack, "overlap", **{name: share})) for share in (0.2, 0.9))
        assert seconds(judged(plan, more)) <= seconds(judged(plan, less)) * (1 + 1e-9)


ROUTED = simple(
    "routed",
    d_model=2048,
    d_ff=768,
    n_layers=48,
    n_heads=32,
    n_kv_heads=4,
    vocab=32000,
    n_experts=128,
    experts_per_token=8,
)
"""Like Qwen3 30B A3B: with short sequences issuing its kernels takes longer than running them, and its weights' way
longer still."""
SPREAD = (
    "fsdp=64",
    "fsdp=16,tensor=4",
    "fsdp=8,expert=8",
    "pipe=4,fsdp=16",
    "pipe=4,fsdp=16,zero=1,schedule=zb-h1",
)


@pytest.mark.parametrize("remat", ["none", "selective", "block"])
@pytest.mark.parametrize("stack", ["megatron-core", "torchtitan", "generic", "llm-foundry"])
@pytest.mark.parametrize("plan", SPREAD)
def test_more_tokens_never_shorten_a_step(plan, stack, remat):
    for model in (ROUTED, DENSE) if "expert" not in plan else (ROUTED,):
        for sizes in (("sequence", (256, 512, 2048)), ("batch", (64, 128, 512))):
            name, values = sizes
            jobs = [job_of(model=model, stack=stack, **{"batch": 64, "sequence": 512} | {name: one}) for one in values]
            times = [seconds(judged(plan, job, remat=remat)) for job in jobs]
            assert times == sorted(times), (model.name, name)
