"""A section's kernels and moves in one microbatch, with FLOPs, bytes and seconds: numbers put into a reading.

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
from dragonscale.training.cost.move_lines import move_lines, statistics
from dragonscale.training.memory.memory import section_bytes
from dragonscale.training.plan.expert_load import at_busiest
from dragonscale.training.plan.plan import layers_of
from dragonscale.training.plan.setting import PassLine, PlacedSection, Setting, pass_sizes

ALL = ("kernels", "activations", "state")


def costed_section(
    setting: Setting, section: Section, microbatch: Number, wires: Wires, chosen: tuple[str, ...] = ALL
) -> list[PassLine]:
    """A section's lines in one microbatch, or those of kernels, of moves of activations, of moves of weights and
    gradients."""
    reading, sizes = setting.reading(section), pass_sizes(setting, section, microbatch, wires.mesh)
    later = [move for move in reading.moves if _stacked(move, setting)]
    moves = [move for move in reading.moves if _kind(move) in chosen and move not in later]
    few = replace(reading, kernels=reading.kernels if "kernels" in chosen else (), moves=tuple(moves))
    lines = _section_lines(PlacedSection(setting, few, sizes, wires), along=setting.detail)
    if later and "state" in chosen:
        # Of KV heads that chips share, what is summed outside the pass has all of them.
        few = replace(reading, kernels=(), moves=tuple(later))
        whole = sizes | {"k": section.dims.get("k", 1)}
        lines += _section_lines(PlacedSection(setting, few, whole, wires), along=False)
    return lines


def _section_lines(own: PlacedSection, along: bool) -> list[PassLine]:
    """Every kernel and move of a pass through a section, forward and backward, once; and what is small and goes
    `along`."""
    reading = own.reading
    own = replace(own, sizes=at_busiest(reading.section, reading.rules, own.sizes, own.mesh, own.setting.stack))
    lines = [*kernel_lines(own), *move_lines(own)]
    return [*lines, *statistics(own)] if along else lines


def _kind(move: Move) -> str:
    return "activations" if move.what in ("activation", "expert") else "state"


def _stacked(move: Move, setting: Setting) -> bool:
    """Whether a move of all layers at once is made outside the scan over layers."""
    scattered = setting.plan.zero == 3 and move.step.kind == "reduce_scatter"
    outside = move.phase == "update" or (move.phase == "gradient" and not scattered)
    return outside and setting.stack.state.sums_everywhere


def offload_seconds(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> Number:
    """What sending a block's input to the host takes, one way, should the plan ask for it; or what some layers save,
    shared by all, whose passes the transfers are spread over."""
    if "block" not in section.name:
        return 0.0
    link = setting.slice.chip.host_link
    if layers := layers_of(setting.plan.offload):
        share = min(layers / len(setting.program.order), 1.0)
        return share * section_bytes(setting, section, microbatch, mesh).activations / link
    entry = setting.rules(section).activation(section.ops[0].inputs[0])
    return local_bytes(entry, pass_sizes(setting, section, microbatch, mesh), mesh) / link
