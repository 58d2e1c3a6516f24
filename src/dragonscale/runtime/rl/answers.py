"""The engine beside the trainer: answers to a step's prompts, from weights that the trainer hands over in memory."""

import time
from typing import Any

import jax
import numpy

from dragonscale.models.program import Program
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.packed_weights import reader_of
from dragonscale.runtime.parameters import Tree
from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.serve.runner import ModelRunner
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.steps import EngineLimits, shapes_for
from dragonscale.serving.engine.plan import ServingPlan

PAGE, BUDGET = 16, 1024
"""Tokens of a page, and of a step at most."""


class Answerer:
    """An engine that holds `together` answers at once, of (`prompt`, output) tokens at most."""

    def __init__(
        self,
        program: Program,
        numerics: Numerics,
        plan: ServingPlan,
        dtype: Any,
        together: int,
        sizes: tuple[int, int],
        seed: int,
    ) -> None:
        each, longest = -(-together // plan.data), sum(sizes)
        pages = each * -(-longest // PAGE) + 1
        budget = max(min(BUDGET, each * sizes[0]), each)
        self.limits = EngineLimits(pages, PAGE, each, budget, longest, ranks=plan.data)
        devices = jax.devices()[: plan.chips]
        self.runner = ModelRunner(program, numerics, plan, devices, None, self.limits, dtype)
        placed = jax.tree.map(lambda one: one.sharding, self.runner.placement.abstract())
        self.pack = jax.jit(self.runner.placement.packed, out_shardings=placed)
        vocabulary = program.sections[0].dims["v"]
        sampler = Sampler(self.limits, vocabulary, self.runner.mesh, seed)
        self.engine = ServingEngine(self.runner, sampler, self.limits, shapes_for(self.limits))

    def take(self, params: Tree) -> None:
        """The weights of a trainer, in the engine's layout and format; what is cached belongs to the old ones."""
        first, self.runner.weights = self.runner.weights is None, None
        near = {*jax.tree.leaves(params)[0].sharding.device_set} == {*self.runner.mesh.devices.flat}
        made = self.pack(params) if near else self.runner.placement.put(reader_of(params))
        self.runner.weights = jax.block_until_ready(made)
        for pool in self.engine.scheduler.pools:
            pool.clear()
        if first:
            self.runner.reset()
            self.runner.compile(moves=False)

    def answer(self, prompts: list[list[int]], samples: int, output: int, ends: list[int]) -> list[list[int]]:
        """`samples` answers to each prompt, at temperature 1, of at most `output` tokens."""
        order = [f"{place}.{copy}" for place in range(len(prompts)) for copy in range(samples)]
        made: dict[str, list[int]] = {name: [] for name in order}
        for place, prompt in enumerate(prompts):
            for copy in range(samples):
                request = GenerateRequest(id=f"{place}.{copy}", prompt=prompt, length=output, ends=ends)
                self.engine.add(request)
        while not self.engine.idle:
            for said in self.engine.step():
                if said.finish not in ("", "stop", "length"):
                    raise RuntimeError(f"An answer failed: {said.why or said.finish}")
                made[said.id] += said.tokens
        return [made[name] for name in order]


def rows_of(prompts: list[list[int]], answers: list[list[int]], samples: int, length: int) -> tuple[Any, Any]:
    """Prompts with their answers as tokens and targets [answers, length]; a target that is not of an answer is -1.

    >>> tokens, targets = rows_of([[7, 8]], [[1, 2], [3]], samples=2, length=4)
    >>> tokens.tolist(), targets.tolist()
    ([[7, 8, 1, 2], [7, 8, 3, 0]], [[-1, 1, 2, -1], [-1, 3, -1, -1]])
    """
    tokens = numpy.zeros((len(answers), length), numpy.int32)
    targets = numpy.full((len(answers), length), -1, numpy.int32)
    for row, answer in enumerate(answers):
        prompt = prompts[row // samples]
        tokens[row, : len(prompt) + len(answer)] = [*prompt, *answer]
        targets[row, len(prompt) - 1 : len(prompt) - 1 + len(answer)] = answer
    return tokens, targets


class PhaseClock:
    """Seconds of a step's phases, each ended where the devices have done it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.since = time.perf_counter()

    def ends(self, phase: str, made: Any = None) -> Any:
        """A phase is over when what it made is there."""
        jax.block_until_ready(made)
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.since
        self.since = now
        return made
