"""Bugs planted on purpose, and the tests that must notice each of them.

    python -m tools.mutants [NAME ...] [--jobs N] [--near]

`mutants.toml` has a row for every bug: the module, a fragment of one of its lines, what stands there instead, the
rule that this breaks, and the tests next to it. Each bug is planted in a scratch copy of the package; the tests of
its row run first, then, where they all pass, the fast tests of their folders (`--near` leaves these out). The answer
is a line for each bug and the share that was noticed; below nine of ten the exit code is 1.
"""

from __future__ import annotations

import argparse
import compileall
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TABLE = Path(__file__).with_name("mutants.toml")
ENOUGH = 0.9
"""The share of bugs that tests must notice."""
PATIENCE_S = 900
"""A bug that keeps its tests running longer than this was noticed: some loop no longer ends."""
FAILED, BROKEN = 1, 2
"""Exit codes of pytest: a test failed, or a file of tests could not be imported. Anything else but 0 is a mistake of
a row."""


class WrongRow(Exception):
    """A row of the table that does not fit the sources."""


@dataclass(frozen=True)
class Mutant:
    """One bug: `before`, part of one line of a module, becomes `after`; `tests` are paths below the repository."""

    name: str
    module: str
    before: str
    after: str
    rule: str
    tests: tuple[str, ...]

    @property
    def file(self) -> Path:
        """Where the module, or the data file that is named by its path, lies below the sources."""
        return Path(self.module) if "/" in self.module else Path(*self.module.split(".")).with_suffix(".py")

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its tests."""
        return tuple(dict.fromkeys("/".join(test.split("/")[:2]) for test in self.tests))

    def planted(self, source: Path) -> str:
        """The module's text with the bug in it."""
        path = source / self.file
        if not path.is_file():
            raise WrongRow(f"{self.name}: there is no module {self.module}.")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.before)) != 1:
            raise WrongRow(f"{self.name}: {self.module} has {self.before!r} {count} times, not once.")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Outcome:
    """What became of a bug: the tests that noticed it (empty: none did), and the seconds it took."""

    mutant: Mutant
    noticed_by: str
    seconds: float


def read_table(path: Path = TABLE) -> list[Mutant]:
    """The rows of the table."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**row | {"tests": tuple(row["tests"])}) for row in rows]


def chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Those whose name or module begins with one of the names; all of them without any."""
    for name in names:
        if not any(one.name.startswith(name) or one.module.startswith(name) for one in mutants):
            raise WrongRow(f"No bug and no module in the table begins with {name!r}.")
    starts = tuple(names) or ("",)
    return [one for one in mutants if one.name.startswith(starts) or one.module.startswith(starts)]


def scratch_copy(folder: Path) -> Path:
    """The sources copied to a folder and compiled, so that each run compiles only the changed module."""
    copy = folder / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.egg-info"))
    compileall.compile_dir(copy, quiet=2, force=False)
    return copy


@contextmanager
def planted(mutant: Mutant, copy: Path) -> Iterator[None]:
    """A scratch copy with the bug in it, which is taken out again."""
    path, bug = copy / mutant.file, mutant.planted(SOURCE)
    path.write_text(bug, encoding="utf-8")
    try:
        yield
    finally:
        shutil.copy2(SOURCE / mutant.file, path)  # with its time, so that the compiled file fits again


def environment(copy: Path) -> dict[str, str]:
    """The variables of a run on a scratch copy."""
    more = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "unshrunk"}
    return os.environ | more


def run_tests(tests: Sequence[str], copy: Path) -> int:
    """The exit code of some tests on a scratch copy, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment(copy), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED
    if run.returncode not in (0, FAILED, BROKEN):
        raise WrongRow(f"pytest ended with {run.returncode} on {' '.join(tests)}:\n{run.stdout}{run.stderr}")
    return run.returncode


def try_mutant(mutant: Mutant, copy: Path, near: bool = False) -> Outcome:
    """Plant a bug and see who notices."""
    start, noticed_by = time.monotonic(), ""
    with planted(mutant, copy):
        for tests in (mutant.tests,) if near else (mutant.tests, mutant.folders):
            if run_tests(tests, copy):
                noticed_by = " ".join(tests)
                break
    return Outcome(mutant, noticed_by, time.monotonic() - start)


def check_copy(copy: Path, tests: Sequence[str]) -> None:
    """Refuse a copy that the tests would not import, and tests that fail without any bug."""
    command = [sys.executable, "-c", "import dragonscale; print(dragonscale.__file__)"]
    run = subprocess.run(command, cwd=ROOT, env=environment(copy), capture_output=True, text=True, check=True)
    where = run.stdout.strip()
    if Path(where).parent != copy / "dragonscale":
        raise WrongRow(f"Tests would import {where}, not the scratch copy in {copy}.")
    if tests and run_tests(tests, copy):
        raise WrongRow("The tests of the chosen rows fail without any bug: run `make test` first.")


def try_all(mutants: Sequence[Mutant], jobs: int, near: bool) -> Iterator[Outcome]:
    """Every bug's outcome, in the order of the table."""
    with tempfile.TemporaryDirectory(prefix="dragonscale-mutants-") as folder:
        first = scratch_copy(Path(folder) / "0")
        check_copy(first, sorted({test for mutant in mutants for test in mutant.tests}))
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for place in range(jobs):
            copies.put(first if place == 0 else shutil.copytree(first, Path(folder) / str(place) / "src"))

        def attempt(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return try_mutant(mutant, copy, near)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(attempt, mutants)


def described(outcome: Outcome) -> str:
    """A line of the answer."""
    mutant, seconds = outcome.mutant, f"{outcome.seconds:5.1f} s"
    if outcome.noticed_by:
        wider = "" if outcome.noticed_by == " ".join(mutant.tests) else f"  (only by {outcome.noticed_by})"
        return f"killed {seconds}  {mutant.name}{wider}"
    return f"LIVED  {seconds}  {mutant.name}: {mutant.rule}\n         {mutant.module}: {mutant.after}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Plant bugs; do tests notice?")
    parser.add_argument("names", nargs="*", help="only bugs whose name or module begins like this")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time, each in a scratch copy of its own")
    parser.add_argument("--near", action="store_true", help="only the tests of the rows, not those of their folders")
    given = parser.parse_args(words)
    start = time.monotonic()
    try:
        mutants = chosen(read_table(), given.names)
        for mutant in mutants:
            mutant.planted(SOURCE)
        outcomes = []
        for outcome in try_all(mutants, max(given.jobs, 1), given.near):
            outcomes.append(outcome)
            print(described(outcome), flush=True)
    except WrongRow as wrong:
        print(wrong, file=sys.stderr)
        return 2
    killed = sum(bool(outcome.noticed_by) for outcome in outcomes)
    near = sum(outcome.noticed_by == " ".join(outcome.mutant.tests) for outcome in outcomes)
    share, minutes = killed / len(outcomes), (time.monotonic() - start) / 60
    print(
        f"{killed} of {len(outcomes)} killed ({share:.0%}), {near} by the tests of their rows; {minutes:.1f} minutes."
    )
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
