"""`dscale traffic`: what a trace is like, and a generator whose percentiles are those of the trace."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.traffic_flags import read_classes, read_traffic
from dragonscale.commands.traffic import save_traffic, traffic_blocks
from dragonscale.simulation import (
    Fixed,
    Fleet,
    LinearTimes,
    Pool,
    Replay,
    SimulatedRequest,
    SimulationOptions,
    TrafficClass,
    read_trace,
    simulate,
)
from dragonscale.simulation.distributions import Profile
from dragonscale.simulation.sessions import Mixed
from dragonscale.simulation.trace_fit import TraceFit, fit_trace

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
POOL = Pool(LinearTimes(0.012, 1e-4, 0.0, 4e-5), 2_000_000, share_prefixes=True)


def bursts(count: int) -> list[SimulatedRequest]:
    """Requests of the shape of a public trace of conversations: a rate that doubles and halves, gaps that vary, long
    tails, and long prompts with short outputs."""
    random = numpy.random.default_rng(5)
    gaps = random.gamma(0.6, 1 / 0.6, count) / (4 * numpy.where(numpy.arange(count) // (count // 4) % 2, 2.0, 0.7))
    prompts = numpy.clip(random.lognormal(6.5, 0.9, count), 1, 8000).astype(int)
    outputs = numpy.clip(random.lognormal(5.0, 0.7, count) * (1000 / (500 + prompts)), 1, 1000).astype(int)
    rows = zip(numpy.cumsum(gaps).tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    return [SimulatedRequest(number, *row) for number, row in enumerate(rows)]


def generator(report: TraceFit, folder: Path, requests: int):
    path = folder / "traffic.toml"
    save_traffic(report, str(path))
    question = SimulateQuestion("", on="h100:1", traffic=str(path), requests=str(requests))
    return read_traffic(question).traffic.source


def test_a_fitted_generator_has_the_percentiles_of_the_trace(tmp_path: Path) -> None:
    trace = bursts(3000)
    report = fit_trace("mine", trace)
    fitted = generator(report, tmp_path, 6000)
    one = simulate(Fleet(POOL), Replay(lambda: iter(trace), len(trace)), SimulationOptions(warmup=0.05))
    other = simulate(Fleet(POOL), fitted, SimulationOptions(warmup=0.05, classes=({},)))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        for at in ("p50", "p90", "p95"):
            own, theirs = (getattr(result.latency[name], at).value for result in (one, other))
            assert theirs == pytest.approx(own, rel=0.15), (name, at)
    assert other.throughput.output_tokens_per_s == pytest.approx(one.throughput.output_tokens_per_s, rel=0.1)


def test_a_trace_is_described_as_it_is() -> None:
    report = fit_trace("mine", bursts(3000))
    prompt, output = report.lengths["prompt"], report.lengths["output"]
    tokens = numpy.array([one.input_tokens for one in bursts(3000)])
    assert (prompt["mean"], prompt["p99"], prompt["max"]) == (tokens.mean(), numpy.percentile(tokens, 99), tokens.max())
    assert report.correlation < -0.2
    assert report.gap_cv > 1.2
    assert report.dispersion > 3
    assert report.peak > 1.5
    assert (report.sessions, report.turns, report.repeated) == (3000, 1.0, 0.0)
    assert output["mean"] < prompt["mean"]
    facts: Any = traffic_blocks(report, False).blocks[1]
    labels = [row.label for row in facts.rows]
    assert labels == ["requests", "rate", "bursts", "lengths"]


def test_sessions_and_prefixes_of_a_trace_are_found_again(tmp_path: Path) -> None:
    """A trace made of sessions, read from its blocks alone, gives their turns, pauses and reuse."""
    kind = TrafficClass(Profile(2.0, (1.0,), 10.0), Fixed(512), Fixed(64), turns=4, think_s=5.0)
    stream, after = Mixed((kind,), 2000).start(0)
    trace = []
    for request in stream:
        follows: SimulatedRequest | None = request
        while follows is not None:
            trace.append(follows)
            follows = after(follows, follows.arrival_s)
    trace = sorted(trace, key=lambda one: one.arrival_s)
    report = fit_trace("sessions", trace)
    assert report.turns == pytest.approx(4, rel=0.1)
    assert report.think_s == pytest.approx(5.0, rel=0.1)
    assert report.repeated == pytest.approx(0.7, abs=0.1)
    later = numpy.array(report.traffic["later"])
    assert later[:, 0].mean() == pytest.approx(512, rel=0.05)
    fitted = generator(report, tmp_path, 2000)
    results = [
        simulate(Fleet(POOL), source, SimulationOptions(classes=({},)))
        for source in (Replay(lambda: iter(trace), len(trace)), fitted)
    ]
    assert results[1].cache_hit_rate == pytest.approx(results[0].cache_hit_rate, rel=0.1)


@pytest.mark.parametrize("name", ["azure_sample.csv", "mooncake_sample.jsonl", "plain_sample.csv.gz"])
def test_every_kind_of_trace_gives_a_file_that_runs(name: str, tmp_path: Path) -> None:
    report = fit_trace(name, list(read_trace(SAMPLES / name).read()))
    source = generator(report, tmp_path, 100)
    assert simulate(Fleet(POOL), source, SimulationOptions(classes=({},))).outcome.finished == 100
    question = SimulateQuestion("", on="h100:1", traffic=str(tmp_path / "traffic.toml"))
    (one,) = read_classes(question)
    assert one.requests_per_s == pytest.approx(report.requests_per_s, rel=1e-3)
    assert (report.turns > 1) == (name == "mooncake_sample.jsonl")


def test_a_rate_over_time_is_kept_and_scales() -> None:
    arrivals = Profile(4.0, (0.5, 2.0, 0.5), 100.0, 1.0)
    for factor in (1, 3):
        stream = replace(arrivals, rate=4.0 * factor).times(numpy.random.default_rng(0))
        times = numpy.array(list(itertools.islice(stream, 9000)))
        phase = times % 300
        middle = ((phase > 100) & (phase < 200)).mean()
        assert middle == pytest.approx(2 / 3, abs=0.03)
        assert len(times) / times[-1] == pytest.approx(4 * factor, rel=0.1)
