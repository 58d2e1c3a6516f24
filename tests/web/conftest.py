"""Fixtures of the page's tests."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from dragonscale.web import answers
from tests.web.browser import page_browser
from tests.web.serving import page_address
from tools.page_types import panel_shapes

__all__ = ["page_address", "page_browser", "panels_fit_their_records"]
SHAPES = panel_shapes()


@pytest.fixture(autouse=True)
def panels_fit_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every panel that a test is answered in this process has the shape that the page's scripts are checked against."""
    own = answers.panels_of

    def checked(view: str) -> Mapping[str, Callable[[Any], Any]]:
        return {name: _checked(panel, SHAPES[view][name]) for name, panel in own(view).items()}

    monkeypatch.setattr(answers, "panels_of", checked)


def _checked(panel: Callable[[Any], Any], shape: Any) -> Callable[[Any], Any]:
    def given(asked: Any) -> Any:
        data = panel(asked)
        msgspec.convert(answers.plain(data), shape)
        return data

    return given
