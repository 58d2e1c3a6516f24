"""Typed rows: what a published table says, in explicit columns, predicts the same without any remark."""

import csv
import gzip
import importlib
import io
import json
import random

import pytest

from dragonscale.evidence import collectives, inference, serving, training
from dragonscale.evidence.collectives import CollectiveRow
from dragonscale.evidence.inference_rows import InferenceRow
from dragonscale.evidence.rows import read_cases, read_table, typed
from dragonscale.evidence.serving_rows import ServingRow
from dragonscale.evidence.training_rows import FORMS, TrainingRow
from tools.convert_measured import KINDS, convert
from tools.refit import MEASURED

from .measured import DATA, by_id, rows_of, write_rows

MODULES = {"training": training, "inference": inference, "serving": serving, "collectives": collectives}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "serving")) for kind in MODULES]
)
def test_the_same_predictions_from_explicit_columns(kind, tmp_path):
    text, left = convert(kind, [DATA / f"{kind}.csv"])
    columns = next(csv.reader(io.StringIO(text)))
    assert not {"notes", "interconnect", "recompute_note"} & set(columns)
    file = tmp_path / "typed.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    validate = MODULES[kind].validate
    published, again = validate(DATA / f"{kind}.csv"), validate(file)
    assert again.scored == published.scored
    assert again.rows == published.rows - left.total()
    apart = {name: part for name, part in again.as_json().items() if name not in ("rows", "skipped")}
    assert apart == {name: published.as_json()[name] for name in apart}


@pytest.mark.parametrize(
    ("file", "kind", "rows"),
    [
        ("training", "training", 373),
        ("training_single_node", "training", 749),
        ("inference", "inference", 753),
        ("serving", "serving", 1629),
        ("collectives", "collectives", 254),
    ],
)
def test_committed_rows_are_typed(file, kind, rows):
    records = {"training": TrainingRow, "inference": InferenceRow, "serving": ServingRow, "collectives": CollectiveRow}
    _, table = read_table(MEASURED / f"{file}.csv.gz")
    read = typed(records[kind], ()).read
    found = [read(row, place) for place, row in enumerate(table, start=2)]
    assert len({record.id for record in found}) == len(found) == rows
    assert all(record.source for record in found)
    assert KINDS[kind][-1].columns  # the form that tells such a file


def test_marks_are_kept(tmp_path):
    unknown = by_id("training")["TR-DGXC-004"]
    text, _ = convert("training", [write_rows(tmp_path / "one.csv", [unknown])])
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["inferred"] == "recompute"
    assert row["stack"] == "megatron-core"


def test_a_typed_row_that_is_not_one_is_counted(tmp_path):
    text, _ = convert("training", [DATA / "training.csv"])
    rows = list(csv.DictReader(io.StringIO(text)))
    bad = [rows[0] | {"layers": "many"}, rows[0] | {"stack": "none"}, rows[0] | {"plan": "tensor=3"}, rows[0]]
    found = training.validate(write_rows(tmp_path / "bad.csv", bad)).as_json()
    assert found["scored"] == 1
    assert sorted(found["skipped"]) == sorted(
        [
            "not a typed row: Expected `int`, got `str` - at `$.layers`",
            next(reason for reason in found["skipped"] if "software stack" in reason),
            "parallel sizes do not multiply to the number of chips",
        ]
    )
    assert [form.read.__name__ for form in FORMS] == ["published_run", "read"]


JUNK = ["", "nan", "1e400", "-1", "0", "x" * 5000, "∞", "3.7", "1,024", "[]", "2x2x2x2", "unknown", "true"]
READ = {"training": training.run_of, "inference": inference.case_of, "serving": serving.run_of}


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("form", ["published", "typed"])
def test_garbage_in_cells_never_breaks(kind, form, tmp_path):
    """Any cell may hold anything: the row becomes a run, or a reason."""
    rows = rows_of(kind)
    if form == "typed":
        rows = list(csv.DictReader(io.StringIO(convert(kind, [DATA / f"{kind}.csv"])[0])))
    chance = random.Random(7)
    mixed = [{**row, chance.choice(list(row)): chance.choice(JUNK)} for row in rows for _ in range(20)]
    found, reasons = read_cases(write_rows(tmp_path / "junk.csv", mixed), kind, KINDS[kind], READ[kind])
    assert len(found) + len(reasons) == len(mixed)
    assert len(found) > len(mixed) / 4
    assert all("\n" not in reason for reason in reasons)


ABSURD = ["", "x", "0", "1e-320", "inf", "1e300", "9" * 400]
COLUMNS = {
    "training": ("training.csv", ("layers", "global_batch", "step_s")),
    "collectives": ("collectives.csv", ("bytes", "n_ranks", "time_us")),
    "kernels": ("../../kernels/sample_gemm.csv", ("m", "latency_us")),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_an_absurd_cell_costs_one_row(kind, tmp_path):
    """Every row is scored or has its reason, no number of the report is infinite, and the rest stays."""
    name, columns = COLUMNS[kind]
    with (DATA / name).open() as file:
        good, *_ = csv.DictReader(file)
    bad = [{**good, column: value} for column in columns for value in ABSURD]
    bad += [{**good, "layers": "1e8"}] if kind == "training" else []  # a list of so many would never end
    module = importlib.import_module(f"dragonscale.evidence.{kind}")
    found = module.validate(write_rows(tmp_path / "absurd.csv", [*bad, good]))
    assert found.rows == len(bad) + 1
    assert good.get("id", found.scored[-1].id) == found.scored[-1].id
    json.dumps(found.as_json(), allow_nan=False)


def test_a_serving_row_without_lengths_is_left_out(tmp_path):
    good = rows_of("serving")[0]
    bad = [{**good, column: value} for column in ("isl", "osl", "concurrency") for value in (*ABSURD, "1e17")]
    runs, reasons = serving.served_runs(write_rows(tmp_path / "rows.csv", [good, *bad]))
    assert len(runs) + len(reasons) == len(bad) + 1
    assert all(1 <= run.row.input <= 10**7 and run.row.output and run.row.clients for run in runs)
    assert sum("is not stated, or more than any server takes" in reason for reason in reasons) >= 2 * len(ABSURD)
