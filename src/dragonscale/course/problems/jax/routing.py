"""Experts in JAX: the work of a loop over experts, the bytes of routing."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import einsum_cost
from dragonscale.physics.sharding import Mesh, local_bytes


@problem(
    "jax",
    "A loop over all experts",
    cases=("jax-stuff.q2_moe_masked_flops:masked",),
    tokens=(1024, 4096, 512),
    width=(512, 1024, 2048),
    hidden=(2048, 4096, 1024),
    experts=(16, 8, 64),
    picks=(1, 2, 4),
)
def loop_over_experts(tokens: int, width: int, hidden: int, experts: int, picks: int) -> Posed:
    sizes = {"S": tokens, "D": width, "F": hidden, "E": experts}
    flops = einsum_cost(parse_einsum("bf16[S, D] @ bf16[E, D, F] -> bf16[E, S, F]"), sizes).total_flops
    return Posed(
        ask=f"An MoE layer multiplies S={tokens} tokens of width D={width} with one matrix [D, "
        f"F={hidden}] for each of E={experts} experts, in a loop in which every expert "
        f"multiplies all tokens and a mask keeps the {picks} that each token picked. How "
        "many FLOPs is that?",
        answer=flops,
        dimension="FLOP",
        hints=("The mask comes after the matmul and saves nothing.", "2 · S · D · F · E"),
        steps=(
            f"one expert: 2 · {tokens} · {width} · {hidden} = {amount(flops / experts, 'FLOP')}",
            (f"· {experts} = {amount(flops, 'FLOP')}; routed it would be {amount(flops * picks / experts, 'FLOP')}"),
        ),
        traps=(
            Trap(flops * picks / experts, "That is the ideal, each token only with its own experts."),
            Trap(flops / 2, "A multiply-add is two FLOPs."),
        ),
        check='dscale roofline "bf16[S, D] @ bf16[E, D, F] -> bf16[E, S, F]" --sizes '
        f'S={tokens},D={width},F={hidden},E={experts} --on v5e | grep "FLOPs"',
    )


@problem(
    "jax",
    "Routing by AllToAll instead of AllGather",
    cases=("jax-stuff.q2_moe_comms:alltoall_bytes",),
    tokens=(8192, 16384, 4096),
    width=(1024, 4096, 2048),
    ways=(8, 4, 16),
    dtype=("fp32", "bf16"),
)
def routed_bytes(tokens: int, width: int, ways: int, dtype: str) -> Posed:
    sizes, mesh, size = {"S": tokens, "D": width}, Mesh({"X": ways}), {"fp32": 4, "bf16": 2}[dtype]
    gathered, routed = (local_bytes(parse_array(f"A:{dtype}[{rows}, D]"), sizes, mesh) for rows in ("S", "S_X"))
    return Posed(
        ask=f"Tokens {dtype}[{tokens}_X, {width}] lie on X={ways} devices, each with its own "
        "experts, one pick a token, evenly spread. How many bytes of activations does each "
        "device hold after an AllToAll has brought the tokens to their experts?",
        answer=routed,
        dimension="bytes",
        hints=(
            "Balanced routing exchanges tokens; none is copied.",
            "S · D · bytes / |X|; after an AllGather it would be all of them",
        ),
        steps=(
            f"all tokens: {tokens} · {width} · {size} = {count(gathered)} bytes",
            f"/ {ways} = {count(routed)} bytes = {amount(routed, 'bytes')}",
        ),
        traps=(
            Trap(gathered, "That is after an AllGather, every device with every token."),
            Trap(routed / ways, "A device receives tokens from all others: an X-th of all in the end."),
        ),
        check=f'dscale shard "A:{dtype}[S_X, D]" --mesh X={ways} --sizes S={tokens},D={width} | '
        'grep -E "holds  |^A.*B "',
    )
