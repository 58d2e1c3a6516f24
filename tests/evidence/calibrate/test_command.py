"""`dscale calibrate` from end to end: a profile out of measurements, put in place, used and checked."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragonscale.commands.calibrate import ask_calibrate as ask
from dragonscale.commands.questions.verify import CalibrateQuestion
from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import Machine
from dragonscale.faces.cli import main
from tests.evidence.calibrate.test_measuring import ReckonedBench
from tools.write_schemas import schema_text

RECORDS = str(Path(__file__).parent / "h200_jax.jsonl")


def test_measurements_from_elsewhere_become_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    out = str(tmp_path / "mine.toml")
    line = [
        "calibrate",
        "--minutes",
        "0",
        "--records",
        RECORDS,
        "--only",
        "memory",
        "--out",
        out,
        "--install",
        "--json",
    ]
    assert main(line) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = json.loads(schema_text("calibrate"))
    assert set(printed) == set(schema["$defs"]["CalibrationReport"]["properties"])
    fitted = [one for one in printed["tables"] if one["error"] is not None]
    assert [one["table"] for one in fitted] == ["stream"]
    assert fitted[0]["error"] < fitted[0]["built_in_error"]
    assert printed["installed"] == str(tmp_path / "dragonscale" / "profiles" / "h200.toml")
    assert Path(printed["installed"]).read_text() == Path(out).read_text()
    train = ["train", "llama3-8b", "--on", "h200:8", "--batch", "64seq", "--seq", "4096", "--plan", "fsdp8", "--alone"]
    assert main(train) == 0
    assert "h200+profile=own:8" in capsys.readouterr().out


def test_measure_fit_and_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ask, "bench_with", lambda name, small: ReckonedBench())  # noqa: ARG005
    assert main(["calibrate", "--only", "memory,host", "--minutes", "1"]) == 0
    said = capsys.readouterr().out
    assert "h200-profile.toml" in said
    assert "a call" in said
    assert main(["calibrate", "--only", "memory", "--check", "h200-profile.toml"]) == 0
    assert "holds" in capsys.readouterr().out
    assert main(["calibrate", "--only", "attention", "--check", "built-in"]) == 4  # the reckoned device is another one
    assert "missed: attention.bf16" in capsys.readouterr().out
    assert main(["calibrate", "--dry-run", "--only", "matmul"]) == 0
    assert "matmul/bf16/1x4096x4096" in capsys.readouterr().out


def test_a_check_leaves_fp32_out_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Single(ReckonedBench):
        def dtypes(self) -> Sequence[str]:
            return ("bf16", "fp8", "fp16", "fp32", "int8")

    monkeypatch.setattr(ask, "bench_with", lambda name, small: Single())  # noqa: ARG005
    assert main(["calibrate", "--only", "matmul", "--check", "h200-jax", "--json"]) in (0, 4)
    out, err = capsys.readouterr()
    assert "NVIDIA H200 SXM 141GB has no known matrix rate for fp32: left out of the check." in err
    kinds = {one["case"].split("/")[1] for one in json.loads(out)["checked"]}
    assert kinds >= {"bf16", "fp8"}
    assert "fp32" not in kinds
    assert main(["calibrate", "--only", "matmul", "--dtypes", "fp32", "--check", "h200-jax"]) == 2
    assert "nothing to check" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "matmuls"], "There is no kind to measure 'matmuls'"),
        (["--minutes", "-1"], "--minutes is -1"),
        (["--dtypes", "bf17"], "There is no format to measure 'bf17'"),
        (["--with", "tensorflow"], "There is no software to time with 'tensorflow'"),
        (["--on", "h2000"], "There is no chip 'h2000'"),
        (["--minutes", "0", "--records", "nowhere.jsonl"], "cannot be read"),
        (["--check", "own", "--install"], "leave out one of them"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_real_measurements_on_this_machines_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("laptop.toml").write_text(
        'base = "h100"\nname = "laptop"\ntitle = "A CPU"\nmatrix = { fp32 = "100GFLOP/s" }\n'
        'memory = { hbm = { bandwidth = "20GB/s" } }\n'
    )
    assert main(["calibrate", "--small", "--minutes", "2", "--on", "laptop.toml", "--out", "mine.toml"]) == 0
    assert Path("mine.toml").exists()
    assert len(Path("laptop-jax-measured.jsonl").read_text().splitlines()) == 18


def test_a_cpu_is_no_chip_of_the_catalogue() -> None:
    machine = Machine("cpu", 1, "cpu", {}, "jax", "")
    with pytest.raises(InputError, match="The device here is a CPU, and --on says h200"):
        ask._chip(CalibrateQuestion(on="h200"), machine)
