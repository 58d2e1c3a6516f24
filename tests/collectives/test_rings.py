"""An AllToAll on a ring, held against its pieces followed link by link; what goes one way round takes the long way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.physics.collectives import Options, Ring, Rings, collective_time

LINK, HOP, VOLUME = 45e9, 1e-6, 64e6


def followed(size: int, one_way: bool) -> tuple[int, float]:
    """Links that the farthest piece crosses, and pieces over the busiest link one way; a piece as far either way is
    halved."""
    loads: dict[tuple[int, int], float] = {}
    farthest = 0
    for source in range(size):
        for distance in range(1, size):
            ways = [1] if one_way or 2 * distance < size else [-1] if 2 * distance > size else [1, -1]
            for way in ways:
                steps = distance if way > 0 else size - distance
                farthest = max(farthest, steps)
                for step in range(steps):
                    at = ((source + way * step) % size, way)
                    loads[at] = loads.get(at, 0.0) + 1 / len(ways)
    return farthest, max(loads.values())


@given(half=st.integers(1, 12), one_way=st.booleans())
def test_an_all_to_all_takes_as_long_as_its_pieces_do(half: int, one_way: bool) -> None:
    size = 2 * half
    cost = collective_time("all_to_all", VOLUME, Rings((Ring(size),), LINK, HOP), Options(exact=True, one_way=one_way))
    hops, pieces = followed(size, one_way)
    assert cost.latency == pytest.approx(hops * HOP)
    assert cost.bandwidth == pytest.approx(pieces * VOLUME / size**2 / LINK)


@given(
    kind=st.sampled_from(["all_gather", "reduce_scatter", "all_to_all"]), sizes=st.lists(st.integers(1, 16), max_size=3)
)
def test_one_way_round_every_axis_is_crossed_but_for_one_link(kind: str, sizes: list[int]) -> None:
    group = Rings(tuple(map(Ring, (2, *sizes))), LINK, HOP)
    cost = collective_time(kind, VOLUME, group, Options(one_way=True))
    assert cost.latency == pytest.approx(HOP * (1 + sum(size - 1 for size in sizes)))
