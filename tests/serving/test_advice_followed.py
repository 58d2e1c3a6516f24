"""Advice says nothing that its own command would not answer."""

from dataclasses import replace
from typing import Any

import pytest

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve import advice
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_question import ServeAsked, read_question
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question as read_simulation
from dragonscale.commands.simulate.simulate_sheet import cost_text
from dragonscale.serving.advice.remedies import cheapest
from dragonscale.serving.advice.search import search
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import replicas_for


def asked(model: str, on: str, **words: Any) -> ServeAsked:
    return read_question(ServeQuestion(model, on=on, **words))


def test_the_cheapest_other_chip_at_a_rate_has_the_cheapest_fleet() -> None:
    """A replica of one gh200 costs less than two h100, and holds one request at a time within these targets."""
    question = asked("qwen3-32b", "gh200,h100", prompt="4608", output="512", ttft="250ms", tpot="35ms", rate="20/s")
    met = [config for config in search(question) if config.meets]

    def fleet(config: Config) -> float:
        return replicas_for(config, question.ask) * (config.usd_per_h or 0.0)

    best = cheapest(question.ask, met)
    assert best is not None
    assert fleet(best) == min(map(fleet, met))
    smallest = cheapest(replace(question.ask, rate=None), met)
    assert smallest is not None
    assert (best.usd_per_h or 0.0) > (smallest.usd_per_h or 0.0)
    assert fleet(smallest) > 1.5 * fleet(best)


def near(**words: Any) -> ServeReport:
    """An answer whose targets are met at the middle of the band alone."""
    return answer(asked("llama3.1-8b", "h100:1", prompt="2048", output="256", **words), brief=True)


def margins(report: ServeReport, row: ConfigReport) -> str:
    return " ".join(line.text for line in advice.margin_advice(report.workload, row, []))


def test_a_target_near_its_band_is_named_and_told_only_where_none_is_missed() -> None:
    report = near(tpot="12ms")
    row = report.configs[0]
    row.tpot_s, row.tpot_high_s, row.violations = 0.0119, 0.0140, []
    text = margins(report, row)
    assert text.startswith("The TPOT target is met at the middle of the band and missed at its slow end")
    row.violations = ["TTFT is 800ms on average, 60% above the 500ms asked for"]
    assert "middle of the band" not in margins(report, row)
    row.violations, row.tpot_high_s = [], 0.01200001  # told as the target itself
    assert "middle of the band" not in margins(report, row)


def test_room_below_a_percentile_is_not_told_since_only_a_run_knows_it() -> None:
    report = near(tpot="p95:12ms")
    row = report.configs[0]
    row.tpot_s, row.tpot_high_s, row.violations = 0.0119, 0.0140, []
    text = margins(report, row)
    assert "The TPOT target is met at the middle of the band" in text
    assert "room" not in text


@pytest.mark.parametrize(("confirm", "told"), [(True, False), (False, True)])
def test_replicas_rented_by_themselves_are_not_told_where_they_would_be_run(confirm: bool, told: bool) -> None:
    question = asked("llama3.1-8b", "h100:8", rate="2/s", prompt="512", output="64", tpot="p95:20ms", plan="tp1")
    row = answer(question, brief=True, confirm=confirm).configs[0]
    assert row.simulated == confirm
    assert (row.enough_replicas is not None) == told


def test_a_batch_that_makes_no_more_tokens_is_not_told() -> None:
    question = asked("llama3.1-8b", "h100:1", prompt="512", output="64")
    config = search(question)[0]
    larger = replace(config, batch=2 * config.batch)  # in the same steady state
    assert advice._next_batch(question, config, [config, larger]).text == ""


def test_pools_that_were_left_out_are_told_in_a_whole_sentence() -> None:
    told = advice._pools_left_out(asked("deepseek-v3", "b200"))
    considered = "--on b200:16 --disaggregate considers them."
    assert told.text == f"Separate pools for prefill and decode were not considered; {considered}"
    assert told.flags == {"on": "b200:16"}


def test_the_cost_of_simulated_pools_is_of_the_chips_in_use() -> None:
    words: dict[str, Any] = {"on": "h100:1", "rate": "2/s", "prompt": "512", "output": "32", "requests": "50"}
    apart = run_simulation(read_simulation(SimulateQuestion("llama3.1-8b", prefill_on="h100:1", **words)))[0]
    assert cost_text(apart).startswith("2 chips in use, $")
    together = run_simulation(read_simulation(SimulateQuestion("llama3.1-8b", **words)))[0]
    assert cost_text(together).startswith("1 chip, $")
