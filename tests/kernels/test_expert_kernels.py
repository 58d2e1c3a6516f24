"""Experts in narrow formats: no slower than wide ones where weights are what is read, tuned kernels before untuned
ones, and every kernel with the shapes that it was timed with."""

from functools import cache
from itertools import product

import numpy
import pytest

from dragonscale.evidence.kernels import predict, read_cases
from dragonscale.models import load_model
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.kernels import grouped_matmul_seconds, kernel_profile_for
from tests.kernels.test_accuracy import HERE

MODELS = ("mixtral-8x7b", "mixtral-8x22b", "llama4-maverick", "qwen3-30b-a3b", "deepseek-v3")
SPLITS = ((1, 1), (8, 1), (1, 8), (2, 4))
"""Ways each expert is divided, and ways the experts are dealt out."""
TOKENS = numpy.array([4.0, 16.0, 64.0, 128.0, 256.0])
"""Decode batches: weights are most of what experts wait for. With one token it is the launch."""


@cache
def experts_of(name: str) -> tuple[float, float, float, float]:
    """Hidden size, columns of an expert, picks and experts."""
    dims = next(section.dims for section in load_model(name).program().sections if "e" in section.dims)
    return dims["d"], dims["f"], dims["x"], dims["e"]


NARROW = [(name, "") for name in chip_names() if "fp8" in load_chip(name).matrix and not load_chip(name).announced]


@pytest.mark.parametrize(("chip", "own"), [*NARROW, ("h200", "h200-jax")])
def test_experts_in_fp8_are_no_slower_than_in_bf16(chip: str, own: str) -> None:
    profile = kernel_profile_for(chip, own)
    tuned = [name for name in profile.grouped.of("fp8") if not name.endswith("untuned")]
    for model, (tensor, chips), name in product(MODELS, SPLITS, tuned):
        shape, split = experts_of(model), {"tensor": tensor, "chips": chips}
        usual = "triton" if own else ""  # `ragged_dot`, first of that profile, is of no engine that has fp8 kernels
        wide = grouped_matmul_seconds(TOKENS, *shape, "bf16", profile, **split, implementation=usual)
        narrow = grouped_matmul_seconds(TOKENS, *shape, "fp8", profile, **split, implementation=name)
        # experts of 96 columns a chip hardly differ, and an H20 has few FLOPs to save, with HBM3e fewer bytes too
        assert (narrow <= (1.05 if chip == "h20-3e" else 1.03) * wide).all(), (model, split, name)


@pytest.mark.parametrize("chip", ["h100", "h200"])
def test_large_experts_in_fp8_are_read_at_most_of_the_bandwidth(chip: str) -> None:
    """One layer of Mixtral 8x7B with 64 tokens: 362 us on an H200 by vLLM, 379 by TensorRT-LLM, of 294 us for its bytes
    alone."""
    profile, shape = kernel_profile_for(chip), experts_of("mixtral-8x7b")
    least = 3 * shape[0] * shape[1] * shape[3] / profile.bandwidth
    for name in ("triton", "cutlass"):
        taken = grouped_matmul_seconds(64, *shape, "fp8", profile, implementation=name)
        assert 1.15 * least < taken < 1.45 * least, name


def test_a_timing_without_the_tuner_is_no_ones_usual_kernel() -> None:
    for chip in chip_names():
        for tables in kernel_profile_for(chip).grouped.by_format.values():
            assert not next(iter(tables)).endswith("untuned")


@pytest.mark.parametrize(
    ("file", "chip"), [("moe_gemm", "h100"), ("moe_gemm", "h200"), ("experts", "h100"), ("experts", "h200")]
)
def test_rows_of_experts_lie_in_the_range_that_their_table_states(file: str, chip: str) -> None:
    rests = kernel_profile_for(chip).rests_on
    cases = [case for case in read_cases(HERE / f"sample_{file}.csv")[0] if case.key.chip == chip]
    assert cases
    for case in cases:
        least, most = rests[f"grouped.{case.key.dtype}.{case.key.implementation}"].inner or (0, 0)
        assert least <= case.sizes[2] / case.sizes[6] <= most, case.id


def test_experts_divided_among_chips_are_as_near_as_whole_ones() -> None:
    cases = [case for case in read_cases(HERE / "sample_experts.csv")[0] if case.sizes[6] > 1]
    errors = sorted(abs(expected / case.seconds - 1) for case, expected in zip(cases, predict(cases), strict=True))
    assert len(cases) > 200
    assert errors[len(errors) // 2] < 0.1
