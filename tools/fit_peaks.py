"""Write how far measured peaks of memory were above what was predicted to be full, by family of software.

    python -m tools.fit_peaks            # print src/dragonscale/training/search/peaks.toml
    python -m tools.fit_peaks --write    # and write it

Of each family with enough runs, and of all: the ratio of what a program took, with what its allocator kept and what
lies outside of it, to the bytes that were predicted to be full, which all but `CHANCE` of the runs stay within. Runs of
one source share what the model gets wrong, so every source counts the same, however many runs it has; and the next run
is of a source that is not here, so other families speak for a family too, as if they lent it `LENT` runs. The constants
of stacks were settled on these very runs; others are further off, so that the ratio is taken to the power of
`STRETCH`."""

import argparse
import math
from dataclasses import dataclass

from dragonscale.evidence.bands import LENT
from dragonscale.evidence.memory import FORMS, MemoryRun, judge, run_of
from dragonscale.evidence.rows import attempt, read_cases
from dragonscale.physics.numbers import first_number
from dragonscale.training.search.error_bands import MIN_RUNS
from dragonscale.training.search.headroom import ALL_FAMILIES, CHANCE
from dragonscale.training.search.run_kinds import family
from tools.refit import MEASURED, ROOT

STRETCH = 1.5
"""As bands of chips that were not measured are (`tools.fit_bands`): a judgement, which nothing measured says."""
TABLE = ROOT / "src" / "dragonscale" / "training" / "search" / "peaks.toml"
HEAD = """\
# How much more memory than predicted measured programs took, by family of software: 19 of 20 took at most 1 + over
# times as much, every source counting the same, other families as 16 runs, and half as much again for runs that no
# constant was settled on. Written by `python -m tools.fit_peaks --write` from docs/data/measured/memory.csv.gz.
"""


@dataclass(frozen=True)
class Peak:
    """A run whose peak was measured: what it took, over what was predicted to be full."""

    family: str
    source: str
    ratio: float


def measured_peaks() -> list[Peak]:
    """Every run with a peak that trains all weights: peaks of adapters scatter by who counted them."""
    runs, reasons = read_cases(MEASURED / "memory.csv.gz", "memory", FORMS, run_of)
    judged = [(run, verdict) for run, verdict in attempt(runs, judge, reasons) if run.row.peak_bytes]
    judged = [(run, verdict) for run, verdict in judged if not run.job.tuning.rank]
    ratios = [(run.row, taken(run) / first_number(verdict.hbm_bytes)) for run, verdict in judged]
    return [Peak(family(row.stack), row.source, ratio) for row, ratio in ratios]


def taken(run: MemoryRun) -> float:
    """Bytes that a program took: what its allocator had, live or not, and what lies outside of it."""
    memory = run.job.stack.memory
    return run.row.peak_bytes * (1.0 if run.row.counter == "max_reserved" else memory.slack) + memory.reserve_bytes


def within(weighted: list[tuple[float, float]], part: float) -> float:
    """The value that `part` of the weight lies at or below.

    >>> within([(1.0, 0.5), (1.2, 0.25), (1.1, 0.25)], 0.75), within([(1.0, 0.96), (2.0, 0.04)], 0.95)
    (1.1, 1.0)
    """
    reached = 0.0
    for value, weight in sorted(weighted):
        reached += weight
        if reached >= part * (1 - 1e-9):
            return value
    return math.nan


def by_source(peaks: list[Peak], weight: float) -> list[tuple[float, float]]:
    """Ratios with their weights, the same for every source."""
    sources = {one.source for one in peaks}
    runs = {name: sum(one.source == name for one in peaks) for name in sources}
    return [(one.ratio, weight / len(sources) / runs[one.source]) for one in peaks]


def table(peaks: list[Peak]) -> dict[str, tuple[int, float]]:
    """By family the number of runs, and how far above the prediction all but `CHANCE` of them were at most."""
    found = {ALL_FAMILIES: (len(peaks), within(by_source(peaks, 1.0), 1 - CHANCE) ** STRETCH - 1)}
    for name in sorted({one.family for one in peaks}):
        own, others = ([one for one in peaks if (one.family == name) is mine] for mine in (True, False))
        share = len(own) / (len(own) + LENT)
        if len(own) >= MIN_RUNS:
            weighted = by_source(own, share) + by_source(others, 1 - share)
            found[name] = len(own), within(weighted, 1 - CHANCE) ** STRETCH - 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Write how far measured peaks of memory were above predicted ones.")
    parser.add_argument("--write", action="store_true")
    rows = (f"\n[{name}]\nruns = {runs}\nover = {over:.3f}\n" for name, (runs, over) in table(measured_peaks()).items())
    text = HEAD + "".join(rows)
    if parser.parse_args().write:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
