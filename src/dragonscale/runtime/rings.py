"""Gathers and scatters taken apart into hops round a ring, with other work done while a hop is under way.

A ring is written as a generator, one chip's side of a conversation inside `jax.shard_map`: it yields what to send in
which direction and is given what arrived. `gathering` is an AllGather that hands over each shard as it comes,
`scattering` a ReduceScatter of parts that are computed when they are due. `run` lets rings talk; several at once share
their hops.

Chips of a ring have a wire in each direction. `both_ways` uses both: shards travel half as far, and where the ring is
even the farthest shard comes in halves from either side, so that the time is exactly half. Loops are unrolled: the
compiler sees every hop beside what does not depend on it.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.physics.collectives.ring_steps import shard_held as shard_held

LEFT, RIGHT = -1, 1
Messages = dict[int, jax.Array]
"""A value for each direction."""
Ring = Generator[Messages, Messages, Any]
Product = Callable[[jax.Array, jax.Array | None], jax.Array]
"""What a chip (by its index) shall have of this chip's partial sums; the second argument is the matmul made before."""


def after(value: jax.Array, made: jax.Array | None) -> jax.Array:
    """The same value, there only once `made` is.

    XLA likes to merge small matmuls that share an operand into a large one. That one would wait for all shards, and
    nothing would be hidden. In a chain of matmuls, each with its operand `after` the one before, none can be merged.
    """
    return value if made is None else jax.lax.optimization_barrier((value, made))[0]


@dataclass(frozen=True)
class Hops:
    """How far shards travel in each direction of a ring; `halved` says that the last hop carries half
    a shard each way."""

    left: int
    right: int
    halved: bool

    def reach(self, way: int) -> int:
        """Hops in one direction."""
        return self.left if way == LEFT else self.right

    @property
    def steps(self) -> int:
        """Hops that follow one another."""
        return max(self.left, self.right)

    @property
    def shard_times(self) -> float:
        """Time on the wires, in units of one shard over one link."""
        return self.steps - 0.5 if self.halved else float(self.steps)


def hops(size: int, both_ways: bool = False, divisible: bool = True) -> Hops:
    """The hops of a ring of `size` chips; an even ring halves its farthest shard if that is `divisible` by two.

    >>> hops(8), hops(8, both_ways=True).shard_times
    (Hops(left=7, right=0, halved=False), 3.5)
    """
    if not both_ways:
        return Hops(size - 1, 0, False)
    halved = size % 2 == 0 and divisible
    return Hops(size // 2, size // 2 if halved else (size - 1) // 2, halved)


@dataclass(frozen=True)
class RingShard:
    """What a chip has of another's shard: `start` is where in that shard it begins."""

    source: jax.Array
    start: int
    value: jax.Array


Use = Callable[[RingShard, Any], Any]
"""What to do with a shard, given the result of what was done with the one before."""


def shift(value: jax.Array, axis: str, by: int) -> jax.Array:
    """A value at the chip that is so many places on round an axis."""
    size = jax.lax.axis_size(axis)
    return jax.lax.ppermute(value, axis, [(chip, (chip + by) % size) for chip in range(size)])


def run(axis: str, dim: int, *rings: Ring) -> list[Any]:
    """The results of rings that run together: what they send at one time travels as one message, joined along `dim`."""
    results: list[Any] = [None] * len(rings)
    talking: dict[int, Messages] = {}

    def hear(number: int, arrived: Messages | None) -> None:
        try:
            talking[number] = next(rings[number]) if arrived is None else rings[number].send(arrived)
        except StopIteration as end:
            results[number] = end.value
            talking.pop(number, None)

    for number in range(len(rings)):
        hear(number, None)
    while talking:
        arrived: dict[int, Messages] = {number: {} for number in talking}
        for way in (LEFT, RIGHT):
            values = {number: sent[way] for number, sent in talking.items() if way in sent}
            for number, value in _sent_together(values, axis, dim, way).items():
                arrived[number][way] = value
        for number, values in arrived.items():
            hear(number, values)
    return results


def _sent_together(values: dict[int, jax.Array], axis: str, dim: int, way: int) -> dict[int, jax.Array]:
    if len(values) < 2:
        return {number: shift(value, axis, way) for number, value in values.items()}
    message = shift(jnp.concatenate(list(values.values()), dim), axis, way)
    parts: dict[int, jax.Array] = {}
    at = 0
    for number, value in values.items():
        parts[number] = jax.lax.slice_in_dim(message, at, at + value.shape[dim], axis=dim)
        at += value.shape[dim]
    return parts


def gathering(x: jax.Array, axis: str, dim: int, use: Use, both_ways: bool = False) -> Ring:
    """An AllGather of x along `dim`: `use` gets every chip's shard, the own one first, each while the next is under
    way. Returns what `use` returned last."""
    size, mine, width = jax.lax.axis_size(axis), jax.lax.axis_index(axis), x.shape[dim]
    way = hops(size, both_ways, width % 2 == 0)
    made: Any = None
    latest: Messages = {LEFT: x, RIGHT: x}
    here = [RingShard(mine, 0, x)]
    for step in range(1, way.steps + 1):
        middle = width // 2 if way.halved and step == way.steps else None
        ends = {LEFT: (0, middle), RIGHT: (middle or 0, width)}
        ways = [towards for towards in (LEFT, RIGHT) if step <= way.reach(towards)]
        arrived = yield {each: jax.lax.slice_in_dim(latest[each], *ends[each], axis=dim) for each in ways}
        for shard in here:
            made = use(shard, made)
        latest = {towards: after(value, made) for towards, value in arrived.items()}
        here = [RingShard((mine - each * step) % size, ends[each][0], value) for each, value in latest.items()]
    for shard in here:
        made = use(shard, made)
    return made


def whole(x: jax.Array, axis: str, dim: int, both_ways: bool = False) -> Ring:
    """The gathered array itself, for a gather that is hidden under other work."""
    shape = list(x.shape)
    shape[dim] *= jax.lax.axis_size(axis)

    def put(shard: RingShard, result: jax.Array | None) -> jax.Array:
        result = jnp.zeros(shape, x.dtype) if result is None else result
        return jax.lax.dynamic_update_slice_in_dim(result, shard.value, shard.source * x.shape[dim] + shard.start, dim)

    return gathering(x, axis, dim, put, both_ways)


def scattering(product: Product, width: int, axis: str, dim: int, both_ways: bool = False) -> Ring:
    """A ReduceScatter of partial sums that do not exist yet: `product` computes what one chip shall have, `width` wide
    along `dim`. Sums travel towards their owner and grow at every chip on the way; what the owner computes itself comes
    last."""
    size, mine = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    way = hops(size, both_ways, width % 2 == 0)
    made: jax.Array | None = None
    arrived: Messages = {}
    for step in range(way.steps, 0, -1):
        sent: Messages = {}
        if way.halved and step == way.steps:
            made = product((mine + step) % size, made)
            sent[LEFT] = jax.lax.slice_in_dim(made, 0, width // 2, axis=dim)
            sent[RIGHT] = jax.lax.slice_in_dim(made, width // 2, width, axis=dim)
        else:
            for towards in (LEFT, RIGHT):
                if step <= way.reach(towards):
                    made = product((mine + towards * step) % size, made)
                    sent[towards] = _joined(arrived.get(towards), made, dim, towards)
        arrived = yield sent
    own = _joined(arrived.get(LEFT), product(mine, made), dim, LEFT)
    return _joined(arrived.get(RIGHT), own, dim, RIGHT)


def _joined(sum_so_far: jax.Array | None, part: jax.Array, dim: int, way: int) -> jax.Array:
    """A sum plus one more part; half a sum that travels left belongs to the beginning of the part, else to its end."""
    if sum_so_far is None:
        return part
    missing = part.shape[dim] - sum_so_far.shape[dim]
    if missing:
        edges = [(0, 0)] * part.ndim
        edges[dim] = (0, missing) if way == LEFT else (missing, 0)
        sum_so_far = jnp.pad(sum_so_far, edges)
    # Without the barrier the sum becomes part of the matmul, which then waits for what arrives.
    return sum_so_far + jax.lax.optimization_barrier(part)
