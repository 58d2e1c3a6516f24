"""Engines on small cases that can be worked out by hand. A step takes 1 s, a prompt token 0.01 s, unless said."""

import pytest

from dragonscale.errors import InputError
from dragonscale.serving.steady.speculation import tokens_per_loop
from dragonscale.simulation import (
    AtOnce,
    ClosedLoop,
    Fixed,
    Fleet,
    LinearTimes,
    OpenLoop,
    Poisson,
    Pool,
    Scheduler,
    ServedRequest,
    SimulatedRequest,
    SimulationOptions,
    SimulationResult,
    simulate,
)
from dragonscale.simulation.loop import QUEUE_FULL, TOO_LONG
from tests.simulation.fleets import finished_run, replay

TIMES = LinearTimes(1.0, prompt_s=0.01)


def served(scheduler: Scheduler, *requests: tuple[float, int, int], kv_tokens: int = 10_000) -> list[ServedRequest]:
    """Stories of requests (arrival, prompt, output) on one replica, in order of arrival."""
    traffic = replay([SimulatedRequest(number, *each) for number, each in enumerate(requests)])
    stories = simulate(Fleet(Pool(TIMES, kv_tokens, scheduler)), traffic, SimulationOptions(keep=True)).served
    return sorted(stories, key=lambda each: each.number)


def test_one_request_alone() -> None:
    (one,) = served(Scheduler("chunked"), (5.0, 100, 11))
    assert (one.queue_s, one.ttft_s, one.tpot_s, one.e2e_s) == pytest.approx((0, 2.0, 1.0, 12.0))


def test_a_one_token_answer_ends_with_its_prompt() -> None:
    (one,) = served(Scheduler("chunked"), (0.0, 100, 1))
    assert (one.ttft_s, one.tpot_s, one.e2e_s) == pytest.approx((2.0, 0.0, 2.0))


def test_an_arrival_waits_for_the_end_of_the_iteration_it_falls_into() -> None:
    first, second = served(Scheduler("chunked"), (0.0, 100, 11), (4.5, 100, 2))
    assert second.queue_s == pytest.approx(0.5)
    assert second.ttft_s == pytest.approx(0.5 + 2.0)
    assert first.e2e_s == pytest.approx(2.0 + 10 + 1)  # one of its steps carried the other's prompt


@pytest.mark.parametrize("leap", [True, False])
def test_an_arrival_at_the_end_of_an_iteration_is_in_the_next(leap: bool) -> None:
    traffic = replay([SimulatedRequest(0, 0.0, 100, 11), SimulatedRequest(1, 4.0, 100, 2)])
    stories = simulate(Fleet(Pool(TIMES, 10_000)), traffic, SimulationOptions(keep=True, leap=leap)).served
    assert {each.number: each.queue_s for each in stories} == {0: 0.0, 1: 0.0}


@pytest.mark.parametrize(("ahead", "poll", "waits"), [(0, 1, 0.5), (1, 1, 1.5), (0, 4, 0.5), (1, 4, 4.5)])
def test_engines_that_settle_ahead_or_poll_look_later(ahead: int, poll: int, waits: float) -> None:
    """The prompt is iteration 0; the arrival at 4.5 s falls into iteration 3, the third step."""
    stories = served(Scheduler("chunked", ahead=ahead, poll=poll), (0.0, 100, 20), (4.5, 100, 2))
    assert stories[1].queue_s == pytest.approx(waits)


def test_whole_prompts_stop_decoding_unless_mixed() -> None:
    calls = (0.0, 100, 11), (4.5, 100, 2)
    apart = served(Scheduler("continuous"), *calls)
    mixed = served(Scheduler("continuous", mixed=True), *calls)
    assert apart[0].e2e_s == pytest.approx(2.0 + 10 + 2.0)
    assert mixed[0].e2e_s == pytest.approx(2.0 + 10 + 1.0)
    assert apart[1].ttft_s == mixed[1].ttft_s == pytest.approx(2.5)


def test_chunks_fill_what_decoding_leaves_of_the_budget() -> None:
    first, second = served(Scheduler("chunked", tokens=51), (0.0, 100, 40), (2.6, 100, 2))
    assert first.ttft_s == pytest.approx(1.51 + 1.49)  # 51 and 49 tokens
    assert second.ttft_s == pytest.approx(0.4 + 2 * 1.5)  # twice 50 beside one that decodes


def test_chunks_before_decoding() -> None:
    first, second = served(Scheduler("chunked", tokens=50, mixed=False), (0.0, 50, 3), (1.6, 100, 2))
    assert second.ttft_s == pytest.approx(0.9 + 2 * 1.5)
    assert first.e2e_s == pytest.approx(1.5 + 1 + 3.0 + 1)


def test_a_long_prompt_runs_alone_where_prompts_are_not_cut() -> None:
    stories = served(Scheduler("continuous", tokens=150), (0.0, 100, 1), (0.0, 200, 1), (0.0, 100, 1))
    assert [each.ttft_s for each in stories] == pytest.approx([2.0, 5.0, 7.0])


def test_places_limit_a_batch() -> None:
    stories = served(Scheduler("chunked", sequences=2), (0.0, 100, 3), (0.0, 100, 5), (0.0, 100, 2))
    assert [each.queue_s for each in stories] == pytest.approx([0.0, 0.0, 5.0])


def test_a_static_batch_is_as_long_as_its_longest_member() -> None:
    stories = served(Scheduler("static", sequences=2), (0.0, 100, 2), (0.0, 100, 11), (0.5, 100, 2))
    assert [each.e2e_s for each in stories[:2]] == pytest.approx([3.0 + 1, 3.0 + 10])
    assert stories[2].queue_s == pytest.approx(12.5)


def test_a_static_batch_waits_to_be_full_or_out_of_patience() -> None:
    scheduler = Scheduler("static", sequences=2, patience_s=4.0)
    lonely = served(scheduler, (0.0, 100, 1))
    pair = served(scheduler, (0.0, 100, 1), (3.0, 100, 1))
    assert lonely[0].queue_s == pytest.approx(4.0)
    assert [each.queue_s for each in pair] == pytest.approx([3.0, 0.0])


def test_padding_keeps_costing() -> None:
    """The ended member of a static batch still takes its part of every step."""
    times = LinearTimes(1.0, decode_s=0.5)
    traffic = replay([SimulatedRequest(0, 0.0, 10, 2), SimulatedRequest(1, 0.0, 10, 6)])
    result = simulate(Fleet(Pool(times, 1000, Scheduler("static"))), traffic)
    assert result.seconds == pytest.approx(1.0 + 5 * 2.0)


def test_the_newest_gives_way_when_pages_run_out() -> None:
    """Two sequences of 40 + 40 tokens in a cache of 128: at 64 tokens each the second is thrown out, and recomputed
    when the first has ended."""
    scheduler = Scheduler("continuous", page_tokens=16, watermark=0.0)
    run = finished_run(
        Fleet(Pool(TIMES, 128, scheduler)), replay([SimulatedRequest(0, 0.0, 40, 40), SimulatedRequest(1, 0.0, 40, 40)])
    )
    first, second = sorted(run.tally.served or (), key=lambda each: each.number)
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert first.e2e_s == pytest.approx(1.8 + 39)
    # 24 steps gave 25 tokens; 65 tokens are prefilled again and give the 26th; 14 remain
    assert second.e2e_s == pytest.approx(1.8 + 39 + 1.65 + 14)


def test_reserving_whole_answers_never_preempts() -> None:
    scheduler = Scheduler("continuous", page_tokens=16, reserve="whole", watermark=0.0)
    run = finished_run(
        Fleet(Pool(TIMES, 128, scheduler)), replay([SimulatedRequest(0, 0.0, 40, 40), SimulatedRequest(1, 0.0, 40, 40)])
    )
    assert run.tally.preempted == 0
    second = max(run.tally.served or (), key=lambda each: each.number)
    assert second.queue_s == pytest.approx(1.4 + 39)


def test_what_can_never_fit_is_refused() -> None:
    result = simulate(
        Fleet(Pool(TIMES, 128)),
        replay(
            [SimulatedRequest(0, 0.0, 200, 5), SimulatedRequest(1, 0.0, 100, 30), SimulatedRequest(2, 0.0, 100, 29)]
        ),
    )
    assert result.outcome.refused == {TOO_LONG: 2}
    assert result.outcome.finished == 1


def test_overload_piles_up_and_is_accounted_for() -> None:
    traffic = OpenLoop(Poisson(5.0), 2000, Fixed(100), Fixed(10))
    fleet = Fleet(Pool(TIMES, 10_000, Scheduler("chunked", sequences=8)))
    whole = simulate(fleet, traffic)
    assert whole.outcome.finished == 2000
    assert whole.latency["queue_s"].p99.value > 1000
    cut = simulate(fleet, traffic, SimulationOptions(until_s=200.0))
    assert cut.seconds == 200.0
    assert cut.outcome.unfinished == cut.outcome.arrived - cut.outcome.finished > 500
    assert cut.throughput.output_tokens_per_s == pytest.approx(whole.throughput.output_tokens_per_s, rel=0.05)


def test_a_bounded_queue_refuses() -> None:
    traffic = OpenLoop(Poisson(5.0), 500, Fixed(100), Fixed(10))
    result = simulate(Fleet(Pool(TIMES, 10_000, Scheduler("chunked", sequences=8)), queue_limit=10), traffic)
    assert result.outcome.refused[QUEUE_FULL] + result.outcome.finished == 500
    assert result.latency["queue_s"].most < 40


def no_traffic() -> SimulationResult:
    return simulate(Fleet(Pool(TIMES, 1000)), OpenLoop(Poisson(1.0), 0, Fixed(1), Fixed(1)))


def test_no_traffic_is_an_answer() -> None:
    result = no_traffic()
    assert (result.outcome.arrived, result.seconds, result.utilisation) == (0, 0.0, 0.0)
    assert result.latency["ttft_s"].count == 0
    assert result.throughput.requests_per_s == 0


def test_clients_that_start_together_are_batched_together() -> None:
    traffic = ClosedLoop(4, 12, Fixed(100), Fixed(11))
    result = simulate(Fleet(Pool(TIMES, 10_000, Scheduler("chunked"))), traffic, SimulationOptions(keep=True))
    assert result.seconds == pytest.approx(3 * (5.0 + 10))
    assert {round(each.ttft_s, 9) for each in result.served} == {5.0}


def test_clients_think_and_ramp() -> None:
    traffic = ClosedLoop(2, 4, Fixed(100), Fixed(1), think_s=10.0, ramp_s=6.0)
    stories = simulate(Fleet(Pool(TIMES, 10_000)), traffic, SimulationOptions(keep=True)).served
    assert [each.arrival_s for each in stories] == pytest.approx([0.0, 3.0, 12.0, 15.0])


def test_overhead_delays_the_first_token() -> None:
    fleet = Fleet(Pool(TIMES, 10_000), overhead_s=0.25)
    (one,) = simulate(fleet, replay([SimulatedRequest(0, 1.0, 100, 1)]), SimulationOptions(keep=True)).served
    assert one.ttft_s == pytest.approx(2.25)


@pytest.mark.parametrize(("draft", "acceptance"), [(1, 0.5), (3, 0.8), (5, 0.95), (4, 0.0), (4, 1.0)])
def test_speculation_gives_its_mean_tokens(draft: int, acceptance: float) -> None:
    scheduler = Scheduler("chunked", draft=draft, acceptance=acceptance)
    times = LinearTimes(1.0, draft_s=0.125)
    traffic = OpenLoop(AtOnce(), 200, Fixed(10), Fixed(500))
    result = simulate(Fleet(Pool(times, 1_000_000, scheduler)), traffic)
    mean = tokens_per_loop(acceptance, draft)
    assert result.tokens_per_verify_step == pytest.approx(mean, rel=0.02)
    assert result.latency["tpot_s"].mean.value == pytest.approx((1 + 0.125 * draft) / mean, rel=0.03)


def test_a_run_is_a_function_of_its_seed() -> None:
    fleet = Fleet(Pool(TIMES, 1000, Scheduler("chunked", draft=2, acceptance=0.6)))
    traffic = OpenLoop(Poisson(0.1), 50, Fixed(100), Fixed(30))
    one, same, other = (simulate(fleet, traffic, SimulationOptions(seed=seed, keep=True)) for seed in (1, 1, 2))
    assert one == same
    assert one.served != other.served


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Scheduler("magic"), "no engine 'magic'"),
        (lambda: Scheduler(sequences=0), "at least 1"),
        (lambda: Scheduler(acceptance=1.5), "probability"),
        (lambda: Pool(TIMES, 5), "less than one page"),
        (lambda: Pool(TIMES, 1000, router="best"), "no router 'best'"),
        (lambda: Poisson(0.0), "not above 0"),
        (lambda: Fixed(0), "at least 1"),
        (lambda: ClosedLoop(0, 1, Fixed(1), Fixed(1)), "at least 1 client"),
        (lambda: SimulationOptions(warmup=0.6, cooldown=0.5), "leave some"),
        (lambda: OpenLoop(Poisson(1.0), -1, Fixed(1), Fixed(1)), "0 or more"),
    ],
)
def test_wrong_input_is_said_in_a_sentence(wrong, says: str) -> None:
    with pytest.raises(InputError, match=says):
        wrong()
