"""Choices between layouts: gather the weights or add up partial sums, idle axes, the fastest way to a replicated product."""

from dragonscale.closed_forms import wire_intensity
from dragonscale.closed_forms.spread import spread_gather
from dragonscale.collectives import collective_time
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given, torus
from dragonscale.course.words import amount, count, number
from dragonscale.hardware import parse_slice
from dragonscale.notation import parse_array, parse_einsum
from dragonscale.sharding import Mesh, strategies
from dragonscale.sharding.algebra import Strategy
from dragonscale.sharding.mesh import natural_mesh

LINE = "In[B, D] @ W[D_X, F] -> Out[B, F]"
CHIPS = ("v5p", "v5e", "v4p", "v6e")


def _ways(sizes: dict[str, int], mesh: Mesh) -> dict[str, Strategy]:
    ways = strategies(parse_einsum(LINE), sizes, mesh)
    return {kind: next(way for way in ways if [step.kind for step in way.collectives] == [kind]) for kind in ("all_gather", "all_reduce")}  # fmt: skip


@problem(
    "sharding",
    "Gathering the weights first",
    cases=("sharding.q4_costs:s1",),
    chip=CHIPS,
    tokens=(1024, 512, 4096, 8192),
    width=(8192, 4096, 16384),
    hidden=(32768, 28672),
    chips=(8, 4, 16),
)
def time_with_gathered_weights(chip: str, tokens: int, width: int, hidden: int, chips: int) -> Posed:
    known, link = torus(chip)
    sizes, mesh = {"B": tokens, "D": width, "F": hidden}, Mesh({"X": chips}, known)
    way = _ways(sizes, mesh)["all_gather"]
    math, comms = way.math_seconds(sizes, mesh), way.comms_seconds(sizes, mesh)
    seconds = max(math, comms)
    return Posed(
        ask=f"{LINE} in bf16 on a ring of X={chips} {chip} chips ({amount(known.peak('bf16'), 'FLOP/s')}, {amount(2 * link, 'bytes/s')} both ways), {given(sizes, ', ')}. The weights are gathered first, then every chip does the whole matmul; communication overlaps with compute. How long does it take to first order, HBM left out?",
        answer=seconds,
        dimension="s",
        hints=("Two times, of which the larger counts.", "max(2·B·D·F / C, 2·D·F / W)"),
        steps=(f"compute: 2 · {tokens} · {width} · {hidden} / {amount(known.peak('bf16'), 'FLOP/s')} = {amount(math, 's')}", f"AllGather: {amount(2.0 * width * hidden, 'bytes')} / {amount(2 * link, 'bytes/s')} = {amount(comms, 's')}", f"the larger: {amount(seconds, 's')}"),
        traps=(
            Trap(math + comms, "They overlap: the larger counts, not the sum."),
            Trap(max(math / chips, comms), "Once the weights are gathered, every chip multiplies all of them: the work is repeated.") if math / chips < 0.9 * math and math > comms else Trap(comms / chips, "Each chip receives the whole of W, not a shard."),
        ),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X={chips} --sizes {given(sizes)} --no-backward --width 110 | grep -E "sent per chip|order"',
    )  # fmt: skip


@problem(
    "sharding",
    "Adding up partial sums instead",
    cases=("sharding.q4_costs:s2",),
    chip=CHIPS,
    tokens=(1024, 512, 4096, 8192),
    width=(8192, 4096, 16384),
    hidden=(32768, 28672),
    chips=(8, 4, 16),
)
def time_with_partial_sums(chip: str, tokens: int, width: int, hidden: int, chips: int) -> Posed:
    known, link = torus(chip)
    sizes, mesh = {"B": tokens, "D": width, "F": hidden}, Mesh({"X": chips}, known)
    way = _ways(sizes, mesh)["all_reduce"]
    math, comms = way.math_seconds(sizes, mesh), way.comms_seconds(sizes, mesh)
    seconds = max(math, comms)
    return Posed(
        ask=f"{LINE} in bf16 on a ring of X={chips} {chip} chips ({amount(known.peak('bf16'), 'FLOP/s')}, {amount(2 * link, 'bytes/s')} both ways), {given(sizes, ', ')}. Each chip slices In, multiplies with its rows of W and the partial sums are added up by an AllReduce, which overlaps. How long does it take to first order, HBM left out?",
        answer=seconds,
        dimension="s",
        hints=("Each chip does an X-th of the FLOPs; the AllReduce moves Out twice.", "max(2·B·D·F / (X·C), 4·B·F / W)"),
        steps=(
            f"compute: {amount(way.flops(sizes, mesh), 'FLOP')} / {amount(known.peak('bf16'), 'FLOP/s')} = {amount(math, 's')}",
            f"AllReduce: 2 · {amount(2.0 * tokens * hidden, 'bytes')} / {amount(2 * link, 'bytes/s')} = {amount(comms, 's')}",
            f"the larger: {amount(seconds, 's')}",
        ),
        traps=(Trap(seconds / 2 if comms > math else 2 * seconds, "An AllReduce takes twice V/W." if comms > math else "A multiply-add is two FLOPs, no more."), Trap(math + comms, "They overlap: the larger counts.")),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X={chips} --sizes {given(sizes)} --no-backward --width 110 | grep -E "sent per chip|order"',
    )  # fmt: skip


@problem(
    "sharding",
    "Gather the weights, or add up?",
    chip=CHIPS,
    tokens=(1024, 2048, 8192, 512, 256),
    width=(8192, 2048, 4096, 16384),
)
def gather_or_add_up(chip: str, tokens: int, width: int) -> Posed | None:
    known, link = torus(chip)
    sizes, mesh = {"B": tokens, "D": width, "F": 32768}, Mesh({"X": 8}, known)
    times = {kind: way.lower_seconds(sizes, mesh) for kind, way in _ways(sizes, mesh).items()}
    first, second = times["all_gather"], times["all_reduce"]
    if 0.9 < first / second < 1.1:
        return None
    best = min(times, key=lambda kind: times[kind])
    alpha = wire_intensity(known)
    return Posed(
        ask=f"{LINE} in bf16 on a ring of 8 {chip} chips (C = {amount(known.peak('bf16'), 'FLOP/s')}, W = {amount(2 * link, 'bytes/s')} both ways), {given(sizes, ', ')}. Which collective is in the faster way: the all_gather of W, or the all_reduce of Out?",
        answer=best,
        hints=("Compare max(2BDF/C, 2DF/W) with max(2BDF/(XC), 4BF/W).", f"With few tokens (below C/W = {number(alpha)}) adding up wins where D > 2·B, with many where D > 2·C/W."),
        steps=(f"gather W: {amount(first, 's')}", f"add up Out: {amount(second, 's')}"),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X=8 --sizes {given(sizes)} --no-backward | grep "Needs"',
        options=("all_gather", "all_reduce"),
    )  # fmt: skip


@problem(
    "sharding",
    "Tokens that hide the gathering of weights",
    cases=("sharding.q4_critical:s1_comms_bound_below_B",),
    chip=("v5p", "v5e", "v4p", "v6e", "tpu7x", "v3"),
    axes=(1, 2),
)
def tokens_that_hide_a_gather(chip: str, axes: int) -> Posed:
    known, link = torus(chip)
    tokens = wire_intensity(known) / axes
    over = "one axis of the torus" if axes == 1 else "two axes of the torus at once"
    return Posed(
        ask=f"In[B, D] · W[D_X, F] in bf16 on {chip}: W is gathered over {over} while every chip multiplies. From which B on is it bound by compute, to first order? C = {amount(known.peak('bf16'), 'FLOP/s')}; an axis carries {amount(2 * link, 'bytes/s')} both ways.",
        answer=tokens,
        hints=("Set the time of the matmul equal to that of the AllGather; D and F cancel.", "2·B·D·F / C = 2·D·F / W, so B = C / W"),
        steps=(f"W = {axes} · {amount(2 * link, 'bytes/s')}", f"B = {amount(known.peak('bf16'), 'FLOP/s')} / {amount(2 * link * axes, 'bytes/s')} = {count(tokens)}"),
        traps=(
            Trap(2 * tokens, "bf16 has two bytes and a multiply-add two FLOPs, which cancel; and W is both directions."),
            Trap(known.peak("bf16") / known.hbm.bandwidth, "That is the batch against HBM; here the weights come over the network."),
        ),
        check=f'dscale calc "{chip}.bf16 / ({axes} * {chip}.ici_axis)"',
    )  # fmt: skip


@problem(
    "sharding",
    "How many ways partial sums can be hidden",
    cases=("sharding.q4_max_X:X_max",),
    chip=("v5p", "v5e", "v4p", "v6e"),
    width=(8192, 16384, 32768, 65536, 28672),
)
def ways_that_hide_partial_sums(chip: str, width: int) -> Posed:
    known, link = torus(chip)
    alpha = wire_intensity(known)
    ways = width / (2 * alpha)
    return Posed(
        ask=f"{LINE} in bf16 on {chip} with D={width}: each chip multiplies its rows of W, and Out is added up by an AllReduce over a ring of X chips. Below which X is it bound by compute, to first order? Two decimals; C = {amount(known.peak('bf16'), 'FLOP/s')}, W = {amount(2 * link, 'bytes/s')} both ways.",
        answer=ways,
        hints=("More chips compute faster, but the AllReduce stays as long.", "2·B·D·F / (X·C) = 4·B·F / W, so X = D·W / (2·C)"),
        steps=(f"C / W = {number(alpha)}", f"X = {width} / (2 · {number(alpha)}) = {number(ways)}"),
        traps=(Trap(2 * ways, "An AllReduce takes twice V/W."), Trap(ways / 2, "V is 2·B·F bytes in bf16 and the matmul 2·B·D·F FLOPs: those twos cancel.")),
        check=f'dscale calc "{width} * {chip}.ici_axis / (2 * {chip}.bf16)"',
    )  # fmt: skip


@problem(
    "sharding",
    "An idle axis helps to gather",
    cases=("sharding.q2_free_reshard_1:t",),
    slice_=("v4p:4x4x4", "v5p:4x4x4", "v5p:8x8x8", "tpu7x:4x4x4"),
    rows=(1024, 4096, 8192),
    columns=(4096, 8192, 16384),
)
def idle_axis_helps(slice_: str, rows: int, columns: int) -> Posed:
    piece = parse_slice(slice_)
    mesh, link = natural_mesh(piece), torus(piece.chip.name)[1]
    sizes = {"B": rows, "D": columns}
    steps = [
        step
        for step in spread_gather(parse_array("A:bf16[B_X, D_Y]"), parse_array("A:bf16[B, D_Y]"), mesh)
        if not step.free
    ]
    [step] = steps
    volume = step.volume(sizes, mesh)
    seconds = collective_time(step.kind, volume, mesh.group(step.axes)).bandwidth
    return Posed(
        ask=f"A[B_X, D_Y] in bf16 with B={rows}, D={columns} on {slice_} shall become A[B, D_Y]. Z is idle and holds copies. Slice them over Z first, which is free, then gather over X and Z together. How long do the bytes take, to first order? An axis is a ring of {amount(2 * link, 'bytes/s')} both ways.",
        answer=seconds,
        dimension="s",
        hints=("What each chip must end up with has not changed; the links have.", "t = (2·B·D / |Y|) / (2 · W)"),
        steps=(f"V = 2 · {rows} · {columns} / {mesh.size('Y')} = {amount(volume, 'bytes')}", f"two axes: {amount(4 * link, 'bytes/s')}", f"t = {amount(seconds, 's')}"),
        traps=(
            Trap(2 * seconds, "That is the gather over X alone; the idle axis halves it."),
            Trap(seconds * mesh.size("Y"), "Y still splits D: V is what the chips of X see."),
        ),
        check=f'dscale shard "A[B_XZ, D_Y] -> A[B, D_Y]" --on {slice_} --sizes {given(sizes)} --no-backward | grep "order"',
    )  # fmt: skip


@problem(
    "sharding",
    "The fastest way to a replicated product",
    cases=("sharding.q5_min_latency:t_comms_1_2",),
    slice_=("v4p:4x4x4", "v5p:4x4x4", "v5p:8x8x8", "tpu7x:4x4x4"),
    size=(8192, 4096, 16384),
    split=("I", "J"),
)
def replicated_product(slice_: str, size: int, split: str) -> Posed:
    piece = parse_slice(slice_)
    mesh, link, sizes = natural_mesh(piece), torus(piece.chip.name)[1], dict.fromkeys("IJK", size)
    line = {"I": "A[I_XYZ, J] @ B[J, K] -> C[I, K]", "J": "A[I, J_XYZ] @ B[J_XYZ, K] -> C[I, K]"}[split]
    way = strategies(parse_einsum(line), sizes, mesh)[0]
    seconds = way.comms_seconds(sizes, mesh)
    reduces = split == "J"
    volume = 2.0 * size * size
    return Posed(
        ask=f"{line} in bf16 with I=J=K={size} on {slice_}, three rings of {amount(2 * link, 'bytes/s')} each. How long does the collective on C take to first order, without latency?",
        answer=seconds,
        dimension="s",
        hints=("Split over a kept dim, C is gathered; split over the summed one, it is added up.", f"t = {'2 · ' if reduces else ''}2·I·K / (3 · W)"),
        steps=(f"{way.collectives[0].kind} of C, {amount(volume, 'bytes')}", f"t = {'2 · ' if reduces else ''}{amount(volume, 'bytes')} / {amount(6 * link, 'bytes/s')} = {amount(seconds, 's')}"),
        traps=(
            Trap(seconds / 2 if reduces else 2 * seconds, "Partial sums need an AllReduce, twice a gather." if reduces else "Nothing is added up here: an AllGather, half an AllReduce."),
            Trap(3 * seconds, "Three axes carry it at once."),
        ),
        check=f'dscale shard "{line}" --on {slice_} --sizes {given(sizes)} --no-backward --alternatives 1 | grep "order"',
    )  # fmt: skip
