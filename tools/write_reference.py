"""Write the two pages of reference from the code: `docs/reference-cli.md` and `docs/reference-python.md`."""

from collections.abc import Callable
from pathlib import Path

from tools.reference_cli import cli_reference
from tools.reference_python import python_reference

DIRECTORY = Path(__file__).parents[1] / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "reference-cli.md": cli_reference,
    "reference-python.md": python_reference,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page())
