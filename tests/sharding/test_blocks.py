"""Where `dscale shard` says that blocks lie, held against JAX's own map of devices."""

from typing import Any

import pytest

import dragonscale as ds
from dragonscale.physics.notation import parse_array
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from tests.runtime.conftest import use_virtual_devices

MESH = {"X": 2, "Y": 4}
LAYOUTS = ("A[I_X, J]", "A[I_XY, J]", "A[I_YX, J]", "A[I_Y, J_X]", "A[I, J]", "A[I, J_YX]")


def written(indices: tuple[slice, ...]) -> list[str]:
    return [f"{one.start or 0}:{64 if one.stop is None else one.stop}" for one in indices]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_lie_where_jax_puts_them(layout: str) -> None:
    use_virtual_devices()
    jax: Any = pytest.importorskip("jax")
    types = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=types, devices=jax.devices()[:8])
    sharding = jax.NamedSharding(mesh, to_partition_spec(parse_array(layout)))
    theirs = {device.id: written(held) for device, held in sharding.devices_indices_map((64, 64)).items()}
    ours = ds.shard(layout, mesh=MESH, sizes={"I": 64, "J": 64})
    assert {row.chip: row.holds for row in ours.blocks} == theirs
    assert str(sharding.spec).removeprefix("Partition").replace("Spec(", "P(") == ours.partition_spec


def test_a_layout_names_its_replicas_and_moves_nothing() -> None:
    found = ds.shard("A:int8[I_XY, J]", mesh={"X": 2, "Y": 8, "Z": 2}, sizes={"I": 128, "J": 2048})
    [array] = found.forward[0].arrays
    assert (array.local_bytes, array.total_bytes, array.replicas) == (16384, 524288, 2)
    assert "replicated over Z" in found.advice
    assert not found.forward_collectives
    assert found.partition_spec == "P(('X', 'Y'), None)"


def test_a_reshard_keeps_the_dtype() -> None:
    there = ds.shard("A:fp32[I_X, J] -> A[I, J]", mesh={"X": 4}, sizes={"I": 64, "J": 64})
    assert [row.local_bytes for row in there.forward[0].arrays] == [64 * 64, 4 * 64 * 64]


def test_a_chain_skips_intermediates_that_do_not_divide() -> None:
    line = "In[B, D] · Up[D, F_X] · Down[F_X, D] -> Out[B, D]"
    found = ds.shard(line, mesh={"X": 8}, sizes={"B": 1, "D": 1024, "F": 4096})
    assert [move.collective for move in found.forward_collectives] == ["all_reduce"]


def test_a_reshard_needs_no_rate_of_its_dtype() -> None:
    [way] = ds.shard("A:fp32[I_X, J] -> A[I, J]", on="v5e:4x4", sizes={"I": 2048, "J": 4096}).best
    assert (way.math_s, way.bound_by) == (0.0, "network")
