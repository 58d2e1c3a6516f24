"""`dscale serve`: what it prints, what it refuses, and what it says when nothing fits or meets the targets."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.faces.cli import main
from dragonscale.serving.space.bands import ServedKind, counted_share

ASKED = ["serve", "llama3-70b", "--on", "h100:8", "--prompt", "2048", "--output", "512"]
QUICK = ["--dtype", "fp8", "--top", "2"]


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def answered(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(printed([*arguments, "--json"], capsys))


STABLE = {
    "slice",
    "tensor",
    "batch",
    "prefill_s",
    "decode_step_s",
    "ttft_s",
    "tpot_s",
    "output_tokens_per_s_per_chip",
    "hbm_bytes",
    "kv_bytes_per_token",
    "bound_by",
    "cost_usd_per_mtok",
    "meets_slo",
}


def test_json_has_the_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    targets = ["--ttft", "500ms", "--tpot", "30ms", "--rate", "20/s"]
    report = json.loads(printed([*ASKED, *targets, "--json", "--top", "3"], capsys))
    assert {"model", "workload", "configs", "frontier"} <= set(report)
    assert len(report["configs"]) == 3
    for one in (*report["configs"], *report["frontier"]):
        assert set(one) >= STABLE
        assert one["slice"] == "h100:8"
        assert one["lower_s"] <= one["decode_step_s"] <= one["tpot_s"] * (1 + 1e-9)
        assert one["hbm_bytes"] <= one["hbm_limit_bytes"]
        assert one["batch"] <= one["max_batch"]
        assert one["copies"] * one["chips"] == 8
    for one in report["configs"]:
        assert one["meets_slo"]
        assert one["ttft_s"] <= 0.5
        assert one["tpot_s"] <= 0.03
        assert sum(term["expected_s"] for term in one["terms"]) == pytest.approx(one["decode_step_s"])
        assert one["roofline_s"] >= one["terms"][0]["roofline_s"]
        use = one["memory"]
        held = use["weights_bytes"] + use["cache_bytes"] + use["working_bytes"] + use["reserve_bytes"]
        assert held == pytest.approx(one["hbm_bytes"])
        assert held + use["free_bytes"] + use["left_alone_bytes"] == pytest.approx(one["hbm_limit_bytes"])
        assert one["replicas"] * one["requests_per_s"] >= 20
        assert one["fleet_chips"] == one["replicas"] * one["chips"]
    speeds = [one["tpot_s"] for one in report["frontier"]]
    assert speeds == sorted(speeds)


def test_text_tells_the_whole_story() -> None:
    """What to run comes first; it fits from 60 columns to 200; limits are told to those who ask for them."""
    report = ds.serve(*ASKED[1:2], on="h100:8", dtype="fp8", top=2, tpot="40ms", rate="5/s")
    text = text_of(report.sheet(), 80)
    assert text.startswith("Meets the targets: ")
    parts = (
        "\nfleet ",
        "for 5 requests/s",
        "\nserve as ",
        "\nTTFT ",
        "\nTPOT ",
        "tok/s per chip",
        "largest batch",
        "\ncost ",
        "\nbound by ",
        "\nwould help ",
        "\nerror ",
        "decode  |",
        "configurations,",
        "More with --explain.",
        "dscale simulate",
    )
    places = [text.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] > 0
    behind = ("critical batch", "memory  |", "prefill |", "frontier:", "\nsearched ", "\nat best ")
    assert not [one for one in behind if one in text]
    whole = text_of(report.sheet(detail=True), 80)
    assert not [one for one in behind if one not in whole]
    for width in (60, 80, 120, 200):
        lines = text_of(report.sheet(detail=True), width).splitlines()
        assert max(len(line) for line in lines if "dscale simulate" not in line) <= width
    assert "<table" in report._repr_html_()
    assert report.rows()[0]["dtypes.weights"] == "fp8"
    assert report.best is report.configs[0]
    assert report.ledger.total("flops") > 0


def test_what_is_asked_next_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    drafts = ["--accept", "0.8,0.6", "--draft", "llama3-8b", "--engine", "vllm", "--tpot", "40ms", "--rate", "2/s"]
    command = printed([*ASKED, *QUICK, *drafts], capsys).rstrip().splitlines()[-1].split()
    assert command[:2] == ["dscale", "simulate"]
    report = answered([*command[1:], "--requests", "100"], capsys)
    assert report["tokens_per_verify_step"] > 1
    assert report["meets_slo"] is True


def test_one_chip_several_chips_and_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    alone = json.loads(printed(["serve", "llama3-8b", "--on", "v5e", "--json"], capsys))
    assert len({one["slice"] for one in alone["frontier"]} | {one["slice"] for one in alone["configs"]}) > 1
    both = json.loads(printed(["serve", "llama3-8b", "--on", "v5e,h100:8", "--json"], capsys))
    assert {one["slice"].partition(":")[0] for one in both["configs"]} == {"v5e", "h100"}
    assert set(both["frontier_by_chip"]) == {"v5e", "h100"}
    some = json.loads(printed(["serve", "llama3-70b", "--on", "v5e:1x1,h100:8", "--json"], capsys))
    assert some["notes"][0] == "Nothing fits on v5e:1x1."
    assert len(some["notes"]) == 2
    assert some["notes"][1].startswith("No target was given")
    every = answered(["serve", "llama3-8b", "--on", "all", "--dtype", "bf16", "--top", "48"], capsys)
    assert len(every["configs"]) >= 18
    shown = {one["slice"].partition(":")[0] for one in every["configs"]}
    assert len(shown) == len(every["configs"])
    costs = [  # at the slow end of the band where it is a guess
        one["cost_usd_per_mtok"] / counted_share(ServedKind(one["slice"].partition(":")[0], one["engine"], False))
        for one in every["configs"]
        if one["cost_usd_per_mtok"] is not None
    ]
    assert costs[1:] == sorted(costs[1:])
    assert costs[0] <= 1.1 * min(costs)  # the first may be the smallest of those that cost nearly the same


def test_a_plan_can_be_saved_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    first = json.loads(printed([*ASKED, *QUICK, "--tpot", "30ms", "--json", "--save", path], capsys))["configs"][0]
    again = json.loads(printed([*ASKED, "--plan", path, "--json"], capsys))["configs"]
    assert len(again) == 1
    for key in ("plan", "batch", "copies"):
        assert again[0][key] == first[key]
    assert again[0]["tpot_s"] == pytest.approx(first["tpot_s"])
    bare = json.loads(printed(["serve", "llama3-70b", "--plan", path, "--json"], capsys))["configs"][0]
    assert bare["slice"] == first["copy_slice"]
    Path(path).write_text('tensor = 8\nweights = "fp8"\ncompute = "fp8"\n')
    assert json.loads(printed([*ASKED, "--plan", path, "--json"], capsys))["configs"][0]["tensor"] == 8


def test_a_plan_without_tensor_ways_takes_the_slice(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["--plan", "pipe=2", "--dtype", "fp8", "--batch", "16", "--json"]
    one = json.loads(printed([*ASKED, *plan], capsys))["configs"][0]
    assert (one["tensor"], one["pipe"], one["batch"]) == (4, 2, 16)
    assert one["dtypes"] == {"weights": "fp8", "compute": "fp8", "kv": "fp8", "attention": "fp8"}


@pytest.mark.slow
def test_missed_targets_are_told_with_what_would_meet_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        [*ASKED[:3], "h100:1", *ASKED[4:], "--dtype", "int4", "--kv-dtype", "fp8", "--tpot", "15ms"], capsys, code=4
    )
    assert "Nothing meets the targets" in text
    assert "above the 15ms asked for" in text
    assert "More chips would: h100:" in text
    assert "The cheapest other chip that would" in text
    one = json.loads(printed([*ASKED, *QUICK, "--tpot", "1us", "--json"], capsys, code=4))
    assert not any(config["meets_slo"] for config in one["configs"])
    assert one["configs"][0]["violations"][0].startswith("TPOT is")
    assert "No chip of the catalogue" in " ".join(one["notes"])


def test_what_does_not_fit_is_told_with_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["serve", "llama3.1-405b", "--on", "v5e:4x4"], capsys, code=3)
    assert "does not fit on v5e:4x4" in text
    assert "GB more than" in text
    assert "Of the usual sizes the smallest that holds it is v5e:" in " ".join(text.split())
    report = json.loads(printed([*ASKED, *QUICK, "--batch", "100000", "--json"], capsys, code=3))
    assert report["configs"] == report["frontier"] == []
    assert "The largest batch that fits is" in " ".join(report["notes"])
    text = printed(["serve", "deepseek-v3", "--on", "h100:8", "--plan", "tensor=8"], capsys, code=3)
    assert "Of the usual sizes the smallest that holds it is h100:16" in " ".join(
        text.split()
    )  # its bytes alone would fit on eight


def test_speculation_disaggregation_and_prefixes(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--speculate", "0.7", "--draft", "llama3-8b", "--disaggregate", "--cached", "0.5", "--tpot", "40ms"]
    report = json.loads(printed([*ASKED, *QUICK, *more, "--json"], capsys))
    drafts = report["speculation"]
    assert drafts["drafter"] == "llama3-8b"
    fastest = min(drafts["rows"], key=lambda row: row["per_token_s"])
    assert fastest["drafts"] == drafts["best_drafts"] == report["configs"][0]["drafts"]
    assert drafts["rows"][0]["speedup"] == 1
    pools = report["disaggregation"]
    assert pools["pools"][0]["meets_slo"]
    assert pools["pays"] == (pools["gain"] > 1)
    assert pools["pools"][0]["transfer_bytes"] == pytest.approx(2048 * report["configs"][0]["kv_bytes_per_token"])
    assert report["prefix"]["shared_tokens"] == 1024
    assert 0 < report["prefix"]["saved"] < 1
    text = printed([*ASKED, *QUICK, *more, "--explain"], capsys)
    for part in ("speculation: ", "faster", "disaggregation: ", "orth it: ", "prefix cache ", "A hit saves"):
        assert part in text


def test_the_frontier_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "frontier.json"
    printed([*ASKED, *QUICK, "--plot", str(path)], capsys)
    chart = json.loads(path.read_text())
    assert chart["$schema"].startswith("https://vega.github.io")
    assert chart["vconcat"][0]["layer"][0]["data"]["values"]


def test_explanations_have_the_limits_solved(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "explain",
        "serve",
        "llama3-70b",
        "--on",
        "v5e:4x4",
        "--weights",
        "int8",
        "--kv",
        "int8",
        "--compute",
        "bf16",
    ]
    text = printed([*arguments, "--plan", "tensor=16", "--batch", "32"], capsys)
    assert "= 3*D*F*L/(W_hbm*tensor)" in text  # the MLP of a decode step waits for its weights
    assert "critical batch (sequences from which U+G is bound by compute" in text
    assert "C/(2*W_hbm) = 120.1" in text
    assert "largest batch" in text
    assert "times its bound" in text
    assert main(["explain", "serve", "llama3.1-405b", "--on", "v5e:1x1"]) == 3
    assert "does not fit" in capsys.readouterr().err


def test_drafts_alone_are_by_the_usual_heads_at_their_published_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    report = answered([*ASKED, "--drafts", "3"], capsys)
    assert report["speculation"]["asked"]
    assert report["speculation"]["drafter"] == "an EAGLE head"
    assert report["configs"][0]["drafts"] == 3
    assert 1 < report["speculation"]["rows"][-1]["tokens"] < 4
    assert report["verdict"].endswith("are expected.")


def test_data_of_a_model_without_experts_is_read_as_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "h100:8", "--prompt", "2048", "--output", "512", "--plan"]
    assert main([*asked, "data=8,tensor=1", "--json"]) == 0
    told = capsys.readouterr()
    assert "data=8 of a model without experts is 8 replicas of 1 chip each." in told.err
    first = json.loads(told.out)["configs"][0]
    assert (first["data"], first["chips"], first["copies"]) == (1, 1, 8)
    assert main([*ASKED, "--plan", "data=8,tensor=1"]) == 3
    assert "tensor=1 needs 145.6 GB per chip" in " ".join(capsys.readouterr().out.split())


WRONG = {
    "unknown model": (["serve", "lama3-8b", "--on", "h100"], "did you mean"),
    "unknown chip": (["serve", "llama3-8b", "--on", "h10"], "There is no chip"),
    "nowhere": (["serve", "llama3-8b"], "Say what to serve on"),
    "no prompt": ([*ASKED[:5], "0"], "at least one token"),
    "endless output": ([*ASKED[:4], "--output", "1e30"], "at most"),
    "half a token": ([*ASKED[:4], "--prompt", "0.5"], "whole number"),
    "bare target": ([*ASKED, "--tpot", "30"], "no unit"),
    "zero target": ([*ASKED, "--ttft", "0ms"], "more than nothing"),
    "bare rate": ([*ASKED, "--rate", "20"], "no unit"),
    "unknown engine": ([*ASKED, "--engine", "vlm"], "did you mean 'vllm'"),
    "unknown dtype": ([*ASKED, "--dtype", "fp9"], "There is no dtype"),
    "no kernels": ([*ASKED, "--weights", "bf16", "--compute", "fp8"], "no kernels known"),
    "unknown spread": ([*ASKED, "--kv-split", "thin"], "way to split the KV cache"),
    "empty batch": ([*ASKED, "--batch", "0"], "at least one sequence"),
    "all cached": ([*ASKED, "--cached", "1"], "below 1"),
    "certain": ([*ASKED, "--speculate", "1.5"], "probability"),
    "many drafts": ([*ASKED, "--speculate", "0.5", "--drafts", "99"], "0 to 32"),
    "no configurations": ([*ASKED, "--top", "5000"], "1 to 1000"),
    "plan without equals": ([*ASKED, "--plan", "tensor"], "is not a setting"),
    "plan of nothing": ([*ASKED, "--plan", "tensor=0"], "at least 1"),
    "unknown axis": ([*ASKED, "--plan", "tensr=8"], "did you mean 'tensor'"),
    "missing plan file": ([*ASKED, "--plan", "nowhere.toml"], "cannot be read"),
    "plan everywhere": (["serve", "llama3-8b", "--on", "all", "--plan", "tensor=8"], "needs a chip or a slice"),
    "plan of several": (["serve", "llama3-8b", "--on", "h100,v5e", "--plan", "tensor=8"], "one chip or slice"),
    "plan too large": ([*ASKED, "--plan", "tensor=16"], "is for 16 chips"),
    "ragged heads": ([*ASKED, "--plan", "tensor=3"], "does not divide"),
    "experts of none": ([*ASKED, "--plan", "tensor=8,expert=8"], "no experts"),
    "many stages": ([*ASKED[:3], "h100:128", "--plan", "pipe=128,tensor=1"], "layers"),
    "scattered experts": (
        ["serve", "deepseek-v3", "--on", "h100:16", "--plan", "tensor=8,pipe=2,expert=16"],
        "data x tensor",
    ),
    "plot ending": ([*ASKED, *QUICK, "--plot", "x.bmp"], "should end in"),
    "unknown flag": ([*ASKED, "--verfiy"], "dscale serve --help"),
    "no inference rows": (["validate", "inference", "nowhere.csv"], "cannot be read"),
    "no serving rows": (["validate", "serving", "nowhere.csv"], "cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = WRONG[name]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert expected in told.err
    assert told.err.count("dscale: ") == 1


@pytest.mark.parametrize(
    "text",
    [
        "model = 3\n[plan]\ntensor = 8\n",
        'plan = "x"\n',
        "batch = -1\n[plan]\ntensor = 8\n",
        "[plan]\ntensor = 8\n[other]\n",
    ],
)
def test_broken_plan_files(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert main([*ASKED, "--plan", str(path)]) == 2
    assert capsys.readouterr().err.startswith("dscale: ")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flag=st.sampled_from(["--plan", "--on", "--tpot", "--rate", "--prompt", "--dtype", "--batch"]),
    text=st.text(max_size=12),
)
def test_any_text_is_answered_or_refused(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*ASKED[:4], *QUICK, f"{flag}={text}"]
    assert main(arguments) in (0, 2, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_remedies_are_other_than_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest batch that meets the target, larger slices only, and formats narrower than the
    checkpoint's own fp8."""
    asked = ["serve", "deepseek-v3", "--on", "h200:8", "--tpot", "40ms"]
    text = " ".join(printed([*asked, "--batch", "128"], capsys, code=4).split())
    batch = int(re.search(r"A batch of (\d+) would", text).group(1))  # type: ignore[union-attr]
    free = answered(asked, capsys)
    most = max(one["batch"] for one in free["configs"])  # which was run, and keeps the target with a margin
    assert 0.9 * batch < most <= batch
    assert int(re.search(r"More chips would: h200:(\d+)", text).group(1)) > 8  # type: ignore[union-attr]
    assert "Quantised to fp8" not in text
    assert re.search(r"A batch of \d+ would make \+\d+% tokens, but its TPOT of \S+ misses the 40ms", free["advice"])


@pytest.mark.slow
def test_an_unattainable_tpot_is_told_what_drafts_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "h100:1", "--tpot", "4ms"]
    text = " ".join(printed(asked, capsys, code=4).split())
    found = re.search(r"\(--accept 0.7\) it would: ([\d.]+)ms .* batch (\d+), drafts", text)
    assert found
    drafted = answered([*asked, "--accept", "0.7"], capsys)["configs"][0]
    assert (f"{drafted['tpot_s'] * 1e3:.3g}", drafted["batch"]) == (found.group(1), int(found.group(2)))


def test_chips_that_do_not_divide_heads_are_not_called_short_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(["serve", "llama3.1-70b", "--on", "h100:3"], capsys, code=3).split())
    assert "64 heads, which 3 chips do not divide" in text
    assert "tensor=2 on h100:2 and tensor=4 on h100:4" in text
    assert "memory" not in text


def test_refused_formats_name_those_that_the_chip_has(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(["serve", "llama3-8b", "--on", "v100:1", "--quantize", "fp8"], capsys, code=3).split())
    assert "take --dtype fp16 or --quantize int4" in text
    printed(["serve", "llama3-8b", "--on", "v100:1", "--quantize", "int4"], capsys)


def test_a_fleet_takes_whole_slices_where_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3.1-70b", "--prompt", "2048", "--output", "512", "--tpot", "40ms", "--rate", "22/s"]
    whole = answered([*asked, "--on", "h100:8"], capsys)["configs"]
    for one in whole:
        assert one["fleet_chips"] % 8 == 0
        assert one["fleet_chips"] == one["replicas"] * one["chips"]
    free = answered([*asked, "--on", "h100"], capsys)["configs"][0]
    assert free["fleet_chips"] <= whole[0]["fleet_chips"] < free["fleet_chips"] + 8


def test_a_small_step_far_from_its_bound_is_bound_by_latency(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3.1-70b", "--on", "b200:8", "--plan", "tensor=8"]
    small, large = (answered([*asked, "--batch", batch], capsys)["configs"][0] for batch in ("1", "512"))
    assert small["decode_step_s"] > 2.5 * small["roofline_s"]
    assert small["bound_by"] == "latency"
    assert large["bound_by"] != "latency"


def test_an_answer_of_one_token_has_no_time_per_token(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "h100:1", "--output", "1", "--tpot", "1us"]
    assert answered(asked, capsys)["configs"][0]["tpot_s"] == 0
    text = printed(asked, capsys)
    assert "prefill alone, engine" in text
    assert "Decoding" not in text


def test_the_cache_is_its_pages_times_their_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """Layers that slide too: a token of a sequence of this length, not one more."""
    for one in answered(["serve", "gemma3-27b", "--on", "h100:2"], capsys)["configs"]:
        use = one["memory"]
        held = use["cache_bytes"] + use["free_bytes"]
        assert use["pages"] * use["page_tokens"] * use["token_bytes"] == pytest.approx(held, rel=1e-3)
        assert one["batch"] * use["sequence_bytes"] == pytest.approx(use["cache_bytes"])


def test_a_checkpoint_in_fp8_is_named_where_sixteen_bits_miss_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    for model, told in {"qwen3-32b": "Qwen publishes it so", "olmo2-32b": ""}.items():
        asked = ["serve", model, "--on", "h100:1", "--tpot", "24ms", "--json"]
        notes = json.loads(printed(asked, capsys, code=4))["notes"]
        (note,) = (note for note in notes if note.startswith("Quantised to fp8 it would"))
        assert ("publishes it" in note) == bool(told)
        assert told in note


def test_force_says_what_cannot_even_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "llama3-70b", "--on", "h100:8", "--plan", "tensor=3", "--force"]) == 2
    assert "cannot even be judged" in capsys.readouterr().err


def test_a_guess_is_ranked_by_the_slow_end_of_its_band(capsys: pytest.CaptureFixture[str]) -> None:
    """Among several chips, with the very configuration that it has alone: other chips do not change its answer."""
    asked = ["serve", "deepseek-v3", "--tpot", "40ms", "--prompt", "2048", "--output", "512"]
    both = answered([*asked, "--on", "tpu7x:2x2x2,b200:8"], capsys)
    first, guess = both["configs"]
    assert (first["slice"], guess["slice"]) == ("b200:8", "tpu7x:2x2x2")
    assert "tokens" in guess["estimated"]
    share = guess["tokens_low"] / guess["output_tokens_per_s_per_chip"]
    (told,) = (note for note in both["notes"] if "Never measured" in note)
    assert f"tpu7x ({share:.0%})" in told
    alone = answered([*asked, "--on", "tpu7x:2x2x2"], capsys)
    hoped = alone["configs"][0]["cost_usd_per_mtok"] < first["cost_usd_per_mtok"]
    assert ("on tpu7x:2x2x2 would be first" in told) == hoped
    same = ("plan", "engine", "batch", "tpot_s", "output_tokens_per_s_per_chip")
    assert [alone["configs"][0][name] for name in same] == [guess[name] for name in same]
    assert not any("Never measured" in note for note in alone["notes"])
    fleet = answered([*asked, "--on", "tpu7x:2x2x2", "--rate", "5/s"], capsys)
    assert any("sized by the slow end" in note for note in fleet["notes"])
    assert fleet["configs"][0]["counted"] == pytest.approx(share)
    assert fleet["configs"][0]["replicas"] * fleet["configs"][0]["requests_per_s"] * share > 5


def test_without_a_target_users_get_twenty_tokens_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Or half of what the quickest plan gives, where nothing is near that quick; whoever says a batch or a target gets
    those."""
    usual = ["serve", "llama3-70b", "--on", "h100:8", "--prompt", "2048", "--output", "512"]
    report = answered(usual, capsys)
    first, slower = report["configs"][0], answered([*usual, "--tpot", "90ms"], capsys)["configs"][0]
    assert 0.04 < first["tpot_s"] <= 0.05 < slower["tpot_s"]
    assert (report["workload"]["pace_s"], report["workload"]["tpot_s"]) == (0.05, None)
    assert "20 tokens/s or more (a TPOT of at most 50ms)" in report["notes"][-1]
    assert "misses the pace kept without a target" in report["advice"]
    for more in (["--batch", "160"], ["--e2e", "60s"], ["--itl", "90ms"]):
        assert answered([*usual, *more], capsys)["workload"]["pace_s"] is None
    slow = answered(["serve", "llama3-405b", "--on", "a100:16"], capsys)
    pace = slow["workload"]["pace_s"]
    assert 0.05 < slow["configs"][0]["tpot_s"] <= pace
    assert pace == pytest.approx(2 * min(one["tpot_s"] for one in slow["frontier"]))
    assert "twice that of the quickest plan" in slow["notes"][-1]


def test_the_first_row_says_why_it_is_not_the_cheapest(capsys: pytest.CaptureFixture[str]) -> None:
    small = printed(["serve", "gpt-oss-120b", "--on", "gb200", "--no-disaggregate", "--explain"], capsys)
    assert "#1 has the fewest chips of those within 10% of the lowest cost" in small
    assert "#1 " not in printed(["serve", "llama3-70b", "--on", "h100:8", "--plan", "tp8", "--tpot", "40ms"], capsys)


def test_a_bound_of_collectives_is_not_called_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the exchange of experts takes longer than all kernels at datasheet rates."""
    asked = ["serve", "deepseek-v3", "--on", "h100:32", "--plan", "dp32 ep32", "--batch", "4096"]
    one = answered(asked, capsys)["configs"][0]
    assert one["lower_s"] > one["roofline_s"]
    text = " ".join(printed([*asked, "--explain"], capsys).split())
    assert f"{1e3 * one['lower_s']:.3g}ms a decode step at datasheet rates, for its collectives alone" in text


def test_a_table_over_chips_says_what_is_estimated_and_whose_prices_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["serve", "llama3-8b", "--on", "h100:1,tpu7x:1x1x1", "--batch", "32", "--explain"], capsys)
    assert re.search(r"tpu7x:1x1x1 .*~[\d.]+ms", text)
    assert not re.search(r"h100:1 .*~", text)
    told = " ".join(text.split())
    assert "by vllm; #2 by vllm-tpu ~ never measured on that chip: ranked, sized and priced at the slow end" in told
    assert "prices: market for h100; list for tpu7x" in told
    assert "2 a chip: for tensor=1 give vLLM --tensor-parallel-size 2." in told


def test_a_launch_default_that_holds_a_chip_back_is_named_with_what_another_does(capsys: pytest.CaptureFixture) -> None:
    """vLLM takes 256 tokens an iteration on v5p; the value that is named does what it is said to do."""
    asked = ["serve", "llama3-8b", "--on", "v5p:2x2x1", "--prompt", "2048", "--output", "512"]
    own = answered(asked, capsys)
    told = re.search(r"--token-budget 8192 .* would make \+(\d+)% tokens \(a batch of ([\d,]+), TTFT", own["advice"])
    assert told is not None, own["advice"]
    other = answered([*asked, "--token-budget", "8192"], capsys)
    assert "--token-budget" not in other["advice"], "what was said is no default"
    rate = [one["configs"][0]["output_tokens_per_s_per_chip"] for one in (own, other)]
    assert rate[1] / rate[0] - 1 == pytest.approx(int(told[1]) / 100, abs=0.02)
    assert other["configs"][0]["batch"] == int(told[2].replace(",", ""))
    assert "--token-budget" not in answered(["serve", "llama3-8b", "--on", "h100:1"], capsys)["advice"]


def test_a_prompts_chunks_are_those_beside_others(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "l4:2", "--plan", "tensor=2", "--batch", "16", "--prompt", "4096"]
    one = answered(asked, capsys)["configs"][0]
    text = " ".join(printed([*asked, "--explain"], capsys).split())
    chunks = f"in {one['prefill_chunks']} chunks of up to {one['chunk_tokens']:,}"
    assert re.search(rf"4,096 tokens with no other request running; \S+ beside the others, {chunks}", text)
    assert sum(row["expected_s"] for row in one["prefill_terms"]) < one["prefill_s"]


def test_a_prompt_beyond_the_context_is_told_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3.1-8b", "--on", "h100:1", "--prompt", "131072", "--output", "256"]
    assert "131,072 together: --prompt 130816" in " ".join(printed(asked, capsys, 3).split())
    # a batch is a benchmark, which some software runs all the same
    assert main([*asked, "--batch", "1"]) == 0
    assert "the batch is timed all the same; vLLM and SGLang refuse such requests" in capsys.readouterr().err
    asked[asked.index("131072")] = "130816"
    assert main([*asked, "--batch", "1"]) == 0
    assert "timed all the same" not in capsys.readouterr().err


def test_turing_is_served_in_fp16_by_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["serve", "llama3-8b", "--on", "t4:4", "--batch", "8"]
    one = answered(small, capsys)["configs"][0]
    assert (one["engine"], one["dtypes"]["weights"], one["dtypes"]["kv"]) == ("vllm", "fp16", "fp16")
    assert "neither multiplies nor stores bf16" in " ".join(printed([*small, "--dtype", "bf16"], capsys, 3).split())
    assert "--engine vllm" in printed([*small, "--engine", "sglang"], capsys, 3)


def test_cards_without_a_fast_network_stay_in_one_machine_unless_they_must_not(capsys: pytest.CaptureFixture) -> None:
    assert {one["chips"] for one in answered(["serve", "llama3-8b", "--on", "l4"], capsys)["frontier"]} <= {1, 2, 4, 8}
    assert answered(["serve", "llama3-70b", "--on", "gh200", "--top", "1"], capsys)["configs"][0]["chips"] > 1


def test_of_the_whole_catalogue_nobody_is_shown_a_thousand_small_chips(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "qwen2.5-32b", "--on", "any", "--rate", "20/s"]
    few, every = answered(asked, capsys), answered([*asked, "--top", "45"], capsys)
    first, *rest = few["configs"]
    assert not first["slice"].startswith("gh200-144gb")  # which has no price of its own
    assert 1 < len(rest) < 10
    assert all(one["fleet_usd_per_h"] <= 3 * first["fleet_usd_per_h"] for one in rest)
    hidden = {one["slice"] for one in every["configs"]} - {one["slice"] for one in few["configs"]}
    assert "t4:8" in hidden
    assert any("Dearer than these" in note and "t4" in note for note in few["notes"])
    hoped = re.findall(r"At what is expected \S+ on ([\w-]+):", " ".join(few["notes"]))
    own = {one["slice"].partition(":")[0]: one["estimated"] for one in every["configs"]}
    assert all(own[chip] for chip in hoped)  # what was measured is ranked as expected already
    assert any(re.search(r"gb10 \([\d.]+ at most\)", note) for note in few["notes"])


def test_prompts_alone_are_counted_by_their_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    """Embeddings and scores: no output is as one token, and tokens and dollars are the prompt's."""
    asked = ["serve", "qwen3-8b", "--on", "h100:1", "--prompt", "512", "--output"]
    one = answered([*asked, "0"], capsys)["configs"][0]
    assert one == answered([*asked, "1"], capsys)["configs"][0]
    text = printed([*asked, "0"], capsys)
    assert f"{512 * one['requests_per_s']:,.0f} input tok/s per chip" in text
    assert f"${one['cost_usd_per_mtok'] / 512:.3f} per million input tokens" in text


def test_a_nearest_configuration_is_not_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["serve", "llama3-70b", "--on", "h100:8", "--tpot", "1ms"], capsys, 4)
    assert "10.4 times the 1ms asked for" in " ".join(text.split())
    assert "would help" not in text


def test_what_a_narrower_format_makes_is_what_it_makes_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-70b", "--on", "h100:4", "--plan", "tensor=4", "--batch", "88"]
    own, narrow = (answered([*asked, *more], capsys)["configs"][0] for more in ([], ["--quantize", "fp8"]))
    gain = narrow["output_tokens_per_s_per_chip"] / own["output_tokens_per_s_per_chip"] - 1
    text = " ".join(printed([*asked, "--explain"], capsys).split())
    assert f"fp8 makes {gain:+.0%} tokens at this batch" in text


def test_drafts_are_told_with_what_the_whole_replica_gains(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-70b", "--on", "h100:4", "--plan", "tensor=4", "--batch", "32"]
    drafted, plain = (answered([*asked, *more], capsys) for more in (["--draft", "llama3.2-1b", "--accept", "0.7"], []))
    tokens, none = (one["configs"][0]["output_tokens_per_s_per_chip"] for one in (drafted, plain))
    assert drafted["speculation"]["server_gain"] == pytest.approx(tokens / none, rel=1e-6)


def test_prefill_is_named_where_it_takes_most_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    def bound(prompt: int, output: int) -> str:
        lengths = ["--prompt", str(prompt), "--output", str(output)]
        return answered(["serve", "llama3-8b", "--on", "h100:1", "--batch", "16", *lengths], capsys)["advice"]

    assert re.match(r"Bound by prefill \(\d\d% of the time\)", bound(7168, 64))
    assert bound(256, 1024).startswith("Decoding is bound by")


def test_the_rate_that_a_replica_holds_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "h100:1", "--ttft", "p95:1s", "--max-rate"]
    first = next(line for line in printed(asked, capsys).split("\n\n")[1].splitlines())
    rate = max(one["requests_per_s"] or 0.0 for one in answered(asked, capsys)["max_rates"])
    assert first.startswith(f"holds       {rate:.3g} requests/s per replica by running")


def test_a_narrow_cache_that_nobody_asked_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-8b", "--on", "rtx5090:1", "--quantize", "int4"]
    told = "The KV cache is in fp8, taken along with int4 weights"
    assert any(told in note for note in answered(asked, capsys)["notes"])
    assert not any(told in note for note in answered([*asked, "--kv-dtype", "fp8"], capsys)["notes"])


def test_a_prefix_cache_without_shared_prefixes_is_said_to_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    launch = ["serve", "--plan", "vllm serve Qwen/Qwen3-8B --enable-prefix-caching", "--on", "h100:1"]
    for more, told in (([], True), (["--cached", "0.5"], False)):
        assert main([*launch, *more]) == 0
        assert ("No prompts share a prefix here" in capsys.readouterr().err) == told


LAUNCH = "vllm serve meta-llama/Meta-Llama-3-70B-Instruct -tp 8"


def test_a_better_launch_is_what_serve_itself_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a target under the pace of any answer; a flag that holds a launch back is named."""
    best = answered(ASKED, capsys)["configs"][0]
    judged = answered([*ASKED, "--plan", LAUNCH, "--better"], capsys)
    assert (judged["better"]["plan"], judged["better"]["batch"]) == (best["plan"], best["batch"])
    eager = ["serve", "--on", "h100:4", "--plan", "vllm serve Qwen/Qwen2.5-32B-Instruct -tp 4 --enforce-eager"]
    assert "Leaving --enforce-eager out would make +" in " ".join(printed(eager, capsys).split())


def test_a_part_of_a_slice_that_would_do_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["serve", "llama3-8b", "--on", "h100:8", "--rate", "2/s", "--top", "1", "--explain"], capsys)
    assert "rented one by one, 1 replica would do (--on h100:1)" in " ".join(text.split())


def test_what_was_run_and_made_less_is_not_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = answered(["serve", "deepseek-v4-flash", "--on", "h200:8", "--prompt", "1M"], capsys)
    first, *others = (one["output_tokens_per_s_per_chip"] for one in report["configs"])
    assert first > 0.99 * max(others)
