"""Expected against published speeds of engines for one's own machine: `llama-bench`, `mlx_lm.benchmark` and the like.

A row is a chip, a model, a format and a test: tokens a second of a prompt of some length (`pp`), or of the tokens
generated after it one by one (`tg`), for one user. Rows marked `fit` were used for the constants of the kernels, the
others were not: they are what errors are stated of.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.kernels.profile_file import backend
from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.checkpoint import multiplied_in, wide_format
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.serving.space.bands import MIN_RUNS

TAIL = 0.1
"""The part of the runs outside a band, on each side."""


@dataclass(frozen=True)
class LocalSpeed:
    """A published speed, as the columns of the table have it; `settings` are of the engine (`kernels.flash=false`)."""

    engine: str
    release: str
    chip: str
    gpus: int
    model: str
    format: str
    test: str
    tokens: int
    depth: int
    settings: str
    tokens_per_s: float
    use: str
    source: str

    @property
    def kind(self) -> str:
        """The kind of run that errors are stated of, as `bands.py` names it."""
        chip, moe = load_chip(self.chip), any("e" in part.dims for part in load_model(self.model).program().sections)
        written_in = backend(chip, load_engine(self.engine).kernels.library)
        return f"{'moe' if moe else 'dense'} {written_in} {self.engine}"


def read_speeds(path: Path) -> list[LocalSpeed]:
    """The rows of a table of speeds."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    read: list[LocalSpeed] = []
    for row in rows:
        counts = {name: int(row[name]) for name in ("gpus", "tokens", "depth")}
        read.append(LocalSpeed(**{**row, **counts, "tokens_per_s": float(row["tokens_per_s"])}))
    return read


def expected_speed(row: LocalSpeed) -> float:
    """Tokens per second that the planner expects of a row."""
    deployment = _deployment(row)
    if row.test == "tg":
        keys = row.depth + row.tokens / 2  # the mean over the tokens generated
        return 1 / first_number(iteration_cost(deployment, decode(1.0, keys)).expected)
    part, seconds, done = deployment.engine.scheduling.max_tokens, 0.0, 0
    while done < row.tokens:
        new = min(part, row.tokens - done)
        seconds += first_number(iteration_cost(deployment, prefill(new, past=done)).expected)
        done += new
    return row.tokens / seconds


def _deployment(row: LocalSpeed) -> Deployment:
    chip, model = load_chip(row.chip), load_model(row.model)
    engine = load_engine(",".join(filter(None, (row.engine, row.settings))))
    wide = wide_format(row.engine, chip, model)
    weights, compute = row.format, row.format
    if row.format not in ("bf16", "fp16"):
        pair = multiplied_in(row.engine, chip, model, row.format)
        assert pair is not None, f"{row.engine} has no {row.format} on {row.chip}"
        weights, compute = pair
    # llama.cpp gives each GPU a part of the layers: one token goes through them all
    plan = ServingPlan(pipe=row.gpus, weights=weights, compute=compute, kv=wide)
    return Deployment(model, parse_slice(f"{row.chip}:{row.gpus}"), plan, engine)


def errors(rows: Iterable[LocalSpeed]) -> list[float]:
    """The expected over the measured speed, less one, of each row."""
    return [expected_speed(row) / row.tokens_per_s - 1 for row in rows]


def band(rows: Iterable[LocalSpeed], of_rates: bool = False) -> dict[str, float]:
    """Between which multiples of the expected time (or rate) four of five rows lay, less one, and the median error."""
    factors = 1 + numpy.array(errors(rows))  # measured over expected seconds
    if of_rates:
        factors = 1 / factors
    low, high = numpy.quantile(factors - 1, (TAIL, 1 - TAIL))
    median = numpy.median(numpy.abs(factors - 1))
    return {"runs": len(factors), "low": float(low), "high": float(high), "median": float(median)}


MEASURES = {"tpot": ("tg", False), "step": ("tg", False), "tokens": ("tg", True), "ttft": ("pp", False)}
"""The test that tells the error of a measure, and whether the measure is a rate."""


def error_tables(rows: Iterable[LocalSpeed]) -> dict[str, dict[str, dict[str, float]]]:
    """The bands of each measure by kind of run, over the rows that were not used for the constants."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    held_out = [row for row in rows if row.use == "check"]
    for measure, (test, of_rates) in MEASURES.items():
        kinds: dict[str, list[LocalSpeed]] = {}
        for row in held_out:
            model, _, engine = row.kind.split(" ", 2)
            for kind in (row.kind, f"{model} * {engine}"):
                if row.test == test:
                    kinds.setdefault(kind, []).append(row)
        tables[measure] = {kind: band(kinds[kind], of_rates) for kind in sorted(kinds) if len(kinds[kind]) >= MIN_RUNS}
    return tables
