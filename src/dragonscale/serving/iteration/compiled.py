"""What a program of fixed shapes computes beside the model: experts with room for so many rows, all the keys there is
room for.

The switches are those of the engine's `program` group; other engines have none of them and none of this applies. With a
capacity, every expert works on the same number of rows from each sender, filled or not, and the router's choices and
weights travel in messages of their own. Sizes are numbers here, or those of many batches of one plan: such a program is
compiled for one.
"""

from collections.abc import Callable, Iterable, Iterator

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

WIDTH = 2.0
"""Bytes of a bf16 number."""


def capacity_rows(tokens: Number, bench: KernelBench) -> Number:
    """Rows of each expert from each sender: the capacity times the even share of the rows that a chip routes, which are
    those of its own sequences, or of all where they are gathered."""
    dims = bench.section.dims
    routed = floor(tokens / bench.senders + 0.5) * dims["x"]
    rows = maximum(1, ceil(floor(routed * bench.engine.program.expert_capacity) / dims["e"]))
    return int(rows.ravel()[0]) if isinstance(rows, numpy.ndarray) and rows.size == 1 else rows


def capacity_work(kernels: Iterable[Kernel], tokens: Number, bench: KernelBench) -> tuple[Number, Number]:
    """FLOPs of a layer's experts on the rows they have room for, and expected seconds: batched matmuls of these rows,
    all experts being read."""
    dims, mesh, profile, program = bench.section.dims, bench.mesh, bench.profile, bench.engine.program
    rows = capacity_rows(tokens, bench) * bench.senders
    flops: Number = 0.0
    seconds: Number = 0.0
    for kernel in kernels:
        weight = kernel.arrays[-2]
        into, out = (dims[dim.name] / mesh.size(*dim.axes) for dim in weight.dims if not dim.select)
        dealt = next(mesh.size(*dim.axes) for dim in weight.dims if dim.select)
        flops, many = flops + 2.0 * dims["e"] / dealt * rows * (into * out), dims["e"] / dealt
        if bench.timed:
            full = matmul_seconds(rows, out, into, "bf16", profile, many) * bench.engine.kernels.matmul
            loop = memory_seconds(many * into * out * WIDTH, profile) * program.looped + program.loop_s
            seconds = seconds + where(rows == 1, loop, full) if program.loop_s else seconds + full
    return flops, seconds


def boxing_line(tokens: Number, bench: KernelBench) -> ServingLine:
    """Rows sorted by expert, put into the boxes that experts have room for, and back."""
    dims, profile = bench.section.dims, bench.profile
    moved = 2 * tokens / bench.mesh.size("data") * (dims["x"] + 1) * dims["d"] * WIDTH
    habits = bench.engine.experts
    seconds = memory_seconds(moved * habits.route_passes, profile)
    seconds = seconds + launch_seconds(profile, habits.route_kernels) if bench.timed else 0.0
    return bench.line("rows", "elementwise", "experts", "elementwise", seconds=seconds, issued=habits.route_kernels)


def masked_flops(
    batch: Number, heads: Number, queries: Number, keys: Number, size: Number, bench: KernelBench
) -> Number:
    """FLOPs of attention to all the keys there is room for, those that are not there or not yet being masked. The query
    heads that share a KV head are the rows of a decode step's matmuls."""
    rows = heads * queries
    if bench.phase == "decode" and "k" in bench.section.dims:
        kept = maximum(1.0, bench.section.dims["k"] / bench.mesh.size(*HEADS))
        rows = kept * bench.rows(heads / kept) * queries
    return 2.0 * batch * rows * keys * size


def expert_volume(move: Move, tokens: Number, bench: KernelBench) -> Number:
    """Bytes of tokens on their way to experts, or back, as a group sees them: all the rows there is room for."""
    dims = bench.section.dims
    return capacity_rows(tokens, bench) * dims["e"] * dims["d"] * WIDTH * bench.mesh.size(*move.step.axes)


def routing_lines(section: Section, tokens: Number, bench: KernelBench) -> Iterator[ServingLine]:
    """The router's choices and weights, four bytes each, which go where the tokens go."""
    size = bench.mesh.size("data")
    if numpy.all(size == 1) or not any(op.function == "dispatch" for op in section.ops):
        return
    rows = capacity_rows(tokens, bench)
    kind, sent = ("all_to_all", ("P",)) if bench.exchange else ("all_gather", ("experts", "P"))
    volume = tokens * section.dims["x"] * 4.0
    volume = rows * section.dims["e"] * 4.0 * size if bench.exchange else volume
    for what in sent:
        where = (section.name, bench.phase, what, kind, ("data",), section.repeat)
        yield ServingLine(
            *where, "experts", carries="statistic", wire_bytes=wire_bytes(kind, volume, size), volume=volume, issued=1.0
        )


def scanned_line(laid: Callable[[Array], Array], bench: KernelBench) -> ServingLine:
    """A layer of prompts whose weights are taken out of the stack that is scanned."""
    section, program = bench.section, bench.engine.program
    weights = {array.name: array for op in section.ops for array in op.weights if array.name not in section.shared}
    held = sum(weight_size(section, array) / bench.mesh.size(*laid(array).axes) for array in weights.values())
    seconds = held * program.scan_bytes / (bench.profile.bandwidth * bench.profile.stream.bandwidth) + program.scan_s
    return bench.line("weights", "copies", "elementwise", "elementwise", seconds=seconds, issued=len(weights))


def few_rows(tokens: Number, bench: KernelBench) -> bool:
    """Whether an expert has so few rows that a GPU compiler fills them up, or writes a loop instead of a matmul."""
    if "e" not in bench.section.dims or bench.profile.chip.kind != "gpu":
        return False
    return bool(numpy.all(capacity_rows(tokens, bench) * bench.senders < bench.engine.program.padded_rows))
