"""Collective matmuls: chunks and hops."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.sharding.flags import given
from dragonscale.physics.collectives.transfer import ring_hops, shard_held
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, local_shape

LINE = "A[B_X, D_Y] @ W[D, F_Y] -> Out[B_X, F_Y]"
RINGS = (4, 8, 2, 16)


@problem(
    "jax",
    "The chunk of a collective matmul",
    cases=("jax-stuff.collective_matmul_shapes:chunk",),
    width=(2048, 4096, 8192),
    ring=RINGS,
    rows=(1024, 4096),
)
def chunk_of_a_collective_matmul(width: int, ring: int, rows: int) -> Posed:
    line, mesh = parse_einsum(LINE), Mesh({"X": 2, "Y": ring})
    sizes = {"B": rows, "D": width, "F": 4 * width}
    chunk = float(local_shape(line.operands[0], sizes, mesh)[1])
    return Posed(
        ask=f"{LINE} as an AllGather collective matmul on X=2, Y={ring}, B={rows}, D={width}, "
        f"F={4 * width}: parts of A go round Y, and each is multiplied with the rows of W "
        "that belong to it. How many rows of W are used at each step?",
        answer=chunk,
        whole=True,
        hints=("A part of A that arrives has a part of D.", "chunk = D / |Y|"),
        steps=(
            f"A is {rows // 2} x {int(chunk)} on a device",
            f"{width} / {ring} = {int(chunk)} rows of W at each of {ring} steps",
        ),
        traps=(
            Trap(float(width), "W has all of D on each device, but a step uses only the rows of the part at hand."),
            Trap(chunk / 2, "X does not split D."),
        ),
        check=f'dscale shard "{LINE}" --mesh X=2,Y={ring} --sizes {given(sizes)} --no-backward '
        '--alternatives 1 | grep -E "^A.B_X, D_Y.  "',
    )


@problem(
    "jax",
    "Permutes of a collective matmul",
    cases=("jax-stuff.collective_matmul_shapes:permutes",),
    ring=(4, 8, 16, 32, 6, 12, 24, 64),
)
def permutes_of_a_collective_matmul(ring: int) -> Posed:
    hops = float(ring_hops(ring, one_way=True))
    return Posed(
        ask=f"An AllGather collective matmul passes parts round a ring of {ring} devices in one "
        "direction, with a matmul for each part. How many permutes follow one another?",
        answer=hops,
        whole=True,
        hints=("The first part is there already.", "N matmuls, N − 1 permutes"),
        steps=(f"{ring} parts, {ring} matmuls", f"{ring} − 1 = {hops:.0f} permutes"),
        traps=(
            Trap(float(ring), "A device has its own part at the start."),
            Trap(float(ring_hops(ring)), "That is for both directions at once."),
        ),
        check=f'dscale calc "ring_hops({ring}, one_way=true)"',
    )


@problem(
    "jax",
    "Steps with both directions",
    cases=("jax-stuff.q4_bidirectional:steps",),
    ring=(8, 4, 16, 32, 12, 24, 64, 6, 20),
)
def steps_with_both_directions(ring: int) -> Posed:
    steps = float(ring_hops(ring))
    return Posed(
        ask=f"A collective matmul rotates parts round a ring of {ring} devices in both "
        "directions at once. How many steps of permutes follow one another?",
        answer=steps,
        whole=True,
        hints=("No part has to come from further away than half the ring.", "steps = N / 2"),
        steps=(
            f"the farthest part is {ring} / 2 = {steps:.0f} links away",
            f"{steps:.0f} steps; in the last one it comes in halves from both sides",
        ),
        traps=(Trap(float(ring - 1), "That is one direction."), Trap(float(ring), "Parts come from both sides.")),
        check=f'dscale calc "ring_hops({ring})"',
    )


@problem(
    "jax",
    "Which chunk when",
    device=(1, 2, 3, 5, 6),
    step=(1, 2, 3, 5, 6),
    ring=(4, 8, 16),
)
def chunk_at_a_step(device: int, step: int, ring: int) -> Posed | None:
    if device >= ring or step >= ring:
        return None
    chunk = shard_held(device, step, ring)
    other = (device - step) % ring
    if chunk == 0 or chunk == other:
        return None
    return Posed(
        ask=f"In a collective matmul over a ring of {ring} devices, parts travel to the left: "
        "at each step a device receives what its right neighbour (one number higher, round "
        f"the ring) had. Which chunk of W does device {device} use at step {step}, steps "
        "and chunks counted from 0?",
        answer=float(chunk),
        whole=True,
        hints=("At step 0 it is its own.", "chunk = (device + step) mod N"),
        steps=(f"step 0: chunk {device}; each step the next higher one", f"({device} + {step}) mod {ring} = {chunk}"),
        traps=(
            Trap(float(other), "That is the other direction."),
            *([Trap(float(device + step), "Numbers wrap round the ring.")] if device + step >= ring else []),
        )
        if other
        else (Trap(float(step), "It begins with its own chunk."),),
        check=f'dscale calc "{device} + {step} - {ring} * floor(({device} + {step})/{ring})"',
    )
