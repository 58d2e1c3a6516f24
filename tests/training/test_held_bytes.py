"""What a chip holds, added up by hand: state by the stage of ZeRO, activations by policy and layout, and what comes
and goes."""

from dataclasses import replace

import pytest

from dragonscale.models import simple
from dragonscale.training.cost.evaluation import Verdict
from dragonscale.training.plan.stack import change
from tests.training.plans import held, job_of, judged

D, F, HEADS, KV, SIZE, LAYERS, VOCAB = 1024, 4096, 16, 4, 64, 8, 1000
SEQUENCE, BATCH = 4096, 256
MODEL = simple("small", d_model=D, d_ff=F, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=KV, vocab=VOCAB)
MATRICES = 2 * D * HEADS * SIZE + 2 * D * KV * SIZE + 3 * D * F
NORMS = 2 * D
"""Elements of a layer."""
ADAM = 4 + 4 + 4
"""Bytes of a master copy and two moments."""


def part(verdict: Verdict, name: str, section: str = "block") -> float:
    """Bytes of a part of the memory of one section."""
    return float(sum(line.bytes for line in verdict.ledger.held if line.part == name and line.section == section))


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "state"), [(0, 1, 1, 1), (1, 1, 1, 64), (2, 1, 64, 64), (3, 0, 64, 64)]
)
def test_each_stage_of_zero_splits_what_it_says(zero: int, weights: int, gradients: int, state: int) -> None:
    """Vectors stay whole; weights of ZeRO-3 are there only while they are gathered, two layers of them at once."""
    verdict = judged("fsdp=64", job_of(model=MODEL), zero=zero, microbatch=1)
    assert part(verdict, "weights") == weights * LAYERS * 2 * (MATRICES + NORMS)
    assert part(verdict, "gradients") == pytest.approx(LAYERS * 4 * (MATRICES / gradients + NORMS))
    assert part(verdict, "optimizer") == pytest.approx(LAYERS * ADAM * (MATRICES / state + NORMS))
    table = 2 * VOCAB * D
    gathered = 2 * 2 * (MATRICES + NORMS) + 2 * table + 2 * D  # the head has a norm
    assert held(verdict, "gathered weights") == pytest.approx(gathered if zero == 3 else 0, rel=1e-3)


def tokens_bytes(verdict: Verdict) -> float:
    """Bytes kept for each token of a microbatch in each layer."""
    return held(verdict, "activations") / LAYERS / SEQUENCE


RESIDUALS = 4 * D
"""Two residuals and their norms."""
INSIDE = 2 * HEADS * SIZE + 3 * F
"""Queries, what attention puts out, and the MLP's three hidden tensors."""


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_that_are_kept(tensor: int, sequence: bool) -> None:
    """Over eight chips each of the four KV heads lies on two; without sequence parallelism residuals are whole."""
    plan = f"data={64 // tensor},tensor={tensor}"
    verdict = judged(plan, job_of(model=MODEL), zero=0, sequence=sequence)
    keys = 2 * max(KV / tensor, 1) * SIZE
    residuals = RESIDUALS / (tensor if sequence else 1)
    assert tokens_bytes(verdict) == pytest.approx(2 * (residuals + INSIDE / tensor + keys))
    block = judged(plan, job_of(model=MODEL), zero=0, sequence=sequence, remat="block")
    assert tokens_bytes(block) == pytest.approx(2 * D / (tensor if sequence else 1))


def test_activations_over_context_are_those_of_a_part_of_the_sequence() -> None:
    whole, parts = (judged(plan, job_of(model=MODEL), zero=0) for plan in ("data=64", "data=16,context=4"))
    assert held(parts, "activations") == pytest.approx(held(whole, "activations") / 4)


def workspace(plan: str, **changes: object) -> float:
    return held(judged(plan, job_of(model=MODEL), zero=0, **changes), "workspace")


def test_what_is_alive_in_a_layer_beside_what_it_keeps() -> None:
    """Half as much in gradients; over `tensor` three residuals whole, of which a part is there; over `context` keys,
    values and their gradients of the other chips, or round a ring of one of them."""
    kept = SEQUENCE * 2 * (RESIDUALS + INSIDE + 2 * KV * SIZE)
    assert workspace("data=64") == pytest.approx(kept / 2)
    split = SEQUENCE * 2 * ((RESIDUALS + INSIDE) / 4 + 2 * SIZE)
    assert workspace("data=16,tensor=4") == pytest.approx(split / 2 + 3 * 2 * SEQUENCE * D * 3 / 4)
    assert workspace("data=16,tensor=4", sequence=False) == pytest.approx(
        SEQUENCE * (RESIDUALS + INSIDE / 4 + 2 * SIZE)
    )
    keys = 2 * 2 * 2 * SEQUENCE / 4 * KV * SIZE
    assert workspace("data=16,context=4") == pytest.approx(kept / 4 / 2 + 3 * keys)
    assert workspace("data=16,context=4", context_by="ring") == pytest.approx(kept / 4 / 2 + keys)


def test_a_tied_table_is_held_once_unless_its_ends_lie_apart() -> None:
    tied = simple("tied", d_model=D, d_ff=F, n_layers=LAYERS, n_heads=HEADS, vocab=32000, tied=True)
    alone, piped = (judged(plan, job_of(model=tied), zero=0) for plan in ("data=64", "data=32,pipe=2"))
    assert part(alone, "weights", "embed") == 2 * 32000 * D
    assert part(alone, "weights", "head") == 2 * D  # a norm
    ends = {name: part(piped, "weights", name) for name in ("embed", "head")}
    assert ends in ({"embed": 2 * 32000 * D, "head": 0}, {"embed": 0, "head": 2 * 32000 * D + 2 * D})


@pytest.mark.parametrize(("on", "each"), [("h100:64", 2), ("b200:64", 1)])
def test_narrow_weights_are_there_twice_where_matmuls_take_them_along_one_dim(on: str, each: int) -> None:
    job = job_of(on, model=MODEL)
    narrow = replace(job, stack=change(job.stack, "state", narrow_weights=True))
    wide, only, both = (
        part(judged("data=64", one, zero=0, dtype=dtype), "weights")
        for one, dtype in ((job, "bf16"), (narrow, "fp8"), (job, "fp8"))
    )
    assert only == pytest.approx(wide / 2 * each)
    assert both == pytest.approx(wide * 1.5)  # bf16 beside it


def test_scores_that_attention_writes_out_grow_with_the_square() -> None:
    """Five bytes a score, of this chip's heads and its part of the queries."""
    job = job_of(model=MODEL)
    plain = replace(job, stack=change(job.stack, "kernels", flash=False))
    for plan, ways in (("data=64", 1), ("data=16,tensor=4", 4), ("data=16,context=4", 4)):
        flash, scores = (held(judged(plan, one, zero=0), "activations") for one in (job, plain))
        assert scores - flash == pytest.approx(LAYERS * 5 * HEADS * SEQUENCE**2 / ways)


def test_the_last_rank_holds_one_microbatch_and_the_head() -> None:
    """With a vocabulary so wide that its rank is the fullest."""
    wide = simple("wide", d_model=D, d_ff=F, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=KV, vocab=256000)
    alone, piped = (judged(plan, job_of(model=wide), zero=0) for plan in ("data=64", "data=16,pipe=4"))
    assert part(piped, "weights", "head") > 0
    assert part(piped, "weights", "embed") == 0
    assert held(piped, "activations") == pytest.approx(held(alone, "activations") / 4)
    assert held(piped, "logits") == pytest.approx(held(alone, "logits"))


@pytest.mark.parametrize("buffer", [True, False])
def test_gradients_of_one_microbatch_are_there_once_their_layer_is_done(buffer: bool) -> None:
    """While all layers keep activations there are no gradients yet, unless they have a buffer or were there from a
    microbatch before."""
    job = job_of(model=MODEL, batch=64, sequence=16384)
    job = replace(job, stack=change(job.stack, "memory", gradient_buffer=buffer))
    once = judged("data=64", job, zero=0)
    assert bool(held(once, "gradients")) == buffer
    assert held(judged("data=64", replace(job, batch=128), zero=0), "gradients") > 0
