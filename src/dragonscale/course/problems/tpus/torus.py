"""Rings and lines: hops, neighbours, wraparound, what a collective gets."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import Options, Ring, Rings, collective_time
from dragonscale.physics.hardware import Torus, axis_diameter, links_of, load_chip, parse_slice

LINKS = ("v5e", "v5p", "v6e", "v4", "tpu7x")


def _link(chip: str) -> tuple[float, float]:
    network = load_chip(chip).network
    assert isinstance(network, Torus)
    return float(network.link), float(network.hop_latency)


@problem(
    "tpus",
    "The farthest chip of an axis",
    cases=("tpus.torus_diameter:wrap",),
    size=(16, 4, 8, 12, 20, 28, 32, 64),
    wraps=(True, False),
)
def farthest_on_an_axis(size: int, wraps: bool) -> Posed:
    answer, other = float(axis_diameter(size, wraps)), float(axis_diameter(size, not wraps))
    kind = "closes into a ring" if wraps else "is a line without wraparound"
    return Posed(
        ask=f"An axis of {size} chips {kind}. How many hops are the two chips apart that are farthest from each other?",
        answer=answer,
        whole=True,
        hints=("On a ring one may go either way.", "ring: floor(N/2); line: N - 1."),
        steps=(
            "half way round is farthest" if wraps else "from end to end",
            f"{'floor(' + str(size) + '/2)' if wraps else str(size) + ' - 1'} = {answer:.0f} hops",
        ),
        traps=(
            Trap(other, "That is a line's." if wraps else "That is a ring's."),
            Trap(float(size), "Count the links between the chips, not the chips."),
        ),
        check=f'dscale calc "{f"floor({size}/2)" if wraps else f"{size} - 1"}"',
    )


@problem(
    "tpus",
    "The farthest chip of a slice",
    piece=(
        "v5e:16x16", "v5e:4x4", "v5e:8x16", "v5p:4x4x4", "v5p:8x8x16", "v5p:2x2x4", "v6e:8x8", "v6e:16x16", "v4:4x4x8",
        "v5p:16x20x28",
    ),
)  # fmt: skip
def farthest_in_a_slice(piece: str) -> Posed:
    made = parse_slice(piece)
    axes = list(zip(made.shape, made.wrap, strict=True))
    answer = float(sum(axis_diameter(size, wraps) for size, wraps in axes))
    traps = [Trap(float(sum(made.shape)), "Count links: half a ring, or a line's length less one.")]
    other = float(sum(axis_diameter(size, not wraps) for size, wraps in axes))
    traps.append(Trap(other, "Look at which axes close into a ring."))
    told = ", ".join(f"{size} ({'ring' if wraps else 'line'})" for size, wraps in axes)
    return Posed(
        ask=f"{piece} has axes of {told}. How many hops does a message need between the two chips that are farthest apart?",
        answer=answer,
        whole=True,
        hints=("Hops of the axes add up.", "floor(N/2) for each ring, N - 1 for each line."),
        steps=(
            " + ".join(f"{axis_diameter(size, wraps)}" for size, wraps in axes),
            f"= {answer:.0f} hops",
        ),
        traps=tuple(traps),
        check='dscale calc "' + " + ".join(f"floor({n}/2)" if w else f"{n} - 1" for n, w in axes) + '"',
    )


@problem(
    "tpus",
    "Which axes wrap around",
    piece=(
        "v5e:16x16", "v5e:8x16", "v5e:4x4", "v6e:8x8", "v6e:16x16", "v5p:4x4x4", "v5p:2x2x4", "v5p:2x2x1", "v4:8x8x8",
        "v5p:2x2x2", "v6e:8x16", "tpu7x:4x4x8",
    ),
)  # fmt: skip
def which_axes_wrap(piece: str) -> Posed:
    made = parse_slice(piece)
    closed = made.wrap
    answer = "every axis" if all(closed) else "no axis" if not any(closed) else "some axes"
    flat = len(made.shape) == 2
    rule = (
        "2D torus (v5e, v6e): an axis closes only at the pod's full length, 16."
        if flat
        else "3D torus (v4, v5p, TPU7x): all axes close if the slice is made of whole 4x4x4 cubes, otherwise none."
    )
    return Posed(
        ask=f"Which axes of {piece} have wraparound links?",
        answer=answer,
        hints=("It depends on the generation.", rule),
        steps=(rule, ", ".join(f"{size}: {'ring' if wraps else 'line'}" for size, wraps in zip(made.shape, closed, strict=True))),
        options=("every axis", "some axes", "no axis"),
        check=f'dscale chips {piece} | grep -E "  (ring|line)  "',
        shown={"every axis": r"^(?!.*line)", "no axis": r"^(?!.*ring)", "some axes": "ring.*line|line.*ring"}[answer],
    )  # fmt: skip


@problem(
    "tpus",
    "Neighbours",
    piece=("v5p:8x8x8", "v5e:16x16", "v5e:4x4", "v5p:4x4x4", "v6e:8x8", "v5e:8x16", "v4:8x8x16", "v5p:2x2x4"),
    corner=(True, False),
)
def neighbours(piece: str, corner: bool) -> Posed | None:
    made = parse_slice(piece)
    inside = tuple(size // 2 - (size > 2) * 0 for size in made.shape)
    place = (0,) * len(made.shape) if corner else inside
    if not corner and min(made.shape) < 4:
        return None
    answer = float(links_of(made, place))
    traps = (
        [Trap(answer + len(made.shape), "At the end of a line there is no neighbour beyond.")]
        if not all(made.wrap)
        else []
    )
    traps.append(Trap(answer / 2, "An axis leads both ways."))
    where = f"chip {place}"
    return Posed(
        ask=f"To how many other chips is {where} of {piece} joined by an ICI link? Places count from 0; "
        f"axes that wrap around: {sum(made.wrap)} of {len(made.shape)}.",
        answer=answer,
        whole=True,
        hints=("Two neighbours on every axis, but one at the end of a line.", "2 for a ring; 2 or 1 for a line."),
        steps=(
            ", ".join(f"{size} ({'ring' if wraps else 'line'})" for size, wraps in zip(made.shape, made.wrap, strict=True)),
            f"{answer:.0f} links",
        ),
        traps=tuple(traps),
        check=f"dscale collective gather 1GB --on {piece} --to {','.join(map(str, place))}",
    )  # fmt: skip


@problem(
    "tpus",
    "An AllGather on a line",
    chip=LINKS,
    size=(8, 4, 2),
    gigabytes=(1, 0.25, 4, 16),
)
def gather_on_a_line(chip: str, size: int, gigabytes: float) -> Posed:
    link, hop = _link(chip)
    line, ring = (Rings((Ring(size, wrap),), link, hop) for wrap in (False, True))
    answer = float(collective_time("all_gather", gigabytes * 1e9, line, Options(exact=True)).bandwidth)
    closed = float(collective_time("all_gather", gigabytes * 1e9, ring, Options(exact=True)).bandwidth)
    return Posed(
        ask=f"{size} {chip} chips in a line without wraparound gather an array of {gigabytes:g}GB of which each holds an equal "
        f"part. A link carries {amount(link, 'bytes/s')} each way. How long at best, by bandwidth alone and exactly, with the (N-1)/N?",
        answer=answer,
        dimension="s",
        hints=(
            "The chip at the end has one link, and all but its own part must come in through it.",
            "T = V · (N - 1)/N / link.",
        ),
        steps=(
            f"{gigabytes:g}e9 · {size - 1}/{size} = {number(gigabytes * 1e9 * (size - 1) / size)} bytes must arrive",
            f"/ {number(link)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(closed, "That is a ring, where bytes come in from both sides."),
            Trap(answer * 2, "A link carries its rate each way."),
        ),
        check=f'dscale calc "{gigabytes:g}GB * {size - 1} / {size} / {chip}.ici_link"',
    )


@problem(
    "tpus",
    "Where hops decide",
    chip=LINKS,
    size=(16, 8, 12, 20, 28),
)
def latency_bound_below(chip: str, size: int) -> Posed:
    link, hop = _link(chip)
    ring = Rings((Ring(size),), link, hop)
    unit = collective_time("all_gather", 1.0, ring)
    answer = float(unit.latency) / float(unit.bandwidth)
    return Posed(
        ask=f"An AllGather over a ring of {size} {chip} chips: each link carries {amount(link, 'bytes/s')} each way and a hop "
        f"takes {amount(hop, 's')}. Below which size of the whole array do the hops take longer than the bytes, to first "
        "order (V over both directions, N/2 hops)?",
        answer=answer,
        dimension="bytes",
        hints=("Two times: one grows with the bytes, one with the hops.", "V/(2·link) = N/2 · t_hop, solved for V."),
        steps=(
            f"N/2 · t_hop = {amount(size / 2 * hop, 's')}",
            f"V = {amount(size / 2 * hop, 's')} · 2 · {number(link)} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "Both directions carry bytes."),
            Trap(2 * answer, "Half way round is enough: N/2 hops."),
            Trap(answer / size, "That is one chip's part; the whole array was asked."),
        ),
        check=f'dscale calc "{size} / 2 * {hop * 1e6:g}us * 2 * {chip}.ici_link"',
    )


@problem(
    "tpus",
    "Out of the pod",
    chip=("v5p", "v5e", "v6e", "v4", "tpu7x"),
    chips=(256, 64, 1024, 4096),
    gigabytes=(140, 16, 810, 26),
)
def over_the_data_centre_network(chip: str, chips: int, gigabytes: int) -> Posed | None:
    made = load_chip(chip)
    if chip in ("v5e", "v6e") and chips > 256:
        return None
    dcn, link = float(made.bandwidth("dcn")), _link(chip)[0]
    answer = gigabytes * 1e9 / (chips * dcn)
    return Posed(
        ask=f"{count(chips)} {chip} chips of one pod send {gigabytes}GB, split evenly among them, to another pod over the "
        f"data-centre network at {amount(dcn, 'bytes/s')} a chip. How long does it take at best?",
        answer=answer,
        dimension="s",
        hints=("All chips send at the same time.", "T = V / (chips · DCN bandwidth of a chip)."),
        steps=(
            f"{count(chips)} · {number(dcn)} = {amount(chips * dcn, 'bytes/s')} out of the pod",
            f"{gigabytes}e9 / {number(chips * dcn)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * chips, "Every chip sends its own part at the same time."),
            Trap(answer * dcn / link, "That is ICI, which does not leave the pod."),
        ),
        check=f'dscale calc "{gigabytes}GB / ({chips} * {chip}.dcn)"',
    )
