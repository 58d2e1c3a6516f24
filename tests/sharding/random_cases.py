"""Random einsums over random meshes in random layouts: the shared source of the property tests.

Half the cases are *coherent*: each mesh axis has a favourite index and most arrays follow it, as real programs do. The
other half are arbitrary: every array is laid out on its own. Every mesh axis splits at least one array.
"""

import math
import random

from dragonscale.physics.notation import Array, Dim, Einsum
from tests.sharding.xla.einsum_worker import Case

ROLES = ("batch", "sum", "left", "right", "sum", "left", "right")
HELD = {"A": ("batch", "sum", "left"), "B": ("batch", "sum", "right"), "C": ("batch", "left", "right")}


def draw_mesh(rng: random.Random, most: int) -> dict[str, int]:
    while True:
        count = rng.choice((1, 1, 2, 2, 2, 3, 3))
        mesh = {axis: rng.choice((2, 4, 8)) for axis in "XYZ"[:count]}
        if math.prod(mesh.values()) <= most:
            return mesh


def draw_dims(rng: random.Random) -> tuple[str, dict[str, list[str]]]:
    """The indices, and which of them each array has, in random order."""
    while True:
        indices = "IJKLM"[: rng.randint(2, 5)]
        roles = {index: rng.choice(ROLES) for index in indices}
        dims = {name: [index for index in indices if roles[index] in held] for name, held in HELD.items()}
        if dims["A"] and dims["B"]:
            for order in dims.values():
                rng.shuffle(order)
            return indices, dims


def draw_layout(
    rng: random.Random, dims: list[str], mesh: dict[str, int], favourite: dict[str, str]
) -> dict[str, tuple]:
    """Axes for dims: mostly the favourites where there are any, else anything."""
    layout: dict[str, list[str]] = {dim: [] for dim in dims}
    axes = list(mesh)
    rng.shuffle(axes)
    for axis in axes:
        chance = rng.random()
        if favourite and chance < 0.75:
            if favourite[axis] in layout:
                layout[favourite[axis]].append(axis)
        elif dims and chance < 0.87:
            layout[rng.choice(dims)].append(axis)
    tidy = bool(favourite) and rng.random() < 0.8
    return {dim: tuple(sorted(held) if tidy else held) for dim, held in layout.items()}


def draw_case(rng: random.Random, most_chips: int = 64, multiples: tuple[int, ...] = ()) -> Case:
    """A case whose every size is a multiple of the number of chips, so that anything divides."""
    mesh = draw_mesh(rng, most_chips)
    indices, dims = draw_dims(rng)
    chips = math.prod(mesh.values())
    factors = multiples or ((1, 1, 2, 4, 16, 64) if len(indices) <= 3 else (1, 1, 2, 4))
    sizes = {index: chips * rng.choice(factors) for index in indices}
    coherent = rng.random() < 0.5
    while True:
        favourite = {axis: rng.choice(indices) for axis in mesh} if coherent else {}
        layouts = {name: draw_layout(rng, dims[name], mesh, favourite) for name in "ABC"}
        used = {axis for layout in layouts.values() for held in layout.values() for axis in held}
        if used == set(mesh):
            break
    left, right, output = (
        Array(name, tuple(Dim(dim, None, layouts[name][dim]) for dim in dims[name]), "bf16") for name in "ABC"
    )
    return Case(Einsum((left, right), output), sizes, mesh)


def draw_cases(count: int, seed: int, most_chips: int = 64, multiples: tuple[int, ...] = ()) -> list[Case]:
    rng = random.Random(seed)
    return [draw_case(rng, most_chips, multiples) for _ in range(count)]
