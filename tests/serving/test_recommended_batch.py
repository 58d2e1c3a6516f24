"""The batch that is recommended: the smallest that makes nearly as many tokens as the best one that
meets the targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.space.frontier import Ask, Config, explore
from dragonscale.serving.space.ranking import best, replicas_for
from dragonscale.serving.space.space import Formats, parts_of
from dragonscale.serving.steady.narrowing import narrowed

FP8, BLOCK = Formats("fp8", "fp8", "fp8"), Formats("fp8", "fp8_block", "bf16")
SERVED = {
    "dense on GPUs": ("llama3-70b", "h100:8", FP8, "vllm"),
    "small": ("llama3-8b", "h100:1", Formats("bf16", "bf16", "bf16"), "trtllm"),
    "experts on GPUs": ("deepseek-v3", "h200:8", BLOCK, "sglang"),
    "experts on TPUs": ("deepseek-v3", "tpu7x:2x2x2", Formats("fp8", "fp8", "bf16"), "vllm-tpu"),
    "dense on TPUs": ("llama3-70b", "v5e:4x4", Formats("int8", "int8", "int8"), "jetstream"),
}
ASKS = {
    "no target": Ask(2048, 512),
    "no target, prefill takes the time": Ask(8192, 64),
    "TPOT": Ask(2048, 256, tpot=0.06),
    "TTFT": Ask(4096, 128, ttft=3.0),
    "rate": Ask(2048, 256, tpot=0.06, rate=20.0),
}


@cache
def judged(served: str, ask: str) -> list[Config]:
    model, on, formats, engine = SERVED[served]
    pieces = parts_of(parse_slice(on)) if on != "tpu7x:2x2x2" else [parse_slice(on)]
    return explore(load_model(model), pieces, [formats], load_engine(engine), ASKS[ask])


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("served", SERVED)
def test_the_smallest_batch_within_two_percent_is_recommended(served: str, ask: str) -> None:
    configs = judged(served, ask)
    for found in best(configs, ASKS[ask], 3):
        alike = [one for one in configs if (one.piece, one.plan, one.meets) == (found.piece, found.plan, found.meets)]
        if ASKS[ask].rate is not None:
            fewest = min(replicas_for(one, ASKS[ask]) for one in alike)
            alike = [one for one in alike if replicas_for(one, ASKS[ask]) == fewest]
        most = max(one.tokens_per_chip for one in alike)
        assert found in alike
        assert found.batch == min(one.batch for one in alike if one.tokens_per_chip >= 0.98 * most)


@pytest.mark.parametrize("served", SERVED)
def test_a_smaller_batch_takes_no_replica_more(served: str) -> None:
    """Of a rate that three replicas of the best batch just hold, a batch with 1% fewer tokens would take a fourth."""
    configs = judged(served, "no target")
    leader = max(configs, key=lambda one: one.tokens_per_chip)
    rate = float(leader.state.requests)
    asks = [Ask(2048, 512, rate=part * rate) for part in numpy.linspace(2.5, 3.0, 21)]
    for ask in asks:
        found = best(configs, ask, 1)[0]
        alike = [one for one in configs if (one.piece, one.plan) == (found.piece, found.plan)]
        assert replicas_for(found, ask) == min(replicas_for(one, ask) for one in alike)


@pytest.mark.parametrize("served", SERVED)
def test_prompts_do_not_queue_for_nothing(served: str) -> None:
    """Without a target the first token takes seconds, not minutes, however large a batch fits: in what is recommended,
    on the frontier and anywhere else."""
    for ask in ("no target", "no target, prefill takes the time", "TPOT"):
        for found in judged(served, ask):
            assert found.state.ttft <= max(6.0, 2 * found.state.prefill)
        for found in best(judged(served, ask), ASKS[ask], 3):
            assert found.state.ttft < 10.0
            smaller = [
                one
                for one in judged(served, ask)
                if (one.piece, one.plan) == (found.piece, found.plan) and one.batch < 0.9 * found.batch
            ]
            gain = max((found.tokens_per_chip / one.tokens_per_chip for one in smaller), default=2.0)
            assert not found.queues or gain > 1.02


def test_a_queue_is_judged_where_it_is_asked_for() -> None:
    """A batch that was named, and a target that allows it."""
    model, piece, engine = load_model("gpt-oss-120b"), parse_slice("b200:2"), load_engine("vllm")
    formats = Formats("mxfp4", "bf16", "bf16", "bf16")

    def found(ask: Ask, *batch: int) -> list[Config]:
        return explore(model, [piece], [formats], engine, ask, batches=batch or None)

    longest = max(found(Ask(16384, 64)), key=lambda one: one.state.ttft)
    queue = max(found(Ask(16384, 64, ttft=60.0)), key=lambda one: one.state.ttft)
    assert longest.state.ttft < 6.0 < 2 * 6.0 < queue.state.ttft
    assert longest.batch < queue.batch
    assert {one.batch for one in found(Ask(16384, 64), queue.batch)} == {queue.batch}


@pytest.mark.parametrize("served", SERVED)
def test_longer_prompts_and_larger_batches_never_take_less(served: str) -> None:
    """TTFT by a prompt's length, TPOT by the batch, of one plan."""
    model, on, formats, engine = SERVED[served]
    piece = parse_slice(on)

    def state(prompt: int, batch: int) -> tuple[float, float]:
        found = explore(load_model(model), [piece], [formats], load_engine(engine), Ask(prompt, 128), batches=[batch])
        one = min(found, key=lambda config: str(config.plan))
        return float(one.state.ttft), float(one.state.tpot)

    least = 16
    by_prompt = [state(prompt, least)[0] for prompt in (250, 512, 1000, 2048, 3000, 4096, 7000)]
    assert by_prompt == sorted(by_prompt)
    by_batch = [state(1024, batch)[1] for batch in (16, 24, 32, 48, 64)]
    assert by_batch == sorted(by_batch)


@dataclass(frozen=True)
class Batch:
    """A batch of a plan that meets its target up to some batch."""

    batch: int
    most: int
    queues: bool = False

    @property
    def offered(self) -> bool:
        return self.batch <= self.most

    @property
    def tokens_per_chip(self) -> float:
        return float(self.batch)


@pytest.mark.parametrize("most", [257, 300, 511, 4097, 6001, 8191])
def test_the_largest_batch_is_found_in_two_rounds(most: int) -> None:
    rounds: list[int] = []

    def at(rows: Sequence[tuple[int, int]]) -> list[Batch]:
        rounds.append(len(rows))
        return [Batch(batch, most) for _, batch in rows]

    rows = [(0, batch) for batch in (1, 256, 512, 4096, 8192)]
    found = narrowed(at, rows, [Batch(batch, most) for _, batch in rows])
    assert max(one.batch for one in found if one.offered) == most
    assert len(rounds) <= 2
    assert sum(rounds) < 150
