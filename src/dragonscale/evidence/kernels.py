"""Scoring the expected times of single kernels against measurements: `dscale validate kernels
FILE`.

Files are those of NVIDIA's kernel database (aiconfigurator-core): one per kind, told by its
columns. What its rows leave unsaid: narrow matmuls include bringing bf16 activations to their
format; block-scaled ones were timed without graphs, so the host's time is a floor; prefill
attention includes writing the cache; decoding repeats one kernel, so a small cache is found in the
last-level cache; experts are timed on the busiest chip."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from dragonscale.evidence import collectives, rows
from dragonscale.evidence.described import meaning, words
from dragonscale.evidence.rows import Form, Row, Skip, number, skip_if, stated
from dragonscale.evidence.score import Scored, ScoreReport, report_of
from dragonscale.physics import kernels
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels.dtypes import format_name
from dragonscale.physics.kernels.matmul import dispatch_seconds
from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.kernels.routing import Routing
from dragonscale.physics.numbers import maximum

LARGE = 100e-6
"""Seconds above which a kernel counts as large: launches and floors no longer matter."""


@dataclass(frozen=True)
class KernelKey:
    """What rows that can be predicted in one call have in common."""

    kind: str
    chip: str
    dtype: str
    implementation: str = ""
    routing: Routing = ""
    gated: bool = True

    @property
    def group(self) -> str:
        """A label for tables."""
        return f"{self.kind} {self.dtype} {self.chip}"


@dataclass(frozen=True)
class KernelCase:
    """A measured kernel in the model's terms; `sizes` are in the order of its kind."""

    id: str
    source: str
    key: KernelKey
    sizes: tuple[float, ...]
    seconds: float


def read_case(kind: str, row: Row, _place: int = 0) -> KernelCase:
    """A row of a file of one kind."""
    table = words("kernels")[kind]
    system, written = row["system"], row[table["dtype"]]
    unknown = f"unknown system {system[:40]!r}" if system else "system not stated"
    chip = rows.readable(load_chip, "" if system.endswith(".toml") else system, unknown).name
    unknown = f"unknown number format {written[:40]!r}" if written else "number format not stated"
    dtype = rows.readable(format_name, written, unknown)
    sizes = tuple(_whole(row, column) for column in table["sizes"])
    latency = stated(row["latency_us"], "latency not a positive number")
    source = row.get("kernel") or row.get("kernel_source") or "gemm"
    labels = [kind, system, source, written, *(row[column] for column in table["sizes"])]
    if kind == "moe":
        key = _experts(row, chip, dtype, sizes)
        labels.append(row["distribution"])
    else:
        key = KernelKey("decode" if kind == "prefill" and "decode" in source.lower() else kind, chip, dtype)
    return KernelCase("/".join(labels), source, key, sizes, latency / 1e6)


def _whole(row: Row, column: str) -> float:
    reason = f"{column} not a positive whole number"
    value = stated(row[column], reason)
    skip_if(value != int(value) or value > 1e9, reason)
    return value


def _experts(row: Row, chip: str, dtype: str, sizes: tuple[float, ...]) -> KernelKey:
    _, hidden, inner, picks, experts, chips, _ = sizes
    skip_if(picks > experts or chips > experts, "more experts per token, or chips, than experts")
    known = words("experts")
    implementation = meaning(known["implementations"], row["kernel_source"].lower().replace("_", ""))
    if implementation not in kernels.kernel_profile_for(chip).grouped.of(dtype):
        raise Skip(f"no model of {implementation or 'unnamed'} experts in {dtype} on {chip}")
    gated = [hidden, inner, experts] not in known["ungated"]
    return KernelKey("moe", chip, dtype, implementation, _routing(row["distribution"]), gated)


def _routing(text: str) -> Routing:
    name = text.strip().lower()
    if name in ("balanced", "random"):
        return name
    exponent = number(name.removeprefix("power_law_"))
    if name.startswith("power_law_") and exponent is not None and exponent < 2:
        return exponent
    raise Skip(f"unknown distribution {text[:40]!r}" if text else "distribution not stated")


def buckets(cases: Sequence[KernelCase]) -> dict[KernelKey, list[int]]:
    """Positions of the cases that can be predicted together."""
    found: dict[KernelKey, list[int]] = {}
    for place, case in enumerate(cases):
        found.setdefault(case.key, []).append(place)
    return found


def predict_alike(key: KernelKey, sizes: Sequence[Any], profile: KernelProfile) -> Any:
    """Seconds that the model expects for cases of one key; `sizes` are arrays, one for each size of
    the kind."""
    common: dict[str, Any] = {"dtype": key.dtype, "profile": profile}
    if key.kind == "gemm":
        m, n, k = sizes
        taken = kernels.matmul_seconds(m, n, k, **common) + kernels.quantise_seconds(m, k, **common)
        return maximum(taken, dispatch_seconds(m, **common))
    if key.kind == "prefill":
        batch, tokens, *heads = sizes
        return kernels.attention_seconds(batch, tokens, tokens, *heads, **common, write_cache=True)
    if key.kind == "decode":
        return kernels.decode_attention_seconds(*sizes, **common, warm=True)
    *experts, chips, tensor = sizes
    common |= {"routing": key.routing, "gated": key.gated, "implementation": key.implementation}
    return kernels.grouped_matmul_seconds(*experts, chips=chips, tensor=tensor, **common)


def sizes_of(cases: Sequence[KernelCase]) -> list[numpy.ndarray]:
    """The sizes of cases of one key as arrays."""
    return [numpy.array(column) for column in zip(*(case.sizes for case in cases), strict=True)]


def predict(cases: Sequence[KernelCase]) -> list[float]:
    """Seconds that the model expects for each case."""
    found = [0.0] * len(cases)
    for key, places in buckets(cases).items():
        expected = predict_alike(
            key, sizes_of([cases[place] for place in places]), kernels.kernel_profile_for(key.chip)
        )
        for place, value in zip(places, expected, strict=True):
            found[place] = float(value)
    return found


def forms() -> dict[str, Form[KernelCase]]:
    """The kinds of files, each with what reads its rows."""
    return {
        kind: Form(table["columns"], functools.partial(read_case, kind)) for kind, table in words("kernels").items()
    }


def read_cases(path: str | Path) -> tuple[list[KernelCase], list[str]]:
    """The rows of a file that can be predicted, and the reason for each one that cannot."""
    return rows.read_measured(path, "kernels", [*forms().values()])


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured kernels; one of single-node collectives goes to their
    own model."""
    if set(words("collectives")["kernels"]) <= set(rows.read_table(path)[0]):
        return collectives.validate(path)
    cases, reasons = read_cases(path)
    scored = [
        Scored(case.id, case.source, case.seconds, expected, case.key.group, case.seconds > LARGE)
        for (case, _), expected in rows.attempt(
            zip(cases, predict(cases), strict=True), lambda one: rows.sound(one[1]), reasons
        )
    ]
    return report_of(scored, reasons, "kernel")
