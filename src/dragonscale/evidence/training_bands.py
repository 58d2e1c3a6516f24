"""Bands of expected step times from how far measured runs were from them, and whether they hold for sources left out.

Quantiles of log(measured / expected) for every kind of run; a kind with few runs leans on the wider kind it belongs to,
as if that one lent it `LENT` runs. Sources are left out whole, because runs of one source share what the model gets
wrong."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.training.bands import NOMINAL, RunKind, band_of

LENT = 16.0
FEWEST_SOURCES = 5
"""Sources that a file must have for bands without one of them to say anything."""
TAILS = (0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03)
"""Parts of the runs to leave outside on each side. Sources that are left out differ more than those that are kept, so
the tails are narrower than (1 - NOMINAL) / 2."""

Kinds = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Residual:
    """A run: its kind, its source, and log(measured / expected)."""

    kind: RunKind
    source: str
    log: float


def document(source: str) -> str:
    """The document of a source, without the table or release in it.

    >>> document("mosaicml/llm-foundry scripts/train/benchmarking/README.md [H100 80GB BF16]")
    'mosaicml/llm-foundry'
    >>> document("NVIDIA/dgxc-benchmarking v25.05 grok1 README"), document("Narayanan et al. SC21 Table 1")
    ('NVIDIA/dgxc-benchmarking', 'Narayanan et al. SC21 Table 1')
    """
    repository = re.match(r"[\w.-]+/[\w.-]+(?= )", source)
    return repository[0] if repository else source.partition(" [")[0]


def kinds_of(residuals: Sequence[Residual], tail: float) -> dict[str, dict[str, float]]:
    """The table of `errors.toml`: the runs of every kind, and the band that leaves `tail` of them out on each side."""
    logs: dict[str, list[float]] = {}
    for one in residuals:
        for name in one.kind.names:
            logs.setdefault(name, []).append(one.log)
    found: dict[str, dict[str, float]] = {}
    for name in sorted(logs, key=lambda name: (name != "all", len(name.split()), name)):
        low, high = (quantile(logs[name], part) for part in (tail, 1 - tail))
        wider = found.get(_wider(name))
        if wider:
            own = len(logs[name]) / (len(logs[name]) + LENT)
            low, high = (
                own * one + (1 - own) * math.log1p(other) for one, other in ((low, wider["low"]), (high, wider["high"]))
            )
        found[name] = {"runs": len(logs[name]), "low": math.expm1(low), "high": math.expm1(high)}
    return found


def _wider(name: str) -> str:
    model, *rest = name.split()
    if not rest:
        return "" if name == "all" else "all"
    return f"{model} {rest[0]}" if len(rest) == 2 and rest[0] != "*" else model


def quantile(values: Iterable[float], part: float) -> float:
    """The value below which `part` of them lie, between neighbours in proportion."""
    ordered = sorted(values)
    place = part * (len(ordered) + 1) - 1
    lower = min(max(math.floor(place), 0), len(ordered) - 1)
    upper = min(lower + 1, len(ordered) - 1)
    share = min(max(place - lower, 0.0), 1.0)
    return ordered[lower] * (1 - share) + ordered[upper] * share


def inside(one: Residual, kinds: Kinds | None = None) -> bool:
    """Whether a run lies in the band of its kind."""
    band = band_of(one.kind, kinds)
    return math.log1p(band.low) <= one.log <= math.log1p(band.high)


def left_out(residuals: Sequence[Residual], tail: float) -> list[bool]:
    """Whether each run lies in the band of its kind as the other sources have it."""
    documents = {document(one.source) for one in residuals}
    without = {name: kinds_of([one for one in residuals if document(one.source) != name], tail) for name in documents}
    return [inside(one, without[document(one.source)]) for one in residuals]


def best_tail(residuals: Sequence[Residual]) -> float:
    """The widest tails with which the bands still hold for sources left out."""
    holding = (tail for tail in TAILS if sum(left_out(residuals, tail)) >= NOMINAL * len(residuals))
    return next(holding, TAILS[-1])


def coverage(residuals: Sequence[Residual], tail: float) -> dict[str, Any]:
    """What `dscale validate training` says of bands: how many runs lie in them, with each source left out of its own
    bands where the file has several, and by the bands that answers carry."""
    shipped = [inside(one) for one in residuals]
    several = len({document(one.source) for one in residuals}) >= FEWEST_SOURCES
    outside = left_out(residuals, tail) if several else shipped
    return covered([one.kind.names[1] for one in residuals], shipped, outside) | {"sources_left_out": several}


def covered(kinds: Sequence[str], shipped: Sequence[bool], outside: Sequence[bool]) -> dict[str, Any]:
    """The share of runs in the bands that answers carry (`shipped`) and in those found without them (`outside`), also
    by kind."""
    by_kind: dict[str, list[bool]] = {}
    for kind, held in zip(kinds, outside, strict=True):
        by_kind.setdefault(kind, []).append(held)
    return {
        "nominal": NOMINAL,
        "covered": _share(outside),
        "shipped": _share(shipped),
        "by_kind": {name: {"rows": len(held), "covered": _share(held)} for name, held in sorted(by_kind.items())},
    }


def _share(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None
