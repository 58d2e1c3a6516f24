"""The matmuls of a layer as points under a chip's roof: how much each computes per byte on one chip."""

from dragonscale.plan.ledger import Ledger
from dragonscale.training.evaluation import Job


def layer_points(job: Job, ledger: Ledger) -> list[tuple[str, float, float]]:
    """(name, FLOPs per byte, expected FLOP/s) of the forward matmuls of the model's most common layer in the ledger of
    a step."""
    section = max(job.model.program().sections, key=lambda one: one.repeat).name
    lines = [line for line in ledger.lines if line.section == section and line.phase == "forward"]
    matmuls = [line for line in lines if line.kind in ("matmul", "grouped matmul")]
    return [
        (f"{line.part} {line.what}".strip(), line.flops / line.hbm_bytes, line.flops / line.expected_s)
        for line in matmuls
    ]
