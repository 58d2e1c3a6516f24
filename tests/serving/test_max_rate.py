"""`--max-rate`: the largest rate that holds, against a grid of rates; the fleet for an asked rate."""

import math
from dataclasses import dataclass, replace

import pytest
from msgspec.structs import replace as changed

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import _by_held_rate, answer  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.serve.config import config_report
from dragonscale.commands.serve.confirm import sizing_job
from dragonscale.commands.serve.max_rate import SustainedRow, _rate_row  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.serve.recommended import next_command
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.serving.advice.pools import search_pools
from dragonscale.serving.advice.search import search
from dragonscale.simulation.fleet_sizing import capacity, sustained_rate
from dragonscale.simulation.fleet_sizing.capacity import Trials
from dragonscale.simulation.fleet_sizing.rate_search import RATE_TOLERANCE, largest_rate
from dragonscale.simulation.fleet_sizing.sustained_rate import Finalist

ONE = ServeQuestion(
    "llama3-8b", on="h100:1", prompt="512", output="64", ttft="p95:300ms", tpot="p95:25ms", engine="generic"
)

RATE = 90


@dataclass(frozen=True)
class Made:
    """A run of a queue whose latency is that of M/M/1 over a target."""

    rate: float
    worst: float

    @property
    def good(self) -> bool:
        return self.worst <= 1


@pytest.mark.parametrize("target", [1.3, 2.0, 8.0, 100.0])
@pytest.mark.parametrize("first", [0.01, 0.5, 3.0])
def test_the_largest_rate_is_bracketed_in_few_runs(target: float, first: float) -> None:
    """Seconds in the system are 1 / (1 - rate); from a rate of 0.97 on the queue grows."""
    runs = list[float]()

    def run(rate: float) -> Made:
        runs.append(rate)
        return Made(rate, 1 / (1 - rate) / target if rate < 0.97 else math.inf)

    low, high = largest_rate(run, first, 20)
    truth = min(1 - 1 / target, 0.97)
    assert low is not None
    assert high is not None
    assert low.rate <= truth * (1 + 1e-9) <= high.rate * (1 + 1e-9) <= RATE_TOLERANCE * low.rate * (1 + 1e-9)
    assert len(runs) <= 15


def test_no_rate_is_found_where_none_is_good() -> None:
    low, high = largest_rate(lambda rate: Made(rate, 2.0), 1.0, 5)
    assert low is None
    assert high is not None
    assert high.rate < 1 / 8


@pytest.fixture(scope="module")
def found() -> ServeReport:
    """At a rate, with runs of a few requests."""
    with pytest.MonkeyPatch.context() as patch:
        for place in (capacity, sustained_rate):
            patch.setattr(place, "MIN_REQUESTS", 1000)
        return answer(read_question(replace(ONE, max_rate=True, rate=f"{RATE}/s")), brief=True)


def test_the_largest_rate_is_within_three_percent_of_a_grids(
    found: ServeReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "MIN_REQUESTS", 1000)
    best, row = found.max_rates[0], found.configs[0]
    assert best.requests_per_s is not None
    asked = read_question(replace(ONE, rate=f"{RATE}/s"))
    config = next(config for config in search(asked) if (str(config.plan), config.batch) == (row.plan, row.batch))
    rate = 2 * best.requests_per_s
    fleet = sustained_rate.sized_job(sizing_job(asked), config, rate, capacity.PoolSizes(2), 2000)
    trials = Trials(fleet, rate * row.latency_s, None)
    grid = [2 * best.requests_per_s * (1 + part / 100) for part in range(-4, 8, 2)]
    held = max(rate for rate in grid if trials.run(rate, sustained_rate.LONG_REQUESTS).good)
    assert held / (2 * best.requests_per_s) == pytest.approx(1, abs=0.03)


def test_replicas_headroom_and_dollars_are_those_of_the_rate(found: ServeReport) -> None:
    best = found.max_rates[0]
    assert best.requests_per_s is not None
    assert best.replicas is not None
    assert best.headroom is not None
    assert best.usd_per_h is not None
    assert best.usd_per_mtok is not None
    assert best.replicas == math.ceil(RATE / best.requests_per_s)
    assert best.headroom == pytest.approx(1 - RATE / (best.replicas * best.requests_per_s))
    assert best.chips == best.replicas
    assert best.fleet_usd_per_mtok == pytest.approx(best.usd_per_h * 1e6 / (RATE * 64 * 3600))
    assert best.fleet_usd_per_mtok == pytest.approx(best.usd_per_mtok / (1 - best.headroom))
    assert best.good_share >= 0.9
    assert best.limited_by in ("ttft_s", "tpot_s", "queue")
    assert best.good_tokens_per_s_per_chip == pytest.approx(best.good_share * best.requests_per_s * 64)
    assert best.on_frontier


def test_an_answer_has_one_fleet(found: ServeReport) -> None:
    """The headline, its row, the table of rates, the run and the next command."""
    best, row, run = found.max_rates[0], found.configs[0], found.simulated
    assert row.replicas == best.replicas
    assert row.fleet_chips == best.chips
    assert row.fleet_usd_per_h == pytest.approx(best.usd_per_h)
    assert row.fleet_usd_per_mtok == pytest.approx(best.fleet_usd_per_mtok)
    assert row.simulated
    assert run is not None
    assert (run.replicas, run.rate_per_s) == (best.replicas, RATE)
    assert (row.fleet_ttft_s, row.fleet_tpot_s) == (run.latency["ttft_s"].mean, run.latency["tpot_s"].mean)
    asked = read_question(replace(ONE, rate=f"{RATE}/s"))
    assert f"--replicas {best.replicas} " in next_command(asked, found)


def test_the_cheapest_fleet_that_was_found_comes_first(found: ServeReport) -> None:
    dear, cheap = found.configs[0], changed(found.configs[0], fleet_usd_per_h=found.configs[0].fleet_usd_per_h / 2)
    config = search(read_question(replace(ONE, rate=f"{RATE}/s")))[0]
    rows = [(config, dear), (config, cheap)]
    held = [SustainedRow(row, found.max_rates[0], found.simulated) for row in (dear, cheap)]
    assert [row for _, row in _by_held_rate(rows, held)] == [cheap, dear]
    assert [row for _, row in _by_held_rate(rows, [replace(held[1], run=None)])] == [dear, cheap]


def test_pools_are_sized_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are long and outputs short: prefill replicas hold less each, and more of them are wanted."""
    for place in (capacity, sustained_rate):
        monkeypatch.setattr(place, "MIN_REQUESTS", 300)
    monkeypatch.setattr(sustained_rate, "MAX_RUNS", 3)
    asked = read_question(replace(ONE, on="h100:8", prompt="4096", ttft="p95:2s", rate="100/s", disaggregate=True))
    config = min(search_pools(asked), key=lambda one: one.chips)
    row = config_report(asked, config)
    assert row.prefill is not None
    held = sustained_rate.sustained_rate(sizing_job(asked), Finalist(config, row.requests_per_s, row.latency_s))
    found = _rate_row(row, held, starred=False)
    assert found.requests_per_s is not None
    assert found.prefill_requests_per_s is not None
    assert found.replicas is not None
    each = found.requests_per_s, found.prefill_requests_per_s
    assert each[0] > 1.1 * each[1]
    sizes = found.replicas, found.prefill_replicas
    assert all(math.ceil(100 / own) <= size <= math.ceil(100 / own) + 1 for own, size in zip(each, sizes, strict=True))
    assert found.headroom == pytest.approx(1 - 100 / min(own * size for own, size in zip(each, sizes, strict=True)))
    assert found.chips == found.replicas * config.plan.chips + found.prefill_replicas * row.prefill.chips
