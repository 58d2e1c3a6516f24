"""Ways through a torus, against a search that knows nothing of the formulas."""

import itertools
from collections import Counter, deque

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.physics.collectives import gather_time, transfer_time
from dragonscale.physics.hardware import (
    Slice,
    axis_diameter,
    disjoint_paths,
    eccentricity,
    hops,
    load_chip,
    parse_slice,
)

SHAPES = [("v5e", shape) for shape in [(2, 2), (2, 4), (4, 4), (2, 8), (1, 6), (3, 5), (2, 16)]]
SHAPES += [("v5p", shape) for shape in [(2, 2, 1), (2, 2, 2), (2, 2, 4), (1, 2, 5), (2, 3, 3), (4, 4, 4)]]


def links(piece: Slice) -> Counter:
    """Every one-way link of a slice."""
    found: Counter = Counter()
    for place in itertools.product(*map(range, piece.shape)):
        for axis, (size, wraps) in enumerate(zip(piece.shape, piece.wrap, strict=True)):
            for step in (-1, 1):
                to = place[axis] + step
                if wraps or 0 <= to < size:
                    found[place, (*place[:axis], to % size, *place[axis + 1 :])] += 1
    return found


def flow(piece: Slice, source: tuple, target: tuple) -> int:
    """Ways without a common link, by augmenting paths."""
    free = links(piece)
    for found in itertools.count():
        came: dict = {source: None}
        queue = deque([source])
        while queue and target not in came:
            here = queue.popleft()
            for (start, end), left in list(free.items()):
                if start == here and left and end not in came:
                    came[end] = here
                    queue.append(end)
        if target not in came:
            return found
        end = target
        while came[end] is not None:
            free[came[end], end] -= 1
            free[end, came[end]] += 1
            end = came[end]
    raise AssertionError


@pytest.mark.parametrize(("chip", "shape"), SHAPES)
def test_disjoint_paths_are_those_of_a_search(chip: str, shape: tuple[int, ...]) -> None:
    piece = Slice(load_chip(chip), shape)
    places = list(itertools.product(*map(range, shape)))
    pairs = list(itertools.combinations(places, 2))
    for source, target in pairs[:: max(1, len(pairs) // 12)]:
        assert disjoint_paths(piece, source, target) == flow(piece, source, target), (source, target)


@pytest.mark.parametrize(("chip", "shape"), SHAPES)
def test_the_farthest_chip(chip: str, shape: tuple[int, ...]) -> None:
    piece = Slice(load_chip(chip), shape)
    places = list(itertools.product(*map(range, shape)))
    for place in places[:20]:
        assert eccentricity(piece, place) == max(hops(piece, place, other) for other in places)
    corner = (0,) * len(shape)
    assert eccentricity(piece, corner) == sum(map(axis_diameter, piece.shape, piece.wrap))


def test_three_kinds_of_number() -> None:
    import numpy
    import sympy

    volume, size = sympy.symbols("V N", positive=True)
    piece, ends = parse_slice("v5e:4x4"), ((0, 0), (3, 3))
    volumes = numpy.array([1e6, 1e9])
    assert float(transfer_time(volume, piece, *ends).bandwidth.subs(volume, 1e9)) == pytest.approx(1e9 / 90e9)
    assert transfer_time(volumes, piece, *ends).upper.tolist() == [
        transfer_time(v, piece, *ends).upper for v in volumes
    ]
    assert gather_time(volumes, piece, (0, 0)).bandwidth[1] == gather_time(1e9, piece, (0, 0)).bandwidth
    assert axis_diameter(size, wraps=True) == sympy.floor(size / 2)


@pytest.mark.parametrize(
    ("slice_text", "source", "target", "says"),
    [
        ("v5e:4x4", (0, 0), (4, 0), "positions go from"),
        ("v5e:4x4", (0, 0, 0), (1, 1), "has no chip at"),
        ("v5e:4x4", (1, 1), (1, 1), "choose two chips"),
        ("h100:8", (0,), (1,), "hangs on switches"),
    ],
)
def test_wrong_positions(slice_text: str, source: tuple[int, ...], target: tuple[int, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        transfer_time(1.0, parse_slice(slice_text), source, target)


def test_a_slice_says_how_far_its_chips_are_apart() -> None:
    assert ds.chips("v5e:8x16").farthest_hops == 15
    assert ds.chips("h100:64").farthest_hops is None
    assert ds.chips("tpu7x").pod.hosts * 4 == ds.chips("tpu7x").pod.chips == 9216
    assert [row.cables for row in ds.chips("h100:1024").tiers] == [128 * 8 * 18, 1024, 1024]
