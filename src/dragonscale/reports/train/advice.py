"""What bounds a training step, what is lost beside it, and what to change."""

from dragonscale.reports.train.records import MemoryRow, TermRow
from dragonscale.training.evaluation import Job
from dragonscale.training.plan import Plan
from dragonscale.training.step_ledger import WIRES

COMPUTE = ("matmuls", "attention", "elementwise", "recompute", "optimizer", "copies")
"""Words in the names of terms that are work on the chip itself."""


def is_compute(name: str) -> bool:
    """Whether a term is work on the chip itself, and not waiting for wires, other stages or stragglers."""
    return name not in WIRES and any(word in name for word in COMPUTE)


def bound_by(terms: list[TermRow]) -> str:
    """What takes most of the step: `compute`, or the name of the longest other term where that is more."""
    compute = sum(row.exposed_s for row in terms if is_compute(row.name))
    other = max((row for row in terms if not is_compute(row.name)), key=lambda row: row.exposed_s, default=None)
    return other.name if other is not None and other.exposed_s > compute else "compute"


def advice(job: Job, plan: Plan, terms: list[TermRow]) -> str:
    """What bounds the step, what is lost beside it, and what to change."""
    total = sum(row.exposed_s for row in terms) or 1.0
    bound = bound_by(terms)
    taken = sum(row.exposed_s for row in terms if (is_compute(row.name) if bound == "compute" else row.name == bound))
    start = f"bound by {bound} ({taken / total:.0%} of the step)"
    others = [row for row in terms if not is_compute(row.name) or row.name == "recompute"]
    lost = max(others, key=lambda row: row.exposed_s, default=None)
    if lost is None or lost.exposed_s < 0.01 * total:
        return f"{start}; only more or faster chips make it shorter."
    if lost.name == bound:
        return f"{start}: {_remedy(job, plan, lost.name)}."
    return f"{start}; most is lost to {lost.name} ({lost.exposed_s / total:.0%}): {_remedy(job, plan, lost.name)}."


def _remedy(job: Job, plan: Plan, name: str) -> str:
    tokens = job.tokens / job.slice.chips
    remedies = {
        "tensor collectives": f"a smaller degree than tensor={plan.tensor}, or more network bandwidth inside the tensor group",
        "context collectives": f"a smaller degree than context={plan.context}, or longer sequences",
        "expert all-to-all": f"a smaller degree than expert={plan.expert}, or groups that stay inside a node",
        "fsdp collectives": f"more than the {tokens:,.0f} tokens per chip there are, so that gathers hide under compute",
        "gradient reduction": f"more than the {tokens:,.0f} tokens per chip there are, so that it hides under the backward pass",
        "pipeline bubble": "a larger batch (more microbatches per stage), fewer stages, or more chunks per rank",
        "pipeline sends": "fewer stages or chunks per rank",
        "host offload": "recomputing instead, or larger microbatches to hide the transfers under",
        "recompute": "more HBM, or more chips to spread the activations over",
        "stragglers": "fewer or more even machines",
        "host": "larger microbatches or smaller degrees, so that kernels take longer than their launches",
    }
    return remedies.get(name, "stages of more equal length")


MEMORY = {
    "weights": "zero=3, or a larger tensor or pipe degree",
    "gradients": "zero=2 or 3 over fsdp",
    "optimizer": "zero=1 or more over fsdp, or an optimizer with less state",
    "activations": "remat=block, a smaller microbatch, or a larger context or tensor degree",
    "gathered weights": "a larger tensor degree",
    "workspace": "a smaller microbatch, or a larger context or tensor degree",
    "logits": "a smaller microbatch, or a larger tensor degree",
}


def memory_advice(memory: list[MemoryRow]) -> str:
    """What fills a chip that is too full, and what to change."""
    most = max(memory, key=lambda row: row.bytes)
    total = sum(row.bytes for row in memory) or 1.0
    remedy = MEMORY.get(most.name, "more chips, or chips with more memory")
    return f"bound by memory, most of it {most.name} ({most.bytes / total:.0%}): {remedy}."
