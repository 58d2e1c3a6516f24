"""Refit the kernel profiles from measured kernels.

    python tools/fit_kernels.py FILE...            # print errors: as the files say, refitted, and on rows not fitted
    python tools/fit_kernels.py --write FILE...    # and write the profiles

Each table of a profile (one kind, format and implementation on one chip) is fitted on its own: least squares of
log(predicted/measured) with a soft loss, so that odd rows do not pull, and a weak pull towards usual constants, which
decides what the rows leave open. Deterministic, and blind to the constants in the files. Rows that the tests keep as
their own sample are never fitted. Held-out errors come from fitting on one half of the rows and predicting the other,
and from leaving out whole shapes (the (n, k) of a matmul, the heads of attention, the model of a mixture), a fifth of
them at a time.
"""

import argparse
import csv
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonscale.evidence.calibrate.fitting import BOUNDS, SOFT, fit_table, fold, held_out_error, median_error
from dragonscale.evidence.calibrate.own_profile import profile_text, put_constants
from dragonscale.evidence.kernels import KernelCase, buckets, forms, predict_alike, read_cases, sizes_of
from dragonscale.evidence.rows import attempt
from dragonscale.physics.kernels import kernel_profile_for, profile_file
from dragonscale.physics.kernels.profile import KernelProfile, Tables

PROFILES = Path(profile_file.__file__).parent / "profiles"
SAMPLES = Path(__file__).parent.parent / "tests" / "kernels"
KINDS = {"gemm": "matmul", "prefill": "attention", "decode": "decode", "moe": "grouped"}


@dataclass
class Part:
    """Cases of one table that are predicted in one call."""

    key: Any
    sizes: list[np.ndarray]
    log_seconds: np.ndarray


def parts(cases: Sequence[KernelCase]) -> list[Part]:
    found = []
    for key, places in buckets(cases).items():
        chosen = [cases[place] for place in places]
        found.append(Part(key, sizes_of(chosen), np.log([case.seconds for case in chosen])))
    return found


def path_of(case: KernelCase) -> tuple[str, ...]:
    """Chip, kind of table, format and implementation."""
    key = case.key
    return (key.chip, KINDS[key.kind], key.dtype, key.implementation)


def get_table(profile: KernelProfile, path: tuple[str, ...]) -> Any:
    _, kind, dtype, who = path
    table = getattr(profile, kind).by_format[dtype]
    return table[who] if kind == "grouped" else table


def put_table(profile: KernelProfile, path: tuple[str, ...], table: Any) -> KernelProfile:
    _, kind, dtype, who = path
    tables = dict(getattr(profile, kind).by_format)
    tables[dtype] = {**tables[dtype], who: table} if kind == "grouped" else table
    return replace(profile, **{kind: Tables(tables)})


def errors(found: Sequence[Part], profile: KernelProfile) -> np.ndarray:
    """log(predicted / measured)."""
    return np.concatenate([np.log(predict_alike(p.key, p.sizes, profile)) - p.log_seconds for p in found])


def scipy_solver(residual: Any, start: Any, low: Any, high: Any, effort: int) -> Any:
    """SciPy's search: trust regions instead of the package's own steps."""
    from scipy.optimize import least_squares

    search = least_squares(
        residual, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=1e-3, max_nfev=effort
    )
    return search.x


def fit(
    cases: Sequence[KernelCase],
    path: tuple[str, ...],
    profile: KernelProfile,
    effort: int = 60,
    solve: Any = scipy_solver,
) -> Any:
    """The table that fits the cases best."""
    found = parts(cases)
    start = get_table(profile, path)
    return fit_table(
        start, BOUNDS[path[1]], lambda table: errors(found, put_table(profile, path, table)), solve, effort
    )


def shape(case: KernelCase) -> tuple[float, ...]:
    """What is held out together."""
    sizes = case.sizes
    return {"gemm": sizes[1:3], "prefill": sizes[2:], "decode": sizes[2:], "moe": sizes[1:5]}[case.key.kind]


def held_out(
    cases: Sequence[KernelCase], path: tuple[str, ...], profile: KernelProfile, label: Callable[[KernelCase], int]
) -> float:
    """The median error on cases left out of the fit, a label at a time."""
    error = held_out_error(
        cases,
        label,
        lambda kept: fit(kept, path, profile),
        lambda tested, table: errors(parts(tested), put_table(profile, path, table)),
    )
    return float("nan") if error is None else error


def sampled() -> list[KernelCase]:
    """The rows that the tests keep."""
    return [case for file in sorted(SAMPLES.glob("sample_*.csv")) for case in read_cases(file)[0]]


def columns(cases: Sequence[KernelCase]) -> list[int]:
    """The fewest and most columns of an expert on a chip."""
    found = [int(case.sizes[2] / case.sizes[6]) for case in cases]
    return [min(found), max(found)]


def write(name: str, fitted: dict[tuple[str, ...], tuple[Any, dict[str, Any]]]) -> None:
    """Put fitted tables and their errors into a file, leaving all else."""
    path = PROFILES / f"{name}.toml"
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    for (_, kind, dtype, who), (table, rest) in fitted.items():
        raw = source[kind][dtype][who] if kind == "grouped" else source[kind][dtype]
        put_constants(raw, table, kind, rest)
    path.write_text(profile_text(source, name), encoding="utf-8")


def sample(cases: Sequence[KernelCase], per_group: int, files: Sequence[str]) -> None:
    """Write a few rows of each group, chosen by their hash, as the tests' own sample."""
    chosen: set[str] = set()
    groups: dict[str, list[KernelCase]] = {}
    for case in cases:
        groups.setdefault(case.key.group, []).append(case)
    for found in groups.values():
        chosen |= {case.id for case in sorted(found, key=lambda case: fold(case.id, 2**64))[:per_group]}
    for file in files:
        with open(file, encoding="utf-8", newline="") as opened:
            header, *rows = csv.reader(opened)
        kept = [row for row, case in _with_cases(header, rows) if case in chosen]
        if kept:
            target = SAMPLES / f"sample_{Path(file).stem}.csv"
            with open(target, "w", encoding="utf-8", newline="") as opened:
                csv.writer(opened, lineterminator="\n").writerows([header, *kept])
            print(f"Wrote {len(kept)} rows to {target.name}.")


def _with_cases(header: list[str], rows: list[list[str]]) -> list[tuple[list[str], str]]:
    form = next(form for form in forms().values() if set(form.columns) <= set(header))
    read = attempt(rows, lambda row: form.read(dict(zip(header, row, strict=True)), 0), [])
    return [(row, case.id) for row, case in read]


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit the kernel profiles from measured kernels.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write the profiles")
    parser.add_argument("--no-cross-validation", action="store_true", help="only fit")
    parser.add_argument("--only", default="", help="only tables whose path contains this text")
    parser.add_argument("--sample", type=int, default=0, help="first choose so many rows of each group for the tests")
    options = parser.parse_args()
    cases: list[KernelCase] = []
    for file in options.files:
        found, reasons = read_cases(file)
        cases += found
        print(f"{file}: {len(found)} rows, {len(reasons)} skipped")
    if options.sample:
        sample(cases, options.sample, options.files)
    held: dict[tuple[str, ...], list[KernelCase]] = {}
    for case in sampled():
        held.setdefault(path_of(case), []).append(case)
    kept_back = {case.id for found in held.values() for case in found}
    tables: dict[tuple[str, ...], list[KernelCase]] = {}
    for case in cases:
        if case.id not in kept_back:
            tables.setdefault(path_of(case), []).append(case)
    print(f"{'table':<44} {'rows':>5} {'now':>6} {'fitted':>6} {'half':>6} {'shapes':>6}")
    by_file: dict[str, dict[tuple[str, ...], tuple[Any, dict[str, Any]]]] = {}
    for path, rows in sorted(tables.items()):
        profile = kernel_profile_for(path[0])
        label = " ".join(filter(None, path))
        own = profile_file.profile_files()[profile.name]
        if options.only not in label or path[2] not in getattr(own, path[1]):
            continue
        now = median_error(errors(parts(rows), profile))
        table = fit(rows, path, profile)
        after = median_error(errors(parts(rows), put_table(profile, path, table)))
        half = shapes = float("nan")
        if not options.no_cross_validation:
            half = held_out(rows, path, profile, lambda case: fold(case.id, 2))
            shapes = held_out(rows, path, profile, lambda case: fold(shape(case), 5))
        print(f"{label:<44} {len(rows):5d} {now:6.1%} {after:6.1%} {half:6.1%} {shapes:6.1%}", flush=True)
        rest: dict[str, Any] = {"rows": len(rows), "median_ape": round(after, 3)}
        if path[1] == "grouped":
            rest["inner"] = columns([*rows, *held.get(path, [])])
        if not options.no_cross_validation:
            rest["held_out"] = round(half, 3)
            rest |= {} if math.isnan(shapes) else {"unseen_shapes": round(shapes, 3)}
        by_file.setdefault(profile.name, {})[path] = (table, rest)
    if options.write:
        for name, fitted in by_file.items():
            write(name, fitted)
        print(f"Written to {PROFILES.name}/: {', '.join(by_file)}.")


if __name__ == "__main__":
    main()
