"""Whole Transformer layers measured on an H200 against the sum of their expected kernels: nothing was
fitted on them."""

import json
from pathlib import Path

import pytest

from dragonscale.models import Attention, Layer, Mlp, Transformer
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan import Plan

ROWS = Path(__file__).parents[2] / "docs" / "data" / "h200_training_kernels.jsonl"
KERNELS = ("matmul", "attention", "elementwise")
LAYERS = [row for row in map(json.loads, ROWS.read_text().splitlines()) if row["kind"] == "layer"]


def predicted(row: dict) -> tuple[float, float]:
    """Expected seconds of the forward pass, and of both passes."""
    attention = Attention(row["n_heads"], row["n_kv_heads"], row["head_dim"])
    model = Transformer("layer", row["d_model"], 1000, (Layer(attention, Mlp(row["d_ff"])),))
    job = make_job(model, parse_slice("h200:1"), row["batch"], row["seq"])
    lines = judge_one(job, Plan(microbatch=row["batch"])).ledger.lines
    kernels = [line for line in lines if line.section == "block" and line.kind in KERNELS]
    forward = sum(line.total("expected_s") for line in kernels if line.phase == "forward")
    return forward, sum(line.total("expected_s") for line in kernels)


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: f"{row['name']}-{row['batch']}x{row['seq']}")
def test_layer_within_fifteen_percent(row: dict) -> None:
    """The profile's products were timed one at a time; in a layer the chip runs hot and is up to 14% slower."""
    forward, both = predicted(row)
    assert forward == pytest.approx(row["forward_s"], rel=0.15)
    assert both == pytest.approx(row["both_s"], rel=0.15)


def test_the_median_layer_is_within_ten_percent() -> None:
    errors = sorted(abs(predicted(row)[1] / row["both_s"] - 1) for row in LAYERS)
    assert errors[len(errors) // 2] < 0.10
