"""A section's kernels and moves in one microbatch, with FLOPs, bytes and seconds: numbers put into a reading.

Sizes are the dims of the section with b (sequences of one microbatch over the whole mesh), t and s; mesh axes are
numbers, arrays of equal length, or formulas. How long a kernel takes is asked of a `Timer`; at datasheet rates it is
its FLOPs over the peak. Matmuls that read the same tensor run as one: queries, keys and values; the two halves of a
gated MLP. Gathers of a layer's weights, and reductions of its gradients, travel in one message each. The chip is the
one whose experts are busiest.
"""

from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.reader import Reading
from dragonscale.training.attention_lines import attention_sizes
from dragonscale.training.expert_load import at_busiest
from dragonscale.training.kernel_lines import kernel_lines
from dragonscale.training.move_lines import move_lines, statistics
from dragonscale.training.pass_line import Costing, PassLine

__all__ = ["Costing", "PassLine", "attention_sizes", "section_lines"]


def section_lines(reading: Reading, sizes: dict[str, Number], wires: Wires, costing: Costing) -> list[PassLine]:
    """Every kernel and move of a pass through a section, forward and backward, once."""
    mesh = wires.mesh
    sizes = at_busiest(reading.section, reading.rules, sizes, mesh, costing.stack)
    lines = list(kernel_lines(reading, sizes, mesh, costing))
    lines += move_lines(reading, sizes, wires, costing)
    if costing.detail and costing.statistics:
        lines += statistics(reading, sizes, mesh)
    return lines
