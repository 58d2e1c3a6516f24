"""Muon's own work in a step: every matrix is made whole on one chip, orthogonalized there, and sent back in pieces.

Five Newton-Schulz iterations X <- aX + (bA + cA²)X with A = XXᵀ take 2m²n + 2m³ + 2m²n FLOPs each on an m x n matrix
with m <= n (a tall one is turned), in bf16. A matrix needs all of its elements in one place, and its momentum is split
over the axes that split the weight and its state; so the chips of that group share the matrices out: each gets some, by
an AllToAll in bf16, and sends what it made back by another (Dion's and PyTorch's distributed Muon; Megatron's
layer-wise optimizer gives whole matrices to ranks, too). Stacks that deal out all weights together share the work
evenly, down to one matrix; our own program deals out each weight of all layers by itself, ceil(N/ways) of its N
matrices to a chip. Replicas beyond the group (`data`; `fsdp` without ZeRO) do the same work over again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.numbers import Number, ceil, maximum, minimum, product, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.ledger import LedgerLine
from dragonscale.training.cost.travel import bound_time, travel_time
from dragonscale.training.plan.optimizers import matrices
from dragonscale.training.plan.plan import AXES
from dragonscale.training.plan.setting import Setting

ITERATIONS = 5
"""As in Jordan 2024 and Moonlight."""
BF16 = 2.0


@dataclass(frozen=True)
class Orthogonalized:
    """A weight's matrices that one chip owns: how many, m x n each, and the axes of the chips that share them."""

    section: str
    name: str
    count: Number
    m: Number
    n: Number
    axes: tuple[str, ...]

    @property
    def matrix_flops(self) -> Number:
        """Of one matrix, all iterations."""
        return ITERATIONS * (4 * self.m**2 * self.n + 2 * self.m**3)

    @property
    def flops(self) -> Number:
        """Of all of them, all iterations."""
        return self.count * self.matrix_flops

    @property
    def hbm_bytes(self) -> Number:
        """X read twice and written, A and its square written and read, in each iteration."""
        return self.count * ITERATIONS * BF16 * (4 * self.m * self.n + 6 * self.m**2)

    @property
    def whole_bytes(self) -> Number:
        """The matrices themselves in bf16."""
        return self.count * BF16 * self.m * self.n


def owned(setting: Setting, layers: dict[str, Any], mesh: Mesh) -> list[Orthogonalized]:
    """The matrices that a chip of the fullest rank orthogonalizes. `layers` are its layers by kind."""
    if setting.plan.optimizer != "muon":
        return []
    shares = list(_shares(setting, layers, mesh))
    if not setting.stack.state.flat:
        return [replace(share, count=ceil(share.count)) for share in shares]
    # A rank may have no layer of some kind (the first layers of many MoE models are dense): none of its matrices is the
    # largest then, and a rank without any matrix has nothing to share out.
    largest = maximum(*[where(share.count > 0, share.matrix_flops, 0.0) for share in shares])
    total = sum(share.flops for share in shares)
    busiest = maximum(largest / where(total > 0, total, 1.0), 1.0)
    return [replace(share, count=share.count * busiest) for share in shares]


def _shares(setting: Setting, layers: dict[str, Any], mesh: Mesh) -> Iterator[Orthogonalized]:
    """The same as shares that need not be whole."""
    for section in setting.sections:
        if section.name not in layers:
            continue
        often, rules = layers[section.name], setting.rules(section)
        for array, rows, columns in matrices(section):
            stored = rules.optimizer_state(array)
            split = {axis for dim in stored.dims if not dim.select for axis in dim.axes}
            axes = tuple(axis for axis in AXES if axis in split)
            dealt = [dim for dim in stored.dims if dim.select]
            here = often * product(section.dims[dim.name] / mesh.size(*dim.axes) for dim in dealt)
            high, wide = (product(section.dims[name] for name in names) for names in (rows, columns))
            share = here / mesh.size(*axes)
            yield Orthogonalized(section.name, array.name, share, minimum(high, wide), maximum(high, wide), axes)


def _iterating(setting: Setting, one: Orthogonalized) -> Number:
    """Seconds of the iterations."""
    if setting.timer is None:
        return 0.0
    square = setting.timer.matmul(one.m, one.m, one.m, one.count, False)
    wide = setting.timer.matmul(one.m, one.m, one.n, one.count, False)
    back = setting.timer.matmul(one.m, one.n, one.m, one.count, False)
    return ITERATIONS * (square + wide + back)


def muon_lines(setting: Setting, layers: dict[str, Any], wires: Wires) -> Iterator[LedgerLine]:
    """What Muon computes and sends in a step, weight by weight."""
    mesh, peak = wires.mesh, setting.slice.chip.peak("bf16")
    for one in owned(setting, layers, mesh):
        present = one.count > 0  # what a rank does not hold is neither computed nor sent
        seconds = where(present, _iterating(setting, one), 0.0)
        computed = {"part": "optimizer", "flops": one.flops, "hbm_bytes": one.hbm_bytes, "bound_s": one.flops / peak}
        yield _update_line(one.section, f"Newton-Schulz {one.name}", "matmul", seconds, **computed)
        if not one.axes:
            continue
        volume = one.whole_bytes * mesh.size(*one.axes)
        travels = where(present, travel_time("all_to_all", volume, one.axes, wires, setting.network), 0.0)
        sent = wire_bytes("all_to_all", volume, mesh.size(*one.axes))
        bound = where(present, bound_time("all_to_all", volume, one.axes, wires), 0.0)
        moved = {"axes": one.axes, "times": 2, "carries": "statistic", "wire_bytes": sent, "bound_s": bound}
        yield _update_line(one.section, f"momentum {one.name}", "all_to_all", travels, **moved)


def _update_line(section: str, what: str, kind: str, seconds: Number, **more: Any) -> LedgerLine:
    return LedgerLine(section, "update", what, kind, term="optimizer", expected_s=seconds, exposed_s=seconds, **more)


def muon_seconds(setting: Setting, layers: dict[str, Any], wires: Wires, bound: bool = False) -> Number:
    """Seconds of all of it, or at datasheet rates."""
    name = "bound_s" if bound else "expected_s"
    return sum((line.times * getattr(line, name) for line in muon_lines(setting, layers, wires)), 0.0)
