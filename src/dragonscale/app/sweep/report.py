"""The answer to `dscale sweep`: every entry of a grid answered, on this machine's cores or on a Ray cluster."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from dragonscale.app.sweep.cluster import on_ray
from dragonscale.app.sweep.file import AnswerFile, open_answers
from dragonscale.app.sweep.grid import read_grid
from dragonscale.app.sweep.interrupt import interruptible
from dragonscale.app.sweep.pool import cores, pooled
from dragonscale.app.sweep.records import Entry, SweepReport
from dragonscale.app.sweep.table import flat_rows, verify_score
from dragonscale.errors import InputError

MOST_JOBS = 1024


def sweep(
    grid: str | Mapping[str, Any],
    out: str = "",
    jobs: int = 0,
    ray: str = "",
    retry: bool = False,
    cached: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SweepReport:
    """Answer what is not in `out` yet, and with `retry` what failed before; Ctrl-C leaves what was
    answered until then."""
    if not 0 <= jobs <= MOST_JOBS:
        raise InputError(f"--jobs is {jobs}; write a number of processes from 1 to {MOST_JOBS}.")
    entries = read_grid(grid)
    with open_answers(out) if out else contextlib.nullcontext() as file:
        return _answered(
            grid if isinstance(grid, str) else "a grid", entries, file, jobs or cores(), ray, retry, cached, progress
        )


def _answered(
    grid: str,
    entries: list[Entry],
    file: AnswerFile | None,
    jobs: int,
    ray: str,
    retry: bool,
    cached: bool,
    progress: Callable[[int, int], None] | None,
) -> SweepReport:
    known = file.known if file is not None else {}
    answers = {entry.key: known[entry.key] for entry in entries if entry.key in known}
    done_ones = {key for key, answer in answers.items() if not (retry and answer.failed)}
    open_ones = [entry for entry in entries if entry.key not in done_ones]
    before, start, stopped = len(entries) - len(open_ones), time.monotonic(), False

    done = 0
    found = on_ray(open_ones, ray, cached) if ray and open_ones else pooled(open_ones, jobs, cached)
    with interruptible() as interrupt:
        try:
            with contextlib.closing(found):  # its processes end here, whatever happens
                for answer in found:
                    if file is not None:
                        file.append(answer)
                    answers[answer.key], done = answer, done + 1
                    if progress is not None:
                        progress(before + done, len(entries))
                    interrupt.check()
        except KeyboardInterrupt:
            stopped = True
    rows = flat_rows(entries, answers)
    return SweepReport(
        grid,
        len(entries),
        before,
        done,
        sum(bool(row["failed"]) for row in rows),
        time.monotonic() - start,
        rows,
        verify_score(answers[entry.key] for entry in entries if entry.key in answers),
        stopped,
    )
