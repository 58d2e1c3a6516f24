"""A run ends when nothing but its own clockwork is left."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dragonscale.simulation import Autoscale, Fleet, Pool, Scheduler, SimulatedRequest, SimulationOptions
from dragonscale.simulation.admission import admit
from dragonscale.simulation.loop import Simulation
from tests.simulation.fleets import EXACT, replay

POOL = Pool(EXACT, 4096, Scheduler(sequences=4, tokens=128))
REQUESTS = [SimulatedRequest(number, float(number), 64, 8) for number in range(8)]


class Counted(Simulation):
    """A run whose looks of the autoscaler are counted, and which refuses to go on looking for ever."""

    looks = 0

    def _scale(self, group_index: int, now: float) -> None:
        self.looks += 1
        assert self.looks < 100, "the autoscaler still looks although nothing is left to happen"
        super()._scale(group_index, now)


def test_the_autoscaler_looks_until_the_last_request_has_left() -> None:
    rule = Autoscale(1, 2, target=4.0, startup_s=0.5, every_s=1.0)
    run = Counted(Fleet(replace(POOL, autoscale=rule)), replay(REQUESTS), SimulationOptions(keep=True))
    run.go()
    assert 7 <= run.looks <= 12  # every second until the last arrival at 7 s, and until its output is there
    assert run.ticks == 0


def sequence(todo: int) -> Any:
    """A prompt in progress."""
    return SimpleNamespace(todo=todo)


def replica(scheduler: Scheduler, prefilling: list[Any], **changes: Any) -> Any:
    """A replica with these prompts in progress and an empty queue."""
    state = {
        "static": False,
        "scheduler": scheduler,
        "batch": SimpleNamespace(members=[]),
        "prefilling": prefilling,
        "beside": True,
        "sizes": (),
        "queries": 1,
        "waiting": [],
        "iterations": 0,
        "extra": False,
        "sharing": False,
    }
    return SimpleNamespace(**state | changes)


@pytest.mark.parametrize(
    ("tokens", "ranks", "todos", "expected"),
    [
        (8, 1, [5, 9], [5, 3]),  # the budget ends within the second
        (8, 2, [5, 9], [4, 4]),  # a rank's share
        (8, 2, [9, 9, 9], [4, 4]),
        (2, 4, [5], [1]),  # a budget below the ranks gives a token all the same
        (8, 1, [8, 1], [8]),
    ],
)
def test_a_chunk_is_at_most_the_share_of_one_rank(
    tokens: int, ranks: int, todos: list[int], expected: list[int]
) -> None:
    state = replica(Scheduler(tokens=tokens, ranks=ranks), [sequence(todo) for todo in todos])
    assert [chunk for _, chunk in admit(state, 0.0, 0, False)] == expected


@pytest.mark.parametrize(
    ("todos", "expected"), [([5, 10], [5, 10]), ([100, 100, 100], [100, 100, 56]), ([300], [256]), ([256, 1], [256])]
)
def test_an_iteration_of_a_compiled_size_computes_as_many_tokens_as_that(todos: list[int], expected: list[int]) -> None:
    state = replica(Scheduler(tokens=256, chunk=256), [sequence(todo) for todo in todos], sizes=(256,))
    assert [chunk for _, chunk in admit(state, 0.0, 0, False)] == expected
