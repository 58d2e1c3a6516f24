"""What a sharded matmul needs: its collective, the bytes sent, the time on real wires."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given, torus
from dragonscale.course.words import amount, count
from dragonscale.physics.collectives import EXACT, collective_time
from dragonscale.physics.hardware import dtype_bytes, load_chip, parse_slice
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, strategies
from dragonscale.physics.sharding.algebra import Strategy, backward
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import natural_mesh

CUBE = {"I": 4096, "J": 4096, "K": 4096}
KINDS = ("none", "all_gather", "reduce_scatter", "all_reduce", "all_to_all")
LINES = (
    "A[I, J_X] @ B[J_X, K] -> C[I, K]",
    "A[I, J_X] @ B[J_X, K] -> C[I, K_X]",
    "A[I_X, J] @ B[J, K] -> C[I_X, K]",
    "A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]",
    "A[I_X, J] @ B[J_X, K] -> C[I_X, K]",
    "A[I_X, J] @ B[J, K_X] -> C[I_X, K]",
    "A[I_X, J] @ B[J, K_X] -> C[I, K_X]",
    "A[I_X, J_Y] @ B[J_Y, K] -> C[I_X, K]",
    "A[I, J_X] @ B[J_X, K_Y] -> C[I, K_Y]",
    "A[I, J_Y] @ B[J_Y, K_X] -> C[I_Y, K_X]",
)
MESH = {"X": 4, "Y": 4}


def _cheapest(text: str, sizes: dict[str, int], mesh: Mesh) -> Strategy:
    return strategies(parse_einsum(text), sizes, mesh)[0]


@problem("sharding", "Which collective a matmul needs", line=LINES, size=(4096, 8192))
def collective_of_a_matmul(line: str, size: int) -> Posed | None:
    sizes = dict.fromkeys("IJK", size)
    steps = _cheapest(line, sizes, Mesh(MESH)).collectives
    if len(steps) > 1:
        return None
    found = steps[0].kind if steps else "none"
    summed = (
        "A summed dim split alike on both sides leaves partial sums: add them up, or "
        "scatter the sum where the output wants it split."
    )
    told = (
        f"{steps[0].before} -> {steps[0].after} over {', '.join(steps[0].axes)}"
        if steps
        else "each chip multiplies what it has"
    )
    return Posed(
        ask=f"{line} with I=J=K={size} on the mesh {given(MESH, ', ')}: which collective does the cheapest way need?",
        answer=found,
        hints=(
            "Is the summed dim J split, on one side or on both? Does one axis split two kept dims?",
            summed + " What is split on one side only, or twice, is gathered.",
        ),
        steps=(f"cheapest: {told}", f"so {found}"),
        check=f'dscale shard "{line}" --mesh {given(MESH)} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 | grep -E "case|Needs"',
        options=KINDS,
        shown="no communication" if found == "none" else "",
    )


@problem(
    "sharding", "The backward pass of a sharded matmul", line=(LINES[4], *LINES[:4], *LINES[5:]), size=(4096, 8192)
)
def backward_collective(line: str, size: int) -> Posed | None:
    sizes, mesh = dict.fromkeys("IJK", size), Mesh(MESH)
    grads = {one.output.name: one for one in backward(parse_einsum(line))}
    steps = strategies(grads["dB"], sizes, mesh)[0].collectives
    if len(steps) > 1:
        return None
    found = steps[0].kind if steps else "none"
    return Posed(
        ask=f"{line} with I=J=K={size} on the mesh {given(MESH, ', ')}. The gradient dB is laid "
        "out like B. Which collective does the cheapest way of dB = A·dC need?",
        answer=found,
        hints=(
            "Write the gradient as a sharded matmul of its own: A and dC, summed over I.",
            ("The transpose of an AllGather is a ReduceScatter; an axis that splits the summed I leaves partial sums."),
        ),
        steps=(f"{grads['dB']}", f"cheapest: {found if steps else 'no communication'}"),
        check=f'dscale shard "{grads["dB"]}" --mesh {given(MESH)} --sizes {given(sizes)} '
        '--no-backward --alternatives 1 | grep -E "case|Needs"',
        options=KINDS,
        shown="no communication" if found == "none" else "",
    )


@problem(
    "sharding",
    "What adding up partial sums sends",
    output=("C[I, K]", "C[I, K_X]"),
    chips=(4, 8, 16),
    rows=(1024, 4096, 8192),
    columns=(8192, 4096, 28672),
    dtype=("bf16", "fp32"),
)
def bytes_to_add_up(output: str, chips: int, rows: int, columns: int, dtype: str) -> Posed:
    left, right, out = (f"{name}:{dtype}[" for name in "ABC")
    line = f"{left}I, J_X] @ {right}J_X, K] -> {out}{output.partition('[')[2]}"
    sizes, mesh = {"I": rows, "J": 8192, "K": columns}, Mesh({"X": chips})
    way = _cheapest(line, sizes, mesh)
    sent, volume = way.wire_bytes(sizes, mesh), rows * columns * dtype_bytes(dtype)
    twice = way.collectives[0].kind == "all_reduce"
    name = "an AllReduce" if twice else "a ReduceScatter"
    return Posed(
        ask=f"A[I, J_X] · B[J_X, K] -> {output} in {dtype} with I={rows}, K={columns} over "
        f"X={chips}. How many bytes does each chip send for the collective at the end? "
        "Count exactly, with the (N-1)/N.",
        answer=sent,
        dimension="bytes",
        hints=(
            "Which collective is it, and how often does the result travel round?",
            f"{name}: {'2 · ' if twice else ''}V · (N−1)/N, V the bytes of C on a chip before it",
        ),
        steps=(
            f"V = {count(rows)} · {count(columns)} · {dtype_bytes(dtype):g} = {amount(volume, 'bytes')}",
            f"{'2 · ' if twice else ''}V · {chips - 1}/{chips} = {amount(sent, 'bytes')}",
        ),
        traps=(
            Trap(
                sent / 2 if twice else 2 * sent,
                (
                    f"It is {name}: "
                    f"{'scatter and gather, twice' if twice else 'the sum is scattered and stays so, once'}."
                ),
            ),
            Trap(sent / chips, "Before the sum is made every chip has partial sums of all of C."),
        ),
        check=f'dscale shard "{line}" --mesh X={chips} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 | grep "cheapest"',
    )


@problem(
    "sharding",
    "Communication on a small slice",
    cases=("sharding.q6a:t_no_wrap",),
    line=("A[I_X, J_Y] @ B[J_Y, K] -> C[I_X, K]", "A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]"),
    slice_=("v5e:4x4", "v5e:8x8", "v6e:4x4", "v6e:8x8"),
    size=(4096, 8192, 2048, 16384),
)
def network_time_of_a_matmul(line: str, slice_: str, size: int) -> Posed | None:
    piece = parse_slice(slice_)
    mesh, sizes, link = natural_mesh(piece), dict.fromkeys("IJK", size), torus(piece.chip.name)[1]
    way = strategies(parse_einsum(line), sizes, mesh, EXACT)[0]
    if len(way.collectives) != 1:
        return None
    [step] = way.collectives
    seconds, volume, chips = way.comms_seconds(sizes, mesh), step.volume(sizes, mesh), mesh.size(*step.axes)
    times = 2 if step.kind == "all_reduce" else 1
    return Posed(
        ask=f"{line} in bf16 with I=J=K={size} on {slice_}, where no axis closes to a ring: X "
        f"and Y are lines of {chips} chips, {amount(link, 'bytes/s')} one way. How long "
        "do the bytes of the cheapest way's collective take, exactly (with the (N-1)/N)?",
        answer=seconds,
        dimension="s",
        hints=(
            (
                "Which array moves, and how many bytes of it does a chip of the axis see? Other "
                "axes may have split it already."
            ),
            f"{step.kind}: t = {'2 · ' if times == 2 else ''}V · (N−1)/N / W₁",
        ),
        steps=(
            f"{step.kind} over {', '.join(step.axes)} of {step.before}",
            f"V = 2 · {size}² / {chips} = {amount(volume, 'bytes')}",
            (
                f"t = {times} · {amount(volume, 'bytes')} · {chips - 1}/{chips} / "
                f"{amount(link, 'bytes/s')} = {amount(seconds, 's')}"
            ),
        ),
        traps=(
            Trap(seconds * chips, "The other axis has split the array already: V is what this axis' chips see."),
            Trap(times * volume / (2 * link), "V/W with both directions holds on a ring; these axes are lines."),
            Trap(
                seconds / 2 if times == 2 else 2 * seconds,
                "An AllReduce is a ReduceScatter and an AllGather."
                if times == 2
                else "An AllGather sends each byte once.",
            ),
        ),
        check=f'dscale shard "{line}" --on {slice_} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 --width 110 | grep -E "cheapest"',
    )


@problem(
    "sharding",
    "Compute time of a sharded matmul",
    cases=("sharding.q6a:t_compute",),
    line=(
        "A[I_X, J_Y] @ B[J_Y, K] -> C[I_X, K]",
        "A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]",
        "A[I_X, J] @ B[J, K] -> C[I_X, K]",
    ),
    chip=("v5e", "v5p", "v6e", "v4"),
    axes=((4, 4), (8, 4), (2, 2), (16, 16)),
    size=(4096, 8192, 16384),
)
def compute_time_of_a_matmul(line: str, chip: str, axes: tuple[int, int], size: int) -> Posed:
    mesh, sizes = Mesh(dict(zip("XY", axes, strict=True)), load_chip(chip)), dict.fromkeys("IJK", size)
    way = strategies(parse_einsum(line), sizes, mesh)[0]
    seconds, flops, peak = way.math_seconds(sizes, mesh), way.flops(sizes, mesh), load_chip(chip).peak("bf16")
    repeated = mesh.size(*way.replicated)
    note = f" (the work is repeated along {', '.join(way.replicated)})" if way.replicated else ""
    return Posed(
        ask=f"{line} in bf16 with I=J=K={size} on the mesh {given(dict(mesh.axes), ', ')} of "
        f"{chip}, {amount(peak, 'FLOP/s')} each. How long does each chip multiply in the "
        "cheapest way?",
        answer=seconds,
        dimension="s",
        hints=(
            "How many of the FLOPs does one chip do? Axes that split no index of the einsum repeat the work.",
            "t = 2·I·J·K / (axes that split I, J or K) / C",
        ),
        steps=(
            f"2 · {size}³ = {amount(2.0 * size**3, 'FLOP')} in all",
            f"a chip: {amount(flops, 'FLOP')}{note}",
            f"/ {amount(peak, 'FLOP/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(seconds * mesh.chips / repeated, "Each chip multiplies only its blocks."),
            Trap(seconds / repeated, "Along an axis that splits nothing the chips all do the same work.")
            if repeated > 1
            else Trap(seconds / 2, "A multiply-add is two FLOPs."),
        ),
        check=f'dscale shard "{line}" --on {chip} --mesh {given(dict(mesh.axes))} --sizes '
        f'{given(sizes)} --no-backward --alternatives 1 --width 110 | grep -E "cheapest"',
    )


@problem(
    "sharding",
    "Tensor parallelism: one AllReduce for an MLP",
    cases=("sharding.q7_times:tp_t_comms_ideal",),
    chip=("v5e", "v4", "v5p", "v6e"),
    tokens=(128, 256, 1024, 4096),
    width=(8192, 4096, 16384),
)
def all_reduce_of_an_mlp(chip: str, tokens: int, width: int) -> Posed:
    known, link = torus(chip)
    mesh = Mesh({"X": 2, "Y": 2}, known)
    line = parse_einsum("T[B, F_XY] @ W_out[F_XY, D] -> Out[B, D]")
    sizes = {"B": tokens, "D": width, "F": 4 * width}
    volume = local_bytes(line.output, sizes, mesh)
    seconds = collective_time("all_reduce", volume, mesh.group(("X", "Y"))).bandwidth
    return Posed(
        ask="An MLP In[B, D] · W_in[D, F_XY] · W_out[F_XY, D] -> Out[B, D] in bf16 on a 2x2 of "
        f"{chip}, B={tokens}, D={width}, F={4 * width}. Take both axes as rings of "
        f"{amount(2 * link, 'bytes/s')} each. How long does its communication take, to "
        "first order (no (N-1)/N, no latency)?",
        answer=seconds,
        dimension="s",
        hints=(
            "The first matmul needs nothing. What does the second leave on each chip?",
            "AllReduce of Out over both axes: t = 2 · (2·B·D) / (2 · W)",
        ),
        steps=(
            f"Out[B, D]{{U_XY}} is 2 · {tokens} · {width} = {amount(volume, 'bytes')}",
            f"two axes: 2 · {amount(2 * link, 'bytes/s')} = {amount(4 * link, 'bytes/s')}",
            f"2 · {amount(volume, 'bytes')} / {amount(4 * link, 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(2 * seconds, "Both axes carry the sum at once."),
            Trap(seconds / 2, "An AllReduce is a ReduceScatter and an AllGather: twice V/W."),
            Trap(4 * seconds, "The F in the middle needs no communication: only Out is added up."),
        ),
        check=f'dscale shard "T[B, F_XY] @ W_out[F_XY, D] -> Out[B, D]" --on {chip} --mesh '
        f'X=2,Y=2 --sizes {given(sizes)} --no-backward --alternatives 1 | grep "order"',
    )
