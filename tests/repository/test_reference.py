"""The pages of reference say what the code says, of every public name; the site has them, git does not."""

from pathlib import Path

import pytest

import dragonscale
from dragonscale.course.chapters import CHAPTERS
from dragonscale.faces.cli.table import COMMANDS
from tools import build_docs
from tools.build_docs import REFERENCE, SOURCE, unchecked_pages
from tools.docs_links import broken_links
from tools.judge_published import PAGE as PUBLISHED
from tools.list_calc_words import PAGE as CALC
from tools.reference_cli import cli_reference, undescribed
from tools.reference_python import answers, python_reference, undocumented
from tools.refresh_docs import ROOT

GENERATED = [*(SOURCE / name for name in REFERENCE), *(ROOT / chapter.page for chapter in CHAPTERS), CALC, PUBLISHED]


def test_every_public_name_has_a_docstring() -> None:
    assert undocumented() == []


def test_every_flag_has_a_description() -> None:
    assert undescribed() == []


def test_every_public_name_is_in_the_reference() -> None:
    page = python_reference()
    wanted = [*vars(dragonscale)["__all__"], *(kind.__name__ for kind in answers())]
    assert [name for name in wanted if f"\n### {name}\n" not in page] == []


def test_every_command_and_flag_is_in_the_reference() -> None:
    page = cli_reference()
    for command in COMMANDS.values():
        section = page.partition(f"\n## dscale {command.name}\n")[2].partition("\n## ")[0]
        assert [field.flag for field in command.fields() if not field.place and f"`{field.flag}`" not in section] == []
        assert all(example in section for example in command.examples)


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: str(page.relative_to(SOURCE)))
def test_links_of_generated_pages_lead_somewhere(page: Path) -> None:
    assert broken_links(page, unchecked_pages()) == []


def test_git_tracks_a_few_lines_in_place_of_each_generated_page() -> None:
    assert unchecked_pages().keys() == {*GENERATED}
    for name in REFERENCE:
        assert len((SOURCE / name).read_text(encoding="utf-8").split()) < 100, f"{name} is made by tools.build_docs"
    for chapter in CHAPTERS:
        assert "<summary>" not in (ROOT / chapter.page).read_text(encoding="utf-8"), chapter.page


def test_the_docs_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, built = tmp_path / "docs", tmp_path / "built"
    source.mkdir()
    (source / "a.md").write_text("as it is")
    (source / "b.md").write_text("a few lines")
    monkeypatch.setattr(build_docs, "SOURCE", source)
    monkeypatch.setattr(build_docs, "BUILT", built)
    monkeypatch.setattr(build_docs, "generated_pages", lambda: {source / "b.md": "the whole page"})
    build_docs.build()
    assert (built / "a.md").read_text() == "as it is"
    assert (built / "b.md").read_text() == "the whole page"
    assert (source / "b.md").read_text() == "a few lines"
