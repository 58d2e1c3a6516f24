"""What people do on the page, done in a real browser: see a plan, drag it over a crossover, ask why, compare, copy,
link.

The numbers that the page shows are held against those that the copied command line prints.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.web.serving import wait_ready

TRAIN = "#train?model=llama3-8b&on=v5e:4x4&batch=512Ki&seq=4096"
TRAIN_70B = "#train?model=llama3-70b&on=v5p:8x16x16&batch=4Mi&seq=8192"
GIVEN = TRAIN + "&plan=fsdp16"
SERVE_70B = "#serve?model=llama3-70b&on=h100:8&prompt=2048&output=512&ttft=1s&tpot=40ms"
SERVE = "#serve?model=llama3-8b&on=h100:1&prompt=1024&output=256&ttft=500ms&tpot=30ms"
PATIENCE = 60.0
READY = (
    "() => Boolean(document.querySelector('#answer .sentence')) && !document.querySelector('#answer[aria-busy=true]')"
)
"""The answer stands; cards below it may still be under way."""


@pytest.fixture
def page(page_browser: Any) -> Iterator[Any]:
    """A tab of its own; a fault of the page's code fails the test."""
    context = page_browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    found = context.new_page()
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    yield found
    context.close()
    assert faults == []


def opened(page: Any, address: str, hash_: str) -> None:
    page.goto(address + hash_)
    wait_ready(page, PATIENCE, READY)


def until(page: Any, what: str, condition: Any) -> Any:
    """Wait for something to be so. Playwright's own waiting evaluates text in the page, which its policy forbids."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        page.wait_for_timeout(40)
    raise TimeoutError(f"never came: {what}")


def slider(page: Any, field: str) -> Any:
    return page.locator(f"[data-field={field}] input[type=range]")


def drag(page: Any, field: str, place: int) -> None:
    """Move a slider as a hand does: an input event for each place on the way, no change until it rests."""
    page.evaluate(
        """([field, place]) => {
          const one = document.querySelector(`[data-field=${field}] input[type=range]`);
          const step = Math.sign(place - one.value);
          while (Number(one.value) !== place) {
            one.value = Number(one.value) + step;
            one.dispatchEvent(new Event('input', { bubbles: true }));
          }
        }""",
        [field, place],
    )


def rest(page: Any, field: str) -> None:
    """Let go of a slider."""
    page.evaluate(
        "(field) => document.querySelector(`[data-field=${field}] input[type=range]`)"
        ".dispatchEvent(new Event('change', { bubbles: true }))",
        field,
    )


def copied_line(page: Any) -> list[str]:
    """The command line that the page gives."""
    page.get_by_role("button", name="Copy as").click()
    page.get_by_role("menuitem", name="CLI").click()
    text = page.locator("dialog pre, [role=dialog] pre").first
    text.wait_for()
    line = text.inner_text()
    page.keyboard.press("Escape")
    return shlex.split(line)


def printed(line: list[str]) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert line[0] == "dscale"
    ended = subprocess.run(
        [sys.executable, "-m", "dragonscale", *line[1:], "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode in (0, 4), ended.stderr
    return json.loads(ended.stdout)


def figures(page: Any) -> dict[str, str]:
    """The headline figures as they are shown, by label."""
    return page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.figures > div')]"
        ".map((one) => [one.querySelector('dt').innerText.trim(), one.querySelector('.num').innerText.trim()]))"
    )


@pytest.mark.parametrize("where", [TRAIN, pytest.param(TRAIN_70B, marks=pytest.mark.slow)])
def test_a_training_plan_is_seen_dragged_explained_compared_and_copied(
    page: Any, page_address: str, where: str
) -> None:
    opened(page, page_address, where)
    sentence = page.locator(".sentence")
    assert re.search(r"a step, .* MFU: llama3-(8b fits on v5e:4x4|70b fits on v5p:8x16x16) ", sentence.inner_text())
    shown = figures(page)
    assert {"step", "MFU", "memory"} <= set(shown)

    # the same numbers from the command line
    line = copied_line(page)
    best = printed(line)["plans"][0]
    assert shown["MFU"] == f"{best['mfu']:.1%}"
    assert shown["step"].startswith(f"{best['step_s']:.3g}"[:3])

    # dragged until it is bound by communication, and the crossover marked
    marks = page.locator("[data-panel=batches] svg[data-chart]")
    assert re.search(r"hide from [\d.]+[KM]i tokens", marks.text_content())
    place = int(slider(page, "batch").input_value())
    while page.locator("#answer .region").first.get_attribute("data-bound") != "communication":
        assert place > 0, "no batch is bound by communication"
        place = max(place - 3, 0)
        drag(page, "batch", place)
        rest(page, "batch")
        page.wait_for_timeout(100)
        wait_ready(page, PATIENCE, READY)

    # every number opens its derivation
    page.locator(".figures .num-why").first.click()
    drawer = page.locator("dialog, [role=dialog]").last
    drawer.wait_for()
    until(page, "a formula", lambda: drawer.locator("math").count() > 0)
    told = drawer.inner_text()
    assert "step" in told.lower()
    assert "published" in told or "error" in told.lower()
    page.keyboard.press("Escape")

    # compared with other chips
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_role("button", name=re.compile("h100")).first.click()
    until(page, "two columns", lambda: page.locator(".compared th, [data-panel=compare] th").count() >= 2)
    assert "h100" in page.url


def held_back(page: Any, view: str) -> None:
    """Let the planner say nothing more about a view."""

    def hold(route: Any) -> None:
        if f'"view":"{view}"' not in (route.request.post_data or ""):
            route.continue_()

    page.route("**/api/ask", hold)


def pick(page: Any, field: str, name: str) -> None:
    """Choose from a searched list."""
    page.locator(f"[data-field={field}] input").click()
    page.locator(f"[data-field={field}] .option span", has_text=re.compile(f"^{name}$")).click()


def test_a_chip_that_is_picked_keeps_how_many_there_were(page: Any, page_address: str) -> None:
    """The slider is that of the new chip at once, before anything is searched, and stays so."""
    opened(page, page_address, GIVEN)
    held_back(page, "train")
    pick(page, "on", "mi355x")
    until(page, "as many of the new chip", lambda: "on=mi355x:16" in page.url)
    assert "16 chips are kept: mi355x:16" in page.inner_text("[data-field=on]")
    assert slider(page, "chips").get_attribute("aria-valuetext") == "16"
    assert "mi355x:16, 16 chips" in page.inner_text("[data-field=chips]")
    slider(page, "chips").press("ArrowRight")
    until(page, "the next size", lambda: "on=mi355x:32" in page.url)
    pick(page, "on", "v5p")
    until(page, "as many of another", lambda: "on=v5p:2x4x4" in page.url)
    page.get_by_role("button", name="Take the fewest that fit").click()
    until(page, "no number", lambda: "on=v5p&" in page.url)
    page.unroute("**/api/ask")


def test_a_fleet_begins_with_a_node_of_the_chip_that_is_trained_on(page: Any, page_address: str) -> None:
    """And training finds its own number of chips again; what is searched is said."""
    opened(page, page_address, GIVEN)
    held_back(page, "serve")
    page.get_by_role("link", name="Serve", exact=True).click()
    until(page, "a node", lambda: "on=v5e:2x4&" in page.url)
    words = page.locator("#answer .searching")
    until(page, "words of progress", lambda: words.count() == 1)
    assert words.inner_text().startswith("Searching the configurations of llama3-8b on v5e:2x4")
    page.get_by_role("link", name="Train", exact=True).click()
    until(page, "the slice that was trained on", lambda: "on=v5e:4x4&" in page.url)
    page.unroute("**/api/ask")


def test_a_rate_shows_the_fleet_first(page: Any, page_address: str) -> None:
    """Sentence and figures above, a replica at its full load apart, chips and dollars an hour in the table."""
    opened(page, page_address, SERVE + "&rate=30/s")
    assert re.match(r"\d+ replicas serve 30 requests/s of llama3-8b: \d+ h100 chips, \$", page.inner_text(".sentence"))
    labels = page.locator("#answer > .figures dt").all_inner_texts()
    assert labels == ["replicas", "chips", "cost of an hour", "TTFT", "TPOT", "per million output tokens"]
    assert "full load" in page.inner_text("#answer .full-replica .advice")
    columns = page.locator(".configs thead th").all_inner_texts()
    assert {"#", "chips", "$/h"} <= set(columns)
    assert "$/Mtok" not in columns


def test_what_a_sentence_says_of_flags_is_a_button(page: Any, page_address: str) -> None:
    """One with a value sets its field, another leads to it; nothing on the page speaks of flags."""
    opened(page, page_address, "#serve?model=llama3-8b&on=h100:1&prompt=1024&output=256&tpot=30ms")
    assert "--" not in page.inner_text("#answer .spoken") + page.inner_text("#answer .notes")
    target = page.locator("#answer .notes .flag-link", has_text=re.compile("^Time per output token: "))
    value = target.inner_text().rpartition(" ")[2]
    assert f"tpot={value}" not in page.url
    target.click()
    until(page, "the target in the address", lambda: f"tpot={value}" in page.url)

    # without a target the note names the fields of targets, with no values for them
    page.evaluate("() => { location.hash = location.hash.replace(/&tpot=[^&]*/, ''); }")
    field = page.locator("#answer .notes .flag-link", has_text=re.compile("^Time to first token$"))
    until(page, "the note", lambda: field.count() == 1)
    field.click()
    assert page.evaluate("document.activeElement.closest('.field').dataset.field") == "ttft"


def test_a_plan_that_cannot_run_has_no_numbers(page: Any, page_address: str) -> None:
    """Eight sequences do not divide into sixteen replicas: the words say so, and no figure, bar or mark is shown."""
    opened(page, page_address, GIVEN.replace("512Ki", "8seq"))
    assert "does not divide" in page.locator(".sentence").inner_text()
    assert set(figures(page).values()) == {"–"}
    assert page.locator("[data-panel=time] svg[data-chart], [data-panel=memory] svg[data-chart]").count() == 0

    # what is not understood greys the answer above which it stands, and nothing of it can be copied
    page.evaluate("() => { location.hash = location.hash.replace('8seq', 'banana'); }")
    until(page, "the answer greyed", lambda: page.locator(".answer-stale .stale").count() == 1)
    assert page.evaluate("() => document.querySelector('#answer .toolbar').closest('[inert]') !== null")


@pytest.mark.slow
def test_something_is_shown_before_anything_is_computed(page: Any, page_address: str) -> None:
    """The opening question has an answer that came with the page; a link brings its own. Few requests do it."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/api/ask", lambda route: route.continue_() if '"train"' not in route.request.post_data else None)
    page.goto(page_address)
    until(page, "the opening answer", lambda: page.locator("#answer .sentence").count() == 1)
    assert figures(page)["step"] != "–"
    assert "beforehand" in page.locator(".old-note-on").inner_text()
    assert len(asked) < 20
    said = quote(json.dumps({"sentence": "12 s a step <b>here</b>", "figures": [["step", "12s"]]}))
    page.goto("about:blank")
    page.goto(f"{page_address}{TRAIN}&view.said={said}")
    until(page, "the link's answer", lambda: page.locator("#answer .sentence").count() == 1)
    assert page.locator("#answer .sentence").inner_text() == "12 s a step <b>here</b>"
    assert figures(page) == {"step": "12s"}
    assert page.locator(".linked-mark").inner_text().startswith("Not checked yet.")
    page.unroute("**/api/ask")


@pytest.mark.slow
def test_what_went_wrong_has_a_way_on(page: Any, page_address: str) -> None:
    """A link that is not understood, a planner that cannot be reached, and a command without its lengths."""
    page.goto(f"{page_address}{GIVEN}&price=5")
    until(page, "the complaint", lambda: page.locator(".problem-input").count() == 1)
    assert page.locator("#answer .skeleton, #answer .toolbar").count() == 0
    page.route("**/api/ask", lambda route: route.abort())
    page.get_by_role("button", name="Open the usual question").click()
    until(page, "the way to try again", lambda: page.locator(".problem-network button").count() == 1)
    page.unroute("**/api/ask")
    page.evaluate("(hash) => { location.hash = hash; }", GIVEN)
    until(page, "an answer", lambda: page.locator("#answer .sentence").count() == 1)
    page.get_by_role("button", name="Judge a command").click()
    page.locator("dialog textarea").fill("vllm serve meta-llama/Meta-Llama-3-8B --max-num-seqs 64")
    page.get_by_label("Chips (such as h100:8)").fill("h100:1")
    page.get_by_label("Prompt tokens").fill("1024")
    page.locator("dialog").get_by_role("button", name="Judge", exact=True).click()
    judged = page.locator("dialog h3", has_text="Judged")
    until(page, "the judgement", lambda: judged.count() == 1)
    assert "prompts of 1024 and outputs of 512 tokens" in judged.inner_text()
    page.locator("dialog .figures .num-why").first.click()
    drawer = page.locator("dialog.dialog-drawer")
    until(page, "the derivation of a judged number", lambda: drawer.locator(".why-number").count() == 1)
    page.keyboard.press("Escape")
    until(page, "the dialog under it", lambda: drawer.count() == 0 and judged.count() == 1)
    page.keyboard.press("Escape")


@pytest.mark.slow
def test_a_drag_of_the_best_plan_never_turns_red(page: Any, page_address: str) -> None:
    """Every stop has a plan, and says that it is not the best one yet."""
    opened(page, page_address, TRAIN)
    for place in range(int(slider(page, "batch").input_value()), -1, -1):
        drag(page, "batch", place)
        page.wait_for_timeout(250)
        assert page.locator(".sentence-not, .problem").count() == 0
        assert figures(page)["step"] != "–"
    assert "searched when it rests" in page.locator(".old-note-on").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("where", [SERVE, SERVE_70B])
def test_a_slo_is_met_missed_and_copied(page: Any, page_address: str, where: str) -> None:
    opened(page, page_address, where)
    shown = figures(page)
    best = printed(copied_line(page))["configs"][0]
    assert best["meets_slo"]
    assert any(text.startswith(f"{best['tpot_s'] * 1e3:.3g}"[:3]) for text in shown.values())
    page.locator("[data-panel=frontier]").scroll_into_view_if_needed()
    until(page, "the frontier", lambda: page.locator("[data-panel=frontier] svg[data-chart]").count() == 1)
    drag(page, "batch", int(slider(page, "batch").get_attribute("max") or "0"))
    rest(page, "batch")
    wait_ready(page, PATIENCE, READY)
    said = page.locator("#answer").inner_text()
    assert re.search(r"miss|exceed|over|does not fit|no room", said)


@pytest.mark.slow
@pytest.mark.parametrize("where", [GIVEN, SERVE])
def test_a_link_shows_the_same_again(page: Any, page_address: str, where: str) -> None:
    opened(page, page_address, where)
    if where == GIVEN:
        page.locator("[data-field=seq] input[type=text]").fill("8192")
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        wait_ready(page, PATIENCE, READY)
        assert "seq=8192" in page.url
    before, address = figures(page), page.url
    page.goto("about:blank")
    page.goto(address)
    wait_ready(page, PATIENCE, READY)
    assert figures(page) == before


@pytest.mark.slow
def test_a_slider_repaints_at_once(page: Any, page_address: str) -> None:
    """Counted, not timed: machines that run tests are busy. `test_look.py` (slow) and
    `benchmarks/web_page.py` time it."""
    opened(page, page_address, GIVEN)
    places = int(slider(page, "batch").get_attribute("max") or "0")
    for place in [*range(places // 2, places), *range(places, places // 2, -1)]:
        drag(page, "batch", place)
        page.wait_for_timeout(60)
    paints = sorted(after - before for before, after in page.evaluate("window.__paints"))
    assert len(paints) > 8
    print(
        f"{len(paints)} paints, median {paints[len(paints) // 2]:.0f} ms, p95 {paints[int(len(paints) * 0.95)]:.0f} ms"
    )


@pytest.mark.slow
def test_a_move_asks_only_what_is_in_sight(page: Any, page_address: str) -> None:
    """The mesh is far below: it waits until the slider rests."""
    asked: list[dict[str, Any]] = []
    page.on("request", lambda sent: asked.append(json.loads(sent.post_data)) if sent.post_data else None)
    opened(page, page_address, "#train?model=llama3-8b&on=h100:8&batch=64seq&seq=4096&plan=fsdp8")
    before = page.inner_text("[data-panel=mesh]")
    slider = page.locator("[data-field=batch] input[type=range]")
    slider.focus()
    asked.clear()
    page.keyboard.press("ArrowRight")
    until(page, "an answer to the move", lambda: [one for one in asked if one.get("brief")])
    moved = next(one for one in asked if one.get("brief"))
    assert "answer" in moved["panels"]
    assert "time" in moved["panels"]
    assert "mesh" not in moved["panels"]
    until(page, "the mesh of the batch it rests at", lambda: page.inner_text("[data-panel=mesh]") != before)


@pytest.mark.slow
def test_a_use_case_answers_for_its_fields_and_gives_them_back(page, page_address):
    opened(page, page_address, "#serve?model=llama3-8b&on=h100:1&prompt=1024&output=256&ttft=500ms&tpot=30ms")
    page.select_option("[data-field=use_case] select", "chat")
    until(page, "the use case in the address", lambda: "use_case=chat" in page.url and "users=1000" in page.url)
    assert "prompt=" not in page.url
    assert "ttft=" not in page.url
    wait_ready(page, PATIENCE, READY)
    assert "300ms at p95" in page.inner_text("#answer .sentence")
    page.select_option("[data-field=use_case] select", "")
    until(page, "no use case", lambda: "use_case" not in page.url)
    assert "prompt=2048" in page.url
    assert "ttft=1s" in page.url


@pytest.mark.slow
def test_what_is_trained_is_asked_first_and_said(page, page_address):
    opened(page, page_address, GIVEN.replace("v5e:4x4", "h100:8").replace("fsdp16", "dp8"))
    page.select_option("[data-field=method] select", "qlora")
    until(page, "the method in the address", lambda: "method=qlora" in page.url)
    until(page, "the method in the sentence", lambda: "LoRA on nf4 rank 16" in page.inner_text("#answer .sentence"))
    assert page.locator("[data-field=lora_rank] input").is_visible()
