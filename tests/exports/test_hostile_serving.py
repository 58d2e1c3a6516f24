"""Commands and manifests of engines with values that no engine takes: one sentence each; and what is odd but can be
read is read."""

import gzip
from pathlib import Path

import msgspec
import pytest

import dragonscale as ds
from dragonscale.commands.serve import better
from dragonscale.errors import InputError
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.trainers import megatron_command
from dragonscale.exports.engines.dynamo import workers
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.launchers.unwrap import assigned, containers, is_own
from dragonscale.exports.reading import read_plan
from dragonscale.exports.shell import read_commands
from dragonscale.serving.engine.plan_file import SavedPlan

VLLM = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
SGLANG = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"
JAX = "python -m sgl_jax.launch_server --model-path Qwen/Qwen3-8B"
TRT = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct"
LLAMA = "llama-server -hf ggml-org/gpt-oss-20b-GGUF"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"

REFUSED = [
    (f"{VLLM} -tp 0.5", "h100", "--tensor-parallel-size is '0.5'; it takes a whole number"),
    (f"{VLLM} -tp 1.5", "h100", "--tensor-parallel-size is '1.5'"),
    (f"{VLLM} -tp ²", "h100", "--tensor-parallel-size is '²'"),
    (f"{VLLM} --max-num-seqs 100g", "h100", "--max-num-seqs is '100g'"),
    (f"{VLLM} --max-num-batched-tokens 900g", "h100", "--max-num-batched-tokens is '900g'"),
    (f"{VLLM} --max-num-batched-tokens 0.1k0", "h100", "--max-num-batched-tokens is '0.1k0'"),
    (f"{VLLM} --gpu-memory-utilization nan", "h100", "--gpu-memory-utilization is 'nan'; it is above 0 and at most 1"),
    (f"{VLLM} --gpu-memory-utilization 7", "h100", "--gpu-memory-utilization is '7'"),
    (f"{VLLM} --gpu-memory-utilization=-1", "h100", "--gpu-memory-utilization is '-1'"),
    (f"{VLLM} --spec-method ngram --spec-tokens=-3", "h100", "num_speculative_tokens is '-3'"),
    (
        f"{VLLM} -tp 8 --additional-config '"
        '{"sharding": {"sharding_strategy": {"enable_dp_attention": true, "attn_dp_size": -1}}}\'',
        "v6e-8",
        "attn_dp_size is -1",
    ),
    (f"{SGLANG} --tp-size 1.5", "h100", "--tp-size is '1.5'"),
    (f"{SGLANG} --mem-fraction-static nan", "h100", "--mem-fraction-static is 'nan'"),
    (f"{JAX} --mem-fraction-static 7", "v6e", "--mem-fraction-static is '7'"),
    (f"{TRT} --kv_cache_free_gpu_memory_fraction 7", "h100", "free_gpu_memory_fraction is '7'"),
    (f"model: {MODEL}\nkv_cache_config: {{free_gpu_memory_fraction: .nan}}", "h100", "free_gpu_memory_fraction is nan"),
    (
        f"model: {MODEL}\nkv_cache_config: {{}}\nspeculative_config: {{max_draft_len: -3}}",
        "h100",
        "speculative_config is -3",
    ),
    (f"model: {MODEL}\nkv_cache_config: {{}}\nenable_attention_dp: maybe", "h100", "enable_attention_dp is 'maybe'"),
    (f"{LLAMA} -ts a,b,c", "h100", "--tensor-split is 'a,b,c'"),
    (f"{LLAMA} -ts {'1,' * 100_000}1", "h100", "at most 128 GPUs"),
    (f"{LLAMA} -np 2.5", "h100", "--parallel is '2.5'"),
]


@pytest.mark.parametrize(("text", "on", "sentence"), REFUSED, ids=[one[2][:40] for one in REFUSED])
def test_a_value_that_no_engine_takes_is_one_sentence(text: str, on: str, sentence: str) -> None:
    with pytest.raises(InputError) as told:
        read_plan(text, Given("", on))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "on", "piece", "chips"),
    [
        (f"{VLLM} -tp 8", "8xh100", "h100:8", 8),
        (f"{VLLM} -tp 8", "v6e-8", "v6e:2x4", 8),
        (f"{VLLM} -tp 8", "v6e", "v6e:2x4", 8),
        (f"{JAX} --tp-size 4", "v6e", "v6e:2x2", 4),
        (f"{JAX} --tp-size 8", "tpu7x", "tpu7x:2x2x1", 4),
        (f"{LLAMA} -ts 3,1", "h100", "h100:2", 2),
    ],
)
def test_a_slice_is_given_in_every_spelling(text: str, on: str, piece: str, chips: int) -> None:
    found = _read(text, on)
    assert isinstance(found.file, SavedPlan)
    assert (found.file.slice, found.file.plan.chips) == (piece, chips)


def _read(text: str, on: str) -> Imported:
    return read_plan(text, Given("", on))


def test_token_counts_have_thousands() -> None:
    found = _read(f"{VLLM} --max-num-batched-tokens 3k --max-num-seqs 77", "h100")
    assert isinstance(found.file, SavedPlan)
    assert (found.file.launch.token_budget, found.file.launch.max_seqs) == (3000, 77)
    notes = _read(f"{VLLM} --max-model-len 1m --quantization-config '{{\"ignore\": 3}}'", "h100").notes
    assert any("--max-model-len is 1,000,000, and" in note for note in notes)


@pytest.mark.parametrize(
    ("flag", "command"), [("model", VLLM.rpartition(" ")[0]), ("model-path", SGLANG.partition(" --")[0])]
)
def test_a_config_file_is_read_but_for_its_unknown_names(tmp_path: Path, flag: str, command: str) -> None:
    text = f"{flag}: {MODEL}\ntensor-parallel-size: 4\nport: 80\nno-such-name: 3\ntrust-remote-code: true\n"
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    script = tmp_path / "serve.sh"
    script.write_text(f"{command} --config own.yaml\n", encoding="utf-8")
    for given in (str(script), str(tmp_path / "own.yaml")):
        found = _read(given, "h100:4")
        assert isinstance(found.file, SavedPlan)
        assert (found.file.model, found.file.plan.tensor) == ("llama3.1-8b", 4)
        assert "--no-such-name" in found.unknown


def test_labels_are_read_and_not_the_text_around_them() -> None:
    spec = {"template": {"metadata": {"labels": {"llm-d.ai/role": "decode"}}}}
    assert is_own({"kind": "Deployment", "spec": spec})
    assert not is_own({"kind": "Deployment", "spec": {"template": {"spec": {"args": ["llm-d.ai/role: a word"]}}}})


def test_names_that_are_numbers_are_no_fault() -> None:
    assert containers({"kind": "PyTorchJob", "spec": {1: 2, "aReplicaSpecs": 3}}) == []
    assert workers({"kind": "DynamoGraphDeployment", "spec": {"services": {1: "text"}, "components": [2]}}) == []


def test_a_variable_comes_back_from_the_shell_as_it_was() -> None:
    value = "it's $HOME `now`; rm -rf /"
    lines = [*assigned({"MODEL": value, "x; touch y": "1"}), 'vllm serve "$MODEL"']
    (command,) = [one for one in read_commands("\n".join(lines)) if "vllm" in one.words]
    assert command.words[-1] == value


def test_processes_come_to_the_world() -> None:
    assert megatron_command({"tensor_model_parallel_size": "4", "world_size": "12"}).startswith(
        "torchrun --nproc-per-node 4 --nnodes 3 "
    )


def test_a_log_that_is_cut_or_nowhere_is_told(tmp_path: Path) -> None:
    packed, path = gzip.compress(b"step 1\n" * 10_000), tmp_path / "log.gz"
    path.write_bytes(packed + packed)
    assert len(LogText.at(str(path)).lines) == 20_000
    path.write_bytes(packed[:-20])
    with pytest.raises(InputError, match="cut off"):
        LogText.at(str(path))
    with pytest.raises(InputError, match="home folder"):
        LogText.at("~no-such-user-at-all/log.txt")


def test_a_target_that_is_not_said_is_the_plans_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, search = [], better.search
    monkeypatch.setattr(
        better, "search", lambda free, step: search(free, step) if free.plan else asked.append(free.ask) or []
    )
    given = ds.serve("llama3-8b", on="h100:1", plan="tp1", batch=16, ttft="2s", better=True).configs[0]
    (ask,) = asked
    assert (ask.ttft, ask.tpot) == (2, pytest.approx(given.tpot_s, rel=0.01))
    none = msgspec.structs.replace(given, output_tokens_per_s_per_chip=0.0)
    assert "gives the first output tokens/s" in better.comparison(none, given, 3)
