"""Layouts on a whole slice: an idle axis put to work, the fastest way to a replicated product."""

from dragonscale.course.closed_forms.spread import spread_gather
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given, torus
from dragonscale.course.words import amount
from dragonscale.physics.collectives import collective_time
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.sharding import strategies
from dragonscale.physics.sharding.mesh import natural_mesh


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
        ask=f"A[B_X, D_Y] in bf16 with B={rows}, D={columns} on {slice_} shall become A[B, "
        "D_Y]. Z is idle and holds copies. Slice them over Z first, which is free, then "
        "gather over X and Z together. How long do the bytes take, to first order? An axis "
        f"is a ring of {amount(2 * link, 'bytes/s')} both ways.",
        answer=seconds,
        dimension="s",
        hints=("What each chip must end up with has not changed; the links have.", "t = (2·B·D / |Y|) / (2 · W)"),
        steps=(
            f"V = 2 · {rows} · {columns} / {mesh.size('Y')} = {amount(volume, 'bytes')}",
            f"two axes: {amount(4 * link, 'bytes/s')}",
            f"t = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(2 * seconds, "That is the gather over X alone; the idle axis halves it."),
            Trap(seconds * mesh.size("Y"), "Y still splits D: V is what the chips of X see."),
        ),
        check=f'dscale shard "A[B_XZ, D_Y] -> A[B, D_Y]" --on {slice_} --sizes {given(sizes)} '
        '--no-backward | grep "order"',
    )


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
        ask=f"{line} in bf16 with I=J=K={size} on {slice_}, three rings of "
        f"{amount(2 * link, 'bytes/s')} each. How long does the collective on C take to "
        "first order, without latency?",
        answer=seconds,
        dimension="s",
        hints=(
            "Split over a kept dim, C is gathered; split over the summed one, it is added up.",
            f"t = {'2 · ' if reduces else ''}2·I·K / (3 · W)",
        ),
        steps=(
            f"{way.collectives[0].kind} of C, {amount(volume, 'bytes')}",
            (
                f"t = {'2 · ' if reduces else ''}{amount(volume, 'bytes')} / "
                f"{amount(6 * link, 'bytes/s')} = {amount(seconds, 's')}"
            ),
        ),
        traps=(
            Trap(
                seconds / 2 if reduces else 2 * seconds,
                "Partial sums need an AllReduce, twice a gather."
                if reduces
                else "Nothing is added up here: an AllGather, half an AllReduce.",
            ),
            Trap(3 * seconds, "Three axes carry it at once."),
        ),
        check=f'dscale shard "{line}" --on {slice_} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 | grep "order"',
    )
