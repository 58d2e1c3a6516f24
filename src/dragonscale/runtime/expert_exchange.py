"""Tokens to chips that hold their experts, and back: expert parallelism written out, inside `jax.shard_map`.

Experts are split in order over a mesh axis. Each chip sorts its tokens' rows by expert (`experts.dispatch`), sends
every row to the chip of its expert, has the experts there work on what arrived, and gets the results back in its own
order. Two ways to send:

- **padded**: every chip sends each expert `capacity` rows, empty or not, in one AllToAll of fixed size. Rows beyond the
  capacity are dropped (their result is zero). Simple, and every expert costs the same.
- **ragged**: only the rows there are. `jax.lax.ragged_all_to_all` does that on GPUs and TPUs; where it does not run
  (CPUs) its result is computed by a padded AllToAll, exactly. A chip needs room for what may arrive, which is
  everything in the worst case; with less `room` what does not fit is dropped.

Either way the experts get `ExpertRows` sorted by expert, so what they compute is written once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.runtime.experts import ExpertRows

Axes = str | tuple[str, ...]
"""A mesh axis, or several as one."""


@dataclass(frozen=True)
class Sending:
    """How rows travel: padded to `capacity` rows for each expert and chip, or ragged, into `room` rows on each chip
    (None: enough for everything). `native` chooses JAX's own ragged collective (None: where the backend has it)."""

    capacity: int | None = None
    room: int | None = None
    native: bool | None = None


def capacity_for(rows: int, experts: int, factor: float) -> int:
    """Rows of each expert and chip when `factor` times the even share shall fit.

    >>> capacity_for(rows=1024, experts=16, factor=1.25)
    80
    """
    return max(1, -(-int(rows * factor) // experts))


@dataclass(frozen=True)
class Mixing:
    """How tokens reach experts. `capacity` is the room of each expert over its even share, beyond which rows are
    dropped; None drops nothing. `native` chooses JAX's ragged collective (None: where the backend has it). Up to `few`
    tokens on a chip every chosen expert multiplies all of them."""

    capacity: float | None = None
    native: bool | None = None
    few: int = 0


Return = Callable[[ExpertRows], ExpertRows]
"""Results, weighted, at the chips and in the order that their rows came from; rows that were dropped are zero."""


def send(rows: ExpertRows, experts: int, axis: Axes, how: Sending) -> tuple[ExpertRows, Return]:
    """Every row to the chip of its expert, and the way back; what arrived there is sorted by that chip's experts."""
    size = jax.lax.axis_size(axis)
    if experts % size:
        raise InputError(f"{experts} experts cannot be split evenly over the {size} chips of the axis {axis!r}.")
    return boxed(rows, experts, how.capacity, axis) if how.capacity else _send_ragged(rows, experts, axis, how)


def _starts(sizes: jax.Array) -> jax.Array:
    """Where blocks of these sizes begin when they lie one after another."""
    return jnp.cumsum(sizes) - sizes


def _swap(x: jax.Array, axis: Axes) -> jax.Array:
    """x[n, …] with the first dim for chips: what was for a chip is there, from every chip."""
    return jax.lax.all_to_all(x, axis, 0, 0, tiled=True)


def boxed(rows: ExpertRows, experts: int, capacity: int, axis: Axes = ()) -> tuple[ExpertRows, Return]:
    """Rows with the same room for every expert, whatever was chosen, at the chips of an axis that have them (none: on
    this chip): what does not fit is dropped."""
    size = jax.lax.axis_size(axis) if axis else 1
    own = experts // size
    place = jnp.arange(rows.experts.size) - _starts(rows.sizes)[rows.experts]
    fits = place < capacity
    slot = jnp.where(fits, rows.experts * capacity + place, experts * capacity)

    def sent(values: jax.Array) -> jax.Array:
        empty = jnp.zeros((experts * capacity, *values.shape[1:]), values.dtype)
        boxes = empty.at[slot].set(values, mode="drop")
        if not axis:
            return boxes
        there = _swap(boxes.reshape(size, own, capacity, *values.shape[1:]), axis)  # [sender, expert, row, …]
        return there.swapaxes(0, 1).reshape(own * size * capacity, *values.shape[1:])

    def home(done: ExpertRows) -> ExpertRows:
        values = done.weighted().values
        boxes = _swap(values.reshape(own, size, capacity, -1).swapaxes(0, 1), axis) if axis else values
        found = boxes.reshape(-1, values.shape[-1]).at[slot].get(mode="fill", fill_value=0)
        return replace(rows, values=jnp.where(fits[:, None], found, 0), scale=None)

    return even_rows(sent(rows.values), own, None if rows.scale is None else sent(rows.scale)), home


def even_rows(values: jax.Array, experts: int, scale: jax.Array | None) -> ExpertRows:
    """Rows of which every expert has as many."""
    each = values.shape[0] // experts
    numbers = jnp.repeat(jnp.arange(experts), each)
    sizes = jnp.full(experts, each, jnp.int32)
    return ExpertRows(values, sizes, numbers, jnp.arange(values.shape[0]), scale, even=True)


@dataclass(frozen=True)
class Route:
    """What travels between this chip and every other: where they begin here, how large they are, where they begin
    there."""

    begin: jax.Array
    sizes: jax.Array
    begin_there: jax.Array
    coming: jax.Array
    begin_coming: jax.Array
    begin_here: jax.Array

    def reversed(self) -> "Route":
        """The way back."""
        return Route(self.begin_here, self.coming, self.begin_coming, self.sizes, self.begin_there, self.begin)


def _route(sizes: jax.Array, axis: Axes, room: int) -> Route:
    """Sizes of what goes to each chip, limited to what has room there, and where it shall lie."""
    asked = _swap(sizes, axis)
    here = jnp.minimum(_starts(asked), room)
    coming = jnp.minimum(asked, room - here)
    begin = _starts(sizes)
    return Route(begin, _swap(coming, axis), _swap(here, axis), coming, _swap(begin, axis), here)


def _deliver(x: jax.Array, route: Route, room: int, axis: Axes, native: bool) -> jax.Array:
    """[room, d]: every chip's rows for this one at their place, and zeros elsewhere."""
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


def _send_ragged(rows: ExpertRows, experts: int, axis: Axes, how: Sending) -> tuple[ExpertRows, Return]:
    size = jax.lax.axis_size(axis)
    own, count = experts // size, rows.values.shape[0]
    room = size * count if how.room is None else how.room
    native = jax.default_backend() in ("gpu", "tpu") if how.native is None else how.native
    asked = rows.sizes.reshape(size, own)
    route = _route(asked.sum(1), axis, room)
    there = _deliver(rows.values, route, room, axis, native)
    numbers = _numbers(_swap(asked, axis), route, room)
    order = jnp.argsort(numbers, stable=True)
    sizes = jnp.bincount(numbers, length=own).astype(jnp.int32)
    scale = None if rows.scale is None else _deliver(rows.scale[:, None], route, room, axis, native)[order, 0]

    def home(done: ExpertRows) -> ExpertRows:
        done = done.weighted()
        # Rows that nothing was sent to belong to no expert; what a grouped matmul leaves there is not read.
        mine = (done.experts < done.sizes.size)[:, None]
        unsorted = jnp.zeros_like(done.values).at[order].set(jnp.where(mine, done.values, 0))
        return replace(rows, values=_deliver(unsorted, route.reversed(), count, axis, native), scale=None)

    return ExpertRows(there[order], sizes, numbers[order], order, scale), home


def _numbers(asked: jax.Array, route: Route, room: int) -> jax.Array:
    """[room]: the expert of each row that arrived, of `asked[sender, expert]` rows; one more than the last for none."""
    senders, own = asked.shape
    ends = (route.begin_here[:, None] + jnp.cumsum(asked, 1)).reshape(-1)
    at = jnp.arange(room)
    # Rows lie in order of sender and expert, so the number of ends before a row says whose it is.
    index = jnp.searchsorted(ends, at, side="right")
    return jnp.where((index < senders * own) & (at < route.coming.sum()), index % own, own)
