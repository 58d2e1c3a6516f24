"""Context parallelism is never free, and packed documents cost what their masks leave."""

import itertools
from dataclasses import replace

import numpy
import pytest

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.train_question import read_question
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.models.flops import Workload, key_pairs
from dragonscale.models.program import Section
from dragonscale.plan.gradients import read_training
from dragonscale.plan.rules import training_rules
from dragonscale.training.cost.attention_lines import MERGED_BYTES, MERGED_PART
from dragonscale.training.cost.overlap import LayerRun, SectionSums, forward_pass
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change, load_stack
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, misfits
from tests.training.plans import DENSE, SPARSE, job_of, judged, seconds, sent, term

WAYS = ("gather", "ring", "ulysses")
JOBS = (
    (DENSE, "h100:8", "generic"),
    (DENSE, "h100:64", "torchtitan"),
    (DENSE, "v5p:4x4x4", "maxtext"),
    (SPARSE, "b200:16", "megatron-core"),
    (load_model("gemma2-9b"), "a100:16", "megatron-core"),
)
ATTENTION = "attention (QK, softmax, PV)"


def split(job, context: int, by: str, **changes) -> Plan:
    """The same tokens of a chip in every pass, whatever part of a sequence they are."""
    return Plan(fsdp=job.slice.chips // context, context=context, microbatch=context, context_by=by, **changes)


@pytest.mark.parametrize(("model", "on", "stack"), JOBS, ids=lambda one: getattr(one, "name", one))
@pytest.mark.parametrize("by", WAYS)
def test_context_is_never_free(model, on, stack, by):
    """With as many chips and tokens on each, a longer split of short sequences is slower than more of the batch on its
    own chip."""
    for sequence in (2048, 8192):
        job = job_of(on, model, 256, sequence, stack)
        plans = [split(job, context, by, zero=1) for context in (1, 2, 4, 8)]
        times = [seconds(judged(plan, job)) for plan in plans if not misfits(job, plan)]
        # Where the host is slower than the chip, more ways of a gather add nothing to issue: equal, but for rounding.
        assert all(one <= more * (1 + 1e-12) for one, more in itertools.pairwise(times))
        assert times[0] * 1.001 < times[-1]


def test_eight_chips_take_more_of_the_batch_before_more_of_the_sequence():
    job = job_of("h100:8", load_model("llama3-8b"), 128, 8192)
    plain = seconds(judged("fsdp=8", job))
    for microbatch in (1, 2, 4, 8):
        for by in WAYS:
            assert plain < seconds(judged("context=8", job, microbatch=microbatch, context_by=by))
    assert search(job, Space(remat=("none", "block")), count=1).best[0].plan in (Plan(fsdp=8), Plan(fsdp=8, zero=2))


@pytest.mark.parametrize("remat", ["none", "block"])
@pytest.mark.parametrize("on", ["h100:8", "h100:64"])
def test_a_ring_hides_no_more_than_its_kernels_last(on, remat):
    for sequence in (1024, 8192, 65536):
        job = job_of(on, DENSE, 256, sequence)
        ring = judged(split(job, 8, "ring", remat=remat), job)
        moved = ring.ledger.by("term", "expected_s")["context collectives"]
        hidden = (moved - term(ring, "context collectives")) / (1 - job.stack.overlap.contention)
        kernels = ring.ledger.total("exposed_s", lambda line: line.kind == "attention")
        assert 0 <= hidden <= kernels * (1 + 1e-9)
        assert term(ring, "context collectives") >= job.stack.overlap.contention * hidden * (1 - 1e-9)


def test_what_hides_under_a_ring_is_bounded_by_its_cover():
    stack = load_stack("generic")
    for moved, cover, shown in ((3.0, 2.0, 1.2), (2.0, 3.0, 0.2), (2.0, 0.0, 2.0)):
        sums = SectionSums({("context", "forward"): moved, ("kernels", "forward"): 5.0}, {"forward": cover})
        assert forward_pass(LayerRun(sums, stack, "none", ring=True)).moves["context"] == (moved, pytest.approx(shown))
    gathers = change(stack, "overlap", context=0.5)
    assert forward_pass(LayerRun(sums, gathers, "none", ring=False)).moves["context"] == (2.0, 2.0)


def test_a_hop_is_a_kernel_that_is_launched_and_merged():
    job = job_of("h100:8", DENSE, 64, 8192, "megatron-core")
    lines = [line for line in judged(split(job, 4, "ring"), job).ledger.lines if line.kind == "attention"]
    merged = {(line.phase, line.what): line for line in lines if line.what.endswith("merged")}
    tokens, width = 4 * 8192 / 4, 32 * 128
    kv = 2 * 8 * 128
    forward, backward = (3 * MERGED_PART * MERGED_BYTES[phase] * tokens for phase in ("forward", "dgrad"))
    assert merged["forward", "Q merged"].hbm_bytes == pytest.approx(forward * width)
    assert merged["backward", "dQ merged"].hbm_bytes == pytest.approx(backward * (width + kv))
    slow = replace(job, stack=change(job.stack, "host", kernel_s=1e-3))
    waits = [term(judged(split(job, context, "ring"), slow), "host") for context in (1, 2, 4, 8)]
    assert waits == sorted(waits)
    assert waits[3] > 1.5 * waits[1]


def test_every_way_multiplies_the_same():
    job = job_of("h100:64", DENSE, 512, 8192)
    made = [judged(split(job, 8, by), job).flops for by in WAYS]
    assert made == pytest.approx([judged("fsdp=64", job).flops] * 3)


def test_a_gather_that_nothing_hides_shows():
    job = job_of("h100:8", DENSE, 64, 8192)
    gather = judged(split(job, 8, "gather"), job)
    assert term(gather, "context collectives") == pytest.approx(
        gather.ledger.by("term", "expected_s")["context collectives"]
    )
    hiding = replace(job, stack=change(job.stack, "overlap", context=1.0))
    assert term(judged(split(job, 8, "gather"), hiding), "context collectives") < term(gather, "context collectives")


def test_ulysses_moves_queries_keys_values_and_results_once_each_way():
    moves = read_training(DENSE.program().sections[1], training_rules(zero=0, context_by="ulysses")).moves
    over = [(move.phase, move.step.before.name, move.step.kind) for move in moves if "context" in move.step.axes]
    trades = [one for one in over if one[2] == "all_to_all"]
    assert [name for phase, name, _ in trades if phase == "forward"] == ["Q", "K", "V", "O"]
    assert [name for phase, name, _ in trades if phase == "backward"] == ["dO", "dQ", "dK", "dV"]


def test_ulysses_copies_kv_heads_where_there_are_fewer():
    job = job_of("h100:64", DENSE, 512, 8192)
    few, many = (judged(split(job, ways, "ulysses"), job) for ways in (8, 16))
    line = {
        ways: {one.what: one for one in verdict.ledger.lines if one.kind == "all_to_all"}
        for ways, verdict in ((8, few), (16, many))
    }
    assert line[8]["K"].wire_bytes / line[8]["Q"].wire_bytes == pytest.approx(8 / 32)
    assert line[16]["K"].wire_bytes / line[16]["Q"].wire_bytes == pytest.approx(16 / 32)
    assert sent(few, "context collectives") > 0
    assert few.flops == pytest.approx(many.flops)


def test_ulysses_needs_heads_for_every_chip():
    job = job_of("h100:64", DENSE, 512, 8192)
    said = misfits(job, Plan(context=64, context_by="ulysses"))
    assert said == [
        "Ulysses deals heads to context=64 x tensor=1 chips, and the model's 32 query heads do not divide by that"
    ]
    assert not misfits(job, Plan(fsdp=4, context=8, tensor=2, context_by="ulysses"))
    found = search(job, Space(context_by=("ulysses",), remat=("block",), fixed={"data": 1, "pipe": 1}), count=50)
    assert found.best
    assert all(32 % (one.plan.context * one.plan.tensor) == 0 for one in found.best)
    assert found.best[0].seconds == pytest.approx(seconds(judged(found.best[0].plan, job)))


def test_a_window_is_attended_to_once():
    """Round a ring, hops beyond the window find nothing to do: no more than launching and merging is added."""
    model = load_model("gemma2-9b")
    job = job_of("h100:8", model, 64, 32768)
    spans = [line for line in judged(split(job, 8, "ring"), job).ledger.lines if line.kind == "attention"]
    whole = [line for line in judged("fsdp=8", job).ledger.lines if line.kind == "attention"]
    for kind in {line.section for line in whole}:
        mine, own = (sum(one.total("exposed_s") for one in some if one.section == kind) for some in (spans, whole))
        assert own < mine < 2 * own


def test_documents_do_not_see_each_other():
    section = Section("block", (), {})
    whole = key_pairs(section, Workload(1, 8192, 8192))
    assert key_pairs(section, Workload(1, 8192, 8192, documents=2048)) == whole / 4
    assert key_pairs(section, Workload(1, 8192, 8192, documents=9000)) == whole
    windowed = Section("block", (), {}, span=512)
    assert key_pairs(windowed, Workload(1, 8192, 8192, documents=2048)) == 4 * key_pairs(
        windowed, Workload(1, 2048, 2048)
    )


@pytest.mark.parametrize(
    "plan", ["fsdp=8", "fsdp=2,context=4,ring=true", "fsdp=2,context=4", "fsdp=4,context=2,context_by=ulysses"]
)
def test_shorter_documents_are_faster_and_flops_follow(plan):
    job = job_of("h100:8", DENSE, 64, 8192)
    packed = [judged(plan, replace(job, documents=length)) for length in (None, 4096, 1024, 256)]
    times = [seconds(one) for one in packed]
    assert times == sorted(times, reverse=True)
    assert packed[2].flops * 8 == pytest.approx(replace(job, documents=1024).model_flops)
    scores = [one.ledger.total("flops", lambda line: line.kind == "attention") for one in packed]
    assert scores[2] == pytest.approx(scores[0] / 8)
    moved = [sent(one, "context collectives") for one in packed]
    assert len(set(moved)) == 1  # keys and values travel whole


def test_a_search_with_documents_gives_what_a_plan_judged_alone_gives():
    job = replace(job_of("h100:8", DENSE, 64, 8192), documents=1500)
    found = search(job, Space(remat=("block",)), count=5)
    alone = [seconds(judged(one.plan, job)) for one in found.best]
    assert [one.seconds for one in found.best] == pytest.approx(alone)


def test_documents_are_read_at_the_edge():
    asked = TrainQuestion(model="llama3-8b", on="h100:8", batch="64seq", seq="8192", documents="2048")
    assert read_question(asked).job.on_slice().documents == 2048
    assert read_question(replace(asked, documents="8192")).job.on_slice().documents is None
    with pytest.raises(InputError, match="at least one token"):
        read_question(replace(asked, documents="0"))
    with pytest.raises(InputError, match="is not timed with masked documents yet"):
        read_question(replace(asked, stack="dragonscale"))


def test_costs_are_the_same_for_one_plan_and_for_many():
    job = job_of("h100:64", DENSE, 512, 8192)
    plans = [split(job, context, "ring") for context in (2, 4, 8)]
    from dragonscale.training.cost.evaluation import degrees_of, judge

    together = numpy.ravel(judge(job, plans[0], degrees_of(plans)).seconds)
    assert together.tolist() == pytest.approx([seconds(judged(plan, job)) for plan in plans])


@pytest.mark.parametrize("on", ["v6e:4x4", "v5e:8x8", "v5p:4x4x8"])
def test_an_axis_cut_in_two_has_no_more_links(on):
    """State lies over `fsdp` and `context` together: on a torus that is the same chips, however many ways each has."""
    job = job_of(on, DENSE, 512, 2048, "maxtext")
    moved = [
        judged(split(job, context, "gather"), job).ledger.by("term", "expected_s")["fsdp collectives"]
        for context in (1, 2, 4)
    ]
    assert moved == pytest.approx([moved[0]] * 3, rel=0.02)
