"""What bounds a step: the resource that its longest part waits for.

The parts are the terms of a step's breakdown, so the label is that of the longest bar of the answer. Matmuls and
attention are bound by compute, unless HBM takes longer for their bytes than the arithmetic for its FLOPs; elementwise
kernels, copies and the optimizer's update are bound by memory bandwidth; every other part (collectives, the pipeline
bubble, the host) is waiting itself, and is its own name.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.cost.evaluation import judge_one, make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("qwen3-30b-a3b"), parse_slice("h200:16"), 128, 4096, "megatron-core")
>>> step_bound(judge_one(job, parse_plan("fsdp2 ep8 z1")).ledger, job.slice.chip).label
'memory bandwidth (elementwise)'
"""

from collections import defaultdict
from dataclasses import dataclass

from dragonscale.physics.hardware import Chip
from dragonscale.plan.ledger import COLLECTIVES, Ledger, LedgerLine
from dragonscale.training.cost.step_ledger import MATMULS

COMPUTE = "compute"
MEMORY = "memory bandwidth"

# Kinds of lines that are no work on the chip itself, but waiting for wires, the host, other stages or stragglers.
WAITING = (*COLLECTIVES, "wait", "host", "host transfer")


@dataclass(frozen=True)
class StepBound:
    """The resource that the longest part of a step waits for.

    `share` is the fraction of the step that all work on that resource takes, `part_share` that of the longest part
    alone, and `compute_share` that of all work bound by compute.
    """

    resource: str
    part: str
    share: float
    part_share: float
    compute_share: float

    @property
    def label(self) -> str:
        """A short name: `compute`, `memory bandwidth (elementwise)`, `expert all-to-all`."""
        if self.resource == MEMORY:
            return f"{MEMORY} ({self.part})"
        return self.resource

    @property
    def text(self) -> str:
        """The name with the fraction of the step that it takes."""
        if self.resource == COMPUTE:
            return f"{COMPUTE} ({self.share:.0%} of the step)"
        longest = f"{self.part_share:.0%} of the step, its longest part"
        text = f"{self.part} ({longest})"
        if self.resource == MEMORY:
            text = f"{MEMORY} ({self.part}, {longest})"
        if self.compute_share > self.part_share:
            text += f"; compute takes {self.compute_share:.0%} in several parts"
        return text


def step_bound(ledger: Ledger, chip: Chip) -> StepBound:
    """What bounds the step of a ledger of one plan (floats) on a chip."""
    # Exposed seconds by part and resource: a part such as "attention matmuls" may have lines bound by either.
    by_part: dict[str, dict[str, float]] = {}
    by_resource: dict[str, float] = defaultdict(float)
    for line in ledger.lines:
        exposed = float(line.total("exposed_s"))
        resource = line_resource(line, chip)
        by_part.setdefault(line.term, defaultdict(float))[resource] += exposed
        by_resource[resource] += exposed
    part_seconds = {part: sum(seconds.values()) for part, seconds in by_part.items()}
    part = max(part_seconds, key=part_seconds.__getitem__)
    resource = max(by_part[part], key=by_part[part].__getitem__)
    step = sum(by_resource.values()) or 1.0
    return StepBound(
        resource=resource,
        part=part,
        share=by_resource[resource] / step,
        part_share=part_seconds[part] / step,
        compute_share=by_resource[COMPUTE] / step,
    )


def line_resource(line: LedgerLine, chip: Chip) -> str:
    """The resource that a line waits for: compute, memory bandwidth, or the name of its term."""
    if line.kind in WAITING:
        return line.term
    if line.kind in MATMULS and line.hbm_bytes / chip.hbm.bandwidth <= line.bound_s:
        return COMPUTE
    return MEMORY
