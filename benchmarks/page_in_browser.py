"""What a reader of the page waits for, by the page's own clock in a headless Chromium.

    python -m benchmarks.page_in_browser [--moves 40] [--static site/app]

From a slider's move to the frame that shows it, alone and while another tab's curves are searched; a change of the
question while curves of the last one are searched, against its search alone; and of a static edition that was built,
the first answer, the first plan of one's own, and a slider while a search runs. Beside each time stands the CPU that
browser and server took, which is what counts where a machine has other work too.
"""

import argparse
import contextlib
import functools
import http.server
import json
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from playwright.sync_api import sync_playwright

from tests.web.browser import launch
from tests.web.serving import served, wait_ready
from tests.web.test_look import DRAG

JOB = "model=llama3-70b&on=v5p:8x16x16&batch=4Mi&seq=8192"
DRAGGED = {
    "a given plan": (f"{JOB}&plan=fsdp512+tp4+z3+none", "batch"),
    "best plan": (JOB, "batch"),
    "chips": (JOB, "chips"),
}
OTHER = "model=llama3-8b&on=h100:64&batch=1Mi&seq=8192"
ANSWERED = (
    "() => Boolean(document.querySelector('#answer .sentence')) && !document.querySelector('#answer[aria-busy=true]')"
)
SEARCHING = "() => document.body.innerText.includes('Searching the best plan')"
FIRST = """
new MutationObserver((_, watch) => {
  if (!document.querySelector('#answer .sentence')) return;
  window.__first = performance.now();
  watch.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
LOADED = """() => [window.__first, performance.getEntriesByType('resource')
  .filter((one) => one.responseEnd <= window.__first).reduce((sum, one) => sum + one.transferSize, 0)]"""
MOVE = (
    DRAG.replace("(moves)", "([field, moves])")
    .replace("'[data-field=batch] ", "`[data-field=${field}] ")
    .replace("range]'", "range]`", 1)
)


def cpu_s() -> float:
    """CPU seconds that this process's children and theirs have had."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def below(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return sum(seconds for pid, seconds in spent.items() if pid != os.getpid() and below(pid))


def opened(browser: Any, address: str, query: str, height: int = 900) -> Any:
    """A tab with its answer; a tall one shows its curves too, which are then searched."""
    page = browser.new_context(viewport={"width": 1440, "height": height}, reduced_motion="reduce").new_page()
    page.goto(f"{address}#train?{query}")
    wait_ready(page, 180, ANSWERED)
    return page


def drags(browser: Any, address: str, moves: int, beside: str) -> None:
    """Every slider's moves, three rounds each; the best round by its 95th percentile."""
    for name, (query, field) in DRAGGED.items():
        page = opened(browser, address, query)
        page.wait_for_timeout(1500)
        began, rounds = cpu_s(), [page.evaluate(MOVE, [field, moves]) for _ in range(3)]
        a_move = (cpu_s() - began) / (3 * moves)
        best = min(rounds, key=lambda one: one["most"])
        told = f", {1e3 * a_move:.0f} ms of CPU a move" if beside == "alone" else ""
        print(f"{name} {beside}: median {best['half']:.0f} ms, 95th percentile {best['most']:.0f} ms{told}", flush=True)
        page.context.close()


def change(browser: Any, address: str, rounds: int) -> None:
    """A search alone, by the protocol, and the same asked by the page while its curves are searched."""
    alone, asked = [], []
    page = opened(browser, address, JOB, 4000)
    for at in range(rounds):
        fields = dict(parse_qsl(JOB)) | {"price": f"{2 + at / 8}/h"}
        panels = ["answer", "time", "memory", "mesh", "sliders"]
        body = json.dumps({"view": "train", "fields": fields, "panels": panels}).encode()
        began = time.perf_counter()
        request = urllib.request.Request(f"{address}api/ask", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=120).read()
        alone.append(time.perf_counter() - began)
        wait_ready(page, 60, SEARCHING)
        page.hover("[data-field=batch] input[type=range]")
        query = f"{JOB}&price={2 + (at + 0.5) / 8}/h"
        asked.append(
            page.evaluate(
                """async (hash) => {
                  const [begun, answer] = [performance.now(), document.querySelector('#answer')];
                  location.hash = hash;
                  const is = (text) => answer.getAttribute('aria-busy') === text;
                  while (!is('true')) await new Promise((go) => setTimeout(go, 2));
                  while (!is('false')) await new Promise((go) => setTimeout(go, 2));
                  return (performance.now() - begun) / 1e3;
                }""",
                f"#train?{query}",
            )
        )
    page.context.close()
    ratio = statistics.median(asked) / statistics.median(alone)
    print(
        f"a search alone: median {statistics.median(alone):.2f} s; asked by the page while its curves are searched: "
        f"{statistics.median(asked):.2f} s, {ratio:.2f} times",
        flush=True,
    )


@contextlib.contextmanager
def static_host(folder: Path) -> Iterator[str]:
    """A plain file server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


def static(browser: Any, address: str, moves: int) -> None:
    """The edition without a server: its first answer, a plan of one's own, a slider while a search runs."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
    page.add_init_script(FIRST)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(address)
    wait_ready(page, 60, "() => Boolean(window.__first)")
    worked = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
    first, size = page.evaluate(LOADED)
    print(f"static edition, first answer: {first / 1e3:.2f} s ({worked:.2f} s of the page's CPU), {size / 1e6:.2f} MB")
    page.context.close()
    began, at = cpu_s(), time.perf_counter()
    page = opened(browser, address, "model=llama3-8b&on=h100:8&batch=1Mi&seq=8192")
    print(f"static edition, first plan of one's own: {cpu_s() - began:.1f} CPU-s, {time.perf_counter() - at:.0f} s")
    wait_ready(page, 120, "() => !document.querySelector('[aria-busy=true]')")
    page.set_viewport_size({"width": 1440, "height": 4000})
    page.wait_for_timeout(3000)
    began, rounds = cpu_s(), [page.evaluate(MOVE, ["batch", moves]) for _ in range(3)]
    a_move = (cpu_s() - began) / (3 * moves)
    best = min(rounds, key=lambda one: one["most"])
    print(
        f"static edition, a slider while curves are searched: median {best['half']:.0f} ms, 95th percentile "
        f"{best['most']:.0f} ms, {1e3 * a_move:.0f} ms of CPU a move"
    )
    page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--static", type=Path, help="the folder of a static edition")
    given = parser.parse_args()
    with served() as address, sync_playwright() as playwright:
        browser = launch(playwright)
        drags(browser, address, given.moves, "alone")
        change(browser, address, given.rounds)
        other = opened(browser, address, OTHER, 4000)
        drags(browser, address, given.moves, "while another tab searches")
        other.context.close()
        browser.close()
    if given.static:
        with static_host(given.static) as address, sync_playwright() as playwright:
            browser = launch(playwright)
            static(browser, address, given.moves)
            browser.close()


if __name__ == "__main__":
    main()
