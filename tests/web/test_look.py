"""How the page looks and reads, judged in a browser: axe-core's rules, layout shift, sizes for fingers, what it loads.

The default run looks at two tabs; the slow one at every tab, light and dark, wide and on a phone.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.web.serving import wait_ready

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text("utf-8")
TABS = ("train", "serve", "simulate", "rl", "operations", "chips", "models", "learn")
GIVEN = "train?model=llama3-8b&on=h100:8&batch=64seq&seq=4096&plan=fsdp8"
"""A plan that is given: nothing is searched for."""
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

WATCH = """
window.__shift = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.__shift += one.value;
}).observe({ type: 'layout-shift', buffered: true });
"""
# What axe calls serious or critical, as "rule: the elements that break it".
JUDGE = """async () => {
  const found = await axe.run(document, { resultTypes: ['violations'] });
  const told = (node) => node.target.join(' ') + ' ' + (node.any[0]?.message || '');
  return found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 4).map(told).join(' | ')}`);
}"""
SMALL = """() => [...document.querySelectorAll(
    'main button, main select, main input, main summary, .top a, .top button')]
  .filter((one) => one.getClientRects().length && !one.closest('table') && !one.classList.contains('num'))
  .filter((one) => !(one.type === 'radio' || one.getAttribute('role') === 'switch'))
  .map((one) => [one, one.getBoundingClientRect()]).filter(([, box]) => box.height < 39.5)
  .map(([one, box]) => `${one.tagName} ${one.className} ${one.innerText || one.ariaLabel || ''} `
    + `${box.width.toFixed()}x${box.height.toFixed()}`)"""
UNNAMED = """() => [...document.querySelectorAll('input, select, textarea')]
  .filter((one) => !one.labels?.length && !one.ariaLabel && !one.getAttribute('aria-labelledby'))
  .map((one) => one.outerHTML.slice(0, 120))"""


class Looked:
    """A tab opened in a context of its own, and what happened while it came."""

    def __init__(self, browser: Any, address: str, tab: str, theme: str, size: dict[str, int]) -> None:
        self.context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.bytes = 0
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{address}#{tab}")
        wait_ready(self.page)

    def __enter__(self) -> "Looked":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def faults(self) -> list[str]:
        """What axe-core finds serious or critical."""
        self.page.evaluate(AXE)
        return self.page.evaluate(JUDGE)


def judge(looked: Looked, address: str, phone: bool) -> list[str]:
    """Everything that is wrong with a tab, in words."""
    page = looked.page
    found = [*looked.faults(), *looked.errors]
    found += [f"asks another host: {url}" for url in looked.requests if not url.startswith((address, "data:", "blob:"))]
    found += [f"a field without a label: {one}" for one in page.evaluate(UNNAMED)]
    shift = page.evaluate("window.__shift")
    if shift >= 0.1:
        found.append(f"the layout shifts by {shift:.2f} while it loads")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 0:
        found.append(f"{wide} pixels to scroll sideways")
    if phone:
        found += [f"too small for a finger: {one}" for one in page.evaluate(SMALL)]
    return found


@pytest.mark.parametrize(("tab", "theme", "size"), [("chips", "dark", PHONE)])
def test_a_tab_has_no_serious_fault(page_browser, page_address, tab, theme, size):
    with Looked(page_browser, page_address, tab, theme, size) as looked:
        assert judge(looked, page_address, size is PHONE) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_every_tab_has_no_serious_fault(page_browser, page_address, tab, theme, size):
    with Looked(page_browser, page_address, tab, theme, size) as looked:
        assert judge(looked, page_address, size is PHONE) == []


LISTED = """() => {
  const options = [...document.querySelectorAll('.options .option')].map((one) => one.getBoundingClientRect());
  const now = document.querySelector('.options .option-now').getBoundingClientRect();
  const list = document.querySelector('.options:not([hidden])').getBoundingClientRect();
  return {
    tallest: Math.max(...options.map((box) => box.height)),
    inside: options.every((box) => box.right <= list.right + 1),
    chosen: now.top >= list.top && now.bottom <= list.bottom,
    headings: [...document.querySelectorAll('h1, h2, h3')].map((one) => one.tagName).slice(0, 2),
  };
}"""
ROWS = """() => {
  const shown = [...document.querySelectorAll('.answer .card')].map((one) => one.getBoundingClientRect());
  const answer = document.querySelector('.answer').getBoundingClientRect();
  const reach = (box) => shown.filter((one) => one.top < box.bottom && one.bottom > box.top)
    .reduce((most, one) => Math.max(most, one.right), 0);
  return shown.filter((box) => reach(box) < answer.right - 40).length;
}"""


@pytest.mark.slow
def test_lists_tables_and_rows_fill_their_place(page_browser, page_address):
    """The list of chips opens at the chosen one, the table of chips fits its card, no row of cards ends early."""
    given = GIVEN.replace("h100:8", "v5p:8")
    with Looked(page_browser, page_address, given, "light", WIDE) as looked:
        looked.page.locator("[data-field=on] input[type=text]").click()
        listed = looked.page.evaluate(LISTED)
        assert listed["tallest"] < 80
        assert listed["inside"]
        assert listed["chosen"]
        assert listed["headings"] == ["H1", "H2"]
    with Looked(page_browser, page_address, "chips", "light", WIDE) as looked:
        table = looked.page.locator(".data-table")
        assert table.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0
    with Looked(page_browser, page_address, GIVEN, "light", {"width": 2560, "height": 1440}) as looked:
        assert looked.page.evaluate(ROWS) == 0


def test_axe_finds_what_is_wrong(page_browser):
    page = page_browser.new_page()
    page.set_content("<html><body><input><p style='color:#ccc;background:#fff'>pale</p></body></html>")
    page.evaluate(AXE)
    rules = {one.partition(":")[0] for one in page.evaluate(JUDGE)}
    page.close()
    assert {"label", "color-contrast", "html-has-lang"} <= rules


@pytest.mark.slow
def test_parts_of_the_page(page_browser, page_address):
    """Ticks, tables and pictures as files, the theme: one page for all, since a page is what costs."""
    with Looked(page_browser, page_address, GIVEN, "light", WIDE) as looked:
        page = looked.page
        ticks = [
            (0.02, "s"),
            (8e10, "bytes"),
            (4.59e14, "FLOP/s"),
            (0.652, "share"),
            (4194304, "count"),
            (1024, "count"),
            (0, "s"),
        ]
        told = page.evaluate(
            (
                "async (all) => { const { tickText } = await import('/js/charts/svg.js'); return all.map((one) => "
                "tickText(...one)); }"
            ),
            ticks,
        )
        assert told == ["20ms", "80GB", "459TFLOP/s", "65.2%", "4Mi", "1,024", "0"]
        rows = [
            {
                "name": '=HYPERLINK("x")',
                "shown": {"value": 2.5, "unit": "s", "text": "2.5s", "why": ""},
                "lines": [{"what": "a"}],
            }
        ]
        table = page.evaluate(
            (
                "async (parts) => { const { csvOf, rowsOf } = await import('/js/save.js'); return csvOf(rowsOf({ "
                "parts })); }"
            ),
            rows,
        )
        assert table == 'name,shown_s\r\n"\'=HYPERLINK(""x"")",2.5\r\n'
        picture = page.evaluate(
            "async () => { const { pictureOf } = await import('/js/save.js'); return "
            "pictureOf(document.querySelector('[data-panel=time]')); }"
        )
        assert picture["text"].startswith("<svg")
        assert "var(" not in picture["text"]
        assert "mlp matmuls" in picture["text"]
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Use the dark theme").click()
        page.reload()
        page.wait_for_selector("[data-theme=dark]")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


DRAG = """async (moves) => {
  const slider = document.querySelector('[data-field=batch] input[type=range]');
  const put = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  const until = async (met) => {
    const end = performance.now() + 3000;
    while (!met() && performance.now() < end) await new Promise((go) => setTimeout(go, 4));
  };
  window.__paints.length = 0;
  let [at, by] = [Number(slider.value), 1];
  for (let move = 1; move <= moves; move += 1) {
    if (at + by > Number(slider.max) || at + by < Number(slider.min)) by = -by;
    at += by;
    put.call(slider, at);
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await until(() => window.__paints.length >= move);
  }
  const took = window.__paints.map(([input, paint]) => paint - input).sort((one, other) => one - other);
  return { seen: took.length, half: took[Math.floor(took.length / 2)], most: took[Math.floor(took.length * 0.95)] };
}"""


@pytest.mark.slow
def test_a_move_of_the_slider_is_seen_within_120_ms(page_browser, page_address):
    """The 95th percentile, of the best of three rounds: other tests run beside this one."""
    with Looked(page_browser, page_address, "train", "light", WIDE) as looked:
        rounds = [looked.page.evaluate(DRAG, 40) for _ in range(3)]
    assert all(one["seen"] == 40 for one in rounds), rounds
    assert min(one["most"] for one in rounds) < 120, rounds
