"""The matmuls of a layer as points under a chip's roof: how much each computes per byte on one chip."""

from dragonscale.training.evaluation import Job, judge_one
from dragonscale.training.plan import Plan


def layer_points(job: Job, plan: Plan) -> list[tuple[str, float, float]]:
    """(name, FLOPs per byte, expected FLOP/s) of the forward matmuls of the model's most common layer under a plan."""
    section = max(job.model.program().sections, key=lambda one: one.repeat).name
    lines = [line for line in judge_one(job, plan).ledger.lines if line.section == section and line.phase == "forward"]
    matmuls = [line for line in lines if line.kind in ("matmul", "grouped matmul")]
    return [
        (f"{line.part} {line.what}".strip(), line.flops / line.hbm_bytes, line.flops / line.expected_s)
        for line in matmuls
    ]
