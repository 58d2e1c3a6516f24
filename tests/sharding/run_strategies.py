"""A process that runs strategies step by step on virtual CPU devices and compares them with the unsharded einsum.

Each step of a strategy is one collective of `jax.lax` inside `shard_map`, on local blocks. The arithmetic is on small
whole numbers in f32, so results are equal or wrong. One JSON case a line comes in; for each, `{"ran": n, "wrong": […]}`
goes out.
"""

import itertools
import json
import math
import random
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh as JaxMesh

from dragonscale.physics.notation import Array
from dragonscale.physics.sharding import Mesh, Step, Strategy, backward, block_of, derive
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.physics.sharding.reshard_step import Layout, layout_of
from tests.sharding.xla.einsum_worker import Case, formula_of, shape_of
from tests.sharding.xla.moves import walks

MOST = 8
"""Strategies run for each einsum line."""


def gained(step: Step) -> Layout:
    """The axes that each dim gains, in the order in which they split it."""
    before = layout_of(step.before)
    return {
        dim: axes[len(before[dim]) :] for dim, axes in layout_of(step.after).items() if len(axes) > len(before[dim])
    }


def lost(step: Step) -> Layout:
    """The axes that each dim loses."""
    after = layout_of(step.after)
    return {dim: axes[len(after[dim]) :] for dim, axes in layout_of(step.before).items() if len(axes) > len(after[dim])}


def number(axes: tuple[str, ...], mesh: Mesh) -> jax.Array:
    """This chip's number among the chips along some axes, the first axis major."""
    found = jnp.int32(0)
    for axis in axes:
        found = found * mesh.axes[axis] + lax.axis_index(axis)
    return found


def fronted(block: jax.Array, names: tuple[str, ...], taken: Layout, order: tuple[str, ...], mesh: Mesh) -> jax.Array:
    """The block cut into the pieces of each chip of a group, pieces first."""
    shape: list[int] = []
    labels: list[str] = []
    for size, dim in zip(block.shape, names, strict=True):
        axes = taken.get(dim, ())
        shape += [*(mesh.axes[axis] for axis in axes), size // mesh.size(*axes)]
        labels += [*axes, dim]
    cut = block.reshape(shape).transpose([labels.index(label) for label in (*order, *names)])
    return cut.reshape(mesh.size(*order), *cut.shape[len(order) :])


def joined(pieces: jax.Array, names: tuple[str, ...], given: Layout, order: tuple[str, ...], mesh: Mesh) -> jax.Array:
    """The pieces of each chip of a group put together along the dims that they come from."""
    whole = pieces.reshape(*(mesh.axes[axis] for axis in order), *pieces.shape[1:])
    labels = [*order, *names]
    wanted = [label for dim in names for label in (*given.get(dim, ()), dim)]
    whole = whole.transpose([labels.index(label) for label in wanted])
    sizes = dict(zip(wanted, whole.shape, strict=True))
    return whole.reshape([math.prod(sizes[label] for label in (*given.get(dim, ()), dim)) for dim in names])


def run_step(step: Step, block: jax.Array, mesh: Mesh) -> jax.Array:
    names, order = step.before.names, step.axes
    if step.kind == "slice":
        for dim, axes in gained(step).items():
            place, parts = names.index(dim), mesh.size(*axes)
            size = block.shape[place] // parts
            block = lax.dynamic_slice_in_dim(block, number(axes, mesh) * size, size, place)
        return block
    if step.kind == "all_gather":
        return joined(lax.all_gather(block, order), names, lost(step), order, mesh)
    if step.kind == "all_to_all":
        pieces = fronted(block, names, gained(step), order, mesh)
        return joined(lax.all_to_all(pieces, order, 0, 0), names, lost(step), order, mesh)
    if step.kind == "reduce_scatter":
        return lax.psum_scatter(fronted(block, names, gained(step), order, mesh), order)
    if step.kind == "all_reduce":
        return lax.psum(block, order)
    assert step.kind == "permute"
    return send(step, block, mesh)


def send(step: Step, block: jax.Array, mesh: Mesh) -> jax.Array:
    """Every chip gets its block, or a part of one, from some chip that has it (and the same partial sums)."""
    places = [dict(zip(mesh.axes, at, strict=True)) for at in itertools.product(*map(range, mesh.axes.values()))]
    before, after = layout_of(step.before), layout_of(step.after)
    ratio = {dim: mesh.size(*after[dim]) // mesh.size(*before[dim]) for dim in before}
    sums = step.before.partial
    holders: dict[tuple, list[int]] = {}
    for chip, at in enumerate(places):
        held = tuple(block_of(axes, at, mesh) for axes in before.values())
        holders.setdefault((held, tuple(at[axis] for axis in sums)), []).append(chip)
    pairs, parts = [], np.zeros((len(places), len(before)), np.int32)
    for chip, at in enumerate(places):
        wanted = {dim: block_of(axes, at, mesh) for dim, axes in after.items()}
        key = (tuple(wanted[dim] // ratio[dim] for dim in before), tuple(at[axis] for axis in sums))
        source = holders[key].pop()
        parts[source] = [wanted[dim] % ratio[dim] for dim in before]
        pairs.append((source, chip))
    mine = jnp.asarray(parts)[number(tuple(mesh.axes), mesh)]
    for place, dim in enumerate(before):
        size = block.shape[place] // ratio[dim]
        block = lax.dynamic_slice_in_dim(block, mine[place] * size, size, place)
    return lax.ppermute(block, tuple(mesh.axes), pairs)


def run_strategy(strategy: Strategy, operands: list[jax.Array], inputs: tuple[Array, ...], mesh: Mesh) -> jax.Array:
    blocks = list(operands)
    now = list(inputs)
    for step in strategy.before:
        place = now.index(step.before)
        blocks[place], now[place] = run_step(step, blocks[place], mesh), step.after
    assert tuple(now) == strategy.local.operands
    result, raw = jnp.einsum(formula_of(strategy.local), *blocks), strategy.local.output
    for step in strategy.after:
        assert step.before == raw
        result, raw = run_step(step, result, mesh), step.after
    return result


def varied(strategy: Strategy, mesh: Mesh, rng: random.Random) -> Strategy:
    """The same strategy with another legal walk from its raw result to the output (on three axes they are too many)."""
    if not strategy.after or len(mesh.axes) > 2:
        return strategy
    some = list(itertools.islice(walks(strategy.local.output, strategy.after[-1].after, mesh, most=2), 40))
    return Strategy(strategy.before, strategy.local, rng.choice(some), strategy.replicated) if some else strategy


def chosen(case: Case, mesh: Mesh, rng: random.Random) -> list[Strategy]:
    """The first strategy, some of the others, some that only gather, and some with other walks."""
    moving, gathering = derive(case.line, mesh), derive(case.line, mesh, prefer="gather")
    some = [moving[0], *rng.sample(moving, min(3, len(moving))), *rng.sample(gathering, min(2, len(gathering)))]
    return [*some, *(varied(strategy, mesh, rng) for strategy in rng.sample(moving, min(2, len(moving))))][:MOST]


def run_case(case: Case, rng: random.Random) -> dict[str, object]:
    mesh = Mesh(dict(case.mesh))
    strategies = chosen(case, mesh, rng)
    devices = np.array(jax.devices()[: case.chips]).reshape(tuple(case.mesh.values()))
    over = JaxMesh(devices, tuple(case.mesh))
    inputs, output = case.line.operands, to_partition_spec(case.line.output)
    numbers = np.random.default_rng(0)
    operands = [numbers.integers(-4, 5, shape_of(array, case.sizes)).astype(np.float32) for array in inputs]

    def every(left: jax.Array, right: jax.Array) -> list[jax.Array]:
        return [run_strategy(strategy, [left, right], inputs, mesh) for strategy in strategies]

    specs = tuple(to_partition_spec(array) for array in inputs)
    mapped = jax.shard_map(every, mesh=over, in_specs=specs, out_specs=[output] * len(strategies), check_vma=False)
    expected = np.einsum(formula_of(case.line), *operands)
    results = jax.jit(mapped)(*operands)
    wrong = [
        [str(step) for step in strategy.steps]
        for strategy, result in zip(strategies, results, strict=True)
        if not np.array_equal(np.asarray(result), expected)
    ]
    kinds = sorted({step.kind for strategy in strategies for step in strategy.steps})
    return {"ran": len(strategies), "wrong": wrong, "kinds": kinds}


def main() -> None:
    rng = random.Random(0)
    for text in sys.stdin:
        case = Case.from_json(text)
        for line in (case.line, *backward(case.line)):
            answer = run_case(Case(line, case.sizes, case.mesh), rng)
            print(json.dumps({"line": str(line), "mesh": case.mesh} | answer), flush=True)


if __name__ == "__main__":
    main()
