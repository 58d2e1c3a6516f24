"""The plan's optimizer, out of optax, and where each part of its state lies.

`adam` is AdamW with fp32 moments (8 bytes a parameter), `adam-bf16` keeps both moments in bf16 (4), `adafactor` sums of
rows and columns, `muon` one momentum for the matrices of layers (AdamW for the rest), `sgd` nothing: what the planner's
memory counts. Norms and biases are never decayed. A state leaf that has its weight's shape lies as the plan puts that
weight's state; everything else is small and copied.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

from dragonscale.models.program import Program
from dragonscale.runtime.parameters import Tree, weights_of
from dragonscale.runtime.train.muon import muon
from dragonscale.runtime.train.settings import RunSettings

BETAS = (0.9, 0.95)
"""As LLaMA and GPT-3 were trained. The second must not be much nearer to one for moments in bf16: a change of less than
1/256 is rounded away."""


def optimizer(
    kind: str, run: RunSettings, program: Program, states: dict[str, dict[str, NamedSharding]]
) -> optax.GradientTransformation:
    """The transformation of gradients into updates for a learning rate of one; the step multiplies them by its own, so
    that a run with another schedule is the same compiled program. `states` says how each weight's state lies."""
    decayed = {name: {own: own.startswith("W") for own in weights} for name, weights in weights_of(program).items()}
    first, second = BETAS
    if kind == "adam":
        main = optax.adamw(1.0, first, second, weight_decay=run.weight_decay, mask=decayed)
    elif kind == "adam-bf16":
        main = optax.chain(
            _narrow(optax.scale_by_adam(first, second)),
            optax.add_decayed_weights(run.weight_decay, decayed),
            optax.scale(-1.0),
        )
    elif kind == "adafactor":
        main = optax.adafactor(
            1.0, multiply_by_parameter_scale=False, clipping_threshold=None, weight_decay_mask=decayed
        )
    elif kind == "muon":
        main = muon(program, states, run.weight_decay, decayed, BETAS)
    else:
        main = optax.sgd(1.0)
    return optax.chain(optax.clip_by_global_norm(run.clip), main) if run.clip else main


def _narrow(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Moments kept in bf16 between steps, computed with in fp32."""

    def cast(state: Any, dtype: Any) -> Any:
        return state._replace(mu=optax.tree.cast(state.mu, dtype), nu=optax.tree.cast(state.nu, dtype))

    def init(params: Any) -> Any:
        return cast(inner.init(params), jnp.bfloat16)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        changed, after = inner.update(updates, cast(state, jnp.float32), params)
        return changed, cast(after, jnp.bfloat16)

    return optax.GradientTransformation(init, update)


def placed(state: Any, params: Tree, shardings: dict[str, dict[str, NamedSharding]]) -> Any:
    """A sharding for every leaf of an optimizer's (abstract) state."""
    whole = NamedSharding(jax.tree.leaves(shardings)[0].mesh, PartitionSpec())

    def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        keys = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        if len(keys) < 2 or params.get(keys[-2], {}).get(keys[-1]) is None:
            return whole
        return shardings[keys[-2]][keys[-1]] if leaf.shape == params[keys[-2]][keys[-1]].shape else whole

    return jax.tree_util.tree_map_with_path(of, state)
