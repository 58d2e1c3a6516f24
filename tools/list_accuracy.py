"""The errors of docs/validation.md: as users get them, with the software known, and on runs that no constant has seen.

    python -m tools.list_accuracy            # predicts everything anew (about ten minutes of CPU), writes the table
    python -m tools.list_accuracy --table    # writes the table from the errors that are kept

Errors are kept in docs/data/accuracy.json with a fingerprint of the constants that they were computed with. A test
compares the pages with that file, and the fingerprint with the constants as they are.

*As you get it* is an answer to somebody who names a model, chips and a workload: the stack or engine that `auto` takes,
as it is shipped. *Software known* takes the stack or the launch flags that the source of a row states. *Unseen* are the
runs of docs/data/measured/unseen, as you get them: they were read after the constants were settled, and no fit uses
them. Training runs with an input that nobody states and that was inferred are counted apart.
"""

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dragonscale
from dragonscale.evidence import finetune, inference, serving, training
from dragonscale.evidence.score import Scored, statistics_of

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "data" / "measured"
KEPT = ROOT / "docs" / "data" / "accuracy.json"
PAGE = ROOT / "docs" / "validation.md"
FRONT_PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
"""Pages that state the error in a line."""
BEGIN, END = "<!-- accuracy -->\n", "<!-- /accuracy -->"
BEGIN_LINE, END_LINE = "<!-- error -->\n", "<!-- /error -->"
CONSTANTS = (
    "training/plan/stacks.toml",
    "training/plan/auto.toml",
    "serving/engine/engines.toml",
    "serving/engine/auto.toml",
)
"""Files whose constants and choices the errors depend on, below the package."""
TRAINING_PAGE, SERVING_PAGE = "validation-training.md", "validation-serving.md"
INFERENCE_PAGE = "validation-inference.md"


@dataclass(frozen=True)
class ErrorOf:
    """The error of some predictions, as fractions."""

    runs: int
    median: float
    mean: float


@dataclass(frozen=True)
class Line:
    """A row of the table; None where nothing of the kind was measured."""

    what: str
    page: str
    as_used: ErrorOf | None
    known: ErrorOf | None
    unseen: ErrorOf | None


def error_of(rows: Sequence[Scored]) -> ErrorOf | None:
    """The error of scored rows."""
    return error_of_statistics(statistics_of(rows))


def error_of_statistics(statistics: dict[str, Any]) -> ErrorOf | None:
    """The error in a record of statistics."""
    if not statistics["rows"]:
        return None
    return ErrorOf(statistics["rows"], statistics["median_ape"], statistics["mape"])


@dataclass(frozen=True)
class TrainingScores:
    """Scored steps of training, by what the model is and whether all inputs are stated."""

    dense: list[Scored]
    moe: list[Scored]
    inferred: list[Scored]


def training_scores(path: Path, stack: str = "") -> TrainingScores:
    """Every run of a file; those with an inferred input apart from the others."""
    runs, _ = training.training_runs(path, stack)
    inferred = {run.row.id for run in runs if run.row.inferred}
    moe = {run.row.id for run in runs if run.row.experts}
    scored = training.validate(path, stack).scored
    stated = [row for row in scored if row.id not in inferred]
    return TrainingScores(
        dense=[row for row in stated if row.id not in moe],
        moe=[row for row in stated if row.id in moe],
        inferred=[row for row in scored if row.id in inferred],
    )


@dataclass(frozen=True)
class ServingErrors:
    """Errors of the time per output token and of the time to the first token."""

    tpot: ErrorOf | None
    ttft: ErrorOf | None


def serving_errors(path: Path, engine: str = "") -> ServingErrors:
    """Runs whose launch is stated, as they were launched; with an engine every run, as it is shipped."""
    report = serving.validate(path, engine)
    tpot, ttft = report.apart["tpot"], report.apart["ttft"]
    if not engine:
        tpot = report.apart["by_recipe"]["stated"]
        ttft = tpot["ttft"]
    return ServingErrors(error_of_statistics(tpot), error_of_statistics(ttft))


def compute() -> list[Line]:
    """Every line, predicted anew."""
    unseen = MEASURED / "unseen"
    with ProcessPoolExecutor() as pool:
        served_auto = pool.submit(serving_errors, MEASURED / "serving.csv.gz", "auto")
        served_known = pool.submit(serving_errors, MEASURED / "serving.csv.gz")
        served_unseen = pool.submit(serving_errors, unseen / "serving.csv.gz", "auto")
        trained_auto = pool.submit(training_scores, MEASURED / "training.csv.gz", "auto")
        trained_known = pool.submit(training_scores, MEASURED / "training.csv.gz")
        trained_unseen = pool.submit(training_scores, unseen / "training.csv.gz", "auto")
        tuned = pool.submit(finetune.validate, MEASURED / "finetune.csv.gz")
        tuned_unseen = pool.submit(finetune.validate, unseen / "finetune.csv.gz")
        rates = pool.submit(inference.validate, MEASURED / "inference.csv.gz")
        rates_unseen = pool.submit(inference.validate, unseen / "inference.csv.gz")
    auto, known, later = trained_auto.result(), trained_known.result(), trained_unseen.result()
    steps = [
        ("training step, dense models", auto.dense, known.dense, later.dense),
        ("training step, MoE", auto.moe, known.moe, later.moe),
        ("training step, recompute inferred", auto.inferred, known.inferred, later.inferred),
        ("fine-tuning step", [], tuned.result().scored, tuned_unseen.result().scored),
    ]
    served, launched, served_later = served_auto.result(), served_known.result(), served_unseen.result()
    lines = [Line(what, TRAINING_PAGE, *map(error_of, columns)) for what, *columns in steps]
    lines.append(Line("time per output token", SERVING_PAGE, served.tpot, launched.tpot, served_later.tpot))
    lines.append(Line("time to first token", SERVING_PAGE, served.ttft, launched.ttft, served_later.ttft))
    throughput = [error_of(report.result().scored) for report in (rates, rates_unseen)]
    lines.append(Line("inference throughput and latency", INFERENCE_PAGE, None, *throughput))
    return lines


def fingerprint() -> str:
    """Return a hash of the constants as they are; comments may change without a new table."""
    package = Path(dragonscale.__file__).parent
    tables = [tomllib.loads((package / name).read_text(encoding="utf-8")) for name in CONSTANTS]
    return hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()[:16]


def keep(lines: Sequence[Line]) -> None:
    """Write the errors and what they were computed with."""
    record = {"constants": fingerprint(), "lines": [asdict(line) for line in lines]}
    KEPT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def kept() -> tuple[str, list[Line]]:
    """The fingerprint of the constants, and the lines."""
    record = json.loads(KEPT.read_text(encoding="utf-8"))
    lines = [
        Line(
            row["what"],
            row["page"],
            *(ErrorOf(**row[name]) if row[name] else None for name in ("as_used", "known", "unseen")),
        )
        for row in record["lines"]
    ]
    return record["constants"], lines


def cell(error: ErrorOf | None) -> str:
    """Median, mean and number of runs.

    >>> cell(ErrorOf(296, 0.0412, 0.0609))
    '4.1%, 6.1% (296)'
    """
    return f"{error.median:.1%}, {error.mean:.1%} ({error.runs:,})" if error else "–"


def table(lines: Sequence[Line]) -> str:
    """The table in Markdown."""
    rows = ["| error: median, mean (runs) | as you get it | software known | unseen runs |", "|---|---|---|---|"]
    rows += [
        f"| [{line.what}]({line.page}) | {cell(line.as_used)} | {cell(line.known)} | {cell(line.unseen)} |"
        for line in lines
    ]
    return "\n".join(rows) + "\n"


def sentence(lines: Sequence[Line]) -> str:
    """The error in a line: a training step of a dense model and the time per output token."""
    by_name = {line.what: line for line in lines}
    step, token = by_name["training step, dense models"], by_name["time per output token"]
    assert step.as_used
    assert step.unseen
    assert token.as_used
    assert token.unseen
    return (
        f"Median error with no software named: {step.as_used.median:.0%} of a training step (dense models), "
        f"{token.as_used.median:.0%} of a time per output token; on runs read after every constant was settled, "
        f"{step.unseen.median:.0%} and {token.unseen.median:.0%}.\n"
    )


def with_table(page: str, lines: Sequence[Line]) -> str:
    """The page with the table put in."""
    return between(page, BEGIN, END, table(lines))


def with_sentence(page: str, lines: Sequence[Line]) -> str:
    """The page with the line put in."""
    return between(page, BEGIN_LINE, END_LINE, sentence(lines))


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with other text between its marks."""
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def main() -> None:
    """Compute, keep and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only write the table from the errors that are kept")
    if not parser.parse_args().table:
        keep(compute())
    _, lines = kept()
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
    for path in FRONT_PAGES:
        path.write_text(with_sentence(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    sys.stdout.write(table(lines))


if __name__ == "__main__":
    main()
