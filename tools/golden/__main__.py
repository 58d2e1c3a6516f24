"""Record the answers of two trees and say what differs; exit 1 where something does."""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.golden.cases import HERE, ROOT, cases
from tools.golden.compare import differences

KEPT = ROOT / ".golden"


def record(source: Path, lines: list[str], jobs: int) -> dict[str, Any]:
    """The answers of the package in `source` (a `src` folder) to the cases, by processes that share them out."""
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Path] = []
        running: list[subprocess.Popen[bytes]] = []
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "JAX_PLATFORMS": "cpu",
            "PYTHONHASHSEED": "0",
        }
        for job in range(jobs):
            asked = Path(folder, f"cases{job}.json")
            asked.write_text(json.dumps(lines[job::jobs]))
            parts.append(Path(folder, f"answers{job}.jsonl"))
            command = [sys.executable, str(HERE / "answers.py"), str(asked), str(parts[-1])]
            running.append(subprocess.Popen(command, env=environment, cwd=folder))
        if any(process.wait() for process in running):
            sys.exit("A process that answers the cases failed; its error stands above.")
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return {row["case"]: row["answer"] for row in rows}


def of_commit(commit: str, lines: list[str], jobs: int) -> dict[str, Any]:
    """The answers of a commit, kept in `.golden/`; only cases that it was not asked yet are asked."""
    named = subprocess.run(["git", "rev-parse", "--short=12", commit], cwd=ROOT, capture_output=True, text=True)
    if named.returncode:
        sys.exit(f"There is no commit {commit!r} to compare with; name a commit, a branch or a tag of this repository.")
    name = named.stdout.strip()
    path = KEPT / f"{name}.json.gz"
    known: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    missing = [line for line in lines if line not in known]
    if missing:
        print(f"Asking {len(missing)} cases of {name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.check_call(["git", "worktree", "add", "--quiet", "--detach", folder, name], cwd=ROOT)
            try:
                known |= record(Path(folder, "src"), missing, jobs)
            finally:
                subprocess.check_call(["git", "worktree", "remove", "--force", folder], cwd=ROOT)
        KEPT.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(known).encode(), 6))
    return {line: known[line] for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.golden", description=__doc__)
    parser.add_argument("--against", default="HEAD", help="the commit to compare with")
    parser.add_argument("--only", default="", help="only cases whose line holds this text")
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--exact", action="store_true", help="numbers to the last bit")
    parser.add_argument("--most", type=int, default=6, help="differences shown of a case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the tree that is compared")
    flags = parser.parse_args()
    lines = [line for line in cases() if flags.only in line][:: flags.every]
    old, new = of_commit(flags.against, lines, flags.jobs), record(flags.source.resolve(), lines, flags.jobs)
    changed = 0
    for line in lines:
        found = list(differences(old[line], new[line], 0.0 if flags.exact else 1e-9))
        if found:
            changed += 1
            print(line, *(f"    {text}" for text in found[: flags.most]), sep="\n")
            if len(found) > flags.most:
                print(f"    … and {len(found) - flags.most} more")
    print(f"{len(lines) - changed} of {len(lines)} answers are equal.")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
