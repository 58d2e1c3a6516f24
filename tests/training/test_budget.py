"""Run budgets: steps, days, dollars, energy, critical batches, Chinchilla's tokens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.models.scaling_laws import chinchilla_tokens, critical_batch, expected_loss
from dragonscale.training.advice.budget import (
    batch_warning,
    run_budget,
)


def test_the_books_run() -> None:
    """Chapter 6: LLaMA-3 70B, 6.3e24 FLOPs on 8960 TPU v5p at 40% of 4.59e14 FLOP/s: about 44 days."""
    step = 6 * 70e9 * 4e6 / (8960 * 4.59e14 * 0.4)
    budget = run_budget(15e12, 4e6, step, 8960, price=4.2)
    assert budget.days == pytest.approx(44.3, abs=0.3)
    assert budget.chip_hours == pytest.approx(budget.days * 24 * 8960)
    assert budget.cost_usd == pytest.approx(budget.chip_hours * 4.2)
    assert budget.energy_kwh is None


def test_the_last_step_is_a_whole_one() -> None:
    assert run_budget(10, 4, 1.0, 1).steps == 3


@given(st.floats(1e6, 1e14), st.floats(1e3, 1e8), st.floats(1e-3, 1e3), st.integers(1, 10**5))
def test_energy_and_dollars_follow_chip_hours(tokens: float, batch: float, step: float, chips: int) -> None:
    budget = run_budget(tokens, batch, step, chips, price=2.0, power=500.0)
    assert budget.steps >= tokens / batch
    assert math.isclose(budget.cost_usd or 0, 2 * budget.chip_hours)
    assert math.isclose(budget.energy_kwh or 0, budget.chip_hours / 2)


def test_chinchilla() -> None:
    assert chinchilla_tokens(70e9) == pytest.approx(1.4e12)
    assert expected_loss(70e9, 1.4e12) == pytest.approx(1.94, abs=0.03)


def test_the_critical_batch_grows_as_the_loss_falls() -> None:
    assert critical_batch(405e9, 15e12) > critical_batch(8e9, 1e12)
    assert batch_warning(8e9, 15e12, 1e6) == ""
    assert "critical batch" in batch_warning(8e9, 15e12, 1e9)
