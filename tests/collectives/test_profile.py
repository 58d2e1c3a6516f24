"""Laws of expected times, and the profile files they come from."""

from dataclasses import replace

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.physics.collectives.cost import KINDS, Options, collective_time
from dragonscale.physics.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.profile import expected_time
from dragonscale.physics.collectives.profile_file import (
    choose,
    implementations,
    is_measured,
    load_tier,
    profile_for,
    read_tier,
    tier_files,
)
from dragonscale.physics.hardware import load_chip
from tests.hardware.owned import APPLE, CARDS, DESKTOP, OTHER_CARDS

GPUS = ("h100", "b200", "gb200", "a100", "mi300x", "l40s")
volumes = st.floats(1, 1e12)
kinds = st.sampled_from(KINDS)
chips = st.sampled_from(GPUS)
libraries = st.sampled_from(["nccl", "trtllm", "vllm_graph", "vllm_eager", "deepep"])
transports = st.sampled_from(["ib", "efa", "roce", ""])


def switches(chip: str, size: float, stride: float = 1) -> Switches:
    return Switches(size, load_chip(chip).network.levels, stride)


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, Group]:
    """A chip and a group of its chips on any wiring."""
    if draw(st.booleans()):
        chip = draw(chips)
        return chip, switches(chip, draw(st.integers(1, 4096)), draw(st.sampled_from([1, 2, 8, 64])))
    sizes = draw(st.lists(st.integers(2, 32), min_size=1, max_size=3))
    rings = Rings(tuple(Ring(size, draw(st.booleans())) for size in sizes), link=90e9, hop=1e-6)
    pods = Wide(draw(st.integers(2, 16)), 6e9, 1e-5)
    return "v5p", draw(st.sampled_from([rings, pods, Stacked(rings, pods)]))


@settings(max_examples=150, deadline=None)
@given(groups(), kinds, volumes, st.booleans(), libraries, transports)
def test_never_below_the_bound(where, kind, volume, in_network, library, transport):
    chip, group = where
    options = Options(exact=True, in_network=in_network)
    expected = expected_time(kind, volume, group, profile_for(chip, transport, library), options)
    assert expected >= collective_time(kind, volume, group, options).bandwidth * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(groups(), kinds, volumes, st.floats(1, 100), st.booleans(), libraries)
def test_more_bytes_never_take_less(where, kind, volume, more, in_network, library):
    chip, group = where
    profile, options = profile_for(chip, implementation=library), Options(in_network=in_network)
    assert expected_time(kind, volume * more, group, profile, options) >= expected_time(
        kind, volume, group, profile, options
    ) * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(chips, st.integers(2, 4096), kinds, volumes, st.floats(1, 10), st.integers(0, 2), st.booleans())
def test_more_bandwidth_is_never_slower(chip, size, kind, volume, more, place, in_network):
    from dataclasses import replace

    group, profile, options = switches(chip, size), profile_for(chip), Options(in_network=in_network)
    levels = tuple(
        replace(level, bandwidth=level.bandwidth * (more if number == place else 1))
        for number, level in enumerate(group.levels)
    )
    faster = expected_time(kind, volume, replace(group, levels=levels), profile, options)
    assert faster <= expected_time(kind, volume, group, profile, options) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    chips, kinds, st.booleans(), libraries, st.lists(st.tuples(volumes, st.integers(1, 2048)), min_size=2, max_size=6)
)
def test_alone_as_among_many(chip, kind, in_network, library, plans):
    profile, options = profile_for(chip, implementation=library), Options(in_network=in_network)
    volume, size = (np.array(column, dtype=float) for column in zip(*plans, strict=True))
    together = expected_time(kind, volume, switches(chip, size), profile, options)
    alone = [expected_time(kind, bytes_, switches(chip, chips_), profile, options) for bytes_, chips_ in plans]
    assert together == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_network", [False, True])
@pytest.mark.parametrize("library", ["nccl", "vllm_graph"])
def test_a_formula_gives_the_same_number(kind, in_network, library):
    volume = sympy.Symbol("V", positive=True)
    profile, options = profile_for("h100", implementation=library), Options(in_network=in_network)
    for count in (4, 64):
        group = switches("h100", count)
        formula = expected_time(kind, volume, group, profile, options)
        assert float(formula.subs(volume, 3e7)) == pytest.approx(expected_time(kind, 3e7, group, profile, options))


@pytest.mark.parametrize(("kind", "in_network"), [("all_reduce", True), ("all_gather", False), ("all_to_all", False)])
def test_so_does_a_formula_of_the_number_of_chips(kind, in_network):
    size = sympy.Symbol("N", positive=True)
    profile, options = profile_for("h100"), Options(in_network=in_network)
    formula = expected_time(kind, 3e7, switches("h100", size), profile, options)
    for count in (4, 64):
        assert float(formula.subs(size, count)) == pytest.approx(
            expected_time(kind, 3e7, switches("h100", count), profile, options)
        )


@pytest.mark.parametrize("group", [Rings((Ring(16), Ring(4, False)), 90e9, 1e-6), Wide(4, 6e9, 1e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_formulas_on_tori_and_between_pods(kind, group):
    volume = sympy.Symbol("V", positive=True)
    formula = expected_time(kind, volume, group, profile_for("v5p"))
    assert float(formula.subs(volume, 3e7)) == pytest.approx(expected_time(kind, 3e7, group, profile_for("v5p")))


@settings(max_examples=60, deadline=None)
@given(chips, st.integers(2, 8), volumes)
def test_an_all_reduce_takes_no_less_than_an_all_gather(chip, size, volume):
    profile, group = profile_for(chip), switches(chip, size)
    assert expected_time("all_reduce", volume, group, profile) >= expected_time("all_gather", volume, group, profile)


def test_a_single_chip_costs_nothing():
    for kind in KINDS:
        assert expected_time(kind, 1e9, switches("h100", 1), profile_for("h100")) == 0


def test_what_switches_add_pays_on_a_node_but_not_on_two_gpus():
    profile = profile_for("h100")

    def gain(size: int) -> float:
        times = [
            expected_time("all_reduce", 4e9, switches("h100", size), profile, Options(in_network=on)) for on in (0, 1)
        ]
        return times[0] / times[1]

    assert 1.2 < gain(8) < 1.45  # about 1.3 in the book; 2(N−1)/N = 1.75 would be the ideal
    assert gain(2) == 1


def test_inference_kernels_are_faster_for_short_messages():
    group = switches("h100", 8)
    library, own = (
        expected_time("all_reduce", 16384, group, profile_for("h100", implementation=name))
        for name in ("nccl", "trtllm")
    )
    assert own < library / 3


def test_two_nodes_flatter():
    """An AllReduce over three nodes sends twice what it sends over two."""
    profile, options = profile_for("h100"), Options(in_network=True)
    times = [expected_time("all_reduce", 1e11, switches("h100", 8 * nodes), profile, options) for nodes in (2, 3)]
    assert times[1] > 1.25 * times[0]


def test_two_nodes_of_a100s_with_eight_cards_do_not_flatter():
    """A tree over two nodes sends every byte once, but NCCL has too few channels for eight cards of an A100 node."""
    profile = profile_for("a100", "ib")
    two, three = (expected_time("all_reduce", 1e10, switches("a100", 8 * nodes), profile) for nodes in (2, 3))
    assert two == pytest.approx(three, rel=0.05)


def test_a_ring_over_many_nodes_hands_over_whole_buffers():
    """A layer of 7B gathered by 512 H100s: a step in 3.4 us inside nodes and in 14 us between them (NCCL's tuning), or,
    where that is quicker, 35 GB/s with flags; by the quick protocol's hops alone inside a node."""
    profile = profile_for("h100")
    ring = replace(profile.fabric.paths["ring"], stall=0.0)
    quick = replace(profile, fabric=replace(profile.fabric, paths={"ring": ring}))

    def longer(volume, chips):
        group = switches("h100", chips)
        slow, fast = (expected_time("all_gather", volume, group, one) for one in (profile, quick))
        return slow - fast

    steps = 63.875, 511 - 63.875  # between nodes and inside them
    buffers = steps[0] * (14e-6 - 3.51e-6) + steps[1] * (3.4e-6 - 0.87e-6)
    assert longer(4e9, 512) == pytest.approx(buffers)
    assert longer(10e6, 512) == pytest.approx(10e6 * 511 / 512 * (1 / 35e9 - 1 / (0.787 * 450e9)))
    assert longer(4e9, 8) == 0.0
    times = [expected_time("all_gather", 4e8, switches("h100", 8 * nodes), profile) for nodes in range(2, 600, 7)]
    assert times == sorted(times)


@pytest.mark.parametrize("name", sorted(tier_files()))
def test_profiles_say_what_they_rest_on(name):
    file = tier_files()[name]
    assert file.name == name
    assert len(file.rests_on) > 20
    assert all(source.title and source.date for source in file.sources.values())
    tables = [*file.paths.items(), *(pair for own in file.implementations.values() for pair in own.items())]
    assert tables
    for algorithm, path in tables:
        rests = path.rests_on
        assert rests.source in file.sources, algorithm
        fitted = rests.rows > 0
        assert (rests.median_ape is not None and rests.mape is not None) if fitted else rests.note, algorithm
        assert rests.note or not rests.borrowed, algorithm
    load_tier(name)


def test_every_chip_has_a_profile():
    from dragonscale.physics.hardware import chip_names

    for name in chip_names():
        profile = profile_for(load_chip(name))
        for tier in (profile.domain, profile.fabric, profile.rail):
            assert "ring" in tier.paths
        assert {"ring", "direct"} <= set(profile.torus.paths) & set(profile.wide.paths)
    assert choose("domain", "nobody-built-it-yet") == "generic-domain"
    assert choose("fabric", "b200", "roce") == "roce-nodes"
    assert "trtllm" in implementations()


UNMEASURED = {
    *("a10", "a10g", "a30", "a6000", "a6000-nvlink", "gaudi3", "gb10", "gh200", "gh200-144gb", "h100-nvl", "h100-pcie"),
    *("h200-nvl", "l4", "l40", "l40s", "mi455x", "rtx3090-nvlink", "rtx6000ada", "rtxpro6000"),
    *("rtxpro6000-ws", "rubin", "t4", "trainium2", "trainium3", "v100", "v100-16gb"),
    *APPLE,
    *OTHER_CARDS,
    *(name for name in CARDS if name not in DESKTOP),
}
"""Chips whose node nobody has measured collectives in, so that the generic profile stands in."""


def test_a_chip_without_a_network_profile_is_listed():
    from dragonscale.commands.chips_wiring import achievable
    from dragonscale.physics.hardware import Torus, chip_names

    chips = {name: load_chip(name) for name in chip_names()}
    switched = {name: chip for name, chip in chips.items() if not isinstance(chip.network, Torus)}
    unmeasured = {name for name, chip in switched.items() if not is_measured("domain", chip)}
    assert unmeasured == UNMEASURED, "name it under `chips` of the profile of its network, or in this list"
    assert all(is_measured("torus", chip) for name, chip in chips.items() if name not in switched)
    said = {name for name in ("l40s", "h100", "v5p") if "generic-domain, not measured on it" in achievable(chips[name])}
    assert said == {"l40s"}
    for file in tier_files().values():
        assert set(file.chips) <= set(chips), f"{file.name} names a chip that does not exist"


def test_wrong_profiles_are_one_sentence(tmp_path):
    file = tmp_path / "net.toml"
    with pytest.raises(InputError, match="cannot be read"):
        load_tier(str(file))
    file.write_text("name = 3")
    with pytest.raises(InputError, match="is not right"):
        load_tier(str(file))
    good = {"name": "n", "title": "t", "tier": "domain", "rests_on": "x", "sources": {"s": {"title": "t", "date": "d"}}}
    with pytest.raises(InputError, match="does not list"):
        read_tier(good | {"paths": {"ring": {"rests_on": {"source": "other"}}}}, "x")
    with pytest.raises(InputError, match="fraction"):
        read_tier(good | {"paths": {"ring": {"fraction": 2.0, "rests_on": {"source": "s"}}}}, "x")
    with pytest.raises(InputError, match="There is no tier"):
        read_tier(good | {"tier": "moon"}, "x")
    with pytest.raises(InputError, match="There is no network profile"):
        load_tier("nvlink44")
    with pytest.raises(InputError, match="There is no transport"):
        profile_for("h100", "carrier pigeon")
    with pytest.raises(InputError, match="There is no collective"):
        expected_time("all_redcue", 1.0, switches("h100", 8), profile_for("h100"))
