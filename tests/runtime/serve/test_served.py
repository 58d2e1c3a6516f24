"""A model served by the engine says what it says alone: greedy output under batching, chunks, pages of any size, the prefix cache,
preemption, drafts and hand-over is the forward pass's."""

from dataclasses import replace
from functools import partial
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
from dragonscale.runtime.serve.requests import HandedOver, Sampling, ServeRequest  # noqa: E402
from dragonscale.runtime.serve.runner import ModelRunner  # noqa: E402
from dragonscale.runtime.serve.sampling import Sampler  # noqa: E402
from dragonscale.runtime.serve.steps import EngineLimits, StepShape  # noqa: E402
from dragonscale.serving.plan import parse_serving_plan  # noqa: E402
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

    def __init__(self, name: str, seed: int = 0) -> None:
        self.config = {**CONFIGS[name], "num_hidden_layers": 2, "vocab_size": 32}
        self.program, self.numerics = load_config(self.config).program(), read_numerics(self.config)
        deal = numpy.random.default_rng(seed)
        self.weights = jax.tree.map(lambda a: deal.standard_normal(a.shape).astype("f4") / 6, abstract(self.program))
        start = deal.integers(0, 32, 12).tolist()
        self.prompts = [
            start[:size] + deal.integers(0, 32, more).tolist()
            for size, more in [(12, 9), (12, 3), (0, 1), (5, 20), (12, 9), (8, 5)]
        ]

    def greedy(self) -> list[list[int]]:
        tokens = numpy.zeros((len(self.prompts), LENGTH), numpy.int32)
        sizes = [len(prompt) for prompt in self.prompts]
        for row, prompt in enumerate(self.prompts):
            tokens[row, : len(prompt)] = prompt
        whole = jax.jit(lambda weights, ids: forward(weights, self.program, ids, PassSetting(self.numerics)))
        rows = numpy.arange(len(sizes))
        for new in range(NEW):
            at = numpy.array(sizes) + new
            tokens[rows, at] = numpy.asarray(whole(self.weights, tokens))[rows, at - 1].argmax(-1)
        return [tokens[row, size : size + NEW].tolist() for row, size in enumerate(sizes)]

    def engine(self, plan: str = "tensor=1", role: str = "both", devices: Any = None, **way: Any) -> ServingEngine:
        serving = parse_serving_plan(plan)
        prefixes = way.pop("prefixes", True)
        limits = EngineLimits(
            **{
                "pages": 40,
                "page": 4,
                "sequences": 4,
                "tokens": 32,
                "length": LENGTH + way.get("draft", 0),
                "ranks": serving.data,
                **way,
            }
        )
        runner = ModelRunner(
            self.program,
            self.numerics,
            serving,
            (devices or jax.devices())[: serving.chips],
            self.weights,
            limits,
            jnp.float32,
        )
        sampler = Sampler(limits, 32, runner.mesh)
        n, t = limits.sequences, limits.tokens
        shapes = [
            StepShape(n),
            *([StepShape(n, 1 + limits.draft)] if limits.draft else []),
            StepShape(n, 1 + limits.draft, 4, t),
            StepShape(0, 1, 1, t, True),
        ]
        runner.compile(shapes)
        return ServingEngine(runner, sampler, limits, shapes, prefixes=prefixes, role=role)

    def requests(self) -> list[ServeRequest]:
        greedy = Sampling(temperature=0)
        return [
            ServeRequest(id=str(i), prompt=prompt, length=NEW, sampling=greedy) for i, prompt in enumerate(self.prompts)
        ]


def run(engine: ServingEngine, requests: list[ServeRequest]) -> list[list[int]]:
    told = {r.id: [] for r in requests}
    for request in requests:
        engine.add(request)
    while not engine.idle:
        for said in engine.step():
            told[said.id] += said.tokens
            assert not said.why
        engine.check()
    assert engine.stats()["pages_used"] == 0
    return list(told.values())


@pytest.mark.parametrize("name", ["llama"])
def test_it(name):
    import time

    s = Served(name)
    t = time.time()
    right = s.greedy()
    print("ref", time.time() - t, right)
    for way, given in WAYS.items():
        t = time.time()
        e = s.engine(**given)
        t1 = time.time()
        got = run(e, s.requests())
        print(way, t1 - t, time.time() - t1, got == right, e.stats()["preemptions"], e.accepted)
        print(got)
