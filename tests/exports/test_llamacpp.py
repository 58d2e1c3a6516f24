"""llama.cpp: slots and their share of the context, GGUF names, what it splits, and what it refuses."""

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.engines.llamacpp import read_gguf
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.exports.shell import read_commands
from dragonscale.serving.engine.plan_file import SavedPlan


def _words(plan: str, model: str, on: str) -> tuple[list[str], list[str]]:
    made = ds.export(plan, to="llamacpp", model=model, on=on, batch="8", prompt="1000", output="200")
    words = next(one.words for one in read_commands(made.files["llamacpp.sh"]) if one.words[0] == "llama-server")
    return words, [str(one) for one in made.differences]


def _after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def _read(text: str, on: str = "h100:2", model: str = "") -> Imported:
    return read_plan(text, Given(model, on))


def test_slots_share_the_context() -> None:
    words, said = _words("pipe=2,weights=int4", "llama3-70b", "h100:2")
    assert (_after(words, "--parallel"), _after(words, "--ctx-size")) == ("8", str(8 * 1536))
    assert (_after(words, "--split-mode"), _after(words, "--tensor-split")) == ("layer", "1,1")
    assert _after(words, "--model") == "Meta-Llama-3-70B-Instruct-Q4_K_M.gguf"
    assert any("slots" in one for one in said)
    assert any("one after the other" in one for one in said)


def test_a_cache_of_eight_bits() -> None:
    words, said = _words("tensor=1,kv=int8", "llama3-8b", "h100:1")
    assert _after(words, "--cache-type-v") == "q8_0"
    assert any("q8_0" in one for one in said)


@pytest.mark.parametrize(
    ("plan", "model", "on", "why"),
    [
        ("tensor=2,weights=fp8,compute=fp8", "llama3-70b", "h100:2", "--weights q8_0"),
        ("tensor=1,kv=fp8", "llama3-8b", "h100:1", "--kv-dtype q8_0"),
        ("tensor=8,pipe=2", "llama3-70b", "h100:16", "one host"),
        ("tensor=4,expert=4", "mixtral-8x7b", "h100:4", "expert=4"),
        ("tensor=2,kv=int8", "llama3-8b", "h100:2", "quantised cache"),
        ("tensor=8,weights=int4", "deepseek-v3", "h200:8", "only its layers"),
    ],
)
def test_what_it_cannot_run_is_refused(plan: str, model: str, on: str, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        _words(plan, model, on)


@pytest.mark.parametrize(
    ("text", "on", "model", "engine", "weights"),
    [
        ("ollama run llama3.1:8b", "rtx3090:1", "llama3.1-8b", "ollama", "q4_k_m"),
        ("ollama run qwen3:30b-a3b-q8_0 --verbose", "m2ultra:1", "qwen3-30b-a3b", "ollama", "q8_0"),
        ("ollama run gpt-oss:20b", "rtx4090:1", "gpt-oss-20b", "ollama", "mxfp4_moe"),
        ("llama-cli -m Qwen3-4B-UD-Q4_K_XL.gguf -p hello", "rtx4090:1", "qwen3-4b", "llama.cpp", "q4_k_m"),
        (
            "mlx_lm.generate --model mlx-community/Llama-3.2-3B-Instruct-4bit --prompt hi",
            "m2ultra:1",
            "llama3.2-3b",
            "mlx",
            "mlx4",
        ),
    ],
)
def test_commands_of_ones_own_machine(text: str, on: str, model: str, engine: str, weights: str) -> None:
    found = _read(text, on)
    assert isinstance(found.file, SavedPlan)
    assert (found.file.model, found.file.engine, found.file.plan.weights) == (model, engine, weights)


def test_experts_in_host_memory() -> None:
    found = _read(
        "llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -ot '.ffn_.*_exps.=CPU' -c 8192 -np 2", "rtx3090:1"
    )
    assert isinstance(found.file, SavedPlan)
    assert found.file.engine == "llama.cpp,offload.expert_layers=48"
    assert found.served_length == 4096


def test_names_of_files_and_repositories() -> None:
    assert read_gguf("bartowski/meta-llama_Llama-3.3-70B-Instruct-GGUF:Q5_K_M") == ("llama3.3-70b", "Q5_K_M")
    assert read_gguf("C/models/gemma-3-27b-it-UD-Q4_K_XL.gguf") == ("gemma3-27b", "Q4_K_XL")


def test_defaults_and_kinds_that_the_planner_lacks_are_said() -> None:
    found = _read("./build/bin/llama-server -m /m/Meta-Llama-3-8B-Q6_K.gguf -ngl 20 -ctk q4_0 -ctv q4_0 --n-cpu-moe 4")
    assert isinstance(found.file, SavedPlan)
    assert (found.file.plan.pipe, found.file.launch.max_seqs, found.file.launch.token_budget) == (2, 4, None)
    assert (found.file.plan.weights, found.file.plan.kv, found.file.engine) == (
        "q6_k",
        "q4_0",
        "llama.cpp,offload.layers=12,offload.expert_layers=4",
    )
    assert len(found.notes) == 1
    assert found.unplanned == ()
    assert _read("llama-server -m Meta-Llama-3-8B-Q8_0.gguf -sm tensor -np 16").file.plan.tensor == 2


@pytest.mark.parametrize(
    ("flags", "longest"),
    [("", 8192), ("-np -1", 8192), ("-np 4", 2048), ("-np 4 --kv-unified", 8192), ("--no-kv-unified", 2048)],
)
def test_one_request_may_have_the_whole_of_a_unified_context(flags: str, longest: int) -> None:
    assert _read(f"llama-server -m Meta-Llama-3-8B-Q8_0.gguf -c 8192 {flags}").served_length == longest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llama-server -m Meta-Llama-3-8B-Q8_0.gguf -np none", "whole number"),
        ("llama-server -m Meta-Llama-3-8B-Q8_0.gguf -sm rows", "none, layer, row or tensor"),
        ("llama-server -m Meta-Llama-3-8B-Q8_0.gguf -ctk fp8", "q8_0"),
        ("llama-server --port 8080", "--model"),
    ],
)
def test_bad_words_are_one_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _read(text)
