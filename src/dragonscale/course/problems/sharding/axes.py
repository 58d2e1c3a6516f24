"""Collectives on real slices: axes that do not close, several axes at once, mesh axes that cover two."""

from typing import Any

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import FIRST_ORDER, given, link_words, torus
from dragonscale.course.words import amount
from dragonscale.physics.collectives import collective_time
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.sharding.mesh import make_mesh, natural_mesh
from dragonscale.physics.units import parse


@problem(
    "sharding",
    "An axis that does not close",
    cases=("sharding.pq2_no_wrap:t",),
    rows=(2048, 4096, 8192),
    columns=(8192, 4096, 28672),
    slice_=("v5e:8x4", "v5e:4x8", "v6e:8x8", "v6e:4x4"),
)
def all_gather_on_a_line(rows: int, columns: int, slice_: str) -> Posed:
    piece = parse_slice(slice_)
    mesh, (_, link) = natural_mesh(piece), torus(piece.chip.name)
    chips, volume = int(mesh.axes["Y"]), 2.0 * rows * columns
    seconds = collective_time("all_gather", volume, mesh.group(("Y",))).lower
    ring = volume / (2 * link)
    shard = volume / chips
    return Posed(
        ask=f"AllGather over Y of bf16[{rows}_Y, {columns}] on {slice_}, the axes X and Y as "
        f"the slice has them. An axis of {chips} chips has no wraparound there. How long "
        f"do its bytes take, exactly (with the (N-1)/N)? One direction of a link carries {amount(link, 'bytes/s')}.",
        answer=seconds,
        dimension="s",
        hints=("The chip at an end receives everything through one link.", "t = (N−1) · (V/N) / W₁"),
        steps=(
            f"V = 2 · {rows} · {columns} = {amount(volume, 'bytes')}, a shard {amount(shard, 'bytes')}",
            f"{chips - 1} shards through one link: {amount(shard * (chips - 1), 'bytes')}",
            f"t = {amount(shard * (chips - 1), 'bytes')} / {amount(link, 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(ring, "V/W with both directions holds on a ring; this axis is a line."),
            Trap(volume / link, "Its own shard a chip has already: N-1 of N parts travel."),
        ),
        check=f'dscale collective all_gather {volume:.0f}B --on {slice_} --axis Y | grep -E "^(bandwidth|latency)"',
    )


@problem(
    "sharding",
    "Several axes share the work",
    cases=("sharding.allgather_multi_axis:t",),
    size=("64MB", "256MB", "1GB", "134MB"),
    chip=("v4", "v5p", "tpu7x"),
    axes=("XYZ", "XY", "YZ"),
    shape=("4x4x4", "8x8x8", "4x8x8", "8x16x16"),
)
def several_axes(size: str, chip: str, axes: str, shape: str) -> Posed:
    mesh, (_, link) = natural_mesh(parse_slice(f"{chip}:{shape}")), torus(chip)
    volume = parse(size, "bytes", "a size")
    seconds = collective_time("all_gather", volume, mesh.group(tuple(axes))).bandwidth
    return Posed(
        ask=f"An AllGather of {size} over the axes {', '.join(axes)} of {chip}:{shape}, all of "
        f"them rings. How long do its bytes take {FIRST_ORDER}? A chip has "
        f"{link_words(link)}.",
        answer=seconds,
        dimension="s",
        hints=("Each axis brings its own links; their bandwidths add.", "t = V / (W · number of axes)"),
        steps=(
            f"W = {amount(2 * link, 'bytes/s')} on each of {len(axes)} axes",
            f"t = {size} / {amount(2 * link * len(axes), 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(seconds * len(axes), "The axes work at the same time, each on its part."),
            Trap(2 * seconds, "Both directions of each axis carry bytes."),
        ),
        check=f'dscale collective all_gather {size} --on {chip}:{shape} --axis {axes} | grep -E "^(bandwidth|book)"',
    )


@problem(
    "sharding",
    "A mesh axis on two axes of the hardware",
    cases=("sharding.logical_axis_over_two_hw_axes:t_allgather_X",),
    size=("64MB", "256MB", "1GB", "90MB"),
    chip=("v5p", "v4", "tpu7x"),
    layout=(
        ("4x4x4", {"X": 16, "Y": 4}),
        ("4x4x8", {"X": 16, "Y": 8}),
        ("8x8x8", {"X": 64, "Y": 8}),
        ("4x4x4", {"X": 4, "Y": 16}),
    ),
    axis=("X", "Y"),
)
def two_hardware_axes(size: str, chip: str, layout: tuple[str, dict[str, int]], axis: str) -> Posed:
    shape, axes = layout
    piece, (_, link) = parse_slice(f"{chip}:{shape}"), torus(chip)
    mesh: Any = make_mesh(dict(axes), piece.chip, piece)
    lines, volume = len(mesh.rings[axis]), parse(size, "bytes", "a size")
    seconds = collective_time("all_gather", volume, mesh.group((axis,))).bandwidth
    other = seconds * lines if lines > 1 else seconds / 2
    return Posed(
        ask=f"The mesh {given(axes, ', ')} lies on {chip}:{shape}. How long does an AllGather "
        f"of {size} over {axis} take {FIRST_ORDER}? Every axis of the slice is a ring with "
        f"{amount(2 * link, 'bytes/s')} both ways; leave latency out.",
        answer=seconds,
        dimension="s",
        hints=("How many axes of the slice does the mesh axis cover?", "t = V / (W · hardware axes of the mesh axis)"),
        steps=(
            f"{axis}={axes[axis]} covers {lines} of the axes {shape}",
            f"t = {size} / ({lines} · {amount(2 * link, 'bytes/s')}) = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(other, f"{axis} covers {lines} of the slice's axes, and each brings its links."),
            Trap(seconds / 3 * lines, "Only the axes that the mesh axis covers carry its bytes."),
        ),
        check=f"dscale collective all_gather {size} --on {chip}:{shape} --mesh {given(axes)} "
        f'--axis {axis} | grep -E "^(bandwidth|book)"',
    )
