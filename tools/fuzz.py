"""`python -m tools.fuzz --lines N --files N --calls N`: command lines, spoilt files and calls of tools at random.

All run in this process. What breaks is printed as it can be repeated, with its file in out/fuzz; at the end stands how
all of them ended. Every command and reader has the same time, so quick ones get many more inputs. The exit code is 1
where anything broke.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.command_lines import Fuzzer
from tests.fuzz.formats import FileFuzzer
from tests.fuzz.judging import report

SHOWN = 1000
"""Inputs between two lines on how far it is."""
BROKEN = Path("out/fuzz")
"""Where files that broke a reader are kept."""


def run(kind: str, count: int, seed: int, end: float) -> int:
    """Try inputs of a kind until there were so many, or the time is over; how many broke."""
    began, done, broken, by = time.monotonic(), 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = (FileFuzzer if kind == "files" else Fuzzer)(Path(folder), seed, even=True)
        if isinstance(fuzzer, FileFuzzer):
            BROKEN.mkdir(parents=True, exist_ok=True)
            fuzzer.broken = BROKEN
        cases = fuzzer.calls if kind == "calls" and isinstance(fuzzer, Fuzzer) else fuzzer.cases
        for line, problem in cases(count):
            done, broken = done + 1, broken + bool(problem)
            by[line[1] if kind == "calls" else line[0]] += 1
            if problem:
                print(f"[{kind} {seed}] {report(line, problem)}", flush=True)
            if done % SHOWN == 0:
                print(f"# {done:,} {kind}, {broken} broken, {time.monotonic() - began:.0f} s", flush=True)
            if time.monotonic() > end:
                break
        print(f"{kind}: {done:,} tried, {broken} broken, {time.monotonic() - began:.0f} s")
        print(f"  ended {dict(fuzzer.ends.most_common())}\n  of {dict(by.most_common())}", flush=True)
    return broken


def main() -> int:
    """Parse the arguments and run."""
    options = argparse.ArgumentParser(description=__doc__)
    for kind in ("lines", "files", "calls"):
        options.add_argument(f"--{kind}", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--minutes", type=float, default=1e6)
    given = options.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    end = time.monotonic() + 60 * given.minutes
    wanted = {kind: getattr(given, kind) for kind in ("files", "calls", "lines") if getattr(given, kind)}
    return int(sum(run(kind, count, given.seed, end) for kind, count in wanted.items()) > 0)


if __name__ == "__main__":
    sys.exit(main())
