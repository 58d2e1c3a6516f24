"""`dscale run train --profile N`: some steps recorded, read, and told in one go."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("orbax.checkpoint")

from dragonscale.faces.cli import main
from tests.runtime.tiny import CONFIGS


def run(folder: Path, *more: Any) -> int:
    model = CONFIGS["llama"] | {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
    (folder / "model.json").write_text(json.dumps(model))
    numpy.random.default_rng(0).integers(0, 128, 3000).astype("<u2").tofile(folder / "text.bin")
    flags = (
        "--model",
        folder / "model.json",
        "--data",
        folder / "text.bin",
        "--batch",
        4,
        "--seq",
        32,
        "--dtype",
        "fp32",
        "--log",
        0,
    )
    return main(["run", "train", "microbatch=4", *map(str, (*flags, *more))])


def test_steps_are_recorded_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, trace, to = tmp_path / "run.html", tmp_path / "run.json.gz", tmp_path / "recorded"
    asked = ("--steps", 4, "--profile-steps", 2, "--profile-to", to, "--html", page, "--timeline", trace, "--json")
    assert run(tmp_path, *asked) == 0
    told = capsys.readouterr()
    profile = json.loads(told.out)["profile"]
    assert list(to.rglob("*.xplane.pb"))
    assert "Steps 3 to 4 are recorded" in told.err
    assert profile["steps"]["count"] == 2
    assert profile["attributed_kind"] > 0.97
    assert profile["attributed_section"] > 0.9
    assert sum(part["seconds"] for part in profile["parts"]) == pytest.approx(profile["step_s"], rel=0.01)
    sections = {group["section"] for group in profile["groups"]}
    assert {"attention", "mlp", "head", "optimizer"} <= sections
    assert "<canvas" in page.read_text()
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_too_few_steps_to_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--steps", 4, "--profile-steps", 3) == 2
    assert "give --steps 5 or more" in capsys.readouterr().err
    assert run(tmp_path, "--steps", 4, "--profile-to", "x") == 2
    assert "--profile-steps 3" in capsys.readouterr().err
