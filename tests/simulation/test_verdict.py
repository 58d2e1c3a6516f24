"""The verdict of `dscale simulate`: what it says can be served is what its own runs serve, just below and not just
above."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.simulate.simulate_sheet import summary
from dragonscale.physics.units import render
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation import (
    Fixed,
    Fleet,
    LinearTimes,
    OpenLoop,
    Poisson,
    Pool,
    Scheduler,
    SimulationOptions,
    simulate,
)
from dragonscale.simulation.backlog import load_of, saturated_per_s
from dragonscale.simulation.fleet_sizing import capacity
from dragonscale.simulation.fleet_sizing.capacity import faster
from dragonscale.simulation.fleet_sizing.missed_targets import missed_targets

ONE = SimulateQuestion(
    "llama3.1-8b", on="h100:1", plan="weights=fp8,compute=fp8,kv=fp8", requests="3000", engine="generic"
)
FLEETS: dict[str, dict[str, Any]] = {
    "lognormal lengths": {"rate": "40/s", "lengths": "lognormal", "cv": 2.0},
    "prefixes on the host": {
        "rate": "14/s",
        "prompt": "8192",
        "prefixes": "200x7000,skew=1",
        "host_cache": "500GB",
        "requests": "6000",
    },
    "a small cache": {"on": "a100-40gb:1", "plan": "", "rate": "6/s", "prompt": "4096", "output": "512"},
    "autoscaled": {"rate": "200/s", "autoscale": "1..3,target=64,startup=5s"},
}


def asked(question: SimulateQuestion) -> SimulateReport:
    return run_simulation(read_question(question))[0]


SLOW = ("prefixes on the host", "a small cache", "lognormal lengths")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FLEETS]
)
def test_what_can_be_served_is_confirmed_by_running(name: str) -> None:
    question = replace(ONE, **FLEETS[name])
    asked = read_question(question)
    report, _ = run_simulation(asked)
    found, rate = report.capacity, asked.job.traffic.rate
    assert "Overloaded" in report.advice
    assert found is not None
    assert found.requests_per_s is not None
    assert rate is not None
    assert found.runs <= 4
    for part in (0.95, 1.05):
        source = faster(asked.job.source, part * found.requests_per_s / rate, asked.job.source.requests)
        load = load_of(simulate(asked.job.fleet, source, asked.job.options), bool(question.autoscale))
        assert load is not None
        assert load.grows == (part > 1), part
    # the replicas that it asks for are what the rate takes at 85% of that, and no more
    have = 3 if question.autoscale else 1
    assert found.replicas == -(-rate // (0.85 * found.requests_per_s / have))
    assert found.chips == found.replicas
    assert found.usd_per_h is not None
    assert f"{found.replicas}" in report.advice


def test_a_trace_is_tried_at_other_speeds(tmp_path: Path) -> None:
    rows = (f"{place / 50:.3f},{500 + 37 * place % 3000},{40 + 11 * place % 400}" for place in range(2500))
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n")
    question = SimulateQuestion("llama3.1-8b", on="h100:1", trace=str(trace), engine="generic")
    report = asked(question)
    assert report.load is not None
    assert report.load.grows
    speed = float(report.advice.split("--speed ")[1].split(")")[0])
    loads = [asked(replace(question, speed=part * speed, max_rate=False)).load for part in (0.95, 1.05)]
    assert [load.grows for load in loads if load is not None] == [False, True]


def test_an_autoscaled_fleet_that_keeps_up_is_not_overloaded() -> None:
    """A fleet that begins with one replica and grows to what the rate needs."""
    more = {"rate": "40/s", "autoscale": "1..8,target=32,startup=10s", "requests": "6000", "ttft": "2s", "tpot": "50ms"}
    report = asked(replace(ONE, **more))
    assert report.rates.good_share > 0.95
    assert report.meets_slo is True
    assert report.capacity is None
    assert report.load is not None
    assert not report.load.grows
    assert "Overloaded" not in report.advice
    assert "keeps up" in report.advice


def test_the_target_that_is_missed_most_is_named() -> None:
    for ttft, tpot, worst in (("150ms", "2ms", "TPOT"), ("20ms", "20ms", "TTFT")):
        report = asked(replace(ONE, rate="4/s", requests="1000", ttft=ttft, tpot=tpot, max_rate=False))
        ratios = report.target_ratios
        assert report.meets_slo is False
        assert report.bound_by == worst
        assert max(ratios, key=lambda name: ratios[name]) == f"{worst.lower()}_s"


def test_a_target_is_met_where_enough_requests_meet_it() -> None:
    """Not where a percentile, right to half a percent, is no more than the target."""
    pool = Pool(LinearTimes(0.02, 0.0, 0.0, 0.0), 400_000)
    traffic = OpenLoop(Poisson(1.0), 200, Fixed(100), Fixed(50))
    for target, met in ((0.01999, 0.0), (0.02001, 1.0)):
        result = simulate(Fleet(pool), traffic, SimulationOptions(tpot_s=target))
        assert result.met == {"tpot_s": met}
        for statistic in ("mean", "p95"):
            missed = missed_targets(result, {"tpot_s": LatencyTarget(target, statistic)})
            assert list(missed) == ([] if met else ["tpot_s"])


def test_each_target_has_its_own_statistic_and_a_request_is_good_if_it_meets_all() -> None:
    more = {"ttft": "mean:1s", "tpot": "p50:1s", "itl": "p99:30ms", "e2e": "1s"}
    report = asked(replace(ONE, rate="4/s", requests="1000", **more, max_rate=False, percentile=90))
    assert report.statistics == {"ttft_s": "mean", "tpot_s": "p50", "itl_s": "p99", "e2e_s": "p90"}
    assert report.slo == {"ttft_s": 1.0, "tpot_s": 1.0, "itl_s": 0.03, "e2e_s": 1.0}
    for name, at in report.statistics.items():
        assert report.target_ratios[name] == getattr(report.latency[name], at) / report.slo[name]
    result = report.result
    assert result.met["ttft_s"] == result.met["tpot_s"] == 1
    # tokens wait for prompts now and then; most requests take longer than a second in all, and only others are good
    assert 0.9 < result.met["itl_s"] < 1
    assert 0 < result.met["e2e_s"] == report.rates.good_share < 0.5
    assert report.bound_by == "E2E"
    assert "at p90" in report.advice
    assert "p99 ITL" in report.headline()


def test_a_mean_may_meet_what_a_percentile_misses() -> None:
    found = asked(replace(ONE, rate="4/s", requests="1000", max_rate=False))
    between = render((found.latency["ttft_s"].mean + found.latency["ttft_s"].p95) / 2, "s")
    judged = [
        asked(replace(ONE, rate="4/s", requests="1000", max_rate=False, ttft=ttft, percentile=percentile)).meets_slo
        for ttft, percentile in ((between, None), (f"p95:{between}", None), (between, 95), (f"mean:{between}", 95))
    ]
    assert judged == [True, False, False, True]


def test_an_autoscaled_fleet_begins_with_its_least_and_names_its_startup() -> None:
    more = {"rate": "80/s", "requests": "4000", "ttft": "200ms", "max_rate": False}
    report = asked(replace(ONE, **more, autoscale="3..8,target=4,startup=20s"))
    assert (report.fleet[0].replicas, report.fleet[0].most_replicas) == (3, 8)
    assert report.meets_slo is False
    assert "20s after it is asked for" in report.advice


def test_requests_beyond_the_context_are_refused() -> None:
    question = replace(ONE, rate="2/s", requests="400", prompt="6000", lengths="lognormal", cv=0.5)
    report = run_simulation(read_question(replace(question, model="llama3-8b")))[0]
    assert 0 < report.requests.refused["longer than the model's context"] < 400
    assert not asked(question).requests.refused  # llama3.1 takes 16 times as many tokens


def test_what_came_is_told_beside_what_was_asked_for() -> None:
    report = asked(replace(ONE, rate="4/s", requests="4000", output="32"))
    assert report.rates.arrived_per_s == pytest.approx(report.rates.requests_per_s, rel=0.01)
    assert "keeps up with 4 requests/s" in report.advice


@pytest.mark.slow
def test_targets_are_met_at_the_largest_rate_and_not_above() -> None:
    question = replace(ONE, rate="30/s", ttft="1s", tpot="20ms", percentile=99)
    found = asked(question).capacity
    assert found is not None
    assert found.requests_per_s is not None
    assert found.limited_by == "tpot_s"
    assert found.percentile == 99
    assert found.good_share is not None
    assert found.good_share >= 0.98
    one = replace(question, max_rate=False)
    met = [asked(replace(one, rate=f"{part * found.requests_per_s}/s")).meets_slo for part in (0.9, 1.1)]
    assert met == [True, False]
    assert asked(replace(one, rate="30/s", replicas=found.replicas)).meets_slo is True


def test_a_target_that_lone_requests_miss_is_missed_at_any_rate() -> None:
    tight = asked(replace(ONE, rate="4/s", requests="500", tpot="1ms"))
    assert tight.capacity is not None
    assert tight.capacity.requests_per_s is None
    assert "at any rate" in tight.advice


def test_a_class_that_misses_its_target_alone_is_named_though_others_are_refused() -> None:
    """Some prompts are longer than the context, and fewer than a target's percentile allows for."""
    long = "docs,rate=1/s,prompt=3000,output=16,lengths=lognormal,cv=0.5,ttft=p90:60ms,chat,rate=2/s,ttft=p95:2s"
    question = SimulateQuestion("llama3-8b", on="h100:1", requests="1000", classes=long, max_rate=True)
    report = asked(question)
    assert report.requests.refused
    assert "TTFT of docs misses its target at any rate, since requests that are alone take p90" in report.advice
    assert "refused" not in report.advice


def test_prompts_alone_are_priced_by_their_tokens_everywhere() -> None:
    report = asked(replace(ONE, rate="400/s", prompt="512", output="0", ttft="p95:200ms"))
    rows = {row.label: row.text for row in summary(report).rows}
    assert report.capacity is not None
    assert report.capacity.usd_per_h is not None
    assert "per million input tokens" in rows["cost"]
    price = report.capacity.usd_per_h * 1e6 / 3600 / (400 * 512)
    assert f"${price:.3f} per million input tokens" in rows["holds"]
    assert "planner" not in rows
    assert "TPOT" not in report.advice


def test_failures_are_counted_and_offline_work_is_bound_by_what_is_full() -> None:
    report = asked(replace(ONE, rate="4/s", replicas=2, requests="400", fail="0@20s+10s"))
    assert report.requests.failures == 1
    rows = {row.label: row.text for row in summary(report).rows}
    assert "1 replica failure" in rows["requests"]
    whole = replace(ONE, arrivals="at-once", prompt="4096", output="512", deadline="10h", requests="1500")
    assert asked(whole).bound_by == "the KV cache"


def test_a_fleet_with_room_says_how_much_only_when_asked() -> None:
    quiet = asked(replace(ONE, rate="4/s", requests="1000"))
    assert quiet.capacity is None
    found = asked(replace(ONE, rate="4/s", requests="1000", max_rate=True)).capacity
    assert found is not None
    assert found.requests_per_s is not None
    assert found.requests_per_s > 10


TIMES = LinearTimes(0.02, 1e-4, 0.0, 5e-5)


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_the_backlog_grows_where_more_comes_than_is_served(part: float) -> None:
    pool = Pool(TIMES, 400_000, Scheduler("chunked", sequences=32, tokens=2048), replicas=2)
    most = 2 * 32 / (101 * (0.02 + 32e-4) + 32 * 1000 * 5e-5)
    result = simulate(Fleet(pool), OpenLoop(Poisson(part * most), 6000, Fixed(1000), Fixed(101)))
    load = load_of(result)
    assert load is not None
    assert load.grows == (part > 1)
    assert load.growth_per_s == pytest.approx(max(part - 1, 0) * most, abs=0.06 * most)
    if part > 1:
        assert saturated_per_s(result) == pytest.approx(most, rel=0.05)
        assert load.served_per_s == pytest.approx(most, rel=0.05)


def test_fewer_replicas_are_found_where_fewer_hold() -> None:
    question = SimulateQuestion(
        "llama3.1-8b", on="h100:1", replicas=4, rate="8/s", requests="2000", engine="generic", max_rate=True
    )
    report = asked(question)
    assert report.capacity is not None
    assert report.capacity.replicas is not None
    assert report.capacity.replicas < 4
    assert "would help" not in [row.label for row in summary(report).rows]


def holds(report: SimulateReport) -> bool:
    return report.meets_slo is not False and not (report.load is not None and report.load.grows)


def changed(question: SimulateQuestion, monkeypatch: pytest.MonkeyPatch) -> tuple[SimulateReport, dict[str, Any]]:
    """A fleet that does not hold, and the change that it names; which holds where it is asked for."""
    monkeypatch.setattr(capacity, "MIN_REQUESTS", 1000)
    report = asked(question)
    assert not holds(report)
    assert report.capacity is not None
    change = report.capacity.change
    for name, value in change.items():
        assert f"--{name.replace('_', '-')} {value}" in report.advice
    assert holds(asked(replace(question, **change, max_rate=False))), report.advice
    return report, change


POOLS = replace(ONE, prefill_on="h100:1", prefill_plan=ONE.plan, requests="1200", ttft="p95:150ms", tpot="p95:9ms")


@pytest.mark.parametrize(("replicas", "prefills"), [(4, 1), (1, 4)])
def test_only_the_pool_that_is_short_grows(replicas: int, prefills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    question = replace(POOLS, rate="30/s", replicas=replicas, prefill_replicas=prefills)
    report, change = changed(question, monkeypatch)
    grown = change["replicas"] > replicas, change["prefill_replicas"] > prefills
    assert grown == (replicas == 1, prefills == 1), report.advice
    assert change["replicas"] <= 4 + (replicas == 1)
    assert change["prefill_replicas"] <= 4 + (prefills == 1)


def test_the_pool_that_requests_queue_for_is_named() -> None:
    """A prefill pool whose iterations take what there is may never rest and have room; one that is short has the queue.
    How busy it is counts until the last prompt, not while the last requests decode."""
    free = replace(POOLS, ttft="", tpot="", requests="600", max_rate=False, output="400")
    few = asked(replace(free, rate="60/s", replicas=4, prefill_replicas=1))
    places = asked(replace(free, rate="60/s", replicas=1, prefill_replicas=4, max_seqs=64))
    assert (few.bound_by, places.bound_by) == ("the prefill pool", "places in batches")
    busy = [row.busy_share for row in few.replicas if row.pool == "prefill"]
    assert busy[0] > 0.98
    late = asked(replace(free, rate="25/s", replicas=4, prefill_replicas=1, ttft="p95:50ms"))
    assert "more --prefill-replicas" in late.advice


def test_an_autoscaled_fleet_is_told_to_begin_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever target is missed, replicas that start are the cause where the fleet could grow."""
    more = {"rate": "60/s", "autoscale": "1..8,target=16,startup=30s", "tpot": "p95:15ms"}
    report, change = changed(replace(ONE, **more, requests="2000"), monkeypatch)
    assert "30s after it is asked for" in report.advice
    least, _, rest = change["autoscale"].partition("..")
    assert 1 < int(least) <= 8
    assert rest == "8,target=16,startup=30s"
    assert report.capacity is not None
    assert report.capacity.chips is not None
    assert report.capacity.chips >= int(least) - 1


def test_more_places_come_before_more_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    question = replace(ONE, rate="14/s", max_seqs=16, ttft="p95:500ms")
    report, change = changed(question, monkeypatch)
    assert change == {"max_seqs": 64}
    assert report.bound_by == "places in batches"


def test_refused_requests_meet_no_target() -> None:
    long = replace(ONE, model="llama3-8b", rate="2/s", requests="400", prompt="6000", lengths="lognormal", cv=0.5)
    for target in ("p95:10s", "10s"):
        report = asked(replace(long, ttft=target))
        refused = sum(report.requests.refused.values()) / report.requests.arrived
        assert report.result.met["ttft_s"] == pytest.approx(1 - refused, abs=0.05)
        assert report.meets_slo is False
        assert "were refused (longer than the model's context)" in report.advice
        assert "refused at any rate" in report.advice


def test_what_tells_of_a_replica_stands_beside_its_cache() -> None:
    report = asked(replace(ONE, rate="10/s", requests="1000"))
    row = next(row.text for row in summary(report).rows if row.label == "replicas")
    own = report.use["serve"]
    assert f"({own.places_share:.0%} of places)" in row
    assert f"prompts in {own.prompt_share:.0%} of the time, filling {own.budget_share:.0%} of the token budget" in row
    assert 0 < own.places_share < own.prompt_share < 1
    assert 0 < own.budget_share < 1


def test_a_prefill_pool_that_never_rests_and_has_room_bounds_nothing() -> None:
    """Ranks that take turns: iterations follow each other a tenth full, and the queue does not grow."""
    wide = "tensor=2,data=8,expert=16,weights=fp8,compute=fp8_block"
    question = SimulateQuestion(
        model="deepseek-v3", on="h100:16", plan=wide, prefill_on="h100:16", prefill_plan=wide, rate="45/s",
        requests="3000", prompt="2048", output="64", max_seqs=80, accept="0.8,0.6,0.5", drafts=2,
    )  # fmt: skip
    report = asked(question)
    assert next(row.busy_share for row in report.replicas if row.pool == "prefill") > 0.98
    assert report.bound_by == "the traffic"
