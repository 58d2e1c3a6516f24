"""From chip to chip, from the host to the chips, from all chips to one."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import gather_time, transfer_time
from dragonscale.physics.hardware import disjoint_paths, hops, load_chip, parse_slice
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import Cost, array_bytes, einsum_cost, rates_of, roofline
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh

PIECES = ("v5e:4x4", "v5e:8x16", "v6e:8x8", "v5p:4x4x4", "v5e:16x16", "v5p:2x2x4", "v4:4x4x8", "v6e:16x16")


def _corner(text: str) -> tuple[int, ...]:
    return tuple(size - 1 for size in parse_slice(text).shape)


@problem("tpus", "Hops from corner to corner", cases=("tpus.q5_point_to_point:hops",), piece=PIECES, near=(False, True))
def hops_between_corners(piece: str, near: bool) -> Posed | None:
    made = parse_slice(piece)
    zero = (0,) * len(made.shape)
    target = tuple(at // 2 for at in _corner(piece)) if near else _corner(piece)
    answer = float(hops(made, zero, target))
    straight = float(sum(target))
    told = ", ".join(
        f"{size} ({'ring' if wraps else 'line'})" for size, wraps in zip(made.shape, made.wrap, strict=True)
    )
    traps = [Trap(float(max(target)), "Hops of the axes add up.")] if answer != max(target) else []
    traps.append(
        Trap(straight, "On a ring the other way round is shorter.")
        if straight != answer
        else Trap(answer + len(target), "Count the links, not the chips.")
    )
    return Posed(
        ask=f"{piece}, axes of {told}: over how many links does a message from chip {zero} to chip {target} travel at least?",
        answer=answer,
        whole=True,
        hints=("Go along one axis after the other.", "On each axis |a - b|, or N - |a - b| the other way round a ring."),
        steps=(f"from {zero} to {target}", f"{answer:.0f} hops"),
        traps=tuple(traps),
        check=f"dscale collective send 1GB --on {piece} --from {','.join(map(str, zero))} --to {','.join(map(str, target))}",
    )  # fmt: skip


@problem(
    "tpus",
    "A message from corner to corner",
    cases=("tpus.q5_point_to_point:t_total",),
    piece=PIECES,
    shape=("bf16[8,128,8192]", "bf16[16,128,8192]", "int8[4096,8192]", "fp32[1024,4096]", "bf16[128,8192]"),
)
def message_between_corners(piece: str, shape: str) -> Posed | None:
    made, zero, target = parse_slice(piece), (0,) * len(parse_slice(piece).shape), _corner(piece)
    dims = [int(one) for one in shape[shape.index("[") + 1 : -1].split(",")]
    letters = "ABC"[: len(dims)]
    array = parse_array(f"{shape[: shape.index('[')]}[{','.join(letters)}]")
    volume = float(array_bytes(array, dict(zip(letters, dims, strict=True))))
    cost, paths, far = (
        transfer_time(volume, made, zero, target),
        disjoint_paths(made, zero, target),
        hops(made, zero, target),
    )
    link, hop = float(made.chip.facts["ici.link"].value), float(made.chip.facts["ici.hop_latency"].value)
    answer, moving = float(cost.upper), float(cost.bandwidth)
    traps = [Trap(moving * paths + float(cost.latency), f"{paths} ways share no link; use them all.")]
    traps.append(Trap(moving, "The first byte has to travel before the rest follows."))
    return Posed(
        ask=f"{shape} is sent from chip {zero} to chip {target} of {piece}. A link carries {amount(link, 'bytes/s')} one way "
        f"and a hop takes {amount(hop, 's')}; {paths} ways share no link, and the shortest has {far} hops. "
        "How long does the message take, the hops of the first byte and then the bytes?",
        answer=answer,
        dimension="s",
        hints=(
            "Bytes of the array, over all ways at once; then the hops on top.",
            "T = V/(ways · link) + hops · t_hop.",
        ),
        steps=(
            f"V = {count(volume)} bytes, / ({paths} · {number(link)}) = {amount(moving, 's')}",
            f"{far} hops: {amount(float(cost.latency), 's')}",
            f"together {amount(answer, 's')}",
        ),
        traps=tuple(traps),
        tolerance=0.01,
        check=f"dscale collective send {volume:.0f}B --on {piece} --from {','.join(map(str, zero))} "
        f"--to {','.join(map(str, target))}",
    )


@problem(
    "tpus",
    "An array over its hosts",
    cases=("tpus.q6_array_and_hosts:bytes_per_host",),
    piece=("v5e:4x4", "v5e:8x16", "v6e:8x8", "v5p:4x4x4", "v6e:16x16"),
    side=(131072, 65536, 32768),
    dtype=("int8", "bf16"),
)
def bytes_of_a_host(piece: str, side: int, dtype: str) -> Posed:
    made = parse_slice(piece)
    sizes = {"D": side, "F": side}
    whole = float(array_bytes(parse_array(f"{dtype}[D, F]"), sizes))
    answer = float(local_bytes(parse_array(f"{dtype}[D_H, F]"), sizes, Mesh({"H": made.hosts})))
    return Posed(
        ask=f"{dtype}[{side}, {side}] lies evenly in the memory of the hosts of {piece}, {made.chip.host_chips} chips to a "
        "host. How many bytes has each host?",
        answer=answer,
        dimension="bytes",
        hints=("Bytes of the array, then the number of hosts.", "bytes per host = whole / (chips / chips of a host)."),
        steps=(
            f"{side}² · {whole / side / side:g} = {count(whole)} bytes ({amount(whole, 'bytes')})",
            f"{made.chips} chips / {made.chip.host_chips} = {made.hosts} hosts",
            f"{count(answer)} bytes ({amount(answer, 'bytes')}) each",
        ),
        traps=(
            Trap(whole / made.chips, "That is a chip's part."),
            Trap(whole, "That is the whole array."),
        ),
        check=f'dscale calc "{side}^2 * {whole / side / side:g} bytes / {piece}.hosts"',
    )


@problem(
    "tpus",
    "From the hosts onto the chips",
    cases=("tpus.q6_pcie:t",),
    piece=("v5e:4x4", "v5e:8x16", "v6e:8x8", "v5p:4x4x4", "v6e:16x16", "v5p:2x2x4"),
    gigabytes=(16, 1, 140, 64),
)
def load_over_pcie(piece: str, gigabytes: int) -> Posed:
    made, volume = parse_slice(piece), gigabytes * 1e9
    part = float(local_bytes(parse_array("int8[V_X]"), {"V": volume}, Mesh({"X": made.chips})))
    answer = float(roofline(Cost(bytes={"pcie": part}), rates_of(made.chip)).lower)
    pcie = float(made.chip.bandwidth("pcie"))
    return Posed(
        ask=f"{gigabytes}GB in the memory of the hosts of {piece} are loaded onto its chips, each chip taking an equal part "
        f"over its own PCIe at {amount(pcie, 'bytes/s')}. How long does it take?",
        answer=answer,
        dimension="s",
        hints=("All PCIe links work at the same time.", "T = V / (chips · PCIe bandwidth)."),
        steps=(
            f"{gigabytes}e9 / {made.chips} = {amount(part, 'bytes')} a chip",
            f"/ {number(pcie)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * made.chips, "Every chip has a PCIe link of its own."),
            Trap(answer * made.chips / made.hosts, "A host has one link to each of its chips."),
        ),
        check=f'dscale calc "{gigabytes}GB / {piece}.chips / {made.chip.name}.pcie"',
    )


@problem(
    "tpus",
    "Everything to one corner",
    cases=("tpus.q6_ici_gather:t",),
    piece=PIECES,
    gigabytes=(16, 1, 4, 64),
)
def gather_to_a_corner(piece: str, gigabytes: int) -> Posed:
    made = parse_slice(piece)
    zero = (0,) * len(made.shape)
    answer = float(gather_time(gigabytes * 1e9, made, zero).lower)
    link = float(made.chip.facts["ici.link"].value)
    ways = round(gigabytes * 1e9 * (made.chips - 1) / made.chips / answer / link)
    return Posed(
        ask=f"Every chip of {piece} holds an equal part of {gigabytes}GB. All of it is gathered on the chip {zero}, which has "
        f"{ways} links of {amount(link, 'bytes/s')} one way. How long does that take at least, exactly (its own part is there already)?",
        answer=answer,
        dimension="s",
        hints=("Everything but the chip's own part comes in through its links.", "T = V · (N - 1)/N / (links · link)."),
        steps=(
            f"{gigabytes}e9 · {made.chips - 1}/{made.chips} = {number(gigabytes * 1e9 * (made.chips - 1) / made.chips)} bytes",
            f"/ ({ways} · {number(link)}) = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * ways, f"The chip has {ways} links."),
            Trap(answer / 2, "Bytes only come in; the other direction is of no use here."),
        ),
        check=f"dscale collective gather {gigabytes}GB --on {piece} --to {','.join(map(str, zero))}",
    )


@problem(
    "tpus",
    "Which way onto one chip",
    cases=("tpus.q6_choice:best",),
    piece=("v5e:4x4", "v5e:8x16", "v6e:8x8", "v5p:4x4x4", "v6e:16x16", "v5e:4x8", "v5p:2x2x4", "v4:4x4x4"),
    supposed=(0.0, 32e9, 64e9, 128e9, 256e9, 512e9),
)
def way_onto_one_chip(piece: str, supposed: float) -> Posed | None:
    made = parse_slice(piece)
    chip, zero, volume = made.chip, (0,) * len(made.shape), 16e9
    pcie = supposed or float(chip.bandwidth("pcie"))
    spread = local_bytes(parse_array("int8[V_X]"), {"V": volume}, Mesh({"X": made.chips})) / pcie
    over_ici = float(spread) + float(gather_time(volume, made, zero).lower)
    one_link, link = volume / pcie, float(chip.facts["ici.link"].value)
    if 0.9 < over_ici / one_link < 1.1:
        return None
    ways = round(volume * (made.chips - 1) / made.chips / (over_ici - float(spread)) / link)
    many = f"load shards over all {made.chips} PCIe links, then gather over ICI"
    single = "load all of it over the chip's own PCIe link"
    rate = f"{'Suppose PCIe moved' if supposed else 'PCIe moves'} {amount(pcie, 'bytes/s')}"
    return Posed(
        ask=f"Every host of {piece} has the same 16GB in its memory, and one chip, {zero}, needs all of it. {rate} to each "
        f"chip. ICI moves {amount(link, 'bytes/s')} over each link one way, and this chip has {ways} of them. Which way is "
        "faster?",
        answer=many if over_ici < one_link else single,
        hints=(
            "How long does one PCIe link take for all of it?",
            "V/PCIe against V/(N·PCIe) + V·(N - 1)/N/(links·link).",
        ),
        steps=(
            f"one PCIe link: {amount(one_link, 's')}",
            f"all {made.chips} links, then ICI: {amount(float(spread), 's')} + {amount(over_ici - float(spread), 's')} = "
            f"{amount(over_ici, 's')}",
        ),
        options=(many, single),
        check=f'dscale calc "P = {amount(pcie, "bytes/s")}; N = {made.chips}; 16GB / P '
        f'{">" if over_ici < one_link else "<"} 16GB / (N * P) + 16GB * (N - 1)/N / ({ways} * {chip.name}.ici_link)"',
    )


@problem(
    "tpus",
    "The product at the end",
    cases=("tpus.q6_flops:t",),
    chip=("v5e", "v5p", "v6e", "v4"),
    rows=(8, 16, 64, 128),
    side=(131072, 65536, 32768),
)
def final_product(chip: str, rows: int, side: int) -> Posed:
    line = parse_einsum("A:bf16[B, D] @ W:int8[D, F] -> bf16[B, F]")
    made = load_chip(chip)
    cost = einsum_cost(line, {"B": rows, "D": side, "F": side})
    found = roofline(cost, rates_of(made)).seconds
    answer, load = float(found["matrix"]), float(found["hbm"])
    peak = float(made.peak("bf16"))
    return Posed(
        ask=f"bf16[{rows}, {side}] · int8[{side}, {side}] on one {chip}, multiplied in bf16 at {amount(peak, 'FLOP/s')}: how "
        "long do the FLOPs alone take?",
        answer=answer,
        dimension="s",
        hints=("Bytes play no part in this one.", "T_math = 2·B·D·F / C."),
        steps=(
            f"2·{rows}·{side}² = {number(float(cost.total_flops))} FLOPs",
            f"/ {number(peak)} = {amount(answer, 's')} (reading the weights takes {amount(load, 's')})",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs, and the bf16 rate counts."),
            Trap(load, "That is the time to read them from HBM."),
        ),
        check=f'dscale calc "2 FLOP * {rows} * {side}^2 / {chip}.bf16"',
    )
