"""Collectives held against their pieces: every chip's blocks, one by one, over the wires that they cross."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.physics.collectives import Options, Ring, Rings, Stacked, Switches, Wide, collective_time, wire_bytes
from dragonscale.physics.collectives.cost import ragged_fill, sent_bytes, stages
from dragonscale.physics.collectives.group import joined
from dragonscale.physics.collectives.tiers import tier_seconds
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.chip import Level
from dragonscale.physics.sharding.placement import lay_wires

LINK, EGRESS, VOLUME = 45e9, 6.25e9, 64e6
EXACT = Options(exact=True)
AXES = ("data", "expert", "tensor")


def inner(size: int) -> Rings:
    return Rings((Ring(size),), LINK)


@pytest.mark.parametrize(("chips", "pods"), [(2, 2), (4, 2), (8, 4), (16, 3)])
def test_an_all_to_all_over_pods_sends_each_piece_once_inside_and_once_across(chips: int, pods: int) -> None:
    """Piece by piece: one for a chip of another pod first crosses to its own place there, over the network of the
    data centre, and what came for this pod is then dealt out inside: each of the two stages carries what one chip
    holds."""
    everyone = list(itertools.product(range(pods), range(chips)))
    piece = VOLUME / len(everyone) ** 2
    across, inside = Counter(), Counter()
    for (pod, chip), (to_pod, to_chip) in itertools.product(everyone, repeat=2):
        if pod != to_pod:
            across[pod, chip] += piece
        if chip != to_chip:
            inside[to_pod, chip] += piece
    group = Stacked(inner(chips), Wide(pods, EGRESS))
    first, second = stages("all_to_all", VOLUME, group)
    assert wire_bytes("all_to_all", second.volume, pods) == pytest.approx(max(across.values()))
    assert wire_bytes("all_to_all", first.volume, chips) == pytest.approx(max(inside.values()))
    cost = collective_time("all_to_all", VOLUME, group, EXACT)
    alone = collective_time("all_to_all", VOLUME / pods, inner(chips), EXACT)
    assert cost.bandwidth == pytest.approx(alone.bandwidth + max(across.values()) / EGRESS)


@given(chips=st.integers(2, 16), pods=st.integers(2, 8))
def test_over_pods_the_outer_wires_carry_one_chips_part(chips: int, pods: int) -> None:
    group = Stacked(inner(chips), Wide(pods, EGRESS))
    gather, scatter, reduce = (
        collective_time(kind, VOLUME, group, EXACT).bandwidth for kind in ("all_gather", "reduce_scatter", "all_reduce")
    )
    own = VOLUME / chips
    inside, outside = (
        collective_time("all_gather", VOLUME, inner(chips), EXACT).bandwidth,
        own * (pods - 1) / pods / EGRESS,
    )
    assert gather == scatter == pytest.approx(inside + outside)
    assert reduce == pytest.approx(2 * (inside + outside))


@given(size=st.integers(2, 64), wrap=st.booleans())
def test_a_gather_on_a_ring_brings_all_other_pieces_through_the_links_of_a_chip(size: int, wrap: bool) -> None:
    """Two links lead into a chip of a ring and one into the end of a line; an AllReduce does it twice."""
    group = Rings((Ring(size, wrap),), LINK, 1e-6)
    cost = collective_time("all_gather", VOLUME, group, EXACT)
    assert cost.bandwidth == pytest.approx((size - 1) * VOLUME / size / (LINK * (2 if wrap else 1)))
    assert cost.latency == pytest.approx(1e-6 * (size / 2 if wrap else size - 1))
    both = collective_time("all_reduce", VOLUME, group, EXACT)
    assert (both.bandwidth, both.latency) == pytest.approx((2 * cost.bandwidth, 2 * cost.latency))
    assert sent_bytes("all_reduce", VOLUME, group) == pytest.approx(2 * wire_bytes("all_gather", VOLUME, size))


LEVELS = (Level("node", 8, 400e9, 1e-6), Level("leaf", 4, 8 * 50e9, 2e-6), Level("spine", 16, 4 * 8 * 40e9, 3e-6))


def followed(size: int, stride: int) -> dict[str, float]:
    """The busiest link up of each tier, in pieces of an AllToAll of `stride` groups side by side, each piece one of
    size² of its group's array: what leaves a child of the tier's switch. In a node that is a chip, and pieces for
    other nodes are counted further up."""
    below, busiest = 1, {}
    for number, level in enumerate(LEVELS):
        loads: Counter[int] = Counter()
        above = below * level.degree
        for offset in range(stride):
            chips = [offset + place * stride for place in range(size)]
            for sender, receiver in itertools.permutations(chips, 2):
                inside = sender // above == receiver // above
                if sender // below != receiver // below and (inside or number):
                    loads[sender // below] += 1
        busiest[level.name] = max(loads.values(), default=0)
        below = above
    return busiest


@pytest.mark.parametrize(("size", "stride"), [(8, 1), (32, 1), (4, 8), (4, 2), (16, 2), (16, 8), (64, 8), (2, 32)])
def test_an_all_to_all_under_switches_takes_what_leaves_the_busiest_child(size: int, stride: int) -> None:
    group = Switches(size, LEVELS, stride)
    piece = VOLUME / size**2
    bandwidths = {level.name: level.bandwidth for level in LEVELS}
    wanted = {name: pieces * piece / bandwidths[name] for name, pieces in followed(size, stride).items()}
    assert tier_seconds("all_to_all", VOLUME, group, EXACT) == pytest.approx(wanted)
    assert collective_time("all_to_all", VOLUME, group, EXACT).bandwidth == pytest.approx(max(wanted.values()))


@pytest.mark.parametrize(("size", "stride"), [(8, 1), (32, 1), (4, 8), (16, 8), (64, 8)])
def test_groups_side_by_side_share_the_links_above_their_node(size: int, stride: int) -> None:
    """A gather brings each child of a tier's switch all of the array but the part that it has, for every group that
    lies in it."""
    below, slowest = 1, 0.0
    for level in LEVELS:
        above = below * level.degree
        chips = [place * stride for place in range(size)]
        children = {chip // below for chip in chips if chip // above == 0}
        groups = len({offset for offset in range(stride) if offset < below})
        if len(children) > 1:
            slowest = max(slowest, groups * VOLUME * (len(children) - 1) / len(children) / level.bandwidth)
        below = above
    cost = collective_time("all_gather", VOLUME, Switches(size, LEVELS, stride), EXACT)
    assert cost.bandwidth == pytest.approx(slowest)


def test_switches_that_add_let_an_all_reduce_send_once() -> None:
    """In a node of the H100, whose switches add; a ring sends nearly twice as much."""
    group = Switches(8, load_chip("h100").network.levels)
    rate = group.levels[0].bandwidth
    plain, added = (
        collective_time("all_reduce", VOLUME, group, Options(exact=True, in_network=way)) for way in (False, True)
    )
    assert plain.bandwidth == pytest.approx(2 * VOLUME * 7 / 8 / rate)
    assert added.bandwidth == pytest.approx(VOLUME / rate)
    assert added.latency == pytest.approx(plain.latency / 2)
    assert sent_bytes("all_reduce", VOLUME, group, Options(in_network=True)) == VOLUME


@pytest.mark.parametrize(("picks", "shards"), [(1, 4), (2, 4), (3, 5)])
def test_the_part_of_an_all_to_all_that_is_not_empty(picks: int, shards: int) -> None:
    """Counted over all ways in which a token picks: shards that some pick falls on."""
    draws = list(itertools.product(range(shards), repeat=picks))
    hit = sum(len(set(draw)) for draw in draws) / len(draws) / shards
    assert ragged_fill(picks, shards) == pytest.approx(hit)
    full, part = (
        collective_time("all_to_all", VOLUME, inner(8), Options(filled=filled)).bandwidth for filled in (1.0, hit)
    )
    assert part == pytest.approx(hit * full)


def test_parts_of_one_torus_axis_are_joined_only_where_they_follow_each_other() -> None:
    """Of a ring of 16: chips 0-1 in steps of 1 and 2 make a line of 4; in steps of 1 and 8 they stay two links
    apart."""
    near = joined((Ring(2, False, 1, 0), Ring(2, False, 1 / 2, 0)))
    assert [(ring.size, ring.share) for ring in near] == [(4, 1)]
    apart = joined((Ring(2, False, 1, 0), Ring(2, False, 1 / 8, 0)))
    assert sorted(ring.size for ring in apart if ring.size > 1) == [2, 2]


@pytest.mark.parametrize("names", [("tensor",), ("expert",), ("data",), ("expert", "tensor"), ("data", "expert"), AXES])
def test_a_group_lies_as_far_apart_as_the_axes_behind_it(names: tuple[str, ...]) -> None:
    """Chips numbered with the last axis fastest: those of one group, listed."""
    sizes = dict(zip(AXES, (2, 4, 8), strict=True))
    places = itertools.product(*(range(sizes[axis]) if axis in names else (0,) for axis in AXES))
    chips = [(data * 4 + expert) * 8 + tensor for data, expert, tensor in places]
    group = lay_wires({name: float(size) for name, size in sizes.items()}, parse_slice("h100:64"), AXES).group(names)
    assert isinstance(group, Switches)
    assert group.size == len(chips)
    assert group.stride == chips[1] - chips[0]


@given(size=st.integers(2, 64), latency=st.floats(0, 1e-3))
def test_over_the_data_centre_network_an_all_reduce_is_a_scatter_and_a_gather(size: int, latency: float) -> None:
    """Both halves pay the network's latency, as they do on a ring."""
    group = Wide(size, EGRESS, latency)
    whole, scatter, gather = (
        collective_time(kind, VOLUME, group, EXACT) for kind in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert whole.bandwidth == pytest.approx(scatter.bandwidth + gather.bandwidth)
    assert whole.latency == pytest.approx(scatter.latency + gather.latency) == pytest.approx(2 * latency)
