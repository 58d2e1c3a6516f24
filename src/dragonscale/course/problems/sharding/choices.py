"""Choices between layouts: gather the weights or add up partial sums."""

from dragonscale.course.closed_forms import wire_intensity
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given, torus
from dragonscale.course.words import amount, count, number
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, strategies
from dragonscale.physics.sharding.algebra import Strategy

LINE = "In[B, D] @ W[D_X, F] -> Out[B, F]"
CHIPS = ("v5p", "v5e", "v4", "v6e")


def _ways(sizes: dict[str, int], mesh: Mesh) -> dict[str, Strategy]:
    ways = strategies(parse_einsum(LINE), sizes, mesh)
    return {
        kind: next(way for way in ways if [step.kind for step in way.collectives] == [kind])
        for kind in ("all_gather", "all_reduce")
    }


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
        ask=f"{LINE} in bf16 on a ring of X={chips} {chip} chips "
        f"({amount(known.peak('bf16'), 'FLOP/s')}, {amount(2 * link, 'bytes/s')} both "
        f"ways), {given(sizes, ', ')}. The weights are gathered first, then every chip does "
        "the whole matmul; communication overlaps with compute. How long does it take to "
        "first order (V/W, without the (N-1)/N), HBM left out?",
        answer=seconds,
        dimension="s",
        hints=("Two times, of which the larger counts.", "max(2·B·D·F / C, 2·D·F / W)"),
        steps=(
            (
                f"compute: 2 · {tokens} · {width} · {hidden} / "
                f"{amount(known.peak('bf16'), 'FLOP/s')} = {amount(math, 's')}"
            ),
            (
                f"AllGather: {amount(2.0 * width * hidden, 'bytes')} / "
                f"{amount(2 * link, 'bytes/s')} = {amount(comms, 's')}"
            ),
            f"the larger: {amount(seconds, 's')}",
        ),
        traps=(
            Trap(math + comms, "They overlap: the larger counts, not the sum."),
            Trap(
                max(math / chips, comms),
                "Once the weights are gathered, every chip multiplies all of them: the work is repeated.",
            )
            if math / chips < 0.9 * math and math > comms
            else Trap(comms / chips, "Each chip receives the whole of W, not a shard."),
        ),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X={chips} --sizes {given(sizes)} '
        '--no-backward --width 110 | grep -E "sent per chip|order"',
    )


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
        ask=f"{LINE} in bf16 on a ring of X={chips} {chip} chips "
        f"({amount(known.peak('bf16'), 'FLOP/s')}, {amount(2 * link, 'bytes/s')} both "
        f"ways), {given(sizes, ', ')}. Each chip slices In, multiplies with its rows of W "
        "and the partial sums are added up by an AllReduce, which overlaps. How long does "
        "it take to first order (an AllReduce 2V/W, without the (N-1)/N), HBM left out?",
        answer=seconds,
        dimension="s",
        hints=(
            "Each chip does an X-th of the FLOPs; the AllReduce moves Out twice.",
            "max(2·B·D·F / (X·C), 4·B·F / W)",
        ),
        steps=(
            (
                f"compute: {amount(way.flops(sizes, mesh), 'FLOP')} / "
                f"{amount(known.peak('bf16'), 'FLOP/s')} = {amount(math, 's')}"
            ),
            (
                f"AllReduce: 2 · {amount(2.0 * tokens * hidden, 'bytes')} / "
                f"{amount(2 * link, 'bytes/s')} = {amount(comms, 's')}"
            ),
            f"the larger: {amount(seconds, 's')}",
        ),
        traps=(
            Trap(
                seconds / 2 if comms > math else 2 * seconds,
                "An AllReduce takes twice V/W." if comms > math else "A multiply-add is two FLOPs, no more.",
            ),
            Trap(math + comms, "They overlap: the larger counts."),
        ),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X={chips} --sizes {given(sizes)} '
        '--no-backward --width 110 | grep -E "sent per chip|order"',
    )


@problem(
    "sharding",
    "Gather the weights, or add up?",
    chip=CHIPS,
    tokens=(1024, 2048, 4096, 8192, 16384),
    width=(8192, 1024, 2048, 3072, 4096, 16384),
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
        ask=f"{LINE} in bf16 on a ring of 8 {chip} chips (C = "
        f"{amount(known.peak('bf16'), 'FLOP/s')}, W = {amount(2 * link, 'bytes/s')} both "
        f"ways), {given(sizes, ', ')}. Which collective is in the faster way: the "
        "all_gather of W, or the all_reduce of Out?",
        answer=best,
        hints=(
            "Compare max(2BDF/C, 2DF/W) with max(2BDF/(XC), 4BF/W).",
            (f"With few tokens (below C/W = {number(alpha)}) adding up wins where D > 2·B, with many where D > 2·C/W."),
        ),
        steps=(f"gather W: {amount(first, 's')}", f"add up Out: {amount(second, 's')}"),
        check=f'dscale shard "{LINE}" --on {chip} --mesh X=8 --sizes {given(sizes)} --no-backward | grep "Needs"',
        options=("all_gather", "all_reduce"),
    )


@problem(
    "sharding",
    "Tokens that hide the gathering of weights",
    cases=("sharding.q4_critical:s1_comms_bound_below_B",),
    chip=("v5p", "v5e", "v4", "v6e", "tpu7x", "v3"),
    axes=(1, 2),
)
def tokens_that_hide_a_gather(chip: str, axes: int) -> Posed:
    known, link = torus(chip)
    tokens = wire_intensity(known) / axes
    over = "one axis of the torus" if axes == 1 else "two axes of the torus at once"
    return Posed(
        ask=f"In[B, D] · W[D_X, F] in bf16 on {chip}: W is gathered over {over} while every "
        "chip multiplies. From which B on is it bound by compute, to first order (V/W on a "
        "ring, without the (N-1)/N)? C = "
        f"{amount(known.peak('bf16'), 'FLOP/s')}; an axis carries "
        f"{amount(2 * link, 'bytes/s')} both ways.",
        answer=tokens,
        hints=(
            "Set the time of the matmul equal to that of the AllGather; D and F cancel.",
            "2·B·D·F / C = 2·D·F / W, so B = C / W",
        ),
        steps=(
            f"W = {axes} · {amount(2 * link, 'bytes/s')}",
            (f"B = {amount(known.peak('bf16'), 'FLOP/s')} / {amount(2 * link * axes, 'bytes/s')} = {count(tokens)}"),
        ),
        traps=(
            Trap(
                2 * tokens, ("bf16 has two bytes and a multiply-add two FLOPs, which cancel; and W is both directions.")
            ),
            Trap(
                known.peak("bf16") / known.bandwidth("hbm"),
                "That is the batch against HBM; here the weights come over the network.",
            ),
        ),
        check=f'dscale calc "{chip}.bf16 / ({axes} * {chip}.ici_axis)"',
    )


@problem(
    "sharding",
    "How many ways partial sums can be hidden",
    cases=("sharding.q4_max_X:X_max",),
    chip=("v5p", "v5e", "v4", "v6e"),
    width=(8192, 16384, 32768, 65536, 28672),
)
def ways_that_hide_partial_sums(chip: str, width: int) -> Posed:
    known, link = torus(chip)
    alpha = wire_intensity(known)
    ways = width / (2 * alpha)
    return Posed(
        ask=f"{LINE} in bf16 on {chip} with D={width}: each chip multiplies its rows of W, and "
        "Out is added up by an AllReduce over a ring of X chips. Below which X is it bound "
        "by compute, to first order (2V/W, without the (N-1)/N)? Two decimals; C = "
        f"{amount(known.peak('bf16'), 'FLOP/s')}, W = {amount(2 * link, 'bytes/s')} both "
        "ways.",
        answer=ways,
        hints=(
            "More chips compute faster, but the AllReduce stays as long.",
            "2·B·D·F / (X·C) = 4·B·F / W, so X = D·W / (2·C)",
        ),
        steps=(f"C / W = {number(alpha)}", f"X = {width} / (2 · {number(alpha)}) = {number(ways)}"),
        traps=(
            Trap(2 * ways, "An AllReduce takes twice V/W."),
            Trap(ways / 2, "V is 2·B·F bytes in bf16 and the matmul 2·B·D·F FLOPs: those twos cancel."),
        ),
        check=f'dscale calc "{width} * {chip}.ici_axis / (2 * {chip}.bf16)"',
    )
