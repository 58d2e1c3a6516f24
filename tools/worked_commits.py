"""The worked commits of CONTRIBUTING.md: read, made in a copy of the repository, and asked what the page shows.

A section `## Add …` is a commit. In it, a fenced block with `title="PATH"` is a new file, or lines at the end of one
that is there; a ```diff block changes the file under `+++ b/PATH`, each hunk by what its old lines say, wherever they
stand; `$ dscale …` lines in ```console blocks are run in the copy; the ```sh block has the tests to run. `python -m
tools.worked_commits` puts the real output into the page.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
_SECTION = re.compile(r"^## (Add [^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHIPPED = ("src",)
_CHECKED = ("src", "tests", "tools", "docs", "examples", "benchmarks")


@dataclass(frozen=True)
class Hunk:
    """Lines of a file, and what they become."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class WorkedCommit:
    """A commit that the page shows: text for files, hunks, commands with their output, and tests to run."""

    title: str
    files: tuple[tuple[str, str], ...]
    hunks: tuple[Hunk, ...]
    commands: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


def commits(text: str) -> list[WorkedCommit]:
    """The commits of a page."""
    return [_commit(title, body) for title, body in _SECTION.findall(text)]


def _commit(title: str, body: str) -> WorkedCommit:
    files, hunks, commands, tests = [], [], [], []
    for language, path, block in _BLOCK.findall(body):
        if path:
            files.append((path, block))
        elif language == "diff":
            hunks += hunks_of(block)
        elif language == "console":
            commands += commands_of(block)
        elif language == "sh":
            tests += [line for line in block.splitlines() if "pytest" in line]
    return WorkedCommit(title, tuple(files), tuple(hunks), tuple(commands), tuple(tests))


def hunks_of(block: str) -> list[Hunk]:
    """The hunks of a diff.

    >>> hunks_of("--- a/x.toml\\n+++ b/x.toml\\n@@\\n-a = 1\\n+a = 2\\n")
    [Hunk(path='x.toml', old='a = 1\\n', new='a = 2\\n')]
    """
    found: list[Hunk] = []
    path = ""
    for part in re.split(r"^(?=\+\+\+ |@@)", block, flags=re.MULTILINE):
        if part.startswith("+++ b/"):
            path = part.splitlines()[0].removeprefix("+++ b/")
        elif part.startswith("@@"):
            lines = [line for line in part.splitlines(keepends=True)[1:] if not line.startswith(("---", "diff "))]
            old = "".join(line[1:] for line in lines if line[0] in " -")
            found.append(Hunk(path, old, "".join(line[1:] for line in lines if line[0] in " +")))
    return found


def commands_of(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output that is shown for it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown.rstrip("\n")) for command, _, shown in (part.partition("\n") for part in parts)]


def make(commit: WorkedCommit, place: Path, whole: bool = False) -> None:
    """A copy of the package (or of the whole repository) with the commit made in it."""
    for name in _CHECKED if whole else _SHIPPED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    if whole:
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, place / path.name)
    for name, text in commit.files:
        path = place / name
        before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n" if path.exists() else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + text, encoding="utf-8")
    for hunk in commit.hunks:
        path = place / hunk.path
        if not path.exists():  # the tests of a commit, in a copy of the package alone
            assert not whole, f"{commit.title}: there is no {hunk.path}"
            continue
        text = path.read_text(encoding="utf-8")
        assert text.count(hunk.old) == 1, (
            f"{commit.title}: {hunk.path} has these lines {text.count(hunk.old)} times:\n{hunk.old}"
        )
        path.write_text(text.replace(hunk.old, hunk.new), encoding="utf-8")


def ask(command: str, place: Path) -> str:
    """What a command prints in a copy; `| grep PATTERN` keeps lines, `cat FILE` shows what was written."""
    words = shlex.split(command)
    pattern = ""
    if "|" in words:
        at = words.index("|")
        assert words[at + 1] == "grep", command
        words, pattern = words[:at], words[-1]
    if words[0] == "dscale":
        words = [sys.executable, "-m", "dragonscale", *words[1:]]
    done = subprocess.run(
        words, cwd=place, env=environment(place), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    lines = done.stdout.rstrip("\n").splitlines()
    return "\n".join(line for line in lines if not pattern or re.search(pattern, line))


def environment(place: Path) -> dict[str, str]:
    """What a process needs to import the copy."""
    return {**os.environ, "PYTHONPATH": f"{place / 'src'}{os.pathsep}{place}", "COLUMNS": "80"}


def refreshed(text: str, scratch: Path) -> str:
    """The page with the output of every command as it is now."""
    for number, commit in enumerate(commits(text)):
        place = scratch / str(number)
        make(commit, place)
        for command, shown in commit.commands:
            old = f"$ {command}\n{shown}\n" if shown else f"$ {command}\n"
            new = ask(command, place)
            text = text.replace(old, f"$ {command}\n{new}\n" if new else f"$ {command}\n", 1)
    return text


def main() -> int:
    """Write the page anew."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), Path(scratch)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
