"""What an import makes of a command that someone has changed, or that says less or more than a plan needs."""

from typing import Any

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.judges import engine_for
from dragonscale.exports.reading import read_plan
from dragonscale.exports.target import target_named
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan

RUN: dict[str, Any] = {"model": "llama3-70b", "on": "h100:8", "batch": "64", "prompt": "1024", "output": "256"}


def exported(target: str, plan: str = "tp8", **words: Any) -> str:
    return next(iter(ds.export(plan, to=target, **{**RUN, **words}).files.values()))


def read(text: str, **given: str) -> tuple[Imported, SavedPlan, str]:
    found = read_plan(text, Given(**given))
    assert isinstance(found.file, SavedPlan)
    return found, found.file, " ".join(found.notes)


EDITS: dict[str, tuple[str, str]] = {
    "vllm": ("--max-num-seqs 64", "--max-num-seqs 128"),
    "sglang": ("--max-running-requests 64", "--max-running-requests 128"),
}


@pytest.mark.parametrize("target", EDITS)
def test_an_edited_limit_counts_more_than_the_planned_batch(target: str) -> None:
    old, new = EDITS[target]
    text = exported(target)
    assert old in text
    assert read(text)[1].batch == 64
    _, file, notes = read(text.replace(old, new))
    assert (file.batch, file.launch.max_seqs) == (0, 128)
    assert "batch of 64" in notes


def test_an_edited_degree_has_its_own_slice() -> None:
    text = exported("vllm").replace("--tensor-parallel-size 8", "--tensor-parallel-size 4")
    _, file, notes = read(text)
    assert (file.slice, file.batch) == ("h100:4", 64)
    assert "h100:4 and not h100:8" in notes


def test_an_edited_degree_on_tpus_keeps_the_slice() -> None:
    text = exported("vllm-tpu", "tp8", on="v6e:2x4").replace("--tensor-parallel-size 8", "--tensor-parallel-size 4")
    _, file, notes = read(text)
    assert file.slice == "v6e:2x4"
    assert "--on" in notes


@pytest.mark.parametrize(
    ("plan", "named", "engine"),
    [
        (ServingPlan(2, 4, 8), "", "vllm"),
        (ServingPlan(2, 4, 8), "vllm-ep", "vllm-ep"),
        (ServingPlan(2, 4, 8), "sglang-ep", "vllm-ep"),
        (ServingPlan(1, 16, 16), "", "vllm-ep"),
    ],
)
def test_wide_expert_parallelism_is_for_several_servers_or_where_it_is_asked_for(
    plan: Any, named: str, engine: str
) -> None:
    assert engine_for(target_named("vllm"), named, plan) == engine


def test_long_answers_go_by_low_latency_kernels_and_come_back() -> None:
    words = {"model": "deepseek-v3", "on": "h200:16", "batch": "512", "prompt": "512", "output": "4096"}
    text = exported("vllm", "dp16 ep16 weights=fp8 compute=fp8_block", **words)
    assert "--all2all-backend deepep_low_latency" in text
    assert "--max-num-batched-tokens 1024" in text
    assert "Differs: low-latency" in text
    _, file, _ = read(text)
    assert (file.batch, file.launch.token_budget) == (512, None)


NIXL = """vllm serve Qwen/Qwen3-8B --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "%s"}'"""
HALVES = {
    "prefill": "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --disaggregation-mode prefill",
    "decode": "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --disaggregation-mode decode",
    "prefill ": NIXL % "kv_producer",
    "decode ": NIXL % "kv_consumer",
    "prefill  ": "trtllm-serve Qwen/Qwen3-8B --server_role CONTEXT",
}


@pytest.mark.parametrize("role", HALVES)
def test_half_of_a_pair_says_so(role: str) -> None:
    _, file, notes = read(HALVES[role], slice="h100")
    assert f"the {role.strip()} half of a pair" in notes
    assert file.traffic.output == (1 if role.startswith("prefill") else 0)


def test_both_halves_are_a_pair() -> None:
    _, file, notes = read(HALVES["prefill"] + "\n" + HALVES["decode"], slice="h100")
    assert file.prefill.plan
    assert "half of a pair" not in notes


def test_a_chip_alone_is_as_many_as_tensorrt_llm_takes() -> None:
    assert read("trtllm-serve Qwen/Qwen3-235B-A22B --tp_size 8 --ep_size 8", slice="h200")[1].slice == "h200:8"


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("vllm serve Qwen/Qwen3-8B --enforce-eager", "vllm"),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --disable-cuda-graph", "sglang"),
    ],
)
def test_without_graphs_the_host_counts(command: str, engine: str) -> None:
    _, file, _ = read(command, slice="h100:1")
    assert file.engine == f"{engine},host.graphs=false"
    again = exported(engine, "tp1", model="qwen3-8b", on="h100:1", engine=file.engine)
    assert command.rpartition(" ")[2] in again
    assert "cuda-graph-max" not in again
    assert "cudagraph" not in again
    assert read(again)[1].engine == file.engine
    assert read(again.replace(command.rpartition(" ")[2], "--trust-remote-code"))[1].engine == engine


def test_requests_longer_than_the_model_was_made_for() -> None:
    assert "vLLM refuses" in read("vllm serve Qwen/Qwen3-8B --max-model-len 9999999", slice="h100")[2]
    assert "vLLM refuses" not in read("vllm serve Qwen/Qwen3-8B --max-model-len 8192", slice="h100")[2]


def test_every_engine_leaves_room_beyond_the_planned_lengths() -> None:
    for target, words in (
        ("vllm", "--max-model-len 1536"),
        ("sglang", "--context-length 1536"),
        ("trtllm", "max_seq_len: 1536"),
    ):
        assert any(words in text for text in ds.export("tp8", to=target, **RUN).files.values())


def test_a_large_budget_of_llamacpp_runs_in_parts() -> None:
    text = exported("llamacpp", "tp1", model="llama3-8b", on="h100:1", batch="8", engine="generic")
    assert "--batch-size 8192" in text
    assert "--ubatch-size 2048" in text


def test_names_that_were_probably_meant() -> None:
    found, _, notes = read(
        "vllm serve Qwen/Qwen3-8B --max-num-batched-token 5 --spec-method mtp --spec-tokens 1", slice="h100"
    )
    assert found.unknown == ("--max-num-batched-token (did you mean --max-num-batched-tokens?)",)
    assert "Drafts 1 token:" in notes


def test_a_value_out_of_range_says_the_range() -> None:
    with pytest.raises(InputError, match="from 1 to 999,999,999"):
        read("vllm serve Qwen/Qwen3-8B -tp 99999999999999", slice="h100")


def test_tasks_of_engines_take_a_token_and_no_folder() -> None:
    plain, filed = exported("vllm,skypilot"), "".join(ds.export("tp8", to="trtllm,skypilot", **RUN).files.values())
    assert "HF_TOKEN" in plain
    assert "workdir" not in plain
    assert "workdir: ." in filed


def test_signals_reach_engines_of_several_hosts() -> None:
    text = exported("vllm,kubernetes", "tp8 pp2", on="h100:16")
    assert text.count("exec vllm serve") == text.count("vllm serve")
