"""What a program of fixed shapes computes beside the model: experts with room for so many rows, all the keys there is
room for.

The switches are those of the engine's `program` group; other engines have none of them and none of this applies. With a
capacity, every expert works on the same number of rows from each sender, filled or not, and the router's choices and
weights travel in messages of their own. Sizes are numbers here, or those of many batches of one plan: such a program is
compiled for one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy

from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.kernels import launch_seconds, matmul_seconds, memory_seconds
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, ceil, floor, maximum, where
from dragonscale.plan.reader import Kernel, Move
from dragonscale.serving.engine.plan import HEADS
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.serving.iteration.kernel_times import KernelBench

BF16_BYTES = 2.0
ROUTING_BYTES = 4.0
"""Bytes of a router's choice or weight (int32, fp32)."""


@dataclass(frozen=True)
class CapacityWork:
    """What a layer's experts compute on the rows they have capacity for: FLOPs, and expected seconds."""

    flops: Number
    seconds: Number


def capacity_rows(tokens: Number, bench: KernelBench) -> Number:
    """Rows that each expert computes from each sender: the capacity times the even share of the rows that a chip
    routes. Those are its own sequences', or everybody's where tokens are gathered."""
    dims = bench.section.dims
    routed = floor(tokens / bench.senders + 0.5) * dims["x"]  # x experts for each token
    rows = maximum(1, ceil(floor(routed * bench.engine.program.expert_capacity) / dims["e"]))
    if isinstance(rows, numpy.ndarray) and rows.size == 1:
        return int(rows.ravel()[0])
    return rows


def capacity_work(kernels: Iterable[Kernel], tokens: Number, bench: KernelBench) -> CapacityWork:
    """The batched matmuls of a layer's experts on the rows they have capacity for; all experts are read."""
    dims, mesh, profile, program = bench.section.dims, bench.mesh, bench.profile, bench.engine.program
    rows = capacity_rows(tokens, bench) * bench.senders
    flops: Number = 0.0
    seconds: Number = 0.0
    for kernel in kernels:
        weight = kernel.arrays[-2]  # (experts, inputs, outputs)
        inputs, outputs = (dims[dim.name] / mesh.size(*dim.axes) for dim in weight.dims if not dim.select)
        dealt = next(mesh.size(*dim.axes) for dim in weight.dims if dim.select)
        experts = dims["e"] / dealt  # of one chip
        flops = flops + 2.0 * experts * rows * (inputs * outputs)
        if bench.timed:
            matmul_s = matmul_seconds(rows, outputs, inputs, "bf16", profile, experts) * bench.engine.kernels.matmul
            if program.loop_s:
                # XLA turns a matmul of one row into a loop that reads the weights
                loop_s = memory_seconds(experts * inputs * outputs * BF16_BYTES, profile) * program.looped
                matmul_s = where(rows == 1, loop_s + program.loop_s, matmul_s)
            seconds = seconds + matmul_s
    return CapacityWork(flops, seconds)


def boxing_line(tokens: Number, bench: KernelBench) -> ServingLine:
    """Sorting rows by expert, copying them into the slots of each expert's capacity, and back."""
    dims, profile = bench.section.dims, bench.profile
    # read and written: a row for each of a token's experts, and the token itself
    moved = 2 * tokens / bench.mesh.size("data") * (dims["x"] + 1) * dims["d"] * BF16_BYTES
    habits = bench.engine.experts
    seconds = 0.0
    if bench.timed:
        seconds = memory_seconds(moved * habits.route_passes, profile) + launch_seconds(profile, habits.route_kernels)
    return bench.line("rows", "elementwise", "experts", "elementwise", seconds=seconds, issued=habits.route_kernels)


def masked_flops(
    batch: Number, heads: Number, queries: Number, keys: Number, size: Number, bench: KernelBench
) -> Number:
    """FLOPs of attention to all allocated keys, with those that are not written yet or in the future masked.

    `size` is the head dim of queries plus that of values.
    """
    rows = heads * queries
    if bench.phase == "decode" and "k" in bench.section.dims:
        # query heads that share a KV head are the rows of one matmul
        kv_heads = maximum(1.0, bench.section.dims["k"] / bench.mesh.size(*HEADS))
        rows = kv_heads * bench.rows(heads / kv_heads) * queries
    return 2.0 * batch * rows * keys * size


def expert_volume(move: Move, tokens: Number, bench: KernelBench) -> Number:
    """Bytes of tokens on their way to experts, or back, as one group sees them: every expert's whole capacity."""
    dims = bench.section.dims
    return capacity_rows(tokens, bench) * dims["e"] * dims["d"] * BF16_BYTES * bench.mesh.size(*move.step.axes)


def routing_lines(section: Section, tokens: Number, bench: KernelBench) -> Iterator[ServingLine]:
    """Messages with the router's choices and weights, which travel like the tokens."""
    size = bench.mesh.size("data")
    if numpy.all(size == 1) or not any(op.function == "dispatch" for op in section.ops):
        return
    if bench.exchange:
        kind, names = "all_to_all", ("P",)
        volume = capacity_rows(tokens, bench) * section.dims["e"] * ROUTING_BYTES * size
    else:
        kind, names = "all_gather", ("experts", "P")
        volume = tokens * section.dims["x"] * ROUTING_BYTES
    for name in names:
        yield ServingLine(
            section.name,
            bench.phase,
            name,
            kind,
            ("data",),
            section.repeat,
            "experts",
            carries="statistic",
            wire_bytes=wire_bytes(kind, volume, size),
            volume=volume,
            issued=1.0,
        )


def scanned_line(layout: Callable[[Array], Array], bench: KernelBench) -> ServingLine:
    """Slicing a layer's weights out of the stacked weights that a scan over layers runs through.

    `layout` gives the sharded form of a weight at rest.
    """
    section, program = bench.section, bench.engine.program
    weights = {array.name: array for op in section.ops for array in op.weights if array.name not in section.shared}
    local_weights = sum(
        weight_size(section, array) / bench.mesh.size(*layout(array).axes) for array in weights.values()
    )
    copied = local_weights * program.scan_bytes
    seconds = copied / (bench.profile.bandwidth * bench.profile.stream.bandwidth) + program.scan_s
    return bench.line("weights", "copies", "elementwise", "elementwise", seconds=seconds, issued=len(weights))


def few_rows(tokens: Number, bench: KernelBench) -> bool:
    """Whether experts have so few rows that a GPU compiler pads them, or writes a loop instead of a matmul."""
    if "e" not in bench.section.dims or bench.profile.chip.kind != "gpu":
        return False
    return bool(numpy.all(capacity_rows(tokens, bench) * bench.senders < bench.engine.program.padded_rows))
