"""Muon's own work in a step: every matrix is gathered on one chip, orthogonalized there, and sent back in shards.

Five Newton-Schulz iterations X <- aX + (bA + cA²)X with A = XXᵀ take 2m²n + 2m³ + 2m²n FLOPs each on an m x n matrix
with m <= n (a tall one is turned), in bf16. A matrix needs all of its elements in one place, and its momentum is split
over the axes that split the weight and its state; so the chips of that group share the matrices out: each gets some, by
an AllToAll in bf16, and sends the results back by another (Dion's and PyTorch's distributed Muon; Megatron's
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
from dragonscale.training.cost.move_times import bound_time, expected_move_time
from dragonscale.training.plan.optimizers import muon_weights
from dragonscale.training.plan.plan import AXES
from dragonscale.training.plan.setting import Setting

ITERATIONS = 5
"""As in Jordan 2024 and Moonlight."""
BF16 = 2.0


@dataclass(frozen=True)
class Orthogonalized:
    """The matrices of one weight that a chip orthogonalizes: how many, of m x n elements each with m <= n, and the mesh
    axes of the chips that share them."""

    section: str
    name: str
    count: Number
    m: Number
    n: Number
    axes: tuple[str, ...]

    @property
    def matrix_flops(self) -> Number:
        """FLOPs for one matrix, all iterations."""
        return ITERATIONS * (4 * self.m**2 * self.n + 2 * self.m**3)

    @property
    def flops(self) -> Number:
        """FLOPs for all matrices, all iterations."""
        return self.count * self.matrix_flops

    @property
    def hbm_bytes(self) -> Number:
        """X read twice and written, A and its square written and read, in each iteration."""
        return self.count * ITERATIONS * BF16 * (4 * self.m * self.n + 6 * self.m**2)

    @property
    def whole_bytes(self) -> Number:
        """The matrices themselves in bf16."""
        return self.count * BF16 * self.m * self.n


def orthogonalized(setting: Setting, layers: dict[str, Any], mesh: Mesh) -> list[Orthogonalized]:
    """The matrices that a chip of the fullest rank orthogonalizes. `layers` are its layers by kind."""
    shares = list(_even_shares(setting, layers, mesh))
    if not setting.stack.state.flat:
        return [replace(share, count=ceil(share.count)) for share in shares]
    # Work is shared out evenly down to one matrix: the busiest chip has its share, or the largest matrix if that is
    # more. A rank may have no layer of some kind (the first layers of many MoE models are dense): none of its matrices
    # is the largest then, and a rank without any matrix has nothing to share out.
    largest = maximum(*[where(share.count > 0, share.matrix_flops, 0.0) for share in shares])
    total = sum(share.flops for share in shares)
    busiest = maximum(largest / where(total > 0, total, 1.0), 1.0)
    return [replace(share, count=share.count * busiest) for share in shares]


def _even_shares(setting: Setting, layers: dict[str, Any], mesh: Mesh) -> Iterator[Orthogonalized]:
    """Each weight's matrices shared out evenly, in fractions of a matrix."""
    for section in setting.sections:
        if section.name not in layers:
            continue
        rules = setting.rules(section)
        for weight in muon_weights(section):
            stored = rules.optimizer_state(weight.array)
            # The chips that have shards of one matrix share the work; experts are matrices of their own.
            split = {axis for dim in stored.dims if not dim.select for axis in dim.axes}
            axes = tuple(axis for axis in AXES if axis in split)
            experts = product(section.dims[dim.name] / mesh.size(*dim.axes) for dim in stored.dims if dim.select)
            rows = product(section.dims[name] for name in weight.rows)
            columns = product(section.dims[name] for name in weight.columns)
            count = layers[section.name] * experts / mesh.size(*axes)
            m, n = minimum(rows, columns), maximum(rows, columns)  # a tall matrix is transposed
            yield Orthogonalized(section.name, weight.array.name, count, m, n, axes)


def _iteration_seconds(setting: Setting, matrices: Orthogonalized) -> Number:
    """Expected seconds of the iterations."""
    if setting.timer is None:
        return 0.0
    m, n, count = matrices.m, matrices.n, matrices.count
    gram = setting.timer.matmul(m, m, n, count, False)  # A = XXᵀ
    square = setting.timer.matmul(m, m, m, count, False)  # A²
    product_with_x = setting.timer.matmul(m, n, m, count, False)  # (bA + cA²)X
    return ITERATIONS * (square + gram + product_with_x)


def muon_lines(setting: Setting, layers: dict[str, Any], wires: Wires) -> Iterator[LedgerLine]:
    """What Muon computes and sends in a step, weight by weight."""
    mesh, peak = wires.mesh, setting.slice.chip.peak("bf16")
    for matrices in orthogonalized(setting, layers, mesh):
        present = matrices.count > 0  # what a rank does not hold is neither computed nor sent
        seconds = where(present, _iteration_seconds(setting, matrices), 0.0)
        flops = matrices.flops
        computed = {"part": "optimizer", "flops": flops, "hbm_bytes": matrices.hbm_bytes, "bound_s": flops / peak}
        yield _update_line(matrices.section, f"Newton-Schulz {matrices.name}", "matmul", seconds, **computed)
        axes = matrices.axes
        if not axes:
            continue
        volume = matrices.whole_bytes * mesh.size(*axes)
        travel = where(present, expected_move_time("all_to_all", volume, axes, wires, setting.network), 0.0)
        sent = wire_bytes("all_to_all", volume, mesh.size(*axes))
        bound = where(present, bound_time("all_to_all", volume, axes, wires), 0.0)
        # Twice: the shards to the owner of the matrix, and the results back.
        moved = {"axes": axes, "times": 2, "carries": "statistic", "wire_bytes": sent, "bound_s": bound}
        yield _update_line(matrices.section, f"momentum {matrices.name}", "all_to_all", travel, **moved)


def _update_line(section: str, what: str, kind: str, seconds: Number, **columns: Any) -> LedgerLine:
    times = {"expected_s": seconds, "exposed_s": seconds}
    return LedgerLine(section, "update", what, kind, term="optimizer", **times, **columns)


def muon_seconds(setting: Setting, layers: dict[str, Any], wires: Wires, bound: bool = False) -> Number:
    """Expected seconds of all that Muon computes and sends, or those at datasheet rates."""
    quantity = "bound_s" if bound else "expected_s"
    return sum((line.total(quantity) for line in muon_lines(setting, layers, wires)), 0.0)
