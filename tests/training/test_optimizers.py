"""Optimizers: what they keep, and what Muon does beside."""

import pytest

from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.cost.muon import ITERATIONS
from dragonscale.training.plan.optimizers import muon_weights
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space
from tests.training.plans import DENSE, SPARSE, held, job_of, judged, seconds

PLANS = ("fsdp=64", "fsdp=8,tensor=8,zero=1", "data=64,zero=0", "fsdp=4,tensor=2,pipe=8,zero=1")


def muon_lines(verdict, kind: str):
    return [line for line in verdict.ledger.lines if line.phase == "update" and line.kind == kind]


@pytest.mark.parametrize("plan", PLANS)
def test_muon_computes_more_than_adam_and_keeps_less(plan):
    adam, muon = judged(plan), judged(plan, optimizer="muon")
    assert muon.flops > adam.flops
    assert seconds(muon) > seconds(adam)
    assert held(muon) < held(adam)
    assert muon.lower >= adam.lower


@pytest.mark.parametrize("plan", PLANS)
def test_eight_bits_hold_less_than_bf16_and_that_less_than_fp32(plan):
    eight, half, whole = (judged(plan, optimizer=name) for name in ("adam8", "adam-bf16", "adam"))
    assert held(eight) < held(half) < held(whole)
    assert seconds(eight) < seconds(whole)


def test_one_chip_orthogonalizes_every_matrix_of_every_layer():
    muon = judged("data=64,zero=0", optimizer="muon")
    section = next(one for one in DENSE.program().sections if "block" in one.name)
    wanted = 0.0
    for weight in muon_weights(section):
        m, n = sorted((_size(section, weight.rows), _size(section, weight.columns)))
        wanted += DENSE.n_layers * ITERATIONS * (4 * m**2 * n + 2 * m**3)
    assert sum(line.total("flops") for line in muon_lines(muon, "matmul")) == pytest.approx(wanted)
    assert not muon_lines(muon, "all_to_all")  # whole matrices are there


def _size(section, names: tuple[str, ...]) -> int:
    product = 1
    for name in names:
        product *= section.dims[name]
    return product


def test_chips_that_split_a_matrix_share_the_work_and_send_it_both_ways():
    alone, apart = judged("data=64,zero=0", optimizer="muon"), judged("data=8,fsdp=8", optimizer="muon")
    flops = [sum(line.total("flops") for line in muon_lines(one, "matmul")) for one in (alone, apart)]
    assert flops[1] == pytest.approx(flops[0] / 8)
    sent = sum(line.total("wire_bytes") for line in muon_lines(apart, "all_to_all"))
    section = next(one for one in DENSE.program().sections if "block" in one.name)
    elements = DENSE.n_layers * sum(_size(section, (*weight.rows, *weight.columns)) for weight in muon_weights(section))
    assert sent == pytest.approx(
        2 * 2 * elements / 8 * 7 / 8
    )  # there and back, bf16, this chip's share, 7 of 8 pieces away


def test_no_chip_does_less_than_one_whole_matrix():
    few = judged("fsdp=64,tensor=1", job_of(where="h100:64", batch=64), optimizer="muon")
    flops = sum(line.total("flops") for line in muon_lines(few, "matmul"))
    section = next(one for one in DENSE.program().sections if "block" in one.name)
    sizes = [sorted((_size(section, weight.rows), _size(section, weight.columns))) for weight in muon_weights(section)]
    assert flops >= ITERATIONS * max(4 * m**2 * n + 2 * m**3 for m, n in sizes) * (1 - 1e-9)


def test_embedding_head_and_vectors_are_adams():
    names = {weight.array.name for section in SPARSE.program().sections for weight in muon_weights(section)}
    assert {"Wq", "Wo"} <= names
    assert not any(name.startswith("w") for name in names)
    assert not list(muon_weights(SPARSE.program().sections[0]))
    assert not list(muon_weights(SPARSE.program().sections[-1]))


@pytest.mark.parametrize("model", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_a_search_for_muon_judges_as_one_plan_alone(model):
    job = job_of(model=model)
    found = search(job, parse_space("optimizer=muon,microbatch=1,remat=block,context=1"), count=3)
    assert found.best
    for one in found.best:
        assert one.plan.optimizer == "muon"
        assert one.seconds == pytest.approx(seconds(judge_one(job, one.plan)), rel=1e-9)
        assert one.hbm_bytes == pytest.approx(held(judge_one(job, one.plan)), rel=1e-9)


def test_muon_of_our_own_program_deals_out_whole_layers():
    job = job_of(stack="dragonscale")
    lines = muon_lines(judge_one(job, parse_plan("fsdp=64,optimizer=muon")), "matmul")
    sizes = [line.flops / (ITERATIONS * 2) for line in lines]
    assert all(size == int(size) for size in sizes)
