"""Pipelines compute what a plain scan over the layers computes, under the planner's schedules, with permutes alone."""

from collections import Counter
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import read_collectives  # noqa: E402
from dragonscale.runtime.pipeline import Pipeline, into_chunks, pipelined_loss  # noqa: E402
from dragonscale.runtime.tick_table import table_of  # noqa: E402
from dragonscale.training.plan.pipeline_order import max_in_flight, timeline  # noqa: E402
from dragonscale.training.plan.stages import bubble, held_microbatches  # noqa: E402

LAYERS, M, B, D = 8, 4, 2, 8
RUNS = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1}


@pytest.mark.parametrize(
    ("schedule", "pipe", "virtual", "microbatches"),
    [
        ("gpipe", 4, 1, 8),
        ("gpipe", 1, 1, 3),
        ("1f1b", 4, 1, 8),
        ("1f1b", 4, 1, 2),
        ("1f1b", 3, 1, 7),
        ("interleaved", 4, 2, 8),
        ("interleaved", 2, 3, 8),
        ("interleaved", 4, 3, 4),
        ("interleaved", 8, 4, 32),
        ("zb-h1", 4, 1, 8),
        ("zb-h1", 3, 1, 3),
        ("zb-h1", 8, 1, 24),
    ],
)
def test_the_order_has_the_planners_bubble_and_memory(
    schedule: str, pipe: int, virtual: int, microbatches: int
) -> None:
    ticks = timeline(schedule, pipe, virtual, microbatches)
    split = schedule == "zb-h1"
    work = (2 + split) * microbatches * virtual
    assert len(ticks) == work + bubble(schedule, pipe, virtual, virtual, (1 + split) * virtual, split)
    assert max_in_flight(ticks, 0) == held_microbatches(schedule, pipe, virtual, microbatches) * virtual
    for rank in range(pipe):
        done = [tick[rank] for tick in ticks if tick[rank] is not None]
        assert len(done) == len(set(done)) == work
    # Slots are what ranks but the first hold, and what arrived a little before its turn.
    table = table_of(ticks, pipe, virtual)
    assert table.inputs <= max_in_flight(ticks, 0) + pipe
    assert table.kept == max_in_flight(ticks, 0) == max(max_in_flight(ticks, rank) for rank in range(pipe))
    assert table.late == (pipe if split else 0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("dualpipe", 4, 1, 8), "planned but not run"),
        (("1f1b", 4, 2, 8), "interleaved"),
        (("interleaved", 4, 2, 6), "not a multiple"),
        (("1f1b", 4, 1, 0), "at least one"),
    ],
)
def test_schedules_that_cannot_be(wrong: tuple[str, int, int, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        timeline(*wrong)


def layer(own: Any, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ own["w"]) @ own["v"]


def stage(weights: Any, x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda x, own: (layer(own, x), None), x, weights)[0]


def last(head: Any, y: jax.Array, target: jax.Array) -> jax.Array:
    logits = y @ head
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], -1).sum()


def arrays() -> tuple[Any, ...]:
    keys = jax.random.split(jax.random.key(4), 5)
    weights = {
        "w": jax.random.normal(keys[0], (LAYERS, D, 2 * D)) * 0.3,
        "v": jax.random.normal(keys[1], (LAYERS, 2 * D, D)) * 0.3,
    }
    head = jax.random.normal(keys[2], (D, 16))
    return weights, head, jax.random.normal(keys[3], (M, B, D)), jax.random.randint(keys[4], (M, B), 0, 16)


def plain(weights: Any, head: Any, x: jax.Array, targets: jax.Array) -> jax.Array:
    return jax.vmap(lambda x, t: last(head, stage(weights, x), t))(x, targets).sum()


def mesh_of(devices: list[Any], **axes: int) -> Mesh:
    count = 1
    for size in axes.values():
        count *= size
    types = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types, devices=devices[:count])


def on_every_chip(pipeline: Pipeline) -> Any:
    """Loss and gradients of whole arrays: weights by stage, microbatches over `data` where the mesh has it."""
    axes = tuple(pipeline.mesh.axis_names)
    data = tuple(axis for axis in axes if axis == "data")
    batch = PartitionSpec(None, data or None)
    run = pipelined_loss(pipeline, layer, last)

    def local(weights: Any, head: Any, x: jax.Array, targets: jax.Array) -> Any:
        own = jax.tree.map(lambda leaf: leaf[:, 0], weights)
        value, (to_own, to_head, to_x) = jax.value_and_grad(run, (0, 1, 2))(own, head, x, targets)
        to_own = jax.lax.psum(to_own, data) if data else to_own
        to_weights = jax.tree.map(lambda leaf: leaf[:, None], to_own)
        return jax.lax.psum(value, axes), (to_weights, jax.lax.psum(to_head, axes), jax.lax.psum(to_x, "pipe"))

    staged = PartitionSpec(None, "pipe")
    specs = (staged, PartitionSpec(), batch, batch)
    out = (PartitionSpec(), (staged, PartitionSpec(), batch))
    return jax.shard_map(local, mesh=pipeline.mesh, in_specs=specs, out_specs=out, check_vma=False)


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param("gpipe", marks=pytest.mark.slow),
        "1f1b",
        pytest.param("interleaved", marks=pytest.mark.slow),
        "zb-h1",
    ],
)
def test_loss_and_gradients_are_those_of_the_plain_scan(schedule: str, eight: list[Any]) -> None:
    run = on_every_chip(Pipeline(mesh_of(eight, pipe=4, data=2), schedule, RUNS[schedule]))
    weights, *rest = arrays()
    chunks = into_chunks(weights, 4, RUNS[schedule])
    value, found = jax.jit(run)(chunks, *rest)
    wanted_value, wanted = jax.jit(jax.value_and_grad(plain, (0, 1, 2)))(weights, *rest)
    wanted = (into_chunks(wanted[0], 4, RUNS[schedule]), *wanted[1:])
    assert abs(value - wanted_value) < 3e-4
    for got, right in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert jnp.abs(got - right).max() < 3e-4


def test_stages_with_fewer_layers_are_filled_up(eight: list[Any]) -> None:
    """One layer at each end and three between them: zeros add nothing, and their gradients are nobody's."""
    weights, *rest = arrays()
    run = on_every_chip(Pipeline(mesh_of(eight, pipe=4)))

    def filled(weights: Any) -> Any:
        return into_chunks(weights, 4, 1, (1, 3, 3, 1))

    chunks, pull = jax.vjp(filled, weights)
    assert chunks["w"].shape == (1, 4, 3, D, 2 * D)
    value, (to_chunks, *others) = jax.jit(run)(chunks, *rest)
    wanted_value, wanted = jax.jit(jax.value_and_grad(plain, (0, 1, 2)))(weights, *rest)
    assert abs(value - wanted_value) < 3e-4
    found = (pull(to_chunks)[0], *others)
    for got, right in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert jnp.abs(got - right).max() < 3e-4


def counted(function: Any, *arguments: Any) -> Counter[str]:
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return Counter(each.kind for each in read_collectives(text) for _ in range(each.times))


def test_activations_are_passed_on_and_weights_stay(eight: list[Any]) -> None:
    """Two permutes a tick; the gradients of what all share are added up once. The plain scan gathers every weight."""
    mesh = mesh_of(eight, pipe=4)
    weights, head, x, targets = arrays()
    split = NamedSharding(mesh, PartitionSpec("pipe"))
    weights = jax.device_put(weights, split)
    run = on_every_chip(Pipeline(mesh))
    found = counted(lambda w, *rest: run(into_chunks(w, 4), *rest), weights, head, x, targets)
    assert set(found) == {"permute", "all_reduce"}
    assert found["permute"] == 2 * len(timeline("1f1b", 4, 1, M))
    assert found["all_reduce"] <= 3
    assert counted(jax.grad(plain, (0, 1, 2)), weights, head, x, targets)["all_gather"] >= 2


def test_wrong_pipelines_are_refused(eight: list[Any]) -> None:
    mesh = mesh_of(eight, pipe=4)
    with pytest.raises(InputError, match="needs a mesh that has it"):
        Pipeline(mesh, axis="stage")
    with pytest.raises(InputError, match="multiple of 16"):
        into_chunks(arrays()[0], 4, 4)
