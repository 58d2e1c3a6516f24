"""What the skill for agents says is so: its commands run, and the keys it names are printed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli import main
from tests.evidence.logs import samples
from tools.refresh_docs import ROOT

SKILL = (ROOT / "SKILL.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", SKILL, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in COMMANDS if line.startswith("dscale ")]
KEYS = {
    name: re.findall(r"`([^`]+)`", keys) for name, keys in re.findall(r"^\| `(\w+)` \| (.+) \|$", SKILL, re.MULTILINE)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run one after another, as a reader would: later ones read what earlier ones saved."""
    path = tmp_path_factory.mktemp("skill")
    (path / "run.log").write_text(samples.megatron_log(*[16000.0] * 8))
    (path / "result.json").write_text(json.dumps(samples.vllm_result()))
    return path


def test_it_has_a_name_a_description_and_commands() -> None:
    assert re.match(r"---\nname: dragonscale\ndescription: .{100,1000}\n---\n", SKILL)
    assert len(COMMANDS) >= 10
    assert len(SKILL.splitlines()) < 120


def test_its_commands_run_and_print_the_keys_it_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    wanted = dict(KEYS)
    assert {"train", "serve", "validate"} <= set(wanted)
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        assert main([*words, "--json"]) == 0, f"`{line}`: {capsys.readouterr().err}"
        printed = json.loads(capsys.readouterr().out)
        for key in wanted.pop(words[0], []):
            look_up(printed, key)
    assert wanted == {}, "keys of commands that the skill does not show"


def look_up(record: Any, key: str) -> Any:
    """`plans[0].step_s` of a record."""
    for name, place in re.findall(r"(\w+)(?:\[(\d+)\])?", key):
        assert name in record, f"`{key}` is not printed"
        record = record[name][int(place)] if place else record[name]
    return record
