"""A timeline is as long as what it draws, and nests."""

import itertools
import json
from pathlib import Path

import pytest

from dragonscale.faces.cli import main
from tests.training.plans import job_of, judged


@pytest.mark.parametrize(
    "plan", ["fsdp=64,remat=block", "data=2,fsdp=2,tensor=4,pipe=4,zero=1,virtual=2,schedule=interleaved"]
)
def test_a_timeline_lasts_as_long_as_its_step(plan: str) -> None:
    from dragonscale.training.cost.step_timeline import step_timeline
    from dragonscale.training.plan.plan_file import parse_plan

    job, split = job_of(), parse_plan(plan)
    verdict = judged(plan, job)
    trace = step_timeline(verdict.ledger, job.batch / (split.replicas * split.microbatch), "a step")
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    compute = [event for event in slices if event["tid"] == 1]
    assert max(event["ts"] + event["dur"] for event in compute) == pytest.approx(verdict.seconds * 1e6, rel=1e-9)
    lines = [event for event in compute if "exposed_s" in event["args"]]
    assert sum(event["args"]["exposed_s"] for event in lines) == pytest.approx(verdict.seconds, rel=1e-9)
    sent = sum(event["args"]["sent_bytes"] for event in slices if event["tid"] > 1)
    moved = sum(line.total("wire_bytes") for line in verdict.ledger.lines if line.expected_s)
    assert sent == pytest.approx(moved, rel=1e-9)
    for track in {event["tid"] for event in slices} - {1}:  # the same wires carry one thing after the other
        mine = sorted((event["ts"], event["dur"]) for event in slices if event["tid"] == track)
        assert mine[0][0] >= 0
        assert all(start + long <= after + 1e-6 for (start, long), (after, _) in itertools.pairwise(mine))
        assert mine[-1][0] + mine[-1][1] <= verdict.seconds * 1e6 * 1.0001


def test_train_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    asked = [
        "train",
        "llama3-8b",
        "--on",
        "h100:8",
        "--batch",
        "16seq",
        "--seq",
        "4096",
        "--plan",
        "fsdp=8,remat=block",
    ]
    assert main([*asked, "--timeline", str(file)]) == 0
    names = {event["args"]["name"] for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "M"}
    assert {"compute", "network: fsdp"} <= names
    assert main([*asked, "--timeline", str(tmp_path / "no" / "step.json")]) == 2
