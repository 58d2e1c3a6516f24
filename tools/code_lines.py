"""Lines of code of a tree: without blank lines, comments and docstrings.

python -m tools.code_lines [FOLDER]     lines and files of each room, the largest first
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "dragonscale"


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank nor a comment, unless a long string spans them, and in no docstring (a bare
    string that opens a module, class or function, or stands below a field)."""
    rows = enumerate(text.splitlines(), 1)
    lines = {number for number, row in rows if row.strip() and not row.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.JoinedStr | ast.Constant) and node.end_lineno != node.lineno:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines - docstrings)


@cache
def by_room(folder: Path = PACKAGE, depth: int = 1) -> dict[str, tuple[int, int]]:
    """Lines of code and files of each room at that depth; modules at the top count under `(top)`."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        parents = path.relative_to(folder).parts[:-1][:depth]
        sizes["/".join(parents) or "(top)"].append(code_lines(path.read_text(encoding="utf-8")))
    return {room: (sum(counts), len(counts)) for room, counts in sizes.items()}


def main() -> None:
    depth = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    if not folder.is_dir():
        sys.exit(f"{folder} is no folder; name one with Python files.")
    rooms = by_room(folder, depth)
    for room, (lines, files) in sorted(rooms.items(), key=lambda row: -row[1][0]):
        print(f"{room:40} {lines:8,} {files:6,}")
    print(f"{'all':40} {sum(lines for lines, _ in rooms.values()):8,} {sum(files for _, files in rooms.values()):6,}")


if __name__ == "__main__":
    main()
