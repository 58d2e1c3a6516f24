"""Refit the network profiles from measured collectives.

    python tools/fit_collectives.py FILE...            # print residuals and what cross-validation gives
    python tools/fit_collectives.py --write FILE...    # and write the profiles

Each network's constants are fitted on their own, networks inside nodes first: least squares of log(predicted/measured)
with a soft loss, so that a few odd rows do not pull, and a weak pull towards the tier's generic profile, since networks
resemble one another; it decides what the rows leave open. Deterministic. What is not fitted (chips, titles, sources,
borrowed constants) stays as the file says; a table whose `rests_on.rows` is 0 is borrowed and left alone.
"""

import argparse
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from dragonscale.evidence.collectives import LARGE, CollectiveCase, collective_cases, predict
from dragonscale.physics.collectives import profile_file
from dragonscale.physics.collectives.group import Switches
from dragonscale.physics.collectives.profile import NetworkProfile, NetworkTier, Path, expected_time
from dragonscale.physics.units import render

PROFILES = FilePath(profile_file.__file__).parent / "profiles"
PULL = 0.05
SOFT = 0.15
BOUNDS = {
    "launch": (1e-7, 2e-3),
    "hop": (1e-8, 3e-4),
    "fraction": (0.02, 0.97),
    "ramp": (1e-9, 5e-3),
    "copy": (1e10, 5e12),
    "stall": (1e-7, 1e-4),
}
OWN = {
    "one_shot": {"launch": 5e-6, "hop": 1e-7, "fraction": 0.6, "copy": 1.4e12},
    "two_shot": {"launch": 8e-6, "hop": 1e-7, "fraction": 0.7, "copy": 1.4e12, "ramp": 1e-6},
    "library": {"launch": 1e-6, "copy": 1.4e12},
    "direct": {"launch": 3e-5, "fraction": 0.8},
}
"""Where the search for an implementation's own constants begins: there is no generic profile of those."""
Tiers = dict[str, NetworkTier]
Knob = tuple[str, str, str, str]
"""Tier, implementation ("" for the usual), algorithm, constant."""


def with_tiers(profile: NetworkProfile, tiers: Tiers) -> NetworkProfile:
    names = ("domain", "fabric", "rail", "torus", "wide")
    return replace(profile, **{name: tiers.get(getattr(profile, name).name, getattr(profile, name)) for name in names})


@dataclass
class Bucket:
    """Cases that differ only in bytes and ranks, predicted in one call."""

    cases: list[CollectiveCase]

    def predict(self, tiers: Tiers) -> np.ndarray:
        first = self.cases[0]
        profile = with_tiers(first.profile, tiers)
        if len(self.cases) == 1:
            return np.array([predict(replace(first, profile=profile))])
        group = first.parts[0][1]
        assert isinstance(group, Switches)
        volume = np.array([case.parts[0][0] for case in self.cases])
        size = np.array([float(case.parts[0][1].size) for case in self.cases])
        return expected_time(first.row.collective, volume, replace(group, size=size), profile, first.options)


def buckets(cases: Sequence[CollectiveCase]) -> list[Bucket]:
    found: dict[Any, list[CollectiveCase]] = defaultdict(list)
    for case in cases:
        group = case.parts[0][1]
        alone = len(case.parts) > 1 or not isinstance(group, Switches)
        levels = None if alone else group.levels
        tiers = (case.profile.domain.name, case.profile.fabric.name, case.profile.rail.name)
        found[
            (id(case) if alone else 0, case.row.collective, case.options, case.profile.implementation, levels, tiers)
        ].append(case)
    return [Bucket(group) for group in found.values()]


def errors(cases: Sequence[CollectiveCase], tiers: Tiers) -> np.ndarray:
    """log(predicted / measured)."""
    parts = [
        np.log(bucket.predict(tiers) / np.array([case.row.seconds for case in bucket.cases]))
        for bucket in buckets(cases)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def get(tiers: Tiers, knob: Knob) -> float:
    tier, who, name, constant = knob
    paths = tiers[tier].implementations[who] if who else tiers[tier].paths
    return float(getattr(paths[name], constant))


def put(tiers: Tiers, knobs: Sequence[Knob], values: Sequence[float]) -> Tiers:
    """The tiers with some constants changed."""
    changed = dict(tiers)
    for (tier, who, name, constant), value in zip(knobs, values, strict=True):
        old = changed[tier]
        paths = dict(old.implementations[who] if who else old.paths)
        paths[name] = replace(paths[name], **{constant: float(value)})
        changed[tier] = (
            replace(old, implementations={**old.implementations, who: paths}) if who else replace(old, paths=paths)
        )
    return changed


def prior(tiers: Tiers, knob: Knob) -> float:
    """The tier's generic constant; what the file says where there is none."""
    if knob[1]:
        return OWN[knob[2]][knob[3]]
    kind = profile_file.tier_files()[knob[0]].tier
    generic = tiers.get(f"generic-{kind}")
    known = generic is not None and knob[2] in generic.paths
    return (get(tiers, (f"generic-{kind}", *knob[1:])) if known else 0.0) or get(tiers, knob)


def fit(cases: Sequence[CollectiveCase], tiers: Tiers, knobs: Sequence[Knob]) -> Tiers:
    """The best of two searches, from the generic constants and from those in the file."""
    low = np.log([BOUNDS[knob[3]][0] for knob in knobs])
    high = np.log([BOUNDS[knob[3]][1] for knob in knobs])
    centre = np.log([prior(tiers, knob) for knob in knobs])
    groups = buckets(cases)
    measured = [np.log([case.row.seconds for case in bucket.cases]) for bucket in groups]

    def residual(values: np.ndarray) -> np.ndarray:
        trial = put(tiers, knobs, np.exp(values))
        rows = [np.log(bucket.predict(trial)) - seen for bucket, seen in zip(groups, measured, strict=True)]
        return np.concatenate([*rows, PULL * (values - centre)])

    starts = [centre, np.log([get(tiers, knob) for knob in knobs])]
    searches = [
        least_squares(
            residual,
            np.clip(start, low + 1e-6, high - 1e-6),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=SOFT,
            max_nfev=200,
        )
        for start in starts
    ]
    return put(tiers, knobs, np.exp(min(searches, key=lambda search: search.cost).x))


def knobs_of(file: profile_file.TierFile) -> list[Knob]:
    """The constants of a file that are fitted: those of tables that rest on rows, where not zero or borrowed."""
    tables = [("", name, path) for name, path in file.paths.items()]
    tables += [(who, name, path) for who, own in file.implementations.items() for name, path in own.items()]
    tier = profile_file.make_tier(file)
    found: list[Knob] = []
    for who, name, path in tables:
        made = (tier.implementations[who] if who else tier.paths)[name]
        if path.rests_on.rows:
            left = {"fraction", *path.rests_on.borrowed} if name == "library" else set(path.rests_on.borrowed)
            found += [(file.name, who, name, key) for key in BOUNDS if getattr(made, key) and key not in left]
    return found


def stages(files: dict[str, profile_file.TierFile]) -> list[tuple[str, str, list[Knob]]]:
    """What is fitted, in order: (network label of the rows, label, constants)."""
    order = {"domain": 0, "torus": 1, "wide": 2, "rail": 3, "fabric": 4}
    found: list[tuple[str, str, list[Knob]]] = []
    for file in sorted(files.values(), key=lambda file: (order[file.tier], file.name)):
        knobs = knobs_of(file)
        for who in dict.fromkeys(["", *file.implementations]):
            own = [knob for knob in knobs if knob[1] == who]
            if own:
                found.append((file.name if not who else f"{who} {file.name}", who, own))
    return found


def belongs(case: CollectiveCase, stage: str) -> bool:
    return case.network == stage or sorted(case.network.split()) == sorted(stage.split())


def fit_all(
    cases: Sequence[CollectiveCase], tiers: Tiers, files: dict[str, profile_file.TierFile], only: str = ""
) -> Tiers:
    for stage, _, knobs in stages(files):
        rows = [case for case in cases if belongs(case, stage)]
        if rows and (not only or stage == only):
            tiers = fit(rows, tiers, knobs)
    return tiers


def summary(values: np.ndarray) -> str:
    if not len(values):
        return f"{'-':>5} {'':>7} {'':>7} {'':>7}"
    apes = np.abs(np.expm1(values))
    return f"{len(values):5d} {np.median(apes):7.1%} {np.mean(apes):7.1%} {np.mean(np.expm1(values)):+7.1%}"


def table(
    cases: Sequence[CollectiveCase], predict_errors: Callable[[str, list[CollectiveCase]], np.ndarray], title: str
) -> None:
    print(f"\n{title}\n{'network':<26} {'rows':>5} {'median':>7} {'mean':>7} {'bias':>7}   {'above 1 MiB':<28}")
    for network in sorted({case.network for case in cases}):
        rows = [case for case in cases if case.network == network]
        ordered = [case for bucket in buckets(rows) for case in bucket.cases]
        found = predict_errors(network, rows)
        if len(found) != len(ordered):
            print(f"{network:<26} not possible: one source only")
            continue
        large = np.array([case.row.message > LARGE for case in ordered])
        print(f"{network:<26} {summary(found)}   {summary(found[large])}")


def held_out(tiers: Tiers, files: Any, label: Callable[[CollectiveCase], Any]) -> Callable[..., np.ndarray]:
    """Errors on rows whose label was left out of the fit of their network."""

    def run(_: str, rows: list[CollectiveCase]) -> np.ndarray:
        labels = sorted({label(case) for case in rows})
        stage = next((stage for stage, _, _ in stages(files) if rows and belongs(rows[0], stage)), "")
        if len(labels) < 2 or not stage:
            return np.zeros(0)
        found: dict[int, float] = {}
        for left_out in labels:
            kept = [case for case in rows if label(case) != left_out]
            tested = [case for case in rows if label(case) == left_out]
            trial = fit_all(kept, tiers, files, only=stage)
            ordered = [case for bucket in buckets(tested) for case in bucket.cases]
            found |= {id(case): error for case, error in zip(ordered, errors(tested, trial), strict=True)}
        return np.array([found[id(case)] for bucket in buckets(rows) for case in bucket.cases])

    return run


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {text_of(item)}" for key, item in value.items()) + " }"
    return f"{value:g}" if isinstance(value, float) else str(value)


def write(
    name: str, tier: NetworkTier, file: profile_file.TierFile, cases: Sequence[CollectiveCase], tiers: Tiers
) -> None:
    """Put the fitted constants and their errors into the file, leaving all else."""
    path = PROFILES / f"{name}.toml"
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    knobs = knobs_of(file)
    lines = [
        f"{key} = {text_of(value)}"
        for key, value in source.items()
        if key not in ("sources", "paths", "implementations")
    ]
    for key, value in source["sources"].items():
        lines += ["", f"[sources.{key}]", *(f"{part} = {text_of(item)}" for part, item in value.items())]
    for who, prefix, paths in [("", "paths", source.get("paths", {}))] + [
        (who, f"implementations.{who}", own) for who, own in source.get("implementations", {}).items()
    ]:
        for algorithm, table_ in paths.items():
            fitted = [knob for knob in knobs if knob[1] == who and knob[2] == algorithm]
            made = (tier.implementations[who] if who else tier.paths)[algorithm]
            values = dict(table_)
            for knob in fitted:
                values[knob[3]] = constant_text(made, knob[3])
            if fitted:
                rows = [case for case in cases if uses(case, name, who, algorithm)]
                found = np.abs(np.expm1(errors(rows, tiers)))
                values["rests_on"] = dict(table_["rests_on"]) | {
                    "rows": max(len(rows), 1),
                    "median_ape": round(statistics.median(found), 3) if len(rows) else 0.0,
                    "mape": round(float(np.mean(found)), 3) if len(rows) else 0.0,
                }
            values = {key: values[key] for key in (*[key for key in values if key != "rests_on"], "rests_on")}
            lines += ["", f"[{prefix}.{algorithm}]", *(f"{key} = {text_of(value)}" for key, value in values.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def constant_text(path: Path, constant: str) -> Any:
    value = float(getattr(path, constant))
    if constant == "fraction":
        return math.floor(value * 1000) / 1000
    return render(value, "bytes/s" if constant == "copy" else "s", digits=3)


def uses(case: CollectiveCase, name: str, who: str, algorithm: str) -> bool:
    """Whether a row bears on an algorithm of a network."""
    usual = case.network == name if not who else sorted(case.network.split()) == sorted([who, name])
    if not usual or algorithm in ("one_shot", "two_shot", "library"):
        return usual
    if algorithm == "direct":
        return case.row.collective == "all_to_all"
    if algorithm == "in_network":
        return case.row.collective == "all_reduce" and case.options.in_network
    if algorithm == "all_reduce":
        return case.row.collective == "all_reduce"
    apart = "all_reduce" in profile_file.tier_files()[name].paths
    return case.row.collective != "all_to_all" and not (apart and case.row.collective == "all_reduce")


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit the network profiles from measured collectives.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write the profiles")
    parser.add_argument("--no-cross-validation", action="store_true", help="only fit")
    options = parser.parse_args()
    cases: list[CollectiveCase] = []
    for file in options.files:
        found, reasons = collective_cases(file)
        cases += found
        print(f"{file}: {len(found)} rows, {len(reasons)} skipped")
    files = profile_file.tier_files()
    start = {name: profile_file.load_tier(name) for name in files}
    table(cases, lambda _, rows: errors(rows, start), "As the files say")
    tiers = fit_all(cases, start, files)
    table(cases, lambda _, rows: errors(rows, tiers), "Refitted on all rows")
    for name, tier in tiers.items():
        for who, paths in [("", tier.paths), *tier.implementations.items()]:
            for algorithm, path in paths.items():
                rate = render(path.copy, "bytes/s") if path.copy else "-"
                times = " ".join(f"{render(float(getattr(path, key)), 's'):>8}" for key in ("launch", "hop", "ramp"))
                print(f"  {name:<16} {who:<12} {algorithm:<11} {times}  fraction {path.fraction:.3f}  copy {rate}")
    if options.write:
        for name, tier in tiers.items():
            if knobs_of(files[name]):
                write(name, tier, files[name], cases, tiers)
        print(f"\nWritten to {PROFILES.name}/.")
    if not options.no_cross_validation:
        sources = held_out(tiers, files, lambda case: case.row.source)
        table(cases, sources, "Leaving out one source at a time")
        sizes = held_out(tiers, files, lambda case: round(math.log2(case.row.message)) % 2)
        table(cases, sizes, "Leaving out every second size")


if __name__ == "__main__":
    main()
