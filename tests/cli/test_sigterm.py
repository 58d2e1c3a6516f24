"""SIGTERM, as schedulers send it, ends a command in order: a sentence, its own exit code, nothing half written."""

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = "from dragonscale.faces.cli import main; main()"


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks /proc for handlers")
def test_sigterm_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    question = shlex.split("simulate llama3-8b --on h100:1 --rate 9/s --prompt 500 --output 500 --requests 200000")
    table = tmp_path / "requests.csv"
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *question, "--table", str(table)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        while not hears(process.pid, signal.SIGTERM) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        answer, notes = process.communicate(timeout=60)
    assert process.returncode == 143
    assert (answer, notes) == ("", "dscale: SIGTERM stopped the command before its end.\n")
    assert not table.exists()
