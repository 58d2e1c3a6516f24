"""Collectives tier by tier: the slowest tier is the collective, and bytes are conserved at switches."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.course.closed_forms.networks import binding_tier, tier_bandwidths
from dragonscale.course.closed_forms.pipelined import pipeline_hops
from dragonscale.errors import InputError
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.tiers import switch_traffic, tier_seconds
from dragonscale.physics.hardware import load_chip

LEVELS = load_chip("h100").network.levels
KINDS = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]


@given(
    kind=st.sampled_from(KINDS),
    size=st.sampled_from([2, 8, 16, 256, 1024, 4096]),
    stride=st.sampled_from([1, 4, 8, 64]),
    exact=st.booleans(),
    in_network=st.booleans(),
)
def test_the_slowest_tier_is_the_collective(kind: str, size: int, stride: int, exact: bool, in_network: bool) -> None:
    group, options = Switches(size, LEVELS, stride), Options(exact=exact, in_network=in_network)
    seconds = tier_seconds(kind, 1e9, group, options)
    assert max(seconds.values()) == collective_time(kind, 1e9, group, options).bandwidth
    assert seconds[binding_tier(kind, group, options)] == max(seconds.values())


@given(kind=st.sampled_from(KINDS), fans=st.lists(st.integers(2, 32), min_size=1, max_size=3))
def test_what_goes_up_a_cable_arrives_above(kind: str, fans: list[int]) -> None:
    """All the bytes that leave the switches, chips included, are as many as enter them."""
    chips = math.prod(fans)
    groups = [chips // math.prod(fans[: tier + 1]) for tier in range(len(fans))]
    traffic = [switch_traffic(kind, 1.0, tuple(fans), tier) for tier in range(len(fans))]
    entering = sum(seen.ingress * count for seen, count in zip(traffic, groups, strict=True))
    leaving = sum(seen.egress * count for seen, count in zip(traffic, groups, strict=True))
    sent = {"all_gather": 1, "reduce_scatter": chips - 1, "all_reduce": chips, "all_to_all": (chips - 1) / chips}[kind]
    received = {"all_gather": chips - 1, "reduce_scatter": 1, "all_reduce": chips, "all_to_all": (chips - 1) / chips}
    assert math.isclose(entering - sent, leaving - received[kind], rel_tol=1e-9, abs_tol=1e-9)


def test_arrays_and_single_chips() -> None:
    group = Switches(numpy.array([8, 16, 1024]), LEVELS)
    assert tier_seconds("all_gather", 1e9, group)["leaf"].tolist() == [0.0, 0.0025, 0.0025]
    assert tier_bandwidths("all_gather", Switches(1, LEVELS)) == {}
    with pytest.raises(InputError, match="no tier binds"):
        binding_tier("all_gather", Switches(1, LEVELS))


def test_wrong_questions() -> None:
    with pytest.raises(InputError, match="There is no tier 2"):
        switch_traffic("all_gather", 1.0, (8, 32), tier=2)
    with pytest.raises(InputError, match="There is no collective"):
        switch_traffic("gather", 1.0, (8,))


def test_a_pipeline_without_neighbours_sends_only_its_pieces_on() -> None:
    assert pipeline_hops(1, 1) == 0
    assert pipeline_hops(1, 16) == 15
