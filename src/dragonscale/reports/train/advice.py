"""What bounds a training step, what is lost beside it, and what to change."""

from dragonscale.reports.train.records import MemoryRow, TermRow
from dragonscale.training.evaluation import WIRES, Job
from dragonscale.training.plan import Plan

COMPUTE = ("matmuls", "scores", "pointwise", "recomputation", "optimizer", "copies")
"""Words in the names of terms that are work on the chip itself."""


ENDS = "embedding, head and uneven stages"


def is_compute(name: str, pipe: int = 1) -> bool:
    """Whether a term is work on the chip itself, and not waiting for wires, other stages or stragglers. Without a
    pipeline, the embedding and the head are work like any other."""
    return name not in WIRES and (any(word in name for word in COMPUTE) or (name == ENDS and pipe == 1))


def bound_by(terms: list[TermRow], pipe: int = 1) -> str:
    """What takes most of the step: `compute`, or the name of the longest other term where that is more."""
    compute = sum(row.exposed_s for row in terms if is_compute(row.name, pipe))
    other = max((row for row in terms if not is_compute(row.name, pipe)), key=lambda row: row.exposed_s, default=None)
    return other.name if other is not None and other.exposed_s > compute else "compute"


def advice(job: Job, plan: Plan, terms: list[TermRow]) -> str:
    """What bounds the step, what is lost beside it, and what to change."""
    total = sum(row.exposed_s for row in terms) or 1.0
    bound = bound_by(terms, plan.pipe)
    taken = sum(
        row.exposed_s for row in terms if (is_compute(row.name, plan.pipe) if bound == "compute" else row.name == bound)
    )
    start = f"bound by {bound} ({taken / total:.0%} of the step)"
    others = [row for row in terms if not is_compute(row.name, plan.pipe) or row.name == "recomputation"]
    lost = max(others, key=lambda row: row.exposed_s, default=None)
    if lost is None or lost.exposed_s < 0.01 * total:
        return f"{start}; only more or faster chips make it shorter."
    if lost.name == bound:
        return f"{start}: {_remedy(job, plan, lost.name)}."
    return f"{start}; most is lost to {lost.name} ({lost.exposed_s / total:.0%}): {_remedy(job, plan, lost.name)}."


def _remedy(job: Job, plan: Plan, name: str) -> str:
    tokens = job.tokens / job.piece.chips
    remedies = {
        "tensor collectives": f"fewer than tensor={plan.tensor} ways, or more network bandwidth inside the tensor group",
        "context collectives": f"fewer than context={plan.context} ways, or longer sequences",
        "expert all-to-all": f"fewer than expert={plan.expert} ways, or groups that stay inside a node",
        "fsdp collectives": f"more than the {tokens:,.0f} tokens per chip there are, so that gathers hide under compute",
        "gradient reduction": f"more than the {tokens:,.0f} tokens per chip there are, so that it hides under the backward pass",
        "pipeline bubble": "a larger batch (more microbatches per stage), fewer stages, or more chunks per rank",
        "pipeline sends": "fewer stages or chunks per rank",
        "host offload": "recomputing instead, or larger microbatches to hide the transfers under",
        "recomputation": "more HBM, or more chips to spread the activations over",
        "stragglers": "fewer or more even machines",
        "waiting for the host": "larger microbatches or fewer ways, so that kernels take longer than their launches",
    }
    return remedies.get(name, "stages of more equal length")


MEMORY = {
    "weights": "zero=3, or more ways of tensor or pipe",
    "gradients": "zero=2 or 3 over fsdp",
    "optimizer": "zero=1 or more over fsdp, or an optimizer with less state",
    "activations": "remat=block, a smaller microbatch, or more ways of context or tensor",
    "gathered weights": "more ways of tensor",
    "working set": "a smaller microbatch, or more ways of context or tensor",
    "logits": "a smaller microbatch, or more ways of tensor",
}


def memory_advice(memory: list[MemoryRow]) -> str:
    """What fills a chip that is too full, and what to change."""
    most = max(memory, key=lambda row: row.bytes)
    total = sum(row.bytes for row in memory) or 1.0
    remedy = MEMORY.get(most.name, "more chips, or chips with more memory")
    return f"bound by memory, most of it {most.name} ({most.bytes / total:.0%}): {remedy}."
