"""Which kernels engines run a model's experts with, what a narrow format saves them, and a word where nobody timed such
experts."""

import numpy
import pytest

from dragonscale.physics.hardware import chip_names
from dragonscale.physics.kernels import kernel_profile_for
from dragonscale.serving.engine.engine import adjust, engines, load_engine
from dragonscale.serving.engine.formats import product_format
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.kernel_lines import expert_kernels
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.serving.iteration.timed_shapes import untimed_experts

MODELS = ("mixtral-8x7b", "mixtral-8x22b", "llama4-maverick", "qwen3-30b-a3b", "deepseek-v3")
ENGINES = {
    (one.experts.kernels, one.experts.overlap_s): name
    for name, one in reversed(engines().items())
    if not one.experts.redundant and not one.program.expert_capacity
}
"""An engine for each way to run experts by kernels of a library."""


def test_the_ways_to_run_experts() -> None:
    assert {kernels for kernels, _ in ENGINES} == {"", "plain", "tiles", "trtllm"}
    assert len(ENGINES) == 4


def expert_seconds(model: str, chip: str, plan: str, engine: str, batch: int) -> float:
    deployment = deploy(model, f"{chip}:8", plan, engine)
    return float(iteration_cost(deployment, decode(batch, 1000)).terms["experts"].expected[0])


@pytest.mark.parametrize("engine", sorted(ENGINES.values()))
@pytest.mark.parametrize("chip", ["h100", "h200"])
def test_no_engine_reads_experts_in_fp8_slower_than_in_bf16(chip: str, engine: str) -> None:
    for model in MODELS:
        for plan in ("tensor=8", "data=8,expert=8"):
            wide = expert_seconds(model, chip, plan, engine, 64)
            narrow = expert_seconds(model, chip, f"{plan},weights=fp8,compute=fp8", engine, 64)
            assert narrow <= wide, (model, plan)


def test_no_engine_runs_a_kernel_that_was_timed_untuned() -> None:
    for chip in chip_names():
        for tables in kernel_profile_for(chip).grouped.by_format.values():
            for engine in engines().values():
                assert not expert_kernels(engine.experts, tables).endswith("untuned"), (chip, engine.name)


def test_an_engine_takes_the_first_kernel_that_it_names_and_the_profile_has() -> None:
    tables = kernel_profile_for("h200").grouped.of("fp8")
    named = {
        words: adjust(load_engine("vllm"), experts={"kernels": words}).experts
        for words in ("", "cutlass", "trtllm cutlass")
    }
    assert expert_kernels(named[""], tables) == "triton"
    assert expert_kernels(named["cutlass"], tables) == expert_kernels(named["trtllm cutlass"], tables) == "cutlass"


def test_large_experts_in_fp8_take_about_twice_their_floor() -> None:
    """Mixtral 8x22B on eight H200: 111 us a layer of 128 tokens were measured (vLLM), 6.2 ms of 56 layers, where the
    bytes take 3.5."""
    taken = expert_seconds("mixtral-8x22b", "h200", "tensor=8,weights=fp8,compute=fp8,kv=fp8", "vllm", 124)
    assert 5e-3 < taken < 7e-3


def test_experts_of_shapes_that_nobody_timed_are_told() -> None:
    note = untimed_experts(deploy("deepseek-v3", "b200:8", "tensor=8,weights=nvfp4,compute=nvfp4", "trtllm"))
    assert "512 to 16,384 columns" in note
    assert "256" in note
    assert not untimed_experts(deploy("deepseek-v3", "b200:8", "data=8,expert=8,weights=nvfp4,compute=nvfp4", "trtllm"))
    assert not untimed_experts(deploy("llama4-maverick", "h200:8", "tensor=8,weights=fp8,compute=fp8", "trtllm"))


@pytest.mark.parametrize("engine", ["dragonscale", "vllm-ep", "jetstream"])
def test_where_no_grouped_kernel_is_taken_there_is_nothing_to_tell(engine: str) -> None:
    on = "v5e:4x4" if engine == "jetstream" else "h200:16"
    assert not untimed_experts(deploy("qwen3-30b-a3b", on, "tensor=16", engine))


def test_weights_in_four_bits_are_read_at_most_of_the_bandwidth_of_a_card() -> None:
    """Llama 3 8B for one user of an RTX 4090: people see 130 to 150 tokens/s (AWQ, Marlin), 47 in bf16."""
    cost = iteration_cost(deploy("llama3-8b", "rtx4090:1", "weights=int4", "vllm"), decode(1, 1000))
    least = 3 * 4096 * 14336 * 32 * 0.515625 / 1008e9
    assert 1.1 * least < float(cost.terms["mlp"].expected[0]) < 1.5 * least
    assert 6e-3 < float(cost.expected[0]) < 8.5e-3


def test_experts_in_four_bits_have_kernels_of_their_own_on_every_measured_chip() -> None:
    """NVFP4 beside activations in 16 bits, as Hopper has it, is unpacked like int4."""
    for chip in ("a100", "h100", "h200", "b200", "l40s"):
        tables = kernel_profile_for(chip).grouped
        assert list(tables.of("int4_bf16")) == list(tables.of(product_format("nvfp4", "bf16"))) == ["marlin"], chip


@pytest.mark.parametrize(
    ("chips", "phase", "fused"), [(8, "decode", True), (8, "prefill", False), (1, "decode", False)]
)
def test_norms_end_the_all_reduce_of_a_decode_step(chips: int, phase: str, fused: bool) -> None:
    """TensorRT-LLM's AllReduce adds the residual and norms it; large sums of prompts and lone chips need kernels."""
    iteration = decode(4, 1024.0) if phase == "decode" else prefill(1024, 4)

    def elementwise(norms: bool) -> float:
        engine = adjust(load_engine("trtllm"), collectives={"norms": norms})
        cost = iteration_cost(deploy("llama3-8b", f"h200:{chips}", f"tensor={chips}", engine), iteration)
        return float(numpy.ravel(cost.expected)[0])

    assert (elementwise(True) < elementwise(False) * 0.99) == fused
