"""A model served by the engine says what it says alone: greedy output under batching, chunks, pages of any size, the
prefix cache, preemption, drafts and hand-over is the forward pass's."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.forward import forward  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import abstract  # noqa: E402
from dragonscale.runtime.serve.engine import ServingEngine  # noqa: E402
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling  # noqa: E402
from dragonscale.runtime.serve.runner import ModelRunner  # noqa: E402
from dragonscale.runtime.serve.sampling import FILTERED, GREEDY, PLAIN, SHAPED, Sampler  # noqa: E402
from dragonscale.runtime.serve.speculation import DraftModel  # noqa: E402
from dragonscale.runtime.serve.steps import EngineLimits, StepShape  # noqa: E402
from dragonscale.serving.engine.plan import parse_serving_plan  # noqa: E402
from tests.runtime.serve.invariants import check_engine  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

slow = pytest.mark.slow
LENGTH, NEW = 40, 8
WAYS: dict[str, dict[str, Any]] = {
    "alone": {"sequences": 1},
    "batched": {},
    "chunks of 8": {"tokens": 8},
    "preempted": {"pages": 12},
    "small pages, no prefixes": {"page": 2, "pages": 60, "prefixes": False},
    "drafts": {"draft": 2},
}


class Served:
    """A tiny model with random weights, and what its forward pass goes on with."""

    def __init__(self, name: str, seed: int = 0, layers: int = 2) -> None:
        self.config = {**CONFIGS[name], "num_hidden_layers": layers, "vocab_size": 32}
        if layers == 1:
            self.config["first_k_dense_replace"] = 0
        self.program, self.numerics = load_config(self.config).program(), read_numerics(self.config)
        deal = numpy.random.default_rng(seed)
        self.weights = jax.tree.map(lambda a: deal.standard_normal(a.shape).astype("f4") / 6, abstract(self.program))
        if name in ("gemma2", "tied"):  # else a token that looks most like its own embedding is said again and again
            self.weights["embed"] = jax.tree.map(lambda a: a / 10, self.weights["embed"])
        start = deal.integers(0, 32, 12).tolist()
        self.prompts = [
            start[:size] + deal.integers(0, 32, more).tolist()
            for size, more in [(12, 9), (12, 3), (0, 1), (5, 20), (12, 9), (8, 5)]
        ]

        self.whole = jax.jit(lambda weights, ids: forward(weights, self.program, ids, PassSetting(self.numerics)))

    def logits(self, tokens: list[list[int]]) -> numpy.ndarray:
        padded = numpy.zeros((len(self.prompts), LENGTH), numpy.int32)
        for row, known in enumerate(tokens):
            padded[row, : len(known)] = known
        return numpy.asarray(self.whole(self.weights, padded))

    def greedy(self) -> list[list[int]]:
        tokens = list(self.prompts)
        for _ in range(NEW):
            logits = self.logits(tokens)
            tokens = [[*known, int(row[len(known) - 1].argmax())] for known, row in zip(tokens, logits, strict=True)]
        return [known[-NEW:] for known in tokens]

    def engine(
        self, plan: str = "tensor=1", role: str = "both", devices: Any = None, fresh: bool = True, **way: Any
    ) -> ServingEngine:
        serving = parse_serving_plan(plan)
        prefixes = way.pop("prefixes", True)
        usual = {"pages": 40, "page": 4, "sequences": 4, "tokens": 32, "length": LENGTH, "ranks": serving.data}
        limits = EngineLimits(**(usual | way))
        self.given = (self.program, self.numerics, serving, (devices or jax.devices())[: serving.chips])
        runner = ModelRunner(*self.given, self.weights, limits, jnp.float32)
        sampler = Sampler(limits, 32, runner.mesh)
        n, q, t = limits.sequences, 1 + limits.draft, limits.tokens
        shapes = [StepShape(n), StepShape(n, q, 4, t), *([StepShape(n, q)] if q > 1 else [])]
        shapes += [StepShape(0, 1, 1, t, True)] if fresh else []
        runner.compile(shapes, moves=False)
        return ServingEngine(runner, sampler, limits, shapes, prefixes=prefixes, role=role)

    def requests(self) -> list[GenerateRequest]:
        greedy = Sampling(temperature=0)
        return [
            GenerateRequest(id=str(i), prompt=prompt, length=NEW, sampling=greedy)
            for i, prompt in enumerate(self.prompts)
        ]


def run(engine: ServingEngine, requests: list[GenerateRequest], spoil: int = -1) -> list[list[int]]:
    """What the engine says to each request. Before step `spoil` the cache is lost."""
    said: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    for step in range(1000):
        if step == spoil:
            jax.tree.map(lambda array: array.delete(), engine.runner.cache)
        for one in engine.step():
            said[one.id] += one.tokens
            assert bool(one.why) == (spoil >= 0 and one.finish == "error")
        check_engine(engine)
        if engine.idle:
            break
    assert engine.stats()["pages_used"] == 0
    return list(said.values())


TIGHT: dict[str, Any] = {"tokens": 16, "pages": 14, "sequences": 3}


@pytest.fixture(scope="module", params=[pytest.param("mistral", marks=slow), "deepseek-v3"])
def tight(request: Any) -> tuple[Served, ServingEngine]:
    model = Served(request.param, layers=1)
    return model, model.engine(fresh=False, **TIGHT)


def test_greedy_output_in_a_tight_engine_is_the_forward_pass(tight: tuple[Served, ServingEngine]) -> None:
    model, engine = tight
    assert run(engine, model.requests()) == model.greedy()
    assert engine.scheduler.preemptions > 0
    assert engine.scheduler.hits > 0


def test_log_probabilities_of_prompt_and_output_are_the_forward_pass(tight: tuple[Served, ServingEngine]) -> None:
    model, engine = tight
    sampling = Sampling(temperature=0, logprobs=2)
    for number, prompt in enumerate(model.prompts):
        engine.add(GenerateRequest(id=str(number), prompt=prompt, length=3, sampling=sampling, prompt_logprobs=3))
    rows = {str(number): ([], []) for number in range(len(model.prompts))}
    while not engine.idle:
        for one in engine.step():
            rows[one.id][0].extend(one.prompt_logprobs)
            rows[one.id][1].extend(one.logprobs)
        check_engine(engine)
    said = [[*prompt, *(one.token for one in rows[str(i)][1])] for i, prompt in enumerate(model.prompts)]
    logs = numpy.asarray(jax.nn.log_softmax(model.logits(said), -1))
    for row, (prompt, tokens) in enumerate(zip(model.prompts, said, strict=True)):
        scored, chosen = rows[str(row)]
        assert scored[0] is None
        assert (len(scored), len(chosen)) == (len(prompt), 3)
        for at, one in enumerate([*scored[1:], *chosen]):
            likeliest = numpy.argsort(-logs[row, at])[: 3 if at + 1 < len(prompt) else 2].tolist()
            assert one.token == tokens[at + 1]
            assert one.logprob == pytest.approx(logs[row, at, one.token], abs=1e-4)
            assert one.top == [(token, pytest.approx(logs[row, at, token], abs=1e-4)) for token in likeliest]


def test_a_warm_start_runs_every_program_and_leaves_nothing_behind() -> None:
    model = Served("llama", layers=1)
    engine = model.engine()
    ran, levels, step, sample = [], [], engine.runner.run, engine.sampler.sample
    engine.runner.run = lambda batch, last: (ran.append(batch.shape), step(batch, last))[1]
    engine.sampler.sample = lambda logits, batch: (levels.append(engine.sampler.level(batch)), sample(logits, batch))[1]
    engine.warm()
    assert set(ran) == set(engine.scheduler.packer.shapes)
    assert levels == [GREEDY, PLAIN, FILTERED, SHAPED] * len(ran)
    engine.sampler.sample = sample
    assert run(engine, model.requests()) == model.greedy()


@slow
@pytest.mark.parametrize("name", [*CONFIGS])
def test_greedy_output_is_the_same_in_every_way_of_serving(name: str, eight: list[Any]) -> None:
    model = Served(name)
    right = model.greedy()
    for way, given in WAYS.items():
        made = model.engine(devices=eight, **given)
        assert run(made, model.requests()) == right, way
        assert way != "preempted" or made.scheduler.preemptions
        assert way != "drafts" or made.accepted > 0


@slow
@pytest.mark.parametrize("name", ["llama", "deepseek-v3", "mistral", "mixtral"])
def test_a_prefill_engine_hands_over_to_a_decode_engine(name: str) -> None:
    model = Served(name)
    prefill, decode = model.engine(role="prefill"), model.engine(role="decode", pages=16)
    prefill.runner.compile([])
    decode.runner.compile([])
    requests = {request.id: request for request in model.requests()}
    said = {id: [] for id in requests}
    for request in requests.values():
        prefill.add(request)
    while not (prefill.idle and decode.idle):
        for one in prefill.step():
            said[one.id] += one.tokens
            decode.add(requests[one.id], one.handed)
        for one in decode.step():
            said[one.id] += one.tokens
        check_engine(prefill)
        check_engine(decode)
    assert list(said.values()) == model.greedy()


@slow
def test_a_draft_model_changes_nothing() -> None:
    model, other = Served("llama"), Served("llama", seed=1)
    for small in (model, other):  # one whose drafts are all right, one whose drafts are not
        engine = model.engine(draft=2)
        drafter = DraftModel(ModelRunner(*model.given, small.weights, engine.limits, jnp.float32), engine.sampler)
        drafter.compile(engine.scheduler.packer.shapes)
        engine.drafter = drafter
        assert run(engine, model.requests()) == model.greedy()
        assert engine.accepted / engine.drafted > 0.7 if small is model else engine.accepted < engine.drafted / 2


@slow
def test_a_lost_cache_fails_one_step_and_the_rest_is_computed_again() -> None:
    model = Served("llama")
    engine = model.engine(sequences=2)
    said, right = run(engine, model.requests(), spoil=5), model.greedy()
    failed = [found != wanted for found, wanted in zip(said, right, strict=True)]
    assert 0 < sum(failed) <= 2
    assert all(found == wanted[: len(found)] for found, wanted in zip(said, right, strict=True))
    assert not engine.dead


@slow
@pytest.mark.parametrize("plan", ["tensor=2,data=2", "data=2"])
def test_ranks_and_tensor_shards_say_the_same(plan: str, eight: list[Any]) -> None:
    model = Served("qwen2")
    assert run(model.engine(plan, devices=eight, **TIGHT), model.requests()) == model.greedy()
