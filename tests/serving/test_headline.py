"""The headline of `dscale serve` is what its own simulation gives: the printed command, run again, agrees with it."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve import confirm
from dragonscale.commands.serve.advice import _for_latency  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.serve.config import config_report
from dragonscale.commands.serve.recommended import next_command
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.serving.advice.search import search
from dragonscale.simulation.fleet_sizing.short_run import MAX_RUN_REPLICAS, fleet_job, short_run_size

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("llama3-8b", {"on": "h100:1", "ttft": "400ms", "tpot": "30ms"}),
    "experts on data ranks": ("qwen3-30b-a3b", {"on": "h100:2", "plan": "dp2 ep2", "tpot": "20ms", "output": 256}),
    "small budget": ("llama3-8b", {"on": "h100:1", "tpot": "20ms", "token_budget": 512, "output": 256}),
    "at a rate": ("llama3-8b", {"on": "h100:1", "tpot": "20ms", "ttft": "500ms", "rate": "20/s", "output": 256}),
    "drafts": ("llama3-70b", {"on": "h100:8", "tpot": "12ms", "accept": "0.7", "draft": "llama3-8b", "output": 256}),
    "a shared prefix": ("llama3-8b", {"on": "h100:1", "tpot": "25ms", "cached": 0.5, "output": 256}),
}


def again(report: ServeReport, requests: int) -> SimulateReport:
    """The printed command, read as the terminal reads it, with fewer requests."""
    words = shlex.split(next_command(report.asked, report))
    assert words[:2] == ["dscale", "simulate"]
    pairs = zip(words[3::2], words[4::2], strict=True)
    return ds.simulate(words[2], **{flag[2:].replace("-", "_"): value for flag, value in pairs}, requests=requests)


@pytest.mark.parametrize("case", CASES)
def test_the_printed_command_agrees_with_the_headline(case: str) -> None:
    model, asks = CASES[case]
    report = ds.serve(model, **asks)
    best, run = report.best, report.simulated
    assert best is not None
    assert run is not None
    assert run.meets_slo
    found = again(report, 1500)
    assert found.meets_slo
    rate = report.workload.rate_per_s
    assert (run.rate_per_s, run.clients) == ((rate, None) if rate else (None, best.batch))
    near = {"ttft_s": 0.1, "tpot_s": 0.03 if rate is None else 0.08}  # few requests at random times differ by chance
    for name, part in near.items():
        assert run.latency[name].mean == pytest.approx(found.latency[name].mean, rel=part)
    if rate is None:
        assert found.latency["tpot_s"].mean == pytest.approx(best.tpot_s, rel=0.1)
        assert found.latency["ttft_s"].mean == pytest.approx(best.ttft_s, rel=0.15)
        assert found.rates.output_tokens_per_s_per_chip == pytest.approx(best.output_tokens_per_s_per_chip, rel=0.1)


def test_gaps_between_tokens_are_kept_short_by_a_smaller_token_budget() -> None:
    """A percentile of the gaps waits for others' prompts: with 512 tokens an iteration more requests share a chip than
    with the engine's own 8,192, and the command says so; a budget that is given stays."""
    asks = {"on": "h100:1", "prompt": 6000, "output": 50, "itl": "p99:60ms"}
    report = ds.serve("llama3-8b", **asks)
    assert "--token-budget 512" in next_command(report.asked, report)
    assert any("--token-budget 512 rather than the engine's 8,192" in note for note in report.notes)
    found = again(report, 600)
    assert found.meets_slo
    given = ds.serve("llama3-8b", **asks, token_budget=8192)
    assert given.asked.limits.token_budget == 8192
    assert report.configs[0].cost_usd_per_mtok < 0.8 * given.configs[0].cost_usd_per_mtok


def test_the_answer_shows_its_run() -> None:
    report = ds.serve("llama3-8b", on="h100:1", tpot="p99:30ms", ttft="1s")
    text = text_of(report.sheet(), 200)
    line = text[text.index("\nsimulated") : text.index("\nerror")].replace("\n", " ")
    assert "p99" in line.partition("TPOT")[2]
    assert "p95" in line.partition("TPOT")[0]
    assert f"{report.best.batch} clients" in " ".join(line.split())
    assert "TPOT within 30ms at p99" in text
    assert "not percentiles" not in text


def test_a_percentile_takes_a_smaller_batch_than_a_mean_and_holds() -> None:
    mean, late = (ds.serve("llama3-8b", on="h100:1", ttft=f"{at}:200ms") for at in ("mean", "p99"))
    assert late.best.batch < mean.best.batch
    latency = late.simulated.latency["ttft_s"]
    assert latency.p99 <= 0.2
    # and is not much smaller than it has to be
    assert late.best.batch > 4
    assert late.best.output_tokens_per_s_per_chip < mean.best.output_tokens_per_s_per_chip


def test_a_batch_that_was_given_stays_and_may_miss_its_target() -> None:
    report = ds.serve("llama3-8b", on="h100:1", batch=64, ttft="p99:150ms")
    assert (report.configs[0].batch, report.best, report.exit_code) == (64, None, 4)
    assert "when it is simulated" in report.notes[0]
    assert "TTFT is" in report.configs[0].violations[0]
    assert "at p99" in report.configs[0].violations[0]


def test_a_fleet_that_misses_gets_more_replicas() -> None:
    asks = {"on": "h100:1", "rate": "60/s", "output": 256, "tpot": "40ms"}
    free = ds.serve("llama3-8b", **asks)
    target = 0.9 * free.simulated.latency["ttft_s"].p95
    tight = ds.serve("llama3-8b", **asks, ttft=f"p95:{target}s")
    assert tight.best.replicas > free.best.replicas
    assert tight.best.fleet_chips == tight.best.replicas
    assert tight.best.fleet_usd_per_h == pytest.approx(
        free.best.fleet_usd_per_h * tight.best.replicas / free.best.replicas
    )
    assert tight.simulated.latency["ttft_s"].p95 <= target
    assert f"--replicas {tight.best.replicas} " in next_command(tight.asked, tight)


def test_advice_on_percentiles_is_about_percentiles() -> None:
    """A larger batch whose mean is within a target misses it at the percentile that was asked for."""
    report = ds.serve("llama3-8b", on="h100:1", ttft="p95:250ms", output=128)
    batch = int(report.advice.partition("A batch of ")[2].split()[0])
    assert batch > report.best.batch
    assert "misses the 250ms at p95 asked for" in report.advice
    assert ds.serve("llama3-8b", on="h100:1", batch=batch, output=128).configs[0].ttft_s < 0.3
    fleet = ds.serve("llama3-8b", on="h100:1", tpot="25ms", rate="6/s", output=128)  # half loaded
    assert "misses the 25ms asked for" in fleet.advice
    asked = {"plan": "tp1", "batch": report.best.batch, "better": True}
    given = ds.serve("llama3-8b", on="h100:1", ttft="p95:250ms", output=128, **asked)
    assert given.comparison.startswith("Nothing better")


def test_what_is_far_from_its_run_is_shown_as_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = {"on": "h100:1", "tpot": "30ms"}
    report = ds.serve("llama3-8b", **asks)
    monkeypatch.setattr(confirm, "MAX_DIFFERENCE", 0.0)
    shown = ds.serve("llama3-8b", **asks)
    run, row, old = shown.simulated, shown.best, report.best
    assert (row.ttft_s, row.tpot_s) == (run.latency["ttft_s"].mean, run.latency["tpot_s"].mean)
    assert row.output_tokens_per_s_per_chip == run.output_tokens_per_s_per_chip
    made = row.output_tokens_per_s_per_chip / old.output_tokens_per_s_per_chip
    assert row.cost_usd_per_mtok == pytest.approx(old.cost_usd_per_mtok / made)
    assert row.tpot_high_s / row.tpot_s == pytest.approx(old.tpot_high_s / old.tpot_s)
    state = row.state
    assert (state.ttft, state.tpot) == pytest.approx((row.ttft_s, row.tpot_s))
    assert "what was simulated" in shown.notes[0]
    assert "what was simulated" not in report.notes[0]


def test_alike_replicas_are_run_as_one_and_large_fleets_as_a_few() -> None:
    asked = read_question(ServeQuestion("llama3-8b", on="h100:8", plan="tp1", rate="100/s", tpot="30ms"))
    config = max(search(asked), key=lambda one: one.meets * one.tokens_per_chip)
    replicas = config_report(asked, config).replicas
    assert replicas > MAX_RUN_REPLICAS
    short = short_run_size(confirm.sizing_job(asked), config)
    assert short.replicas == MAX_RUN_REPLICAS
    assert short.rate == pytest.approx(100 * short.replicas / replicas)
    closed = read_question(replace(asked.question, rate=""))
    config = max(search(closed), key=lambda one: one.meets * one.tokens_per_chip)
    job = confirm.sizing_job(closed)
    fleet = fleet_job(job, config, short_run_size(job, config))
    copies = config_report(closed, config).copies
    assert (fleet.main.replicas, fleet.traffic.clients, copies) == (1, config.batch, 8)


def test_drafts_are_in_the_headline_and_where_they_do_not_pay_that_is_said() -> None:
    asks = {"on": "h100:8", "draft": "llama3-8b"}
    quick = ds.serve("llama3-70b", **asks, accept="0.8", tpot="12ms")
    assert quick.best.drafts
    assert f", {quick.best.drafts} drafts a step" in quick.headline()
    assert not any("does not pay" in note for note in quick.notes)
    for more in ({}, {"drafts": 4}):  # none is better, and four are asked for all the same
        slow = ds.serve("llama3-70b", **asks, accept="0.2", **more)
        assert slow.best.drafts == more.get("drafts", 0)
        rows = {row.drafts: row.per_token_s for row in slow.speculation.rows}
        least = rows[4] if more else min(seconds for drafts, seconds in rows.items() if drafts)
        assert any(f"{least / rows[0] - 1:.0%} slower" in note for note in slow.notes)


def test_pools_are_run_at_the_rate_they_are_told_at_and_large_ones_are_left_to_the_command() -> None:
    asks = {"on": "h100:8", "plan": "tp4", "tpot": "20ms", "ttft": "1s", "disaggregate": True, "output": 256}
    report = ds.serve("llama3-70b", **asks)
    best, run = report.best, report.simulated
    assert best.prefill is not None
    assert run.meets_slo
    assert f"--rate {best.requests_per_s:.4g}/s" in next_command(report.asked, report)
    times = {name: run.latency[name].mean for name in ("ttft_s", "tpot_s")}
    assert times == pytest.approx({"ttft_s": best.ttft_s, "tpot_s": best.tpot_s}, rel=confirm.MAX_DIFFERENCE)
    large = ds.serve("deepseek-v3", on="h100:96", tpot="60ms", ttft="2s", disaggregate=True, accept="0.8,0.6,0.5")
    assert large.simulated is None
    assert any("the next command runs it" in note for note in large.notes)


def test_a_batch_that_cannot_or_need_not_grow_is_not_told_to() -> None:
    """Steps of small kernels: a larger batch costs little up to the batch at which matmuls take over, if it fits."""
    asked = read_question(ServeQuestion("gpt-oss-120b", on="h100:8", plan="dp8 ep8"))
    small, *_, large = sorted(search(asked), key=lambda one: one.batch)
    assert "a larger batch costs little" in _for_latency(asked, small, 1000.0, [])
    assert "a larger batch" not in _for_latency(asked, replace(small, most=small.batch), 1000.0, [])
    assert "a larger batch" not in _for_latency(asked, large, large.batch / 2, [])


def test_fewer_chips_are_advised_only_where_they_lose_little() -> None:
    asked = read_question(ServeQuestion("gpt-oss-120b", on="h100:8", plan="dp8 ep8"))
    eight = search(asked)[0]
    half = replace(eight.state, requests=float(eight.state.requests) / 2)
    four = replace(eight, plan=replace(eight.plan, data=4, expert=4), state=half)
    slow = replace(four, state=replace(half, met=float(half.met) + 100))
    few = replace(four, state=replace(half, requests=float(half.requests) / 2))
    assert float(slow.state.tpot) > 1.1 * float(four.state.tpot)
    for other, told in ((four, True), (slow, False), (few, False), (eight, False), (replace(four, meets=False), False)):
        assert ("fewer chips" in _for_latency(asked, eight, 1000.0, [eight, other])) == told
