"""How long collectives take: bandwidth against latency on one ring."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import FIRST_ORDER, hop_seconds_of, link_words, torus
from dragonscale.course.words import amount, number
from dragonscale.physics.collectives import EXACT, Options, Ring, Rings, collective_time
from dragonscale.physics.units import parse

TPUS = ("v5e", "v4", "v5p", "v6e")
SIZES = ("100MB", "34MB", "1GB", "256MB", "64MB", "500MB")
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
        ask=f"An array of {size} (in all) is split over a full ring of {chips} {chip} chips. "
        f"How long does its AllGather take {FIRST_ORDER}? A chip has {link_words(link)}; "
        "leave latency out.",
        answer=seconds,
        dimension="s",
        hints=(
            "Every chip must receive the whole array, through its two links along the axis.",
            "t = V / W, with W both directions; the number of chips cancels",
        ),
        steps=(
            f"W = 2 · {amount(link, 'bytes/s')} = {amount(2 * link, 'bytes/s')}",
            f"t = {size} / {amount(2 * link, 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(2 * seconds, "A ring is used in both directions: W is twice one link's direction."),
            Trap(seconds / chips, "V is the whole array, not a shard: each chip ends up with all of it."),
            Trap(seconds * chips / 2, "Each of the hops carries only a shard each way."),
        ),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|book)"',
    )


@problem(
    "sharding",
    "Other collectives on a ring",
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
    traps.append(
        Trap(gather, f"That is an AllGather; {NAMES[kind]} takes {PART[kind]}.")
        if kind != "reduce_scatter"
        else Trap(seconds / chips, "Every chip begins with partial sums of the whole array.")
    )
    return Posed(
        ask=f"How long does {NAMES[kind]} of {size} (the whole array as the axis sees it) take "
        f"on a full ring of {chips} {chip} chips, {FIRST_ORDER}? A chip has "
        f"{link_words(link)}; leave latency out.",
        answer=seconds,
        dimension="s",
        hints=(
            (
                "In units of an AllGather, V/W: a ReduceScatter is the same backwards, an "
                "AllReduce is both, an AllToAll sends each piece only to where it is needed."
            ),
            f"t = {PART[kind]}, W both directions",
        ),
        steps=(
            f"V / W = {size} / {amount(2 * link, 'bytes/s')} = {amount(gather, 's')}",
            f"t = {PART[kind]} = {amount(seconds, 's')}",
        ),
        traps=tuple(traps),
        check=f'dscale collective {kind} {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|book)"',
    )


@problem(
    "sharding",
    "Bound by hops or by bytes",
    cases=("sharding.latency_bound_rule:t_total",),
    size=("100kB", "50kB", "1MB", "20MB", "300kB", "5MB"),
    chips=(16, 32, 8, 64),
    chip=TPUS,
)
def latency_or_bandwidth(size: str, chips: int, chip: str) -> Posed | None:
    known, link = torus(chip)
    volume, hop = parse(size, "bytes", "a size"), hop_seconds_of(known)
    time = collective_time("all_gather", volume, Rings((Ring(chips),), link, hop))
    if 0.7 < time.bandwidth / time.latency < 1.4:
        return None
    other = min(time.bandwidth, time.latency)
    wrong = "Each hop takes at least its latency" if time.regime == "latency" else "The bytes take longer than the hops"
    return Posed(
        ask=f"An AllGather of {size} on a full ring of {chips} {chip} chips: each hop takes at "
        f"least {amount(hop, 's')}, and a chip has {link_words(link)}. How long does it "
        f"take at best, {FIRST_ORDER}?",
        answer=time.lower,
        dimension="s",
        hints=(
            "Work out the time of the hops and the time of the bytes; the larger counts.",
            "t = max(t_hop · N/2, V / W)",
        ),
        steps=(
            f"hops: {amount(hop, 's')} · {chips} / 2 = {amount(time.latency, 's')}",
            f"bytes: {size} / {amount(2 * link, 'bytes/s')} = {amount(time.bandwidth, 's')}",
            f"the larger: {amount(time.lower, 's')}, bound by {time.regime}",
        ),
        traps=(
            Trap(other, f"{wrong}: the larger of the two counts."),
            *(
                [Trap(2 * time.latency, "In both directions only N/2 hops follow one another.")]
                if time.regime == "latency"
                else []
            ),
        ),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} | grep -E "^(bandwidth|latency|book)"',
    )


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
    hop = hop_seconds_of(known)
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
        ask=f"Below how many bytes is {what} bound by latency on {chip}? A hop takes "
        f"{amount(hop, 's')}, one direction of a link carries {amount(link, 'bytes/s')}.",
        answer=volume,
        dimension="bytes",
        hints=("Set the time of the bytes equal to the time of the hops.", formula),
        steps=(formula, f"{worked} = {amount(volume, 'bytes')}"),
        traps=tuple(traps),
        check=f'dscale collective {kind} 100MB --on {chip} --mesh X={chips} | grep -E "below"',
    )


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
        ask=f"A ring of {chips} {chip} chips passes shards on in one direction only, "
        f"{amount(link, 'bytes/s')}. How long do the bytes of an AllGather of {size} take, "
        "exactly (its own shard a chip has already)?",
        answer=seconds,
        dimension="s",
        hints=("Count the hops and what each carries.", "t = (N−1) · (V/N) / W₁"),
        steps=(
            f"{chips - 1} hops of {size} / {chips}",
            f"t = {number((chips - 1) / chips)} · {size} / {amount(link, 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(seconds / 2, "Only one direction of the links is used."),
            Trap(volume / link, "Its own shard a chip has already: N-1 of N parts travel."),
        ),
        check=f'dscale collective all_gather {size} --on {chip} --mesh X={chips} --one-way | grep "^bandwidth"',
    )
