"""What was measured on an H200 with JAX (`h200_jax.jsonl`), the profile that was fitted on it, and kernels it was not
fitted on."""

import tomllib
from pathlib import Path

import pytest

from dragonscale.evidence.calibrate.cases import TimedCase, read_measurements
from dragonscale.evidence.calibrate.fitting import log_errors, median_error
from dragonscale.evidence.calibrate.own_profile import UNSETTLED, fit_profile
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels import kernel_profile_for
from dragonscale.physics.kernels.profile_file import profile_files

HERE = Path(__file__).parent
JAX = read_measurements(HERE / "h200_jax.jsonl")
TORCH = read_measurements(HERE / "h200_torch.jsonl")


def settled(kind: str, rows: list[TimedCase], dtype: str = "bf16") -> list[TimedCase]:
    return [row for row in rows if row.kind.startswith(kind) and row.dtype == dtype and row.spread <= UNSETTLED]


def test_the_file_that_ships_is_what_the_rows_settle() -> None:
    rows = [row for row in JAX.good if row.kind in ("copy", "read", "product", "decode")]
    found = tomllib.loads(fit_profile(rows, JAX.machine, load_chip("h200")).text)
    shipped = profile_files()["h200-jax"]
    for own, ours in ((found["stream"], shipped.stream), (found["decode"]["bf16"], shipped.decode["bf16"])):
        assert own["rests_on"]["rows"] == ours["rests_on"]["rows"]
        numbers = {name: value for name, value in ours.items() if isinstance(value, float)}
        assert {name: own[name] for name in numbers} == pytest.approx(
            numbers, rel=0.02
        )  # other machines round otherwise


def test_shapes_left_out_are_predicted() -> None:
    rests = kernel_profile_for("h200", library="jax").rests_on
    assert rests["matmul.bf16"].unseen_shapes is not None
    assert rests["matmul.bf16"].unseen_shapes <= 0.05
    assert rests["attention.bf16"].unseen_shapes is not None
    assert rests["attention.bf16"].unseen_shapes <= 0.08


@pytest.mark.parametrize(("kind", "most"), [("matmul", 0.06), ("attention", 0.06), ("decode", 0.05), ("experts", 0.15)])
def test_measured_kernels_of_jax(kind: str, most: float) -> None:
    rows = settled(kind, JAX.good)
    found = median_error(log_errors(rows, kernel_profile_for("h200", library="jax")))
    assert found < most
    assert found < 0.7 * median_error(
        log_errors(rows, kernel_profile_for("h200"))
    )  # other software's kernels are others


@pytest.mark.parametrize(("kind", "most"), [("matmul", 0.07), ("attention", 0.08), ("decode", 0.25)])
def test_the_built_in_profile_on_kernels_of_pytorch(kind: str, most: float) -> None:
    """Rows that nothing was fitted on: decoding with PyTorch's own attention is another kernel than vLLM's."""
    assert median_error(log_errors(settled(kind, TORCH.good), kernel_profile_for("h200"))) < most
