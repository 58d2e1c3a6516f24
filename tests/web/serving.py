"""The page served for the tests of it: `dscale web` in a process of its own, as a user starts it."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0
"""Seconds that the server has to come up; it takes two on an idle machine."""

READY = """() => {
  const main = document.querySelector('main');
  const seen = (one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.top < innerHeight && box.bottom > 0;
  };
  return Boolean(main) && main.innerText.length > 200 && !document.querySelector('[aria-busy=true]')
    && ![...document.querySelectorAll('.skeleton, .reserve')].some(seen);
}"""
"""The answer is there: nothing is under way, no place in sight is kept for what is still to come, and text stands in
the page."""


def wait_ready(page: Any, seconds: float = PATIENCE, condition: str = READY) -> None:
    """Wait until a page shows its answer. Playwright's own waiting evaluates text inside of the page, which its policy
    forbids."""
    until = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > until:
            raise TimeoutError(f"{page.url} is not ready: {page.inner_text('main')[:200]!r}")
        page.wait_for_timeout(30)


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def served() -> Iterator[str]:
    """The page's address while its server runs."""
    port = free_port()
    command = [sys.executable, "-m", "dragonscale", "web", "--port", str(port), "--no-browser"]
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        _wait(address, process)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"`dscale web` ended with status {process.returncode}.")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("`dscale web` did not come up.")


@pytest.fixture(scope="module")
def page_address() -> Iterator[str]:
    """The page, served for the tests of a module."""
    pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")
    with served() as address:
        yield address
