"""Engines as they are launched on a chip: published defaults, overrides that change what they say, and what `auto`
takes."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import next_command
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import chip_names, load_chip, parse_slice
from dragonscale.physics.units import render
from dragonscale.serving.engine.auto import auto_choice, engine_choices
from dragonscale.serving.engine.engine import adjust, captured, engines, filled, load_engine
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.iteration import decode, prefill
from dragonscale.serving.iteration.phases import iteration_cost

LLAMA, DEEPSEEK, OSS = (load_model(name) for name in ("llama3-8b", "deepseek-v3", "gpt-oss-120b"))

# max_num_batched_tokens, max_num_seqs, largest captured graph (None: none is captured).
LAUNCHED = [
    ("vllm", "b200", 16384, 1024, 1024),
    ("vllm", "mi300x", 16384, 1024, 512),
    ("vllm", "h200", 8192, 1024, 512),
    ("vllm", "h100", 8192, 1024, 512),
    ("vllm", "a100", 2048, 256, 512),
    ("vllm", "l40s", 2048, 256, 512),
    ("vllm-tpu", "v6e", 1024, 256, 256),
    ("vllm-tpu", "v5e", 512, 256, 256),
    ("vllm-tpu", "v5p", 256, 256, 256),
    ("sglang", "h100", 8192, 2048, 512),
    ("sglang", "b200", 16384, 2048, 512),
    ("sglang", "l40s", 4096, 2048, 160),
    ("sglang", "v100", 2048, 2048, 80),
    ("trtllm", "h100", 8192, 2048, None),
]


@pytest.mark.parametrize(("name", "chip", "tokens", "sequences", "graph"), LAUNCHED)
def test_defaults_are_those_of_the_chip(name: str, chip: str, tokens: int, sequences: int, graph: int | None) -> None:
    engine = engine_on(name, load_chip(chip), LLAMA)
    assert (engine.scheduling.max_tokens, engine.scheduling.max_sequences) == (tokens, sequences)
    assert (engine.host.graph_sizes[-1][0] if engine.host.graph_sizes else None) == graph


def test_sglang_finds_its_memory_fraction() -> None:
    """What stays free of an H100 at tp 8: 512 MiB, 1.5 a token of a chunk of 8192, 2 for each of 512 sequences, 128 a
    GPU. The rest of 79.2 GiB (0.81) is the fraction; weights and cache have that part of what is free when the process
    group has started. A stated fraction is taken as it is."""
    chip = load_chip("h100")
    found = capacity(deploy("llama3-70b", "h100:8", "tensor=8", engine_on("sglang", chip, LLAMA)))
    kept = (512 + 1.5 * 8192 + 2 * 512 + 128 * 8) * 2**20
    memory = engine_on("sglang", chip, LLAMA).memory
    free = found.hbm - memory.context_bytes - memory.group_bytes
    assert found.cache + found.weights == pytest.approx(free * (1 - kept / found.hbm), rel=2e-3)
    assert found.usable == pytest.approx(found.hbm)
    stated = engine_on("sglang", chip, LLAMA, LaunchLimits(memory_fraction=0.7))
    room = capacity(deploy("llama3-70b", "h100:8", "tensor=8", stated))
    assert room.cache + room.weights == pytest.approx(0.7 * free)


def test_limits_change_what_they_say() -> None:
    chip, plain = load_chip("h100"), engine_on("vllm", load_chip("h100"), LLAMA)
    limits = LaunchLimits(max_seqs=7, token_budget=999, memory_fraction=0.5)
    asked = engine_on("vllm,scheduling.max_tokens=4096,memory.share=0.8", chip, LLAMA, limits)
    assert (asked.scheduling.max_sequences, asked.scheduling.max_tokens, asked.memory.share) == (7, 999, 0.5)
    assert asked == adjust(plain, memory={"share": 0.5}, scheduling={"max_sequences": 7, "max_tokens": 999})
    with pytest.raises(InputError, match=r"--memory-fraction is 1\.5"):
        LaunchLimits(memory_fraction=1.5)


def test_recipes_start_from_the_engine_itself() -> None:
    """What published scripts set is laid over constants that no chip has changed."""
    assert load_engine("vllm").memory.share == 0.9
    assert load_engine("trtllm").host.stream_interval == 1
    assert engine_on("trtllm", load_chip("b200"), LLAMA).host.stream_interval == 10


VLLM = ((2, 1), (4, 2), (8, 4), (256, 8), (512, 16))


@given(batch=st.integers(1, 2000))
def test_a_batch_is_filled_up_to_a_captured_one(batch: int) -> None:
    sizes = sorted({1, 2, 4, *range(8, 257, 8), *range(256, 513, 16)})
    above = [size for size in sizes if size >= batch]
    assert filled(float(batch), VLLM) == (above[0] if above else batch)
    assert bool(captured(batch, VLLM)) == bool(above)


def test_beyond_the_largest_graph_the_host_sets_the_pace() -> None:
    engine = engine_on("vllm", load_chip("h100"), LLAMA)
    deployment = deploy("llama3-8b", "h100:1", "weights=fp8,compute=fp8,kv=fp8", engine)
    cost = iteration_cost(deployment, decode(numpy.array([512.0, 513.0]), 100))
    assert cost.issuing[0] == 0 < cost.issuing[1]
    steps = iteration_cost(deployment, decode(numpy.arange(1.0, 513.0), 100)).expected
    assert numpy.all(numpy.diff(steps) >= -1e-9)


@pytest.mark.parametrize(("where", "fused"), [("b200:8", 2 / 6), ("h200:8", 1.0)])
def test_experts_in_one_call_cost_the_host_less(where: str, fused: float) -> None:
    """TensorRT-LLM's kernels for Blackwell do a layer of experts in one call, after the activations' scales."""

    def issuing(seconds: float) -> float:
        engine = adjust(load_engine("sglang"), host={"expert_layer_s": seconds})
        deployment = deploy("deepseek-v3", where, "tensor=8,weights=fp8,compute=fp8_block,kv=fp8", engine)
        return float(numpy.max(iteration_cost(deployment, prefill(1024.0)).issuing))

    assert issuing(1e-3) - issuing(0.0) == pytest.approx(58 * 1e-3 * fused)


@settings(deadline=None, max_examples=15)
@given(limit=st.integers(1, 4096), more=st.integers(0, 4096))
def test_a_larger_limit_never_lowers_the_largest_batch(limit: int, more: int) -> None:
    """But for the logits of more sequences, which the profiling run samples from: 10 GB of 4,096 of them."""

    def most(sequences: int) -> float:
        engine = engine_on("vllm", load_chip("h100"), LLAMA, LaunchLimits(max_seqs=sequences))
        room = capacity(deploy("llama3-8b", "h100:1", "", engine))
        return min(float(numpy.ravel(room.sequences(1000.0))[0]), sequences)

    assert most(limit + more) >= most(limit) * 0.8


@pytest.mark.parametrize("name", ["torch", "jax", "pax", "torch-eager", "dragonscale"])
def test_loops_of_ones_own_fit(name: str) -> None:
    """A static batch of any length is no workspace of any length."""
    chip = "h100:1" if name != "pax" else "v5e:4x4"
    assert capacity(deploy("llama3-8b", chip, "", name)).fits


AUTO = [
    (LLAMA, "h100:8", "vllm"),
    (LLAMA, "b200:1", "vllm"),
    (LLAMA, "mi300x:8", "vllm"),
    (LLAMA, "l40s:1", "vllm"),
    (LLAMA, "v6e:2x4", "vllm-tpu"),
    (LLAMA, "v100:8", "generic"),
    (LLAMA, "v2:2x2", "generic"),
    (OSS, "h100:1", "vllm"),
    (OSS, "mi355x:8", "vllm"),
    (DEEPSEEK, "h200:8", "sglang"),
    (load_model("kimi-k2.5"), "h200:8", "vllm"),
    (load_model("qwen3.5-397b-a17b"), "b200:8", "sglang"),
    (load_model("minimax-m2.5"), "b200:8", "vllm"),
    (DEEPSEEK, "mi355x:8", "sglang"),
    (DEEPSEEK, "h100:32", "sglang-ep"),
    (DEEPSEEK, "gb200:72", "sglang-ep"),
    (DEEPSEEK, "tpu7x:2x2x2", "vllm-tpu"),
]


@pytest.mark.parametrize(("model", "where", "engine"), AUTO)
def test_auto_takes_what_people_run(model, where: str, engine: str) -> None:
    piece = parse_slice(where)
    assert auto_choice(piece.chip, model, piece.chips).engine == engine


def test_auto_says_why_and_names_engines_that_exist() -> None:
    assert {one.engine for one in engine_choices()} <= set(engines())
    assert all(one.why and (one.source or one.engine == "generic") for one in engine_choices())
    for name in chip_names():
        for model in (LLAMA, DEEPSEEK, OSS):
            choice = auto_choice(load_chip(name), model)
            assert engine_on("auto", load_chip(name), model).name == choice.engine
            assert runs_on(choice.engine, load_chip(name))


@pytest.mark.parametrize("seqs", [64, 256])
def test_a_launch_is_judged_at_the_sequences_that_it_allows(seqs: int) -> None:
    """Those that fit, what each gets with all places taken, and the same limit in the next command."""
    command = f"vllm serve Qwen/Qwen2.5-7B-Instruct -tp 2 --max-num-seqs {seqs}"
    asked = read_question(ServeQuestion("", on="l4:2", plan=command))
    report = answer(asked, confirm=False)
    fit = report.configs[0].max_batch
    assert (fit < seqs) == (seqs == 256)
    full = answer(read_question(ServeQuestion("qwen2.5-7b", on="l4:2", plan="tensor=2", batch=str(fit))), brief=True)
    told = f"all {seqs} fit" if fit == seqs else f"{fit} of {seqs} fit"
    assert report.at_most.startswith(f"{told} at these lengths; with {fit} at once TPOT")
    assert f"TPOT {render(full.configs[0].tpot_s, 's')}, TTFT" in report.at_most
    assert f"--max-seqs {seqs}" in next_command(asked, report)
    assert full.at_most == ""
