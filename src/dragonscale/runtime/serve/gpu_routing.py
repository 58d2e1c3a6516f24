"""Routing of a few tokens on NVIDIA GPUs in two small Pallas kernels: XLA takes a dozen, of a microsecond or two each,
which in a step of one token is as long as reading the experts."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.runtime.numerics import Routing

LOWEST, NOBODY = -1e30, -(2**30)
"""A score below all others, and an expert that is none."""


def choose_few(
    logits: jax.Array,
    count: int,
    routing: Routing,
    correction: jax.Array | None = None,
    parts: jax.Array | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """The experts of tokens and their weights, as `experts.choose` has them, of a router without groups. Where logits
    are there as `parts` [S, T, e], these are added up here, and nobody reads the logits."""
    shape, experts = logits.shape[:-1], logits.shape[-1]
    tokens = logits.size // experts
    given = [logits.reshape(1, tokens, experts) if parts is None else parts]
    given += [] if correction is None else [correction]
    chosen, weights = pl.pallas_call(
        functools.partial(_choose, count=count, routing=routing),
        grid=(tokens,),
        out_shape=[jax.ShapeDtypeStruct((tokens, count), dtype) for dtype in (jnp.int32, jnp.float32)],
        compiler_params=gpu.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="choose_experts",
    )(*given)
    return chosen.reshape(*shape, count), weights.reshape(*shape, count)


def _choose(logits: Any, *refs: Any, count: int, routing: Routing) -> None:
    *correction, chosen, weights = refs
    token, experts = pl.program_id(0), logits.shape[2]
    number = jnp.arange(pl.next_power_of_2(experts), dtype=jnp.int32)
    real = number < experts
    parts = [
        gpu.load(logits.at[at, token, number], mask=real, other=0).astype(jnp.float32) for at in range(logits.shape[0])
    ]
    found = jnp.where(real, functools.reduce(operator.add, parts), LOWEST)
    raised = jnp.where(real, jnp.exp(found - jnp.max(found)), 0.0)
    scores = {"sigmoid": lambda: 1 / (1 + jnp.exp(-found)), "after": lambda: raised}.get(
        routing.score, lambda: raised / jnp.sum(raised)
    )()
    ranked = found if routing.score == "after" else scores
    if correction:
        ranked = ranked + gpu.load(correction[0].at[number], mask=real, other=0.0).astype(jnp.float32)
    ranked = jnp.where(real, ranked, LOWEST)
    total, best = jnp.float32(0.0), []
    for at in range(count):
        own = jnp.argmax(ranked).astype(jnp.int32)
        best.append(jnp.sum(jnp.where(number == own, scores, 0.0)))
        total, ranked = total + best[-1], jnp.where(number == own, LOWEST, ranked)
        chosen[token, at] = own
    whole = total + 1e-20 if routing.normalise or routing.score == "after" else 1.0
    for at, weight in enumerate(best):
        weights[token, at] = weight / whole * routing.scale


def slots_of_few(
    chosen: jax.Array, weights: jax.Array, experts: int, first: jax.Array | int = 0, interpret: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The owner of each slot, how many have one, and the weights that tokens give them: what `experts.slotted` is
    made of."""
    own = chosen.reshape(-1, chosen.shape[-1])
    tokens, slots = own.shape[0], min(experts, own.size)
    return pl.pallas_call(
        functools.partial(_fill, experts=experts),
        grid=(slots,),
        out_shape=[
            jax.ShapeDtypeStruct((slots,), jnp.int32),
            jax.ShapeDtypeStruct((1,), jnp.int32),
            jax.ShapeDtypeStruct((slots, tokens), jnp.float32),
        ],
        compiler_params=gpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="fill_slots",
    )(own, weights.reshape(own.shape), jnp.asarray(first, jnp.int32).reshape(1))


def _fill(chosen: Any, weights: Any, first: Any, owner: Any, count: Any, scale: Any, *, experts: int) -> None:
    """A slot: its expert, and the weights that tokens give it."""
    (tokens, choices), slot = chosen.shape, pl.program_id(0)
    number = jnp.arange(pl.next_power_of_2(experts), dtype=jnp.int32)
    token = jnp.arange(pl.next_power_of_2(tokens))[:, None]
    choice = jnp.arange(pl.next_power_of_2(choices))[None]
    real = (token < tokens) & (choice < choices)
    own = gpu.load(chosen.at[token, choice], mask=real, other=NOBODY) - first[0]
    hit = own.reshape(-1, 1) == number[None]
    present = jnp.max(hit.astype(jnp.int32), 0) * (number < experts)
    before = jnp.cumsum(present) - 1
    all_there = jnp.sum(present)
    mine = jnp.where(slot < all_there, jnp.sum(jnp.where((before == slot) & (present > 0), number, 0)), NOBODY)
    weight = gpu.load(weights.at[token, choice], mask=real, other=0.0).astype(jnp.float32)
    given = jnp.sum(jnp.where(own == mine, weight, 0.0), 1)
    owner[slot] = jnp.maximum(mine, 0)
    gpu.store(scale.at[slot, token[:, 0]], given, mask=token[:, 0] < tokens)

    @pl.when(slot == 0)
    def _() -> None:
        count[0] = all_there
