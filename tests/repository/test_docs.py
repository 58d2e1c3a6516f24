"""What the README and the docs show is what the program prints."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tools.build_docs import unchecked_pages
from tools.docs_links import broken_links, links, ways_on
from tools.docs_words import written_pages, written_words
from tools.refresh_docs import ROOT, examples, pages, refreshed

MOST_WORDS, MOST_WORDS_OF_README = 89_000, 600
"""Words that people wrote, tables included, code and what tools write not."""
SITE = sorted((ROOT / "docs").rglob("*.md"))


def example_pages() -> list[Any]:
    """Pages with commands. Those of the book's results are slow: `tests/book` holds every result, in less time."""
    shown = [page for page in pages() if examples(page.read_text())]
    slow = {page: [pytest.mark.slow] * page.name.endswith("-results.md") for page in shown}
    return [pytest.param(page, marks=slow[page], id=str(page.relative_to(ROOT))) for page in shown]


@pytest.mark.parametrize("page", example_pages())
def test_examples(page: Path) -> None:
    """All of a page in one folder, in order: a later command may read what an earlier one wrote."""
    shown = page.read_text()
    fresh = refreshed(shown)
    for was, now in zip(examples(shown), examples(fresh), strict=True):
        assert was.output == now.output, (
            f"`{was.command}` in {page.name}; run `python -m tools.refresh_docs {page.relative_to(ROOT)}`"
        )
    assert fresh == shown, (
        f"a command of {page.name} needs `grep -E`; run `python -m tools.refresh_docs {page.relative_to(ROOT)}`"
    )


def test_the_readme_has_examples() -> None:
    assert examples((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert broken_links(page, unchecked_pages()) == []


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_has_a_way_on(page: Path) -> None:
    assert ways_on(page), "end the page with a section `## Next` that links to other pages"


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_has_a_question_as_title(page: Path) -> None:
    title = page.read_text(encoding="utf-8").partition("\n")[0]
    assert title.startswith("# ")
    assert title.endswith("?"), f"{page.name}: the title is the question that the page answers, not {title!r}"


def test_generated_pages_have_a_question_as_title() -> None:
    titles = {page.name: text.partition("\n")[0] for page, text in unchecked_pages().items()}
    assert {name: title for name, title in titles.items() if not title.endswith("?")} == {}


def test_there_are_not_too_many_words() -> None:
    """A page that grows has something to lose: `python -m tools.docs_words` lists them."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    words = {page: written_words(page.read_text(encoding="utf-8")) for page in written_pages()}
    assert sum(words.values()) <= MOST_WORDS
    assert words[ROOT / "README.md"] <= MOST_WORDS_OF_README


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in pages() if python_blocks(page)], ids=lambda page: page.name)
def test_python_examples_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page in order, as a reader would paste them: a later one knows the names of those before."""
    names: dict[str, object] = {}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)
    capsys.readouterr()


SCRIPTS = [path for path in sorted((ROOT / "examples").glob("*.py")) if "__main__" in path.read_text()]


LONG = ("train_tiny.py", "train_and_serve.py", "train_llama3.py", "serve_llama3.py")
"""Scripts that really train, for most of a minute (`tests/runtime` runs the same trainer in less), and those that ask
what `demo.py` and the pages of the course ask."""


@pytest.mark.parametrize(
    "script",
    [pytest.param(one, marks=[pytest.mark.slow] * (one.name in LONG), id=one.name) for one in SCRIPTS],
)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-2000:]
    assert len(found.stdout) > 200


def _listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(inner, Iterable)
    return [page for one in inner for page in _listed(one)]


def _nav() -> list[str]:
    """Pages of the navigation in order; the page with the planner inside, which `make docs` builds, is
    none of docs/."""
    listed = _listed(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    return [page for page in listed if page.endswith(".md")]


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(_nav()) == sorted(str(page.relative_to(ROOT / "docs")) for page in SITE)


def _linked(page: str) -> list[str]:
    """Pages that a page links to, as the navigation names them, each once and in order."""
    home = (ROOT / "docs" / page).parent
    found = [
        (home / link.partition("#")[0]).resolve() for link in links((ROOT / "docs" / page).read_text()) if ".md" in link
    ]
    return list(
        dict.fromkeys(str(path.relative_to(ROOT / "docs")) for path in found if path.is_relative_to(ROOT / "docs"))
    )


def test_the_index_lists_every_page_outside_the_course() -> None:
    wanted = {page for page in _nav() if page != "index.md" and not page.startswith("course/")}
    assert wanted - set(_linked("index.md")) == set()


def test_the_course_index_lists_every_chapter_in_order() -> None:
    wanted = [page for page in _nav() if page.startswith("course/") and page != "course/index.md"]
    assert [page for page in _linked("course/index.md") if page in wanted] == wanted
