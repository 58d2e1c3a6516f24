"""Whether a plan's experts have shapes that their kernels were timed with.

The constants of a grouped matmul are fitted on experts of so many columns per chip. Its model counts tiles and bytes,
which carries over to other shapes, but a library may choose another kernel there. A plan outside the range says so.
"""

from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.kernel_lines import expert_kernels


def untimed_experts(deployment: Deployment) -> str:
    """A note if experts have fewer or more columns on a chip than any that their kernel was timed with; else empty.

    >>> from dragonscale.serving.iteration.deployment import deploy
    >>> print(untimed_experts(deploy("mixtral-8x7b", "h200:1", "weights=int4", "vllm")))
    Experts in int4 were timed with 256 to 2,048 columns a chip on h200, and this plan has 14,336: their time is
    extrapolated.
    >>> untimed_experts(deploy("deepseek-v3", "h200:8", "tensor=8,weights=fp8,compute=fp8_block", "vllm"))
    ''
    """
    engine, tables = deployment.engine, deployment.kernels.grouped
    name = part_format(deployment.plan, "experts")
    chosen = expert_kernels(engine.experts, tables.of(name))
    rests = deployment.kernels.rests_on.get(f"grouped.{tables.stands_in(name)}.{chosen}")
    if rests is None or rests.inner is None or engine.program.expert_capacity:
        return ""
    smallest, largest = rests.inner  # columns of an expert's hidden layer on one chip
    slices = deployment.mesh.size("tensor", "share")
    sizes = {int(section.dims["f"] / slices) for section in deployment.model.program().sections if "e" in section.dims}
    outside = sorted(size for size in sizes if not smallest <= size <= largest)
    if not outside:
        return ""
    timed = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    columns = " and ".join(f"{size:,}" for size in outside)
    return (
        f"Experts in {deployment.plan.weights} were timed with {timed} columns a chip on "
        f"{deployment.kernels.name}, and this plan has {columns}: their time is extrapolated."
    )
