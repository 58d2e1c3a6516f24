"""Write how far measured peaks of memory were above the predicted ones, by family of software.

    python -m tools.fit_peaks            # print src/dragonscale/training/peaks.toml
    python -m tools.fit_peaks --write    # and write it

Of each family with enough runs, and of all: the ratio of the measured peak to the predicted one that all but `CHANCE`
of the runs stay within. Runs of one source share what the model gets wrong, so every source counts the same, however
many runs it has; and the next run is of a source that is not here, so other families speak for a family too, as if they
lent it `LENT` runs."""

import argparse
import math
from dataclasses import dataclass

from dragonscale.evidence.bands import LENT
from dragonscale.evidence.memory import FORMS, judge, peak_of, run_of
from dragonscale.evidence.rows import attempt, read_cases
from dragonscale.training.bands import LEAST
from dragonscale.training.room import CHANCE, EVERY
from dragonscale.training.run_kinds import family
from tools.refit import MEASURED, ROOT

TABLE = ROOT / "src" / "dragonscale" / "training" / "peaks.toml"
HEAD = """\
# How far measured peaks of memory were above the predicted ones, by family of software: 19 of 20 runs stayed within
# 1 + over times what was predicted, every source counting the same and other families as 16 runs. Written by
# `python -m tools.fit_peaks --write` from docs/data/measured/memory.csv.gz.
"""


@dataclass(frozen=True)
class Peak:
    """A run whose peak was measured, over what was predicted."""

    family: str
    source: str
    ratio: float


def measured_peaks() -> list[Peak]:
    """Every run with a peak."""
    runs, reasons = read_cases(MEASURED / "memory.csv.gz", "memory", FORMS, run_of)
    judged = [(run, verdict) for run, verdict in attempt(runs, judge, reasons) if run.row.peak_bytes]
    expected = [peak_of(verdict, run.job, run.row.counter) for run, verdict in judged]
    pairs = zip(judged, expected, strict=True)
    return [Peak(family(run.row.stack), run.row.source, run.row.peak_bytes / size) for (run, _), size in pairs]


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
    found = {EVERY: (len(peaks), within(by_source(peaks, 1.0), 1 - CHANCE) - 1)}
    for name in sorted({one.family for one in peaks}):
        own, others = ([one for one in peaks if (one.family == name) is mine] for mine in (True, False))
        share = len(own) / (len(own) + LENT)
        if len(own) >= LEAST:
            weighted = by_source(own, share) + by_source(others, 1 - share)
            found[name] = len(own), within(weighted, 1 - CHANCE) - 1
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
