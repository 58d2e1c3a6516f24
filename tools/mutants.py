"""Plant random bugs, one at a time, and see whether the tests that run the changed function notice.

    python -m tools.mutants mutants.json [--jobs N] [--limit 90] [--out outcomes.json] [TEST_PATH ...]

`python -m tools.draw_mutants` draws the bugs. First the tests run once on a copy of the package in which every function
that is going to be changed records which test calls it, in this process or in one that the test starts; tests that fail
without any bug are left out. Then each bug is planted in a copy of its own and meets those tests, up to the first that
fails, for at most `--limit` seconds. A bug outside any function meets the tests of its whole module. The answer is a
line for each bug and the share that was noticed; below eight of ten the exit code is 1.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ENOUGH = 0.8
"""The share of bugs that tests must notice."""
MAX_TEST_S = 60.0
"""Seconds of tests that a bug meets at most, as they took in the recording run."""
RECORDER = '''"""Records which test calls a function that is going to be changed; written by tools.mutants."""

import os

_seen = set()


def record(mutant):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (mutant, test) not in _seen:
        _seen.add((mutant, test))
        with open(os.path.join(os.environ["MUTANT_CALLS"], f"{os.getpid()}.txt"), "a", encoding="utf-8") as file:
            file.write(f"{mutant}\\t{test}\\n")
'''


@dataclass(frozen=True)
class Mutant:
    """One bug: the lines `before`, from line `line` of a file below src, become the lines `after`."""

    file: str
    operator: str
    line: int
    before: list[str]
    after: list[str]

    def planted(self, text: str) -> str:
        """The file's text with the bug in it."""
        lines = text.splitlines()
        first, end = self.line - 1, self.line - 1 + len(self.before)
        if lines[first:end] != self.before:
            sys.exit(f"{self.file}:{self.line} has changed since the bugs were drawn; draw them again.")
        return "\n".join([*lines[:first], *self.after, *lines[end:]]) + "\n"


@dataclass(frozen=True)
class Outcome:
    """What became of a bug: "died", "lived", "timed out" or "no test"; the tests that it met, and the seconds."""

    mutant: Mutant
    result: str
    tests: int
    seconds: float


def with_recorders(text: str, mutants: Sequence[tuple[int, Mutant]]) -> str:
    """A module's text in which functions with a bug report their calls, each under the number of the bug."""
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    calls: dict[ast.stmt, list[int]] = defaultdict(list)
    for number, mutant in mutants:
        enclosing = [node for node in functions if node.lineno <= mutant.line <= (node.end_lineno or node.lineno)]
        innermost = max(enclosing, key=lambda node: node.lineno, default=None)
        for function in [innermost] if innermost is not None else functions:
            calls[first_statement(function)].append(number)
    lines = text.splitlines()
    # From the end, so that the line numbers of what lies before stay right.
    for statement, numbers in sorted(calls.items(), key=lambda item: -item[0].lineno):
        decorators = getattr(statement, "decorator_list", [])
        line = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        report = "; ".join(f"__import__('mutant_recorder').record({number})" for number in numbers)
        head, tail = lines[line][: statement.col_offset], lines[line][statement.col_offset :]
        if head.strip():  # `def f(): return 1`
            lines[line] = f"{head}{report}; {tail}"
        else:
            lines.insert(line, head + report)
    return "\n".join(lines) + "\n"


def first_statement(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    """The first statement after the docstring, or the docstring where there is nothing else."""
    body = function.body
    return body[1] if ast.get_docstring(function) is not None and len(body) > 1 else body[0]


def environment(source: Path, calls: Path | None = None) -> dict[str, str]:
    """The variables of a run on a copy of the package."""
    more = {"PYTHONPATH": str(source), "HYPOTHESIS_PROFILE": "unshrunk"}
    return os.environ | more | ({"MUTANT_CALLS": str(calls)} if calls else {})


def callers_of(mutants: Sequence[Mutant], folder: Path, paths: Sequence[str], jobs: int) -> dict[int, list[str]]:
    """For each bug, the tests that pass today and call its function, those of its own package first."""
    source, calls = folder / "recorded" / "src", folder / "calls"
    shutil.copytree(SOURCE, source)
    calls.mkdir()
    (source / "mutant_recorder.py").write_text(RECORDER, encoding="utf-8")
    by_file: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        by_file[mutant.file].append((number, mutant))
    for file, planted in by_file.items():
        text = (SOURCE / file).read_text(encoding="utf-8")
        (source / file).write_text(with_recorders(text, planted), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-p", "no:cacheprovider", "-rfE", "--tb=no"]
    command += ["--durations=0", "--durations-min=0"]
    run = subprocess.run(
        [*command, "--continue-on-collection-errors", *paths],
        cwd=ROOT,
        env=environment(source, calls),
        capture_output=True,
        text=True,
        check=False,
    )
    if not any(calls.iterdir()):
        sys.exit(f"No test calls a function with a bug in it; pytest said:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    print("\n".join(run.stdout.splitlines()[-3:]), file=sys.stderr, flush=True)
    failing = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.M))
    callers: dict[int, set[str]] = defaultdict(set)
    for record in calls.iterdir():
        for row in record.read_text(encoding="utf-8").splitlines():
            number, test = row.split("\t")
            if test not in failing and test.partition("::")[0] not in failing:
                callers[int(number)].add(test)
    seconds: dict[str, float] = defaultdict(float)
    for took, test in re.findall(r"^([0-9.]+)s (?:setup|call|teardown) +(.+)$", run.stdout, re.M):
        seconds[test] += float(took)
    return {number: nearest_first(mutants[number], tests, seconds) for number, tests in callers.items()}


def nearest_first(mutant: Mutant, tests: set[str], seconds: Mapping[str, float]) -> list[str]:
    """Tests in files named after the module, then those of its package, then the others, quick ones first; as many as
    take `MAX_TEST_S`."""
    parts = Path(mutant.file).with_suffix("").parts

    def distance(test: str) -> tuple[bool, bool, float, str]:
        path = test.partition("::")[0]
        return parts[-1] not in path, not any(part in path for part in parts[1:-1]), seconds.get(test, 0.0), test

    chosen, total = list[str](), 0.0
    for test in sorted(tests, key=distance):
        if total + seconds.get(test, 0.0) <= MAX_TEST_S:
            chosen.append(test)
            total += seconds.get(test, 0.0)
    return chosen


def try_mutant(mutant: Mutant, tests: Sequence[str], folder: Path, limit_s: float) -> Outcome:
    """Plant a bug in a copy of its own and see whether a test fails."""
    if not tests:
        return Outcome(mutant, "no test", 0, 0.0)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        source = Path(copy, "src")
        shutil.copytree(SOURCE, source, symlinks=True)
        path = source / mutant.file
        path.write_text(mutant.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=no", *tests]
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=environment(source), capture_output=True, timeout=limit_s, check=False
            )
            result = "died" if run.returncode else "lived"
        except subprocess.TimeoutExpired:
            result = "timed out"
    return Outcome(mutant, result, len(tests), time.monotonic() - start)


def described(outcome: Outcome) -> str:
    """A line of the answer; what lived is shown."""
    mutant = outcome.mutant
    line = f"{outcome.result:9} {outcome.seconds:5.1f} s {outcome.tests:4} tests  {mutant.file}:{mutant.line}"
    if outcome.result == "died":
        return line
    return "\n".join(
        [line, *(f"    - {text.strip()}" for text in mutant.before), *(f"    + {t.strip()}" for t in mutant.after)]
    )


def read_mutants(path: Path) -> list[Mutant]:
    """The bugs of a file of `tools.draw_mutants`."""
    return [Mutant(**row) for row in json.loads(path.read_text(encoding="utf-8"))["mutants"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("mutants", type=Path, help="what tools.draw_mutants wrote")
    parser.add_argument("tests", nargs="*", default=["tests"], help="where to look for tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds that a bug's tests run at most")
    parser.add_argument("--out", type=Path, help="write the outcomes as JSON")
    flags = parser.parse_intermixed_args(arguments)
    if not flags.mutants.is_file():
        parser.error(f"There is no file {flags.mutants}; `python -m tools.draw_mutants` writes one.")
    mutants = read_mutants(flags.mutants)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="dragonscale-mutants-") as name, ThreadPoolExecutor(flags.jobs) as pool:
        folder = Path(name)
        callers = callers_of(mutants, folder, flags.tests, flags.jobs)

        def attempt(number: int) -> Outcome:
            return try_mutant(mutants[number], callers.get(number, ()), folder, flags.limit)

        for outcome in pool.map(attempt, range(len(mutants))):
            outcomes.append(outcome)
            print(described(outcome), flush=True)
    died = sum(outcome.result == "died" for outcome in outcomes)
    print(f"{died} of {len(outcomes)} died ({died / len(outcomes):.0%}).")
    if flags.out:
        rows: list[dict[str, Any]] = [asdict(outcome) for outcome in outcomes]
        flags.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if died >= ENOUGH * len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
