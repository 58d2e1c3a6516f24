"""Pipelines compute what a plain scan over the layers computes, under the planner's schedules, with permutes alone."""

from collections import Counter
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import read_collectives  # noqa: E402
from dragonscale.runtime.pipeline import Pipeline, deal, pipelined, pipelined_loss  # noqa: E402
from dragonscale.runtime.pipeline_table import table_of  # noqa: E402
from dragonscale.training.pipeline_order import held, timeline  # noqa: E402
from dragonscale.training.stages import bubble, held_microbatches  # noqa: E402

LAYERS, M, B, D = 8, 4, 2, 8
RUNS = {"gpipe": 1, "1f1b": 1, "interleaved": 2}


@pytest.mark.parametrize(
    ("schedule", "pipe", "virtual", "microbatches"),
    [
        ("gpipe", 4, 1, 8), ("gpipe", 1, 1, 3), ("1f1b", 4, 1, 8), ("1f1b", 4, 1, 2), ("1f1b", 3, 1, 7),
        ("interleaved", 4, 2, 8), ("interleaved", 2, 3, 8), ("interleaved", 4, 3, 4), ("interleaved", 8, 4, 32),
    ],
)  # fmt: skip
def test_the_order_has_the_planners_bubble_and_memory(
    schedule: str, pipe: int, virtual: int, microbatches: int
) -> None:
    ticks = timeline(schedule, pipe, virtual, microbatches)
    work = 2 * microbatches * virtual
    assert len(ticks) == work + bubble(schedule, pipe, virtual, virtual, virtual, 0)
    assert held(ticks, 0) == held_microbatches(schedule, pipe, virtual, microbatches) * virtual
    for rank in range(pipe):
        done = [tick[rank] for tick in ticks if tick[rank] is not None]
        assert len(done) == len(set(done)) == work
    # Slots are what ranks but the first hold, and what arrived a little before its turn.
    table = table_of(ticks, pipe, virtual)
    assert table.inputs <= held(ticks, 0) + pipe


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


def stage(weights: Any, x: jax.Array) -> jax.Array:
    def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
        return x + jnp.tanh(x @ own["w"]) @ own["v"], None

    return jax.lax.scan(layer, x, weights)[0]


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


@pytest.mark.parametrize("schedule", RUNS)
def test_loss_and_gradients_are_those_of_the_plain_scan(schedule: str, eight: list[Any]) -> None:
    mesh = mesh_of(eight, pipe=4, data=2)
    run = pipelined_loss(Pipeline(mesh, schedule, RUNS[schedule]), stage, last)

    def loss(weights: Any, head: Any, x: jax.Array, targets: jax.Array) -> jax.Array:
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(None, "data")))
        return run(deal(weights, 4, RUNS[schedule]), head, x, targets) / 3

    given = arrays()
    value, found = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*given)
    wanted_value, wanted = jax.jit(jax.value_and_grad(lambda *each: plain(*each) / 3, (0, 1, 2)))(*given)
    assert abs(value - wanted_value) < 1e-4
    for got, right in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert jnp.abs(got - right).max() < 1e-4
    assert abs(jax.jit(loss)(*given) - wanted_value) < 1e-4  # without gradients, another walk


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_the_forward_pass_alone(schedule: str, eight: list[Any]) -> None:
    virtual = RUNS[schedule]
    mesh = mesh_of(eight, pipe=2)
    weights, _, x, _ = arrays()
    run = pipelined(Pipeline(mesh, schedule, virtual), stage)
    wanted = jax.vmap(lambda x: stage(weights, x))(x)
    assert jnp.abs(jax.jit(lambda w, x: run(deal(w, 2, virtual), x))(weights, x) - wanted).max() < 1e-5


def counted(function: Any, *arguments: Any) -> Counter[str]:
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return Counter(each.kind for each in read_collectives(text) for _ in range(each.times))


def test_activations_are_passed_on_and_weights_stay(eight: list[Any]) -> None:
    """Two permutes a tick; the gradients of what all share are added up once. The plain scan gathers every weight."""
    mesh = mesh_of(eight, pipe=4)
    weights, head, x, targets = arrays()
    split = NamedSharding(mesh, PartitionSpec("pipe"))
    weights = jax.device_put(weights, split)
    run = pipelined_loss(Pipeline(mesh), stage, last)
    found = counted(jax.grad(lambda w, *rest: run(deal(w, 4), *rest), (0, 1, 2)), weights, head, x, targets)
    assert set(found) == {"permute", "all_reduce"}
    assert found["permute"] == 2 * len(timeline("1f1b", 4, 1, M))
    assert found["all_reduce"] <= 3
    assert counted(jax.grad(plain, (0, 1, 2)), weights, head, x, targets)["all_gather"] >= 2


def test_wrong_pipelines_are_refused(eight: list[Any]) -> None:
    mesh = mesh_of(eight, pipe=4)
    with pytest.raises(InputError, match="needs a mesh that has it"):
        Pipeline(mesh, axis="stage")
    with pytest.raises(InputError, match="multiple of 16"):
        deal(arrays()[0], 4, 4)
