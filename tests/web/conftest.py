"""Fixtures of the page's tests."""

from tests.web.browser import page_browser
from tests.web.serving import page_address

__all__ = ["page_address", "page_browser"]
