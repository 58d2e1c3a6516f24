"""Refit the kernel profiles from measured kernels.

    python tools/fit_kernels.py FILE...            # print errors: as the files say, refitted, and on rows not fitted
    python tools/fit_kernels.py --write FILE...    # and write the profiles

Each table of a profile (one kind, format and implementation on one chip) is fitted on its own: least squares of
log(predicted/measured) with a soft loss, so that odd rows do not pull, and a weak pull towards usual constants, which
decides what the rows leave open. Deterministic, and blind to the constants in the files. Rows that the tests keep as their own sample are never fitted.
Held-out errors come from fitting on one half of the rows and predicting the other, and from leaving out whole shapes (the
(n, k) of a matmul, the heads of attention, the model of a mixture), a fifth of them at a time.
"""

import argparse
import csv
import hashlib
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from dragonscale.evidence.kernels import KernelCase, buckets, forms, predict_alike, read_cases, sizes_of
from dragonscale.evidence.rows import attempt
from dragonscale.kernels import kernel_profile_for, profile_file
from dragonscale.kernels.profile import KernelProfile, Tables

PROFILES = Path(profile_file.__file__).parent / "profiles"
SAMPLES = Path(__file__).parent.parent / "tests" / "kernels"
PULL = 0.05
SOFT = 0.1
BOUNDS: dict[str, dict[str, tuple[float, float, float]]] = {
    "matmul": {
        "launch": (5e-7, 3e-6, 3e-5), "rate": (0.2, 0.9, 1.0), "operands": (0.1, 20, 300), "prologue": (1, 200, 3000),
        "quantum": (0.01, 0.7, 1), "join": (1e-7, 5e-6, 3e-5), "bandwidth": (0.4, 0.9, 0.98),
        "unhidden": (1e-3, 0.2, 1), "sustained": (0.55, 0.85, 0.999), "throttle": (5e-5, 5e-4, 3e-3),
        "quantise_row": (1e-12, 3e-9, 1e-7), "quantise_passes": (1, 2, 20), "dispatch_few": (1e-6, 6e-5, 5e-4),
        "dispatch": (1e-6, 9e-5, 5e-4),
    },
    "attention": {
        "launch": (5e-7, 1e-5, 3e-5), "rate": (0.1, 0.6, 1.0), "edge": (1e-8, 3e-6, 2e-5), "fill": (1e-8, 2e-6, 2e-5),
        "quantum": (0.01, 0.5, 1), "longest": (0.2, 0.9, 1.5), "query_bytes": (4, 5, 40), "kv_bytes": (4, 5, 40),
        "unhidden": (1e-3, 0.5, 1), "write_row": (1e-12, 1e-9, 1e-7), "write_bytes": (6, 12, 100),
    },
    "decode": {
        "launch": (5e-7, 1e-5, 3e-5), "block": (1e-8, 2e-6, 2e-5), "group": (1e-10, 3e-8, 1e-6), "quantum": (0.01, 0.5, 1),
        "bandwidth": (0.3, 0.9, 0.98), "cached": (0.5, 1.5, 6), "unhidden": (1e-3, 0.5, 1), "key": (1e-12, 2e-9, 1e-7),
        "chain": (100, 1000, 1e5), "join": (1e-9, 1e-6, 1e-5),
    },
    "grouped": {
        "launch": (1e-6, 3e-5, 1.5e-4), "rate": (0.02, 0.6, 1.0), "operands": (0.1, 30, 400), "prologue": (1, 100, 3000),
        "quantum": (0.01, 0.7, 1), "bandwidth": (0.05, 0.9, 0.98), "occupancy": (0.02, 0.5, 4), "unhidden": (1e-3, 0.2, 1),
        "route_row": (1e-12, 3e-9, 1e-7), "hidden_bytes": (0.01, 5, 100), "inner_bytes": (0.01, 2, 100),
        "expert": (1e-12, 5e-8, 1e-6),
    },
}  # fmt: skip
"""The constants that are fitted, by kind: lowest, where the search starts (and is pulled to), highest. One that a file has
at zero stays zero."""

KINDS = {"gemm": "matmul", "prefill": "attention", "decode": "decode", "moe": "grouped"}
_TIMES = {"launch", "join", "throttle", "edge", "fill", "block", "group", "key", "expert"}


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


def fit(cases: Sequence[KernelCase], path: tuple[str, ...], profile: KernelProfile, effort: int = 60) -> Any:
    """The table that fits the cases best."""
    start = get_table(profile, path)
    bounds = {name: pair for name, pair in BOUNDS[path[1]].items() if getattr(start, name)}
    low, centre, high = (np.log([pair[side] for pair in bounds.values()]) for side in (0, 1, 2))
    found = parts(cases)

    def table(values: np.ndarray) -> Any:
        return replace(
            start, **{name: float(f"{value:.4g}") for name, value in zip(bounds, np.exp(values), strict=True)}
        )

    def smooth(values: np.ndarray) -> Any:
        return replace(start, **dict(zip(bounds, map(float, np.exp(values)), strict=True)))

    def residual(values: np.ndarray) -> np.ndarray:
        trial = put_table(profile, path, smooth(values))
        return np.concatenate([errors(found, trial), PULL * (values - centre)])

    search = least_squares(
        residual, centre, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=1e-3, max_nfev=effort
    )
    return table(search.x)


def shape(case: KernelCase) -> tuple[float, ...]:
    """What is held out together."""
    sizes = case.sizes
    return {"gemm": sizes[1:3], "prefill": sizes[2:], "decode": sizes[2:], "moe": sizes[1:5]}[case.key.kind]


def fold(text: Any, folds: int) -> int:
    return int(hashlib.sha256(repr(text).encode()).hexdigest(), 16) % folds


def held_out(
    cases: Sequence[KernelCase], path: tuple[str, ...], profile: KernelProfile, label: Callable[[KernelCase], int]
) -> float:
    """The median error on cases left out of the fit, a label at a time."""
    found: list[np.ndarray] = []
    for left in sorted({label(case) for case in cases}):
        kept = [case for case in cases if label(case) != left]
        tested = [case for case in cases if label(case) == left]
        if kept:
            found.append(errors(parts(tested), put_table(profile, path, fit(kept, path, profile))))
    return float(np.median(np.abs(np.expm1(np.concatenate(found))))) if found else float("nan")


def sampled() -> set[str]:
    """The rows that the tests keep."""
    found: set[str] = set()
    for file in sorted(SAMPLES.glob("sample_*.csv")):
        found |= {case.id for case in read_cases(file)[0]}
    return found


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {text_of(item)}" for key, item in value.items()) + " }"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_text(value: float) -> str:
    """Seconds as text with a unit, to four digits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if value >= scale or unit == "ns":
            return f"{value / scale:.4g}{unit}"
    raise AssertionError


def is_time(name: str) -> bool:
    return name in _TIMES or name.endswith(("_row", "_launch")) or name.startswith("dispatch")


def write(name: str, fitted: dict[tuple[str, ...], tuple[Any, dict[str, Any]]]) -> None:
    """Put fitted tables and their errors into a file, leaving all else."""
    path = PROFILES / f"{name}.toml"
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    for (_, kind, dtype, who), (table, rest) in fitted.items():
        raw = source[kind][dtype][who] if kind == "grouped" else source[kind][dtype]
        for constant in BOUNDS[kind]:
            value = getattr(table, constant)
            if value:
                raw[constant] = seconds_text(value) if is_time(constant) else value
        raw["rests_on"] = {**raw["rests_on"], **rest}
        order = [field.name for field in fields(table) if field.name in raw]
        values = {key: raw[key] for key in order} | {"rests_on": raw["rests_on"]}
        raw.clear()
        raw.update(values)
    kinds = ("stream", "matmul", "attention", "decode", "grouped")
    lines = [f"{key} = {text_of(value)}" for key, value in source.items() if key not in ("sources", *kinds)]
    for key, value in source["sources"].items():
        lines += ["", f"[sources.{key}]", *(f"{part} = {text_of(item)}" for part, item in value.items())]
    for where, raw in profile_file.tables_of(profile_file.read_profile(source, name)).items():
        lines += ["", f"[{where}]", *(f"{key} = {text_of(value)}" for key, value in raw.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


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
    kept_back = sampled()
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
        now = float(np.median(np.abs(np.expm1(errors(parts(rows), profile)))))
        table = fit(rows, path, profile)
        after = float(np.median(np.abs(np.expm1(errors(parts(rows), put_table(profile, path, table))))))
        half = shapes = float("nan")
        if not options.no_cross_validation:
            half = held_out(rows, path, profile, lambda case: fold(case.id, 2))
            shapes = held_out(rows, path, profile, lambda case: fold(shape(case), 5))
        print(f"{label:<44} {len(rows):5d} {now:6.1%} {after:6.1%} {half:6.1%} {shapes:6.1%}", flush=True)
        rest = {"rows": len(rows), "median_ape": round(after, 3)}
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
