"""Meshes over real chips: which wires each axis gets."""

import math

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.collectives import Rings, Stacked, Switches, Wide, collective_time
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.sharding import Mesh, make_mesh, natural_mesh


def rings(mesh: Mesh, axis: str) -> list[tuple[int, bool, float]]:
    return [(ring.size, bool(ring.wrap), ring.share) for ring in mesh.rings[axis]]


def on(slice_text: str, axes: dict[str, int]) -> Mesh:
    piece = parse_slice(slice_text)
    return make_mesh(dict(axes), piece.chip, piece)


@pytest.mark.parametrize(
    ("piece", "axes", "expected"),
    [
        # Whole hardware axes where the sizes allow it; several make one mesh axis wider.
        ("v5p:4x4x4", {"X": 16, "Y": 4}, {"X": [(4, True, 1), (4, True, 1)], "Y": [(4, True, 1)]}),
        ("v5p:4x4x4", {"X": 64}, {"X": [(4, True, 1)] * 3}),
        ("v5p:4x4x4", {"X": 4, "Y": 4, "Z": 4}, {axis: [(4, True, 1)] for axis in "XYZ"}),
        ("v5p:8x4x4", {"X": 4, "Y": 32}, {"X": [(4, True, 1)], "Y": [(8, True, 1), (4, True, 1)]}),
        ("v5e:16x16", {"X": 16, "Y": 16}, {"X": [(16, True, 1)], "Y": [(16, True, 1)]}),
        ("v5e:4x8", {"X": 4, "Y": 8}, {"X": [(4, False, 1)], "Y": [(8, False, 1)]}),
        # An axis of one chip has no wires.
        ("v5e:4x8", {"X": 4, "Y": 8, "Z": 1}, {"X": [(4, False, 1)], "Y": [(8, False, 1)], "Z": []}),
        # Shared hardware axes: the inner part is a line, the outer keeps the ring with links in common.
        ("v5e:16x16", {"X": 64, "Y": 4}, {"X": [(4, True, 0.25), (16, True, 1)], "Y": [(4, False, 1)]}),
        ("v5e:4x4", {"X": 2, "Y": 8}, {"X": [(2, False, 0.5)], "Y": [(4, False, 1), (2, False, 1)]}),
    ],
)
def test_axes_on_tori(piece: str, axes: dict[str, int], expected: dict[str, list]) -> None:
    mesh = on(piece, axes)
    assert {axis: rings(mesh, axis) for axis in axes} == expected
    for axis, size in axes.items():
        assert math.prod(ring.size for ring in mesh.rings[axis]) == size


def test_two_hardware_axes_are_twice_as_fast() -> None:
    mesh = on("v5p:4x4x4", {"X": 16, "Y": 4})
    both, one = (collective_time("all_gather", 1e9, mesh.group((axis,))).bandwidth for axis in "XY")
    assert one == pytest.approx(2 * both)
    everything = mesh.group(("X", "Y"))
    assert isinstance(everything, Rings)
    assert len(everything.axes) == 3


def test_pods_go_to_the_first_axis() -> None:
    mesh = on("v5e:16x16*4", {"X": 64, "Y": 16})
    assert mesh.pods == {"X": 4}
    group = mesh.group(("X",))
    assert isinstance(group, Stacked)
    assert isinstance(group.outer, Wide)
    assert (group.inner.size, group.outer.size) == (16, 4)
    assert isinstance(mesh.group(("Y",)), Rings)


def test_under_switches_the_last_axis_is_innermost() -> None:
    mesh = on("h100:64", {"X": 8, "Y": 8})
    inner, outer = mesh.group(("Y",)), mesh.group(("X",))
    assert isinstance(inner, Switches)
    assert isinstance(outer, Switches)
    assert (inner.stride, outer.stride) == (1, 8)
    inside, outside = (collective_time("all_gather", 1e9, group).bandwidth for group in (inner, outer))
    assert outside > inside


def test_natural_meshes() -> None:
    assert natural_mesh(parse_slice("v5p:4x4x8")).axes == {"X": 4, "Y": 4, "Z": 8}
    assert natural_mesh(parse_slice("v5e:16x16*2")).axes == {"pod": 2, "X": 16, "Y": 16}
    assert natural_mesh(parse_slice("h100:16")).axes == {"X": 16}


@pytest.mark.parametrize(
    ("piece", "axes", "sentence"),
    [
        ("v5e:4x4", {"X": 8}, "The mesh X=8 has 8 chips and v5e:4x4 has 16; they must agree."),
        ("v5e:16x16*4", {"X": 2, "Y": 512}, None),
    ],
)
def test_what_does_not_fit_is_said(piece: str, axes: dict[str, int], sentence: str | None) -> None:
    if sentence is None:  # pods may be shared between axes
        assert on(piece, axes).pods == {"X": 2, "Y": 2}
        return
    with pytest.raises(InputError) as error:
        on(piece, axes)
    assert str(error.value) == sentence


def test_unknown_axes_and_missing_chips_are_said() -> None:
    with pytest.raises(InputError, match="There is no mesh axis 'Z'"):
        Mesh({"X": 4}).size("Z")
    with pytest.raises(InputError, match="A collective has a time only on a chip"):
        Mesh({"X": 4}).group(("X",))
    assert make_mesh({"X": 4}, load_chip("v5e")).group(("X",)).size == 4
