"""Requests that end with their prompts: nobody decodes for these to ride on."""

import numpy
import pytest

from dragonscale.serving.steady.steady import Habits, PromptTimes, SteadyLoop, closed_loop


@pytest.mark.parametrize("together", [1.0, 4.0])
def test_they_go_no_faster_than_a_replica_prefills(together: float) -> None:
    """Whatever the clients, and with the time of the others' prompts to wait for (Little's law)."""
    batch = numpy.array([1.0, 2.0, 4.0, 8.0, 16.0])
    prompt = PromptTimes(lambda count: 0.08 * count + 0.008, 0.088, 0.024, 1.0, 1 / together, together)
    loop = SteadyLoop(batch, lambda rows: 0.024 + 0 * rows, prompt, 1.0, 0.01, Habits(1.0, beside=True))
    state = closed_loop(loop).state
    assert (state.requests <= 1 / prompt.full_s * (1 + 1e-9)).all()
    assert state.requests * state.latency == pytest.approx(batch, rel=0.02)
