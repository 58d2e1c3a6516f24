"""What the page's server adds to an answer, and what a search does to the sliders beside it.

    python -m benchmarks.web_page [--seconds 5]

Ratios, because machines differ: how many answers a second come over HTTP from two workers, against the same questions
answered in one process; and how long a slider's question takes while searches run, against the same without them.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dragonscale.web.answers import answer

PLAN = {"model": "llama3-70b", "on": "v5p:8x16x16", "seq": 8192, "plan": "fsdp64 tp8", "alone": True}
SEARCH = {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "4Mi", "seq": 8192}
JSON = {"content-type": "application/json"}


def slider(sequences: int) -> dict[str, Any]:
    """What the page asks while the batch is dragged: each position another question."""
    panels = ["answer", "time", "memory", "mesh"]
    return {"view": "train", "fields": PLAN | {"batch": f"{512 + sequences}seq"}, "panels": panels, "brief": True}


class Client:
    """A tab: one connection that is kept."""

    def __init__(self, port: int, tab: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.headers = JSON | {"x-dragonscale-tab": tab}

    def ask(self, request: dict[str, Any]) -> float:
        """Seconds to the end of the answer."""
        began = time.perf_counter()
        self.connection.request("POST", "/api/ask", json.dumps(request).encode(), self.headers)
        lines = self.connection.getresponse().read().splitlines()
        if not json.loads(lines[-1]).get("done"):
            raise SystemExit(lines[-1].decode())
        return time.perf_counter() - began


@contextlib.contextmanager
def page(workers: int) -> Iterator[int]:
    """`dscale web`, ready; its port."""
    command = [sys.executable, "-m", "dragonscale", "web", "--port", "0", "--no-browser", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    try:
        found = re.search(r":(\d+)/", process.stderr.readline())
        assert found
        assert "Ready" in process.stderr.readline()
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=20)


def in_process(seconds: float) -> float:
    """Answers a second of the planner alone, on one core."""
    answer(slider(0), lambda _: None)
    began = time.perf_counter()
    for count in itertools.count(1):
        answer(slider(count), lambda message: json.dumps(message) and None)
        if time.perf_counter() - began > seconds:
            return count / (time.perf_counter() - began)
    raise AssertionError


def over_http(port: int, tabs: int, seconds: float) -> float:
    """Answers a second of the server, asked by so many tabs."""
    until = time.perf_counter() + seconds

    def work(tab: int) -> int:
        client = Client(port, f"tab{tab}")
        for count in itertools.count(1):
            client.ask(slider(1000 * (tab + 1) + count))
            if time.perf_counter() > until:
                return count
        raise AssertionError

    with ThreadPoolExecutor(tabs) as threads:
        return sum(threads.map(work, range(tabs))) / seconds


def dragged(port: int, seconds: float, begin: int) -> list[float]:
    """Seconds of one slider's questions, each after the other."""
    client, until = Client(port, "slider"), time.perf_counter() + seconds
    found = []
    while time.perf_counter() < until:
        found.append(client.ask(slider(begin + len(found))))
    return sorted(found)


def searches(port: int, stop: threading.Event) -> None:
    """Another tab that searches without pause."""
    client = Client(port, "search")
    for count in itertools.count():
        if stop.is_set():
            return
        client.ask({"view": "train", "fields": SEARCH | {"seq": 4096 + 8 * count}, "panels": ["answer"]})


def percentile(found: list[float], share: float) -> float:
    return found[int(share * (len(found) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    alone = in_process(given.seconds)
    with page(given.workers) as port:
        dragged(port, 1.0, 50_000)
        served = over_http(port, 2 * given.workers, given.seconds)
        quiet = dragged(port, given.seconds, 60_000)
        stop = threading.Event()
        searching = threading.Thread(target=searches, args=(port, stop))
        searching.start()
        busy = dragged(port, given.seconds, 70_000)
        stop.set()
        searching.join()
        began = time.perf_counter()
        Client(port, "x").ask({"view": "train", "fields": SEARCH | {"seq": 6000}, "panels": ["answer"]})
        search = time.perf_counter() - began
    print(f"a fixed plan in process: {alone:.1f} answers/s on one core")
    print(f"over HTTP, {given.workers} workers: {served:.1f} answers/s, {served / alone:.2f} of one core in process")
    for name, found in (("alone", quiet), ("while searches run", busy)):
        print(
            f"a slider {name}: median {1e3 * percentile(found, 0.5):.0f} ms, 95th percentile "
            f"{1e3 * percentile(found, 0.95):.0f} ms"
        )
    print(f"searches make its 95th percentile {percentile(busy, 0.95) / percentile(quiet, 0.95):.2f} times as long")
    print(f"a search for LLaMA-3 70B on v5p:8x16x16: {search:.2f} s")


if __name__ == "__main__":
    main()
