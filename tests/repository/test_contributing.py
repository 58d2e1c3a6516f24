"""The worked commits of CONTRIBUTING.md: each is made in a copy of the package, and what the page shows is what the
copy prints."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools.worked_commits import PAGE, WorkedCommit, ask, commits, environment, make

COMMITS = commits(PAGE.read_text(encoding="utf-8"))
IDS = [commit.title for commit in COMMITS]


def test_the_seven_ways_are_there() -> None:
    titles = ["a chip", "a model", "a stack", "an engine", "an exporter", "a command", "a flag"]
    assert [f"Add {title}" for title in titles] == IDS
    for commit in COMMITS:
        assert commit.files
        assert commit.commands
        assert commit.tests


@pytest.mark.parametrize("commit", COMMITS, ids=IDS)
def test_a_commit_does_what_the_page_shows(commit: WorkedCommit, tmp_path: Path) -> None:
    make(commit, tmp_path)
    for command, shown in commit.commands:
        assert ask(command, tmp_path) == shown, f"{command}\n`python -m tools.worked_commits` writes it anew"


@pytest.mark.slow
@pytest.mark.parametrize("commit", COMMITS, ids=IDS)
def test_the_tests_that_a_commit_names_pass(commit: WorkedCommit, tmp_path: Path) -> None:
    make(commit, tmp_path, whole=True)
    for line in commit.tests:
        words = [sys.executable, "-m", "pytest", *shlex.split(line)[1:], "-n0", "-q", "-x"]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_files_that_the_page_names_are_there() -> None:
    root = PAGE.parent
    made = {path for commit in COMMITS for path, _ in commit.files}
    text = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path in re.findall(r"`((?:src|tests|tools|docs|examples)/[\w./-]+)`", text):
        assert (root / path).exists() or path in made or "NAME" in path, path
    for path in re.findall(r"`((?:training|serving|exports)/[\w./]+\.(?:py|toml))`", text):
        assert (root / "src/dragonscale" / path).exists() or "NAME" in path, path
    for path in re.findall(r"python -m (tools\.\w+)", PAGE.read_text(encoding="utf-8")):
        assert (root / f"{path.replace('.', '/')}.py").exists(), path
