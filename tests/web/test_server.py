"""The page's server as a client meets it: files, answers, who is let in, what is refused, and how it stops."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")

from dragonscale.errors import InputError
from dragonscale.web.answers import answer
from dragonscale.web.server.files import PageFiles
from dragonscale.web.server.page_serving import listen
from dragonscale.web.server.settings import PageSettings
from tests.web.server_under_test import JSON, Served, server_under_test

CHIP = {"view": "chips", "fields": {"name": "h100"}, "panels": ["sheet"]}
FIRST_LOAD = 1_000_000
"""Bytes, compressed, of everything that opening the page loads."""


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with server_under_test(names=("page.example.org",)) as found:
        yield found


def messages(request: dict[str, object]) -> list[dict[str, object]]:
    """The same question answered in this process."""
    found: list[dict[str, object]] = []
    answer(request, found.append)
    return found


def without_time(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in message.items() if name != "seconds"} for message in found]


@pytest.mark.parametrize(
    "asked",
    [
        CHIP,
        {"view": "chips", "fields": {"name": "h10"}},
        {"view": "nothing"},
        {"view": "models", "fields": {"model": "llama3-8b"}, "panels": ["record"]},
    ],
)
def test_an_answer_over_http_is_the_answer_of_the_planner(server: Served, asked: dict[str, object]) -> None:
    assert without_time(server.ask(asked)) == without_time(json.loads(json.dumps(messages(asked))))


def test_an_answer_is_compressed_line_by_line(server: Served) -> None:
    headers = JSON | {"accept-encoding": "gzip"}
    _, said, body = server.send("POST", "/api/ask", json.dumps(CHIP).encode(), headers)
    assert said["content-encoding"] == "gzip"
    assert [json.loads(line) for line in gzip.decompress(body).splitlines()][-1]["done"]
    first = zlib.decompressobj(wbits=31).decompress(body[: body.rindex(b"\x00\x00\xff\xff")])
    assert first.startswith(b'{"panel":"sheet"'), "a line can be read before the stream has ended"


def test_files_are_tagged_compressed_and_nothing_else_is_there(server: Served) -> None:
    status, said, body = server.send("GET", "/", headers={"accept-encoding": "gzip, br"})
    assert (status, said["content-type"], said["content-encoding"]) == (200, "text/html; charset=utf-8", "gzip")
    assert gzip.decompress(body) == PageFiles().made["index.html"]
    again = server.send("GET", "/", headers={"if-none-match": said["etag"]})
    assert (again[0], again[2]) == (304, b"")
    for path in (
        "/nothing",
        "/../server/app.py",
        "/%2e%2e/server/app.py",
        "/js/..%2f..%2fanswers.py",
        "//etc/passwd",
        "/js",
    ):
        assert server.send("GET", path)[0] == 404, path


def test_every_response_has_the_policy_and_no_cookie(server: Served) -> None:
    for method, path in (("GET", "/"), ("GET", "/nothing"), ("PUT", "/api/ask"), ("GET", "/health")):
        _, said, _ = server.send(method, path)
        policy = said["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert said["x-content-type-options"] == "nosniff"
        assert said["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in said


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:{port}", "host": "localhost:{port}", "sec-fetch-site": "same-origin"}, 200),
        ({"host": "page.example.org", "origin": "https://page.example.org"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"host": ""}, 421),
        ({"host": "0.0.0.0:{port}"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_who_may_ask(server: Served, headers: dict[str, str], status: int) -> None:
    given = {name: value.replace("{port}", str(server.port)) for name, value in headers.items()}
    found = server.send("POST", "/api/ask", json.dumps(CHIP).encode(), JSON | given)
    assert found[0] == status, found
    if status != 200:
        assert json.loads(found[2])["error"]["text"].endswith(".")


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"[1]", JSON, 400),
        (b'{"view": "\xff"}', JSON, 400),
        (b'{"a":' * 9000, JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b'"' + b"x" * 1_100_000 + b'"', JSON, 413),
        (b'"' + b"x" * 40_000_000 + b'"', JSON, 413),
        (b'"' + b"x" * 40_000_000 + b'"', {"content-type": "text/plain"}, 415),
    ],
)
def test_bad_bodies_are_refused_in_a_sentence(
    server: Served, body: bytes, headers: dict[str, str], status: int
) -> None:
    found = server.send("POST", "/api/ask", body, headers)
    assert found[0] == status
    assert "Traceback" not in found[2].decode()
    assert json.loads(found[2])["error"]["text"].endswith(".")


def test_headers_that_are_too_long_are_refused_in_a_sentence(server: Served) -> None:
    for size in (1_000_000, 5_000_000):
        status, headers, body = server.send("GET", "/health", headers={"x-long": "x" * size})
        assert (status, body) == (431, b"The headers of the request are longer than 32 kB.\n")
        assert headers["connection"] == "close"


def test_connections_are_kept_and_pipelined_requests_are_answered(server: Served) -> None:
    one = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with server.open() as end:
        end.sendall(one + one)
        end.settimeout(10)
        found = b""
        while found.count(b'"status":"ok"') < 2:
            found += end.recv(65536)
    assert b"connection: close" not in found


def test_the_first_load_is_small() -> None:
    """What opening the page loads: index.html, what it names, and nothing that a module would import."""
    files, seen, wanted = PageFiles(), set[str](), ["/index.html"]
    while wanted:
        name = wanted.pop()
        one = files.file(name)
        if name in seen or one is None:
            assert one is not None, f"{name} is loaded but not there"
            continue
        seen.add(name)
        text, folder = one.body.decode("utf-8", "replace"), Path(name).parent
        if name.endswith(".html"):
            found = re.findall(r'(?:src|href)="([^":#]+)"', text)
        else:
            found = (
                re.findall(r'(?:^|[;}\s])(?:import|export)[^"\'`;()]*?["\'](\.[^"\']+)["\']', text)
                if name.endswith(".js")
                else []
            )
        wanted += [os.path.normpath(folder / path) for path in found]
    assert seen == {"/index.html", "/page.css", "/js/page.js", "/icon.svg"}
    sizes = {name: len(one.packed or one.body) for name in seen if (one := files.file(name))}
    assert sum(sizes.values()) < FIRST_LOAD, sorted(sizes.items(), key=lambda item: -item[1])[:5]


def test_the_command_says_its_address_and_stops_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragonscale", "web", "--no-browser", "--workers", "1", "--port", "0"]
    where = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=where)
    assert process.stderr is not None
    said = process.stderr.readline()
    port = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
    assert port, said
    with pytest.raises(InputError, match=f"{port[1]} is in use; .*--port"):
        listen(PageSettings(port=int(port[1])))
    # It listens before it says so; once it answers, it hears signals too.
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/health", timeout=60) as answered:
        assert answered.status == 200
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "Stopped.\n")
    assert not list(tmp_path.iterdir()), "its folders are gone"
