"""A step of reinforcement learning: lengths, the draining batch, phases, pools, and the laws they keep."""

from dataclasses import replace

import numpy
import pytest
from msgspec.structs import replace as replace_struct

from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.iteration import decode
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.simulation.rl.frameworks import framework, frameworks, switching_seconds, transfer_seconds
from dragonscale.simulation.rl.generation import generate, room_for, starts
from dragonscale.simulation.rl.lengths import AnswerLengths, measured_lengths
from dragonscale.simulation.rl.step import (
    BETWEEN,
    ROLLOUT,
    TRAINER,
    Phase,
    exposed,
    judge_step,
    stage_job,
)
from dragonscale.simulation.rl.ways import Choices, pools, search_steps
from dragonscale.simulation.rl.work import packed_count, packed_job, work_of

MODEL = load_model("llama3-8b")
ENGINE = deploy(MODEL, "h100:1", "tensor=1", "vllm")
NEMO = framework("nemo-rl")


def work(output=2048, mean=800.0, prompts=32, samples=8, updates=1, algorithm="grpo"):
    return work_of(MODEL, algorithm, prompts, samples, 256, AnswerLengths(mean, output), updates)


@pytest.fixture(scope="module")
def colocated():
    return search_steps(work(), parse_slice("h100:16"), [NEMO], Choices(modes=("colocated",)))[0]


@pytest.fixture(scope="module")
def split():
    return search_steps(work(), parse_slice("h100:16"), [NEMO], Choices(modes=("one-step-off",), ratios=(0.5,)))[0]


@pytest.mark.parametrize(("mean", "cap", "spread"), [(500, 4096, 0.75), (3200, 4000, 0.75), (100, 8192, 1.2)])
def test_answers_have_the_mean_that_was_given_and_none_is_beyond_the_cap(mean, cap, spread):
    drawn = AnswerLengths(mean, cap, spread).draw(2048)
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.max() <= cap
    assert (numpy.diff(drawn) >= 0).all()


def test_the_longest_of_more_answers_is_longer_as_order_statistics_have_it():
    # of a lognormal, the 1/(2n) tail: exp(sigma z) over the median
    lengths = AnswerLengths(1000, 10**6)
    longest = [float(lengths.draw(count)[-1]) for count in (16, 256, 4096)]
    assert longest == sorted(longest)
    assert longest[1] == pytest.approx(lengths.median * numpy.exp(0.75 * 2.886), rel=0.01)


def test_measured_lengths_are_cut_at_the_cap():
    assert measured_lengths([100, 200, 9000], 1000).mean == pytest.approx(1300 / 3)
    assert measured_lengths([100, 200, 9000], 1000).draw(3).tolist()[-1] <= 1000


def test_a_mean_beyond_the_cap_is_refused():
    with pytest.raises(InputError, match="at most --output"):
        AnswerLengths(5000, 4096)


def test_answers_start_as_others_end_and_none_is_lost():
    lengths = numpy.array([5.0, 2.0, 3.0, 1.0])
    begun = starts(lengths, 2)
    assert begun.tolist() == [0.0, 0.0, 2.0, 5.0]
    assert starts(lengths, 8).tolist() == [0.0] * 4


def test_one_answer_takes_its_tokens_in_steps_of_one_sequence():
    made = generate(ENGINE, 30_000, AnswerLengths(500, 500), samples=1, group=1, replicas=1)
    step = float(numpy.ravel(iteration_cost(ENGINE, decode(1, 30_000 + 250)).expected)[0])
    assert made.seconds - made.prefill_s == pytest.approx(500 * step, rel=0.001)


def test_a_batch_takes_at_least_its_longest_answer_and_its_tail_is_part_of_it():
    made = generate(ENGINE, 256, AnswerLengths(800, 8192), samples=256, group=8, replicas=1)
    alone = generate(ENGINE, 256, AnswerLengths(8000, 8192), samples=1, group=1, replicas=1)
    assert made.seconds > 0.5 * alone.seconds
    assert 0.1 * made.seconds < made.tail_s < made.seconds
    assert made.mean_batch < made.together
    # of 256 answers that start together the last 5 are alone from the end of the 251st on
    drawn = AnswerLengths(800, 8192).draw(256)
    one, five = (
        numpy.ravel(iteration_cost(ENGINE, decode(size, 256 + keys)).expected)[0]
        for size, keys in ((1, 0), (5, drawn[-1]))
    )
    assert (drawn[-1] - drawn[250]) * one < made.tail_s < (drawn[-1] - drawn[250]) * five


@pytest.mark.parametrize("output", [1024, 4096])
def test_longer_answers_are_never_faster(output):
    short, long = (generate(ENGINE, 256, AnswerLengths(mean, output), 128, 8, 1).seconds for mean in (400, 800))
    assert long > short


def test_answers_that_may_be_ahead_never_slow_generation_and_cut_its_tail():
    times = [
        generate(ENGINE, 256, AnswerLengths(800, 8192), 128, 8, 2, ahead).seconds for ahead in (0.0, 0.3, 1.0, 4.0)
    ]
    assert times == sorted(times, reverse=True)
    assert times[1] < 0.8 * times[0]


def test_the_cache_holds_all_answers_at_its_fullest_moment():
    tight, drawn = deploy(MODEL, "h100:1", "tensor=1", "vllm,memory.share=0.3"), numpy.full(256, 4000.0)
    room, cache = room_for(tight, 256, drawn), capacity(tight)
    assert 1 < room < room_for(ENGINE, 256, drawn) < 256
    assert room * cache.sequence(256 + 3900) <= cache.cache < 1.4 * room * cache.sequence(256 + 4000)
    assert room_for(ENGINE, 256, drawn[:8]) == 8
    assert room_for(deploy("llama3-70b", "h100:1", "tensor=1", "vllm"), 256, drawn) == 0


def phases(rollout=10.0, trainer=4.0, between=1.0):
    made = (("generation", ROLLOUT, rollout), ("update", TRAINER, trainer), ("weight transfer", BETWEEN, between))
    return [Phase(name, place, seconds, 0.0) for name, place, seconds in made]


def test_on_shared_chips_phases_follow_each_other():
    assert sum(one.exposed_s for one in exposed(phases(), overlapped=False)) == 15.0


@pytest.mark.parametrize(("rollout", "trainer", "idle"), [(10.0, 4.0, 6.0), (3.0, 8.0, 5.0)])
def test_two_pools_take_the_slower_and_what_both_wait_for(rollout, trainer, idle):
    found = exposed(phases(rollout, trainer), overlapped=True)
    assert sum(one.exposed_s for one in found) == max(rollout, trainer) + 1.0
    assert next(one.seconds for one in found if one.name == "idle") == idle


def test_packed_answers_keep_their_tokens():
    asked = work(updates=2)
    job = packed_job(asked, parse_slice("h100:16"), "megatron-core", 8)
    assert job.batch % 8 == 0
    assert job.sequence <= asked.longest + 64
    assert job.tokens == pytest.approx(asked.tokens / 2, rel=0.05)
    assert job.documents == round(asked.seen) > asked.each
    padded = packed_job(replace(asked, padded=asked.longest), parse_slice("h100:16"), "megatron-core", 8)
    assert (padded.batch, padded.sequence, padded.documents) == (128, asked.longest, None)


def test_a_colocated_step_is_the_sum_of_its_phases_and_fits(colocated):
    names = [phase.name for phase in colocated.phases]
    assert names == ["generation", "logprob", "reference", "update", "weight transfer", "offload"]
    assert colocated.seconds == pytest.approx(sum(phase.seconds for phase in colocated.phases))
    assert colocated.fits
    assert colocated.moved_bytes > 0
    assert colocated.band[0] < colocated.seconds < colocated.band[1]
    assert colocated.rate == pytest.approx(work().tokens / colocated.seconds / 16)


def test_a_log_probability_pass_is_a_part_of_an_update(colocated):
    assert 0.15 < colocated.phase("logprob") / colocated.phase("update") < 0.6


def test_one_step_off_is_never_slower_than_its_own_phases_in_turn(split):
    real = [phase.seconds for phase in split.phases if phase.name != "idle"]
    assert split.seconds < sum(real)
    assert split.plan.staleness == 1.0
    assert split.plan.chips == 16


def test_algorithms_have_their_passes(colocated):
    plan = colocated.plan
    without, critic = (judge_step(work(algorithm=name), plan) for name in ("dapo", "ppo"))
    assert without.phase("reference") == 0.0
    assert critic.train_bytes > without.train_bytes + 1e9
    assert critic.phase("critic") == pytest.approx(critic.phase("update") + critic.phase("logprob"))


def test_a_trainer_with_a_critic_has_room_for_it():
    asked = Choices(modes=("one-step-off",), ratios=(0.5,))
    found = search_steps(work(algorithm="ppo"), parse_slice("h100:32"), [NEMO], asked)
    assert [step.fits for step in found] == [True]


def test_longer_outputs_are_never_faster_with_one_plan(colocated):
    longer = judge_step(work(mean=1200.0), colocated.plan)
    assert longer.seconds > colocated.seconds


def test_more_chips_are_never_slower_at_the_best_plan(colocated):
    more = search_steps(work(), parse_slice("h100:32"), [NEMO], Choices(modes=("colocated",)))[0]
    assert more.seconds <= colocated.seconds


def test_pools_make_up_the_slice():
    for train, rollout in pools(parse_slice("h100:64"), (0.25, 0.5, 0.75)):
        assert train.chips + rollout.chips == 64
    assert [rollout.chips for _, rollout in pools(parse_slice("h100:64"), (0.25, 0.75))] == [16, 48]


def test_a_framework_runs_its_own_modes_alone():
    asked = Choices(modes=("async",))
    assert search_steps(work(), parse_slice("h100:16"), [framework("trl")], asked) == []


def test_transfers_keep_their_methods_and_the_wires_pace():
    assert transfer_seconds("packed", 470e9, 50e9, 64) == pytest.approx(5.5, rel=0.02)
    assert transfer_seconds("bucketed", 470e9, 5e9, 64) == pytest.approx(1.5 + 470 / 5)
    assert transfer_seconds("reshard", 470e9, 5e9, 64) == pytest.approx(0.2 + 470 / 320)


def test_moves_to_the_host_go_at_the_frameworks_pace():
    # weights through pinned memory at the link's pace, optimizer state down at its own
    assert switching_seconds(NEMO, 11e9, 18e9, 55e9) == pytest.approx(1.8 + 22 / 55 + 10 + 18 / 16.1)
    assert switching_seconds(framework("generic"), 0.0, 18e9, 10e9) == pytest.approx(1.8 + 36 / 10)


def test_answers_that_do_not_fit_together_have_sequences_of_their_own():
    alone, two = AnswerLengths(600, 600), AnswerLengths(400, 1000)
    assert packed_count(alone, 0, 10) == 10
    perfect = 64 * 400 / 1000
    assert perfect <= packed_count(two, 0, 64) < 1.2 * perfect
    assert packed_count(two, 0, 4096) == pytest.approx(64 * packed_count(two, 0, 64), rel=0.05)


def test_stages_of_a_pipeline_get_sequences_of_one_length_where_the_framework_pads(colocated):
    plan = colocated.plan
    piped = replace(plan, train=replace(plan.train, pipe=2))
    assert stage_job(work(), plan) == plan.job
    assert stage_job(work(), piped).sequence == work().longest > plan.job.sequence
    assert stage_job(work(), replace(piped, framework=framework("verl"))) == plan.job


def test_a_reference_takes_the_policys_place_in_memory(colocated):
    weights = 2 * 8.03e9 / (colocated.plan.train.tensor * colocated.plan.train.pipe)
    swap = colocated.phase("reference") - colocated.phase("logprob")
    assert swap == pytest.approx(3 * weights / colocated.plan.job.slice.chip.host_link, rel=0.05)


def test_returned_log_probabilities_take_the_host_a_time_for_each_token(colocated):
    silent = replace(colocated.plan, framework=replace_struct(NEMO, returned=()))
    more = colocated.phase("generation") - judge_step(work(), silent).phase("generation")
    assert more == pytest.approx(3.4e-5 * colocated.generation.tokens)
    assert more == pytest.approx(3.4e-5 * work().answers * work().lengths.mean / colocated.plan.replicas, rel=0.1)


def test_every_framework_names_known_parts():
    from dragonscale.serving.engine.engine import engines
    from dragonscale.training.plan.stack import load_stack

    for row in frameworks().values():
        assert row.engine in engines()
        assert all(load_stack(name) for name in row.trainers)
        assert all(transfer_seconds(row.method(mode), 1e9, 50e9, 8) > 0 for mode in row.modes)
