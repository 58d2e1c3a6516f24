"""A pass that only reads: the log-probability of every token of answers, under the policy or a reference."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.forward import forward, losses
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.place import BATCH, place_of
from dragonscale.runtime.train.gradients import DTYPES, at_rest, layouts
from dragonscale.runtime.train.settings import Order


def log_probabilities(order: Order, program: Program, numerics: Numerics, mesh: Mesh) -> Callable[..., jax.Array]:
    """Of each next token, of (params, tokens [passes, b, t], targets); 0 where a target is negative."""
    if order.plan.pipe > 1:
        raise InputError(f"Log-probabilities are read without pipeline stages, and pipe is {order.plan.pipe}.")
    place = place_of(order.plan, program)
    leaves, specs = layouts(program, place, None)
    setting = PassSetting(numerics, DTYPES[order.run.dtype], place, Mixing(order.run.capacity or None))
    split = place.vocabulary(program)

    def local(params: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        weights = at_rest(order, place, leaves, params)

        def read(pair: Any) -> jax.Array:
            return -losses(forward(weights, program, pair[0], setting, order.run.seq), pair[1], place, split)

        return jax.lax.map(read, (tokens, targets))

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(specs, BATCH, BATCH), out_specs=BATCH, check_vma=False))
