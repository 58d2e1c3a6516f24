"""Inside a ring: hops, what each carries, the pieces of an AllToAll."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import torus
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import Options, Ring, Rings, collective_time
from dragonscale.physics.collectives.transfer import all_to_all_piece, all_to_all_sends, hop_bytes, ring_hops
from dragonscale.physics.units import parse

RINGS = (8, 16, 4, 32, 64)


@problem(
    "sharding",
    "Hops of a ring",
    cases=("sharding.allgather_hops:bidi_hops",),
    ways=("both directions", "one direction"),
    chips=(8, 16, 4, 32, 64, 12),
)
def hops_of_a_ring(ways: str, chips: int) -> Posed:
    one_way = ways == "one direction"
    hops = float(ring_hops(chips, one_way=one_way))
    rule = "N − 1" if one_way else "N / 2, rounded down"
    return Posed(
        ask=f"How many hops follow one another in an AllGather over a ring of {chips} chips "
        f"that passes shards on in {ways}?",
        answer=hops,
        whole=True,
        hints=("How far away is the farthest shard?", f"hops = {rule}"),
        steps=(f"the farthest shard is {hops:.0f} links away", f"hops = {rule} = {hops:.0f}"),
        traps=(
            Trap(float(ring_hops(chips, one_way=not one_way)), f"It goes round in {ways}."),
            Trap(float(chips), "A chip has its own shard already."),
        ),
        check="dscale collective all_gather 8MB --on v5e --mesh "
        f'X={chips}{" --one-way" if one_way else ""} | grep -E "^(latency|ring)"',
    )


@problem(
    "sharding",
    "What a hop carries",
    cases=("sharding.allgather_hops:bidi_bytes_per_hop",),
    size=("8MB", "64MB", "34MB", "1GB"),
    chips=RINGS,
)
def bytes_of_a_hop(size: str, chips: int) -> Posed:
    volume = parse(size, "bytes", "a size")
    sent = hop_bytes(volume, chips)
    return Posed(
        ask=f"An AllGather of {size} goes round a ring of {chips} chips in both directions. How "
        "many bytes does a chip send in one hop, over both of its links together?",
        answer=sent,
        dimension="bytes",
        hints=("In a hop a chip passes one shard on to the left and one to the right.", "bytes of a hop = 2 · V / N"),
        steps=(
            f"a shard: {size} / {chips} = {amount(volume / chips, 'bytes')}",
            f"two of them: {amount(sent, 'bytes')}",
        ),
        traps=(
            Trap(sent / 2, "One shard goes each way, so two in a hop."),
            Trap(volume, "That is the whole array; a hop carries shards."),
        ),
        check=f'dscale calc "2 * {size} / {chips}"',
    )


@problem(
    "sharding",
    "Pieces of an AllToAll",
    cases=("sharding.alltoall_chunk_count:chunks_total",),
    chips=(8, 4, 16, 32, 64, 6, 12, 10),
)
def pieces_of_an_all_to_all(chips: int) -> Posed:
    sends = float(all_to_all_sends(chips))
    return Posed(
        ask=f"An AllToAll over a ring of {chips} chips cuts the array into {chips}² pieces, one "
        "for each pair of chips, and each takes the shorter way round. How many pieces "
        "does each chip put on its links in all, those that it passes on for others "
        "included?",
        answer=sends,
        whole=True,
        hints=("A piece for a chip d links away is sent d times.", "the sum of min(d, N−d) over d is N²/4"),
        steps=(
            "each chip's own pieces travel min(d, N − d) links",
            f"N² / 4 = {chips}² / 4 = {count(sends)}; every chip passes on as much as its own pieces travel",
        ),
        traps=(
            Trap(float(chips - 1), "Pieces for distant chips are passed on by those between."),
            Trap(
                float(all_to_all_sends(chips, one_way=True)),
                "That is one direction only; the shorter way round halves the distances.",
            ),
        ),
        check=f'dscale collective all_to_all 64MB --on v5e --mesh X={chips} | grep "pieces"',
    )


@problem(
    "sharding",
    "Bytes a chip passes on in an AllToAll",
    cases=("sharding.alltoall_chunk_count:bytes_per_device",),
    size=("64MB", "90MB", "1GB", "256MB", "16MB"),
    chips=(8, 16, 4, 32),
)
def bytes_of_an_all_to_all(size: str, chips: int) -> Posed:
    volume = parse(size, "bytes", "a size")
    piece, sends = all_to_all_piece(volume, chips), all_to_all_sends(chips)
    return Posed(
        ask=f"An array of {size} in all is exchanged by an AllToAll over a ring of {chips} "
        "chips, each piece the shorter way round. How many bytes does each chip put on its "
        "links, those passed on for others included?",
        answer=float(piece * sends),
        dimension="bytes",
        hints=(
            "The array has N² pieces; how many of them does a chip send or pass on?",
            "N²/4 pieces of V/N² bytes: V/4",
        ),
        steps=(
            f"a piece: {size} / {chips}² = {amount(piece, 'bytes')}",
            f"{count(sends)} of them: {amount(piece * sends, 'bytes')}",
        ),
        traps=(
            Trap(volume / chips, "That is a chip's own part; it passes on pieces for others too."),
            Trap(volume, ("An AllGather would move as much; an AllToAll sends each piece only to where it is needed.")),
        ),
        check=f'dscale calc "all_to_all_sends({chips}) * all_to_all_piece({size}, {chips})"',
    )


@problem(
    "sharding",
    "What the second direction gains",
    kind=("all_to_all", "all_gather"),
    chips=(16, 8, 4, 32, 64),
    chip=("v5e", "v5p"),
)
def gain_of_both_directions(kind: str, chips: int, chip: str) -> Posed:
    ring, name = Rings((Ring(chips),), torus(chip)[1]), {"all_to_all": "AllToAll", "all_gather": "AllGather"}[kind]
    one, both = (collective_time(kind, 1e9, ring, Options(exact=True, one_way=way)).bandwidth for way in (True, False))
    gather = kind == "all_gather"
    return Posed(
        ask=f"A ring of {chips} {chip} chips does an {name} in one direction, then in both, "
        "each byte the shorter way. How many times as fast is it in both, counting bytes "
        "exactly and no latency?",
        answer=one / both,
        hints=(
            "The second direction doubles the links. Do pieces also travel less far?",
            (
                "AllGather: every byte passes every chip either way, 2. AllToAll: N(N−1)/2 sends "
                "become N²/4, on twice the links"
            ),
        ),
        steps=(
            f"one direction takes {number(one / both)} times as long for {name}",
            f"{'2 · 1' if gather else f'2 · ({chips}·{chips - 1}/2) / ({chips}²/4)'} = {number(one / both)}",
        ),
        traps=(
            Trap(
                4.0 if gather else 2.0,
                "An AllGather's bytes still pass every chip."
                if gather
                else "With two directions pieces also travel half as far.",
            ),
            Trap(1.0, "Both directions carry bytes at once."),
        ),
        check=f'dscale calc "2 * ({chips} - 1) / ({chips} - 1)"'
        if gather
        else f'dscale calc "2 * all_to_all_sends({chips}, one_way=true) / all_to_all_sends({chips})"',
        tolerance=0.01,
    )
