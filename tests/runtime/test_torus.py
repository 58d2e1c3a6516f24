"""Sums over a whole torus, scattered along one row of it after the other, are what one scatter gives."""

from dataclasses import dataclass
from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

from dragonscale.physics.sharding.torus_rows import ScatterPhase, scatter_phases  # noqa: E402
from dragonscale.runtime.place import Place, mesh_of, torus_of  # noqa: E402
from dragonscale.training.plan.plan import Plan  # noqa: E402

SIZES, TORUS = {"data": 2, "fsdp": 4}, {"data": (2,), "fsdp": (2, 2)}


@pytest.mark.parametrize("dim", [0, 1])
def test_phases_scatter_what_one_scatter_does(dim: int, eight: list[Any]) -> None:
    mesh, axes = Mesh(numpy.array(eight).reshape(2, 4), tuple(SIZES)), tuple(SIZES)
    given = jax.random.normal(jax.random.key(0), (8, 16, 24, 2))

    def step(place: Place) -> Any:
        def local(value: Any) -> tuple[Any, Any]:
            own = value[0]
            gather = lambda part: place._gather(part, dim, axes, weight=True)  # noqa: E731
            whole, pull = jax.vjp(gather, place.part(own, dim, axes))
            return place._scatter(own, dim, axes)[None], pull(whole * own)[0][None]

        spec = PartitionSpec(axes)
        return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=(spec, spec), check_vma=False)

    once, phased = step(Place(SIZES)), step(Place(SIZES, torus=TORUS))
    for wanted, found in zip(jax.jit(once)(given), jax.jit(phased)(given), strict=True):
        assert jnp.allclose(found, wanted, atol=1e-5)
    counts = [str(jax.make_jaxpr(each)(given)).count("reduce_scatter[") for each in (once, phased)]
    assert counts == [2, 6]


def test_only_sums_over_all_chips_go_in_phases() -> None:
    place = Place(SIZES, torus=TORUS)
    assert place._phases(("fsdp",)) == (ScatterPhase(("fsdp",), 4),)
    assert place._phases(("data", "fsdp")) == scatter_phases(TORUS, ("data", "fsdp"))


@dataclass(frozen=True)
class Chip:
    """A TPU device, described."""

    coords: tuple[int, ...]
    core_on_chip: int


def chips(*sides: int, cores: int = 1) -> list[Any]:
    """Described TPU devices as JAX lists them, in some other order than row by row."""
    places = numpy.indices((*sides, cores)).reshape(len(sides) + 1, -1).T
    return [Chip(tuple(map(int, at[-2::-1])), int(at[-1])) for at in places[::-1]]


@pytest.mark.parametrize(
    ("sides", "cores", "plan", "rows"),
    [
        ((4, 4), 1, Plan(fsdp=16), (4, 4)),
        ((2, 2, 2), 1, Plan(fsdp=4, tensor=2), (2, 2)),
        ((2, 4), 1, Plan(fsdp=8), None),  # one ring goes through a rectangle
        ((2, 2), 1, Plan(fsdp=4), None),
        ((8,), 1, Plan(fsdp=8), None),
        ((2, 2, 2), 2, Plan(fsdp=16), None),
    ],
)
def test_a_mesh_lies_in_rows_of_the_torus(
    sides: tuple[int, ...], cores: int, plan: Plan, rows: tuple[int, ...] | None
) -> None:
    assert torus_of(mesh_of(plan, chips(*sides, cores=cores))).get("fsdp") == rows
