"""Accuracy on kernels that no constant was fitted on.

`sample_*.csv` are rows of NVIDIA's kernel database (aiconfigurator-core 0.12, Apache-2.0), chosen by a hash of their
sizes and kept out of the fit; `sample_experts.csv` those of vLLM 0.19.0 and TensorRT-LLM 1.3.0rc20 (commit 095f58a5),
`sample_experts_four_bits.csv` and `sample_kernels_weight_only.csv` those of weights in 4 and 8 bits on six chips.
`witness_*.csv` were measured for this project on one H200 (PyTorch 2.11, CUDA 13.0, cold last-level cache, medians):
matmuls as training has them, batched ones, odd sizes; attention forward and backward of several head sizes with cuDNN;
and kernels that only move bytes.
"""

import csv
import statistics
from pathlib import Path

import pytest

from dragonscale.evidence.kernels import validate
from dragonscale.evidence.score import by
from dragonscale.physics.kernels import (
    attention_backward_seconds,
    attention_seconds,
    kernel_profile_for,
    matmul_seconds,
    memory_seconds,
)

HERE = Path(__file__).parent
TARGETS = {
    "gemm bf16": 0.08,
    "gemm fp8": 0.12,
    "gemm fp8_block": 0.12,
    "gemm nvfp4": 0.15,
    "prefill bf16": 0.12,
    "prefill fp8": 0.12,
    "decode bf16": 0.12,
    "decode fp8": 0.12,
    "moe bf16": 0.15,
    "moe fp8": 0.15,
    "moe fp8_block": 0.15,
    "moe nvfp4": 0.15,
    "moe mxfp4_bf16": 0.15,
    "moe mxfp4_mxfp8": 0.15,
    "moe int4_bf16": 0.15,
    "gemm int4_bf16": 0.1,
    "gemm int8_bf16": 0.1,
}


SAMPLES = ["gemm", "attn_context", "attn_generation", "moe_gemm", "experts", "experts_four_bits", "kernels_weight_only"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sample_is_within_the_targets(name: str) -> None:
    report = validate(HERE / f"sample_{name}.csv")
    assert not report.skipped
    for kind, rows in by(report.scored, lambda row: row.group.rsplit(" ", 1)[0]).items():
        assert statistics.median(row.ape for row in rows) <= TARGETS[kind], kind


def rows(name: str) -> list[dict[str, str]]:
    with open(HERE / f"witness_{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def median_error(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(abs(expected / measured - 1) for expected, measured in pairs)


def test_matmuls_as_training_has_them() -> None:
    profile = kernel_profile_for("h200")
    pairs = []
    for row in rows("matmul"):
        m, n, k, batch = (int(row[key]) for key in ("m", "n", "k", "batch"))
        pairs.append((matmul_seconds(m, n, k, "bf16", profile, batch=batch), float(row["seconds"])))
    assert len(pairs) == 27
    assert median_error(pairs) < 0.12


@pytest.mark.parametrize(
    ("which", "function"), [("forward", attention_seconds), ("backward", attention_backward_seconds)]
)
def test_attention_as_training_has_it(which: str, function) -> None:
    profile = kernel_profile_for("h200")
    pairs = []
    for row in rows("attention"):
        batch, tokens, q_heads, kv_heads, head_dim = (
            int(row[key]) for key in ("batch", "tokens", "q_heads", "kv_heads", "head_dim")
        )
        expected = function(
            batch, tokens, tokens, q_heads, kv_heads, head_dim, "bf16", profile, causal=row["causal"] == "1"
        )
        pairs.append((expected, float(row[f"{which}_s"])))
    assert median_error(pairs) < 0.12


def test_streams_large_enough_to_matter() -> None:
    profile = kernel_profile_for("h200")
    large = [row for row in rows("stream") if row["kernel"] != "rmsnorm" and int(row["bytes"]) >= 2**20]
    pairs = [(memory_seconds(int(row["bytes"]), profile), float(row["seconds"])) for row in large]
    assert median_error(pairs) < 0.08
