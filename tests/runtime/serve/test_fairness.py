"""One client with very many requests waits for itself; others are next."""

import random

import pytest

pytest.importorskip("jax")

from msgspec.structs import replace

from dragonscale.runtime.serve.client_queue import ClientQueue
from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.server.front import Overfull, ServingFront
from dragonscale.runtime.server.wire import WorkerOrder
from tests.runtime.serve.fake_device import alone
from tests.runtime.serve.test_engine import engine, request


def test_a_queue_loses_nobody() -> None:
    """Whatever comes, goes and comes back, each client's items keep their order."""
    dice = random.Random(3)
    queue: ClientQueue[tuple[str, int]] = ClientQueue(lambda item: item[0])
    there: list[tuple[str, int]] = []
    for number in range(2000):
        act = dice.random()
        if act < 0.5 or not there:
            there.append((dice.choice("abc"), number))
            queue.append(there[-1])
        elif act < 0.8:
            first = queue.first
            assert queue.popleft() == first
            there.remove(first)
            if dice.random() < 0.2:
                queue.appendleft(first)
                assert queue.first == first
                assert queue.popleft() == first
            assert all(item > first for item in there if item[0] == first[0])
        else:
            queue.remove(there.pop(dice.randrange(len(there))))
        assert len(queue) == len(there) == len(list(queue))
    assert sorted(queue) == sorted(there)


def test_the_next_slot_is_that_of_a_client_who_waits_longest() -> None:
    dice, made = random.Random(5), engine()
    flood = [replace(request(dice, number), client="10.0.0.1") for number in range(60)]
    honest = replace(request(dice, 100), client="10.0.0.2")
    for one in (*flood, honest):
        made.add(one)
    ends: list[str] = []
    tokens: list[int] = []
    while not made.idle:
        for emitted in made.step():
            tokens += emitted.tokens if emitted.id == honest.id else []
            ends += [emitted.id] if emitted.finish else []
    assert len(ends) == 61
    assert tokens == alone(honest)
    slots = made.limits.sequences * made.limits.ranks
    # it got a slot before most of the flood did; how long it runs is its own affair
    assert ends.index(honest.id) < 3 * slots


def test_a_client_with_little_finds_room_when_another_has_filled_it() -> None:
    front = ServingFront([WorkerOrder(model="fake", length=256, sequences=4, tokens=64, pages=200, page=4)], queue=28)
    assert (front.most, front.reserve) == (32, 4)

    def ask(id: str, client: str) -> None:
        front.generate(GenerateRequest(id=id, prompt=[1], length=4, client=client))

    for number in range(32):
        ask(f"a{number}", "10.0.0.1")
    with pytest.raises(Overfull):
        ask("more", "10.0.0.1")
    for number in range(4):
        ask(f"b{number}", "10.0.0.2")
    with pytest.raises(Overfull):
        ask("b4", "10.0.0.2")
    with pytest.raises(Overfull):
        ask("c", "10.0.0.3")
    front.leave(front.flights["a0"])
    ask("c", "10.0.0.3")
    for flight in list(front.flights.values()):
        front.leave(flight)
    assert not front.by_client
