"""`dscale simulate`: what it prints, what it refuses, and what it says about overload, silence and failure."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.faces.cli import main

FLEET = ["simulate", "llama3-8b", "--on", "h100:1"]
QUICK = [*FLEET, "--rate", "4/s", "--requests", "300"]


def asked(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_json_says_what_became_of_every_request(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked([*QUICK, "--ttft", "2s", "--tpot", "50ms"], capsys)
    found = report["requests"]
    assert found["arrived"] == 300 == found["finished"] + sum(found["refused"].values()) + found["unfinished"]
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        one = report["latency"][name]
        assert 0 <= one["p50"] <= one["p90"] <= one["p95"] <= one["p99"] <= one["max"] * 1.01
    assert report["meets_slo"] is True
    assert report["rates"]["good_share"] > 0.9
    assert report["rates"]["cost_usd_per_mtok"] > 0
    assert report["latency"]["tpot_s"]["mean"] == pytest.approx(report["analytic"]["tpot_s"], rel=0.15)


def test_the_same_seed_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (asked([*QUICK, "--seed", "3"], capsys) for _ in range(2))
    other = asked([*QUICK, "--seed", "4"], capsys)
    assert first == again
    assert first["latency"] != other["latency"]


def test_a_missed_target_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked([*QUICK, "--tpot", "1ms"], capsys, code=4)
    assert report["meets_slo"] is False
    assert "TPOT" in report["advice"]


def test_overload_says_how_many_replicas_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked([*FLEET, "--rate", "200/s", "--requests", "1500"], capsys)
    assert "Overloaded" in report["advice"]
    needed = int(report["advice"].split("--replicas ")[1].split()[0])
    assert needed > 10
    assert report["requests"]["finished"] == 1500


def test_no_traffic_and_single_tokens_are_no_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    silent = asked([*FLEET, "--clients", "4", "--requests", "0"], capsys)
    assert silent["requests"]["arrived"] == 0
    short = asked([*FLEET, "--rate", "4/s", "--requests", "50", "--prompt", "1", "--output", "1"], capsys)
    assert short["requests"]["finished"] == 50


def test_prompts_longer_than_the_cache_are_refused_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked([*FLEET, "--rate", "1/s", "--requests", "5", "--prompt", "5M", "--force"], capsys)
    assert sum(report["requests"]["refused"].values()) == 5
    assert report["bound_by"] == "refusals"


def test_a_replica_dies_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    report = asked([*QUICK, "--replicas", "2", "--fail", "1@20s+10s"], capsys)
    assert report["requests"]["finished"] == 300
    assert report["requests"]["retried"] > 0


def test_pools_drafts_prefixes_and_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    apart = asked([*QUICK, "--prefill-on", "h100:1"], capsys)
    assert [pool["name"] for pool in apart["fleet"]] == ["decode", "prefill"]
    drafted = asked([*QUICK, "--drafts", "3", "--acceptance", "0.7"], capsys)
    assert 2.2 < drafted["tokens_per_verify_step"] < 2.9
    shared = asked([*QUICK, "--prefixes", "5x1024", "--router", "prefix_affinity"], capsys)
    assert 0.35 < shared["cache_hit_rate"] < 0.5
    grown = asked([*QUICK, "--autoscale", "1..4,target=4,startup=5s"], capsys)
    assert grown["requests"]["finished"] == 300


@pytest.mark.parametrize("zipped", [False, True])
def test_a_trace_is_replayed(tmp_path: Path, zipped: bool, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i * 0.3},{200 + i},{20 + i % 7}\n" for i in range(60))
    path = tmp_path / ("trace.csv.gz" if zipped else "trace.csv")
    path.write_bytes(gzip.compress(rows.encode()) if zipped else rows.encode())
    report = asked([*FLEET, "--trace", str(path)], capsys)
    assert report["requests"]["finished"] == 60
    assert report["simulated_s"] > 17


def test_a_saved_serving_plan_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    saved = ["serve", "llama3-8b", "--on", "h100:2", "--dtype", "fp8", "--prompt", "512", "--output", "64"]
    assert main([*saved, "--plan", "tensor=2", "--engine", "vllm", "--save", str(plan)]) == 0
    capsys.readouterr()
    few = ["--rate", "2/s", "--requests", "40"]
    whole = asked(["simulate", str(plan), *few], capsys)
    assert whole["fleet"][0]["slice"] == "h100:2"
    assert whole["fleet"][0]["engine"] == "vllm"
    assert "fp8" in whole["fleet"][0]["plan"]
    assert asked(["simulate", "llama3-8b", "--on", "h100:2", "--plan", str(plan), *few], capsys) == whole


HANDED: dict[str, list[str]] = {
    "copies of a slice": ["llama3-70b", "--on", "h100:8", "--dtype", "fp8", "--tpot", "60ms"],
    "a rate and targets": [
        "llama3-8b",
        "--on",
        "h100",
        "--dtype",
        "fp8",
        "--rate",
        "20/s",
        "--ttft",
        "1s",
        "--tpot",
        "50ms",
    ],
    "a prefix": ["llama3-8b", "--on", "h100:1", "--dtype", "fp8", "--prompt", "4k", "--cached", "0.5"],
    "drafts": ["llama3-8b", "--on", "h100:1", "--dtype", "fp8", "--speculate", "0.8", "--batch", "4"],
    "limits": [
        "llama3-8b",
        "--on",
        "h100:1",
        "--dtype",
        "fp8",
        "--engine",
        "vllm",
        "--max-seqs",
        "40",
        "--token-budget",
        "1024",
        "--memory-fraction",
        "0.8",
    ],
}


@pytest.mark.parametrize("name", HANDED)
def test_what_serve_saves_is_simulated_as_it_is(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    assert main(["serve", *HANDED[name], "--save", path, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    best, work = planned["configs"][0], planned["workload"]
    assert main(["serve", HANDED[name][0], "--plan", path, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    own = {"engine_why": "", "pace_s": None}  # a batch that is given has no pace to keep
    assert {**again["workload"], **own} == {**work, **own}
    assert again["configs"][0]["tpot_s"] == pytest.approx(best["tpot_s"])
    report = asked(["simulate", path, "--requests", "3000"], capsys)
    pool, traffic = report["fleet"][0], report["traffic"]
    assert (pool["slice"], pool["plan"]) == (best["copy_slice"], best["plan"])
    assert pool["engine"] == ("vllm" if name == "limits" else pool["engine"])
    assert pool["replicas"] == (best["replicas"] or best["copies"])
    assert (int(traffic["prompt"]), int(traffic["output"])) == (work["prompt"], work["output"])
    assert report["slo"] == {key: work[key] for key in ("ttft_s", "tpot_s") if work[key]}
    if name == "a rate and targets":
        assert report["load"]["grows"] is False
        assert report["meets_slo"] is True
    else:  # as many clients as keep the planned batch full: the planned steady state
        assert traffic["clients"] == best["batch"] * best["copies"]
        assert report["mean_batch"] <= best["batch"]
        assert report["latency"]["tpot_s"]["mean"] == pytest.approx(best["tpot_s"], rel=0.07)
    assert (report["cache_hit_rate"] > 0.4) == (name == "a prefix")
    assert bool(report["tokens_per_verify_step"]) == (name == "drafts")
    other = asked(["simulate", path, "--rate", "1/s", "--output", "32", "--requests", "50", "--replicas", "3"], capsys)
    assert (other["traffic"]["rate"], other["traffic"]["output"]) == ("1/s", "32")
    assert other["fleet"][0]["replicas"] == 3


def test_recommended_pools_are_handed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.toml")
    question = [
        "llama3.1-70b",
        "--on",
        "h200:8",
        "--dtype",
        "fp8",
        "--prompt",
        "8192",
        "--output",
        "256",
        "--tpot",
        "30ms",
    ]
    assert main(["serve", *question, "--ttft", "1s", "--rate", "10/s", "--disaggregate", "--save", path, "--json"]) == 0
    apart = json.loads(capsys.readouterr().out)["disaggregation"]
    assert apart["pays"] is True
    report = asked(["simulate", path, "--requests", "1000"], capsys)
    assert [pool["name"] for pool in report["fleet"]] == ["decode", "prefill"]
    assert [pool["slice"] for pool in report["fleet"]] == [
        apart["pools"][0][name]["copy_slice"] for name in ("decode", "prefill")
    ]
    assert report["load"]["grows"] is False


def test_plan_files_of_before_and_broken_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('model = "llama3-8b"\nslice = "h100:2"\nengine = "vllm"\nbatch = 8\n\n[plan]\ntensor = 2\n')
    report = asked(["simulate", str(path), "--rate", "2/s", "--requests", "40"], capsys)
    assert report["fleet"][0]["slice"] == "h100:2"
    short = asked(
        ["simulate", "llama3-8b", "--on", "h100:4", "--plan", "tp2 pp2", "--rate", "1/s", "--requests", "20"], capsys
    )
    assert short["fleet"][0]["plan"] == "tensor=2,pipe=2"
    for text, told in (
        ('[plan]\ntensor = 2\n[trafic]\nrate = "2/s"\n', "did you mean 'traffic'"),
        ("[plan]\ntensor = 2\n[traffic]\nrate = 2\n", "[traffic] of the plan file"),
        ("replicas = -1\n[plan]\ntensor = 2\n", "write a number of replicas"),
    ):
        path.write_text(f'model = "llama3-8b"\n{text}')
        assert main(["simulate", str(path), "--on", "h100:2"]) == 2
        assert told in capsys.readouterr().err


def test_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, latency, fleet = (tmp_path / name for name in ("run.json", "latency.json", "fleet.json"))
    assert main([*QUICK, "--perfetto", str(trace), "--plot", str(latency)]) == 0
    assert main([*QUICK, "--plot", str(fleet), "--chart", "occupancy"]) == 0
    capsys.readouterr()
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"X", "C", "b", "e"} <= {event["ph"] for event in events}
    assert json.loads(latency.read_text())["layer"]
    assert len(json.loads(fleet.read_text())["concat"]) == 2


def test_the_verdict_comes_first_and_the_next_command_last(capsys: pytest.CaptureFixture[str]) -> None:
    asks = {"on": "h100:1", "rate": "30/s", "requests": 1000, "ttft": "500ms"}
    report = ds.simulate("llama3-8b", **asks)
    assert report.exit_code == 4
    text = text_of(report.sheet(), 80)
    parts = (
        "Does not hold: mean TTFT",
        "\ngoodput ",
        "\nbound by ",
        "\nwould help ",
        "\npercentiles\n",
        "first token (TTFT)",
        "\nfleet\n",
    )
    places = [text.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0
    for width in (60, 80, 120, 200):
        lines = text_of(report.sheet(detail=True), width).splitlines()
        assert max(len(line) for line in lines if "dscale simulate" not in line) <= width
    assert {row["latency"] for row in report.rows()} >= {"ttft_s", "tpot_s", "e2e_s"}
    command = text.splitlines()[-1].split()
    assert main(command[1:]) == 0  # the fleet that would hold does
    assert "Holds: mean TTFT" in capsys.readouterr().out


WRONG = {
    "no traffic said": ([], "Say how requests come"),
    "rate without unit": (["--rate", "4"], "has no unit"),
    "rate and clients": (["--rate", "4/s", "--clients", "3"], "leave --rate out"),
    "unknown router": (["--rate", "4/s", "--router", "least"], "did you mean 'least_loaded'"),
    "unknown arrivals": (["--rate", "4/s", "--arrivals", "poison"], "did you mean 'poisson'"),
    "unknown lengths": (["--rate", "4/s", "--lengths", "log"], "There is no kind of lengths"),
    "unknown engine": (["--rate", "4/s", "--engine", "vlm"], "did you mean 'vllm'"),
    "unknown chart": (["--rate", "4/s", "--chart", "cdf"], "There is no chart"),
    "missing trace": (["--trace", "nowhere.csv"], "cannot be read"),
    "bad failure": (["--rate", "4/s", "--fail", "first"], "REPLICA@TIME"),
    "no clients": (["--clients", "0"], "it is from 1"),
    "scaling upside down": (["--rate", "4/s", "--autoscale", "16..2,target=8"], "2..16"),
    "a budget of one": (["--rate", "4/s", "--token-budget", "1"], "16 tokens or more"),
    "a budget below the batch": (
        ["--rate", "4/s", "--token-budget", "64", "--max-seqs", "128"],
        "less than --max-seqs",
    ),
    "bad scaling": (["--rate", "4/s", "--autoscale", "2-16"], "LEAST..MOST"),
    "bad prefixes": (["--rate", "4/s", "--prefixes", "many"], "GROUPSxTOKENS"),
    "drafts alone": (["--rate", "4/s", "--drafts", "3"], "need --accept"),
    "no replica": (["--rate", "4/s", "--replicas", "0"], "at least 1"),
    "plan of another size": (["--rate", "4/s", "--plan", "tensor=2"], "uses 2 chips"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_gets_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, part = WRONG[name]
    assert main([*FLEET, *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert part in printed.err
    assert printed.err.count("\n") == 1


def test_a_replica_needs_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "llama3-8b", "--rate", "1/s"]) == 2
    assert "Say where a replica runs" in capsys.readouterr().err


def test_a_model_that_does_not_fit_is_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "llama3-70b", "--on", "h100:1", "--rate", "1/s"]) == 3
    assert "GB a chip are missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "clients", "prompt"),
    [("vllm", 1, "120000"), ("vllm", 3, "2048"), ("sglang", 32, "128"), ("trtllm", 8, "8192")],
)
def test_clients_get_what_the_planner_says_of_their_batch(
    engine: str, clients: int, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    same = [
        "llama3.1-8b",
        "--on",
        "h200:1",
        "--plan",
        "tensor=1",
        "--engine",
        engine,
        "--prompt",
        prompt,
        "--output",
        "256",
    ]
    planned = asked(["serve", *same, "--batch", str(clients)], capsys)["configs"][0]
    run = asked(["simulate", *same, "--clients", str(clients), "--requests", "800"], capsys)
    assert run["latency"]["tpot_s"]["mean"] == pytest.approx(planned["tpot_s"], rel=0.03)
    assert run["latency"]["ttft_s"]["mean"] == pytest.approx(planned["ttft_s"], rel=0.03)
    assert run["rates"]["output_tokens_per_s_per_chip"] == pytest.approx(
        planned["output_tokens_per_s_per_chip"], rel=0.03
    )


@pytest.mark.slow
def test_a_run_too_short_to_serve_any_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is served while the requests come, so the search for what holds cannot begin at a part of that."""
    assert (
        main(["simulate", "llama3-8b", "--on", "h100:1", "--rate", "40/s", "--requests", "200", "--ttft", "100ms"]) == 4
    )
    assert "would hold 40/s" in " ".join(capsys.readouterr().out.split())


def test_answers_of_one_token_have_no_times_between_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "llama3-8b", "--on", "h100:1", "--rate", "2/s", "--requests", "50", "--prompt", "512"]
    assert main([*asked, "--output", "1"]) == 0
    text = capsys.readouterr().out
    assert "first token (TTFT)" in text
    assert "per output token (TPOT)" not in text
    assert "between tokens (ITL)" not in text
    assert main([*asked, "--output", "8"]) == 0
    assert "per output token (TPOT)" in capsys.readouterr().out
