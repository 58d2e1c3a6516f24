"""Pools whose replicas run two forms of one engine: what is priced is what is simulated, saved and exported."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import next_command, recommended
from dragonscale.commands.serve.recommended import simulate_question
from dragonscale.commands.serve.serve_question import ServeAsked, read_question
from dragonscale.commands.serve.serve_records import ServeReport, engines_text
from dragonscale.commands.simulate.simulate_question import SimulateAsked
from dragonscale.commands.simulate.simulate_question import read_question as read_simulation
from dragonscale.errors import InputError
from dragonscale.serving.advice.search import search
from dragonscale.serving.engine.plan_file import save_serving_plan
from dragonscale.serving.steady.speculation import own_draft


def asked_for_pools() -> ServeAsked:
    """Pools whose replicas may draft with the checkpoint's own heads."""
    asked = read_question(
        ServeQuestion("glm-5", "h200:32", prompt="16k", output="1k", ttft="3s", tpot="40ms", disaggregate=True)
    )
    return replace(asked, draft=own_draft(asked.model))


@pytest.fixture(scope="module")
def report() -> ServeReport:
    """Prefill by an all-to-all over two servers, decoding by plain SGLang."""
    asked = asked_for_pools()
    return answer(asked, brief=True).came_from(asked, [])


def engines(asked: SimulateAsked) -> tuple[str, str]:
    assert asked.job.prefill is not None
    return asked.job.prefill.deployment.engine.name, asked.job.deployment.engine.name


def test_the_run_has_the_engines_that_were_priced(report: ServeReport, tmp_path: Path) -> None:
    best = report.configs[0]
    assert best.prefill is not None
    priced = best.prefill.engine, best.engine
    assert priced == ("sglang-ep", "sglang")
    assert engines_text(best) == "sglang-ep for prefill and sglang for decode"
    assert engines(read_simulation(simulate_question(report.asked, best))) == priced
    path = str(tmp_path / "plan.toml")
    save_serving_plan(recommended(report.asked, report), path)
    assert engines(read_simulation(SimulateQuestion(path))) == priced
    script = "".join(ds.export(path, to="sglang").files.values())
    servers = script.split("sglang.launch_server")[1:]
    exchanged = {part.partition("--disaggregation-mode ")[2].split()[0]: "deepep" in part for part in servers}
    assert exchanged == {"decode": False, "prefill": True}


def test_first_tokens_come_when_they_were_promised(report: ServeReport) -> None:
    """Prompts of 16k keep the prefill pool busy: under the other form of the engine the queue grows without end."""
    best = report.configs[0]
    words = shlex.split(next_command(report.asked, report))
    flags: dict[str, Any] = {
        word[2:].replace("-", "_"): value for word, value in zip(words[3::2], words[4::2], strict=True)
    }
    run = ds.simulate(words[2], **flags, requests=400, max_rate=False)
    assert run.meets_slo
    assert run.latency["ttft_s"].mean == pytest.approx(best.ttft_s, rel=0.25)


def test_the_engine_of_replicas_that_prefill_can_be_said() -> None:
    flags: dict[str, Any] = {
        "on": "h200:8",
        "plan": "dp8 ep8",
        "rate": "1/s",
        "prefill_on": "h200:16",
        "prefill_plan": "dp16 ep16",
    }
    said: tuple[dict[str, Any], ...] = (
        {},
        {"engine": "auto"},
        {"engine": "sglang"},
        {"engine": "sglang", "prefill_engine": "sglang-ep"},
        {"engine": "vllm"},
    )
    found = [engines(read_simulation(SimulateQuestion("deepseek-v3", **flags, **words))) for words in said]
    assert found == [
        ("sglang-ep", "sglang"),
        ("sglang-ep", "sglang"),
        ("sglang", "sglang"),
        ("sglang-ep", "sglang"),
        ("vllm", "vllm"),
    ]
    with pytest.raises(InputError, match="--prefill-engine needs --prefill-on"):
        read_simulation(SimulateQuestion("deepseek-v3", on="h200:8", rate="1/s", prefill_engine="sglang"))


def test_wide_expert_parallelism_over_servers_takes_the_all_to_all() -> None:
    """Of two servers both forms of SGLang are tried, and gathering all tokens on every rank is left out; who asks for
    it is told."""
    asked = read_question(ServeQuestion("deepseek-v3", "h200:16"))
    found = {one.engine for one in search(asked) if one.plan.is_wide and one.chips == 16}
    assert found == {"sglang-ep"}
    wide: dict[str, Any] = {"on": "h200:16", "plan": "dp16 ep16"}
    asked = read_question(ServeQuestion("deepseek-v3", engine="sglang", batch="64", **wide))
    assert any("--engine sglang-ep" in note for note in answer(asked, confirm=False).notes)
    run = read_simulation(SimulateQuestion("deepseek-v3", engine="sglang", rate="1/s", **wide))
    assert any("--engine sglang-ep" in note for note in run.notes)
    asked = read_question(ServeQuestion("deepseek-v3", engine="vllm", batch="64", **wide))
    assert not any("gathers the tokens" in note for note in answer(asked, confirm=False).notes)


def test_pools_name_narrower_weights() -> None:
    asked = asked_for_pools()
    found = answer(asked, confirm=False)
    assert found.configs[0].prefill is not None
    assert "--quantize fp8" in found.advice
