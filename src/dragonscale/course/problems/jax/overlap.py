"""What overlap gains, and when a matmul hides its communication."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.jax.collective_matmuls import LINE
from dragonscale.course.problems.sharding.flags import torus
from dragonscale.course.words import amount, count, number
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import Cost, Rates, Roofline, roofline
from dragonscale.physics.sharding import Mesh, strategies


def _timed(matmul: float, comms: float) -> Roofline:
    """A matmul and a collective of these times, side by side."""
    cost = Cost(flops={("matrix", "bf16"): matmul}, wire={"Y": comms})
    return roofline(cost, Rates(flops={("matrix", "bf16"): 1.0}, wire={"Y": 1.0}))


@problem(
    "jax",
    "Serial and overlapped",
    how=("perfect overlap", "no overlap"),
    matmul=(224.0, 150.0, 90.0, 400.0),
    comms=(87.0, 120.0, 200.0, 60.0),
)
def serial_or_overlapped(how: str, matmul: float, comms: float) -> Posed:
    bounds = _timed(matmul * 1e-6, comms * 1e-6)
    answer = bounds.lower if how == "perfect overlap" else bounds.upper
    other = bounds.upper if how == "perfect overlap" else bounds.lower
    rule = "the larger of the two" if how == "perfect overlap" else "the sum"
    return Posed(
        ask=f"A matmul takes {matmul:g} us and the AllGather of its operand {comms:g} us. How "
        f"long do both take with {how}?",
        answer=answer,
        dimension="s",
        hints=(
            "What is overlapped costs only what is longer; what is not adds up.",
            "overlapped: max(matmul, comms); serial: matmul + comms",
        ),
        steps=(f"{how}: {rule} of {matmul:g} and {comms:g}", f"{amount(answer, 's')}"),
        traps=(Trap(other, f"With {how} it is {rule}."),),
        check="dscale calc "
        f'"{"max" if how == "perfect overlap" else ""}({matmul:g}us{"," if how == "perfect overlap" else " +"} '
        f'{comms:g}us)"',
    )


@problem(
    "jax",
    "What overlap gained",
    cases=("jax-stuff.collective_matmul_times:speedup",),
    naive=(311.0, 480.0, 150.0, 620.0),
    overlapped=(244.0, 390.0, 118.0, 410.0),
    alone=(224.0, 340.0, 100.0, 380.0),
)
def gain_of_overlap(naive: float, overlapped: float, alone: float) -> Posed | None:
    if not alone < overlapped < 0.93 * naive:
        return None
    bounds = _timed(alone, naive - alone)
    if overlapped < bounds.lower:
        return None
    gain = bounds.upper / overlapped
    return Posed(
        ask=f"A sharded matmul takes {naive:g} us with a plain AllGather in front, "
        f"{overlapped:g} us as a collective matmul, and {alone:g} us without any "
        "communication. How many times as fast is the collective matmul as the plain form?",
        answer=gain,
        hints=("Compare the two sharded forms.", "speed-up = time before / time after"),
        steps=(
            f"exposed before: {naive:g} − {alone:g} = {naive - alone:g} us; after: {overlapped - alone:g} us",
            f"{naive:g} / {overlapped:g} = {number(gain)}",
        ),
        traps=(
            Trap(bounds.upper / bounds.lower, "That is the most that overlap could gain."),
            Trap(overlapped / naive, "That is the part of the time that is left."),
        ),
        check=f'dscale calc "{naive:g}us / {overlapped:g}us"',
        tolerance=0.01,
    )


@problem(
    "jax",
    "When a hop hides under its matmul",
    chip=("v5p", "v5e", "v4", "v6e"),
    ways=("one direction", "both directions"),
    ring=(4, 8, 16),
)
def width_that_hides_a_hop(chip: str, ways: str, ring: int) -> Posed:
    known, link = torus(chip)
    rate = link if ways == "one direction" else 2 * link
    columns = known.peak("bf16") / rate
    return Posed(
        ask=f"{LINE} in bf16 as an AllGather collective matmul over a ring of Y={ring} {chip} "
        "chips. While a chip multiplies one part of A with its columns of W, the next "
        f"parts travel, over {ways} of the ring: {amount(rate, 'bytes/s')} in all. How many "
        "columns of W must a chip have at least (F/Y) for the matmuls to hide the hops? C "
        f"= {amount(known.peak('bf16'), 'FLOP/s')}; first order.",
        answer=columns,
        hints=(
            "A part of p elements needs 2·p·F/Y FLOPs and 2·p bytes on the wire.",
            "2·p·(F/Y) / C = 2·p / W, so F/Y = C / W",
        ),
        steps=(
            "per element of A: 2 · F/Y FLOPs against 2 bytes",
            f"F/Y = {amount(known.peak('bf16'), 'FLOP/s')} / {amount(rate, 'bytes/s')} = {count(columns)}",
        ),
        traps=(
            Trap(columns * 2, "bf16 has two bytes and a multiply-add two FLOPs: the twos cancel."),
            Trap(columns * ring, "That is F in all; each chip has a Y-th of it."),
            Trap(known.peak("bf16") / known.bandwidth("hbm"), "The parts come over the network, not from HBM."),
        ),
        check=f'dscale calc "{chip}.bf16 / {chip}.{"ici_link" if ways == "one direction" else "ici_axis"}"',
    )


@problem(
    "jax",
    "Gather first, then multiply",
    chip=("v5e", "v5p", "v6e", "v4"),
    tokens=(1024, 4096, 8192, 2048),
    width=(2048, 4096, 8192),
    ring=(4, 8),
)
def time_of_the_plain_form(chip: str, tokens: int, width: int, ring: int) -> Posed | None:
    known, link = torus(chip)
    mesh, sizes = Mesh({"X": 2, "Y": ring}, known), {"B": tokens, "D": width, "F": 4 * width}
    ways = [
        way
        for way in strategies(parse_einsum(LINE), sizes, mesh)
        if [(step.kind, step.before.name) for step in way.collectives] == [("all_gather", "A")]
    ]
    if not ways:
        return None
    math, comms = ways[0].math_seconds(sizes, mesh), ways[0].comms_seconds(sizes, mesh)
    bounds = _timed(math, comms)
    return Posed(
        ask=f"{LINE} in bf16, B={tokens}, D={width}, F={4 * width} on X=2, Y={ring} of {chip} "
        f"({amount(known.peak('bf16'), 'FLOP/s')}; rings of {amount(2 * link, 'bytes/s')} "
        "both ways). A is gathered over Y first, then multiplied. How long do both take "
        "one after the other, to first order and without HBM or latency?",
        answer=bounds.upper,
        dimension="s",
        hints=("Nothing overlaps in the plain form: add the two times.", "2·(B/X)·D / W + 2·(B/X)·D·(F/Y) / C"),
        steps=(
            (f"AllGather: 2 · {tokens // 2} · {width} bytes / {amount(2 * link, 'bytes/s')} = {amount(comms, 's')}"),
            (
                f"matmul: 2 · {tokens // 2} · {width} · {4 * width // ring} / "
                f"{amount(known.peak('bf16'), 'FLOP/s')} = {amount(math, 's')}"
            ),
            (f"one after the other: {amount(bounds.upper, 's')}; overlapped, {amount(bounds.lower, 's')} at best"),
        ),
        traps=(
            Trap(bounds.lower, "That is with perfect overlap, the collective matmul's bound."),
            Trap(comms * 2 + math, "The ring is used in both directions.")
            if comms > 0.15 * math
            else Trap(2 * bounds.upper, "X splits the rows of A."),
        ),
        check=f'dscale calc "{tokens // 2}*{width}*2 bytes / {chip}.ici_axis + '
        f'2*{tokens // 2}*{width}*{4 * width // ring} FLOP / {chip}.bf16"',
    )
