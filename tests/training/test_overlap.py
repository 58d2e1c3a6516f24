"""What hides under what, read off the lines of a step: on a network so slow that nothing hides whole, what is exposed
of a move is what it takes less what it may hide under, and a little of what does hide (contention)."""

from dataclasses import replace

import msgspec
import pytest

from dragonscale.plan.ledger import LedgerLine
from dragonscale.training.cost.evaluation import Job, Verdict
from dragonscale.training.plan.stack import change
from tests.training.plans import DENSE, SPARSE, job_of, judged, seconds

ONE_PASS = {"batch": 64, "sequence": 1024}
"""One microbatch of one sequence on each of 64 chips."""


def slow(job: Job, times: float = 30.0) -> Job:
    """The same on a slower network."""
    levels = tuple(replace(level, bandwidth=level.bandwidth / times) for level in job.slice.chip.network.levels)
    chip = replace(job.slice.chip, network=replace(job.slice.chip.network, levels=levels))
    return replace(job, slice=replace(job.slice, chip=chip))


def overlapping(job: Job, **shares: float) -> Job:
    """The same with other shares that hide."""
    return replace(job, stack=change(job.stack, "overlap", **shares))


def blocks(verdict: Verdict, phases: tuple[str, ...], moved: bool) -> list[LedgerLine]:
    """Lines of the layers in some phases: moves of state (weights and gradients), or everything else."""
    state = ("weight", "gradient")
    return [
        line
        for line in verdict.ledger.lines
        if "block" in line.section and line.phase in phases and (line.carries in state) == moved
    ]


def total(lines: list[LedgerLine], name: str) -> float:
    return float(sum(line.total(name) for line in lines))


FORWARD, BACKWARD = ("forward",), ("recompute", "backward")


@pytest.mark.parametrize("contention", [0.0, 0.2])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("remat", ["none", "block"])
def test_gradients_hide_under_the_backward_pass_and_updated_weights_under_the_next_forward_pass(
    share: float, contention: float, remat: str
) -> None:
    job = overlapping(slow(job_of(model=DENSE, **ONE_PASS)), gradient=share, contention=contention)
    verdict = judged("fsdp=64,zero=1", job, remat=remat)
    forward, backward = (total(blocks(verdict, phases, False), "exposed_s") for phases in (FORWARD, BACKWARD))
    reduced = [line for line in verdict.ledger.lines if line.term == "gradient reduction"]
    found = {
        phase: total([line for line in reduced if line.phase == phase], "expected_s")
        for phase in ("gradient", "update")
    }
    assert found["gradient"] > backward
    assert found["update"] > forward
    hidden = share * (forward + backward)
    shown = sum(found.values()) - hidden
    assert total(reduced, "exposed_s") == pytest.approx(shown + contention * hidden)


@pytest.mark.parametrize("contention", [0.0, 0.2])
@pytest.mark.parametrize(("phases", "more"), [(FORWARD, ()), (BACKWARD, ("gradient",))])
def test_gathered_weights_and_scattered_gradients_hide_under_their_own_pass(
    phases: tuple[str, ...], more: tuple[str, ...], contention: float
) -> None:
    job = overlapping(slow(job_of(model=DENSE, **ONE_PASS)), weight=0.75, contention=contention)
    verdict = judged("fsdp=64,zero=3", job)
    span = total(blocks(verdict, phases, False), "exposed_s")
    moves = blocks(verdict, (*phases, *more), True)
    taken, hidden = total(moves, "expected_s"), 0.75 * span
    assert taken > span
    assert total(moves, "exposed_s") == pytest.approx(taken - hidden + contention * hidden)


@pytest.mark.parametrize("virtual", [1, 2])
def test_with_several_chunks_each_reduction_hides_under_the_others(virtual: int) -> None:
    """Of a rank's layers the gradients of one chunk travel while the other chunks of a round run: as many passes as
    ranks."""
    job = overlapping(slow(job_of(model=DENSE, batch=128, sequence=512), 300), gradient=1.0, contention=0.0)
    schedule = "interleaved" if virtual > 1 else "1f1b"
    verdict = judged("fsdp=16,pipe=4,zero=1", job, virtual=virtual, schedule=schedule, microbatch=2)
    often = 128 / 16 / 2
    once = total(blocks(verdict, (*FORWARD, *BACKWARD), False), "exposed_s") / often
    reduced = [line for line in verdict.ledger.lines if line.term == "gradient reduction"]
    hidden = total(reduced, "expected_s") - total(reduced, "exposed_s")
    assert hidden == pytest.approx(once * (4 if virtual > 1 else 1))


@pytest.mark.parametrize(("axis", "plan"), [("tensor", "data=8,tensor=8"), ("expert", "data=8,expert=8")])
def test_a_share_of_what_activations_travel_hides(axis: str, plan: str) -> None:
    model = SPARSE if axis == "expert" else DENSE
    job = overlapping(job_of(model=model), **{"tensor": 0.0, "expert": 0.0, axis: 0.4}, contention=0.25)
    lines = [line for line in judged(plan, job, zero=0).ledger.lines if axis in line.axes and line.section == "block"]
    moves = [line for line in lines if line.carries == "activation"]
    assert total(moves, "exposed_s") == pytest.approx(total(moves, "expected_s") * (1 - 0.4 * 0.75))


def test_a_ring_hides_under_attention_as_far_as_that_is_long() -> None:
    """On a slow network the attention to what is there covers hops; gathered keys hide under nothing by default."""
    slow_job = slow(job_of(model=DENSE, batch=64), 200)
    hidden = {}
    for how, contention in (("gather", 0.0), ("ring", 0.0), ("ring", 0.5)):
        verdict = judged("data=16,context=4", overlapping(slow_job, contention=contention), zero=0, context_by=how)
        lines = [line for line in verdict.ledger.lines if line.section == "block"]
        moves = [line for line in lines if "context" in line.axes and line.carries == "activation"]
        attention = total([line for line in lines if line.kind == "attention"], "expected_s")
        hidden[how, contention] = (total(moves, "expected_s") - total(moves, "exposed_s")) / attention
    assert hidden["gather", 0.0] == 0
    assert 0.7 <= hidden["ring", 0.0] <= 1 + 1e-9
    assert hidden["ring", 0.5] == pytest.approx(0.5 * hidden["ring", 0.0])


def test_both_ways_at_once_the_kernels_of_both_passes_hide_each_exchange_once() -> None:
    """DualPipe on a slow network: all kernels of a layer's two passes hide exchanges, none of them twice."""
    job = overlapping(slow(job_of(model=SPARSE), 100), expert=0.0, expert_two_way=1.0, tensor=0.0, contention=0.0)
    verdict = judged("expert=8,data=2,pipe=4,zero=1", job, schedule="dualpipe")
    lines = [line for line in verdict.ledger.lines if line.section == "block"]
    moves = [line for line in lines if line.term == "expert all-to-all"]
    kernels = total([line for line in lines if not line.moves and line.kind not in ("copy", "host")], "expected_s")
    hidden = total(moves, "expected_s") - total(moves, "exposed_s")
    assert hidden == pytest.approx(kernels)
    plain = judged("expert=8,data=2,pipe=4,zero=1", job, schedule="1f1b")
    moves = [line for line in plain.ledger.lines if line.term == "expert all-to-all"]
    assert total(moves, "expected_s") == pytest.approx(total(moves, "exposed_s"))


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_sends_of_the_warm_up_are_waited_for(share: float) -> None:
    """Each of the other stages' first hand-over, there and back, shows; of all later ones what the stack does not
    hide."""
    job = overlapping(job_of(model=DENSE), send=share)
    verdict = judged("data=4,tensor=4,pipe=4,zero=0", job)
    (line,) = (line for line in verdict.ledger.lines if line.term == "pipeline sends")
    crossings = 2 * 64  # of 64 microbatches, there and back
    assert line.times == crossings
    one = line.expected_s
    assert 1 <= one / line.bound_s < 1.5
    assert line.total("exposed_s") == pytest.approx(2 * 3 * one + (crossings - 2 * 3) * one * (1 - share))


def test_saved_activations_go_to_the_host_under_one_pass_and_come_back_under_the_other() -> None:
    """A host link so slow that nothing hides whole: each way shows but for the pass above it."""
    job = job_of(model=DENSE, **ONE_PASS)
    link = 2e9
    chip = job.slice.chip.with_facts(pcie=link)
    job = replace(job, slice=replace(job.slice, chip=chip))
    verdict = judged("fsdp=64,zero=3,remat=offload", job)
    (line,) = (line for line in verdict.ledger.lines if line.term == "host offload")
    kernels = {
        phases: total(
            [line for line in blocks(verdict, phases, False) if line.kind not in ("copy", "host", "host transfer")],
            "exposed_s",
        )
        for phases in (FORWARD, BACKWARD)
    }
    assert line.total("exposed_s") == pytest.approx(line.total("expected_s") - sum(kernels.values()))
    saved = DENSE.n_layers * 1024 * 4096 * 2  # what each layer reads of one sequence, in bf16
    assert line.total("expected_s") == pytest.approx(2 * saved / link)


def test_a_wider_model_waits_for_the_stage_with_its_head() -> None:
    """Every microbatch passes the longest stage: the head's stage is longer by the head, in every one of them."""
    job = job_of(model=DENSE)
    plan = "fsdp=2,tensor=4,pipe=8,zero=1"
    stack = msgspec.structs.replace(job.stack, balanced=False)
    verdict = judged(plan, replace(job, stack=stack))
    alone = judged("fsdp=16,tensor=4,zero=1", job)
    head = [line for line in alone.ledger.lines if line.section == "head" and line.phase in (*FORWARD, *BACKWARD)]
    each = total(head, "exposed_s") / (256 / 16)
    (uneven,) = (line for line in verdict.ledger.lines if line.term == "uneven stages")
    assert uneven.exposed_s == pytest.approx(each * 256 / 2, rel=1e-6)
    folded = judged(plan, replace(job, stack=stack), schedule="zbv")
    (more,) = (line for line in folded.ledger.lines if line.term == "uneven stages")
    assert more.exposed_s > uneven.exposed_s  # the first rank has the embedding beside the head
    assert seconds(verdict) > uneven.exposed_s


def test_a_chunk_hands_over_as_much_as_a_stage() -> None:
    """Interleaved, each message is as long, and there are as many more as chunks."""
    job = job_of(model=DENSE)
    sends = [
        line
        for virtual, schedule in ((1, "1f1b"), (2, "interleaved"))
        for line in judged("data=4,tensor=4,pipe=4,zero=0", job, virtual=virtual, schedule=schedule).ledger.lines
        if line.term == "pipeline sends"
    ]
    assert sends[1].expected_s == pytest.approx(sends[0].expected_s)
    assert sends[1].times == 2 * sends[0].times


def test_weights_kept_whole_under_a_pipeline_hide_once_under_all_microbatches() -> None:
    job = overlapping(slow(job_of(model=DENSE, batch=64, sequence=512), 1000), weight=0.75, contention=0.0)
    job = replace(job, stack=change(job.stack, "memory", pipe_whole=True))
    verdict = judged("fsdp=16,pipe=4,zero=3", job)
    span = total(blocks(verdict, FORWARD, False), "exposed_s")  # of all four microbatches
    moves = blocks(verdict, FORWARD, True)
    taken = total(moves, "expected_s")
    assert taken > span
    assert total(moves, "exposed_s") == pytest.approx(taken - 0.75 * span)


def test_where_the_host_is_slower_a_pass_takes_as_long_as_issuing_it() -> None:
    """Whatever its kernels take; and a recomputed block is issued once more."""
    seconds_of = {}
    for sequence in (256, 512):
        job = job_of(model=DENSE, batch=64, sequence=sequence)
        job = replace(job, stack=change(job.stack, "host", kernel_s=1e-2))
        for remat in ("none", "block"):
            verdict = judged("data=64,zero=0", job, remat=remat)
            for phases in (FORWARD, BACKWARD):
                seconds_of[sequence, remat, phases] = total(blocks(verdict, phases, False), "exposed_s")
    forward = seconds_of[256, "none", FORWARD]
    assert forward == pytest.approx(seconds_of[512, "none", FORWARD])
    assert seconds_of[512, "none", BACKWARD] == pytest.approx(seconds_of[256, "none", BACKWARD])
    again = seconds_of[256, "block", BACKWARD] - seconds_of[256, "none", BACKWARD]
    assert 0.8 * forward < again <= forward  # its kernels, without the messages of a pass
