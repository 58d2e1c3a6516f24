"""`dscale train`: what it prints, what it refuses, and what it says when nothing fits."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonscale.cli import main

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
            "plan", "feasible", "step_s", "lower_s", "upper_s", "mfu", "tokens_per_s_per_chip", "hbm_bytes",
            "hbm_limit_bytes", "bound_by", "terms", "days", "cost_usd",
        }  # fmt: skip
        assert set(one["plan"]) >= {
            "data", "fsdp", "tensor", "context", "expert", "pipe", "microbatch", "virtual", "remat", "zero",
        }  # fmt: skip
        assert set(one["terms"][0]) == {"name", "lower_s", "expected_s", "exposed_s", "bytes", "flops"}
        assert sum(term["exposed_s"] for term in one["terms"]) == pytest.approx(one["step_s"])
        assert sum(part["bytes"] for part in one["memory"]) == pytest.approx(one["hbm_bytes"])
        assert one["lower_s"] <= one["step_s"]
        assert one["days"] == pytest.approx(one["steps"] * one["step_s"] / 86400)
        assert one["feasible"]
        assert one["hbm_bytes"] <= one["hbm_limit_bytes"]
    times = [one["step_s"] for one in report["plans"]]
    assert times == sorted(times)


def test_text_shows_the_mesh_the_bars_and_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([*ASKED, *QUICK, "--tokens", "chinchilla", "--explain"], capsys)
    for part in ("axis", "[■", "time    |", "memory  |", "MFU", "days", "time against memory", "bound by"):
        assert part in text
    assert max(map(len, text.splitlines()[:-1])) <= 110


def test_a_plan_can_be_saved_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    best = json.loads(printed([*ASKED, *QUICK, "--json", "--save", path], capsys))["plans"][0]
    again = json.loads(printed([*ASKED, "--plan", path, "--json"], capsys))
    assert again["searched"] == 1
    assert again["plans"][0]["plan"] == best["plan"]
    assert again["plans"][0]["step_s"] == pytest.approx(best["step_s"])


def test_nothing_feasible_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "llama3-405b", "--on", "h100:8", "--batch", "1Mi", "--seq", "8192", *QUICK]
    text = printed(arguments, capsys, code=3)
    assert "The nearest" in text
    assert "more than the 85 GB" in text
    report = json.loads(printed([*arguments, "--json"], capsys, code=3))
    assert report["plans"] == []
    assert report["infeasible"]["memory"] > 0


def test_a_plan_that_does_not_fit_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([*ASKED, "--plan", "data=16"], capsys, code=3)
    assert "Not feasible: it needs" in text
    text = printed([*ASKED, "--plan", "fsdp=3"], capsys, code=3)
    assert "the plan is for 3 chips" in text


def test_a_decimal_batch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "llama3-8b", "--on", "h100:8", "--batch", "1M", "--seq", "8192", *QUICK]) == 0
    told = capsys.readouterr()
    assert "taken as 1Mi" in told.err
    assert "128 sequences" in told.out


@pytest.mark.parametrize("chart", ["time", "memory", "roofline", "scaling"])
def test_charts(chart: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chart.json"
    printed([*ASKED, *QUICK, "--plot", str(path), "--chart", chart], capsys)
    assert json.loads(path.read_text())["$schema"].startswith("https://vega.github.io")


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
    text = printed(["train", "llama3-8b", "--on", "any", "--batch", "1Mi", "--seq", "8192", "--tokens", "1T"], capsys)
    assert "Cheapest by chip" in text


WRONG = {
    "unknown model": (["train", "lama3-8b", *ASKED[2:]], "did you mean"),
    "unknown chip": (["train", "llama3-8b", "--on", "h10:16", *ASKED[4:]], "There is no chip"),
    "no batch": (ASKED[:4], "batch"),
    "ragged batch": ([*ASKED[:4], "--batch", "1000001", "--seq", "8192"], "no whole number of sequences"),
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
    "any without run": (["train", "llama3-8b", "--on", "any", *ASKED[4:]], "--tokens"),
    "largest without slice": (["train", "llama3-8b", "--on", "h100", *ASKED[4:], "--largest", "batch"], "needs a slice"),
    "plot ending": ([*ASKED, *QUICK, "--plot", "x.bmp"], "should end in"),
    "empty tokens": ([*ASKED, "--tokens", "0"], "at least one token"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = WRONG[name]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert expected in told.err
    assert told.err.count("dscale: ") == 1
    assert "Traceback" not in told.err


FLAGS = (
    "--on",
    "--batch",
    "--seq",
    "--tokens",
    "--plan",
    "--fix",
    "--remat",
    "--dtype",
    "--stack",
    "--rank",
    "--largest",
)
WORDS = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="0123456789MkGTi.e-+seq,=|", max_size=12),
    st.sampled_from(["fsdp=16", "tensor=16", "fsdp=4,tensor=4,remat=none", "pipe=99,fsdp=1", "zero=9", "chinchilla"]),
)


@pytest.mark.parametrize("flag", FLAGS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=WORDS)
def test_fuzzed_flags_are_answered_or_refused(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    given_flags = {"--on": "h100:16", "--batch": "64seq", "--seq": "1024", "--plan": "fsdp=16"} | {flag: text}
    if flag in ("--fix", "--remat", "--dtype"):
        given_flags |= {"--on": "h100:2", "--plan": ""}
    code = main(["train", "llama3-8b", *(f"{name}={value}" for name, value in given_flags.items() if value)])
    told = capsys.readouterr()
    assert code in (0, 2, 3)
    assert "Traceback" not in told.err
    if code == 2:
        assert told.err.count("dscale: ") == 1


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
    assert "--on any compares chips at their list prices" in capsys.readouterr().err
    assert main([*ASKED, "--price", "cheap"]) == 2
