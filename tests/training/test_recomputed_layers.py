"""Some layers of a plan recomputed, or what they save in the host's memory: between none and all, as many as fit."""

from dataclasses import replace

import pytest

from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.runtime.train.settings import read_order
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.cost.formulas import formula_verdict
from dragonscale.training.plan.plan import layers_of, plan_of_words, short_plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.headroom import room_bytes
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, parse_space
from tests.training.plans import SPARSE, held, job_of, judged, seconds

RUN = {"batch": 8, "seq": 4096, "steps": 1, "data": "tokens.bin"}
MEGATRON = job_of(stack="megatron-core")
OWN = job_of(stack="dragonscale")


def flops(verdict, phase: str = "recompute") -> float:
    return verdict.ledger.total("flops", lambda line: line.phase == phase)


@pytest.mark.parametrize(
    "text", ["fsdp16 tp4 z3 block:5", "tp4 pp4 fsdp4 z1 v2 block:2", "fsdp64 z3 none activations:9"]
)
def test_layers_are_written_and_read(text):
    plan = parse_plan(text)
    assert plan_of_words(str(plan)) == plan == plan_of_words(short_plan(plan))


@pytest.mark.parametrize("word", ["block:0", "block:", "block:N", "block:-1", "block:x", "mlp:3", "activations"])
def test_what_is_no_number_of_layers_is_refused(word):
    with pytest.raises(InputError):
        parse_plan(f"fsdp64 remat={word}")


@pytest.mark.parametrize("stack", ["megatron-core", "generic", "torchtitan"])
def test_time_and_bytes_lie_on_the_line_between_none_and_all(stack):
    job = job_of(stack=stack)
    none, some, more, every, block = (
        judged(f"fsdp16 tp4 z3 {remat}", job) for remat in ("none", "block:8", "block:16", "block:32", "block")
    )
    assert (held(every), seconds(every)) == pytest.approx((held(block), seconds(block)), rel=1e-12)
    assert seconds(some) == pytest.approx(0.75 * seconds(none) + 0.25 * seconds(block), rel=1e-6)
    assert held(none) - held(some) == pytest.approx(held(some) - held(more), rel=1e-9)
    assert flops(some) == pytest.approx(flops(block) / 4)
    assert held(more) > held(block)


def test_layers_are_counted_in_every_chunk():
    """As Megatron counts them: 32 layers in 4 ranks of 2 chunks have 4 in each."""
    one, two, block = (judged(f"pp4 fsdp4 tp4 z1 {words}", MEGATRON) for words in ("block:1", "v2 block:1", "v2 block"))
    assert flops(one) == pytest.approx(flops(block) / 8)
    assert flops(two) == pytest.approx(flops(block) / 4)


def test_exposed_seconds_add_up_to_the_step():
    job = job_of(model=SPARSE, stack="megatron-core")
    verdict = judged("fsdp4 ep8 tp2 z1 block:5", job)
    assert verdict.ledger.total("exposed_s") == pytest.approx(seconds(verdict))
    lines = {line.term for line in verdict.ledger.lines if line.phase == "recompute"}
    assert {"recompute", "expert all-to-all", "tensor collectives"} <= lines


def test_a_search_recomputes_as_few_layers_as_leave_room():
    job = make_job(load_model("llama3-70b"), parse_slice("h100:64"), 128, 8192, "megatron-core")
    mesh = Space(fixed={"fsdp": 16, "tensor": 4, "pipe": 1, "microbatch": 2}, zero=(3,), named=frozenset({"zero"}))
    best = search(job, mesh, 1).best[0]
    kind, _, layers = best.plan.remat.partition(":")
    assert kind == "block"
    verdict = judge_one(job, best.plan)
    assert first_number(verdict.seconds) == pytest.approx(best.seconds, rel=1e-9)
    assert first_number(verdict.hbm_bytes) == pytest.approx(best.hbm_bytes, rel=1e-9)
    fewer = judge_one(job, replace(best.plan, remat=f"block:{int(layers) - 1}"))
    assert best.hbm_bytes <= 0.92 * job.slice.chip.visible < first_number(fewer.hbm_bytes)
    pinned = search(job, replace(mesh, remat=(best.plan.remat,)), 1).best[0]
    assert (pinned.plan, pinned.seconds, pinned.hbm_bytes) == (best.plan, best.seconds, best.hbm_bytes)


def test_one_mesh_that_needs_no_recompute_is_searched():
    job = job_of(where="h100:8", batch=8, stack="megatron-core")
    mesh = Space(fixed={"fsdp": 8, "microbatch": 1}, zero=(3,), named=frozenset({"zero"}))
    assert [one.plan.remat for one in search(job, mesh, 1).best] == ["none"]


def test_a_pinned_number_of_layers_is_searched_as_it_is_judged():
    job = job_of(where="h100:16", batch=64, stack="megatron-core")
    found = search(job, parse_space("remat=block:3,tensor=2"), 4)
    assert found.best
    for one in found.best:
        assert one.plan.remat == "block:3"
        verdict = judge_one(job, one.plan)
        assert (one.seconds, one.hbm_bytes) == pytest.approx((seconds(verdict), held(verdict)), rel=1e-9)


@pytest.mark.parametrize(
    ("stack", "plan", "clause"),
    [
        ("torchtitan", "fsdp64 block:5", "cannot run remat=block:5, only none, selective, block"),
        ("megatron-core", "fsdp64 z3 activations:8 block", "recomputes nothing beside offload=activations:8"),
        ("megatron-core", "pp4 fsdp16 z1 activations:8", "refuses cpu_offloading with a pipeline"),
        ("megatron-core", "fsdp64 z3 activations:32", "take offload=activations:31"),
        ("maxtext", "fsdp64 activations:8", "cannot run offload=activations:8"),
    ],
)
def test_what_a_stack_does_not_have_is_refused(stack, plan, clause):
    assert any(clause in one for one in illegal(job_of(stack=stack), parse_plan(plan)))


OFFLOADS = [("gb200:64", "llama3-70b", True), ("h200:64", "llama3-70b", False)]


@pytest.mark.parametrize(("on", "model", "sends"), OFFLOADS)
def test_a_search_offloads_over_a_fast_link_alone(on, model, sends):
    """NVIDIA's plan of Llama 3 70B on 64 GB200 is fsdp=64 with what 20 layers save in Grace's memory."""
    job = make_job(load_model(model), parse_slice(on), 128, 8192, "megatron-core")
    found = search(job, Space(fixed={"fsdp": 64, "microbatch": 1}, zero=(3,), named=frozenset({"zero"})), 1).best[0]
    assert layers_of(found.plan.offload) in (range(15, 21) if sends else (0,))
    assert found.plan.remat == "none" if sends else found.plan.remat.startswith("block:")
    verdict = judge_one(job, found.plan)
    assert (found.seconds, found.hbm_bytes) == pytest.approx((seconds(verdict), held(verdict)), rel=1e-9)
    assert found.hbm_bytes <= room_bytes(job)
    assert not illegal(job, found.plan)


@pytest.mark.parametrize(
    ("words", "clause"),
    [
        ("pipe=2,offload=activations:5", "cannot run offload=activations:5"),
        ("pipe=2,remat=offload", "cannot run remat=offload, only none, selective, matmuls, block, modules"),
        ("pipe=2,remat=block:5", "of a stage all layers are recomputed alike.; take remat=block"),
    ],
)
def test_our_own_program_says_what_it_does_not_run(words, clause):
    with pytest.raises(InputError, match=clause):
        read_order(f"fsdp=8,{words}", model="llama3-8b", on="h100:8", changes=RUN)
    assert read_order("fsdp=8,remat=block:5", model="llama3-8b", on="h100:8", changes=RUN).plan.remat == "block:5"


def test_our_own_program_keeps_and_repeats_by_the_share_of_its_layers():
    none, some, all_of = (judged(f"fsdp64 z3 {words}", OWN) for words in ("none", "block:8", "block"))
    for quantity in (held, lambda verdict: float(verdict.flops)):
        assert quantity(some) == pytest.approx((3 * quantity(none) + quantity(all_of)) / 4, rel=1e-6)


@pytest.mark.parametrize("words", ["z1 block:5", "z3 activations:9"])
def test_formulas_are_the_numbers(words):
    plan = parse_plan(f"fsdp16 tp4 {words}")
    verdict, _ = formula_verdict(MEGATRON, plan)
    assert float(verdict.hbm_bytes) == pytest.approx(held(judged(plan, MEGATRON)))
    assert float(verdict.compute_s) == pytest.approx(first_number(judged(plan, MEGATRON).compute_s))


def test_offloaded_layers_lie_with_the_host():
    job = job_of("gb200:64", stack="megatron-core")
    none, some, more = (judged(f"fsdp64 z3 mb4 {words}", job) for words in ("", "activations:8", "activations:16"))
    assert held(some) - held(more) == pytest.approx(first_number(more.ledger.host_bytes) / 2 * 1.02, rel=0.02)
    assert first_number(more.ledger.host_bytes) == pytest.approx(2 * first_number(some.ledger.host_bytes))
    assert none.ledger.host_bytes == 0
    assert seconds(none) == pytest.approx(seconds(more))  # NVLink-C2C is faster than the layers


def test_a_slow_link_shows():
    """Transfers of the layers that go are spread over the passes of all."""
    job = job_of("h100:64", stack="megatron-core")
    none, some, most = (judged(f"fsdp64 z3 {words}", job) for words in ("", "activations:4", "activations:31"))
    assert seconds(some) == pytest.approx(seconds(none))
    assert seconds(most) > 1.05 * seconds(none)
    waits = [line for line in most.ledger.lines if line.term == "host offload" and line.section == "block"]
    assert waits
    assert seconds(most) - seconds(none) == pytest.approx(sum(line.times * line.exposed_s for line in waits), rel=0.05)


def test_what_is_recommended_does_not_hang_on_how_many_are_shown():
    job = make_job(load_model("llama3-70b"), parse_slice("gb200:64"), 128, 8192, "megatron-core")
    space = Space(fixed={"fsdp": 64}, schedule=("1f1b",))
    one, few = (search(job, space, count).best for count in (1, 6))
    assert one[0] == few[0]
    assert len(one) == 1
    assert layers_of(one[0].plan.offload)


@pytest.mark.parametrize("asked", ["offload=optimizer", "offload=none"])
def test_an_offload_that_is_asked_for_stays(asked):
    job = make_job(load_model("llama3-70b"), parse_slice("gb200:64"), 128, 8192, "megatron-core")
    best = search(job, parse_space(f"fsdp=64,zero=3,{asked}"), 1).best[0]
    assert f"offload={best.plan.offload}" == asked
