"""Choices among measured serving configurations: what is compared, and what a wrong order costs."""

from dataclasses import replace

import msgspec
import pytest

from dragonscale.evidence.choices import LIMITS_S, cost, hard, served_choices
from dragonscale.evidence.serving import served_runs

from .measured import DATA


@pytest.fixture(scope="module")
def run():
    return served_runs(DATA / "serving.csv")[0][0]


def like(run, tensor, clients, ttft, tpot):
    row = msgspec.structs.replace(run.row, clients=clients, ttft_s=ttft, tpot_s=tpot, output=101)
    return replace(run, row=row, plan=replace(run.plan, tensor=tensor, data=1, expert=1))


def test_cost_is_chip_seconds_of_an_output_token(run):
    assert cost(like(run, 8, 4, 1.0, 0.01), (1.0, 0.01)) == pytest.approx(8 * 2.0 / (4 * 101))


def test_a_perfect_prediction_has_no_regret_and_a_reversed_one_pays(run):
    runs = [like(run, tensor, 16, 0.1, seconds) for tensor, seconds in ((1, 0.04), (2, 0.03), (8, 0.005))]
    own = [(one.row.ttft_s, one.row.tpot_s) for one in runs]
    right = served_choices(zip(runs, own, strict=True))
    assert (right["groups"], right["configurations"], right["tau"], right["regret_max"]) == (1, 3, 1.0, 0.0)
    wrong = served_choices(zip(runs, [(0.1, 0.005), (0.1, 0.03), (0.1, 0.9)], strict=True))
    # Without a limit tensor=1 is the cheapest either way; at 10 ms it is four times too slow.
    assert wrong["by_limit"]["none"]["regret_mean"] == 0
    assert wrong["by_limit"]["10ms"]["regret_mean"] > 1
    assert set(wrong["by_limit"]) == {"none", *(f"{limit * 1e3:g}ms" for limit in LIMITS_S)}


def test_a_hard_limit_counts_picks_that_miss_it():
    quick, cheap = ((4.0, 0.010), (4.0, 0.010)), ((1.0, 0.021), (1.0, 0.019))
    assert hard([[quick, cheap]], 0.02) == {"groups": 1, "missed": 1, "regret_mean": None}
    assert hard([[quick, cheap]], 0.03) == {"groups": 1, "missed": 0, "regret_mean": 0.0}
    assert hard([[quick, cheap]], 0.005)["groups"] == 0


def test_measurements_of_one_configuration_are_one_choice(run):
    twice = [like(run, 2, 16, 0.1, seconds) for seconds in (0.02, 0.021)]
    assert served_choices((one, (0.1, 0.02)) for one in twice)["groups"] == 0
