"""What the serving engine's own work takes on the host in a step: planning, packing, telling, without a device.

Rows decode side by side behind a runner and a sampler that do nothing. `python -m benchmarks.serving_engine [ROWS
...]`. With `--program` the runner and the sampler are those of a model of two tiny layers, compiled for the CPU: what
JAX takes on the loop's own thread to begin a step and to read it is counted too, and what computes is not.
"""

import statistics
import sys
import time
from typing import Any

import numpy

from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.serve.sampling import Sampled
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, shapes_for

STEPS, PROMPT = 1000, 1000


class NoDevice:
    """Runner and sampler in one: every token is token 7."""

    last = hidden = None
    vocab = 128_256

    def run(self, batch: StepBatch, _last: Any) -> StepBatch:
        return batch

    def admit(self, *_: Any) -> None:
        pass

    def sample(self, _logits: Any, batch: StepBatch, *_: Any) -> Sampled:
        shape = batch.shape
        return Sampled(numpy.full((1, shape.read), 7, numpy.int32), numpy.ones((1, shape.decodes), numpy.int32))


def milliseconds(rows: int) -> list[float]:
    """CPU time of each of many steps in which all rows decode."""
    limits = EngineLimits(pages=rows * 160 + 1, sequences=rows, length=4096)
    engine = ServingEngine(NoDevice(), NoDevice(), limits, shapes_for(limits))
    deal = numpy.random.default_rng(0)
    for number in range(rows):
        prompt = deal.integers(0, 1000, PROMPT).tolist()
        engine.add(GenerateRequest(id=f"request-{number}", prompt=prompt, length=STEPS + 500, ends=[128_001, 128_009]))
    while any(s.computed < s.target for s in engine.scheduler.running[0].values()) or any(engine.scheduler.waiting):
        engine.step()
    engine.step()
    times = []
    for _ in range(STEPS):
        begun = time.thread_time()
        engine.step()
        times.append((time.thread_time() - begun) * 1e3)
    assert engine.stats()["running"] == rows
    return times


TINY = (
    "qwen2.5-1.5b?vocab_size=256&hidden_size=32&intermediate_size=32&num_attention_heads=2&num_key_value_heads=1"
    "&head_dim=16&num_hidden_layers=2"
)


def programmed(counts: list[int], steps: int = 120) -> dict[int, list[float]]:
    """The same through compiled programs, by rows."""
    import jax
    import jax.numpy as jnp

    from dragonscale.models import load_model
    from dragonscale.runtime.numerics import numerics_of
    from dragonscale.runtime.rl.answers import Answerer
    from dragonscale.serving.engine.plan import ServingPlan

    program, most = load_model(TINY).program(), max(counts)
    answerer = Answerer(program, numerics_of(TINY), ServingPlan(), jnp.float32, most, (16, 300), 0)
    runner, engine = answerer.runner, answerer.engine
    empty = runner.placement.abstract()
    runner.weights = jax.tree.map(lambda one: jax.device_put(jnp.zeros(one.shape, one.dtype), one.sharding), empty)
    runner.reset()
    runner.compile(moves=False)
    found: dict[int, list[float]] = {}
    for rows in counts:
        for number in range(rows):
            engine.add(GenerateRequest(id=f"{rows}.{number}", prompt=[1] * 16, length=200, ends=[]))
        for _ in range(20):
            engine.step()
        found[rows] = []
        for _ in range(steps):
            begun = time.thread_time()
            engine.step()
            found[rows].append((time.thread_time() - begun) * 1e3)
        while not engine.idle:
            engine.step()
    return found


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:] if given.isdigit()] or [1, 16, 64]
    timed = programmed(numbers) if "--program" in sys.argv else {rows: milliseconds(rows) for rows in numbers}
    for rows, taken in timed.items():
        found = sorted(taken)
        print(f"{rows:4} rows: median {statistics.median(found):.3f} ms, 95% {found[len(found) * 95 // 100]:.3f} ms")
