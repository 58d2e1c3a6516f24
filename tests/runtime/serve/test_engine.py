"""The engine over a fake device (`fake_device`): whatever is batched, chunked, preempted or cancelled, every request
gets what it gets alone, and after each step nothing is lost."""

import random

import pytest
from msgspec.structs import replace

from dragonscale.errors import InputError
from dragonscale.runtime.serve.engine import EngineDead, ServingEngine
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling
from dragonscale.runtime.serve.steps import EngineLimits, shapes_for
from tests.runtime.serve.fake_device import VOCAB, FakeRunner, FakeSampler, alone, salt
from tests.runtime.serve.invariants import check_engine


def engine(role: str = "both", prefixes: bool = True, kinds: int = 1000, **limits: int) -> ServingEngine:
    given = EngineLimits(**({"pages": 40, "page": 4, "sequences": 6, "tokens": 16, "length": 64} | limits))
    runner = FakeRunner(given)
    return ServingEngine(
        runner,
        FakeSampler(given, kinds),
        given,
        shapes_for(given),
        role=role,
        prefixes=prefixes,
    )


def request(dice: random.Random, number: int, longest: int = 64, deadline: float = 0.0) -> GenerateRequest:
    prompt = [7] * dice.choice([0, 4, 9, 17]) + [dice.randrange(3) for _ in range(dice.randint(1, 20))]
    length = dice.randint(1, max(1, longest - len(prompt)) if dice.random() < 0.2 else 12)
    ends = [dice.randrange(1000) for _ in range(dice.choice([0, 0, 60]))]
    return GenerateRequest(
        id=f"r{number}", prompt=prompt, length=length, ends=ends, least=dice.choice([0, 3]), deadline=deadline
    )


def serve(
    made: ServingEngine, requests: list[GenerateRequest], dice: random.Random, cancels: float = 0.0
) -> dict[str, tuple[list[int], str]]:
    """Feeds requests at random times and gathers what is said; invariants are checked after each step."""
    left, told = list(reversed(requests)), {r.id: ([], "") for r in requests}
    while left or not made.idle:
        while left and len(made.live) < 100 and dice.random() < 0.5:
            made.add(left.pop())
        if made.live and dice.random() < cancels:
            made.cancel(dice.choice(list(made.live)))
        for said in made.step():
            tokens, finish = told[said.id]
            assert not finish, "something was said after the end"
            told[said.id] = (tokens + said.tokens, said.finish)
        check_engine(made)
    assert made.stats()["pages_used"] == 0
    return told


WAYS = [
    {},
    {"pages": 18},
    {"pages": 17, "sequences": 12},
    {"prefixes": False, "pages": 17},
    {"ranks": 3, "pages": 24},
    {"page": 16, "pages": 5},
    {"page": 1, "pages": 80},
    {"tokens": 8, "sequences": 2},
    {"tokens": 1024, "sequences": 32, "pages": 300},
    {"draft": 3, "pages": 20, "kinds": 2},
    {"draft": 2, "kinds": 2, "ranks": 2},
]


@pytest.mark.parametrize("count", [50, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("limits", WAYS, ids=str)
def test_every_request_gets_what_it_gets_alone(limits, count):
    dice = random.Random(str(limits))
    asked = [request(dice, number) for number in range(count)]
    made = engine(**limits)
    told = serve(made, asked, dice, cancels=0.05)
    cancelled = 0
    for r in asked:
        tokens, finish = told[r.id]
        right = alone(r, limits.get("kinds", 1000))
        if finish == "cancelled":
            cancelled += 1
            assert tokens == right[: len(tokens)]
        else:
            assert tokens == right, r
            assert finish == ("stop" if right[-1] in r.ends and len(right) > r.least else "length")
    assert 0 < cancelled < len(asked) / 2
    if "draft" in limits:
        assert 50 < made.accepted < made.drafted / 2
    if limits.get("pages") == 17:
        assert made.scheduler.preemptions > 0, "the pool was not small enough to test anything"


def test_requests_handed_from_a_prefill_engine_to_a_decode_engine_end_as_alone():
    dice = random.Random(5)
    asked = [request(dice, number) for number in range(60)]
    prefill, decode = engine("prefill", pages=30), engine("decode", pages=20)
    left, told, finish = list(reversed(asked)), {r.id: [] for r in asked}, {}
    by_id = {r.id: r for r in asked}
    while left or not (prefill.idle and decode.idle):
        if left and dice.random() < 0.5:
            prefill.add(left.pop())
        for said in prefill.step():
            told[said.id] += said.tokens
            finish[said.id] = said.finish
            if said.finish == "handover":
                assert said.handed.computed == len(by_id[said.id].prompt)
                decode.add(by_id[said.id], said.handed)
        for said in decode.step():
            told[said.id] += said.tokens
            finish[said.id] = said.finish
        check_engine(prefill)
        check_engine(decode)
    assert told == {r.id: alone(r) for r in asked}
    assert set(finish.values()) == {"stop", "length"}
    assert prefill.stats()["pages_used"] == decode.stats()["pages_used"] == 0


def test_a_failed_step_fails_its_requests_and_no_others():
    dice = random.Random(6)
    asked = [request(dice, number) for number in range(80)]
    made = engine()
    made.runner.fail_at = {9, 30, 31, 70}
    told = serve(made, asked, dice)
    failed = [r for r in asked if told[r.id][1] == "error"]
    assert 0 < len(failed) < 40
    assert not made.dead
    for r in asked:
        tokens, right = told[r.id][0], alone(r)
        assert tokens == (right[: len(tokens)] if r in failed else right)


def test_a_request_that_cannot_enter_leaves_those_beside_it_whole():
    """The step that was planned with it never runs: tokens that it was to give are not waited for."""
    made, fine = engine(), GenerateRequest(id="fine", prompt=[1] * 20, length=9)
    admit = made.sampler.admit

    def fails(rank, slot, request, output):
        if request.id == "torn":
            raise ValueError("half a file")
        admit(rank, slot, request, output)

    made.sampler.admit = fails
    made.add(fine)
    said = made.step()  # the second step would end its prompt
    made.add(GenerateRequest(id="torn", prompt=[2] * 5, length=9))
    said += [one for _ in range(30) for one in made.step()]
    check_engine(made)
    assert [token for one in said if one.id == "fine" for token in one.tokens] == alone(fine)
    assert [one.finish for one in said if one.id == "torn"] == ["error"]
    assert made.idle


def test_what_cannot_be_read_is_an_error_of_its_request_alone():
    """The fake device tells no log probabilities: reading them fails on the host."""
    made, fine = engine(), GenerateRequest(id="fine", prompt=[1] * 20, length=9)
    made.add(fine)
    made.add(GenerateRequest(id="unread", prompt=[2] * 9, length=9, sampling=Sampling(logprobs=1)))
    told = {"fine": [], "unread": []}
    for _ in range(30):
        for one in made.step():
            told[one.id].append(one)
        check_engine(made)
    assert [(one.finish, "could not be read" in one.why) for one in told["unread"]] == [("error", True)]
    assert [token for one in told["fine"] for token in one.tokens] == alone(fine)
    assert made.idle


def test_deadlines_of_requests_that_ended_are_not_kept():
    made = engine()
    for number in range(1_100):
        made.add(GenerateRequest(id=str(number), prompt=[1], length=1, deadline=1e12 + number))
        if number != 7:
            made.cancel(str(number))
    made.step()
    assert made.deadlines == [(1e12 + 7, "7")]


def test_an_engine_whose_device_is_gone_says_so(capsys):
    made = engine()
    made.runner.fail_at = set(range(3, 100))
    for number in range(30):
        made.add(GenerateRequest(id=str(number), prompt=[1, 2, 3], length=20))
    said = []
    while not made.idle:
        said += made.step()
        check_engine(made)
    assert sum(one.finish == "error" for one in said) == 30
    assert all("the server's log says why" in one.why for one in said if one.finish)
    assert "device lost" in capsys.readouterr().err  # what a driver says is for the log, not for clients
    with pytest.raises(EngineDead, match="its device fails"):
        made.add(GenerateRequest(id="late", prompt=[1]))


@pytest.mark.parametrize(
    ("prompt", "length", "why"),
    [
        ([], 4, "at least one token"),
        ([1], 0, "at least one"),
        ([1] * 60, 5, "more than the 64"),
        ([1] * 40, 9, "12 pages"),
    ],
)
def test_what_can_never_fit_is_refused(prompt, length, why):
    made = engine(pages=13)
    with pytest.raises(InputError, match=why):
        made.add(GenerateRequest(id="x", prompt=prompt, length=length))
    assert made.idle


def test_a_known_id_and_a_deadline():
    now = [0.0]
    made = engine()
    made.clock = lambda: now[0]
    made.add(GenerateRequest(id="a", prompt=[1], length=60, deadline=5.0))
    made.add(GenerateRequest(id="b", prompt=[1], length=3))
    with pytest.raises(InputError, match="already"):
        made.add(GenerateRequest(id="a", prompt=[1]))
    said = [one for _ in range(10) for one in made.step()]
    assert [one.finish for one in said if one.id == "b"][-1] == "length"
    now[0] = 5.0
    assert [(one.id, one.finish) for one in made.step() if one.finish] == [("a", "deadline")]
    made.step()
    check_engine(made)
    assert made.idle


def test_prompts_computed_before_are_found_again_and_equal_ones_wait_for_each_other():
    made = engine(page=4, pages=40, tokens=64, length=64)
    prompt = list(range(30))
    for number in range(4):
        made.add(GenerateRequest(id=str(number), prompt=prompt, length=2))
    said = {one.id: one for _ in range(12) for one in made.step()}
    assert sorted(one.cached for one in said.values()) == [0, 28, 28, 28]
    made.add(GenerateRequest(id="aligned", prompt=prompt[:28], length=1))
    assert [one.cached for _ in range(3) for one in made.step()] == [24], "the last token is always computed"


def test_an_embedding_is_the_last_hidden_state():
    made = engine()
    prompt = [5, 6, 7] * 9
    made.add(GenerateRequest(id="e", prompt=prompt, embed=True))
    made.add(GenerateRequest(id="t", prompt=[1], length=9))
    said = [one for _ in range(20) for one in made.step()]
    (embedded,) = (one for one in said if one.id == "e")
    assert (embedded.finish, embedded.tokens) == ("stop", [])
    token = (int(embedded.embedding[0]) + salt(GenerateRequest(id="e", prompt=prompt))) % VOCAB % 1000
    assert [token] == alone(GenerateRequest(id="e", prompt=prompt, length=1))


class SpelledGrammar:
    """A grammar that allows what its sequence says anyway; it notes what was taken, and ends after some tokens."""

    def __init__(self, order, most):
        self.order, self.most, self.taken, self.error = order, most, [], ""

    def take(self, token):
        self.taken.append(token)
        self.order.append("take")

    @property
    def complete(self):
        return len(self.taken) >= self.most


class SpelledGrammars:
    def __init__(self):
        self.order, self.begun = [], []

    def begin(self, grammar):
        self.begun.append(SpelledGrammar(self.order, int(grammar[1])))
        return self.begun[-1]

    def masks(self, _ranks, _rows, held):
        self.order.append("mask")
        assert not any(one.complete for one in held.values()), "a text that is over is held to nothing"
        return held


@pytest.mark.parametrize("fails", [(), (9, 20)])
def test_grammars_are_read_while_the_device_computes_and_nobody_waits(fails):
    dice, made = random.Random(11), engine()
    made.grammars = held = SpelledGrammars()
    run, sample = made.runner.run, made.sampler.sample
    made.runner.run = lambda *given: held.order.append("run") or run(*given)
    made.sampler.sample = lambda *given: held.order.append("sample") or sample(*given)
    made.runner.fail_at = set(fails)
    asked = [request(dice, number) for number in range(30)]
    own = [replace(one, sampling=Sampling(grammar=("regex", "4")), ends=[]) for one in asked[::2]]
    told = serve(made, own + asked[1::2], dice)
    failed = {id for id, (_, finish) in told.items() if finish == "error"}
    assert bool(failed) == bool(fails)
    for one in own:
        tokens, right = told[one.id][0], alone(one)[:4]
        assert tokens == (right[: len(tokens)] if one.id in failed else right)
    for one in asked[1::2]:
        assert one.id in failed or told[one.id][0] == alone(one)
    steps = " ".join(held.order).split("run ")
    assert any(step.startswith("take") and step.endswith("mask sample ") for step in steps)  # behind the next launch
    assert not any("mask take" in step for step in steps)
