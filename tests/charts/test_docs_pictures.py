"""The pictures that the docs show: there, small, and none without a page; every maker of one is in the table."""

import re

from tools.draw_docs import DARK, FOLDER, PICTURES
from tools.refresh_docs import pages


def test_pictures_of_the_docs_are_small_and_all_shown() -> None:
    there = {path.name: path for path in FOLDER.glob("*.svg")}
    assert set(there) == {f"{name}.svg" for name in PICTURES} | {f"{name}-dark.svg" for name in DARK}
    assert max(path.stat().st_size for path in there.values()) < 200_000
    shown = {name for page in pages() for name in re.findall(r"pictures/([\w-]+\.svg)", page.read_text("utf-8"))}
    assert shown <= set(there)
    assert set(there) - shown <= {"answer.svg", "answer-dark.svg"}  # the README's
