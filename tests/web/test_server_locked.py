"""What a worker may not do, tried in a process that is locked as workers are; and texts that try to name a file, in
every field."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragonscale.web.answers import answer
from dragonscale.web.view_names import view_names

TRIED = """
import glob, json, os, shutil, socket, subprocess, sys, tempfile
from pathlib import Path
folder, outside = sys.argv[1:3]
os.chdir(folder)
os.symlink(outside, "link")
from dragonscale.web.server.locked import lock
lock(folder)
forbidden = {
    "read": lambda: open(outside + "/secret").read(),
    "bytes": lambda: open(os.fsencode(outside + "/secret"), "rb").read(),
    "path": lambda: Path(outside, "secret").read_text(),
    "low": lambda: os.open(outside + "/secret", os.O_RDONLY),
    "write": lambda: open(outside + "/new", "w"),
    "package": lambda: open(os.path.join(os.path.dirname(json.__file__), "new"), "w"),
    "link": lambda: open("link/secret").read(),
    "up": lambda: open("../" + os.path.basename(outside) + "/secret").read(),
    "list": lambda: os.listdir(outside),
    "scan": lambda: list(os.scandir(outside)),
    "glob": lambda: glob.glob(outside + "/*") or (_ for _ in ()).throw(PermissionError()),
    "remove": lambda: os.remove(outside + "/secret"),
    "rename": lambda: os.rename(outside + "/secret", "mine"),
    "copy": lambda: shutil.copy(outside + "/secret", "mine"),
    "mkdir": lambda: os.mkdir(outside + "/made"),
    "passwd": lambda: open("/etc/passwd").read(),
    "memory": lambda: open("/proc/1/environ").read(),
    "run": lambda: subprocess.run(["true"]),
    "system": lambda: os.system("true"),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "fork": lambda: os.fork(),
    "socket": lambda: socket.socket(),
    "connect": lambda: socket.create_connection(("127.0.0.1", 1)),
    "lookup": lambda: socket.getaddrinfo("example.org", 80),
    "chdir": lambda: os.chdir("/"),
    "kill": lambda: os.kill(os.getppid(), 0),
}
allowed = {
    "own": lambda: open("mine", "w").write("x") and open("mine").read(),
    "temporary": lambda: tempfile.NamedTemporaryFile(dir=folder).close(),
    "import": lambda: __import__("wave") and __import__("numpy"),
    "null": lambda: open(os.devnull, "w").close(),
}
def tried(one):
    try:
        one()
        return "done"
    except PermissionError:
        return "refused"
    except Exception as error:
        return repr(error)
print(json.dumps([{name: tried(one) for name, one in table.items()} for table in (forbidden, allowed)]))
"""


def test_a_locked_process_touches_nothing_outside(tmp_path: Path) -> None:
    own, outside = tmp_path / "own", tmp_path / "outside"
    own.mkdir(), outside.mkdir()
    (outside / "secret").write_text("secret")
    found = subprocess.run([sys.executable, "-c", TRIED, own, outside], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    forbidden, allowed = json.loads(found.stdout)
    assert set(allowed.values()) == {"done"}, allowed
    assert set(forbidden.values()) == {"refused"}, forbidden
    assert os.listdir(outside) == ["secret"]


# Texts that name a file in some way, or would if they were put into a path, a shell or a format.
TRICKY = (
    "/etc/passwd",
    "../../etc/passwd",
    "~/.ssh/id_rsa",
    "~root/x",
    "./x",
    "mychip.toml:4x4",
    "h100+profile=/etc/passwd",
    "h100:8+profile=../x.toml",
    "llama3-8b?layers=/etc/passwd",
    "a\x00b",
    "/etc/passwd\x00.json",
    "x\n/etc/passwd",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "| cat /etc/passwd",
    "‥/‥/etc/passwd",
    "．．／etc／passwd",
    "C:\\x.toml",
    "\\\\host\\share",
    "file:///etc/passwd",
    "{0.__class__}",
    "%s%n",
    "__import__('os').system('x')",
    "-" * 3000,
    "٤",
    "1e999",
)


def _fields(view: str) -> list[str]:
    from dragonscale.faces.cli.mcp.tools import tools

    found = tools().get(view)
    return [field.name for field in found.fields()] if found else ["model", "on", "plan"]


FULL = {
    "model": "llama3-8b",
    "on": "h100:8",
    "batch": "8seq",
    "seq": 1024,
    "plan": "fsdp8",
    "name": "h100",
    "alone": True,
}


def _told(view: str, field: str, text: str) -> dict[str, Any]:
    known = set(_fields(view))
    fields = {name: value for name, value in FULL.items() if name in known} | {field: text}
    found: list[dict[str, Any]] = []
    answer({"view": view, "fields": fields, "panels": ["sheet"], "of": "train", "number": "step_s"}, found.append)
    return found[-1]


CASES = [(view, field) for view in view_names() for field in _fields(view)]


def check(
    cases: list[tuple[str, str]], texts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for view, field in cases:
        for text in texts:
            last = _told(view, field, text)
            if "error" in last:
                assert last["error"]["kind"] in ("input", "infeasible"), (view, field, text, last)
                said = last["error"]["text"]
                assert "\n" not in said
                assert "Traceback" not in said
                assert len(said) < 2000
                assert "root:" not in said
    assert not list(tmp_path.iterdir())


VIEWS = ("train", "serve", "chips", "models")


def test_no_field_names_a_file() -> None:
    paths = ("/etc/passwd", "h100+profile=/etc/passwd", "mychip.toml:4x4")
    for view, field in [
        (view, field)
        for view, field in CASES
        if view in VIEWS and field in ("model", "on", "plan", "name", "trace", "a")
    ]:
        for text in paths:
            last = _told(view, field, text)
            assert last.get("error", {}).get("kind") == "input", (view, field, text, last)


@pytest.mark.slow
def test_no_field_of_any_view_takes_a_tricky_text_amiss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(CASES, TRICKY, tmp_path, monkeypatch)
