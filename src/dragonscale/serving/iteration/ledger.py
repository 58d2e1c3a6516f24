"""The ledger of one iteration: every kernel, move and wait, and what lies in memory while it runs.

>>> from dragonscale.serving.iteration.deployment import deploy
>>> from dragonscale.serving.iteration.iteration import decode
>>> book = iteration_ledger(deploy("llama3-8b", "h100:2", "tensor=2"), decode(64, 2000))
>>> sorted({line.kind for line in book.lines})
['all_reduce', 'attention', 'elementwise', 'host', 'matmul', 'sampling']
>>> {part: round(size / 1e9, 1) for part, size in book.memory.items()}
{'weights': 8.0, 'KV cache': 8.5, 'workspace': 1.4, 'reserve': 2.0, 'free': 56.6, 'unused': 8.5}
"""

from collections.abc import Iterator
from typing import Any

import numpy

from dragonscale.physics.numbers import is_array
from dragonscale.plan.finite import checked
from dragonscale.plan.ledger import HeldLine, Ledger, plan_ledger, present
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.compiled_memory import program_lines
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.iteration.resident_memory import cache_lines, weight_lines, workspace_lines


def iteration_ledger(deployment: Deployment, iteration: Iteration) -> Ledger:
    """All lines of one iteration of one plan; formulas stay formulas."""
    prompt = bool(numpy.all(iteration.decodes == 0))
    if deployment.engine.program.alive:  # a compiled program
        memory = program_lines(deployment, iteration)
    else:
        memory = _memory_lines(deployment, iteration, prompt)
    book = iteration_cost(deployment, iteration).ledger("prefill" if prompt else "decode", memory)
    first = checked(plan_ledger(book, 0), f"an iteration of {deployment.plan}")
    return Ledger(present(first.lines, deployment.axes), first.held)


def _memory_lines(deployment: Deployment, iteration: Iteration, prompt: bool) -> Iterator[HeldLine]:
    """Weights, caches of the iteration's sequences in whole pages, workspace, and what is reserved, free and unused."""
    memory = capacity(deployment)
    batch: Any = iteration.decodes
    length: Any = iteration.keys + iteration.queries
    if prompt:
        batch, length = iteration.prompts, iteration.tokens + iteration.past
    batch, length = (value.ravel()[0] if is_array(value) else value for value in (batch, length))
    yield from weight_lines(deployment)
    cache = 0.0
    for line in cache_lines(deployment, memory.in_pages(length)):
        cache = cache + line.bytes * batch
        yield HeldLine(line.part, line.what, line.bytes * batch, section=line.section)
    yield from workspace_lines(deployment)
    yield HeldLine("reserve", "reserve", memory.reserve)
    yield HeldLine("free", "free", memory.cache - cache)
    yield HeldLine("unused", "unused", memory.hbm - memory.usable)  # beyond the engine's fraction of HBM
