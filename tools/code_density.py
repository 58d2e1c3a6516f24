"""How large and how dense the code of each package is, and the ceilings that it must stay under.

    python -m tools.code_density                     # a table, package by package
    python -m tools.code_density --against COMMIT    # the same, with what has changed since that commit
    python -m tools.code_density --lower             # lower the ceilings to today's values; never raises one

Tokens are counted without comments, docstrings, line ends and indents, so that packing lines gains nothing. Conditional
expressions, comprehensions and comments are given per 10,000 tokens, so that formatting changes nothing either.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import subprocess
import sys
import tarfile
import tempfile
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dragonscale"
CEILINGS = ROOT / "tools" / "ceilings.toml"
TOP = "(top)"
"""The name under which modules count that lie in no package."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
"""Token types that are no code."""
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ROOM = 500
"""Ceilings on tokens are multiples of this."""
VAGUE_NAMES = frozenset(
    (
        *("one", "found", "told", "held", "kept", "made", "near", "apart", "again", "own", "place", "said", "beside"),
        *("some", "most", "far", "kin", "piece", "lot", "words", "numbers", "room", "laid", "given", "seen", "taken"),
        *("asked", "every", "known", "about"),
    )
)
"""Names that do not say what the thing is."""


@dataclass(frozen=True)
class CodeCount:
    """What is counted in a file or a package. `nested` are conditional expressions that hold another one."""

    files: int = 0
    lines: int = 0
    tokens: int = 0
    conditionals: int = 0
    nested: int = 0
    comprehensions: int = 0
    comments: int = 0
    names: int = 0
    vague_names: int = 0

    def __add__(self, other: CodeCount) -> CodeCount:
        return CodeCount(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def per_10k(self, count: int) -> float:
        """A count per 10,000 tokens."""
        return 10_000 * count / max(self.tokens, 1)


def count_code(text: str) -> CodeCount:
    """Counts of one file's text."""
    conditionals = nested = comprehensions = names = vague_names = 0
    docstrings: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, SCOPES):
            docstrings.update(_bare_strings(node.body))
        elif isinstance(node, ast.IfExp):
            conditionals += 1
            nested += any(isinstance(child, ast.IfExp) for child in ast.walk(node) if child is not node)
        elif isinstance(node, COMPREHENSIONS):
            comprehensions += 1
        name = _bound_name(node)
        if name:
            names += 1
            vague_names += name.strip("_") in VAGUE_NAMES
    tokens = comments = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += 1
        is_docstring = token.type == tokenize.STRING and token.start in docstrings
        if token.type not in LAYOUT and not is_docstring:
            tokens += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return CodeCount(
        files=1,
        lines=len(lines),
        tokens=tokens,
        conditionals=conditionals,
        nested=nested,
        comprehensions=comprehensions,
        comments=comments,
        names=names,
        vague_names=vague_names,
    )


def _bare_strings(body: Iterable[ast.stmt]) -> Iterable[tuple[int, int]]:
    """Where the docstrings of a scope begin, those under its fields too."""
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                yield statement.lineno, statement.col_offset


def _bound_name(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return ""


@cache
def count_packages(folder: Path = PACKAGE) -> dict[str, CodeCount]:
    """Counts of each package in a folder."""
    packages: dict[str, CodeCount] = defaultdict(CodeCount)
    # One process: a test calls this beside JAX, whose threads do not survive a fork.
    for path in sorted(folder.rglob("*.py")):
        parents = path.relative_to(folder).parts[:-1]
        packages[parents[0] if parents else TOP] += count_code(path.read_text(encoding="utf-8"))
    return dict(packages)


def ceilings() -> dict[str, dict[str, int]]:
    """The limits of each package."""
    return tomllib.loads(CEILINGS.read_text(encoding="utf-8"))["packages"]


def limits_of(count: CodeCount) -> dict[str, int]:
    """The tightest limits that a package keeps: ceilings rounded up (those on tokens to the next 500, so that a small
    change needs no new one), the floor of comments rounded down."""
    return {
        "tokens": ROOM * math.ceil(count.tokens / ROOM),
        "conditionals": math.ceil(count.per_10k(count.conditionals)),
        "nested": count.nested,
        "comprehensions": math.ceil(count.per_10k(count.comprehensions)),
        "vague": math.ceil(1000 * count.vague_names / max(count.names, 1)),
        "comments": math.floor(count.per_10k(count.comments)),
    }


def broken_limits(counts: dict[str, CodeCount], limits: dict[str, dict[str, int]]) -> list[str]:
    """A sentence for each limit that is not kept."""
    faults = [f"{name} has no ceiling" for name in sorted(counts.keys() - limits.keys())]
    faults += [f"{name} has a ceiling and is no package" for name in sorted(limits.keys() - counts.keys())]
    for name in sorted(counts.keys() & limits.keys()):
        today = limits_of(counts[name]) | {"tokens": counts[name].tokens}
        for what, limit in limits[name].items():
            if what == "comments" and today[what] < limit:
                faults.append(f"{name}: {today[what]} comments per 10,000 tokens, at least {limit} are wanted")
            elif what != "comments" and today[what] > limit:
                faults.append(f"{name}: {what} {today[what]:,}, the ceiling is {limit:,}")
    return faults


def tightened(counts: dict[str, CodeCount], limits: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The limits, moved to today's values where those are better."""
    better: dict[str, dict[str, int]] = {}
    for name, count in sorted(counts.items()):
        today = limits_of(count)
        old = limits.get(name, today)
        better[name] = {what: min(value, old[what]) for what, value in today.items() if what != "comments"}
        better[name]["comments"] = max(today["comments"], old["comments"])
    return better


def write_limits(limits: dict[str, dict[str, int]]) -> None:
    """Put limits into the file; its head stays."""
    head = CEILINGS.read_text(encoding="utf-8").partition("[packages]")[0]
    rows = [
        f'"{name}" = {{ ' + ", ".join(f"{what} = {value}" for what, value in values.items()) + " }"
        for name, values in limits.items()
    ]
    CEILINGS.write_text(head + "[packages]\n" + "\n".join(rows) + "\n", encoding="utf-8")


def table(counts: dict[str, CodeCount], before: dict[str, CodeCount] | None = None) -> list[str]:
    """The lines that are printed, the largest package first; with `before`, the change in tokens, and below each
    package that changed what it was."""
    head = (
        f"{'package':14}{'files':>6}{'lines':>9}{'tokens':>11}{'a line':>8}{'if-else':>9}{'nested':>8}{'compr.':>8}"
        f"{'comments':>10}{'vague':>8}"
    )
    rows = sorted(counts.items(), key=lambda item: -item[1].tokens)
    rows.append(("all", sum(counts.values(), CodeCount())))
    earlier = dict(before or {}) | {"all": sum((before or {}).values(), CodeCount())}
    lines = [head + (f"{'change':>11}" if before else "")]
    for name, count in rows:
        line = _row(name, count)
        was = earlier.get(name)
        if before:
            line += f"{count.tokens - (was or CodeCount()).tokens:+11,}"
        lines.append(line)
        if was is not None and before and was != count:
            lines.append(_row("  was", was))
    return lines


def _row(name: str, count: CodeCount) -> str:
    return (
        f"{name:14}{count.files:6}{count.lines:9,}{count.tokens:11,}{count.tokens / max(count.lines, 1):8.1f}"
        f"{count.per_10k(count.conditionals):9.0f}{count.nested:8}{count.per_10k(count.comprehensions):8.0f}"
        f"{count.per_10k(count.comments):10.0f}{100 * count.vague_names / max(count.names, 1):7.1f}%"
    )


def counts_at(commit: str) -> dict[str, CodeCount]:
    """Counts of the package as a commit has it."""
    archive = subprocess.run(["git", "archive", commit, "src/dragonscale"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        sys.exit(archive.stderr.decode().strip())
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
            opened.extractall(scratch, filter="data")
        return count_packages(Path(scratch) / "src" / "dragonscale")


def main() -> None:
    """Print the table, or lower the ceilings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="also what has changed since that commit")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to today's values")
    arguments = parser.parse_args()
    counts = count_packages()
    before = counts_at(arguments.against) if arguments.against else None
    print("\n".join(table(counts, before)))
    if arguments.lower:
        write_limits(tightened(counts, ceilings()))


if __name__ == "__main__":
    main()
