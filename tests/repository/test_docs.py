"""What the README and the docs show is what the program prints."""

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
    assert len(examples((ROOT / "README.md").read_text())) >= 3


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []
