"""Expected seconds of the experts of an MoE layer on one chip: two grouped matmuls, the activation between them, and
the routing, permuting and summing around them.

Each expert with tokens streams its weights once; its rows are cut into tiles as in a dense matmul, so an expert with
three rows pays for a whole tile. The library is taken to choose the best height of tile. A few tiles cannot saturate
the memory's bandwidth. The bound is the weights of the active experts and their FLOPs at the datasheet's rates.
"""

import math
from functools import partial

from dragonscale.errors import unknown
from dragonscale.physics.kernels.blockwise import evaluate
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.matmul import matmul_seconds
from dragonscale.physics.kernels.profile import Grouped, KernelProfile
from dragonscale.physics.kernels.routing import Routing, busiest, route
from dragonscale.physics.kernels.stream import memory_seconds
from dragonscale.physics.kernels.waves import overlapped, waves
from dragonscale.physics.numbers import Number, ceil, maximum, minimum


def grouped_matmul_seconds(
    tokens: Number,
    hidden: Number,
    inner: Number,
    picks: Number,
    experts: Number,
    dtype: str,
    profile: KernelProfile,
    *,
    chips: Number = 1,
    tensor: Number = 1,
    routing: Routing = "random",
    gated: bool = True,
    implementation: str = "",
) -> Number:
    """Seconds of the experts of one layer on the busiest of `chips` chips that share them.

    `tokens` are those of all these chips together; each goes to `picks` experts of hidden x inner (`inner` sharded over
    `tensor` chips). `gated` experts have three matrices, others two. `implementation` names the library's kernels;
    empty takes the profile's usual ones.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h200 = kernel_profile_for(load_chip("h200"))
    >>> 1.0e-3 < float(grouped_matmul_seconds(64, 4096, 1536, 8, 128, "bf16", h200)) < 1.3e-3
    True
    """
    name = format_name(dtype)
    tables = profile.grouped.of(name)
    if implementation and implementation not in tables:
        raise unknown(f"implementation of {name} experts on {profile.chip.title}", implementation, tables)
    table = tables[implementation or next(iter(tables))]
    if table.expanded:
        load, columns = route(tokens, picks, experts, chips, routing), inner / tensor
        return expanded_seconds(load.rows, hidden, columns, experts / chips, name, profile, gated)
    formula = partial(_seconds, name=name, table=table, profile=profile, routing=routing, gated=gated)
    return evaluate(formula, tokens, hidden, inner / tensor, picks, experts, chips)


def expanded_seconds(
    rows: Number, hidden: Number, inner: Number, experts: Number, dtype: str, profile: KernelProfile, gated: bool = True
) -> Number:
    """Seconds of experts computed by plain matmuls that contract over every expert, as XLA's GPU compiler does with
    `ragged_dot`: rows are padded with zeros for the experts that they do not go to, and written so.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h200 = kernel_profile_for(load_chip("h200"))
    >>> 12e-3 < expanded_seconds(8192, 2048, 768, 128, "bf16", h200) < 16e-3  # 14.4 ms were measured
    True
    """
    first_matrices = 2 if gated else 1
    into = matmul_seconds(rows, inner, hidden * experts, dtype, profile) * first_matrices
    out = matmul_seconds(rows, hidden, inner * experts, dtype, profile)
    padded_bytes = rows * experts * (hidden + inner) * FORMATS[format_name(dtype)].activation
    return into + out + memory_seconds(padded_bytes, profile)


def _seconds(
    *sizes: Number, name: str, table: Grouped, profile: KernelProfile, routing: Routing, gated: bool
) -> Number:
    tokens, hidden, inner, picks, experts, chips = sizes
    weight_bytes, peak, cores = FORMATS[name].weight, profile.peak(name), profile.cores
    load = route(tokens, picks, experts, chips, routing)
    if isinstance(routing, str) and routing != "balanced":
        load = busiest(load, experts / chips, chips)
    into = 2 * inner if gated else inner  # gate and up in one matmul
    tiles = {side: load.tiles(side) for side in table.rows}
    expected = table.launch + tokens * table.route_row + (experts / chips) * table.expert
    expected = expected + load.rows * (hidden * table.hidden_bytes + inner * table.inner_bytes) / profile.bandwidth
    # the two grouped matmuls: rows x hidden x into, then rows x inner x hidden
    for columns, depth in ((into, hidden), (hidden, inner)):
        across = ceil(columns / table.columns) / cores
        compute = _step_seconds(tiles, across, table, 2 * cores / peak / table.rate) * (depth + table.prologue)
        saturation = minimum(1.0, load.active * across / table.occupancy)
        rate = profile.bandwidth * table.bandwidth * saturation
        memory = load.active * columns * depth * weight_bytes / rate
        expected = expected + overlapped(compute, memory, table.unhidden)
    size = hidden * (into + inner)  # elements of one expert
    return maximum(expected, load.active * size * weight_bytes / profile.bandwidth, 2 * load.rows * size / peak)


def _step_seconds(tiles: dict[int, Number], across: Number, table: Grouped, multiply_s: float) -> Number:
    """Seconds per step of the contraction with the best height of tile, of which `tiles` are needed."""
    best: Number = math.inf
    for side, count in tiles.items():
        step_s = multiply_s * (side * table.columns + table.operands * (side + table.columns))
        best = minimum(best, waves(count * across, table.quantum) * step_s)
    return best
