"""How long collectives take: bandwidth, latency, lines and rings, several axes."""

from typing import Any

from dragonscale.collectives import EXACT, Options, Ring, Rings, collective_time
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given, link_words, torus
from dragonscale.course.words import amount, number
from dragonscale.hardware import parse_slice
from dragonscale.sharding.mesh import make_mesh, natural_mesh
from dragonscale.units import parse

TPUS = ("v5e", "v4p", "v5p", "v6e")
SIZES = ("100MB", "34MB", "1GB", "256MB", "64MB", "500MB")
FIRST_ORDER = "to first order, that is without the (N-1)/N"
NAMES = {
    "all_gather": "an AllGather",
    "reduce_scatter": "a ReduceScatter",
    "all_reduce": "an AllReduce",
    "all_to_all": "an AllToAll",
}
PART = {"all_gather": "V / W", "reduce_scatter": "V / W", "all_reduce": "2 · V / W", "all_to_all": "V / (4 · W)"}


@problem(
    "sharding",
    "An AllGather on a ring",
    cases=("sharding.allgather_time:t",),
    chip=TPUS,
    size=SIZES,
    chips=(16, 8, 32, 64),
)
def all_gather_on_a_ring(chip: str, size: str, chips: int) -> Posed:
    _, link = torus(chip)
    volume = parse(size, "bytes", "a size")
    seconds = collective_time("all_gather", volume, Rings((Ring(chips),), link)).bandwidth
    return Posed(
        ask=f"An array of {size} (in all) is split over a full ring of {chips} {chip} chips. How long does its AllGather take {FIRST_ORDER}? A chip has {link_words(link)}; leave latency out.",
        answer=seconds,
        dimension="s",
        hints=("Every chip must receive the whole array, through its two links along the axis.", "t = V / W, with W both directions; the number of chips cancels"),
        steps=(f"W = 2 · {amount(link, 'bytes/s')} = {amount(2 * link, 'bytes/s')}", f"t = {size} / {amount(2 * link, 'bytes/s')} = {amount(seconds, 's')}"),
        traps=(
            Trap(2 * seconds, "A ring is used in both directions: W is twice one link's direction."),
            Trap(seconds / chips, "V is the whole array, not a shard: each chip ends up with all of it."),
            Trap(seconds * chips / 2, "Each of the hops carries only a shard each way."),
        ),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|book)"',
    )  # fmt: skip


@problem(
    "sharding",
    "Four collectives on one ring",
    cases=("sharding.collective_cost_table:A2A",),
    kind=("all_to_all", "all_reduce", "reduce_scatter"),
    chip=TPUS,
    size=("90MB", "34MB", "1GB", "256MB", "500MB"),
    chips=(16, 8, 32),
)
def four_collectives(kind: str, chip: str, size: str, chips: int) -> Posed:
    _, link = torus(chip)
    volume, ring = parse(size, "bytes", "a size"), Rings((Ring(chips),), link)
    seconds, gather = (collective_time(one, volume, ring).bandwidth for one in (kind, "all_gather"))
    traps = [Trap(2 * seconds, "A ring is used in both directions: W is twice one link's direction.")]
    traps.append(Trap(gather, f"That is an AllGather; {NAMES[kind]} takes {PART[kind]}.") if kind != "reduce_scatter" else Trap(seconds / chips, "Every chip begins with partial sums of the whole array."))  # fmt: skip
    return Posed(
        ask=f"How long does {NAMES[kind]} of {size} (the whole array as the axis sees it) take on a full ring of {chips} {chip} chips, {FIRST_ORDER}? A chip has {link_words(link)}; leave latency out.",
        answer=seconds,
        dimension="s",
        hints=("In units of an AllGather, V/W: a ReduceScatter is the same backwards, an AllReduce is both, an AllToAll sends each piece only to where it is needed.", f"t = {PART[kind]}, W both directions"),
        steps=(f"V / W = {size} / {amount(2 * link, 'bytes/s')} = {amount(gather, 's')}", f"t = {PART[kind]} = {amount(seconds, 's')}"),
        traps=tuple(traps),
        check=f'dscale collective {kind} {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|book)"',
    )  # fmt: skip


@problem(
    "sharding",
    "Too small to be bound by bandwidth",
    cases=("sharding.latency_bound_rule:t_total",),
    size=("100kB", "50kB", "1MB", "20MB", "300kB", "5MB"),
    chips=(16, 32, 8, 64),
    chip=TPUS,
)
def latency_or_bandwidth(size: str, chips: int, chip: str) -> Posed | None:
    known, link = torus(chip)
    volume, hop = parse(size, "bytes", "a size"), known.network.hop_latency
    time = collective_time("all_gather", volume, Rings((Ring(chips),), link, hop))
    if 0.7 < time.bandwidth / time.latency < 1.4:
        return None
    other = min(time.bandwidth, time.latency)
    wrong = "Each hop takes at least its latency" if time.regime == "latency" else "The bytes take longer than the hops"
    return Posed(
        ask=f"An AllGather of {size} on a full ring of {chips} {chip} chips: each hop takes at least {amount(hop, 's')}, and a chip has {link_words(link)}. How long does it take at best, {FIRST_ORDER}?",
        answer=time.lower,
        dimension="s",
        hints=("Work out the time of the hops and the time of the bytes; the larger counts.", "t = max(t_hop · N/2, V / W)"),
        steps=(
            f"hops: {amount(hop, 's')} · {chips} / 2 = {amount(time.latency, 's')}",
            f"bytes: {size} / {amount(2 * link, 'bytes/s')} = {amount(time.bandwidth, 's')}",
            f"the larger: {amount(time.lower, 's')}, bound by {time.regime}",
        ),
        traps=(Trap(other, f"{wrong}: the larger of the two counts."), *([Trap(2 * time.latency, "In both directions only N/2 hops follow one another.")] if time.regime == "latency" else [])),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|latency|book)"',
    )  # fmt: skip


@problem(
    "sharding",
    "Where latency takes over",
    cases=("sharding.latency_buffer_threshold:bytes",),
    kind=("permute", "all_gather"),
    chip=TPUS,
    chips=(16, 8, 32, 4),
)
def where_latency_takes_over(kind: str, chip: str, chips: int) -> Posed:
    known, link = torus(chip)
    hop = known.network.hop_latency
    one = collective_time(kind, 1.0, Rings((Ring(chips),), link, hop), EXACT)
    volume = one.latency / one.bandwidth
    what = (
        "one send from each chip to its neighbour"
        if kind == "permute"
        else f"an AllGather over a full ring of {chips} chips (the (N-1)/N counted)"
    )
    formula = "V = t_hop · W₁" if kind == "permute" else "V · (N−1)/N / (2 · W₁) = t_hop · N/2"
    worked = (
        f"V = {amount(hop, 's')} · {amount(link, 'bytes/s')}"
        if kind == "permute"
        else f"V = {amount(hop, 's')} · {amount(link, 'bytes/s')} · {chips}² / {chips - 1}"
    )
    traps = (
        [Trap(2 * volume, "One send uses one direction of one link.")]
        if kind == "permute"
        else [Trap(volume / 2, "Both directions carry bytes: the rate is twice a link's.")]
    )
    if kind != "permute":
        traps.append(Trap(hop * link, "That is one hop's message; a ring takes N/2 hops and V is the whole array."))
    return Posed(
        ask=f"Below how many bytes is {what} bound by latency on {chip}? A hop takes {amount(hop, 's')}, one direction of a link carries {amount(link, 'bytes/s')}.",
        answer=volume,
        dimension="bytes",
        hints=("Set the time of the bytes equal to the time of the hops.", formula),
        steps=(formula, f"{worked} = {amount(volume, 'bytes')}"),
        traps=tuple(traps),
        check=f'dscale collective {kind} 100MB --on {chip} --mesh X={chips} | grep -E "below"',
    )  # fmt: skip


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
        ask=f"AllGather over Y of bf16[{rows}_Y, {columns}] on {slice_}, the axes X and Y as the slice has them. An axis of {chips} chips has no wraparound there. How long does it take? One direction of a link carries {amount(link, 'bytes/s')}.",
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
    )  # fmt: skip


@problem(
    "sharding",
    "Several axes share the work",
    cases=("sharding.allgather_multi_axis:t",),
    size=("64MB", "256MB", "1GB", "134MB"),
    chip=("v4p", "v5p", "tpu7x"),
    axes=("XYZ", "XY", "YZ"),
    shape=("4x4x4", "8x8x8", "4x8x8", "8x16x16"),
)
def several_axes(size: str, chip: str, axes: str, shape: str) -> Posed:
    mesh, (_, link) = natural_mesh(parse_slice(f"{chip}:{shape}")), torus(chip)
    volume = parse(size, "bytes", "a size")
    seconds = collective_time("all_gather", volume, mesh.group(tuple(axes))).bandwidth
    return Posed(
        ask=f"An AllGather of {size} over the axes {', '.join(axes)} of {chip}:{shape}, all of them rings. How long do its bytes take {FIRST_ORDER}? A chip has {link_words(link)}.",
        answer=seconds,
        dimension="s",
        hints=("Each axis brings its own links; their bandwidths add.", "t = V / (W · number of axes)"),
        steps=(f"W = {amount(2 * link, 'bytes/s')} on each of {len(axes)} axes", f"t = {size} / {amount(2 * link * len(axes), 'bytes/s')} = {amount(seconds, 's')}"),
        traps=(
            Trap(seconds * len(axes), "The axes work at the same time, each on its part."),
            Trap(2 * seconds, "Both directions of each axis carry bytes."),
        ),
        check=f'dscale collective all_gather {size} --on {chip}:{shape} --axis {axes} | grep -E "^(bandwidth|book)"',
    )  # fmt: skip


@problem(
    "sharding",
    "A mesh axis on two axes of the hardware",
    cases=("sharding.logical_axis_over_two_hw_axes:t_allgather_X",),
    size=("64MB", "256MB", "1GB", "90MB"),
    chip=("v5p", "v4p", "tpu7x"),
    layout=(("4x4x4", {"X": 16, "Y": 4}), ("4x4x8", {"X": 16, "Y": 8}), ("8x8x8", {"X": 64, "Y": 8}), ("4x4x4", {"X": 4, "Y": 16})),
    axis=("X", "Y"),
)  # fmt: skip
def two_hardware_axes(size: str, chip: str, layout: tuple[str, dict[str, int]], axis: str) -> Posed:
    shape, axes = layout
    piece, (_, link) = parse_slice(f"{chip}:{shape}"), torus(chip)
    mesh: Any = make_mesh(dict(axes), piece.chip, piece)
    lines, volume = len(mesh.rings[axis]), parse(size, "bytes", "a size")
    seconds = collective_time("all_gather", volume, mesh.group((axis,))).bandwidth
    other = seconds * lines if lines > 1 else seconds / 2
    return Posed(
        ask=f"The mesh {given(axes, ', ')} lies on {chip}:{shape}. How long does an AllGather of {size} over {axis} take {FIRST_ORDER}? Every axis of the slice is a ring with {amount(2 * link, 'bytes/s')} both ways; leave latency out.",
        answer=seconds,
        dimension="s",
        hints=("How many axes of the slice does the mesh axis cover?", "t = V / (W · hardware axes of the mesh axis)"),
        steps=(f"{axis}={axes[axis]} covers {lines} of the axes {shape}", f"t = {size} / ({lines} · {amount(2 * link, 'bytes/s')}) = {amount(seconds, 's')}"),
        traps=(
            Trap(other, f"{axis} covers {lines} of the slice's axes, and each brings its links."),
            Trap(seconds / 3 * lines, "Only the axes that the mesh axis covers carry its bytes."),
        ),
        check=f'dscale collective all_gather {size} --on {chip}:{shape} --mesh {given(axes)} --axis {axis} | grep -E "^(bandwidth|book)"',
    )  # fmt: skip


@problem(
    "sharding",
    "One direction only",
    cases=("sharding.unidirectional_collective:t",),
    chip=TPUS,
    size=("90MB", "34MB", "1GB", "256MB"),
    chips=(4, 8, 16),
)
def one_direction(chip: str, size: str, chips: int) -> Posed:
    _, link = torus(chip)
    volume, ring = parse(size, "bytes", "a size"), Rings((Ring(chips),), link)
    seconds = collective_time("all_gather", volume, ring, Options(exact=True, one_way=True)).bandwidth
    return Posed(
        ask=f"A ring of {chips} {chip} chips passes shards on in one direction only, {amount(link, 'bytes/s')}. How long do the bytes of an AllGather of {size} take, exactly (its own shard a chip has already)?",
        answer=seconds,
        dimension="s",
        hints=("Count the hops and what each carries.", "t = (N−1) · (V/N) / W₁"),
        steps=(f"{chips - 1} hops of {size} / {chips}", f"t = {number((chips - 1) / chips)} · {size} / {amount(link, 'bytes/s')} = {amount(seconds, 's')}"),
        traps=(
            Trap(seconds / 2, "Only one direction of the links is used."),
            Trap(volume / link, "Its own shard a chip has already: N-1 of N parts travel."),
        ),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} --one-way | grep "^bandwidth"',
    )  # fmt: skip
