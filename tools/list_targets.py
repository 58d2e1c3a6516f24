"""The table of targets in docs/exports.md: each with the version whose names it writes, and what these were checked
against.

python -m tools.list_targets
"""

import sys
import tomllib
from pathlib import Path

from dragonscale.exports.target import TARGETS, Target

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "exports.md"
SOFTWARE = ROOT / "tests" / "exports" / "software"
BEGIN, END = "<!-- targets -->\n", "<!-- /targets -->"


def row(target: Target) -> str:
    """A target's line."""
    spec = SOFTWARE / f"{target.keys or target.name}.toml"
    checked = tomllib.loads(spec.read_text(encoding="utf-8")).get("checked", "") if spec.exists() else ""
    return f"| `{target.name}` | {target.title} | {target.version} | {checked or target.key_table().source} |"


def page(text: str) -> str:
    """The page with the table as it is now."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = [row(target) for target in TARGETS.values() if target.kind != "launcher"]
    return text[:start] + "\n".join(rows) + "\n" + text[end:]


def main() -> int:
    """Write the table."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
