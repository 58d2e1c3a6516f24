"""Drafting: what a loop costs and yields, how many drafts are best, and when they hurt."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost
from dragonscale.serving.steady.speculation import (
    Draft,
    Speculated,
    break_even,
    drafting_seconds,
    has_heads,
    head_part,
    loop_seconds,
    own_draft,
    read_acceptance,
    speculate,
    tokens_per_loop,
)
from dragonscale.simulation.batch import verify_steps

LARGE = deploy("llama3-70b", "h100:4", "tensor=4,weights=fp8,compute=fp8,kv=fp8")
SMALL = Draft(0.75, model=load_model("llama3-8b"))
HEADS = Draft(0.75, part=head_part(LARGE.model))


def best_loop(deployment: Deployment, draft: Draft, batch: float, keys: float) -> Speculated:
    """The loop with the least time per token."""
    return min(speculate(deployment, draft, batch, keys), key=lambda one: one.tpot)


def test_no_drafts_is_a_plain_step() -> None:
    loop = speculate(LARGE, HEADS, 8, 2000)[0]
    assert loop.tpot == pytest.approx(float(iteration_cost(LARGE, decode(8, 2000)).expected[0]))
    assert loop.speedup == 1
    assert loop.tokens == 1


def test_a_loop_is_its_drafts_and_its_verification() -> None:
    for loop in speculate(LARGE, SMALL, 4, 2000, (1, 3, 5)):
        assert loop.verifying == pytest.approx(
            float(iteration_cost(LARGE, decode(4, 2000, loop.drafts + 1.0)).expected[0]), rel=1e-9
        )
        assert loop.tokens == pytest.approx(sum(0.75**count for count in range(loop.drafts + 1)))
        small = float(drafting_seconds(LARGE, SMALL, 4, 2000, 0.0)[0])
        assert loop.drafting == pytest.approx(loop.drafts * small)


def test_the_best_number_of_drafts_grows_with_the_acceptance() -> None:
    best = [best_loop(LARGE, Draft(chance, part=0.02), 4, 2000) for chance in (0.0, 0.4, 0.7, 0.95)]
    assert [one.drafts for one in best] == sorted(one.drafts for one in best)
    assert best[0].drafts == 0
    assert best[-1].speedup > best[1].speedup > 1


def test_drafting_pays_at_small_batches_and_hurts_at_large_ones() -> None:
    slow = Draft(0.5, model=load_model("llama3-8b"))
    small, large = (best_loop(LARGE, slow, batch, 500) for batch in (1, 1024))
    assert small.speedup > large.speedup
    turn = break_even(LARGE, Draft(0.3, model=load_model("llama3-8b")), 500)
    assert turn is not None
    assert best_loop(LARGE, Draft(0.3, model=load_model("llama3-8b")), turn, 500).drafts == 0
    assert break_even(LARGE, Draft(1.0, part=0.001), 500, (1, 2)) is None


def test_many_batches_at_once_are_each_alone() -> None:
    import numpy

    batches = numpy.array([1.0, 16.0, 200.0])
    plain = iteration_cost(LARGE, decode(batches, 2000)).expected
    seconds, drafts = loop_seconds(LARGE, HEADS, batches, 2000, plain)
    for batch, taken, count in zip(batches, seconds, drafts, strict=True):
        alone = best_loop(LARGE, HEADS, float(batch), 2000)
        assert taken == pytest.approx(alone.tpot, rel=1e-9)
        assert count == alone.drafts


@pytest.mark.parametrize("chance", [-0.1, 1.1])
def test_an_acceptance_is_a_probability(chance: float) -> None:
    with pytest.raises(InputError, match="probability"):
        Draft(chance)


@given(chance=st.floats(0.05, 0.95), drafts=st.integers(1, 8), lost=st.floats(0, 0.5))
def test_acceptance_by_position(chance: float, drafts: int, lost: float) -> None:
    """The same chance at every position is that chance; chances that fall give fewer tokens, never below those of the
    first draft."""
    falling = tuple(chance * (1 - lost) ** place for place in range(drafts))
    assert tokens_per_loop((chance,) * drafts, drafts) == pytest.approx(tokens_per_loop(chance, drafts))
    assert 1 + chance <= tokens_per_loop(falling, drafts) + 1e-12
    assert tokens_per_loop(falling, drafts) <= tokens_per_loop(chance, drafts) + 1e-12


def test_later_drafts_that_fail_are_not_worth_making() -> None:
    even, falling = (Draft(chances, part=0.02) for chances in ((0.85,), (0.85, 0.5, 0.2, 0.1)))
    assert best_loop(LARGE, falling, 8, 2000).drafts < best_loop(LARGE, even, 8, 2000).drafts
    steps, tokens = (
        sum(column) for column in zip(*(verify_steps(500, 3, (0.85, 0.7, 0.5), 1, n) for n in range(200)), strict=True)
    )
    assert tokens / steps == pytest.approx(tokens_per_loop((0.85, 0.7, 0.5), 3), rel=0.01)


@pytest.mark.parametrize("text", ["0.8,", "high", "0.8,1.2", "-0.1"])
def test_what_is_no_acceptance_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="probability"):
        read_acceptance(text)


def test_heads_of_a_checkpoint_draft_as_is_published() -> None:
    """Tokens a step: LMSYS 2.18 with two drafts and 2.44 with three (lmsys.org/blog/2025-07-17-mtp); 0.85 to 0.9 of
    first drafts are accepted (arXiv 2412.19437)."""
    draft = own_draft(load_model("deepseek-v3"))
    assert draft is not None
    assert draft.counts == (0, 1, 2, 3)
    chances = draft.acceptance
    assert isinstance(chances, tuple)
    assert list(chances) == sorted(chances, reverse=True)
    assert [float(tokens_per_loop(chances, count)) for count in (1, 2, 3)] == pytest.approx(
        [1.85, 2.18, 2.44], rel=0.06
    )
    assert own_draft(load_model("kimi-k2")) is None
    fixed = own_draft(load_model("deepseek-v3"), (2,))
    assert fixed is not None
    assert fixed.counts == (2,)
    assert not has_heads(LARGE.model)


R1 = ("deepseek-v3", "b200:8", "tensor=8,expert=2,weights=nvfp4,compute=nvfp4,kv=fp8", "trtllm")


def test_drafts_at_a_batch_of_one_are_near_what_was_published() -> None:
    """TensorRT-LLM's tech blog 2: DeepSeek-R1 FP4 on 8 B200s, three drafts are 2.16 times as fast as none."""
    draft = own_draft(load_model("deepseek-v3"))
    assert draft is not None
    loops = speculate(deploy(*R1), draft, 1, 2048, draft.counts)
    assert loops[3].speedup == pytest.approx(2.16, rel=0.1)
    assert max(loops, key=lambda one: one.speedup).drafts == 3


def test_drafts_nobody_asked_for_are_made_in_no_pipeline() -> None:
    draft = own_draft(load_model("deepseek-v3"))
    assert draft is not None
    batch, plain = numpy.array([8.0, 8.0]), numpy.array([0.02, 0.02])
    staged = deploy("deepseek-v3", "h200:16", "tensor=8,pipe=2,weights=fp8,compute=fp8_block", "vllm")
    whole = deploy("deepseek-v3", "h200:8", "tensor=8,weights=fp8,compute=fp8_block", "vllm")
    for deployment, some in ((staged, False), (whole, True)):
        assert bool(numpy.all(loop_seconds(deployment, draft, batch, 2000, plain)[1] > 0)) == some
    asked_for = Draft(draft.acceptance, part=draft.part, counts=draft.counts)
    assert min(loop_seconds(staged, asked_for, batch, 2000, plain)[1]) > 0
