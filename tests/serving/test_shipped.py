"""Engines as they are shipped beside published results: what a user gets who only names the engine."""

import pytest

from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import recommended
from dragonscale.commands.serve.serve_question import ServeQuestion, read_question
from dragonscale.serving.advice.search import ranked, search


def best_of(question: ServeQuestion):
    """The configuration with most tokens, of those a question has."""
    return max(search(read_question(question)), key=lambda one: one.tokens_per_chip)


FULL = [  # NVIDIA's perf-overview: offline throughput of TensorRT-LLM, prompts of 128 and outputs of 2,048 tokens
    ("llama3-70b", "b200:8", "tensor=8,weights=nvfp4,compute=nvfp4,kv=fp8", 31174, 0.12),
    ("llama3.1-8b", "h200:1", "weights=fp8,compute=fp8,kv=fp8", 26221, 0.2),
]


@pytest.mark.parametrize(("model", "where", "plan", "measured", "error"), FULL)
def test_a_full_server_of_tensorrt_llm(model: str, where: str, plan: str, measured: float, error: float) -> None:
    """Nothing caps a replica: tokens are streamed ten at a time, as published scripts have it."""
    found = best_of(ServeQuestion(model, where, prompt="128", output="2048", plan=plan, engine="trtllm"))
    assert float(found.state.tokens) == pytest.approx(measured, rel=error)


FEW = [  # InferenceX: 4 clients, prompts and outputs of 1,024
    ("h200:8", "tensor=8,weights=fp8,compute=fp8,kv=fp8", 6.26e-3),
    ("b200:8", "tensor=8,weights=nvfp4,compute=nvfp4,kv=fp8", 5.87e-3),
]


@pytest.mark.parametrize("engine", ["trtllm", "auto"])
@pytest.mark.parametrize(("where", "plan", "measured"), FEW)
def test_a_few_clients_of_a_70b_model(engine: str, where: str, plan: str, measured: float) -> None:
    """The engine of the published run is within a fifth, and what `auto` takes instead (vLLM) within a third."""
    question = ServeQuestion("llama3-70b", where, "1024", "1024", plan=plan, engine=engine, batch="4")
    off = 0.2 if engine == "trtllm" else 0.35
    assert best_of(question).state.tpot == pytest.approx(measured, rel=off)


def test_wider_tensor_parallelism_is_faster_on_eight_gpus() -> None:
    """With AllReduces of their own inside a node, engines decode faster on eight GPUs than on four."""
    four, eight = (
        best_of(ServeQuestion("llama3-70b", f"b200:{chips}", plan=f"tensor={chips}", engine="generic", batch="4"))
        for chips in (4, 8)
    )
    assert eight.decode_s < 0.9 * four.decode_s


def test_racks_are_used_as_racks() -> None:
    """DeepSeek on NVL72: experts over many GPUs of the rack, by an engine with wide expert parallelism."""
    asked = read_question(ServeQuestion("deepseek-v3", "gb200"))
    assert asked.engine_on(asked.targets[0][0]).name == "sglang-ep"
    found = best_of(ServeQuestion("deepseek-v3", "gb200"))
    assert found.plan.expert >= 16
    sizes = {one.plan.expert for one in search(asked)}
    assert {36, 72} <= sizes


def test_auto_is_decided_by_the_copy_and_not_by_the_slice() -> None:
    """A copy on eight GPUs runs under one engine wherever it stands, and answers the same."""

    def on(where: str) -> dict[tuple[str, int], tuple[str, float]]:
        asked = read_question(ServeQuestion("deepseek-v3", where, tpot="30ms"))
        return {
            (str(one.plan), one.batch): (one.engine, one.tokens_per_chip) for one in search(asked) if one.chips == 8
        }

    eight = on("h200:8")
    assert {engine for engine, _ in eight.values()} == {"sglang"}
    assert on("h200:16") == on("h200:8,h200:16") == eight
    asked = read_question(ServeQuestion("gpt-oss-120b", "gb200", batch="64"))
    assert {one.engine for one in search(asked) if one.chips <= 8} == {"vllm"}
    assert {one.engine for one in search(asked) if one.chips > 16} == {"sglang-ep"}


def test_a_saved_answer_names_the_engine_of_its_copy() -> None:
    words = {"tpot": "30ms", "engine": "auto,host.step_s=1e-4", "disaggregate": False}
    asked = read_question(ServeQuestion("deepseek-v3", "h200:16", **words))
    report = answer(asked)
    assert (report.workload.engine, report.configs[0].copies) == ("sglang,host.step_s=1e-4", 2)
    assert report.workload.engine_why.endswith("on one server")
    assert recommended(asked, report).engine == report.workload.engine


def test_auto_takes_wide_expert_parallelism_for_wide_plans_only() -> None:
    for plan, engine in {"tensor=8,pipe=2": "vllm", "data=16,expert=16": "sglang-ep", "tensor=16": "vllm"}.items():
        asked = read_question(ServeQuestion("kimi-k2", "h200:16", plan=plan))
        assert asked.engine_on(asked.targets[0][0]).name == engine
    wide = [one for one in search(read_question(ServeQuestion("kimi-k2", "h200:16"))) if one.engine == "sglang-ep"]
    assert wide
    assert all(one.plan.is_wide for one in wide)
    tight = read_question(ServeQuestion("kimi-k2", "h100:16"))  # copies of experts leave little room for the cache
    assert ranked(tight, search(tight))[0].engine == "vllm"
