"""What runs on a machine: each row says what `dscale serve` says of it, the largest come first, and the list fits a
screen."""

import json
import shlex
import subprocess

import pytest

from dragonscale.commands import detected
from dragonscale.commands.detected import Device, slice_of
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.models import model_names
from dragonscale.tables import beside


def answered(command: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    assert main([*shlex.split(command)[1:], "--json"]) == code
    return json.loads(capsys.readouterr().out)


def printed(command: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(shlex.split(command)[1:]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "asked",
    [
        "dscale models qwen3-8b --on 'RTX 4090'",
        "dscale models gpt-oss-20b --on 'M4 Max'",
        "dscale models llama3.3-70b --on '2x RTX 3090'",
        "dscale models qwen3-32b --on h100:8",
        "dscale models deepseek-r1 --on b200:8",
        "dscale models qwen3-235b-a22b --on h100:16",
        "dscale models qwen3-4b --on 'M2 Pro 16GB' --engine mlx",
    ],
)
def test_rows_are_what_serve_says_of_them(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answered(asked, capsys)["models"]
    assert rows
    for row in rows:
        report = answered(row["command"], capsys)
        first = report["configs"][0]
        assert (row["tokens_per_s"], row["plan"]) == (first["tokens_per_s_per_user"], first["plan"])
        assert (row["context"], row["format"]) == (report["largest_context"], first["dtypes"]["weights"])


def test_the_largest_that_leave_room_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed("dscale models --on 'RTX 4090'", capsys)
    assert len(text.splitlines()) <= 24
    assert "gpt-oss-20b" in text
    report = answered("dscale models --on 'RTX 4090'", capsys)
    sizes = [row["parameters"] for row in report["models"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["context"] >= 8192 for row in report["models"])
    # people run these on 24 GB (github.com/ggml-org/llama.cpp/discussions/15396 for gpt-oss-20b), and no 70B
    formats = {(row["model"], row["format"]) for row in report["models"]}
    assert {("qwen3-32b", "q4_k_m"), ("gemma3-27b", "q4_k_m"), ("gpt-oss-20b", "mxfp4_moe")} <= formats
    assert not any(name == "llama3.3-70b" for name, _ in formats)


def test_what_is_fine_tuned_is_what_train_says(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answered("dscale models --on 'RTX 4090' --top 1", capsys)["fine_tunes"]
    assert [row["method"] for row in rows] == ["qlora", "lora", "full"]
    for row in rows:
        assert answered(row["command"], capsys)["plans"][0]["feasible"]


def test_a_longer_context_leaves_less_room(capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        {row["model"] for row in answered(f"dscale models --on rtx3060 --seq {seq}", capsys)["models"]}
        for seq in ("8192", "32k")
    ]
    assert names[1] < names[0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("dscale models --on any", "one chip or slice"),
        ("dscale models --on h100 --here", "give one of them"),
        ("dscale models --all", "name it, such as --on"),
        ("dscale models --on h100 --top 0", "from 1 to 1,000"),
        ("dscale models qwen3-embedding-8b --on h100", "how many prompts"),
        ("dscale models --on h100 --engine mlx", "does not run on"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(asked: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(asked)[1:]) == 2
    assert said in capsys.readouterr().err


def test_a_model_that_does_not_fit_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed("dscale models llama3.3-70b --on rtx4090", capsys, code=3)
    assert "llama3.3-70b does not fit rtx4090:1" in text


def test_popular_models_are_presets() -> None:
    names = beside(detected.__file__, "popular_models.toml")["names"]
    assert len(set(names)) == len(names)
    assert set(names) <= set(model_names())


def test_devices_are_read_by_what_drivers_call_them(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ["NVIDIA GeForce RTX 4090, 24564 MiB", "NVIDIA GeForce RTX 4090, 24564 MiB", "NVIDIA T400 4GB, 4096 MiB"]
    monkeypatch.setattr(detected, "devices", lambda: listed)
    seen = detected.detected_slice()
    assert seen.on == "rtx4090:2"
    assert (
        seen.sentence
        == "Detected 2 x NVIDIA GeForce RTX 4090, read as rtx4090:2; NVIDIA T400 4GB beside it is left out."
    )


def test_here_is_the_machine_that_is_detected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(detected, "devices", lambda: ["NVIDIA GeForce RTX 3060, 12288 MiB"])
    text = printed("dscale models qwen3-8b --here", capsys)
    assert "Detected NVIDIA GeForce RTX 3060, read as rtx3060:1." in text
    assert "--on rtx3060:1 --engine llama.cpp" in text


def test_a_mac_is_detected_by_its_chip_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = subprocess.CompletedProcess([], 0, stdout=f"Apple M4 Pro\n{24 * 2**30}\n")
    monkeypatch.setattr(detected, "devices", list)
    monkeypatch.setattr(detected.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(detected.subprocess, "run", lambda *_, **__: asked)
    assert detected.detected_slice().on == "m4pro-24gb:1"


def test_what_is_not_detected_is_said() -> None:
    with pytest.raises(InputError, match="No accelerator was detected"):
        slice_of([])
    with pytest.raises(InputError, match="no chip of the catalogue"):
        slice_of([Device("Quadro NVS 295")])
