"""Write the pages that are made from the code: `docs/reference-cli.md`, `docs/reference-python.md`,
`docs/changelog.md`."""

import re
from collections.abc import Callable
from pathlib import Path

from tools.reference_cli import cli_reference
from tools.reference_python import python_reference

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "docs"


def changelog() -> str:
    """The changes as a page of the site: pages of the docs become links."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").rstrip("\n")

    def linked(match: re.Match[str]) -> str:
        return f"[{match[1]}]({match[1]})" if (DIRECTORY / match[1]).exists() else match[0]

    # GitHub reads paths from the root of the repository, the site from docs/.
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"`docs/([\w/-]+\.md)`", linked, text)
    return (
        f"{text}\n\n## Next\n\n- [How right it is](validation.md): what the errors are now\n- [The "
        "commands](reference-cli.md): every command and flag\n"
    )


PAGES: dict[str, Callable[[], str]] = {
    "reference-cli.md": cli_reference,
    "reference-python.md": python_reference,
    "changelog.md": changelog,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page(), encoding="utf-8")
