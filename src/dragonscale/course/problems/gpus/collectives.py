"""Collectives inside one node."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.cost import EXACT, bus_bandwidth, ragged_fill
from dragonscale.physics.collectives.tiers import switch_traffic
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_array
from dragonscale.physics.rooflines import array_bytes

NODES = ("h100", "b200", "a100", "h200")


def node_of(chip: str) -> Switches:
    """A whole node of a chip."""
    levels = load_chip(chip).network.levels  # pyright: ignore[reportAttributeAccessIssue]
    return Switches(levels[0].degree, levels)


def node_bandwidth(chip: str) -> float:
    return float(node_of(chip).levels[0].bandwidth)


@problem(
    "gpus",
    "Gathering an array in a node",
    cases=("gpus.q2_3_allgather:t_exact",),
    chip=NODES,
    rows=(4096, 1024, 2048, 8192, 16384),
    columns=(65536, 8192, 16384, 28672),
)
def gather_in_a_node(chip: str, rows: int, columns: int) -> Posed:
    node, width = node_of(chip), node_bandwidth(chip)
    array = parse_array(f"bf16[I={rows}_X, J={columns}]")
    volume = array_bytes(array, {"I": rows, "J": columns})
    answer = collective_time("all_gather", volume, node, EXACT).bandwidth
    return Posed(
        ask=f"bf16[{rows}_X, {columns}] lies split over the 8 GPUs of a node; each GPU sends and receives "
        f"{amount(width, 'bytes/s')}. How long does an AllGather over X take at best, counted exactly (a GPU does not "
        "receive its own part) and without latency?",
        answer=answer,
        dimension="s",
        hints=(
            "What must come in at each GPU?",
            "T = V · (N − 1)/N / W, V the bytes of the whole array",
        ),
        steps=(
            f"V = 2 · {rows} · {columns} = {amount(volume, 'bytes')}",
            f"each GPU receives 7/8 of it: {amount(volume * 7 / 8, 'bytes')}",
            f"over {amount(width, 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * 8 / 7, "To first order it is V/W; exactly, each GPU already has an eighth."),
            Trap(answer / 8, "Each GPU needs the whole array, not an eighth of it."),
            Trap(answer / 2, "bf16 is two bytes."),
        ),
        check=calc(f"V = 2 bytes * {rows} * {columns}; V * 7/8 / {amount(width, 'bytes/s')}"),
    )


@problem(
    "gpus",
    "An AllReduce in a node",
    cases=(),
    chip=NODES,
    megabytes=(400, 50, 100, 200, 1000, 2000, 4000),
    adds=(True, False),
)
def reduce_in_a_node(chip: str, megabytes: int, adds: bool) -> Posed:
    node, width = node_of(chip), node_bandwidth(chip)
    volume = megabytes * 1e6
    times = {
        one: collective_time("all_reduce", volume, node, Options(exact=True, in_network=one)).bandwidth
        for one in (True, False)
    }
    how = "the switches add (SHARP): each GPU sends its array once and receives the sum once"
    if not adds:
        how = "it is done as a ReduceScatter and an AllGather, counted exactly, with (N − 1)/N"
    formula = "V / W" if adds else "2 · V · (N − 1)/N / W"
    return Posed(
        ask=f"Every GPU of a node of 8 holds an array of {count(megabytes)} MB to be added up by an AllReduce; a GPU sends and "
        f"receives {amount(width, 'bytes/s')}. How long does that take at best, without latency, if {how}?",
        answer=times[adds],
        dimension="s",
        hints=("What does one GPU send?", f"T = {formula}"),
        steps=(
            f"each GPU sends {amount(times[adds] * width, 'bytes')}",
            f"over {amount(width, 'bytes/s')}: {amount(times[adds], 's')}",
            f"The other way takes {amount(times[not adds], 's')}.",
        ),
        traps=(
            Trap(times[not adds], "That is the other way to do it."),
            Trap(times[adds] / 8, "An AllReduce is of the whole array on every GPU, not of an eighth."),
        ),
        check=f"dscale collective all_reduce {megabytes}MB --on {chip}:8{' --in-network' if adds else ''} | grep bandwidth",
    )


@problem(
    "gpus",
    "Bytes through a switch that adds",
    cases=("gpus.q4_2_sharp_bytes:ingress",),
    gpus=(8, 4, 16, 32, 72),
    megabytes=(1000, 100, 250, 500, 2000),
)
def bytes_through_the_switch(gpus: int, megabytes: int) -> Posed:
    volume = megabytes * 1e6
    answer = switch_traffic("all_reduce", volume, (gpus,)).ingress
    return Posed(
        ask=f"{gpus} GPUs under one switch add up an array of {count(megabytes)} MB each, and the switch does the adding "
        "(SHARP). How many bytes enter the switch?",
        answer=answer,
        dimension="bytes",
        hints=("Each GPU sends its array once.", "ingress = N · V; the sum leaves to each GPU, so egress is the same"),
        steps=(
            f"each GPU sends {amount(volume, 'bytes')}",
            f"{gpus} of them: {amount(answer, 'bytes')} in, and as much out",
        ),
        traps=(
            Trap(2 * answer, "Without SHARP each byte would come twice; here once."),
            Trap(volume, "That is one GPU's."),
        ),
        check=calc(f"{gpus} * {megabytes}MB"),
    )


@problem(
    "gpus",
    "An AllToAll with few destinations",
    cases=("gpus.ragged_a2a:deterministic",),
    chip=NODES,
    megabytes=(64, 16, 128, 256, 512, 1024),
    picks=(2, 1, 4, 6, 8),
)
def ragged_all_to_all(chip: str, megabytes: int, picks: int) -> Posed:
    node, width = node_of(chip), node_bandwidth(chip)
    volume, size = megabytes * 1e6, int(node.size)
    fill = ragged_fill(picks, size, random=False)
    answer = collective_time("all_to_all", volume, node, Options(filled=fill)).bandwidth
    return Posed(
        ask=f"An array of {count(megabytes)} MB in all (with its empty pieces) lies over the 8 GPUs of a node, one row for "
        f"each destination; each token goes to {picks} of the 8, so {picks}/8 of the pieces are not empty. A GPU sends "
        f"{amount(width, 'bytes/s')}. How long does the AllToAll take to first order (without the 7/8 and without latency)?",
        answer=answer,
        dimension="s",
        hints=("Each GPU holds an eighth of the array and sends what is not empty.", "T = k/N · V / (N · W)"),
        steps=(
            f"each GPU holds {amount(volume / size, 'bytes')} and sends {picks}/8 of it: "
            f"{amount(volume / size * fill, 'bytes')}",
            f"over {amount(width, 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * size, "Each GPU sends only what it holds, an eighth of the array."),
            *((Trap(answer / fill, "Empty pieces are not sent."),) if picks < size else ()),
        ),
        check=calc(f"{picks}/8 * {megabytes}MB / (8 * {amount(width, 'bytes/s')})"),
    )


@problem(
    "gpus",
    "NCCL's bus bandwidth",
    cases=("gpus.bus_bandwidth:bus_bw",),
    gpus=(8, 2, 4, 16, 32, 64),
    gigabytes=(210, 120, 150, 180, 240, 400),
    kind=("all_reduce", "all_gather", "reduce_scatter"),
)
def bus_bandwidth_of_nccl(gpus: int, gigabytes: int, kind: str) -> Posed:
    rate = gigabytes * 1e9
    answer = bus_bandwidth(kind, 1.0, gpus, 1 / rate)
    twice = 2 if kind == "all_reduce" else 1
    name = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}[kind]
    return Posed(
        ask=f"An {name} over {gpus} GPUs reaches an algorithm bandwidth (bytes of the whole array over the time) of "
        f"{gigabytes} GB/s. What is NCCL's bus bandwidth, the bytes that each GPU puts on the wire in a ring over the time?",
        answer=answer,
        dimension="bytes/s",
        hints=(
            "How many bytes does each GPU send for each byte of the array?",
            f"bus bandwidth = {'2 · ' if twice == 2 else ''}(N − 1)/N · algorithm bandwidth",
        ),
        steps=(
            f"for V bytes each GPU sends {twice if twice == 2 else ''}V·{gpus - 1}/{gpus}",
            f"{twice} · {gpus - 1}/{gpus} · {gigabytes} GB/s = {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(answer * gpus / (gpus - 1), "A GPU does not send its own part: (N − 1)/N."),
            Trap(answer * (2 if twice == 1 else 0.5), "An AllReduce sends twice, a gather or a scatter once."),
        ),
        check=calc(f"{twice} * ({gpus} - 1) / {gpus} * {gigabytes}GB/s"),
        tolerance=0.004,
    )
