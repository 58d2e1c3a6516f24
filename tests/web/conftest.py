"""Fixtures of the page's tests."""

from tests.web.browser import page_browser

__all__ = ["page_browser"]
