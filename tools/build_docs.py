"""The docs that the site is built from: a copy of docs/ in build/docs, with the generated pages in full.

    python -m tools.build_docs

Git tracks a few lines in place of what is generated: the reference of commands and library, the changes, the problems
of the course, the words of the calculator and the table of published commands. On GitHub these lines say what to type
or where it is; the site shows the whole page.
"""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from dragonscale.course.chapters import CHAPTERS
from tools import judge_published, list_calc_words
from tools.reference_cli import cli_reference
from tools.reference_python import python_reference
from tools.refresh_docs import ROOT
from tools.write_course import Check, checked, unchecked, written_page

CHANGELOG_NEXT = """## Next

- [How right it is](validation.md): what the errors are now
- [The commands](reference-cli.md): every command and flag
"""
SOURCE, BUILT = ROOT / "docs", ROOT / "build" / "docs"


def changelog() -> str:
    """The changes as a page of the site: pages of the docs become links."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").rstrip("\n")

    def linked(match: re.Match[str]) -> str:
        return f"[{match[1]}]({match[1]})" if (SOURCE / match[1]).exists() else match[0]

    # GitHub reads paths from the root of the repository, the site from docs/.
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"`docs/([\w/-]+\.md)`", linked, text)
    text = text.replace("# Changes", "# What has changed?", 1)
    return f"{text}\n\n{CHANGELOG_NEXT}"


REFERENCE: dict[str, Callable[[], str]] = {
    "reference-cli.md": cli_reference,
    "reference-python.md": python_reference,
    "changelog.md": changelog,
}


def generated_pages(check: Check = checked) -> dict[Path, str]:
    """The text of each generated page by its path in docs/; `check` runs the command that shows a problem's answer."""
    pages = {SOURCE / name: page() for name, page in REFERENCE.items()}
    for chapter in CHAPTERS:
        path = ROOT / chapter.page
        pages[path] = written_page(path.read_text(encoding="utf-8"), check)
    for tool in (list_calc_words, judge_published):
        pages[tool.PAGE] = tool.page(tool.PAGE.read_text(encoding="utf-8"))
    return pages


@cache
def unchecked_pages() -> dict[Path, str]:
    """The generated pages in a second or two, less the output of the commands that check answers."""
    return generated_pages(unchecked)


def build() -> None:
    """Write build/docs anew."""
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(SOURCE, BUILT)
    for path, text in generated_pages().items():
        (BUILT / path.relative_to(SOURCE)).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    build()
