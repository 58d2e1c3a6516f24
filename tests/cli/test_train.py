"""`dscale train`: what it prints, what it refuses, and what it says when nothing fits."""

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dragonscale.commands.train.plan_text import split_text
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.advice.changes import towards
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import parse_plan

ASKED = ["train", "llama3-8b", "--on", "h100:16", "--batch", "1Mi", "--seq", "8192"]
QUICK = ["--remat", "block", "--fix", "zero=3,schedule=1f1b"]


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def test_json_has_the_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(printed([*ASKED, *QUICK, "--tokens", "1T", "--json", "--top", "3"], capsys))
    assert {"model", "slice", "workload", "searched", "search_s", "plans"} <= set(report)
    assert len(report["plans"]) == 3
    for one in report["plans"]:
        assert set(one) >= {
            "plan",
            "feasible",
            "step_s",
            "lower_s",
            "upper_s",
            "mfu",
            "tokens_per_s_per_chip",
            "hbm_bytes",
            "hbm_limit_bytes",
            "bound_by",
            "terms",
            "days",
            "cost_usd",
        }
        assert set(one["plan"]) >= {
            "data",
            "fsdp",
            "tensor",
            "context",
            "expert",
            "pipe",
            "microbatch",
            "virtual",
            "remat",
            "zero",
        }
        assert set(one["terms"][0]) == {"name", "lower_s", "expected_s", "exposed_s", "bytes", "flops"}
        assert sum(term["exposed_s"] for term in one["terms"]) == pytest.approx(one["step_s"])
        assert sum(part["bytes"] for part in one["memory"]) == pytest.approx(one["hbm_bytes"])
        assert one["lower_s"] <= one["step_s"]
        assert one["days"] == pytest.approx(one["steps"] * one["step_s"] / 86400)
        assert one["feasible"]
        assert one["hbm_bytes"] <= one["hbm_limit_bytes"]
        assert one["mfu_peak"] == "bf16 peak (989.5 TFLOP/s)"
        assert one["mfu"] == pytest.approx(one["tokens_per_s_per_chip"] * report_flops(report) / one["peak_flops"])
    times = [one["step_s"] for one in report["plans"][1:]]
    assert times == sorted(times)


def report_flops(report: dict[str, Any]) -> float:
    """Model FLOPs of a token: those of the first plan, whose MFU is known."""
    best = report["plans"][0]
    return best["mfu"] * best["peak_flops"] / best["tokens_per_s_per_chip"]


def test_text_shows_the_mesh_the_bars_and_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([*ASKED, *QUICK, "--tokens", "chinchilla", "--explain"], capsys)
    for part in (
        "the mesh",
        "[■",
        "time    |",
        "memory  |",
        "MFU",
        "days",
        "time against memory",
        "bound by",
        "accepted by",
    ):
        assert part in text
    assert "of the bf16 peak" in text
    assert "days with failures (p90" in " ".join(text.split())
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_a_plan_can_be_saved_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    best = json.loads(printed([*ASKED, *QUICK, "--json", "--save", path], capsys))["plans"][0]
    again = json.loads(printed([*ASKED, "--plan", path, "--json"], capsys))
    assert again["searched"] > 1
    assert again["plans"][0]["plan"] == best["plan"]
    assert again["plans"][0]["step_s"] == pytest.approx(best["step_s"])


def test_nothing_feasible_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "llama3-405b", "--on", "h100:8", "--batch", "1Mi", "--seq", "8192", *QUICK]
    text = printed(arguments, capsys, code=3)
    assert "The nearest" in text
    assert "GB there are" in " ".join(text.split())
    assert "The nearest slice with room in memory is h100:" in text
    report = json.loads(printed([*arguments, "--json"], capsys, code=3))
    assert report["plans"] == []
    assert report["infeasible"]["memory"] > 0


def test_a_plan_that_does_not_fit_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([*ASKED, "--plan", "data=16,zero=0"], capsys, code=3)
    assert text.startswith("Does not run: it needs ")
    told = " ".join(text.split())
    assert "cannot run it needs" in told
    assert "the given plan cannot run" in told
    text = printed([*ASKED, "--plan", "fsdp=3"], capsys, code=3)
    assert "the plan is for 3 chips" in text


def test_a_decimal_batch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "llama3-8b", "--on", "h100:8", "--batch", "1M", "--seq", "8192", *QUICK]) == 0
    told = capsys.readouterr()
    assert "taken as 1Mi" in told.err
    assert "128 sequences" in told.out


@pytest.mark.parametrize(
    "chart", ["time", "memory", "mesh", "roofline", pytest.param("scaling", marks=pytest.mark.slow), "answer"]
)
def test_charts(chart: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chart.json"
    printed([*ASKED, *QUICK, "--plot", str(path), "--chart", chart], capsys)
    assert json.loads(path.read_text())["$schema"].startswith("https://vega.github.io")


@pytest.mark.slow
def test_more_questions(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([*ASKED, *QUICK, "--scaling", "--codesign"], capsys)
    assert "strong scaling" in text
    assert "10% more FLOP/s" in text
    assert "alone" in text
    fewest = ["train", "llama3-8b", "--on", "h100", "--batch", "1Mi", "--seq", "8192", *QUICK]
    assert "is the smallest slice" in printed(fewest, capsys)
    assert "meet the deadline" in printed([*fewest, "--tokens", "1T", "--deadline", "60d"], capsys)
    assert "costs least" in printed([*ASKED, *QUICK, "--rank", "cost"], capsys)
    assert "in one pass" in printed([*ASKED, *QUICK, "--largest", "batch"], capsys)


@pytest.mark.slow
def test_the_cheapest_slice_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    asks = ["train", "llama3-8b", "--on", "any", "--batch", "1Mi", "--seq", "8192", "--tokens", "1T", "--json"]
    report = json.loads(printed([*asks, "--fix", "zero=3"], capsys))
    assert {row["plan"].split()[-2] for row in report["slices"] if row["plan"]} == {"z3"}
    costs = [row["usd_per_mtok"] for row in report["slices"] if row["usd_per_mtok"] is not None]
    assert costs == sorted(costs)
    assert report["slice"] == report["slices"][0]["slice"]


def test_several_slices_are_ranked(capsys: pytest.CaptureFixture[str]) -> None:
    asks = ["train", "llama3-8b", "--on", "h100:8,h100:16", "--on", "a100:8", "--batch", "1Mi", "--seq", "8192", *QUICK]
    report = json.loads(printed([*asks, "--json"], capsys))
    assert report["slice"] == "h100:16"
    assert len(report["slices"]) == 3
    times = [row["step_s"] for row in report["slices"] if row["step_s"]]
    assert times == sorted(times)
    cheap = json.loads(printed([*asks, "--rank", "cost", "--json"], capsys))
    costs = [row["usd_per_mtok"] for row in cheap["slices"] if row["usd_per_mtok"]]
    assert costs == sorted(costs)
    assert "$/Mtok" in printed(asks, capsys)


def test_a_given_plan_is_judged_against_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(printed([*ASKED, *QUICK, "--plan", "tp8 fsdp2 block", "--json"], capsys))
    given, best = report["plans"][0], report["best"]
    assert given["plan"]["tensor"] == 8
    assert best["step_s"] < given["step_s"]
    first = report["changes"][0]
    assert set(first) == {"setting", "from", "to", "step_s", "gain", "plan"}
    assert first["setting"] == "tensor"
    assert first["gain"] == pytest.approx(given["step_s"] / first["step_s"] - 1)
    text = printed([*ASKED, *QUICK, "--plan", "tp8 fsdp2 block"], capsys)
    assert re.search(r"best plan +\S.*MFU \(\+", text)
    assert f"by tensor={first['to']} alone" in " ".join(text.split())
    alone = json.loads(printed([*ASKED, "--plan", "tp8 fsdp2 block", "--alone", "--json"], capsys))
    assert alone["best"] is None
    assert alone["searched"] == 1


def test_what_was_measured_may_be_an_mfu_or_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    plan = [*ASKED, "--plan", "fsdp=16", "--alone", "--json"]
    given = json.loads(printed(plan, capsys))["plans"][0]
    rate, mfu = given["tokens_per_s_per_chip"], given["mfu"]
    for text in (f"{mfu:.6%}", f"{rate:.3f} tok/s", f"{rate:.3f} tokens/s/GPU", f"{16 * rate:.3f} tok/s"):
        measured = json.loads(printed([*plan, "--measured", text], capsys))["measured"]
        assert measured["ratio"] == pytest.approx(1.0, rel=1e-4), text
        assert measured["mfu"] == pytest.approx(mfu, rel=1e-4)
        assert f"({mfu:.1%} MFU)" in measured["text"]


@pytest.mark.parametrize("text", ["-38%", "400%", "0%", "many%", "-8s", "-11k tok/s"])
def test_what_no_run_can_have_measured_is_refused_as_that(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--plan", "fsdp=16", "--alone", f"--measured={text}"]) == 2
    told = capsys.readouterr().err
    hint = "an MFU is a part of the bf16 peak, such as 38%" if "%" in text else "write a time (8.2s, 8.2 s/it), steps"
    assert f"--measured is {text!r}; {hint}" in told


def test_a_narrow_format_has_its_mfu_of_its_own_peak_first(capsys: pytest.CaptureFixture[str]) -> None:
    plan = [*ASKED, "--plan", "fsdp=16", "--alone", "--dtype", "fp8", "--stack", "megatron-core"]
    one = json.loads(printed([*plan, "--json"], capsys))["plans"][0]
    assert one["mfu"] == pytest.approx(2 * one["mfu_of_dtype"])  # the keys keep their meaning
    text = " ".join(printed([*plan, "--measured", f"{one['mfu_of_dtype']:.6%}"], capsys).split())
    assert f"MFU {one['mfu_of_dtype']:.1%} of the fp8 peak (1,979 TFLOP/s); {one['mfu']:.1%} of bf16's, " in text
    assert f"({one['mfu_of_dtype']:.1%} MFU) is 1.00x" in text
    searched = [*ASKED, "--dtype", "fp8", "--stack", "megatron-core", "--fix", "fsdp=16,microbatch=1,zero=3"]
    best = json.loads(printed([*searched, "--scaling", "--json"], capsys))
    rows = printed([*searched, "--scaling"], capsys)
    assert f"{best['plans'][1]['mfu_of_dtype']:.1%}" in rows[rows.index("plans, the recommended") :]
    assert best["scaling"][-1]["mfu_of_dtype"] == pytest.approx(best["scaling"][-1]["mfu"] / 2)


def test_a_plan_that_does_not_fit_is_not_accepted_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    full = ["train", "llama3-70b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", "--plan", "fsdp=8", "--alone"]
    assert not json.loads(printed([*full, "--json"], capsys, code=3))["plans"][0]["runnable"]
    assert (
        "`dscale run`"
        not in printed([*full, "--explain"], capsys, code=3).split("accepted by")[1].split("nor")[0].splitlines()[0]
    )


def test_chunks_and_interleaving_are_one_change() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 128, 8192, "megatron-core")
    given, better = parse_plan("pp4 tp2 fsdp2 z1"), parse_plan("pp4 tp2 fsdp2 v4 interleaved z1")
    (change,) = towards(job, given, better)
    assert (change.setting, change.old, change.new, change.plan.schedule) == ("virtual", 1, 4, "interleaved")


def test_one_plan_is_listed_where_one_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(json.loads(printed([*ASKED, *QUICK, "--json", "--top", "1"], capsys))["plans"]) == 1


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, "no gap to explain"), (3.0, "candidate"), (0.1, "datasheet allows")]
)
def test_a_measured_step_is_explained(factor: float, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [*ASKED, "--plan", "fsdp=16,remat=block", "--alone"]
    step = json.loads(printed([*plan, "--json"], capsys))["plans"][0]["step_s"]
    flags = [*plan, "--measured", f"{step * factor:.4f}s"]
    measured = json.loads(printed([*flags, "--json"], capsys))["measured"]
    assert measured["ratio"] == pytest.approx(factor, rel=1e-3)
    assert expected in " ".join(printed([*flags, "--explain"], capsys).split())
    off = [abs(row["step_s"] - measured["step_s"]) for row in measured["suspects"]]
    assert off == sorted(off)
    assert bool(off) == (factor > 1)


def test_sizes_that_do_not_divide_get_a_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    asks = ["train", "llama3-8b", "--on", "h100:24", "--seq", "2047", "--fix", "zero=3,pipe=1,remat=block"]
    text = printed([*asks, "--batch", "25seq"], capsys, code=3)
    assert "The nearest batch with room in memory is 24 sequences" in text
    asks = ["train", "llama3-8b", "--on", "h100:24", "--seq", "4096", *QUICK, "--batch", "128seq", "--json"]
    report = json.loads(printed(asks, capsys))
    if report["neighbours"]:
        assert report["neighbours"][0]["mfu"] > 1.05 * report["plans"][0]["mfu"]
        assert abs(report["neighbours"][0]["sequences"] / 128 - 1) <= 0.125


def test_a_renamed_chip_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = tmp_path / "spot.toml"
    source = (resources.files("dragonscale.physics.hardware") / "chips" / "h100.toml").read_text()
    chip.write_text(source.replace('name = "h100"', 'name = "h100-spot"'))
    saved = tmp_path / "plan.toml"
    files = ["--save", str(saved), "--timeline", str(tmp_path / "t.json"), "--plot", str(tmp_path / "c.json")]
    asks = ["train", "llama3-8b", "--batch", "1Mi", "--seq", "8192", *QUICK]
    text = printed([*asks, "--on", f"{chip}:16", *files, "--chart", "roofline"], capsys)
    assert "h100-spot:16" in text
    assert f'slice = "./{chip.name}:16"' in saved.read_text()
    assert "is the smallest slice" in printed([*asks, "--on", str(chip)], capsys)


WRONG = {
    "unknown model": (["train", "lama3-8b", *ASKED[2:]], "did you mean"),
    "unknown chip": (["train", "llama3-8b", "--on", "h10:16", *ASKED[4:]], "There is no chip"),
    "no slice": (ASKED[:2], "--on any looks for the cheapest"),
    "batch below a sequence": ([*ASKED[:4], "--batch", "100", "--seq", "8192"], "100seq"),
    "no tokens": ([*ASKED[:4], "--batch", "0", "--seq", "8192"], "at least one token"),
    "negative batch": ([*ASKED[:4], "--batch=-4M", "--seq", "8192"], "negative"),
    "half a token": ([*ASKED[:4], "--batch", "0.5", "--seq", "8192"], "whole number"),
    "no sequence": ([*ASKED[:6], "--seq", "0"], "at least one token"),
    "endless sequence": ([*ASKED[:6], "--seq", "1e30"], "at most"),
    "unknown remat": ([*ASKED, "--remat", "blok"], "did you mean 'block'"),
    "unknown dtype": ([*ASKED, "--dtype", "bf15"], "There is no dtype"),
    "unknown stack": ([*ASKED, "--stack", "megatrn"], "did you mean 'megatron'"),
    "unknown rank": ([*ASKED, "--rank", "speed"], "There is no ranking"),
    "unknown chart": ([*ASKED, "--chart", "pie"], "There is no chart"),
    "unknown largest": ([*ASKED, "--largest", "cat"], "largest"),
    "no plans": ([*ASKED, "--top", "0"], "1 to 1000"),
    "plan without equals": ([*ASKED, "--plan", "fsdp"], "is not a setting"),
    "plan of nothing": ([*ASKED, "--plan", "fsdp=0"], "at least 1"),
    "plan twice": ([*ASKED, "--plan", "fsdp=4,fsdp=4"], "given twice"),
    "unknown axis": ([*ASKED, "--plan", "fdsp=16"], "did you mean 'fsdp'"),
    "missing plan file": ([*ASKED, "--plan", "nowhere.toml"], "cannot be read"),
    "plan without slice": (["train", "llama3-8b", "--on", "h100", *ASKED[4:], "--plan", "fsdp=8"], "needs a slice"),
    "several tensors": ([*ASKED, "--fix", "tensor=2|4"], "several values"),
    "fix without equals": ([*ASKED, "--fix", "tensor"], "is not a setting"),
    "deadline with slice": ([*ASKED, "--deadline", "3d"], "how many chips are needed"),
    "bare deadline": (["train", "llama3-8b", "--on", "h100", *ASKED[4:], "--deadline", "3"], "no unit"),
    "any and more": (["train", "llama3-8b", "--on", "any,h100:8", *ASKED[4:]], "stands alone"),
    "slack in words": ([*ASKED, "--slack", "little"], "from 0 to 50%"),
    "headroom in words": ([*ASKED, "--headroom", "some"], "leaves free, from 0 to 50%"),
    "too much slack": ([*ASKED, "--slack", "80%"], "from 0 to 50%"),
    "measured without plan": ([*ASKED, "--measured", "8.2s"], "needs the plan"),
    "measured at no MFU": ([*ASKED, "--plan", "fsdp=16", "--measured", "0%"], "an MFU is a part of"),
    "several with plan": (
        ["train", "llama3-8b", "--on", "h100:8,h100:16", *ASKED[4:], "--plan", "fsdp=8"],
        "needs a slice",
    ),
    "largest without slice": (
        ["train", "llama3-8b", "--on", "h100", *ASKED[4:], "--largest", "batch"],
        "needs a slice",
    ),
    "plot ending": ([*ASKED, *QUICK, "--plot", "x.bmp"], "should end in"),
    "empty tokens": ([*ASKED, "--tokens", "0"], "at least one token"),
    "mixed fleet": (["train", "llama3-8b", "--on", "h100:8+a100:8", *ASKED[4:]], "one kind of chip"),
    "skew without experts": ([*ASKED, "--skew", "3"], "has no experts"),
    "chart without plot": ([*ASKED, "--chart", "time"], "add --plot"),
    "no flag like it": ([*ASKED, "--disaggregate"], "'--disaggregate'. See"),
}


def test_a_measured_step_without_a_unit_is_in_seconds_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--plan", "fsdp=16", "--measured", "8.2"]) == 0
    bare = capsys.readouterr()
    assert "--measured 8.2 has no unit and is read as 8.2s." in bare.err
    assert main([*ASKED, "--plan", "fsdp=16", "--measured", "8.2s"]) == 0
    told = capsys.readouterr()
    assert told.out == bare.out
    assert "no unit" not in told.err


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = WRONG[name]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert expected in told.err
    assert told.err.count("dscale: ") == 1
    assert "Traceback" not in told.err


def test_skewed_routing_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    steps = []
    for skew in ("1", "1.5"):
        flags = [
            "--on",
            "h100:8",
            "--batch",
            "256Ki",
            "--seq",
            "4096",
            "--plan",
            "expert=8,remat=block",
            "--skew",
            skew,
        ]
        assert main(["train", "qwen3-30b-a3b", *flags, "--json"]) in (0, 3)
        steps.append(json.loads(capsys.readouterr().out)["plans"][0]["step_s"])
    assert steps[1] > steps[0] * 1.02
    assert main(["train", "qwen3-30b-a3b", "--on", "h100:8", "--batch", "256Ki", "--seq", "4096", "--skew", "0.5"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_a_price_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*ASKED, "--tokens", "1T", "--plan", "fsdp=16", "--json"]
    listed, own = (json.loads(printed([*asked, *more], capsys))["plans"][0] for more in ([], ["--price", "$2.5/h"]))
    assert own["cost_usd"] == pytest.approx(2.5 * own["chip_hours"])
    assert own["step_s"] == listed["step_s"]
    assert main([*ASKED[:3], "any", *ASKED[4:], "--tokens", "1T", "--price", "$2.5/h"]) == 2
    assert "chips are compared: name them" in capsys.readouterr().err
    assert main([*ASKED, "--price", "cheap"]) == 2


def test_replicas_that_a_plan_leaves_out_are_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "train",
        "llama3-8b",
        "--on",
        "h100:16",
        "--batch",
        "64seq",
        "--seq",
        "4096",
        "--alone",
        "--stack",
        "megatron-core",
        "--json",
    ]
    assert main([*arguments, "--plan", "tp4 pp2 z1"]) == 0
    out, notes = capsys.readouterr()
    assert json.loads(out)["plans"][0]["plan"]["fsdp"] == 2
    assert "fsdp=2" in notes
    assert main([*arguments, "--plan", "tp4 pp2 dp2 fsdp1 z1"]) == 0
    out, notes = capsys.readouterr()
    assert json.loads(out)["plans"][0]["plan"]["data"] == 2
    assert "shards nothing over data=2" in notes


def test_a_plan_is_told_in_words_and_judged_only_on_its_own_chips(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", *QUICK, "--json", "--plan"]
    assert main([*asked, "fsdp4 z3"]) == 3
    other = json.loads(capsys.readouterr().out)
    assert other["changes"] == []
    assert "the given plan cannot run" in other["comparison"]
    assert main(asked[:-1]) == 0
    best = short_plan(Plan(**json.loads(capsys.readouterr().out)["plans"][0]["plan"]))
    assert "the best of" in " ".join(printed([*asked[:-2], "--plan", best], capsys).split())
    words = {stage: split_text(parse_plan(f"fsdp8 z{stage} block")) for stage in (1, 2, 3)}
    assert words[1].startswith("optimizer sharded over 8")
    assert words[2].startswith("optimizer and gradients sharded over 8")
    assert words[3].startswith("optimizer, gradients and weights sharded over 8")
    assert all(text.endswith("full recompute (block)") for text in words.values())


def test_a_misspelt_word_of_a_plan_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "train",
        "llama3-8b",
        "--on",
        "h100:8",
        "--batch",
        "8seq",
        "--seq",
        "4096",
        "--plan",
        "fsdp8 sellective",
    ]
    assert main(arguments) == 2
    assert "did you mean 'selective'?" in capsys.readouterr().err


def test_a_plan_without_room_is_marked_and_not_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    asks = ["train", "llama3-8b", "--on", "l40s:4", "--batch", "16seq", "--seq", "4096", "--top", "3"]
    fixed = ["--stack", "torchtitan", "--fix", "optimizer=adam-bf16,pipe=1,remat=block"]
    text = " ".join(printed([*asks, *fixed, "--explain"], capsys).split())
    assert "48GB tight r fsdp4 mb2 z2 block" in text
    assert "not recommended: it fills 100% of memory (--headroom)" in text
    full = [*asks, *fixed[:2], "--fix", "optimizer=adam-bf16,fsdp=4,zero=2,remat=block"]
    told = " ".join(printed([*full, "--explain"], capsys).split())
    assert re.search(r"on the fullest chip, [\d.]+GB left, tight", told)
    assert re.search(
        r"fills (?:9\d|100)% of memory: it is the least full that was found. Otherwise 9% is left free", told
    )
    report = json.loads(printed([*asks[:3], "l40s:4,l40s:8", *full[4:], "--json"], capsys))
    assert {row["slice"]: row["tight"] for row in report["slices"]}["l40s:4"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("llama3.2-1b --on h200:1 --batch 8seq --seq 4096 --stack dragonscale", "is simpler"),
        (
            "llama3.2-3b --on h100:8 --batch 128seq --seq 1024 --stack megatron-core --numerics benchmark",
            "has more memory to spare",
        ),
    ],
)
def test_of_two_reasons_against_a_faster_plan_the_right_one_is_told(
    asked: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = [*asked.split(), "--fix", "context=1,pipe=1,tensor=1", "--top", "1", "--explain"]
    text = " ".join(printed(["train", *pinned], capsys).split())
    assert f"faster and not recommended: the recommended one {why} (--slack 0 takes it)." in text


def test_plans_beyond_a_limit_are_counted_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    asks = ["train", "llama3-70b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", "--remat", "block"]
    text = " ".join(printed([*asks, "--stack", "megatron-core"], capsys, 3).split())
    counted = r"None of [\d,]+ plans is feasible: ([\d,]+ not supported by the stack, [\d,]+ memory)"
    assert re.search(counted, text)


def test_the_largest_batch_says_that_it_leaves_room(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed([*ASKED, *QUICK, "--largest", "batch"], capsys).split())
    assert re.search(
        r"At most [\d,]+ sequences \([\d,]+ tokens\) go through h100:16 in one pass with room in memory", text
    )


def test_small_runs_have_their_cents_and_adapters_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "llama3-8b", "--method", "lora", "--on", "h100:1", "--tokens", "3M", "--pricing", "spot"]
    text = " ".join(printed([*asked, "--plan", "mb4 z0 none", "--alone"], capsys).split())
    assert "llama3-8b (8.03B parameters +41.9M in adapters) on h100:1" in text
    assert re.search(r"[1-9]\.\d minutes with failures", text)
    assert re.search(r"\$0\.[1-9]\d \(p90 \$0\.\d\d\)", text)
    text = " ".join(printed([*asked, "--plan", "mb4 z0 none", "--alone", "--explain"], capsys).split())
    assert re.search(r"0\.0\d+ kWh of chips", text)
    assert "it is shorter than spot chips last, 3.06h" in text
    long = " ".join(
        printed([*asked[:7], "3G", *asked[8:], "--plan", "z0 none", "--alone", "--explain"], capsys).split()
    )
    assert "spot chips are there 62% of the time" in long


@pytest.mark.parametrize(("on", "word"), [("h200:8", "verify"), ("b200:8", "explain train")])
def test_next_is_a_verification_only_where_xla_has_a_target(
    on: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["train", "llama3-8b", "--on", on, "--batch", "64seq", "--seq", "4096", "--fix", "zero=3,schedule=1f1b"]
    for more, command in (([], "explain train"), (["--explain"], word), (["--explain", "--method", "full"], word)):
        told = printed([*asked, *more], capsys)
        named = told.splitlines()[-1].strip()
        assert named.startswith(f"dscale {command} ")
        assert "--method" not in named or command != "verify"  # which has no such flag
    assert bool(re.search(r" rv  ", told)) is (word == "verify")


def test_next_verifies_for_the_stack_whose_memory_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "4096", "--set", "nvlink=2x"]
    told = printed([*asked, "--fix", "zero=3,schedule=1f1b"], capsys)
    assert told.splitlines()[-1].endswith(" --stack megatron-lm")
    own = printed([*asked, "--fix", "zero=3,schedule=1f1b", "--stack", "dragonscale"], capsys)
    assert own.splitlines()[-1].endswith(" --stack dragonscale")


NAMED = [
    ([], ["--optimizer", "adam"]),
    ([], ["--fix", "optimizer=adam"]),
    (["--plan", "fsdp8"], ["--optimizer", "adam"]),
]


@pytest.mark.parametrize(("plan", "flags"), NAMED)
def test_an_optimizer_that_is_named_is_kept(plan: list[str], flags: list[str], capsys: pytest.CaptureFixture) -> None:
    """Axolotl has Adam's moments in bf16 by default."""
    job = ["train", "llama3-8b", "--on", "h100:8", "--method", "full", "--batch", "16seq", "--seq", "4096", *plan]
    job += ["--remat", "block", "--stack", "axolotl", "--json"]
    assert json.loads(printed(job, capsys))["plans"][0]["plan"]["optimizer"] == "adam-bf16"
    assert json.loads(printed([*job, *flags], capsys))["plans"][0]["plan"]["optimizer"] == "adam"
