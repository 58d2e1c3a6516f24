"""`dscale completion`: the scripts in real shells, against the table of commands."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dragonscale.faces.cli import main
from dragonscale.faces.cli.completion.offers import all_offers
from dragonscale.faces.cli.completion.scripts import SCRIPTS
from dragonscale.faces.cli.table import COMMANDS

ASK = r"""
source "$1"; shift
while IFS= read -r line; do
  eval "COMP_WORDS=($line)"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _dscale; echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, offers = tmp_path_factory.mktemp("scripts"), all_offers(COMMANDS)
    for shell, script in SCRIPTS.items():
        (folder / shell).write_text(script(offers))
    return {shell: folder / shell for shell in SCRIPTS}


def completed(script: Path, *lines: str) -> list[list[str]]:
    """What bash offers for the last word of each line."""
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    asked = [bash, "--norc", "-c", ASK, "ask", str(script)]
    found = subprocess.run(asked, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    assert found.stderr == ""
    return [line.split() for line in found.stdout.splitlines()]


def test_bash_completes_words_flags_and_values(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "plan.toml").touch()
    expected = {
        "dscale tra": ["train", "traffic"],
        "dscale explain sh": ["shard"],
        "dscale train llama3-7": ["llama3-70b"],
        "dscale train --json llama3-7": ["llama3-70b"],  # a switch takes no value
        "dscale train --seq 8192 llama3-7": ["llama3-70b"],  # and --seq does
        "dscale train llama3-70b --on h10": ["h100-nvl", "h100-pcie", "h100"],
        "dscale train llama3-70b --stack torchtu": ["torchtune"],
        "dscale train --color = al": ["always"],  # as bash breaks --color=al
        "dscale train llama3-70b --largest ''": ["batch", "model"],
        "dscale train llama3-70b --chart me": ["memory", "mesh"],
        "dscale train llama3-70b --batch ''": [],
        "dscale models --kv-dtype int4": ["int4"],
        f"dscale verify {tmp_path}/pl": [f"{tmp_path}/plan.toml"],
        f"dscale train {tmp_path}/pl": [f"{tmp_path}/plan.toml"],  # a model may be a path
        "dscale validate serving x.csv --choi": ["--choices"],
        "dscale completion fi": ["fish"],
    }
    assert dict(zip(expected, completed(scripts["bash"], *expected), strict=True)) == expected


def test_bash_offers_every_flag_of_every_command(scripts: dict[str, Path]) -> None:
    found = completed(scripts["bash"], *(f"dscale {name} --" for name in COMMANDS))
    for command, offered in zip(COMMANDS.values(), found, strict=True):
        assert offered == [*(field.flag for field in command.fields() if not field.place), "--help"]


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_script_is_sound(shell: str, check: str, scripts: dict[str, Path]) -> None:
    program = shutil.which(shell) or pytest.skip(f"{shell} is not installed")
    done = subprocess.run([program, check, str(scripts[shell])], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_script_names_every_command_and_flag(shell: str, scripts: dict[str, Path]) -> None:
    text = scripts[shell].read_text()
    for command in COMMANDS.values():
        assert all(word in text for word in command.name.split())
        for field in command.fields():
            assert field.place or (f" -l {field.flag[2:]} " if shell == "fish" else field.flag) in text
    assert text.count("'") % 2 == 0
    assert all(one.isprintable() or one == "\n" for one in text)


def test_the_command_prints_the_script(scripts: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"].read_text()
    assert main(["completion", "tcsh"]) == 2
    assert "Known: bash, zsh, fish" in capsys.readouterr().err.replace("bash, fish, zsh", "bash, zsh, fish")
