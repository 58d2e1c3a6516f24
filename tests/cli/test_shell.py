"""The shell round the library: help, flags, defaults of one's own, colour, files."""

import inspect
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from dragonscale.blocks.colour import wants_colour
from dragonscale.blocks.terminal import width_of
from dragonscale.commands.questions.flag import GROUPS, Thing
from dragonscale.faces.cli import main
from dragonscale.faces.cli.app import run
from dragonscale.faces.cli.help import MAIN, command_help, full_overview
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.faces.commands import BESIDE

ASKED = ["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", "--plan", "fsdp8", "--alone"]


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_real_types_groups_and_examples_that_parse(name: str) -> None:
    from dragonscale.faces.cli.app import find_command
    from dragonscale.faces.cli.arguments import read_arguments

    command = COMMANDS[name]
    text = command_help(command, 80, colour=False)
    assert max(len(line) for line in text.split("\n") if not line.startswith("  dscale")) <= 80
    assert " STR" not in text
    assert '[""]' not in text
    assert "[]" not in text
    for field in command.fields():
        assert field.group in GROUPS
        assert field.about.endswith((".", "…", ")", "?")), field.name
        assert field.switch or field.value, field.name
    assert command.examples
    for example in command.examples:
        import shlex

        found, rest = find_command(shlex.split(example.partition(" | ")[0])[1:])
        assert found is command, example
        read_arguments(command.fields(), rest, name)


SCREEN = 50
"""Lines of a screen."""


@pytest.mark.parametrize("name", ["train", "serve", "simulate", "rl", "compare"])
def test_the_first_help_fits_a_screen_with_examples_first(name: str) -> None:
    command = COMMANDS[name]
    brief = command_help(command, 80, colour=False, whole=False)
    lines = brief.split("\n")
    assert len(lines) <= SCREEN
    assert lines.index("Examples") < lines.index("Common flags")
    assert all(re.search(rf"{field.flag}\b", brief) for field in command.fields() if not field.place)
    assert f"`dscale {name} --help-all`" in brief
    assert max(len(line) for line in lines if not line.startswith("  dscale")) <= 80


def test_the_first_screen_has_the_main_commands_and_where_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    first = capsys.readouterr().out
    assert [line.split()[0] for line in first.split("\n") if re.match(r"  \w", line)] == [*MAIN]
    assert all(f"            dscale {name} " in first for name in MAIN)
    for words in (["help", "all"], ["--help-all"]):
        assert run(words) == 0
        assert capsys.readouterr().out == full_overview(width_of(), wants_colour("auto")) + "\n"
    assert run(["train", "--help-all"]) == 0
    assert "--spares HOSTS" in capsys.readouterr().out


MOST_COMMANDS = 25


def test_the_overview_names_every_command() -> None:
    text = full_overview(80, colour=False)
    for name in COMMANDS:
        assert re.search(rf"`{name}`" if name in BESIDE else rf"^  {name.split()[0]}\b", text, re.M), name
    assert len(re.findall(r"^  \w", text, re.M)) <= MOST_COMMANDS
    assert max(map(len, text.split("\n"))) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_and_the_records_agree(name: str) -> None:
    command = COMMANDS[name]
    assert callable(command.load())
    assert all(field.taken(field.default) == field.default for field in command.fields() if not field.required)
    assert not command.charts or "plot" in command.outputs
    record = inspect.signature(command.load(), eval_str=True).return_annotation
    kinds = {kind for one in (get_args(record) or (record,)) for kind in getattr(one, "CHARTS", ())}
    assert set(command.charts) == (set() if name == "explain model" else kinds)  # whose lines are no times


BAD = {
    "unknown command": (["trian"], "did you mean 'train'"),
    "unknown flag": ([*ASKED, "--stak", "megatron"], "did you mean --stack"),
    "value missing": ([*ASKED, "--tokens"], "--tokens needs a value: Tokens of the whole run"),
    "value forgotten": (["train", "llama3-8b", "--on", "--batch", "1M"], "--on needs a value"),
    "twice": ([*ASKED, "--top", "3", "--top", "4"], "given twice"),
    "value of a switch": ([*ASKED, "--force=yes"], "takes no value"),
    "too many places": ([*ASKED, "h100"], "does not take 'h100' here"),
    "a value in two words": (
        ["train", "llama3-8b", "--plan", "tp8", "pp4"],
        "--plan takes one word: join several with a comma",
    ),
    "a word behind a switch": ([*ASKED, "--force", "yes"], "--force takes no value"),
    "not whole": ([*ASKED, "--top", "2.5"], "whole number"),
    "no colour": ([*ASKED, "--color", "red"], "Known: always, auto, never"),
    "no width": ([*ASKED, "--width", "3"], "40 to 1000"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_flags_are_one_sentence(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, wanted = BAD[case]
    code, out, err = said(arguments, capsys)
    assert (code, out) == (2, "")
    assert wanted in err
    assert err.count("\n") == 1


def test_old_spellings_and_underscores_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    plain = said([*ASKED, "--json"], capsys)[1]
    assert json.loads(said([*ASKED, "--json", "--colour", "never"], capsys)[1])["plans"] == json.loads(plain)["plans"]


def test_defaults_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    (tmp_path / "home/.config").mkdir(parents=True)
    (tmp_path / "home/.config/dragonscale.toml").write_text('price = "9/h"\n[train]\ntokens = "1T"\n')
    (tmp_path / "dragonscale.toml").write_text('price = "5/h"\n[serve]\noutput = 99\n')
    answer = json.loads(said([*ASKED, "--json"], capsys)[1])
    assert answer["workload"]["tokens"] == 1e12
    assert answer["plans"][0]["cost_usd"] == pytest.approx(answer["plans"][0]["chip_hours"] * 5)
    given = json.loads(said([*ASKED, "--json", "--price", "2/h"], capsys)[1])
    assert given["plans"][0]["cost_usd"] == pytest.approx(given["plans"][0]["chip_hours"] * 2)
    (tmp_path / "dragonscale.toml").write_text('prise = "5/h"\n')
    code, _, err = said([*ASKED], capsys)
    assert code == 2
    assert "did you mean 'price'" in err


def test_colour_only_where_it_is_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in said(ASKED, capsys)[1]
    assert "\x1b[" in said([*ASKED, "--color", "always"], capsys)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in said(ASKED, capsys)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in said(ASKED, capsys)[1]


@pytest.mark.parametrize("width", [60, 100, 200])
def test_an_answer_fits_the_width(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*ASKED, "--explain", "--width", str(width)], capsys)[1]
    shown = [line for line in text.split("\n") if not line.startswith("  dscale ")]
    assert max(map(len, shown)) <= width


def test_files_are_written_though_the_reader_leaves_early(tmp_path: Path) -> None:
    import subprocess
    import sys

    line = [sys.executable, "-m", "dragonscale", *ASKED, "--save", str(tmp_path / "plan.toml")]
    first = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert first.stdout is not None
    first.stdout.close()
    assert first.wait(timeout=120) == 0
    assert "fsdp = 8" in (tmp_path / "plan.toml").read_text()


def test_things_are_taken_as_objects() -> None:
    import dragonscale as ds
    from dragonscale.training.plan.plan_file import parse_plan

    model, piece, plan = ds.load_model("llama3-8b"), ds.parse_slice("h100:8"), parse_plan("fsdp8")
    by_text = ds.train("llama3-8b", "h100:8", "64seq", 8192, plan="fsdp8", alone=True)
    by_object = ds.train(model, piece, "64seq", 8192, plan=plan, alone=True)
    assert by_object.to_dict()["plans"] == by_text.to_dict()["plans"]
    assert isinstance(Thing("x").taken(model), type(model))
