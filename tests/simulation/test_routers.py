"""Routers one request at a time, before replicas that stand still."""

from dataclasses import dataclass

import pytest

from dragonscale.simulation import Fleet, LinearTimes, Pool, Scheduler, SimulatedRequest, SimulationOptions, simulate
from dragonscale.simulation.router import Router
from tests.simulation.fleets import replay


@dataclass
class StillReplica:
    """A replica with so many requests and tokens to prefill; a prompt's token takes `pace` seconds."""

    index: int
    load: float = 0
    unprefilled: int = 0
    pace: float = 1.0
    full: bool = False

    def predict(self, tokens: int, now: float) -> float:
        return self.pace * (self.unprefilled + tokens) + 0 * now


def asked(*blocks: int) -> SimulatedRequest:
    return SimulatedRequest(0, 0.0, 16 * max(len(blocks), 1), 1, blocks, 16)


def chosen(router: Router, replicas: list[StillReplica], request: SimulatedRequest) -> int:
    return router.choose(replicas, request, request.input_tokens, 0.0).index


def test_fewest_tokens_to_prefill_come_before_fewest_requests() -> None:
    replicas = [StillReplica(0, 1, 500), StillReplica(1, 9, 100), StillReplica(2, 8, 100)]
    assert chosen(Router("least_loaded"), replicas, asked()) == 2


def test_a_full_replica_is_given_a_request_only_where_all_are() -> None:
    replicas = [StillReplica(0, 8, 500), StillReplica(1, 9, 0, full=True)]
    assert chosen(Router("least_loaded"), replicas, asked()) == 0
    replicas[0].full = True
    assert chosen(Router("least_loaded"), replicas, asked()) == 1


@pytest.mark.parametrize(
    ("home_load", "other_load", "stays"),
    [
        (30, 0, True),  # many times more, but no 32 requests more
        (33, 0, False),
        (140, 100, True),  # 40 more, but not half as many again
        (151, 100, False),
    ],
)
def test_a_prefix_holds_a_request_until_its_replica_is_much_busier(
    home_load: int, other_load: int, stays: bool
) -> None:
    router, replicas = Router("prefix_affinity"), [StillReplica(0), StillReplica(1)]
    home = chosen(router, replicas, asked(1, 2))
    replicas[home].load, replicas[1 - home].load = home_load, other_load
    replicas[home].unprefilled = 10
    assert (chosen(router, replicas, asked(1, 2, 3)) == home) == stays


def test_the_longest_known_prefix_decides() -> None:
    router, replicas = Router("prefix_affinity"), [StillReplica(0), StillReplica(1)]
    first = chosen(router, replicas, asked(1))
    replicas[first].unprefilled = 10
    replicas[first].load = 100
    second = chosen(router, replicas, asked(7, 8))
    assert second != first
    replicas[first].load = 0
    assert chosen(router, replicas, asked(7, 8, 9)) == second
    assert chosen(router, replicas, asked(1, 5)) == first


def test_a_predicted_first_token_counts_cached_blocks() -> None:
    """Two blocks of 16 are with the first replica, so 16 of 48 tokens are left there, and it may be 31 tokens
    busier."""
    router, replicas = Router("slo_aware"), [StillReplica(0), StillReplica(1, unprefilled=1)]
    assert chosen(router, replicas, asked(1, 2)) == 0
    replicas[1].unprefilled, replicas[0].unprefilled = 0, 31
    assert chosen(router, replicas, asked(1, 2, 3)) == 0
    router, replicas = Router("slo_aware"), [StillReplica(0), StillReplica(1, unprefilled=1)]
    assert chosen(router, replicas, asked(1, 2)) == 0
    replicas[1].unprefilled, replicas[0].unprefilled = 0, 33
    assert chosen(router, replicas, asked(1, 2, 3)) == 1


def test_drafts_take_their_part_of_the_budget() -> None:
    """Of 20 tokens an iteration has 16 left beside one sequence with three drafts: a prompt of 32 takes two
    iterations, of 33 three."""
    times = LinearTimes(1.0)
    for prompt, iterations in ((32, 2), (33, 3)):
        calls = [SimulatedRequest(0, 0.0, 16, 40), SimulatedRequest(1, 1.5, prompt, 1)]
        pool = Pool(times, 10_000, Scheduler(tokens=20, draft=3, acceptance=0.0))
        stories = {one.number: one for one in simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True)).served}
        assert stories[1].ttft_s == pytest.approx(0.5 + iterations)


def test_a_request_as_long_as_the_context_is_refused() -> None:
    """A context of 100 has room for a prompt of 90 and ten more tokens, of which the last needs none itself."""
    for output, served in ((10, 1), (11, 0)):
        fleet = Fleet(Pool(LinearTimes(1.0), 1000), context=100)
        result = simulate(fleet, replay([SimulatedRequest(0, 0.0, 90, output)]), SimulationOptions(keep=True))
        assert len(result.served) == served
