"""The page in Firefox: it answers, follows a slider, opens derivations, and looks as it does in Chromium."""

from collections.abc import Iterator

import pytest

from tests.web.firefox import FoxPage, find_firefox, firefox
from tests.web.serving import wait_ready
from tests.web.test_look import AXE, GIVEN, JUDGE, PHONE, SMALL, TABS, UNNAMED, WIDE

WITHOUT = pytest.mark.skipif(
    find_firefox() is None,
    reason="No Firefox was found; install one (`apt install firefox-esr`) or name it: FIREFOX=/path/to/firefox.",
)
ANSWERED = """() => /MFU/.test(document.querySelector('#answer .sentence')?.innerText || '')
  && document.querySelector('[data-field=batch] input[type=range]') !== null"""
SAID = "() => document.querySelector('#answer .sentence').innerText"
MOVED = """() => {
  const slider = document.querySelector('[data-field=batch] input[type=range]');
  slider.value = Number(slider.value) + 2;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
}"""
CLICKED = "() => document.querySelector('.figures .num-why').click()"


def faults(page: FoxPage, address: str, phone: bool) -> list[str]:
    """What is wrong with the tab that is shown."""
    page.run(AXE + ";window.axe = axe;")
    found = [*page.evaluate(JUDGE), *page.complaints(address)]
    found += [f"a field without a label: {one}" for one in page.evaluate(UNNAMED)]
    if phone:
        found += [f"too small for a finger: {one}" for one in page.evaluate(SMALL)]
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [*found, *([f"{wide} pixels to scroll sideways"] if wide > 0 else [])]


@WITHOUT
def test_a_given_plan_is_answered_and_follows_its_slider(page_address):
    with firefox() as page:
        page.sized(**WIDE)
        page.goto(f"{page_address}#{GIVEN}")
        wait_ready(page, 60, ANSWERED)
        before = page.evaluate(SAID)
        page.evaluate(MOVED)
        wait_ready(page, 20, f"() => ({SAID})() !== {before!r}")
        page.evaluate(CLICKED)
        wait_ready(page, 20, "() => Boolean(document.querySelector('dialog[open] math'))")
        assert page.complaints(page_address) == []


@pytest.fixture(scope="module", params=["light", "dark"])
def fox(request) -> Iterator[FoxPage]:
    """A Firefox in a theme."""
    with firefox(request.param == "dark") as page:
        yield page


@WITHOUT
@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("tab", TABS)
def test_every_tab_has_no_serious_fault_in_firefox(fox, page_address, tab, size):
    fox.sized(**size)
    fox.goto(f"{page_address}#{tab}")
    wait_ready(fox, 90)
    assert faults(fox, page_address, size is PHONE) == []
