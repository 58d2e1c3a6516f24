"""The tools that finish and check the built site, and the pictures and table of docs/validation.md."""

import doctest
import re
from pathlib import Path

import pytest

from tools import check_site, docs_links, docs_words, draw_validation, finish_site, refresh_docs
from tools.draw_validation import KINDS, PAGE, PICTURES

PAGES = sorted((draw_validation.ROOT / "docs").glob("validation*.md"))


@pytest.mark.parametrize(
    "module", [docs_links, docs_words, draw_validation, finish_site, refresh_docs], ids=lambda one: one.__name__
)
def test_examples_of_the_tools(module: object) -> None:
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0  # type: ignore[arg-type]


def test_a_site_is_checked(tmp_path: Path) -> None:
    page = (
        '<h1 id="top"></h1><a href="other/#here">a</a><a href="#top">b</a><img src="a.svg"><a '
        'href="https://example.org">c</a>'
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "other" / "index.html").write_text('<p id="here"></p><a href="..">back</a>')
    (tmp_path / "a.svg").write_text("<svg/>")
    assert check_site.problems(tmp_path) == []
    (tmp_path / "index.html").write_text(
        page.replace("#here", "#there") + '<a href="gone/">d</a><script src="https://example.org/a.js"></script>'
    )
    assert check_site.problems(tmp_path) == [
        "index.html asks another origin for https://example.org/a.js",
        "index.html leads to other/#there, which has no such anchor",
        "index.html leads to gone/, which is not there",
    ]


def test_a_site_is_finished(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.svg").write_text('<rect fill="#FFFFFF"/>')
    (tmp_path / "index.html").write_text('<img src="pictures/a.svg"><a href="SKILL.md">skill</a>')
    finish_site.main(str(tmp_path))
    assert (tmp_path / "pictures" / "a-dark.svg").read_text() == '<rect fill="#14171C"/>'
    assert "a.svg#only-light" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "SKILL.md").exists()
    assert check_site.problems(tmp_path) == []


def test_pictures_of_validation_are_small_and_shown() -> None:
    there = {path.name for path in PICTURES.glob("*.svg")}
    assert there == {f"{kind.name}.svg" for kind in KINDS} | {"all.svg"}
    assert max(path.stat().st_size for path in PICTURES.glob("*.svg")) < 200_000
    shown = {
        name for page in PAGES for name in re.findall(r"pictures/validation/([\w-]+\.svg)", page.read_text("utf-8"))
    }
    assert shown == there


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name in ("memory", "collectives", "kernels")], ids=lambda one: one.name
)
def test_the_table_says_what_is_predicted_now(kind: draw_validation.Kind) -> None:
    """The quick ones; the others are the same code over the rows that tests/evidence scores."""
    assert draw_validation.row_of(kind, kind.rows()) in PAGE.read_text("utf-8"), "run `make validation`"
