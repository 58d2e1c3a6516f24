"""The engine over a fake device (`fake_device`): whatever is batched, chunked, preempted or cancelled, every request gets what it gets
alone, and after each step nothing is lost."""

import random

import pytest

from dragonscale.errors import InputError
from dragonscale.runtime.serve.engine import EngineDead, ServingEngine
from dragonscale.runtime.serve.requests import HandedOver, ServeRequest
from dragonscale.runtime.serve.scheduler import EngineFull
from dragonscale.runtime.serve.steps import EngineLimits, StepShape
from tests.runtime.serve.fake_device import FakeRunner, FakeSampler, alone


def shapes(sequences: int, tokens: int) -> list[StepShape]:
    decodes = sorted({1, 4, sequences})
    sizes = [size for size in (8, 16, 64, 256, 1024) if size <= tokens]
    return [
        *(StepShape(decodes=d) for d in decodes),
        *(StepShape(decodes=d, prompts=4, tokens=t) for d in (0, sequences) for t in sizes),
        *(StepShape(prompts=1, tokens=t, fresh=True) for t in sizes),
    ]


def engine(role: str = "both", prefixes: bool = True, queue: int = 1024, **limits: int) -> ServingEngine:
    given = EngineLimits(**({"pages": 40, "page": 4, "sequences": 6, "tokens": 16, "length": 64} | limits))
    runner = FakeRunner(given)
    return ServingEngine(
        runner,
        FakeSampler(given),
        given,
        shapes(given.sequences, given.tokens),
        role=role,
        prefixes=prefixes,
        queue=queue,
    )


def request(dice: random.Random, number: int, longest: int = 64, deadline: float = 0.0) -> ServeRequest:
    prompt = [7] * dice.choice([0, 4, 9, 17]) + [dice.randrange(3) for _ in range(dice.randint(1, 20))]
    length = dice.randint(1, max(1, longest - len(prompt)) if dice.random() < 0.2 else 12)
    ends = [dice.randrange(1000) for _ in range(dice.choice([0, 0, 60]))]
    return ServeRequest(
        id=f"r{number}", prompt=prompt, length=length, ends=ends, least=dice.choice([0, 3]), deadline=deadline
    )


def serve(
    made: ServingEngine, requests: list[ServeRequest], dice: random.Random, cancels: float = 0.0
) -> dict[str, tuple[list[int], str]]:
    """Feeds requests at random times and gathers what is said; invariants are checked after each step."""
    left, told = list(reversed(requests)), {r.id: ([], "") for r in requests}
    while left or not made.idle:
        while left and dice.random() < 0.5:
            made.add(left.pop())
        if made.live and dice.random() < cancels:
            made.cancel(dice.choice(list(made.live)))
        for said in made.step():
            tokens, finish = told[said.id]
            assert not finish, "something was said after the end"
            told[said.id] = (tokens + said.tokens, said.finish)
        made.check()
    assert made.stats()["pages_used"] == 0
    return told


@pytest.mark.parametrize(
    "limits",
    [
        {}, {"pages": 18}, {"pages": 17, "sequences": 12}, {"prefixes": False, "pages": 17}, {"ranks": 3, "pages": 24},
        {"page": 16, "pages": 5}, {"page": 1, "pages": 80}, {"tokens": 8, "sequences": 2}, {"tokens": 1024, "sequences": 32, "pages": 300},
    ],
    ids=str,
)  # fmt: skip
def test_every_request_gets_what_it_gets_alone(limits):
    dice = random.Random(str(limits))
    asked = [request(dice, number) for number in range(150)]
    made = engine(**limits)
    told = serve(made, asked, dice, cancels=0.05)
    cancelled = 0
    for r in asked:
        tokens, finish = told[r.id]
        right = alone(r)
        if finish == "cancelled":
            cancelled += 1
            assert tokens == right[: len(tokens)]
        else:
            assert tokens == right, r
            assert finish == ("stop" if right[-1] in r.ends and len(right) > r.least else "length")
    assert 0 < cancelled < len(asked) / 2
    if limits.get("pages") == 17:
        assert made.scheduler.preemptions > 10, "the pool was not small enough to test anything"
