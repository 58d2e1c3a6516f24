"""The recommended plan beside the best measured one."""

import json
from dataclasses import replace

import msgspec
import pytest

from dragonscale.evidence.training import jobs_of, predict, searched, training_runs
from dragonscale.evidence.training_rows import RECOMPUTE
from dragonscale.faces.cli import main
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space

from .measured import DATA, by_id, write_rows


@pytest.fixture(scope="module")
def run():
    runs = training_runs(DATA / "training.csv")[0]
    return min(runs, key=lambda run: (run.row.experts > 1, run.job.slice.chips))


def test_runs_of_one_job(run):
    slower = replace(run, row=replace_row(run, 2.0), plan=replace(run.plan, microbatch=1))
    other = replace(run, job=replace(run.job, batch=2 * run.job.batch))
    assert [len(group) for group in jobs_of([run, slower, other])] == [2, 1]


def test_ratio_to_the_best_measured(run):
    slower = replace(run, row=replace_row(run, 2.0))
    assert run.remat_known
    space = Space(words=replace(Space().words, dtype=run.plan.dtype), remat=(run.plan.remat,))
    best = search(run.job, space).best[0]
    seen: list[tuple[int, int]] = []
    found = searched([slower, run], progress=lambda done, total: seen.append((done, total)))
    assert (found["jobs"], found["without_plan"]) == (1, 0)
    assert found["median_ratio"] == found["p10_ratio"] == pytest.approx(best.seconds / run.row.step_s)
    assert found["simple"] == (best.plan.context == 1)
    assert found["rows"][0]["plan"] == str(best.plan)
    assert seen == [(0, 1)]


def test_what_was_recomputed_is_searched_where_the_source_says_so(run):
    """Whole blocks, though none would fit; and anything, where it does not say."""
    stated = replace(run, plan=replace(run.plan, remat="block"))
    assert "remat=block" in searched([stated])["rows"][0]["plan"]
    unsaid = replace(stated, row=msgspec.structs.replace(run.row, inferred=RECOMPUTE))
    assert not unsaid.remat_known
    row = searched([unsaid])["rows"][0]
    assert "remat=block" not in row["plan"]
    assert row["gain"] == pytest.approx(row["expected_s"] / float(predict(unsaid)[1].seconds))


def replace_row(run, times: float):
    return msgspec.structs.replace(run.row, step_s=run.row.step_s * times)


def test_the_command(tmp_path, capsys):
    file = write_rows(tmp_path / "one.csv", [by_id("training")["TR-DGXC-004"] | {"source": "my cluster"}])
    asked = ["validate", "training", str(file), "--stack", "megatron-core"]
    assert main([*asked, "--search", "--limit", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["searched"]) >= {"jobs", "median_ratio", "p10_ratio", "simple"}
    assert found["band"]["nominal"] == 0.8
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "lie in their band of 80%" in shown
    assert "1 of the 1 runs" in shown
    assert main(asked[:3]) == 0
    assert "name one in a stack column or by --stack" in " ".join(capsys.readouterr().out.split())
