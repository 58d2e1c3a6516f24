"""Models, verifications, validations and sweeps asked from Python and from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.html import html_of
from dragonscale.blocks.terminal import text_of
from dragonscale.faces.cli import main
from tests.cli.verify_reports import AGREEING, instead_of_compiling

MEASURED = str(Path(__file__).parents[1] / "evidence" / "data" / "collectives.csv")
GRID = {"serve": [{"model": "llama3-8b", "on": "h100:1", "plan": "tensor=1", "batch": 8}]}
VERIFIED = {"model": "llama3-8b", "on": "h100:8", "batch": "16seq", "seq": 8192}
ASKED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "model": (
        lambda: ds.model("llama3-8b", seq="4k", kv_dtype="fp8", assume="num_hidden_layers=16", family="llama"),
        [
            "models",
            "llama3-8b",
            "--seq",
            "4k",
            "--kv-dtype",
            "fp8",
            "--assume",
            "num_hidden_layers=16",
            "--as",
            "llama",
        ],
    ),
    "loaded": (lambda: ds.model(ds.load_model("mixtral-8x7b"), full=True), ["models", "mixtral-8x7b", "--full"]),
    "validate": (lambda: ds.validate("collectives", MEASURED), ["validate", "collectives", MEASURED]),
    "verify": (
        lambda: ds.verify("fsdp=8,remat=block", **VERIFIED),
        ["verify", "fsdp=8,remat=block", *(w for k, v in VERIFIED.items() for w in (f"--{k}", str(v)))],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_function_answers_as_the_command_does(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instead_of_compiling(monkeypatch, lambda _: AGREEING)
    function, arguments = ASKED[name]
    found = function()
    assert main([*arguments, "--json"]) == found.exit_code == 0
    assert json.loads(json.dumps(found.to_dict())) == json.loads(capsys.readouterr().out)
    assert main([*arguments, "--width", "60"]) == 0
    text = capsys.readouterr().out
    assert text == text_of(found.sheet(), 60) + "\n"
    assert max(map(len, text.splitlines())) <= 60
    assert len(text_of(found.sheet(True), 200)) >= len(text_of(found.sheet(), 200))
    assert "<table" in html_of(found.sheet())
    assert type(found).__name__ in repr(found)
    assert len(repr(found)) < 150
    assert len(found.to_frame()) == len(found.rows()) > 1
    assert found.plot().spec


def test_presets_are_listed_as_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ds.model_names()
    with pytest.raises(ds.InputError, match="Name a model"):
        ds.model()


def test_what_is_assumed_follows_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    asked = ["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", "--plan", "fsdp=8"]
    assert main([*asked, "--alone", "--assume", "num_hidden_layers=16", "--save", str(plan)]) == 0
    assert "llama3-8b?num_hidden_layers=16" in plan.read_text()
    capsys.readouterr()
    assert main(["train", "--plan", str(plan), "--alone", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"]["parameters"] == 4540469248


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: ds.validate("speed", MEASURED), "kind of measurements"),
        (lambda: ds.validate("collectives", MEASURED, engine="vllm"), "engine is for measured serving"),
        (lambda: ds.model(ds.load_model("gpt2"), assume="n_layer=4"), "a Transformer has none"),
        (lambda: ds.sweep({"train": [{"modle": "a"}]}), "did you mean 'model'"),
        (lambda: ds.verify(None), "which plan to verify"),
    ],
)
def test_bad_questions_are_refused_in_a_sentence(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(ds.InputError, match=said):
        ask()
