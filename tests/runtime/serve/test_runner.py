"""Packed steps over pages give what the forward pass gives, for every kind of attention, format and sharding."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")

from dragonscale.runtime.serve.steps import StepShape  # noqa: E402
from tests.runtime.serve.packing import PackedRun  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

slow = pytest.mark.slow
SMALL = {"num_hidden_layers": 2}
MODELS: dict[str, dict[str, Any]] = {name: {**config, **SMALL} for name, config in CONFIGS.items()} | {
    "gpt-oss": {**CONFIGS["mixtral"], **SMALL, "model_type": "gpt_oss", "sliding_window": 8, "head_dim": 16},
}


def _same(pair: tuple[Any, Any], tolerance: float = 1e-4) -> None:
    found, wanted = pair
    assert numpy.abs(found - wanted).max() < tolerance
    assert (found.argmax(-1) == wanted.argmax(-1)).all()


def _through(run: PackedRun, tolerance: float = 1e-4) -> None:
    """A prompt of its own, then chunks in odd sizes beside decoding rows, drafts of three, rows that are missing."""
    ranks = run.limits.ranks
    fresh, mixed, drafted = StepShape(0, 1, 1, 16, True), StepShape(4, 1, 3, 16), StepShape(4, 3)

    def each(rows: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        # Ranks are not alike: the last one has fewer rows.
        return [rows if rank < ranks - 1 or ranks == 1 else rows[:-1] for rank in range(ranks)]

    _same(run.step(fresh, [[]] * ranks, [[(0, 11)]] * ranks), tolerance)
    _same(run.step(mixed, [[(0, 1)]] * ranks, each([(1, 5), (2, 9)])), tolerance)
    _same(
        run.step(mixed, each([(0, 1), (1, 1)]), each([(2, 7), (3, 3)]) if ranks == 1 else [[(2, 7)]] * ranks), tolerance
    )
    _same(run.step(drafted, each([(0, 3), (1, 3), (2, 3)]), [[]] * ranks), tolerance)


USUAL = ("gemma2", "deepseek-v3", "gpt-oss")


@pytest.mark.parametrize("name", [name if name in USUAL else pytest.param(name, marks=slow) for name in MODELS])
def test_packed_steps_are_the_forward_pass(name: str) -> None:
    _through(PackedRun(MODELS[name]))


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("qwen3-moe", "tensor=2,data=2,expert=4"),
        pytest.param("llama", "tensor=4", marks=slow),
        pytest.param("qwen2", "tensor=2,data=2", marks=slow),
        pytest.param("deepseek-v3", "tensor=2,data=2", marks=slow),
        pytest.param("deepseek-v3", "tensor=2,expert=2", marks=slow),
        pytest.param("gpt-oss", "tensor=2,expert=2", marks=slow),
        pytest.param("qwen3-moe", "data=4,expert=4", marks=slow),
        pytest.param("mixtral", "tensor=4,expert=2", marks=slow),
    ],
)
def test_a_mesh_gives_what_one_chip_gives(name: str, plan: str, eight: list[Any]) -> None:
    _through(PackedRun(MODELS[name], plan, devices=eight))
