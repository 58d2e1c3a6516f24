"""The table of errors in docs/validation.md and the line of the front pages are of the constants as they ship."""

import csv
import gzip
from pathlib import Path

import pytest

from dragonscale.evidence.score import Scored
from tools import list_accuracy
from tools.list_accuracy import BEGIN, END, FRONT_PAGES, MEASURED, PAGE, ErrorOf, Line


def test_the_pages_have_the_errors_that_are_kept() -> None:
    _, lines = list_accuracy.kept()
    page = PAGE.read_text(encoding="utf-8")
    assert list_accuracy.with_table(page, lines) == page, "run `python -m tools.list_accuracy --table`"
    for path in FRONT_PAGES:
        front = path.read_text(encoding="utf-8")
        assert list_accuracy.with_sentence(front, lines) == front, "run `python -m tools.list_accuracy --table`"


def test_the_errors_are_of_the_constants_as_they_are() -> None:
    constants, _ = list_accuracy.kept()
    assert constants == list_accuracy.fingerprint(), (
        "constants have changed: run `python -m tools.list_accuracy` (about ten minutes of CPU)"
    )


def test_errors_are_apart_by_what_users_know() -> None:
    _, lines = list_accuracy.kept()
    by_name = {line.what: line for line in lines}
    for name in ("training step, dense models", "training step, MoE", "time per output token"):
        line = by_name[name]
        assert line.as_used is not None, name
        assert line.known is not None, name
        assert line.unseen is not None, name
        assert line.as_used.mean > line.known.mean, f"{name}: knowing the software should help"


def test_runs_are_counted_once() -> None:
    scores = list_accuracy.training_scores(MEASURED / "unseen" / "training.csv.gz", "auto")
    groups = [scores.dense, scores.moe, scores.inferred]
    ids = [row.id for group in groups for row in group]
    assert len(ids) == len(set(ids)) == 45
    assert all(groups[:2])
    unseen = {line.what: line.unseen for line in list_accuracy.kept()[1]}
    stated = unseen["training step, dense models"]
    assert stated is not None
    assert stated.runs == len(scores.dense)


def test_a_table_is_put_between_its_marks() -> None:
    lines = [Line("a step", "a.md", None, ErrorOf(2, 0.05, 0.1), ErrorOf(1, 0.2, 0.2))]
    readme = list_accuracy.with_table(f"before\n{BEGIN}old\n{END}\nafter\n", lines)
    assert readme.startswith(f"before\n{BEGIN}| error: median, mean (runs) |")
    assert readme.endswith(f"| [a step](a.md) | – | 5.0%, 10.0% (2) | 20.0%, 20.0% (1) |\n{END}\nafter\n")
    assert "old" not in readme


@pytest.mark.parametrize(("predicted", "mean"), [((1.1, 0.8), 0.15), ((1.0, 1.0), 0.0)])
def test_an_error_is_a_median_and_a_mean(predicted: tuple[float, float], mean: float) -> None:
    rows = [Scored(str(value), "s", 1.0, value) for value in predicted]
    error = list_accuracy.error_of(rows)
    assert error is not None
    assert (error.runs, round(error.mean, 9)) == (2, mean)
    assert list_accuracy.error_of([]) is None


@pytest.mark.parametrize("kind", ["training", "finetune", "inference", "serving"])
def test_no_unseen_run_is_among_those_that_fits_read(kind: str) -> None:
    """Fits read the files beside the folder of unseen runs."""

    def ids(path: Path) -> set[str]:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return {row["id"] for row in csv.DictReader(file)}

    name = f"{kind}.csv.gz"
    unseen = ids(MEASURED / "unseen" / name)
    assert unseen
    assert not unseen & ids(MEASURED / name)
