"""What was given is named in a message, and never printed back at length."""

import json
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.faces.cli import main

LONG = 5000


def refused(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """The sentence by which a line is refused."""
    assert main(list(line)) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert len(said) < 1500
    return said


@pytest.mark.parametrize("letter", ["[", "a", "é", "\u202e"])
def test_a_field_of_a_config_is_not_printed_back_whole(
    letter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = {"model_type": "llama", "vocab_size": 100, letter * LONG: 1, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "config has the field" in refused(capsys, "models", str(tmp_path / "config.json"))


def test_a_name_in_a_script_is_not_printed_back_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"tune run full_finetune_distributed --config {'(' * LONG}.yaml\n")
    said = refused(capsys, "train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--plan", str(script))
    assert "which is not here" in said


def test_a_request_is_not_answered_with_what_it_said() -> None:
    msgspec = pytest.importorskip("msgspec")
    from dragonscale.runtime.server.protocol import ApiError, ChatRequest, read

    body = {"messages": [{"role": "user", "content": "a"}], "tool_choice": "A" * LONG}
    with pytest.raises(ApiError) as refusal:
        read(msgspec.json.encode(body), ChatRequest)
    assert refusal.value.status == 400
    assert "`tool_choice`" in refusal.value.message
    assert len(refusal.value.message) < 600


def test_ordinary_words_are_left_alone() -> None:
    path = "/folder" * 50
    assert str(InputError(f"There is no file {path}.")) == f"There is no file {path}."
