"""The ledger lines of a section in one microbatch: its kernels and moves, with FLOPs, bytes and seconds.

Sizes are the dims of the section with b (sequences of one microbatch over the whole mesh), t and s; mesh axes are
numbers, arrays of equal length, or formulas. How long a kernel takes is asked of a `Timer`; at datasheet rates it is
its FLOPs over the peak. Matmuls that read the same tensor run as one: queries, keys and values; the two halves of a
gated MLP. Gathers of a layer's weights, and reductions of its gradients, travel in one message each. The chip is the
one whose experts are busiest.
"""

from dataclasses import replace

from dragonscale.models.program import Section
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.reader import Move
from dragonscale.training.cost.kernel_lines import kernel_lines
from dragonscale.training.cost.move_lines import move_lines, statistic_lines
from dragonscale.training.memory.section_memory import section_memory
from dragonscale.training.plan.expert_load import at_busiest
from dragonscale.training.plan.plan import layers_of
from dragonscale.training.plan.setting import PassLine, PlacedSection, Setting, pass_sizes

# What lines can be asked for: kernels, moves of activations, and moves of weights and gradients.
KINDS = ("kernels", "activations", "state")


def section_lines(
    setting: Setting, section: Section, microbatch: Number, wires: Wires, kinds: tuple[str, ...] = KINDS
) -> list[PassLine]:
    """A section's lines of some kinds in one microbatch."""
    reading, sizes = setting.reading(section), pass_sizes(setting, section, microbatch, wires.mesh)
    moves: list[Move] = []
    stacked_moves: list[Move] = []  # made for all layers at once, outside the scan over layers
    for move in reading.moves:
        scattered = setting.plan.zero == 3 and move.step.kind == "reduce_scatter"
        once_a_step = move.phase == "update" or (move.phase == "gradient" and not scattered)
        kind = "activations" if move.what in ("activation", "expert") else "state"
        if once_a_step and setting.stack.state.sums_everywhere:
            stacked_moves.append(move)
        elif kind in kinds:
            moves.append(move)
    kernels = reading.kernels if "kernels" in kinds else ()
    chosen = replace(reading, kernels=kernels, moves=tuple(moves))
    lines = _placed_lines(PlacedSection(setting, chosen, sizes, wires), with_statistics=setting.detail)
    if stacked_moves and "state" in kinds:
        # What is summed outside the pass has all KV heads, although chips share them inside it.
        all_heads = sizes | {"k": section.dims.get("k", 1)}
        chosen = replace(reading, kernels=(), moves=tuple(stacked_moves))
        lines += _placed_lines(PlacedSection(setting, chosen, all_heads, wires), with_statistics=False)
    return lines


def _placed_lines(placed: PlacedSection, with_statistics: bool) -> list[PassLine]:
    """Every kernel and move of a pass through a section, forward and backward, once."""
    placed = replace(placed, sizes=at_busiest(placed.local).sizes)
    lines = [*kernel_lines(placed), *move_lines(placed)]
    if with_statistics:
        lines += statistic_lines(placed)
    return lines


def offload_seconds(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> Number:
    """Seconds to send a block's input to the host, one way, should the plan ask for it; or all that some layers save,
    as a mean over all layers, whose passes the transfers are spread over."""
    if "block" not in section.name:
        return 0.0
    link = setting.slice.chip.host_link
    if layers := layers_of(setting.plan.offload):
        share = min(layers / len(setting.program.order), 1.0)
        return share * section_memory(setting, section, microbatch, mesh).activations / link
    layer_input = setting.rules(section).activation(section.ops[0].inputs[0])
    return local_bytes(layer_input, pass_sizes(setting, section, microbatch, mesh), mesh) / link
