"""The engine's own record, replayed by the simulator: the real scheduler, pages and loop, one step ahead, over a device
whose steps take a known time on a clock of its own, so that no other load disturbs what is compared."""

import random
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from dragonscale.commands.questions.validate import ServingScoreQuestion
from dragonscale.commands.validate.ask_validate import ask_serving
from dragonscale.commands.validate.validate_records import RunScore
from dragonscale.listener import Listener
from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.serve.sampling import Sampled
from dragonscale.runtime.serve.scheduler import StepPacker
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, shapes_for
from dragonscale.serving.engine.chunk_shapes import chunk_sizes, chunk_tokens
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.simulation import (
    Fleet,
    LinearTimes,
    Pool,
    Replay,
    ServedRequest,
    SimulatedRequest,
    SimulationOptions,
    simulate,
)
from dragonscale.simulation.deployed import scheduler_of

TIMES = LinearTimes(6e-3, 2e-5, 3e-8, 2.2e-5)
"""About LLaMA-3-8B on an H200: 7 ms for 64 rows, 23 ms for a prompt of 1,024 tokens."""
PERCENTILES = (0.5, 0.9, 0.95, 0.99)


class KnownDevice:
    """Runner and sampler in one: every token is token 7."""

    last = hidden = None
    vocab = 128

    def run(self, batch: StepBatch, _last: Any) -> StepBatch:
        return batch

    def admit(self, *_: Any) -> None:
        pass

    def sample(self, _logits: Any, batch: StepBatch, *_: Any) -> Sampled:
        shape = batch.shape
        return Sampled(numpy.full((1, shape.read), 7, numpy.int32), numpy.ones((1, shape.decodes), numpy.int32))


def step_seconds(step: Any) -> float:
    """What a step of the engine takes, by what it computes."""
    batch = step.batch
    decoding = [row for _, row, _ in step.rows if row < batch.shape.decodes]
    held = int(batch.lengths[0, decoding].sum()) - len(decoding) if decoding else 0
    prompt = step.computed - len(decoding)
    return TIMES.step(len(decoding), held, ((prompt, 0),) if prompt else ())


def recorded(requests: list[SimulatedRequest], limits: EngineLimits) -> dict[int, tuple[float, float]]:
    """First and last token of each request, as the engine gave them."""
    engine = ServingEngine(KnownDevice(), KnownDevice(), limits, shapes_for(limits), prefixes=False)
    draw, coming, ends = random.Random(0), deque(requests), deque[float]()
    seen: dict[int, tuple[float, float]] = {}
    now = free = 0.0
    while coming or not engine.idle:
        if engine.idle:
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now:
            one = coming.popleft()
            prompt = [draw.randrange(100) for _ in range(one.input_tokens)]
            engine.add(GenerateRequest(id=str(one.number), prompt=prompt, length=one.output_tokens, ends=[]))
        newest = engine.pending[-1] if engine.pending else None
        told = engine.step()
        if engine.pending and engine.pending[-1] is not newest:  # a step was put behind those under way
            free = max(free, now) + step_seconds(engine.pending[-1].step)
            ends.append(free)
        while len(ends) > len(engine.pending):  # its tokens were waited for
            now = max(now, ends.popleft())
        for one in told:
            first, _ = seen.get(int(one.id), (now, now))
            seen[int(one.id)] = first, now
    return seen


def traffic(seed: int, rate: float, count: int, prompt: int, output: int) -> list[SimulatedRequest]:
    draw, at, requests = random.Random(seed), 0.0, []
    for number in range(count):
        at += draw.expovariate(rate)
        lengths = draw.randint(prompt // 2, 3 * prompt // 2), draw.randint(output // 2, 3 * output // 2)
        requests.append(SimulatedRequest(number, at, *lengths))
    return requests


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


@pytest.mark.parametrize(
    ("rate", "sequences", "tokens", "pages", "within"),
    [
        (4.0, 64, 2048, 6000, 1e-3),
        (25.0, 64, 512, 6000, 1e-3),
        (25.0, 8, 1024, 6000, 0.08),
        (15.0, 48, 2048, 260, 0.08),
    ],
    ids=["light", "busy", "places run out", "pages run out"],
)
def test_percentiles_of_the_engine_are_the_simulators(
    rate: float, sequences: int, tokens: int, pages: int, within: float
) -> None:
    """To a thousandth; where places or pages run out the engine gives those of a request that ended to others a step
    later, which is settled by then."""
    requests = traffic(3, rate, 300, 400, 60)
    limits = EngineLimits(pages=pages + 1, sequences=sequences, tokens=tokens, length=2048)
    seen = recorded(requests, limits)
    engine = deploy("llama3-8b", "h200:1", "tensor=1", "dragonscale").engine
    own = scheduler_of(engine, 1)
    scheduler = replace(own, sequences=sequences, tokens=tokens)
    pool = Pool(TIMES, pages * 16, scheduler)
    replay = Replay(lambda: iter(requests), len(requests))
    served = simulate(Fleet(pool), replay, SimulationOptions(keep=True)).served
    assert len(served) == len(seen) == len(requests)
    for name, of_engine in latencies(requests, seen).items():
        simulated = [getattr(one, name) for one in served if name != "tpot_s" or one.output_tokens > 1]
        for share in PERCENTILES:
            measured = percentile(of_engine, share)
            assert percentile(simulated, share) == pytest.approx(measured, rel=within), (name, share)


def latencies(requests: list[SimulatedRequest], seen: dict[int, tuple[float, float]]) -> dict[str, list[float]]:
    """What clients see, by the names of the simulator's."""
    found: dict[str, list[float]] = {"ttft_s": [], "tpot_s": [], "e2e_s": []}
    for one in requests:
        first, last = seen[one.number]
        found["ttft_s"].append(first - one.arrival_s)
        found["tpot_s"].append((last - first) / (one.output_tokens - 1))
        found["e2e_s"].append(last - one.arrival_s)
    assert set(found) <= set(ServedRequest._fields)
    return found


def test_steps_are_as_large_as_the_engine_has_them() -> None:
    """The rule by which prompts are cut, against the engine's own choice of a compiled shape."""
    limits = EngineLimits(pages=1000, sequences=64, tokens=2048, length=2048)
    packer, draw = StepPacker(limits, shapes_for(limits)), random.Random(1)
    for _ in range(300):
        decodes, prompts = draw.choice([0, 0, 1, 17, 64]), [draw.randint(1, 1500) for _ in range(draw.randint(1, 3))]
        shape = packer.choose(decodes, 1, (tuple(prompts),), not decodes and len(prompts) == 1)
        rows = limits.sequences if decodes else 0
        assert chunk_tokens(chunk_sizes(2048), rows, sum(prompts)) == min(shape.tokens, sum(prompts))


SERVED = Path(__file__).parents[3] / "docs/data/h200_served.jsonl.gz"
"""Llama-3-8B on one H200, 2026-11-19: six requests alone, then 96 of 32 clients who each wait for their output."""


def test_a_record_of_an_h200_replayed() -> None:
    score = ask_serving(ServingScoreQuestion(str(SERVED)), Listener())
    assert isinstance(score, RunScore)
    rows = {row.name: row.ratio for row in score.measures}
    within = dict.fromkeys([f"{part} TTFT" for part in ("mean", "median", "p90", "p95", "p99")], 0.08)
    within |= {f"{part} {name}": 0.03 for part in ("mean", "median", "p90", "p95", "p99") for name in ("TPOT", "E2E")}
    within |= {"output tokens/s": 0.05}
    assert set(rows) == set(within)
    assert {name: round(rows[name], 3) for name, most in within.items() if abs(rows[name] - 1) > most} == {}
