"""What the trainer moves to the host so that trainer and engine fit on the same chips."""

from types import SimpleNamespace
from typing import Any

import pytest

from dragonscale.simulation.rl.step import _moved  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("mode", "always", "state", "moved"),
    [
        ("colocated", False, 21.0, 21.0),  # the engine leaves 20
        ("colocated", False, 20.0, 0.0),
        ("colocated", False, 5.0, 0.0),
        ("colocated", True, 5.0, 5.0),
        ("disaggregated", True, 21.0, 0.0),
    ],
)
def test_all_of_the_state_moves_where_both_do_not_fit(mode: str, always: bool, state: float, moved: float) -> None:
    chip = SimpleNamespace(visible=80.0)
    framework = SimpleNamespace(always_offloads=always)
    plan: Any = SimpleNamespace(mode=mode, framework=framework, job=SimpleNamespace(slice=SimpleNamespace(chip=chip)))
    deployment: Any = SimpleNamespace(engine=SimpleNamespace(memory=SimpleNamespace(share=0.75)))
    assert _moved(plan, deployment, state) == moved
