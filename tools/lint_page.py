"""Types and lint of the page's scripts: `tsc --noEmit` and Biome, where node is.

    python -m tools.lint_page

The two are fetched once by npm, in the versions below, into `.cache/page_lint` of the checkout. Where node is not
installed, or npm cannot fetch them, that is told and nothing is checked: no other part of the project needs node.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.page_types import SCHEMA, schema_text

ROOT = Path(__file__).parents[1]
HERE = ROOT / "tools" / "page_lint"
PAGE = ROOT / "src" / "dragonscale" / "web" / "page" / "js"
KEPT = ROOT / ".cache" / "page_lint"
PACKAGES = ("typescript@7.0.2", "@biomejs/biome@2.6.7")
LONGEST = 300
"""Seconds that npm may take."""


def why_not() -> str | None:
    """Why the scripts cannot be checked here, in a sentence; None where they can, the programs being there then."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed, so the page's scripts are not checked."
    stamp = KEPT / "packages.txt"
    if stamp.exists() and stamp.read_text() == " ".join(PACKAGES):
        return None
    KEPT.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(KEPT), *PACKAGES]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm could not fetch {' and '.join(PACKAGES)} ({error}), so the page's scripts are not checked."
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"npm could not fetch {' and '.join(PACKAGES)} ({reason[:160]}), so the page's scripts are not checked."
    stamp.write_text(" ".join(PACKAGES))
    return None


def complaints(page: Path = PAGE) -> list[str]:
    """What the two say of the scripts."""
    programs = KEPT / "node_modules" / ".bin"
    checks = (
        [programs / "tsc", "--project", HERE / "tsconfig.json"],
        [programs / "biome", "lint", f"--config-path={HERE / 'biome.json'}", "--error-on-warnings", page],
    )
    found = []
    for check in checks:
        ended = subprocess.run(list(map(str, check)), capture_output=True, text=True, cwd=ROOT, check=False)
        if ended.returncode:
            found.append(ended.stdout + ended.stderr)
    return found


def main() -> None:
    """Check, or say why not."""
    if SCHEMA.read_text() != schema_text():
        sys.exit("The schema of the page's panels is not that of their types: python -m tools.page_types")
    if reason := why_not():
        print(reason)
        return
    if found := complaints():
        sys.exit("\n".join(found))
    print("The page's scripts: types and lint hold.")


if __name__ == "__main__":
    main()
