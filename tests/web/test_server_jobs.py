"""Jobs of the page's server: begun, heard, cancelled with everything they started, and refused in a sentence."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")

from dragonscale.commands.questions.flag import with_values
from dragonscale.errors import InputError
from dragonscale.web.server.job import job_question
from dragonscale.web.server.jobs import job_environment
from dragonscale.web.server.settings import PageSettings
from tests.web.server_under_test import JSON, Served, server_under_test

VERIFY = {"plan": "fsdp=8,remat=block", "model": "llama3-8b", "on": "h100:8", "batch": "16seq", "seq": "8192"}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with server_under_test(workers=1) as found:
        yield found


def begin(server: Served, fields: dict[str, Any], kind: str = "verify") -> tuple[int, dict[str, Any]]:
    body = json.dumps({"kind": kind, "fields": fields}).encode()
    status, _, said = server.send("POST", "/api/jobs", body, JSON)
    return status, json.loads(said)


def hear(server: Served, id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.send("GET", f"/api/jobs/{id}")[2].splitlines()]


def processes() -> set[str]:
    """Jobs, and what they compile in, that run now for this process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            started = f"DRAGONSCALE_CACHE={os.environ['DRAGONSCALE_CACHE']}".encode() in (path / "environ").read_bytes()
            if started and b"dragonscale.web.server.job" in (path / "cmdline").read_bytes():
                found.add(path.name)
            if started and b"dragonscale.evidence.verify.worker" in (path / "cmdline").read_bytes():
                found.add(path.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (VERIFY | {"plan": "/etc/passwd"}, "looks like a file"),
        (VERIFY | {"on": "h100+profile=/secret"}, "looks like a file"),
        (VERIFY | {"plan": "mine.toml"}, "looks like a file"),
        (VERIFY | {"options": "xla_dump_to=here"}, "options cannot be set"),
        (VERIFY | {"timeout": "9999s"}, "timeout cannot be set"),
        (VERIFY | {"memory_limit": "999GB"}, "memory_limit cannot be set"),
        (VERIFY | {"shell": "rm"}, "no parameter 'shell'"),
    ],
)
def test_a_job_takes_no_file_and_no_option(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        job_question("verify", fields, {})


def test_the_server_limits_the_memory_of_a_compiler() -> None:
    question = job_question("verify", VERIFY, {})
    limited = with_values(question, timeout="60s", memory_limit="1GB")
    assert (limited.timeout, limited.memory_limit, question.memory_limit) == ("60s", "1GB", "8GB")
    with pytest.raises(TypeError, match="has no memory"):
        with_values(question, memory="1GB")


def test_jobs_may_ask_the_hub_only_where_workers_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert job_environment(PageSettings(), "/x")["HF_TOKEN"] == "secret"
    for settings in (PageSettings(offline=True), PageSettings(host="0.0.0.0")):
        found = job_environment(settings, "/x")
        assert found["HF_HUB_OFFLINE"] == "1"
        assert "HF_TOKEN" not in found
    assert found["HF_HOME"] == "/x", "others find nothing of the owner's"


def test_jobs_are_refused_begun_and_cancelled_with_all_their_children(server: Served) -> None:
    status, said = begin(server, {}, "rm -rf")
    assert (status, said["error"]["kind"]) == (400, "input")
    assert server.send("GET", "/api/jobs/none")[0] == 404

    _, first = begin(server, VERIFY)
    _, second = begin(server, VERIFY | {"on": "nothing"})
    _, third = begin(server, VERIFY)
    status, said = begin(server, VERIFY)
    assert (status, said["error"]["kind"]) == (429, "busy"), "two wait already"
    end = time.monotonic() + 120
    while not processes() and time.monotonic() < end:
        time.sleep(0.05)
    assert processes()
    assert server.send("DELETE", f"/api/jobs/{third['id']}")[0] == 200
    assert server.send("DELETE", f"/api/jobs/{first['id']}")[0] == 200
    assert hear(server, first["id"])[-1]["error"]["kind"] == "cancelled"
    assert hear(server, third["id"])[-1]["error"]["kind"] == "cancelled"
    error = hear(server, second["id"])[-1]["error"]
    assert error["kind"] == "input", "the next one ran"
    assert "nothing" in error["text"]
    while processes() and time.monotonic() < end:
        time.sleep(0.05)
    assert not processes()
    idle = {"running": 0, "waiting": 0}
    while server.health()["jobs"] != idle and time.monotonic() < end:
        time.sleep(0.05)
    assert server.health()["jobs"] == idle


@pytest.mark.slow
def test_a_verification_comes_as_a_sheet_and_a_record(server: Served) -> None:
    pytest.importorskip("jax_plugins.xla_cuda12", reason="verifying for GPUs needs the extra `gpu-compiler`.")
    _, said = begin(server, VERIFY)
    found = hear(server, said["id"])
    assert found[-1] == {"done": True}
    panels = {message["panel"]: message["data"] for message in found if "panel" in message}
    assert panels["record"]["request"]["plan"] == VERIFY["plan"]
    assert panels["sheet"]["blocks"][0]["kind"] == "Title"
    assert hear(server, said["id"])[-1] == {"done": True}, "and can be heard again"
