"""The planner asks nothing of POSIX: its commands answer where the modules and calls that Windows lacks are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from dragonscale.faces.cli.table import COMMANDS

MISSING = """
import os, signal, sys
import asyncio, multiprocessing, numpy, platform, shutil, subprocess, sympy, tempfile, webbrowser  # know their system
platform.uname()
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "readline", "syslog", "curses"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "fchmod", "fchown", "killpg", "getpgid", "setsid", "getuid", "geteuid", "pread",
             "pwrite", "sched_getaffinity", "sysconf", "uname", "mkfifo", "statvfs", "getloadavg", "O_NOFOLLOW",
             "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD", "SIGPIPE", "pthread_kill", "alarm",
             "setitimer", "siginterrupt"):
    if hasattr(signal, name):
        delattr(signal, name)
from dragonscale.faces.cli import main
"""
ASKED = """
import contextlib, io, pathlib, shlex
pathlib.Path("plan.toml").write_text("old")
for line in LINES:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        code = main(shlex.split(line))
    assert code in (0, 4), (line, code, told.getvalue())
assert "tensor" in pathlib.Path("plan.toml").read_text()
"""
LINES = (
    "train llama3-8b --on h100:8 --batch 64seq --seq 4096 --plan 'tp2 fsdp4' --alone --save plan.toml",
    "train --plan plan.toml --alone --json",
    "serve llama3-8b --on h100:1 --batch 8 --timeline step.json",
    "simulate llama3-8b --on h100:1 --rate 2/s --requests 50 --no-max-rate",
    "explain train fsdp8 --model llama3-8b --on h100:8",
    "export plan.toml --to torchtitan --out run",
    "roofline 'bf16[B,8192] @ bf16[8192,8192]' --on v5e",
    "collective all_gather 34MB --on v5e:4x4",
    "shard 'A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]' --mesh X=4,Y=4",
    "estimate llama3-8b --on h100:8 --tokens 1T",
    "calc '1e12 FLOP / v5e.bf16'",
    "chips h100",
    "models llama3-8b",
    "hlo example",
    "learn --list",
    "doctor",
    "completion bash",
)
SERVERS = ("dscale web", "dscale mcp", "dscale run", "dscale sweep", "dscale verify", "dscale calibrate")
"""What starts processes or servers of its own, which the page on installing says of it."""


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)


def test_the_planner_needs_nothing_of_posix(tmp_path: Path) -> None:
    done = run(f"{MISSING}\nLINES = {LINES!r}\n{ASKED}", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_rest_of_the_planner_is_imported_without_it(tmp_path: Path) -> None:
    names = [name for name in COMMANDS if not f"dscale {name}".startswith(SERVERS)]
    load = f"from dragonscale.faces.cli.table import COMMANDS\n[COMMANDS[name].load() for name in {names!r}]"
    done = run(f"{MISSING}\n{load}", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("use", ["import fcntl", "import os; os.fork()", "import signal; signal.SIGALRM"])
def test_a_use_of_posix_is_seen(use: str, tmp_path: Path) -> None:
    assert run(f"{MISSING}\n{use}", tmp_path).returncode != 0
