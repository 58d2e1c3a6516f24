"""`dscale compare` and `ds.compare`: sides are what `train` and `serve` say, and their differences add up."""

import json
import re

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.faces.cli import main

JOB = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 8192}


@pytest.fixture(scope="module")
def report():
    return ds.compare("fsdp8", "tp8=9s", "best", **JOB)


@pytest.fixture(scope="module")
def searched():
    return ds.train(**JOB, top=3)


def test_the_sides_are_those_of_train(report, searched):
    first, last = ds.train(plan="fsdp8", alone=True, **JOB), searched
    assert [side.key for side in report.sides] == ["A", "B", "C"]
    assert report.sides[0].figure("step").value == first.plans[0].step_s
    assert report.sides[0].hbm_bytes == first.plans[0].hbm_bytes
    assert report.sides[2].figure("step").value == last.plans[0].step_s
    assert report.sides[1].measured_s == 9.0
    assert "Measured 9s" in report.sides[1].measured


def test_a_model_before_the_plans_is_the_model(report):
    job = {name: value for name, value in JOB.items() if name != "model"}
    placed = ds.compare("llama3-8b", "fsdp8", "tp8", **job)
    assert placed.model == "llama3-8b"
    assert [side.hbm_bytes for side in placed.sides] == [side.hbm_bytes for side in report.sides[:2]]
    with pytest.raises(InputError, match="give model="):
        ds.compare("fsdp8", "tp8", **job)


def test_slices_in_place_of_plans_are_where_it_runs():
    job = {"model": "llama3-8b", "batch": "64seq", "seq": 8192}
    placed = ds.compare("h100:8", "h200:8", **job)
    assert [side.slice for side in placed.sides] == ["h100:8", "h200:8"]
    assert placed.sides[0].figure("step").value == ds.compare(on="h100:8,h200:8", **job).sides[0].figure("step").value
    with pytest.raises(InputError):
        ds.compare("h100:8", "fsdp8", **job)


def test_terms_add_up_to_the_difference(report):
    slower = report.differences[0]
    assert sum(term.difference_s for term in slower.terms) == pytest.approx(slower.difference_s, rel=1e-6)
    sizes = [abs(term.difference_s) for term in slower.terms]
    assert sizes == sorted(sizes, reverse=True)
    assert slower.terms[0].name == "tensor collectives"
    assert f"takes {slower.ratio - 1:.0%} longer than A: " in slower.text
    assert "more tensor collectives" in slower.text
    assert slower.beyond_bands is (report.sides[1].figure("step").low > report.sides[0].figure("step").high)
    assert {one.setting for one in slower.settings} >= {"tensor", "fsdp"}


def test_answers_that_are_there_are_compared_as_they_are(report, searched):
    answers = [ds.train(plan=plan, alone=True, **JOB) for plan in ("fsdp8", "tp8")]
    assert ds.compare(*answers).differences[0].ratio == report.differences[0].ratio
    alone = ds.compare(searched)
    assert len(alone.sides) == 3
    assert alone.winner in "ABC"
    with pytest.raises(InputError, match="Answers are compared with answers"):
        ds.compare(answers[0], "tp8", **JOB)


def test_a_plan_file_says_the_job_of_the_others(tmp_path, report):
    saved = str(tmp_path / "mine.toml")
    ds.train(plan="fsdp8", alone=True, **JOB).save(saved)
    assert ds.compare(saved, "tp8").differences[0].ratio == report.differences[0].ratio


def test_a_smaller_batch_is_compared_for_the_same_tokens():
    half = ds.train(plan="fsdp8", alone=True, **{**JOB, "batch": "32seq"})
    whole = ds.train(plan="fsdp8", alone=True, **JOB)
    pair = ds.compare(whole, half).differences[0]
    assert 0.95 < pair.ratio < 1.2


def test_what_cannot_run_is_a_side_that_says_so(capsys):
    line = ["compare", "dp8", "fsdp8", "--model", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192"]
    assert main([*line, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["winner"] == "B"
    assert "cannot run" in answer["differences"][0]["text"]
    assert main([*line[:2], "dp8 mb2", *line[3:]]) == 3
    assert "none can run" in capsys.readouterr().out


def test_engines_and_files_of_serving_plans(tmp_path, capsys):
    asked = ["--model", "llama3-8b", "--on", "h100:1", "--prompt", "1024", "--output", "128", "--batch", "16"]
    assert main(["compare", *asked, "--engine", "vllm,sglang", "--explain"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("TTFT", "TPOT band", "tokens/s/chip", "$/Mtok", "B vs A", "term"))
    saved = tmp_path / "one.toml"
    saved.write_text(
        'model = "llama3-8b"\nslice = "h100:1"\nengine = "vllm"\n[plan]\ntensor = 1\n[traffic]\nprompt = 64\n'
    )
    report = ds.compare(str(saved), "tp1", model="llama3-8b", on="h100:1", batch=16)
    assert report.kind == "serving"


def test_bars_of_time_and_memory(report, tmp_path):
    for kind in report.CHARTS:
        report.plot(kind).save(str(tmp_path / f"{kind}.json"))
        drawn = (tmp_path / f"{kind}.json").read_text()
        assert "A: fsdp8 z3 none" in drawn


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(report, width):
    from dragonscale.blocks.terminal import text_of

    said = text_of(report.sheet(detail=True), width)
    assert max(len(line) for line in said.splitlines() if not line.startswith("  dscale ")) <= width  # copied whole


@pytest.mark.parametrize(
    ("things", "words", "said"),
    [
        ((), JOB, "2 to 12 sides"),
        (("tp8", "best=3s"), JOB, "What was measured was a plan"),
        (("tp8", "fsdp8"), {**JOB, "prompt": "2048"}, "seq=, tokens=, stack= and numerics= are of training"),
        (("tp8", "nonsense"), JOB, "nonsense"),
        (("tp8", ""), JOB, "empty"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(things, words, said):
    with pytest.raises(InputError, match=said):
        ds.compare(*things, **words)


def test_a_chip_on_which_nothing_was_measured_is_priced_as_serve_prices_it(capsys):
    assert main(["compare", "--model", "llama3-8b", "--on", "h100:1,v6e:1x1", "--prompt", "512", "--explain"]) == 0
    note = " ".join(capsys.readouterr().out.split())
    assert main(["serve", "llama3-8b", "--on", "v6e:1x1", "--prompt", "512", "--top", "1", "--explain"]) == 0
    ranked = re.search(r"ranked at (\$[\d.]+), the slow end", " ".join(capsys.readouterr().out.split()))
    assert ranked is not None
    assert f"ranks it at the slow end of its band, {ranked[1]} per million tokens" in note
