"""What bounds a step is the resource that its longest part waits for."""

from dataclasses import replace

import pytest

from dragonscale.commands.train.plans import plan_report
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.plan.ledger import Ledger
from dragonscale.training.cost.evaluation import Verdict, judge_one, make_job
from dragonscale.training.cost.step_bound import COMPUTE, MEMORY, line_resource, step_bound
from dragonscale.training.plan.plan_file import parse_plan

H100 = parse_slice("h100:64").chip


@pytest.mark.parametrize(
    ("model", "on", "batch", "sequence", "plan", "label"),
    [
        ("qwen3-30b-a3b", "h200:512", 4096, 4096, "pp2 fsdp128 ep2 mb4 v24 z1", "memory bandwidth (elementwise)"),
        ("qwen3-30b-a3b", "h100:16", 512, 4096, "pp2 ep8 z1", "memory bandwidth (elementwise)"),
        ("llama3-70b", "h100:64", 512, 8192, "pp4 fsdp2 cp2 tp4 v4 z1", "compute"),
        ("llama3-70b", "h100:64", 64, 1024, "fsdp64 z3", "fsdp collectives"),
        ("llama3-8b", "h100:8", 8, 8192, "pp8 z1", "pipeline bubble"),
    ],
)
def test_the_label_is_that_of_the_longest_bar(
    model: str, on: str, batch: int, sequence: int, plan: str, label: str
) -> None:
    """The JSON, the sentence and the first row of terms say the same."""
    job = make_job(load_model(model), parse_slice(on), batch, sequence, "megatron-core")
    report = plan_report(job, parse_plan(plan))
    assert report.bound_by == label
    longest = report.terms[0]
    share = longest.exposed_s / report.step_s
    if label == COMPUTE:
        assert longest.flops > 0
        assert report.advice.startswith("bound by compute (")
    else:
        assert longest.name in label
        assert f"{share:.0%} of the step, its longest part" in report.advice


@pytest.fixture(scope="module")
def dense() -> Verdict:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 512, 8192, "megatron-core")
    return judge_one(job, parse_plan("pp2 fsdp32 mb1 z1 none"))


def test_a_part_that_grows_becomes_the_bound(dense: Verdict) -> None:
    before = step_bound(dense.ledger, H100)
    assert before.label == COMPUTE
    assert before.share > before.part_share

    longer = [replace(line, exposed_s=100.0) if line.term == "pipeline bubble" else line for line in dense.ledger.lines]
    after = step_bound(Ledger(longer), H100)
    assert after.label == "pipeline bubble"
    assert after.part_share > 0.5


def test_a_matmul_waits_for_what_takes_longer(dense: Verdict) -> None:
    matmul = next(line for line in dense.ledger.lines if line.kind == "matmul" and line.part == "mlp")
    assert line_resource(matmul, H100) == COMPUTE
    bytes_of_a_second = H100.hbm.bandwidth
    assert line_resource(replace(matmul, hbm_bytes=bytes_of_a_second, bound_s=0.9), H100) == MEMORY


def test_no_grouped_matmul_is_faster_than_its_bytes() -> None:
    """Gradients of experts' weights read tokens twice and write the weights once: no expert reads all tokens."""
    job = make_job(load_model("qwen3-30b-a3b"), parse_slice("h200:512"), 4096, 4096, "megatron-core")
    ledger = judge_one(job, parse_plan("pp2 fsdp128 ep2 mb4 v24 z1")).ledger
    grouped = [line for line in ledger.lines if line.kind == "grouped matmul"]
    assert grouped
    for line in grouped:
        assert line.hbm_bytes / job.slice.chip.hbm.bandwidth < line.expected_s, line.what
