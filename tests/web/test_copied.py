"""What is copied asks the same question: the command line, the Python text and the TOML, for any fields."""

import ast
import random
import shlex
import tomllib
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.questions.flag import Items, Real, Several, Switch, Whole
from dragonscale.commands.sweep.ask_sweep import product_of
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.training.plan.plan_file import load_training_file
from dragonscale.web.answers import answer
from dragonscale.web.views.copied import command_line, python_text, toml_text

NASTY = (
    "llama3-8b",
    "tp8 pp4",
    'it\'s "so"',
    "a;b|c&d $(x) `y`",
    "-x",
    "--plan",
    "naïve ∑",
    "back\\slash",
    "h100:8",
    "4Mi",
    "0123",
    "8192",
    "#",
    "~",
    "*",
    "a\nb",
    "50%",
)
ASKED = ("train", "serve", "simulate", "roofline", "shard", "collective", "chips", "models", "compare")


def drawn(command: str, chance: random.Random) -> dict[str, Any]:
    """Random fields of a question."""
    found: dict[str, Any] = {}
    for field in tools()[command].fields():
        if not field.required and chance.random() < 0.6:
            continue
        if isinstance(field, Switch):
            found[field.name] = chance.random() < 0.5
        elif isinstance(field, Whole):
            found[field.name] = chance.choice([0, 1, 7, "12", 4096])
        elif isinstance(field, Real):
            found[field.name] = chance.choice([0.1, "0.25", 1 / 3, 2])
        elif isinstance(field, Items):
            found[field.name] = [chance.choice(NASTY) for _ in range(chance.randint(1, 3))]
        elif isinstance(field, Several):
            found[field.name] = chance.choice(["hbm=2x", ["hbm=2x", "price=2/h"]])
        else:
            found[field.name] = chance.choice(NASTY)
    return found


def question(command: str, fields: dict[str, Any]) -> dict[str, Any]:
    return dict(vars(tools()[command].question(fields)))


@pytest.mark.parametrize("command", ASKED)
def test_the_command_line_asks_the_same(command: str) -> None:
    chance = random.Random(command)
    for _ in range(12):
        fields = drawn(command, chance)
        words = shlex.split(command_line(command, fields))
        assert words[:2] == ["dscale", command]
        given = read_arguments(COMMANDS[command].fields(), words[2:], command).values
        assert dict(vars(COMMANDS[command].question(**given))) == question(command, fields), (fields, words)


@pytest.mark.parametrize("command", ["train", "serve", "roofline", "compare"])
def test_the_python_text_asks_the_same(command: str) -> None:
    chance = random.Random(f"python {command}")
    for _ in range(12):
        fields = drawn(command, chance)
        call: Any = ast.parse(python_text(command, fields)).body[1].value  # pyright: ignore[reportAttributeAccessIssue]
        assert call.func.attr == command
        assert hasattr(ds, command)
        places = [ast.literal_eval(one) for one in call.args]
        named = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        kind = COMMANDS[command].question
        made = kind(tuple(places), **named) if command == "compare" else kind(*places, **named)
        assert dict(vars(made)) == question(command, fields), fields


@pytest.mark.parametrize("command", ["train", "serve"])
def test_the_toml_asks_the_same(command: str) -> None:
    chance = random.Random(f"toml {command}")
    for _ in range(12):
        fields = drawn(command, chance) | {"model": "m", "on": "s", "batch": "8", "seq": "9"}
        fields = {name: value for name, value in fields.items() if name in question(command, {"model": "m"})}
        (table,) = tomllib.loads(toml_text(command, fields)["text"])[command]
        (entry,) = product_of(command, table)
        plain = question(command, {"model": "m"})
        assert {**plain, **entry.asks} == question(command, fields)


def test_defaults_are_left_out_and_order_is_that_of_the_help() -> None:
    fields = {
        "seq": "8192",
        "top": 5,
        "on": "h100:64",
        "stack": "auto",
        "batch": "4Mi",
        "model": "llama3-70b",
        "force": False,
    }
    assert command_line("train", fields) == "dscale train llama3-70b --on h100:64 --batch 4Mi --seq 8192"
    assert command_line("shard", {"expression": "A[I] -> A[I_X]", "backward": False}).endswith("--no-backward")
    table = toml_text("roofline", {"expression": "-x", "on": "v5e"})
    assert tomllib.loads(table["text"]) == {"roofline": {"on": "v5e"}}
    assert table["use"] == "dscale roofline -- -x"


FIELDS = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": "4096", "plan": "fsdp8", "alone": True}


def copied(of: str, fields: dict[str, Any], panels: list[str], dropped: dict[str, str] | None = None) -> dict[str, Any]:
    heard: list[dict[str, Any]] = []
    answer({"view": "copied", "of": of, "fields": fields, "panels": panels, "dropped": dropped or {}}, heard.append)
    assert "error" not in heard[-1], heard[-1]
    return {one["panel"]: one["data"] for one in heard if "panel" in one}


@pytest.mark.parametrize(
    ("of", "fields", "read"),
    [
        ("train", FIELDS, lambda record: record["plans"][0]["step_s"]),
        pytest.param(
            "serve",
            {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "batch": "16"},
            lambda record: record["configs"][0]["tpot_s"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_copied_gives_the_same_numbers(of: str, fields: dict[str, Any], read: Any, capsys: Any) -> None:
    import json

    from dragonscale.faces.cli import main

    heard: list[dict[str, Any]] = []
    answer({"view": of, "fields": fields, "panels": ["record"]}, heard.append)
    shown = read(heard[-2]["data"])
    texts = copied(of, fields, ["texts"])["texts"]
    assert main([*shlex.split(texts["cli"])[1:], "--json"]) == 0
    assert read(json.loads(capsys.readouterr().out)) == shown
    names: dict[str, Any] = {}
    exec(texts["python"], names)  # our own text
    assert read(names["answer"].to_dict()) == shown


def test_the_plan_file_is_what_save_writes(tmp_path: Any) -> None:
    found = copied("train", FIELDS, ["plan", "verify"])
    place = tmp_path / "plan.toml"
    place.write_text(found["plan"]["text"])
    saved = load_training_file(place)
    assert (saved.model, saved.slice, saved.plan.fsdp, saved.batch, saved.seq) == ("llama3-8b", "h100:8", 8, 64, 4096)
    ds.train("llama3-8b", "h100:8", batch="64seq", seq=4096, plan="fsdp8", alone=True).save(str(tmp_path / "own.toml"))
    assert (tmp_path / "own.toml").read_text() == found["plan"]["text"]
    assert found["verify"]["cli"].startswith("dscale verify 'fsdp8 z3 none' --model llama3-8b --on h100:8")


def test_a_dropped_config_becomes_a_file() -> None:
    config = ds.load_model("llama3-8b")
    assert config is not None
    found = copied("serve", {"model": "../my model", "on": "h100:1"}, ["texts"], {"../my model": "{}"})["texts"]
    assert found["file"] == {"name": "my-model.json", "text": "{}"}
    assert found["cli"] == "dscale serve my-model.json --on h100:1"
