"""Fleets for use cases: the command that an answer prints is run, and bears out its verdict, its latencies and what it
says of caches."""

import shlex

import msgspec
import pytest

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.config import config_report
from dragonscale.commands.serve.confirm import sizing_job
from dragonscale.commands.serve.recommended import next_command
from dragonscale.commands.serve.recommended_reason import recommended_reason
from dragonscale.commands.serve.serve_blocks import fleet_text, idle_text
from dragonscale.commands.serve.serve_question import ServeAsked, read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.serve.variants import compared_text
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.serving.advice.pools import search_pools
from dragonscale.serving.advice.search import ranked, search
from dragonscale.simulation.fleet_sizing import confirmation
from dragonscale.simulation.fleet_sizing.confirmation import run_short
from dragonscale.simulation.fleet_sizing.short_run import short_run_size
from tools.confirm_serving import asked, read

SOME = [  # each of them has a fleet that is recommended
    "llama3.1-8b --on h100:1 --use-case chat --rate 30/s",
    "llama3.1-8b --on h100:1 --use-case code --rate 20/s --ttft p95:250ms",
    "llama3.1-8b --on h100:1 --use-case rag --rate 5/s",
    "llama3.1-8b --on h100:1 --use-case agent --rate 6/s",
]
MANY = [
    "llama3.1-8b --on h100:1 --use-case code --rate 20/s",
    "qwen3-235b-a22b --on b200 --use-case agent --rate 30/s --prompt 20000",
    "qwen3-235b-a22b --on b200:8 --use-case code --rate 30/s",
    "gpt-oss-120b --on h100 --use-case agent --rate 20/s",
    "glm-4.5-air --on h200 --use-case agent --rate 10/s --tpot p95:25ms",
    "llama3.1-8b --on h100 --use-case chat --rate 100/s",
    "qwen3-30b-a3b --on a100:2 --use-case chat --users 20000",
    "deepseek-v3 --on h200:8 --use-case rag --rate 20/s",
    "llama3.3-70b --on h100:8 --use-case rag --rate 10/s",
    "llama3.1-8b --on l40s --use-case code --rate 20/s --ttft p95:300ms",
    "llama3.1-8b --on h100:1 --use-case summarise --rate 5/s",
    "qwen3-32b --on l40s:4 --use-case batch --rate 4/s",
]
APART = 0.2
"""Of a percentile of the one run how far that of the other may be: few requests differ by chance."""


def answered(words: str) -> ServeReport:
    """The answer to a command line."""
    return asked(["serve", *shlex.split(words)])


def rerun(report: ServeReport, *words: str) -> SimulateReport:
    """The command that an answer prints, with other random numbers."""
    return asked([*shlex.split(next_command(report.asked, report))[1:], "--no-max-rate", "--seed", "7", *words])


def check(report: ServeReport, *words: str) -> None:
    """An answer recommends a fleet exactly if its command holds, and both tell the same of it."""
    if report.best is None:
        assert report.exit_code == 4
        assert not next_command(report.asked, report)
        return
    again, run = rerun(report, *words), report.simulated
    assert run is not None
    assert run.meets_slo
    assert again.meets_slo
    assert again.load is not None
    assert not again.load.grows
    for name, goal in report.workload.goals.items():
        ours, theirs = (getattr(one.latency[f"{name}_s"], goal.statistic) for one in (run, again))
        assert ours == pytest.approx(theirs, rel=APART), name
    assert run.cached == pytest.approx(again.cache_hit_rate, abs=0.04)
    assert run.router in ("", again.fleet[0].router)


@pytest.mark.parametrize("words", SOME)
def test_the_printed_command_holds(words: str) -> None:
    report = answered(words)
    assert report.best is not None
    check(report, "--requests", "2000")


@pytest.mark.parametrize("words", MANY)
def test_the_printed_command_holds_at_full_length(words: str) -> None:
    check(answered(words))


def used(**words: object) -> ServeAsked:
    return read_question(ServeQuestion("llama3.1-8b", **{"on": "h100:1", "rate": "20/s", **words}))


def test_a_run_is_judged_by_the_targets_of_its_class() -> None:
    """The targets of a use case are those of a class of traffic."""
    question = used(use_case="code", ttft="p95:1s")
    config = ranked(question, search(question))[0]
    assert run_short(sizing_job(question), config, 4).run.meets_slo
    hard = used(use_case="code", ttft="p95:40ms")
    assert not run_short(sizing_job(hard), config, 4).run.meets_slo


def test_a_class_that_misses_counts_in_how_near_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted: a run may miss though its percentile over all of them is below the target."""
    question = used(use_case="code", ttft="p95:1s")
    config = ranked(question, search(question))[0]
    fine = run_short(sizing_job(question), config, 4)
    assert fine.holds
    assert 0 < fine.worst < 1

    def missed(*_: object) -> dict[str, float]:
        return {"tpot_s": 1.0}

    def ratio(*_: object) -> float:
        return 0.995

    monkeypatch.setattr(confirmation, "worst_ratio", ratio)
    near = run_short(sizing_job(question), config, 4)
    assert (near.config.meets, near.holds, near.worst) == (True, False, 0.995)
    monkeypatch.setattr(confirmation, "missed_targets", missed)
    short = run_short(sizing_job(question), config, 4)
    assert (short.config.meets, short.holds, short.worst) == (False, False, 1.0)


def test_where_no_fleet_holds_none_is_recommended() -> None:
    """Prompts vary so much that a twentieth of them takes longer than the target even alone."""
    report = ds.serve("llama3.1-8b", on="l40s:1", use_case="code", rate="5/s", ttft="p95:350ms")
    assert (report.best, report.exit_code) == (None, 4)
    assert "Nothing meets the targets when it is simulated" in report.notes[0]
    assert not any(one.meets_slo for one in report.configs)
    assert not report.to_dict()["configs"][0]["meets_slo"]
    assert report.configs[0].replicas < 20  # the nearest is not the largest that was tried
    assert not next_command(report.asked, report)


def test_the_router_that_finds_sessions_is_sized_with_printed_and_told() -> None:
    report = answered("llama3.1-8b --on h100:1 --use-case agent --rate 16/s")
    assert report.best is not None
    assert report.best.replicas > 1
    assert report.workload.router == report.simulated.router == "session_sticky"
    assert "--router session_sticky" in next_command(report.asked, report)
    assert "session_sticky:" in text_of(report.sheet(), 200)
    assert report.simulated.cached > 0.85
    words = next_command(report.asked, report).replace("session_sticky", "least_loaded")
    balanced = asked([*shlex.split(words)[1:], "--no-max-rate", "--requests", "1000"])
    assert balanced.cache_hit_rate < report.simulated.cached - 0.05
    assert not balanced.meets_slo
    assert not used(use_case="rag").router  # all prompts begin alike, everywhere
    assert not used(use_case="agent", cached=0.5).router


def test_a_run_of_sessions_is_as_long_as_they_are() -> None:
    question = used(use_case="agent", rate="20/s")
    config = ranked(question, search(question))[0]
    row = config_report(question, config)
    calls, pauses = question.session_calls, question.session_s
    assert (calls, pauses) == (8, 14)
    short = short_run_size(sizing_job(question), config)
    seconds = short.requests / (20 * short.replicas / row.replicas)
    assert seconds >= 1.99 * (pauses + calls * row.latency_s)
    alone = used(use_case="code")
    assert short_run_size(sizing_job(alone), ranked(alone, search(alone))[0]).requests == 1000


def test_the_question_reads_the_same_from_the_printed_words() -> None:
    report = answered("llama3.1-8b --on h100:1 --use-case chat --rate 40/s --tpot p95:25ms")
    question = read(shlex.split(next_command(report.asked, report))[1:])[1]
    assert (question.use_case, question.rate, question.tpot) == ("chat", "40/s", "p95:25ms")
    assert question.replicas == report.best.replicas


def test_chips_that_pools_leave_idle_are_counted_and_told() -> None:
    """Pools of a prefill and a decode replica of one chip each, on a slice of eight that is rented whole."""
    words = {"on": "h100:8", "prompt": "512", "output": "64", "rate": "1/s", "disaggregate": True}
    question = read_question(ServeQuestion("llama3.1-8b", **words))
    pools = min(search_pools(question), key=lambda one: one.pools.prefill.chips + one.pools.decode.chips)
    row = config_report(question, pools)
    used = pools.pools.prefill.chips * pools.pools.prefills + pools.pools.decode.chips * pools.pools.decodes
    assert 0 < row.idle_chips == row.fleet_chips - used
    assert row.idle_usd_per_h == pytest.approx(row.fleet_usd_per_h * row.idle_chips / row.fleet_chips)
    assert idle_text(row) == f", {row.idle_chips} of them idle at ${row.idle_usd_per_h:,.0f}/h"
    whole = config_report(question, ranked(question, search(question))[0])
    assert (whole.idle_chips, idle_text(whole)) == (0, "")
    beside = compared_text(row, whole)
    assert f"${row.fleet_usd_per_h:,.0f}/h for the rate against ${whole.fleet_usd_per_h:,.0f}/h" in beside
    assert "per million" not in beside  # what full batches would cost


def test_replicas_one_by_one_are_sized_by_the_rule_of_whole_slices() -> None:
    """A chip that was never measured is sized by the slow end of its band, rented in whole slices or not."""
    words = {"plan": "tp2", "quantize": "fp8", "prompt": "2k", "output": "400", "ttft": "1s", "tpot": "50ms"}
    four, two = (
        answer(read_question(ServeQuestion("qwen3-32b", on=on, rate="5.5/s", **words)), brief=True)
        for on in ("l40s:4", "l40s:2")
    )
    assert four.configs[0].counted < 1
    assert four.configs[0].replicas > two.configs[0].replicas
    assert four.configs[0].enough_replicas == two.configs[0].replicas == two.configs[0].enough_replicas
    text = fleet_text(four, four.configs[0])
    assert f"rented one by one, {two.configs[0].replicas} replicas would do (--on l40s:2)" in text
    assert "slow end of the band" in text
    assert "would do" not in fleet_text(two, two.configs[0])


def test_a_dearer_first_row_has_its_reason() -> None:
    report = answered("llama3.1-8b --on h100:1 --use-case rag --rate 5/s")
    assert report.recommended_reason == ""
    first = report.configs[0]
    cheaper = msgspec.structs.replace(first, fleet_usd_per_h=first.fleet_usd_per_h / 2, simulated=False, data=2)
    report.configs = [first, cheaper]
    report.configs[0] = msgspec.structs.replace(first, data=2)
    reason = recommended_reason(report)
    assert reason.startswith("#1 was simulated, with ")
    assert reason.endswith("% of its target; #2 would cost less but was not simulated")
    cheaper.simulated = True
    assert recommended_reason(report) == ""
    cheaper.meets_slo = False
    assert recommended_reason(report) == ""
