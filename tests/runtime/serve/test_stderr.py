"""A server whose log nobody reads: it answers all the same, and says afterwards what was lost."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dragonscale.stderr_relay import StderrRelay
from tests.runtime.serve.test_run_serve import asked, slow_server

PIPE = 4096

WRITER = """
import os, subprocess, sys
from dragonscale.stderr_relay import StderrRelay
with StderrRelay():
    for number in range(40_000):
        print(f"line {number} " + "x" * 60, file=sys.stderr)
    subprocess.run(["sh", "-c", "echo of a child >&2"], check=True)
    os.write(1, b"written")
    sys.stdin.readline()
print("the end", file=sys.stderr, flush=True)
"""


def full_pipe() -> tuple[int, int]:
    """A pipe that is soon full."""
    reading, writing = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    return reading, writing


@pytest.mark.parametrize("read", [True, False])
def test_lines_that_nobody_reads_are_lost_and_counted(read: bool) -> None:
    reading, writing = full_pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing
    )
    os.close(writing)
    assert process.stdin is not None
    assert process.stdout is not None
    with os.fdopen(reading, "rb") as log, process.stdin, process.stdout:
        assert process.stdout.read(7) == b"written"  # 2.8 MB of lines into a pipe of 4 kB
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(line.decode() for line in log), daemon=True)
        if read:
            reader.start()
            time.sleep(0.3)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(20) == 0
        if read:
            reader.join(20)
    if read:
        assert lines[0].startswith("line 0 ")
        assert lines[-1] == "the end\n"
        told = [line for line in lines if "were lost here" in line]
        lost = sum(int(line.split()[0].replace(",", "")) for line in told)
        assert lost > 10_000
        whole = [line for line in lines if line.startswith("line ")]
        assert len(whole) + lost + ("of a child\n" in lines) == 40_001


def test_a_process_without_stderr_has_no_relay() -> None:
    code = "import os; os.close(2)\nfrom dragonscale.stderr_relay import StderrRelay\nwith StderrRelay(): print('fine')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"fine\n"
    with StderrRelay() as relay:  # pytest's own stderr is no terminal
        os.write(2, b"a word\n")
    assert relay._writer is None or not relay._writer.is_alive()


def test_a_server_answers_while_nobody_reads_its_stderr(tmp_path: Path) -> None:
    """Lines for each request, and lines of how it goes, into a pipe that is full after a few of them."""
    server, url = slow_server(tmp_path, 0, "--log-every", "0.05s", pipe=PIPE)
    try:
        end = time.monotonic() + 60
        while asked(f"{url}/ready")[0] != 200 and time.monotonic() < end:
            time.sleep(0.05)
        began = time.monotonic()
        for number in range(30):
            body = {"prompt": [1 + number], "max_tokens": 2}
            assert asked(f"{url}/v1/completions", body)[0] == 200
            assert asked(f"{url}/health")[0] == 200
        assert time.monotonic() - began < 30
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        assert server.stdout is not None
        assert "30" in server.stdout.read()
    finally:
        server.kill()
        server.wait()
        for stream in (server.stdout, server.stderr):
            if stream is not None:
                stream.close()
