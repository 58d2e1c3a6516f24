"""SGLang: what its flags mean that other engines' do not, what it refuses, and the ways in which people write its
commands."""

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.shell import read_commands


def _flags(plan: str, model: str = "llama3-70b", on: str = "h100:8", to: str = "sglang", **more) -> dict[str, str]:
    made = ds.export(plan, model=model, on=on, to=to, prompt="1024", output="256", **{"batch": "64", **more})
    return _of(next(text for name, text in made.files.items() if name.endswith(".sh")))


def _of(script: str) -> dict[str, str]:
    """The flags of a script's last command; those without a value have none."""
    words = read_commands(script)[-1].words
    return {
        word: following if not following.startswith("--") else ""
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


def _read(text: str, on: str = "h100:8", model: str = ""):
    return read_plan(text, Given(model, on))


def test_the_whole_server_is_told_what_each_replica_of_the_attention_gets() -> None:
    plan = "tensor=2,data=4,expert=8,weights=fp8,compute=fp8_block"
    found = _flags(plan, "deepseek-v3", "h200:8", engine="sglang")
    assert [found[name] for name in ("--tp-size", "--attn-dp-size", "--ep-size")] == ["8", "4", "8"]
    assert (found["--chunked-prefill-size"], found["--max-prefill-tokens"]) == (str(4 * 8192), "8192")
    assert (found["--max-running-requests"], found["--cuda-graph-max-bs-decode"]) == ("64", "16")
    assert "--moe-a2a-backend" not in found
    assert "--mem-fraction-static" not in found  # SGLang finds it, as the expectation does


def test_wide_expert_parallelism_is_told_what_its_expectation_rests_on() -> None:
    plan = "data=16,expert=16,weights=fp8,compute=fp8_block"
    made = ds.export(plan, model="deepseek-v3", on="h200:16", to="sglang", prompt="1024", output="256", batch="1024")
    script = made.files["sglang.sh"]
    found = _of(script)
    assert (found["--moe-a2a-backend"], found["--ep-num-redundant-experts"]) == ("deepep", "32")
    assert {"--enable-eplb", "--enable-two-batch-overlap", "--enable-dp-lm-head"} <= found.keys()
    assert "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=128" in script
    assert (found["--nnodes"], found["--node-rank"]) == ("2", "$NODE_RANK")


def test_a_model_whose_layers_are_not_cut_waits_for_the_exchange() -> None:
    made = ds.export(
        "data=8,expert=8",
        model="mixtral-8x7b",
        on="h100:8",
        to="sglang",
        prompt="1024",
        output="256",
        batch="64",
        engine="sglang-ep",
    )
    assert "two half-batches" in made.differences[0].planned
    assert "--enable-two-batch-overlap" not in made.files["sglang.sh"]


@pytest.mark.parametrize(
    ("formats", "on", "said"),
    [
        ("weights=fp8,compute=fp8,kv=fp8", "h100:8", ("meta-llama/Meta-Llama-3-70B-Instruct", "fp8", "fp8_e4m3")),
        ("weights=fp8,compute=bf16", "a100:8", ("meta-llama/Meta-Llama-3-70B-Instruct", "fp8", "auto")),
        ("weights=fp8,compute=bf16", "h100:8", ("./Meta-Llama-3-70B-Instruct-FP8A16", None, "auto")),
        ("weights=int4", "h100:8", ("./Meta-Llama-3-70B-Instruct-W4A16", None, "auto")),
        ("weights=fp16,compute=fp16,kv=fp16", "h100:8", ("meta-llama/Meta-Llama-3-70B-Instruct", None, "auto")),
    ],
)
def test_formats_are_a_checkpoint_or_made_on_loading(formats: str, on: str, said: tuple) -> None:
    found = _flags(f"tensor=8,{formats}", on=on)
    assert (found["--model-path"], found.get("--quantization"), found["--kv-cache-dtype"]) == said
    assert found["--dtype"] == ("float16" if "fp16" in formats else "bfloat16")


def test_a_cache_split_along_sequences_takes_the_ranks_beyond_the_kv_heads() -> None:
    assert _flags("tensor=16,spread=sequence", on="h100:16")["--dcp-size"] == "2"
    found = _read(
        "python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3-70B --tp-size 16 --dcp-size 2", "h100:16"
    )
    assert (found.file.plan.tensor, found.file.plan.spread) == (16, "sequence")


def test_pools_are_two_servers_and_a_router_that_names_them() -> None:
    text = """
model = "llama3-70b"
slice = "h100:8"
batch = 64
replicas = 2
[plan]
tensor = 8
[traffic]
prompt = 1024
output = 256
[prefill]
slice = "h100:8"
plan = "tensor=8"
replicas = 3
"""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as place:
        file = Path(place, "plan.toml")
        file.write_text(text, encoding="utf-8")
        made = ds.export(str(file), to="sglang")
        made.write_into(f"{place}/out")
        back = ds.import_plan(f"{place}/out")
    decode, prefill = _of(made.files["sglang-decode.sh"]), _of(made.files["sglang-prefill.sh"])
    assert (decode["--disaggregation-mode"], prefill["--disaggregation-mode"]) == ("decode", "prefill")
    assert "--max-running-requests" not in prefill
    router = made.files["sglang-router.sh"]
    assert router.count("--prefill http://prefill-") == 3
    assert router.count("--decode http://decode-") == 2
    assert back.workload["prefill"]["replicas"] == 3


@pytest.mark.parametrize(
    ("plan", "more", "why"),
    [
        ("tensor=4,pipe=2", {"drafts": 3, "accept": "0.7"}, "does not draft in a pipeline"),
        ("tensor=8", {"on": "b200:8", "token_budget": 1000}, "--token-budget 1024"),
    ],
)
def test_what_sglang_refuses_is_refused_here(plan: str, more: dict, why: str, tmp_path) -> None:
    from dataclasses import replace

    from dragonscale.serving.engine.plan_file import (
        SavedDrafts,
        SavedLaunch,
        SavedTraffic,
        read_serving_plan,
        save_serving_plan,
    )

    saved = replace(
        read_serving_plan(plan),
        model="llama3-8b",
        slice=more.get("on", "h100:8"),
        batch=16,
        traffic=SavedTraffic(1024, 256),
        speculation=SavedDrafts(more.get("drafts", 0), more.get("accept", "")),
        launch=SavedLaunch(token_budget=more.get("token_budget")),
    )
    save_serving_plan(saved, str(tmp_path / "plan.toml"))
    with pytest.raises(Infeasible, match=why):
        ds.export(str(tmp_path / "plan.toml"), to="sglang")


@pytest.mark.parametrize(
    "text",
    [
        "python3 -m sglang.launch_server --model meta-llama/Meta-Llama-3-70B --tp 4 --mem-fraction-static=0.8",
        "sglang serve meta-llama/Meta-Llama-3-70B --tensor-parallel-size 4 --mem_fraction_static 0.8",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 nohup python -m sglang.launch_server --model-path "
        "meta-llama/Meta-Llama-3-70B --tp-size=4 "
        "--mem-fraction-static 0.8 > log 2>&1 &",
        "docker run --gpus all --shm-size 32g -p 30000:30000 --ipc=host lmsysorg/sglang:latest python3 -m "
        "sglang.launch_server "
        "--model-path meta-llama/Meta-Llama-3-70B --tp 4 --host 0.0.0.0 --mem-fraction-static 0.8",
        (
            "model-path: meta-llama/Meta-Llama-3-70B\ntensor-parallel-size: 4\nmem-fraction-static: "
            "0.8\ntrust-remote-code: true\n"
        ),
    ],
)
def test_commands_as_people_write_them(text: str) -> None:
    found = _read(text, "h100:4")
    assert (found.target, found.file.model, found.file.plan.tensor, found.file.launch.memory_fraction) == (
        "sglang",
        "llama3-70b",
        4,
        0.8,
    )
    assert found.unknown == ()


def test_data_parallelism_is_replicas_or_the_attentions() -> None:
    one = _read("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --tp 2 --dp 4")
    assert (one.file.plan.tensor, one.file.plan.data, one.file.replicas, one.file.slice) == (2, 1, 4, "h100:2")
    other = _read(
        (
            "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 4 --enable-dp-attention "
            "--ep 8"
        ),
        "h200:8",
    )
    assert (other.file.plan.tensor, other.file.plan.data, other.file.plan.expert, other.file.replicas) == (2, 4, 8, 0)


def test_limits_of_the_whole_server_are_read_as_those_of_a_rank() -> None:
    text = (
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attn-dp-size 8 "
        "--moe-a2a-backend deepep "
    )
    found = _read(text + "--chunked-prefill-size 65536 --max-running-requests 512", "h200:8")
    assert (found.file.launch.token_budget, found.file.launch.max_seqs, found.file.engine) == (8192, 64, "sglang-ep")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--tp eight", "--tp-size is 'eight'"),
        ("--tp 8 --ep-size 3", "divisor"),
        ("--tp 8 --dp 3 --enable-dp-attention", "divides them"),
        ("--tp 8 --mem-fraction-static lots", "--mem-fraction-static"),
        ("--tp 8 --kv-cache-dtype int2", "--kv-cache-dtype"),
    ],
)
def test_a_wrong_value_is_one_sentence(flags: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as error:
        _read(f"python -m sglang.launch_server --model-path mistralai/Mixtral-8x7B-v0.1 {flags}")
    assert "\n" not in str(error.value)


def test_names_that_it_lacks_and_those_that_are_not_planned_are_told() -> None:
    found = _read(
        (
            "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --no-such 1 --enable-torch-compile "
            "--log-level info"
        ),
        "h100:1",
    )
    assert (found.unknown, found.unplanned, found.ignored) == (
        ("--no-such",),
        ("--enable-torch-compile",),
        ("--log-level",),
    )


def test_a_load_test_is_the_planned_traffic() -> None:
    found = _flags("tensor=8", to="sglang,sglang-bench", rate="20/s")
    assert (found["--random-input-len"], found["--random-output-len"], found["--random-range-ratio"]) == (
        "1024",
        "256",
        "1",
    )
    assert (found["--request-rate"], found["--num-prompts"], found.get("--max-concurrency")) == ("20", "6000", None)
    closed = _flags("tensor=8", to="sglang,sglang-bench")
    assert (closed["--request-rate"], closed["--max-concurrency"], closed["--num-prompts"]) == ("inf", "64", "512")
