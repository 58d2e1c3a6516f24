"""How the tests find a browser."""

import pytest

from tests.web import browser


def test_the_environment_names_the_browser(monkeypatch, tmp_path):
    mine = tmp_path / "my-chromium"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CHROMIUM", str(mine))
    assert browser.find_browser() == str(mine)


def test_a_machine_without_one_is_told_what_to_install(monkeypatch, tmp_path):
    pytest.importorskip("playwright")
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "none"))
    assert browser.find_browser() is None
    assert "apt install chromium" in (browser.why_no_browser() or "")


def test_playwrights_own_cache_is_looked_at(monkeypatch, tmp_path):
    own = tmp_path / "chromium-1234" / "chrome-linux" / "chrome"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "PLACES", ())
    assert browser.find_browser() == str(own)


@pytest.mark.slow
def test_the_browser_opens_a_page(page_browser):
    page = page_browser.new_page()
    page.set_content("<title>dscale</title><h1>here</h1>")
    assert page.inner_text("h1") == "here"
    page.close()
