"""vLLM on GPUs and TPUs and its load generator: what is tricky in their words."""

import re
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.engines.vllm.read_vllm import tokens as token_count
from dragonscale.exports.imported import Given
from dragonscale.exports.keys import ReadFlags
from dragonscale.exports.reading import read_plan

LLAMA = {"model": "llama3-70b", "on": "h100:8", "batch": "64", "prompt": "1024", "output": "256"}


def text(plan: str, to: str = "vllm", **words: str) -> str:
    made = ds.export(plan, to=to, **{**LLAMA, **words})
    return re.sub(r" \\\n +", " ", "\n".join(made.files.values()))


def said(plan: str, **words: str) -> str:
    """A command without the comment before it."""
    return "\n".join(line for line in text(plan, **words).split("\n") if not line.startswith("#"))


WRITTEN = {
    "fp8 of a 16-bit checkpoint": (
        "tp8 weights=fp8 compute=fp8 kv=fp8",
        {},
        "--quantization fp8_per_tensor --kv-cache-dtype fp8",
    ),
    "block-scaled fp8 of a 16-bit checkpoint": (
        "tp8 weights=fp8 compute=fp8_block",
        {},
        "--quantization fp8_per_block ",
    ),
    "int4 needs a checkpoint": ("tp8 weights=int4", {}, "serve ./Meta-Llama-3-70B-Instruct-W4A16 "),
    "and is served by the model's name": (
        "tp8 weights=int4",
        {},
        "--served-model-name meta-llama/Meta-Llama-3-70B-Instruct ",
    ),
    "fp8 weights on a chip without fp8": ("tp8 weights=fp8", {"on": "a100:8"}, "--quantization fp8_per_tensor"),
    "a cache along sequences": (
        "tp8 spread=sequence weights=fp8 compute=fp8_block",
        {"model": "deepseek-v3", "on": "h200:8"},
        "--decode-context-parallel-size 8",
    ),
    "room for requests": ("tp8", {}, "--max-model-len 1536 --max-num-seqs 64 --max-num-batched-tokens 8192"),
    "graphs for all sequences": ("tp8", {"batch": "65"}, "--max-cudagraph-capture-size 72"),
    "experts over all ranks": (
        "tp8 ep8",
        {"model": "mixtral-8x7b"},
        "--tensor-parallel-size 8 --enable-expert-parallel --dtype",
    ),
    "redundant experts fill every rank": (
        "dp16 ep16 weights=fp8 compute=fp8_block",
        {"model": "deepseek-v3", "on": "h200:16"},
        "--eplb-config '{\"num_redundant_experts\": 32}'",
    ),
    "one engine for prompts and tokens": (
        "dp16 ep16 weights=fp8 compute=fp8_block",
        {"model": "deepseek-v3", "on": "h200:16"},
        "--all2all-backend deepep_high_throughput",
    ),
    "two hosts": (
        "tp8 pp2",
        {"on": "h100:16"},
        '--nnodes 2 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --headless',
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_plan_in_vllms_words(name: str) -> None:
    plan, words, expected = WRITTEN[name]
    assert expected in said(plan, **words)


def test_two_devices_a_chip_on_tpu7x() -> None:
    assert "--tensor-parallel-size 8" in said("tp4", to="vllm-tpu", model="llama3-8b", on="tpu7x:2x2x1")


def test_attention_data_parallelism_on_tpus_is_of_devices() -> None:
    shown = said("tp1 dp4 ep4", to="vllm-tpu", model="deepseek-v2-lite", on="v6e:2x2")
    for words in ('"attn_dp_size": 4', "--tensor-parallel-size 4 --enable-expert-parallel", "NEW_MODEL_DESIGN=1"):
        assert words in shown
    assert "--data-parallel-size" not in shown


def test_hosts_of_a_tpu_slice_join_ray() -> None:
    made = ds.export("tp16", to="vllm-tpu", **{**LLAMA, "on": "v6e:4x4"})
    assert "ray start --head" in made.files["vllm-tpu-host.sh"]
    assert "TPU_MULTIHOST_BACKEND" in made.files["vllm-tpu.sh"]


def test_pools_apart_have_a_router(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'model = "llama3-70b"\nslice = "h100:8"\nbatch = 64\nreplicas = 3\n[plan]\ntensor = 8\n[traffic]\nprompt '
        "= 1024\noutput = 256\n"
        '[prefill]\nslice = "h100:4"\nplan = "tensor=4"\nreplicas = 2\n'
    )
    made = ds.export(str(path), to="vllm", out=str(tmp_path / "out"))
    assert '"kv_role": "kv_consumer"' in made.files["vllm-decode.sh"]
    assert '"kv_role": "kv_producer"' in made.files["vllm-prefill.sh"]
    assert made.files["vllm-router.sh"].count("--prefill http://prefill-") == 2
    assert made.files["vllm-router.sh"].count("--decode http://decode-") == 3
    back = ds.import_plan(str(tmp_path / "out"))
    assert back.workload["prefill"] == {"slice": "h100:4", "plan": "tensor=4", "replicas": 2}


REFUSED = {
    "gemma in float16": ("tp2 weights=fp16 compute=fp16", {"model": "gemma2-9b", "on": "h100:2"}, "take bf16"),
    "experts that vLLM does not count": ("tp8 ep8", {"model": "dbrx-132b"}, "take expert=1"),
    "a model that nobody has": ("tp8", {"model": "palm-62b"}, "no class for models of type palm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_vllm_refuses_is_refused(name: str) -> None:
    plan, words, expected = REFUSED[name]
    with pytest.raises(Infeasible, match=expected):
        text(plan, **words)


READ = {
    "short names": ("vllm serve meta-llama/Llama-3.1-70B -tp 4 -pp=2", "tensor=4,pipe=2"),
    "underscores": ("vllm serve meta-llama/Llama-3.1-70B --tensor_parallel_size=8", "tensor=8"),
    "the module": ("python3 -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-70B -tp 8", "tensor=8"),
    "a container": (
        (
            "docker run --gpus all -v ~/.cache:/root/.cache -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model "
            "meta-llama/Llama-3.1-70B -tp 8"
        ),
        "tensor=8",
    ),
    "a container and a bare model": (
        "docker run --gpus all vllm/vllm-openai:v0.32.0 meta-llama/Llama-3.1-70B -tp 8",
        "tensor=8",
    ),
    "fp8 on loading": (
        "vllm serve meta-llama/Llama-3.1-70B -tp 8 -q fp8 --kv-cache-dtype fp8_e4m3",
        "tensor=8,weights=fp8,kv=fp8,compute=fp8",
    ),
    "a quantised checkpoint": (
        "vllm serve hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4 -tp 8",
        "tensor=8,weights=int4",
    ),
    "a YAML file": (
        "model: meta-llama/Llama-3.1-70B\ntensor-parallel-size: 8\nno-enable-prefix-caching: true\n",
        "tensor=8",
    ),
    "half precision": (
        "vllm serve meta-llama/Llama-3.1-70B -tp 8 --dtype half",
        "tensor=8,weights=fp16,kv=fp16,compute=fp16",
    ),
    "context parallelism": ("vllm serve meta-llama/Llama-3.1-70B -tp 16 -dcp 2", "tensor=16,spread=sequence"),
}


@pytest.mark.parametrize("name", READ)
def test_commands_as_people_write_them(name: str) -> None:
    command, plan = READ[name]
    found = read_plan(command, Given(slice="h100"))
    assert (found.target, found.file.model, str(found.file.plan)) == ("vllm", "llama3.1-70b", plan)
    assert found.file.slice == f"h100:{found.file.plan.chips}"


def test_data_parallelism_of_a_dense_model_is_replicas() -> None:
    found = read_plan(
        "vllm serve meta-llama/Llama-3.1-8B -dp 4 --max-num-batched-tokens 4k --max-num-seqs 100", Given(slice="h100")
    )
    assert (str(found.file.plan), found.file.replicas, found.file.slice) == ("tensor=1", 4, "h100:1")
    assert (found.file.launch.token_budget, found.file.launch.max_seqs) == (4000, 100)


def test_dotted_keys_and_names_that_vllm_lacks() -> None:
    command = (
        "vllm serve meta-llama/Llama-3.1-8B --speculative-config.method ngram "
        "--speculative-config.num_speculative_tokens 4 --no-such-flag 3"
    )
    found = read_plan(command, Given(slice="h100"))
    assert found.unknown == ("--no-such-flag",)
    assert any("--drafts 4" in note for note in found.notes)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--tensor-parallel-size eight", "--tensor-parallel-size is 'eight'; it takes a whole number"),
        ("--speculative-config '{oops'", "which is no JSON"),
        ("--kv-cache-dtype turboquant_4bit_nc", "the planner has caches in"),
        ("--gpu-memory-utilization lots", "it is above 0 and at most 1"),
        ("--config nowhere.yaml", "does not say what --config 'nowhere.yaml' holds"),
    ],
)
def test_a_wrong_value_is_told_in_a_sentence(flag: str, expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)):
        read_plan(f"vllm serve meta-llama/Llama-3.1-8B {flag}", Given(slice="h100"))


def test_the_load_is_the_traffic(tmp_path: Path) -> None:
    shown = said("tp8", to="vllm,vllm-bench", rate="5/s")
    assert "--random-input-len 1024 --random-output-len 256" in shown
    assert "--request-rate 5 --num-prompts 1500" in shown
    closed = said("tp8", to="vllm,vllm-bench")
    assert "--request-rate inf --max-concurrency 64 --num-prompts 512" in closed
    path = tmp_path / "p.toml"
    path.write_text(
        'model = "llama3-70b"\nslice = "h100:8"\nbatch = 8\n[plan]\ntensor = 8\n[traffic]\nprompt = 1000\noutput '
        "= 10\ncached = 0.5\n"
        '[targets]\nttft = "500ms"\ntpot = "50ms"\n'
    )
    shared = re.sub(r" \\\n +", " ", ds.export(str(path), to="vllm,vllm-bench").files["vllm-bench.sh"])
    assert "--random-input-len 500 --random-prefix-len 500" in shared
    assert "--goodput ttft:500 tpot:50" in shared


@pytest.mark.slow
def test_the_routers_names_are_its_own() -> None:
    from dragonscale.exports.keys import load_keys
    from tools.software import run

    assert {*run("vllm", "router-keys")["keys"]} == {*load_keys("vllm-router").keys}


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("2.5k", 2500), ("1m", 10**6), ("1M", 2**20), ("0.5M", 2**19)],
)
def test_a_capital_suffix_is_a_power_of_two(written: str, tokens: int) -> None:
    """As vLLM's `human_readable_int` reads them."""
    assert token_count(ReadFlags({"--max-num-batched-tokens": written}), "--max-num-batched-tokens") == tokens
