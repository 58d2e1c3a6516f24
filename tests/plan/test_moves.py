"""Bytes that a chip sends in a step, held against formulas written down by hand: weights and gradients by the stage
of ZeRO, activations over `tensor`, `context`, `expert` and `pipe`. The formulas know of no layouts: they count
tensors, rings and microbatches."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from dragonscale.models import simple
from dragonscale.plan.ledger import LedgerLine
from dragonscale.training.cost.evaluation import Job, Verdict
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import change
from tests.training.plans import job_of, judged

D, F, HEADS, KV, SIZE, LAYERS, VOCAB = 1024, 4096, 16, 4, 64, 8, 32000
EXPERTS, PICKS, EXPERT_F = 32, 4, 512
MODEL = simple("plain", d_model=D, d_ff=F, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=KV, vocab=VOCAB)
ROUTED = simple(
    "routed",
    d_model=D,
    d_ff=EXPERT_F,
    n_layers=LAYERS,
    n_heads=HEADS,
    n_kv_heads=KV,
    vocab=VOCAB,
    n_experts=EXPERTS,
    experts_per_token=PICKS,
)
ATTENTION = 2 * D * HEADS * SIZE + 2 * D * KV * SIZE
WEIGHTS = ATTENTION + 3 * D * F
"""Elements of a layer's matrices."""
BATCH, SEQUENCE, CHIPS = 256, 4096, 64
WIDE, NARROW = 4, 2
"""Bytes of a gradient on the wire, and of a weight or an activation."""


def ring(size: int) -> float:
    """The part of an array that each chip of a ring sends to gather it, or to scatter its sum."""
    return (size - 1) / size


def block_bytes(verdict: Verdict, chosen: Callable[[LedgerLine], bool]) -> float:
    """Bytes that some moves of all layers send in a step; what rides along in other messages is left out."""
    lines = [line for line in verdict.ledger.lines if line.section == "block" and line.moves]
    return sum(line.total("wire_bytes") for line in lines if line.carries != "statistic" and chosen(line))


def state_bytes(verdict: Verdict) -> float:
    """Those of weights and their gradients."""
    return block_bytes(verdict, lambda line: line.carries in ("weight", "gradient"))


def over(verdict: Verdict, axis: str, *phases: str) -> float:
    """Those of activations over an axis."""
    return block_bytes(
        verdict, lambda line: line.carries == "activation" and axis in line.axes and line.phase in phases
    )


@pytest.mark.parametrize("plan", ["fsdp=64", "fsdp=16,context=4", "fsdp=4,context=2,expert=8"])
@pytest.mark.parametrize("microbatch", [1, 2, 4])
@pytest.mark.parametrize(
    ("zero", "once", "every"),
    [
        (0, 2 * WIDE, 0),  # an AllReduce once a step
        (1, WIDE + NARROW, 0),  # scattered once, and the updated weights gathered
        (2, NARROW, WIDE),  # scattered with every microbatch
        (3, 0, WIDE + 2 * NARROW),  # and weights gathered for either pass
    ],
)
def test_each_stage_of_zero_sends_what_it_says(zero: int, once: int, every: int, microbatch: int, plan: str) -> None:
    """Every axis that splits tokens shards the state of a dense model."""
    microbatches = BATCH // (parse_plan(plan).replicas * microbatch)
    verdict = judged(plan, job_of(model=MODEL), zero=zero, microbatch=microbatch)
    assert state_bytes(verdict) == pytest.approx(LAYERS * WEIGHTS * ring(CHIPS) * (once + every * microbatches))


@pytest.mark.parametrize("zero", [1, 3])
def test_replicas_add_up_their_shards_once_a_step(zero: int) -> None:
    verdict = judged("data=4,fsdp=16", job_of(model=MODEL), zero=zero)
    summed = block_bytes(verdict, lambda line: line.kind == "all_reduce")
    assert summed == pytest.approx(LAYERS * WEIGHTS / 16 * WIDE * 2 * ring(4))
    scattered = block_bytes(verdict, lambda line: line.kind == "reduce_scatter")
    assert scattered == pytest.approx(LAYERS * WEIGHTS * WIDE * ring(16) * (4 if zero == 3 else 1))


def test_gradients_of_experts_are_summed_over_chips_that_hold_the_same_ones() -> None:
    """Of 64 chips 8 hold the same experts; attention's weights and the router's lie on all of them."""
    verdict = judged("data=8,expert=8", job_of(model=ROUTED), zero=0)
    experts = 3 * D * EXPERT_F * EXPERTS / 8
    alike = (ATTENTION + D * EXPERTS) * ring(CHIPS) + experts * ring(8)
    assert state_bytes(verdict) == pytest.approx(LAYERS * alike * 2 * WIDE)


@pytest.mark.parametrize(("sequence", "forward", "backward"), [(True, 4, 6), (False, 4, 4)])
def test_tensor_parallel_layers_move_their_residuals(sequence: bool, forward: int, backward: int) -> None:
    """Before and after attention and the MLP a gather and a scatter; backward the same, and inputs are gathered once
    more for the gradients of weights. Without sequence parallelism an AllReduce, which sends as much as both, takes
    their places."""
    verdict = judged("data=8,tensor=8", job_of(model=MODEL), sequence=sequence, zero=0)
    residual = BATCH / 8 * SEQUENCE * D * NARROW * ring(8)
    assert over(verdict, "tensor", "forward") == pytest.approx(LAYERS * forward * residual)
    assert over(verdict, "tensor", "backward") == pytest.approx(LAYERS * backward * residual)


def test_a_recomputed_layer_moves_its_forward_residuals_again() -> None:
    job = job_of(model=MODEL)
    block, none = (judged("data=8,tensor=8", job, remat=remat, zero=0) for remat in ("block", "none"))
    assert over(block, "tensor", "recompute") == pytest.approx(over(block, "tensor", "forward"))
    assert over(none, "tensor", "recompute") == 0


def test_a_compiler_runs_only_those_moves_again_that_its_gradients_lack() -> None:
    """The residuals gathered before attention and the MLP come with the backward pass anyway, the scatter behind the
    last matmul is not read by any gradient: the one behind attention is left."""
    job = job_of(model=MODEL)
    job = replace(job, stack=change(job.stack, "recompute", whole=False))
    verdict = judged("data=8,tensor=8", job, remat="block", zero=0)
    residual = BATCH / 8 * SEQUENCE * D * NARROW * ring(8)
    assert over(verdict, "tensor", "recompute") == pytest.approx(LAYERS * residual)


def test_keys_and_values_are_gathered_for_either_pass_and_their_gradients_scattered() -> None:
    verdict = judged("data=16,context=4", job_of(model=MODEL), zero=0)
    keys = BATCH / 16 * SEQUENCE * KV * SIZE * NARROW * ring(4)
    assert over(verdict, "context", "forward") == pytest.approx(LAYERS * 2 * keys)
    assert over(verdict, "context", "backward") == pytest.approx(LAYERS * 4 * keys)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_round_a_ring_keys_pass_all_others_and_gradients_come_home(size: int) -> None:
    """Followed hop by hop: a block of keys visits each of the other chips; its gradient is added to on the way, one
    hop further."""
    verdict = judged(f"data={CHIPS // size},context={size}", job_of(model=MODEL), zero=0, context_by="ring")
    block = BATCH / (CHIPS // size) * SEQUENCE / size * KV * SIZE * NARROW
    visits = sum(1 for hop in range(size) if hop > 0)
    assert over(verdict, "context", "forward") == pytest.approx(LAYERS * 2 * visits * block)
    assert over(verdict, "context", "backward") == pytest.approx(LAYERS * 2 * (visits + size) * block)


def test_heads_traded_for_the_sequence_travel_there_and_back() -> None:
    """Ulysses: queries, keys, values and results are exchanged, and their gradients: a chip keeps a quarter of each."""
    verdict = judged("data=16,context=4", job_of(model=MODEL), zero=0, context_by="ulysses")
    rows = BATCH / 16 * SEQUENCE / 4 * SIZE * NARROW * ring(4)
    assert over(verdict, "context", "forward") == pytest.approx(LAYERS * rows * (2 * HEADS + 2 * KV))
    assert over(verdict, "context", "backward") == pytest.approx(LAYERS * rows * (2 * HEADS + 2 * KV))


@pytest.mark.parametrize("dedup", [False, True])
def test_tokens_go_to_their_experts_and_back_in_either_pass(dedup: bool) -> None:
    """Each of a token's picks travels; or, once for every chip that has some of them: counted over all ways to pick."""
    job = job_of(model=ROUTED)
    job = replace(job, stack=change(job.stack, "experts", dedup=dedup))
    verdict = judged("data=8,expert=8", job, zero=0)
    draws = list(product(range(8), repeat=PICKS))
    copies = sum(len(set(draw)) for draw in draws) / len(draws) if dedup else PICKS
    rows = BATCH / CHIPS * SEQUENCE * D * NARROW * ring(8) * copies
    assert over(verdict, "expert", "forward") == pytest.approx(LAYERS * 2 * rows)
    assert over(verdict, "expert", "backward") == pytest.approx(LAYERS * 2 * rows)


def test_tokens_go_once_to_a_node_with_several_of_their_experts() -> None:
    """Experts over two nodes of eight: what is counted once is a node."""
    verdict = judged("data=4,expert=16", job_of(model=ROUTED), zero=0)
    copies = 2 - 2 * 0.5**PICKS  # nodes that some of its picks are on
    rows = BATCH / CHIPS * SEQUENCE * D * NARROW * ring(16) * copies
    assert over(verdict, "expert", "forward") == pytest.approx(LAYERS * 2 * rows)


@pytest.mark.parametrize("etp", [False, True])
def test_experts_are_spread_over_tensor_or_sliced_over_it(etp: bool) -> None:
    """Spread, tokens are sent over both axes; sliced, over `expert` alone. Either way a chip holds a sixteenth of
    them."""
    verdict = judged("data=4,expert=8,tensor=2", job_of(model=ROUTED), zero=0, etp=etp)
    exchanges = [line for line in verdict.ledger.lines if line.kind == "all_to_all" and line.carries == "activation"]
    assert {line.axes for line in exchanges} == {("expert",) if etp else ("expert", "tensor")}
    held = sum(line.bytes for line in verdict.ledger.held if line.part == "weights" and line.section == "block")
    mine = ATTENTION / 2 + D * EXPERTS + 3 * D * EXPERT_F * EXPERTS / 16
    assert held == pytest.approx(LAYERS * NARROW * mine, rel=0.01)


@pytest.mark.parametrize(("virtual", "schedule"), [(1, "1f1b"), (2, "interleaved")])
def test_stages_hand_over_residuals_and_their_gradients(virtual: int, schedule: str) -> None:
    """Each microbatch crosses every cut between chunks both ways; a chip has a part of the sequence of each."""
    plan = "data=2,context=2,tensor=4,pipe=4"
    verdict = judged(plan, job_of(model=MODEL), zero=0, schedule=schedule, virtual=virtual, microbatch=2)
    (line,) = (line for line in verdict.ledger.lines if line.term == "pipeline sends")
    assert line.total("wire_bytes") == pytest.approx(2 * virtual * BATCH / 2 * SEQUENCE / 8 * D * NARROW)


@pytest.mark.parametrize(("schedule", "scatters"), [("1f1b", 1), ("interleaved", 1 / 4)])
def test_zero_2_scatters_a_chunk_once_a_round_of_the_ranks(schedule: str, scatters: float) -> None:
    """Interleaved, a chunk's gradients of `pipe` microbatches are added up before they travel (Llama 3's trainer)."""
    job: Job = job_of(model=MODEL)
    virtual = 2 if schedule == "interleaved" else 1
    verdict = judged("fsdp=16,pipe=4", job, zero=2, schedule=schedule, virtual=virtual, microbatch=1)
    often = BATCH / 16
    scattered = block_bytes(verdict, lambda line: line.kind == "reduce_scatter")
    assert scattered == pytest.approx(LAYERS / 4 * WEIGHTS * WIDE * ring(16) * often * scatters)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_stack_that_keeps_weights_whole_under_a_pipeline_moves_them_once_a_step(zero: int) -> None:
    job = job_of(model=MODEL)
    whole = replace(job, stack=change(job.stack, "memory", pipe_whole=True))
    piped = judged("fsdp=16,pipe=4", whole, zero=zero)
    often = {2: WIDE + NARROW, 3: WIDE + 2 * NARROW}[zero]
    assert state_bytes(piped) == pytest.approx(LAYERS / 4 * WEIGHTS * ring(16) * often)
    alone = [state_bytes(judged("fsdp=64", one, zero=zero)) for one in (job, whole)]
    assert alone[0] == alone[1]


def statistic_bytes(verdict: Verdict, what: str, phase: str) -> float:
    """Bytes of what rides along in other messages."""
    lines = [line for line in verdict.ledger.lines if line.carries == "statistic" and line.what == what]
    return sum(line.total("wire_bytes") for line in lines if line.phase == phase)


def test_the_routers_weights_travel_with_their_rows() -> None:
    """Four bytes for each pick of a token that leaves its chip, and as many for their gradients."""
    verdict = judged("data=8,expert=8", job_of(model=ROUTED), zero=0)
    rows = BATCH / CHIPS * SEQUENCE * PICKS * ring(8)
    assert statistic_bytes(verdict, "P", "forward") == pytest.approx(LAYERS * 4 * rows)
    assert statistic_bytes(verdict, "P", "backward") == pytest.approx(LAYERS * 4 * rows)


def test_a_softmax_over_a_split_vocabulary_sums_three_numbers_a_token() -> None:
    """Its maximum, its sum and the target's logit forward; one sum backward."""
    verdict = judged("data=8,tensor=8", job_of(model=MODEL), zero=0)
    tokens = BATCH / 8 * SEQUENCE
    assert statistic_bytes(verdict, "loss", "forward") == pytest.approx(3 * tokens * 4 * 2 * ring(8))
    assert statistic_bytes(verdict, "loss", "backward") == pytest.approx(tokens * 4 * 2 * ring(8))
