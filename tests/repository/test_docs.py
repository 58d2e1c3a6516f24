"""What the README and the docs show is what the program prints."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.refresh_docs import ROOT, broken_links, examples, pages, run_example

CASES = [(page, number) for page in pages() for number in range(len(examples(page.read_text())))]


@pytest.mark.parametrize(("page", "number"), CASES, ids=[f"{page.relative_to(ROOT)}-{n}" for page, n in CASES])
def test_example(page: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = examples(page.read_text())[number]
    monkeypatch.chdir(tmp_path)
    assert run_example(example.command) == example.output, (
        f"`{example.command}` in {page.name}; run `make docs` to refresh"
    )


def test_the_readme_has_examples() -> None:
    assert examples((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


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


LONG = ("train_tiny.py", "train_and_serve.py")
"""Scripts that really train, for most of a minute; `tests/runtime` runs the same trainer in less."""


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


def test_the_index_and_the_site_list_every_page_in_one_order() -> None:
    index = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert _listed(nav) == ["index.md", *index]
    assert sorted(["index.md", *index]) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
