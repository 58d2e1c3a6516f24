"""`dscale serve` of launch lines of other engines: whether they start, the longest request that works, the size of the
cache, and the release that an answer describes."""

import json
import re
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_blocks import memory_text
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.errors import INFEASIBLE
from dragonscale.faces.cli import main


def judged(command: str, on: str, model: str = "", **flags: Any) -> ServeReport:
    return answer(read_question(ServeQuestion(model, on=on, plan=command, **flags)), brief=True)


def notes_of(command: str, on: str, model: str = "") -> str:
    return " ".join(read_question(ServeQuestion(model, on=on, plan=command)).notes)


LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_vllm_refuses_to_start_where_one_request_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """A card of 24 GB has 6 GB for the cache, and 120,000 tokens take 15.7 GB; up to 45,000 ran on it
    (github.com/vllm-project/vllm/issues/10517)."""
    command = ["serve", "--plan", f"vllm serve {LLAMA} --max-model-len 120000", "--on", "rtx3090:1"]
    assert main(command) == INFEASIBLE
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Refuses to start: the KV cache holds ")
    assert "vLLM refuses to start: --max-model-len is 120,000" in text
    found = re.search(r"The largest that works is --max-model-len (\d+)\.", text)
    assert found is not None
    largest = int(found[1])
    assert 40_000 < largest < 52_000

    assert main([*command, "--json"]) == INFEASIBLE
    report = json.loads(capsys.readouterr().out)
    assert report["configs"] == []
    assert report["largest_context"] == largest
    assert report["kv_cache_tokens"] == pytest.approx(largest, abs=16)
    assert report["release"].startswith("vLLM 0.")

    works = judged(f"vllm serve {LLAMA} --max-model-len {largest}", "rtx3090:1")
    assert works.configs
    assert works.largest_context == largest
    refused = judged(f"vllm serve {LLAMA} --max-model-len {largest + 16}", "rtx3090:1")
    assert not refused.configs


def test_a_launch_without_a_length_takes_the_models_own() -> None:
    refused = judged(f"vllm serve {LLAMA}", "rtx3090:1")
    assert not refused.configs
    assert "without --max-model-len a request may have the model's 131,072 tokens" in refused.notes[0]
    fits = judged(f"vllm serve {LLAMA}", "h100:1")
    assert fits.configs
    assert fits.largest_context == 131_072
    for automatic in ("auto", "-1"):
        assert judged(f"vllm serve {LLAMA} --max-model-len={automatic}", "rtx3090:1").configs


def test_sglang_starts_and_says_how_long_requests_may_be() -> None:
    report = judged(f"sglang serve {LLAMA} --context-length 120000", "rtx3090:1")
    assert report.configs
    assert report.largest_context is not None
    assert report.largest_context < 60_000
    full = answer(read_question(ServeQuestion(on="rtx3090:1", plan=f"sglang serve {LLAMA}")), confirm=False)
    assert any("requests of up to 131,072 tokens, and its KV cache holds no more" in note for note in full.notes)


def test_a_launch_for_short_requests_is_judged_with_such() -> None:
    asked = read_question(ServeQuestion(on="h100:1", plan=f"vllm serve {LLAMA} --max-model-len 2048"))
    assert asked.ask.prompt + asked.ask.output == 2048
    assert any("The launch takes requests of 2,048 tokens" in note for note in asked.notes)


@pytest.mark.parametrize("command", ["vllm serve {}", "sglang serve {}", "trtllm-serve {}", "trtllm-serve serve {}"])
def test_launches_without_flags(command: str) -> None:
    asked = read_question(ServeQuestion(on="h100:1", plan=command.format(LLAMA)))
    assert asked.model.name == "llama3.1-8b"
    assert asked.plan is not None
    assert asked.plan.chips == 1


def test_a_launch_may_leave_the_model_to_the_question() -> None:
    asked = read_question(ServeQuestion("llama3-8b", on="h100:1", plan="vllm serve"))
    assert asked.model.name == "llama3-8b"
    assert asked.served_length == 8192


def test_another_model_than_that_of_the_command_is_told() -> None:
    said = notes_of("vllm serve Qwen/Qwen3-8B -tp 1", "h100:1", "llama3-8b")
    assert "The command serves qwen3-8b; it is judged for llama3-8b, which was given." in said
    assert "judged for" not in notes_of("vllm serve Qwen/Qwen3-8B", "h100:1", "qwen3-8b")
    assert "judged for" not in notes_of("vllm serve Qwen/Qwen3-32B-AWQ", "h100:1", "Qwen/Qwen3-32B")
    assert "judged for" in notes_of("sglang serve Qwen/Qwen3-8B", "h100:1", "llama3-8b")


@pytest.mark.parametrize(
    ("checkpoint", "on", "gib"),
    [
        ("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "h100:8", 56.1),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "h100:1", 67.7),
        ("openai/gpt-oss-120b", "h100:1", 64.2),
    ],
)
def test_a_checkpoint_weighs_the_same_in_a_command_and_by_its_name(checkpoint: str, on: str, gib: float) -> None:
    """Meta's 405B in FP8 keeps its attention in 16 bits."""
    chips = on.partition(":")[2]
    sizes = {"prompt": "256", "output": "64"}
    plan = f"vllm serve {checkpoint} --tensor-parallel-size {chips} --max-model-len 512 --gpu-memory-utilization 0.97"
    launched = judged(plan, on, **sizes).first().memory
    named = judged(f"tp{chips}", on, checkpoint, engine="vllm", memory_fraction=0.97, **sizes).first().memory
    assert launched is not None
    assert named is not None
    assert launched.weights_bytes == pytest.approx(named.weights_bytes)
    assert launched.weights_bytes / 2**30 == pytest.approx(gib, rel=0.01)


def test_every_answer_names_context_cache_and_release() -> None:
    report = ds.serve("llama3-8b", on="h100:1", plan="tp1", engine="vllm", memory_fraction=0.5)
    first, use = report.first(), report.first().memory
    assert use is not None
    text = " ".join(text_of(report.sheet()).split())
    assert f"KV cache {report.kv_cache_tokens:,} tokens" in text
    room = r"([\d.]+) of ([\d.]+)GB a chip; KV cache [\d,]+ tokens, ([\d.]+)GiB a chip, ([\d.]+)GB of it left by this "
    parts = re.search(room + r"batch; largest batch [\d,]+; ([\d.]+)GB unused by the engine", text)
    assert parts is not None
    used, whole, available, left, unused = map(float, parts.groups())
    assert used + left + unused == pytest.approx(whole, abs=0.15)  # to the rounding
    assert available * 2**30 == pytest.approx(use.cache_bytes + use.free_bytes, rel=0.01)
    assert max(map(len, text_of(report.sheet(), 80).splitlines()[:20])) <= 80
    assert "free for KV cache" not in text
    assert "up to 8,192 tokens a request, all that the model was made for" in text
    assert "vLLM 0.10 to 0.19, launch defaults of 0.32" in text
    record = report.to_dict()
    assert record["largest_context"] == 8192
    assert record["release"] == "vLLM 0.10 to 0.19, launch defaults of 0.32"
    assert record["kv_cache_tokens"] == use.kv_cache_tokens
    assert "left" in memory_text(first)


def test_ranks_of_attention_have_their_own_cache() -> None:
    """Each of eight data ranks takes a request whole, so the longest is what one of them holds."""
    ranks = judged("tensor=1,data=8,expert=8", "h200:8", "qwen3-235b-a22b", dtype="fp8", engine="vllm").first().memory
    assert ranks is not None
    assert ranks.ranks == 8
    assert ranks.largest_context == ranks.model_context < ranks.kv_cache_tokens / 8


def test_a_run_names_the_release_too() -> None:
    run = ds.simulate("llama3-8b", on="h100:1", plan="tp1", engine="sglang", rate="2/s", requests=20)
    assert run.fleet[0].release == "SGLang 0.5, launch defaults of 0.5.23"
    assert "release SGLang 0.5, launch defaults of 0.5.23" in " ".join(text_of(run.sheet()).split())
    plain = ds.simulate("llama3-8b", on="h100:1", plan="tp1", engine="generic", rate="2/s", requests=20)
    assert "release" not in text_of(plain.sheet())
