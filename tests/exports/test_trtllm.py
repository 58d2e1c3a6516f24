"""TensorRT-LLM: what its ranks mean, checkpoints by their names, pools, and what it refuses."""

from pathlib import Path

import pytest
import yaml

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.serving.engine.plan_file import SavedPlan


def _export(plan: str, model: str, on: str, engine: str = "") -> tuple[dict, str]:
    made = ds.export(plan, to="trtllm", model=model, on=on, batch="64", prompt="1024", output="256", engine=engine)
    return yaml.safe_load(made.files["trtllm.yaml"]), made.files["trtllm.sh"]


def _read(text: str, on: str = "h100:8", model: str = "") -> SavedPlan:
    found = read_plan(text, Given(model, on)).file
    assert isinstance(found, SavedPlan)
    return found


def test_attention_data_parallelism_counts_all_ranks() -> None:
    args, _ = _export("data=8,expert=8,weights=fp8,compute=fp8_block", "deepseek-v3", "h200:8", "trtllm-ep")
    assert (args["tensor_parallel_size"], args["moe_expert_parallel_size"], args["moe_tensor_parallel_size"]) == (
        8,
        8,
        1,
    )
    assert args["enable_attention_dp"]
    assert args["max_batch_size"] == 8
    assert args["moe_config"]["backend"] == "WIDEEP"
    assert args["moe_config"]["load_balancer"]["num_slots"] == 288


def test_a_format_that_is_not_the_checkpoints_is_another_checkpoint() -> None:
    args, script = _export("tensor=4,weights=fp8,compute=fp8,kv=fp8", "llama3-70b", "h100:4")
    assert "trtllm-serve ./Meta-Llama-3-70B-Instruct-FP8" in script
    assert args["kv_cache_config"]["dtype"] == "fp8"
    assert (
        "trtllm-serve deepseek-ai/DeepSeek-V3 "
        in _export("tensor=8,weights=fp8,compute=fp8_block", "deepseek-v3", "h200:8")[1]
    )
    theirs = _read("trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8", "h100:1")
    assert (theirs.model, theirs.plan.weights, theirs.plan.kv) == ("llama3.3-70b", "fp8", "fp8")
    mine = _read("trtllm-serve /models/Llama-3.3-70B-Instruct-NVFP4 --tp_size 2", "b200:2")
    assert (mine.model, mine.plan.compute, mine.plan.kv) == ("llama3.3-70b", "nvfp4", "bf16")


def test_several_hosts_are_started_by_mpi() -> None:
    _, script = _export("tensor=8,pipe=2", "llama3-70b", "h100:16")
    assert "mpirun" in script
    assert "trtllm-llmapi-launch" in script
    assert _read(script.replace("--config trtllm.yaml", "--tp_size=8 --pp_size 2"), "h100:16").plan.pipe == 2


@pytest.mark.parametrize(
    ("plan", "model", "why"),
    [
        ("data=2,tensor=4,expert=8", "mixtral-8x7b", "data=8,tensor=1"),
        ("tensor=8,spread=sequence", "deepseek-v3", "without spread=sequence"),
    ],
)
def test_what_it_cannot_run_is_refused(plan: str, model: str, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        ds.export(plan, to="trtllm", model=model, on="h200:8", batch="64", prompt="1024", output="256", engine="trtllm")


def test_the_yaml_wins_over_flags_and_may_be_alone(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("tensor_parallel_size: 4\nkv_cache_config:\n  dtype: fp8\n")
    (tmp_path / "run.sh").write_text(
        "trtllm-serve meta-llama/Meta-Llama-3-70B --tp_size 8 --extra_llm_api_options c.yaml\n"
    )
    assert _read(str(tmp_path / "run.sh"), "h100:4").plan.tensor == 4
    assert _read(str(tmp_path / "c.yaml"), "h100:4", "llama3-70b").plan.kv == "fp8"


def test_two_pools_are_read_from_one_file() -> None:
    found = _read(
        "model: meta-llama/Meta-Llama-3-70B\nhostname: localhost\nport: 8000\ncontext_servers:\n  num_instances: "
        "2\n  tensor_parallel_size: 4\n"
        "generation_servers:\n  num_instances: 1\n  tensor_parallel_size: 8\n  cache_transceiver_config:\n    "
        "backend: UCX\n"
    )
    assert (found.plan.tensor, found.prefill.plan, found.prefill.replicas, found.prefill.slice) == (
        8,
        "tensor=4",
        2,
        "h100:4",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("trtllm-serve meta-llama/Meta-Llama-3-70B --tp_size eight", "whole number"),
        ("trtllm-serve meta-llama/Meta-Llama-3-70B --config gone.yaml", "gone.yaml"),
        ("trtllm-serve mistralai/Mixtral-8x7B-v0.1 --tp_size 8 --ep_size 3", "divisor"),
        ("kv_cache_config:\n  dtype: fp9\n", "auto, fp8 or nvfp4"),
        ("enable_attention_dp: true\n", "--model"),
    ],
)
def test_bad_words_are_one_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _read(text, "h100:8", "llama3-70b" if "fp9" in text else "")
