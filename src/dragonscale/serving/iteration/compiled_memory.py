"""The peak of a compiled program's memory by part: arguments (weights, cache, tokens) and what is alive beside them.

Weights and caches are laid out in equal blocks; how many of each activation are alive at the peak is the compiler's
doing, and the engine's `program.alive` has it by kind of chip and phase.
"""

from collections.abc import Iterator
from typing import Any

import numpy

from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Section
from dragonscale.physics.numbers import product
from dragonscale.plan.ledger import HeldLine
from dragonscale.plan.rules import Rules
from dragonscale.serving.engine.plan import shared_kv
from dragonscale.serving.iteration.compiled import WIDTH, capacity_rows
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration
from dragonscale.serving.iteration.kernel_times import KernelBench


class _Step:
    """One step's sizes: `tokens` new ones of each of `batch` sequences, room for `length`."""

    def __init__(self, deployment: Deployment, iteration: Iteration) -> None:
        known: dict[str, Any] = {name: float(numpy.ravel(value)[0]) for name, value in vars(iteration).items()}
        self.deployment, self.prompt = deployment, known["decodes"] == 0
        self.batch = known["prompts"] if self.prompt else known["decodes"]
        self.tokens = known["tokens"] if self.prompt else known["queries"]
        self.length = self.tokens + (known["past"] if self.prompt else known["keys"])
        self.mesh = deployment.mesh
        self.own = self.batch / self.mesh.size("data")

    def rules(self, section: Section) -> Rules:
        return self.deployment.rules(self.prompt, section)

    def dims(self, section: Section) -> dict[str, float]:
        tokens = 1 if section.name == "head" else self.tokens
        found = {**section.dims, "b": self.batch, "t": tokens, "s": self.length}
        return {**found, "k": 1} if shared_kv(section.dims, self.mesh) else found

    def bench(self, section: Section) -> KernelBench:
        return self.deployment.bench(section, self.prompt)


def program_lines(deployment: Deployment, iteration: Iteration) -> Iterator[HeldLine]:
    """The peak of one prefill, or of one decode step."""
    step = _Step(deployment, iteration)
    phase = "prefill" if step.prompt else "decode"
    every = deployment.engine.program.alive
    alive = next(one for one in every if (one.chip, one.phase) == (deployment.chip.kind, phase))
    sections = deployment.sections if step.prompt else deployment.decoding
    layer = hidden = scores = 0.0
    for section in sections:
        yield from _weights(section, step)
        cached = list(_cache(section, step))
        yield from cached
        layer = max(layer, sum(line.bytes for line in cached) / section.repeat)
        for op in section.ops:
            hidden = max(hidden, _hidden(section, op, step)) if op.function == "act" else hidden
            scores = max(scores, _scores(section, op, step)) if op.function == "attend" else scores
    head = sections[-1]
    logits = head.ops[-1].output
    assert logits is not None
    split = step.mesh.size(*step.rules(head).at_rest(logits).dim("v").axes)
    yield HeldLine("tokens", "tokens", 4.0 * step.own * (step.tokens + 1))
    found = {
        "FFN hidden": alive.hidden * hidden,
        "attention block": alive.scores * scores,
        "residuals": alive.residual * step.own * step.tokens * sections[0].dims["d"] * WIDTH,
        "one layer's cache": alive.cache * layer,
        "logits": alive.logits * step.own * head.dims["v"] / split * 4.0,
    }
    for name, held in found.items():
        yield HeldLine(name, name, held, phase, phase)


def _weights(section: Section, step: _Step) -> Iterator[HeldLine]:
    seen: set[str] = set()
    for op in section.ops:
        for array in op.weights:
            if array.name not in seen and not (array.name in section.shared and section.name == "head"):
                seen.add(array.name)
                laid = step.rules(section).at_rest(array)
                held = section.repeat * WIDTH * weight_size(section, array) / step.mesh.size(*laid.axes)
                yield HeldLine("weights", array.name, held, section=section.name)


def _cache(section: Section, step: _Step) -> Iterator[HeldLine]:
    dims = step.dims(section)
    for op in section.ops:
        for array in op.inputs if op.function == "cache" else ():
            laid = step.rules(section).cached(array)
            own = product(dims[dim.name] / step.mesh.size(*dim.axes) for dim in laid.dims)
            yield HeldLine("cache", array.name, section.repeat * WIDTH * float(own), section=section.name)


def _scores(section: Section, op: Op, step: _Step) -> float:
    """A block of scores in fp32."""
    query = step.rules(section).attending(op.inputs[0])
    heads = section.dims["n"] / step.mesh.size(*query.dim("n").axes)
    size = step.deployment.engine.program.attention_block
    block = size if size and step.tokens > size and step.tokens % size == 0 else step.tokens
    return step.own * heads * block * step.length * 4.0


def _hidden(section: Section, op: Op, step: _Step) -> float:
    """What a nonlinearity makes: of every token, or of the rows that experts have room for."""
    assert op.output is not None
    laid = step.rules(section).at_rest(op.output)
    if "x" not in op.output.names:
        dims = step.dims(section)
        return WIDTH * float(product(dims[dim.name] / step.mesh.size(*dim.axes) for dim in laid.dims))
    share = section.dims["e"] / step.mesh.size("data", "expert") * step.bench(section).senders
    width = section.dims[op.output.names[-1]] / step.mesh.size(*laid.dims[-1].axes)
    return share * capacity_rows(step.batch * step.tokens, step.bench(section)) * width * WIDTH
