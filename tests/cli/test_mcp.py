"""The planner as tools of the Model Context Protocol, called by the official client."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.questions.flag import FILES, fields_of
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.faces.cli.mcp.results import LARGEST, shortened, structured_result
from dragonscale.faces.cli.mcp.tools import COMMON, RECORD, known_lists, tools
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.installing import install_hint

SRC = str(Path(ds.__file__).parents[1])
TRAIN = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 4096, "plan": "fsdp8", "alone": True}
SERVE = {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "batch": 16, "engine": "vllm"}
EXPORT = {"plan": "tp2", "to": "vllm", "model": "llama3-8b", "on": "h100:2", "batch": 32, "prompt": 1024, "output": 256}


def test_every_command_that_answers_is_a_tool() -> None:
    found = tools()
    assert {
        "train",
        "serve",
        "simulate",
        "estimate",
        "compare",
        "roofline",
        "shard",
        "collective",
        "explain_train",
    } < set(found)
    assert {"chips", "models", "export", "import", "validate_training", "validate_serving"} < set(found)
    assert set(found) == {name.replace(" ", "_") for name, command in COMMANDS.items() if command.tool}
    assert not {"run_train", "sweep", "completion", "mcp"} & set(found)


@pytest.mark.parametrize("name", tools())
def test_a_schema_says_what_the_question_takes(name: str) -> None:
    tool = tools()[name]
    schema = tool.schema()
    own = {field.name: field for field in fields_of(tool.command.question)}
    assert set(schema["properties"]) == {one for one in own if own[one].group != FILES} | {"explain", "record", "whole"}
    assert not {"explain", "record", "whole"} & set(own), "a field would be hidden by a parameter of every tool"
    assert schema.get("required", []) == [one for one, field in own.items() if field.required]
    assert all(part["description"] for part in schema["properties"].values())
    json.dumps(schema)


def test_long_answers_are_cut_unless_asked_for() -> None:
    found = ds.train(**TRAIN)
    short, whole = structured_result(found, False), structured_result(found, True)
    assert len(json.dumps(short)) <= LARGEST
    assert {name: whole[name] for name in found.to_dict()} == json.loads(json.dumps(found.to_dict()))
    assert short["plans"][0]["step_s"] == whole["plans"][0]["step_s"]
    assert shortened({"a": list(range(9))}, 8) == {"a": list(range(8)), "a_left_out": 1}


def test_without_the_sdk_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dragonscale.faces.cli.mcp.server.has_sdk", lambda: False)
    assert main(["mcp"]) == 2
    assert capsys.readouterr().err == f"dscale: `dscale mcp` needs the MCP SDK, version 2: {install_hint('mcp')}\n"


@pytest.fixture(scope="module")
def session() -> dict[str, Any]:
    """One session over stdio, as a client of today has it: initialize, list the tools, call some."""
    pytest.importorskip("mcp")
    import anyio
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    paths = os.pathsep.join(dict.fromkeys([SRC, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    server = StdioServerParameters(command=sys.executable, args=["-m", "dragonscale", "mcp"], env={"PYTHONPATH": paths})
    found: dict[str, Any] = {}

    async def talk() -> None:
        async with stdio_client(server) as streams, ClientSession(*streams) as client:
            found["initialize"] = await client.initialize()
            found["tools"] = (await client.list_tools()).tools
            for name, tool, given in (
                ("train", "train", TRAIN | {RECORD: True}),
                ("short", "train", TRAIN),
                ("serve", "serve", SERVE | {RECORD: True}),
                ("export", "export", EXPORT),
                ("wrong chip", "train", {**TRAIN, "on": "h10:8"}),
                ("wrong name", "train", {**TRAIN, "bach": 4}),
                ("wrong kind", "train", {**TRAIN, "top": "many"}),
                ("wrong object", "serve", {**SERVE, "model": {"a": 1}}),
                ("missing", "roofline", {"on": "h100"}),
                ("infeasible", "train", {**TRAIN, "model": "llama3-70b"}),
                ("no tool", "trian", {}),
                ("last", "chips", {"name": "h100"}),
            ):
                found[name] = await client.call_tool(tool, given)

    anyio.run(talk)
    return found


def test_it_says_who_it_is(session: dict[str, Any]) -> None:
    assert session["initialize"].server_info.name == "dragonscale"
    assert "exit_code" in session["initialize"].instructions
    listed = {tool.name: tool for tool in session["tools"]}
    assert set(listed) == set(tools())
    assert listed["train"].input_schema == tools()["train"].schema()
    assert all(tool.annotations.read_only_hint for tool in listed.values())


def test_a_call_answers_as_the_library_does(session: dict[str, Any]) -> None:
    result, own = session["train"], ds.train(**TRAIN)
    assert not result.is_error
    assert result.content[0].text.splitlines()[0] == str(own).splitlines()[0]
    assert result.structured_content == structured_result(own, False)
    assert result.structured_content["plans"][0]["step_s"] == own.plans[0].step_s
    assert not session["serve"].is_error
    assert session["serve"].structured_content["configs"][0]["tpot_s"] > 0


def test_a_text_is_enough_unless_the_record_is_asked_for(session: dict[str, Any]) -> None:
    assert session["short"].structured_content is None
    assert session["short"].content[0].text == session["train"].content[0].text
    assert len(session["short"].content[0].text) < 4000
    assert "exit_code" not in session["short"].content[0].text


def test_an_export_gives_its_files_as_text(session: dict[str, Any]) -> None:
    text = session["export"].content[0].text
    assert text.startswith("#!/usr/bin/env bash")
    assert "--tensor-parallel-size 2" in text
    assert not Path("vllm.sh").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wrong chip", "There is no chip 'h10'; did you mean 'h100'?"),
        ("wrong name", "The tool train has no parameter 'bach'; did you mean 'batch'?"),
        ("wrong kind", "--top"),
        ("wrong object", "model takes text"),
        ("missing", "The tool roofline needs expression"),
        ("no tool", "There is no tool 'trian'; did you mean 'train'?"),
    ],
)
def test_what_is_wrong_is_a_sentence(session: dict[str, Any], name: str, sentence: str) -> None:
    result = session[name]
    assert result.is_error
    assert result.content[0].text.startswith(sentence)
    assert "\n" not in result.content[0].text


def test_what_does_not_fit_is_an_answer(session: dict[str, Any]) -> None:
    assert not session["infeasible"].is_error
    assert session["infeasible"].content[0].text.rstrip().endswith("exit_code 3: infeasible.")
    assert not session["last"].is_error


def test_the_newest_protocol_and_progress() -> None:
    """In process, where the server is quick to start: a client that sends no handshake, and one that asks how far it
    is."""
    pytest.importorskip("mcp")
    import anyio
    from mcp import Client

    from dragonscale.faces.cli.mcp.server import make_server

    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
        heard.append(progress)

    async def talk() -> Any:
        async with Client(make_server()) as client:
            return await client.call_tool(
                "train", {"model": "llama3-8b", "on": "h100:256", "batch": "4M", "seq": 8192}, progress_callback=hear
            )

    assert not anyio.run(talk).is_error
    assert heard
    assert heard == sorted(heard)


def test_examples_of_a_schema_are_what_people_ask_for_and_known() -> None:
    assert all(set(words) <= set(known_lists()[name]) for name, words in COMMON.items())
    properties = tools()["serve"].schema()["properties"]
    assert properties["model"]["examples"][0] == "llama3.3-70b"
    assert properties["kv_dtype"]["examples"][:2] == ["bf16", "fp8"]


def test_a_wrong_name_is_answered_with_all_names() -> None:
    with pytest.raises(InputError, match=r"has no parameter 'op'.* It takes kind, "):
        tools()["collective"].question({"op": "all_gather"})
