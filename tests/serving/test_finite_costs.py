"""No cost of serving that is not a number takes part in a ranking or is shown."""

from dataclasses import replace
from typing import Any

import numpy
import pytest

from dragonscale.errors import NonFiniteCost
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.iteration import phases
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.iteration import decode
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.serving.space import frontier
from dragonscale.serving.space.frontier import Ask, explore
from dragonscale.serving.space.space import Formats

ASK = Ask(2048, 256)


@pytest.fixture
def without_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """All matmuls take a time that is no number."""
    right = phases.matmul_line

    def wrong(*given: Any, **named: Any) -> Any:
        line = right(*given, **named)
        return replace(line, expected_s=line.expected_s * numpy.nan)

    monkeypatch.setattr(phases, "matmul_line", wrong)


def explored() -> None:
    explore(load_model("llama3-8b"), [parse_slice("h100:1")], [Formats()], load_engine("generic"), ASK)


@pytest.mark.usefixtures("without_times")
def test_a_single_iteration_names_its_line() -> None:
    with pytest.raises(NonFiniteCost, match=r"expected_s of block decode .* matmul"):
        iteration_ledger(deploy("llama3-8b", "h100:2", "tensor=2"), decode(64, 2000))


@pytest.mark.usefixtures("without_times")
def test_a_search_names_its_line() -> None:
    with pytest.raises(NonFiniteCost, match=r"expected_s of block decode .* matmul"):
        explored()


def test_a_search_names_a_steady_state_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    right = frontier.served

    def wrong(*given: Any, **named: Any) -> Any:
        loop = right(*given, **named)
        return replace(loop, state=replace(loop.state, requests=loop.state.requests * numpy.nan))

    monkeypatch.setattr(frontier, "served", wrong)
    with pytest.raises(NonFiniteCost, match="requests of the steady state"):
        explored()
