"""Trees of switches: the SuperPod, and laws that hold for any number of ports."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.course.closed_forms.networks import egress_from_bisection, ports_used
from dragonscale.errors import InputError
from dragonscale.physics.collectives import Switches, collective_time
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.fat_tree import TreeSwitch, fat_tree, load_switch, node_tier

H100 = load_chip("h100")
NDR = load_switch("ndr")


@pytest.mark.parametrize(("units", "leaves", "spines"), [(1, 8, 4), (2, 16, 8), (3, 24, 16), (4, 32, 16)])
def test_sizes_of_a_superpod(units: int, leaves: int, spines: int) -> None:
    tree = fat_tree(H100, NDR, units * 256)
    assert (tree.tier("leaf").total, tree.tier("spine").total) == (leaves, spines)


@pytest.mark.parametrize(
    ("chip", "switch"), [("a100", "nvswitch2"), ("h100", "nvswitch3"), ("b200", "nvswitch4"), ("gb200", "nvswitch4")]
)
def test_nvswitches_never_bind(chip: str, switch: str) -> None:
    node = node_tier(load_chip(chip), load_switch(switch))
    assert node.link_bandwidth <= node.switch_bandwidth
    assert node.per_chip == load_chip(chip).network.levels[0].bandwidth
    assert egress_from_bisection(node.bisection(both_ways=False), node.children) == node.per_chip


@given(
    half=st.integers(4, 128),
    nodes=st.integers(1, 2000),
    chip=st.sampled_from(["a100", "h100", "b200", "gb200"]),
)
def test_every_tree_has_full_bisection_within_its_ports(half: int, nodes: int, chip: str) -> None:
    switch = TreeSwitch("any", "any switch", 2 * half, 50e9)
    try:
        tree = fat_tree(load_chip(chip), switch, nodes * load_chip(chip).network.levels[0].degree)
    except InputError as error:
        if "three tiers" not in str(error):
            raise
        return
    assert tree.full_bisection
    for tier in tree.tiers[1:]:
        assert ports_used(tree, tier.name) <= switch.ports + 1e-9
        assert tier.chips * tier.groups >= tree.nodes * tree.tiers[0].chips


@given(spines=st.integers(1, 16))
def test_fewer_spines_are_thinner(spines: int) -> None:
    tree = fat_tree(H100, NDR, 1024, spines=spines)
    assert tree.per_node == pytest.approx(400e9 * spines / 16)
    assert tree.full_bisection == (spines == 16)


def test_the_tree_is_the_network_of_the_catalogue() -> None:
    tiers, known = fat_tree(H100, NDR, 1024).tiers, H100.network.levels
    built = tuple(
        replace(known[place], name=tier.name, degree=int(tier.children), bandwidth=float(tier.child_bandwidth))
        for place, tier in enumerate(tiers[:-1])
    )
    built += (replace(known[len(tiers) - 1], name=tiers[-1].name, bandwidth=float(tiers[-1].child_bandwidth)),)
    assert [(level.name, level.degree, level.bandwidth) for level in built] == [
        (level.name, level.degree, level.bandwidth) for level in H100.network.levels
    ]
    cost = collective_time("all_gather", 1e9, Switches(1024, built))
    assert cost == collective_time("all_gather", 1e9, Switches(1024, H100.network.levels))


def test_what_cannot_be_built() -> None:
    with pytest.raises(InputError, match="even number of ports"):
        fat_tree(H100, TreeSwitch("odd", "an odd switch", 7, 50e9), 64)
    with pytest.raises(InputError, match="wired as a torus"):
        fat_tree(load_chip("v5p"), NDR, 64)
    with pytest.raises(InputError, match="There is no switch 'ndx'"):
        load_switch("ndx")
    with pytest.raises(InputError, match="at least one"):
        fat_tree(H100, NDR, 0)
    with pytest.raises(InputError, match="There is no tier 'core'"):
        fat_tree(H100, NDR, 1024).tier("core")
