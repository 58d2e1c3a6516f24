"""Tokens to chips that hold their experts, and back: expert parallelism written out, inside `jax.shard_map`.

Experts are dealt in order over a mesh axis. Each chip sorts its tokens' rows by expert (`experts.dispatch`), sends every
row to the chip of its expert, has the experts there work on what arrived, and gets the results back in its own order. Two
ways to send:

- **padded**: every chip sends each expert `capacity` rows, empty or not, in one AllToAll of fixed size. Rows beyond the
  capacity are dropped (their result is zero). Simple, and every expert costs the same.
- **ragged**: only the rows there are. `jax.lax.ragged_all_to_all` does that on GPUs and TPUs; where it does not run
  (CPUs) its result is computed by a padded AllToAll, exactly. A chip needs room for what may arrive, which is everything
  in the worst case; with less `room` what does not fit is dropped.

Either way the experts get `Rows` sorted by expert, so what they compute is written once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.runtime.experts import Chosen, Rows, combine, dispatch

Work = Callable[[Rows], Rows]
"""What experts do with their rows: `experts.multiply` with this chip's weights, and nonlinearities."""


@dataclass(frozen=True)
class Sending:
    """How rows travel: padded to `capacity` rows for each expert and chip, or ragged, into `room` rows on each chip (None:
    enough for everything). `native` chooses JAX's own ragged collective (None: where the backend has it)."""

    capacity: int | None = None
    room: int | None = None
    native: bool | None = None


def capacity_for(rows: int, experts: int, factor: float) -> int:
    """Rows of each expert and chip when `factor` times the even share shall fit.

    >>> capacity_for(rows=1024, experts=16, factor=1.25)
    80
    """
    return max(1, -(-int(rows * factor) // experts))


def exchange(
    x: jax.Array, chosen: Chosen, experts: int, work: Work, axis: str, how: Sending | None = None
) -> jax.Array:
    """[b, t, d] of one chip's tokens through experts on all chips of `axis`: dispatch, send, work, send back, combine."""
    how = how or Sending()
    size = jax.lax.axis_size(axis)
    if experts % size:
        raise InputError(f"{experts} experts cannot be dealt evenly over the {size} chips of the axis {axis!r}.")
    rows = dispatch(x, chosen, experts)
    if how.capacity is not None:
        return combine(_padded(rows, experts, work, axis, how.capacity), chosen)
    return combine(_ragged(rows, experts, work, axis, how), chosen)


def _starts(sizes: jax.Array) -> jax.Array:
    """Where pieces of these sizes begin when they lie one after another."""
    return jnp.cumsum(sizes) - sizes


def _swap(x: jax.Array, axis: str) -> jax.Array:
    """x[n, …] with the first dim for chips: what was for a chip is there, from every chip."""
    return jax.lax.all_to_all(x, axis, 0, 0, tiled=True)


def _padded(rows: Rows, experts: int, work: Work, axis: str, capacity: int) -> Rows:
    size = jax.lax.axis_size(axis)
    own, width = experts // size, rows.values.shape[-1]
    place = jnp.arange(rows.experts.size) - _starts(rows.sizes)[rows.experts]
    fits = place < capacity
    slot = jnp.where(fits, rows.experts * capacity + place, experts * capacity)
    boxes = jnp.zeros((experts * capacity, width), rows.values.dtype).at[slot].set(rows.values, mode="drop")
    there = _swap(boxes.reshape(size, own, capacity, width), axis)  # [sender, expert, row, d]
    lined = there.swapaxes(0, 1).reshape(own * size * capacity, width)
    numbers = jnp.repeat(jnp.arange(own), size * capacity)
    sizes = jnp.full(own, size * capacity, jnp.int32)
    done = work(Rows(lined, sizes, numbers, jnp.arange(lined.shape[0]))).values
    back = _swap(done.reshape(own, size, capacity, -1).swapaxes(0, 1), axis).reshape(experts * capacity, -1)
    found = back.at[slot].get(mode="fill", fill_value=0)
    return rows.having(jnp.where(fits[:, None], found, 0))


@dataclass(frozen=True)
class Route:
    """Pieces between this chip and every other: where they begin here, how large they are, where they begin there."""

    begin: jax.Array
    sizes: jax.Array
    begin_there: jax.Array
    coming: jax.Array
    begin_coming: jax.Array
    begin_here: jax.Array

    def reversed(self) -> "Route":
        """The way back."""
        return Route(self.begin_here, self.coming, self.begin_coming, self.sizes, self.begin_there, self.begin)


def _route(sizes: jax.Array, axis: str, room: int) -> Route:
    """Sizes of what goes to each chip, limited to what has room there, and where it shall lie."""
    asked = _swap(sizes, axis)
    here = jnp.minimum(_starts(asked), room)
    coming = jnp.minimum(asked, room - here)
    begin = _starts(sizes)
    return Route(begin, _swap(coming, axis), _swap(here, axis), coming, _swap(begin, axis), here)


def _send(x: jax.Array, route: Route, room: int, axis: str, native: bool) -> jax.Array:
    """[room, d]: every chip's piece for this one at its place, and zeros elsewhere."""
    if native:
        empty = jnp.zeros((room, x.shape[-1]), x.dtype)
        return jax.lax.ragged_all_to_all(
            x, empty, route.begin, route.sizes, route.begin_there, route.coming, axis_name=axis
        )
    longest = min(x.shape[0], room)
    steps = jnp.arange(longest)
    chosen = jnp.where(steps < route.sizes[:, None], route.begin[:, None] + steps, x.shape[0])
    there = _swap(x.at[chosen].get(mode="fill", fill_value=0), axis)
    places = jnp.where(steps < route.coming[:, None], route.begin_here[:, None] + steps, room)
    empty = jnp.zeros((room, x.shape[-1]), x.dtype)
    return empty.at[places.reshape(-1)].set(there.reshape(-1, x.shape[-1]), mode="drop")


def _ragged(rows: Rows, experts: int, work: Work, axis: str, how: Sending) -> Rows:
    size = jax.lax.axis_size(axis)
    own, count = experts // size, rows.values.shape[0]
    room = size * count if how.room is None else how.room
    native = jax.default_backend() in ("gpu", "tpu") if how.native is None else how.native
    wanted = rows.sizes.reshape(size, own)
    route = _route(wanted.sum(1), axis, room)
    there = _send(rows.values, route, room, axis, native)
    numbers = _numbers(_swap(wanted, axis), route, room)
    order = jnp.argsort(numbers, stable=True)
    sizes = jnp.bincount(numbers, length=own).astype(jnp.int32)
    done = work(Rows(there[order], sizes, numbers[order], order)).values
    # Rows that nothing was sent to belong to no expert; what a grouped product leaves there is not read.
    unsorted = jnp.zeros_like(done).at[order].set(jnp.where((numbers[order] < own)[:, None], done, 0))
    return rows.having(_send(unsorted, route.reversed(), count, axis, native))


def _numbers(asked: jax.Array, route: Route, room: int) -> jax.Array:
    """[room]: the expert of each row that arrived, of `asked[sender, expert]` rows; one more than the last for none."""
    senders, own = asked.shape
    ends = (route.begin_here[:, None] + jnp.cumsum(asked, 1)).reshape(-1)
    at = jnp.arange(room)
    # Pieces lie in order of sender and expert, so the number of ends before a row says whose it is.
    index = jnp.searchsorted(ends, at, side="right")
    return jnp.where((index < senders * own) & (at < route.coming.sum()), index % own, own)
