"""An independent witness: the same fleet written in SimPy, an event for every iteration, has the same latencies."""

import importlib.util
from pathlib import Path

import pytest

from dragonscale.simulation import Fixed, Fleet, LinearTimes, OpenLoop, Poisson, Pool, Scheduler, Uniform, simulate

pytest.importorskip("simpy")


@pytest.mark.parametrize(("sequences", "tokens", "rate"), [(256, 8192, 8.0), (12, 700, 3.0)])
def test_simpy_sees_the_same(sequences: int, tokens: int, rate: float) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "simulation.py"
    spec = importlib.util.spec_from_file_location("simulation_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    times, scheduler = LinearTimes(0.018, 2e-5, 1.2e-8, 6e-5), Scheduler("chunked", sequences=sequences, tokens=tokens)
    load = OpenLoop(Poisson(rate), 300, Uniform(100, 3000), Fixed(60))
    count, ttft, tpot = benchmark.by_simpy(times, scheduler, 2, load)
    result = simulate(Fleet(Pool(times, 2_000_000, scheduler, replicas=2)), load)
    assert count == result.outcome.finished == 300
    assert result.latency["ttft_s"].mean.value == pytest.approx(ttft, rel=1e-9)
    assert result.latency["tpot_s"].mean.value == pytest.approx(tpot, rel=1e-9)
