"""A real browser for the tests of the page: where one is found, and how it is started.

The page is judged by what a browser makes of it, so these tests drive Chromium through Playwright. Playwright's own
download is large and needs the network; Debian's and Google's builds do as well. `CHROMIUM=/path/to/chromium` names one
where none is found. A test that gets `page_browser` (tests/web/conftest.py knows it) is skipped, with the reason, where
there is no browser.

While a browser is open, Playwright's own event loop runs in this thread: such a test cannot call `asyncio.run` beside
it; a server under test belongs into a thread or a process.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

# In the order of preference: a plain Chromium before a branded one.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
PLACES = (
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)

# No sandbox: containers have no user namespaces. The rest: nothing but the page under test talks or moves.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_browser() -> str | None:
    """The path of a Chromium on this machine: `CHROMIUM`, then PATH, then the usual places, then Playwright's own."""
    asked = os.environ.get("CHROMIUM")
    if asked:
        return shutil.which(asked)
    found = [shutil.which(name) for name in NAMES] + [shutil.which(place) for place in PLACES]
    return next((path for path in found if path), None) or _playwrights_own()


def _playwrights_own() -> str | None:
    """The newest Chromium that `playwright install chromium` has left in its cache."""
    folders = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), "~/.cache/ms-playwright", "~/Library/Caches/ms-playwright"]
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium*/*/headless_shell", "chromium-*/*/*.app/Contents/MacOS/*")
    roots = [Path(folder).expanduser() for folder in folders if folder]
    found = [path for root in roots for pattern in patterns for path in sorted(root.glob(pattern), reverse=True)]
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


def why_no_browser() -> str | None:
    """Why there is no browser to test with, in a sentence; None where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed (`pip install playwright`), so no browser can be driven."
    if find_browser() is None:
        return "No Chromium was found; install one (`apt install chromium`) or name it: CHROMIUM=/path/to/chromium."
    return None


def launch(playwright: "Playwright") -> "Browser":
    """Chromium, headless, with the flags of a quiet machine."""
    # its own folder for settings: the tests' XDG_CONFIG_HOME is a folder that must not come to be
    own = {**os.environ, "XDG_CONFIG_HOME": tempfile.gettempdir()}
    return playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS), env=own)


@pytest.fixture(scope="module")
def page_browser() -> "Iterator[Browser]":
    """One browser for the tests of a module; make a context of its own for each test: `page_browser.new_context()`."""
    reason = why_no_browser()
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
