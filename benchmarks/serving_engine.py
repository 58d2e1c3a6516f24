"""What the serving engine's own work takes on the host in a step: planning, packing, telling, without a device.

Rows decode side by side behind a runner and a sampler that do nothing. `python -m benchmarks.serving_engine [ROWS
...]`.
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


if __name__ == "__main__":
    for rows in [int(given) for given in sys.argv[1:]] or [1, 16, 64]:
        found = sorted(milliseconds(rows))
        print(f"{rows:4} rows: median {statistics.median(found):.3f} ms, 95% {found[STEPS * 95 // 100]:.3f} ms")
