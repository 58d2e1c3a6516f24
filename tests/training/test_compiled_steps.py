"""Steps of small models through torch.compile on an H200, beside what the stack of such loops expects of them."""

import csv
import json
from pathlib import Path

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan

TABLE = Path(__file__).parents[2] / "docs/data/h200_compiled_steps.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
GPT2 = [row for row in ROWS if row["model"].startswith("gpt2")]


@pytest.mark.parametrize("row", GPT2, ids=lambda row: f"{row['model']} x {row['sequences']}")
def test_steps_of_compiled_gpt2_are_within_a_tenth(row: dict[str, str], tmp_path: Path) -> None:
    width = int(row["width"])
    config = {
        "model_type": "gpt2",
        "n_layer": int(row["layers"]),
        "n_embd": width,
        "n_head": int(row["heads"]),
        "vocab_size": int(row["vocab"]),
        "n_positions": int(row["tokens"]),
        "n_inner": 4 * width,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    sequences = int(row["sequences"])
    job = make_job(load_model(str(path)), parse_slice("h200:1"), sequences, int(row["tokens"]), "torch-compile")
    verdict = judge_one(job, parse_plan(f"mb{sequences} none z0"))
    assert first_number(verdict.seconds) * 1e3 == pytest.approx(float(row["step_ms"]), rel=0.1)
    context_gb = job.stack.memory.reserve_bytes / 1e9  # which torch's own peak leaves out
    assert first_number(verdict.hbm_bytes) / 1e9 - context_gb == pytest.approx(float(row["peak_gb"]), rel=0.2)


def test_small_models_that_no_pretraining_trainer_of_one_node_has_are_taken_as_compiled_loops() -> None:
    def stack(on: str) -> str:
        return make_job(load_model("gpt2"), parse_slice(on), 64, 1024, "auto").stack.name

    assert stack("h100:1") == stack("rtx4090:1") == "torch-compile"
    assert stack("h100:64") == "megatron-lm"
