"""Steps packed by hand: sequences with pages in disorder, decoding rows and chunks of prompts in any mixture."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.models.huggingface import load_config
from dragonscale.runtime.forward import forward
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import read_numerics
from dragonscale.runtime.parameters import Weight, each_weight
from dragonscale.runtime.serve.runner import ModelRunner
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch
from dragonscale.serving.engine.plan import parse_serving_plan

Piece = tuple[int, int]
"""A sequence's number and how many of its tokens are computed."""


@dataclass
class PackedRun:
    """A runner fed by hand with known sequences, of which the pages were dealt out at random."""

    config: dict[str, Any]
    plan: str = "tensor=1"
    devices: list[Any] = field(default_factory=jax.devices)
    pages: int = 26
    page: int = 4
    count: int = 4
    length: int = 24
    done: dict[Piece, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = parse_serving_plan(self.plan)
        self.program, numerics = load_config(self.config).program(), read_numerics(self.config)
        deal = numpy.random.default_rng(0)
        self.params = each_weight(self.program, lambda _, weight: _random(weight, deal))
        self.limits = EngineLimits(self.pages, self.page, 4, 16, self.length, ranks=plan.data)
        self.runner = ModelRunner(
            self.program, numerics, plan, self.devices[: plan.chips], self.params, self.limits, jnp.float32
        )
        last = numpy.zeros((plan.data, self.limits.sequences + 1), numpy.int32)
        self.last = jax.device_put(last, self.runner.by_rank)
        ids = jax.random.randint(jax.random.key(1), (plan.data, self.count, self.length), 0, self.config["vocab_size"])
        self.tokens = numpy.array(ids)
        flat = jnp.asarray(ids).reshape(-1, self.length)
        whole = jax.jit(lambda p: forward(p, self.program, flat, PassSetting(numerics)))(self.params)
        self.wanted = numpy.asarray(whole).reshape(plan.data, self.count, self.length, -1)
        need = self.limits.width
        self.tables = numpy.stack(
            [deal.permutation(numpy.arange(1, self.pages))[: self.count * need] for _ in self.tokens]
        )
        self.tables = self.tables.reshape(plan.data, self.count, need)

    def batch(self, shape: StepShape, decodes: list[list[Piece]], prompts: list[list[Piece]]) -> StepBatch:
        """A step of these rows, a list for each rank."""
        made = empty_batch(shape, self.limits.ranks, self.limits.width, self.limits.sequences)
        for rank in range(self.limits.ranks):
            for row, (seq, count) in enumerate(decodes[rank]):
                assert count == shape.queries
                self._row(made, rank, row, row * shape.queries, seq, count)
            at = shape.decodes * shape.queries
            for place in range(shape.prompts):
                made.starts[rank, place] = at
                if place < len(prompts[rank]):
                    seq, count = prompts[rank][place]
                    self._row(made, rank, shape.decodes + place, at, seq, count)
                    at += count
                    made.reads[rank, shape.decodes * shape.queries + place] = at - 1
            made.starts[rank, shape.prompts] = at
        return made

    def _row(self, made: StepBatch, rank: int, row: int, at: int, seq: int, count: int) -> None:
        before = self.done.get((rank, seq), 0)
        places = numpy.arange(before, before + count)
        table = self.tables[rank, seq]
        made.tokens[rank, at : at + count] = self.tokens[rank, seq, places]
        made.positions[rank, at : at + count] = places
        made.writes[rank, at : at + count] = table[places // self.page] * self.page + places % self.page
        used = -(-(before + count) // self.page)
        made.tables[rank, row, :used] = table[:used]
        made.lengths[rank, row], made.slots[rank, row] = before + count, seq
        self.done[rank, seq] = before + count

    def step(self, shape: StepShape, decodes: list[list[Piece]], prompts: list[list[Piece]]) -> tuple[Any, Any]:
        """Run a step; the logits found and those of the forward pass, of the real rows."""
        batch = self.batch(shape, decodes, prompts)
        self.runner.compile([shape], moves=False)
        logits = numpy.asarray(self.runner.run(batch, self.last))
        found, wanted = [], []
        for rank in range(self.limits.ranks):
            rows = [
                *((row, row * shape.queries, shape.queries) for row in range(len(decodes[rank]))),
                *((shape.decodes + row, shape.decodes * shape.queries + row, 1) for row in range(len(prompts[rank]))),
            ]
            for row, read, count in rows:
                seq, length = batch.slots[rank, row], batch.lengths[rank, row]
                found.append(logits[rank, read : read + count])
                wanted.append(self.wanted[rank, seq, length - count : length])
        return numpy.concatenate(found), numpy.concatenate(wanted)


def _random(weight: Weight, deal: numpy.random.Generator) -> numpy.ndarray:
    """Random weights, those of norms and biases too: ones and zeros hide mistakes."""
    values = deal.standard_normal(weight.shape) * (0.3 if weight.array.name.startswith("w") else weight.fan_in**-0.5)
    return (values + ("norm" in weight.array.name)).astype(numpy.float32)
