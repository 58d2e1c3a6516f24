"""Tokens to their experts and back, without padding and without dropping: sorted by expert, multiplied in groups.

A router's choice is a `ExpertChoice`: for every token the experts and their weights. `dispatch` sorts the rows of all
tokens by expert; matmuls with expert weights are `grouped_matmul`; `combine` puts the results back and adds them up.
The router's weights travel with the rows and are multiplied in before an expert's last matmul: a gradient then needs
what that matmul read, and not its result.
"""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp

from dragonscale.runtime.numerics import Routing
from dragonscale.runtime.quantized import Quantized


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ExpertChoice:
    """[b, t, x] experts of each token, and their weights."""

    experts: jax.Array
    weights: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ExpertRows:
    """Rows sorted by expert: values [r, d], rows of each expert, the expert, the original place and the router's weight
    of each row (None once it is multiplied in). `shift` is how far uneven rows were rolled to have a chip's own experts
    first. Where every expert has the same number of rows whatever was chosen, they are `even`, and matmuls with them
    are plain ones."""

    values: jax.Array
    sizes: jax.Array
    experts: jax.Array
    order: jax.Array
    scale: jax.Array | None = None
    shift: jax.Array | None = None
    even: bool = field(default=False, metadata={"static": True})

    def having(self, values: jax.Array) -> "ExpertRows":
        return replace(self, values=values)

    def weighted(self) -> "ExpertRows":
        """With the router's weights multiplied in."""
        if self.scale is None:
            return self
        return replace(self, values=self.values * self.scale[:, None].astype(self.values.dtype), scale=None)


def choose(logits: jax.Array, count: int, routing: Routing, correction: jax.Array | None = None) -> ExpertChoice:
    """The best `count` experts of each token by its router's logits [b, t, e]; `correction` is added for the choice
    only."""
    logits = logits.astype(jnp.float32)
    scores = jax.nn.sigmoid(logits) if routing.score == "sigmoid" else jax.nn.softmax(logits, -1)
    ranked = logits if routing.score == "after" else scores
    ranked = ranked if correction is None else ranked + correction
    if routing.groups > 1:
        ranked = _best_groups(ranked, routing)
    _, experts = jax.lax.top_k(ranked, count)
    if routing.score == "after":
        weights = jax.nn.softmax(jnp.take_along_axis(logits, experts, -1), -1)
    else:
        weights = jnp.take_along_axis(scores, experts, -1)
    if routing.normalise:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return ExpertChoice(experts, weights * routing.scale)


def _best_groups(ranked: jax.Array, routing: Routing) -> jax.Array:
    """Only experts of the groups whose two best have the highest sum."""
    shape = ranked.shape
    grouped = ranked.reshape(*shape[:-1], routing.groups, -1)
    two, _ = jax.lax.top_k(grouped, 2)
    _, kept = jax.lax.top_k(two.sum(-1), routing.best_groups)
    allowed = jax.nn.one_hot(kept, routing.groups, dtype=bool).any(-2)
    return jnp.where(allowed[..., None], grouped, -jnp.inf).reshape(shape)


def dispatch(x: jax.Array, chosen: ExpertChoice, experts: int) -> ExpertRows:
    """Every token's row once for each of its experts, sorted by expert."""
    count = chosen.experts.shape[-1]
    flat = chosen.experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    rows = x.reshape(-1, x.shape[-1])[order // count]
    sizes = jnp.bincount(flat, length=experts).astype(jnp.int32)
    return ExpertRows(rows, sizes, flat[order], order, chosen.weights.reshape(-1)[order])


def multiply(rows: ExpertRows, weight: jax.Array | Quantized) -> ExpertRows:
    """Each expert's rows times its matrix: weight [e, d, f]."""
    if isinstance(weight, Quantized):
        done = multiply(rows, weight.values)
        return done.having((done.values * weight.scale[rows.experts]).astype(rows.values.dtype))
    weight = weight.astype(rows.values.dtype)
    if not rows.even:
        expands = jax.default_backend() == "gpu"
        return rows.having(grouped_matmul(rows.values, weight, rows.sizes, EXPANDED if expands else None))
    boxes = rows.values.reshape(weight.shape[0], -1, weight.shape[1])
    return rows.having(jnp.einsum("erd,edf->erf", boxes, weight).reshape(-1, weight.shape[2]))


EXPANDED = 2**31
"""Bytes of rows spread over all experts at a time. Qwen3-30B-A3B's first token after a prompt of 1,024 on an H200: 0.83
s with these, 1.28 s with 2**29, whose matmuls have too few rows to fill it, 0.74 s with all rows at once, which left no
room to compile in."""


def grouped_matmul(rows: jax.Array, weight: jax.Array, sizes: jax.Array, most: int | None = None) -> jax.Array:
    """Rows [r, d] sorted by expert, `sizes` of each, times the matrix of their expert: weight [e, d, f].

    XLA has no grouped kernel on GPUs: it writes every row once for each expert, zeros but for its own, and multiplies
    that by all matrices. Whole, those rows fill the memory (64 experts, 262,144 rows of 2,048: 69 GB), so they are made
    in parts of at most `most` bytes. (None: the backend multiplies rows by their own expert alone.)
    """
    count, spread = rows.shape[0], weight.shape[0] * max(weight.shape[1:]) * rows.dtype.itemsize
    parts = 1 if most is None else -(-count * spread // most)
    if parts <= 1:
        return jax.lax.ragged_dot(rows, weight, sizes)
    each = -(-count // parts)
    padded = jnp.pad(rows, ((0, each * parts - count), (0, 0))).reshape(parts, each, -1)
    ends = jnp.cumsum(sizes)

    def part(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        values, start = given
        inside = jnp.clip(ends - start, 0, each)  # where each expert's rows end, counted in this part
        return jax.lax.ragged_dot(values, weight, jnp.diff(inside, prepend=0))

    done = jax.lax.map(part, (padded, each * jnp.arange(parts, dtype=sizes.dtype)))
    return done.reshape(parts * each, -1)[:count]


def combine(rows: ExpertRows, chosen: ExpertChoice) -> jax.Array:
    """Results back at their tokens, weighted and added: [b, t, d]."""
    rows = rows.weighted()
    back = jnp.zeros_like(rows.values).at[rows.order].set(rows.values)
    return back.reshape(*chosen.experts.shape, -1).sum(2)
