"""Fat trees: how many switches a cluster needs in each tier, and the bandwidth of each tier.

GPUs hang on the NVSwitches of their node, nodes on leaf switches, leaves on spines and, in the largest clusters,
spines on core switches. A *tier* is a group of such switches with everything below it. Two numbers bound it: what the
cables of its children carry, and what the ports of its switches carry. A tree that is as wide at every tier as at the
nodes has *full bisection*.

`fat_tree` builds the rail-aligned tree of NVIDIA's SuperPods from any port count: a leaf switch gives half of its ports
to nodes and half to spines, and a scalable unit is as many nodes as a leaf has ports for, each with a cable to every
leaf of its unit.

>>> superpod = fat_tree(load_chip("h100"), load_switch("ndr"), chips=1024)
>>> [(tier.name, tier.total) for tier in superpod.tiers]
[('node', 512), ('leaf', 32), ('spine', 16)]
>>> [f"{tier.per_chip / 1e9:.0f} GB/s" for tier in superpod.tiers]
['450 GB/s', '50 GB/s', '50 GB/s']
>>> fat_tree(load_chip("h100"), load_switch("ndr"), chips=1024, spines=8).per_node
200000000000.0
"""

import functools
import math
from dataclasses import dataclass

import msgspec

from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware.catalogue import load_chip as load_chip  # for the examples
from dragonscale.physics.hardware.chip import Chip, Level, Tree
from dragonscale.physics.hardware.chip_file import Written, read_quantity
from dragonscale.physics.numbers import Number, minimum
from dragonscale.tables import Strict, beside


class SwitchFile(Strict, frozen=True):
    """One table of `switches.toml`."""

    title: str
    ports: Written
    link: Written
    chips: tuple[str, ...] = ()


@dataclass(frozen=True)
class TreeSwitch:
    """A kind of switch: its ports, and the bytes per second that one port carries one way."""

    name: str
    title: str
    ports: int
    link: float
    chips: tuple[str, ...] = ()
    """Chips whose node or rack it joins."""

    @property
    def bandwidth(self) -> float:
        """What all ports carry one way."""
        return self.ports * self.link


@functools.cache
def _switches() -> dict[str, TreeSwitch]:
    switches: dict[str, TreeSwitch] = {}
    for name, file in msgspec.convert(beside(__file__, "switches.toml")["switches"], dict[str, SwitchFile]).items():
        ports = read_quantity(file.ports, "count", f"{name}.ports", "switches.toml").value
        link = read_quantity(file.link, "bytes/s", f"{name}.link", "switches.toml").value
        switches[name] = TreeSwitch(name, file.title, int(ports), link, file.chips)
    return switches


def load_switch(name: str) -> TreeSwitch:
    """A switch by name.

    >>> load_switch("ndr").bandwidth
    3200000000000.0
    """
    if name not in _switches():
        raise unknown("switch", name, _switches())
    return _switches()[name]


@dataclass(frozen=True)
class SwitchTier:
    """One group of switches of a tree and all that hangs under it.

    Each of `children` is joined to the group by `child_links` cables of `link` bytes per second one way. The group has
    `switches` switches with `down` ports towards the children and `up` towards the tier above. The tree has `groups`
    such groups, with `chips` chips under each.
    """

    name: str
    children: Number
    child_links: Number
    link: Number
    switches: Number
    down: Number
    up: Number
    groups: Number
    chips: Number

    @property
    def total(self) -> Number:
        """Switches of this tier in the whole tree."""
        return self.switches * self.groups

    @property
    def link_bandwidth(self) -> Number:
        """What the cables of all children carry one way."""
        return self.children * self.child_links * self.link

    @property
    def switch_bandwidth(self) -> Number:
        """What the ports towards the children carry one way."""
        return self.switches * self.down * self.link

    @property
    def bandwidth(self) -> Number:
        """What the children can really send into the tier at once."""
        return minimum(self.link_bandwidth, self.switch_bandwidth)

    @property
    def limit(self) -> str:
        """`links` if the children's cables bind, `switches` if the switches do, `both` where they are equal."""
        if self.link_bandwidth == self.switch_bandwidth:
            return "both"
        if self.link_bandwidth < self.switch_bandwidth:
            return "links"
        return "switches"

    @property
    def child_bandwidth(self) -> Number:
        """One child's share, which is what a collective over this tier runs at."""
        return self.bandwidth / self.children

    @property
    def per_chip(self) -> Number:
        """One chip's share."""
        return self.bandwidth / self.chips

    def bisection(self, both_ways: bool = True) -> Number:
        """Bytes per second between any two halves of the children, in both directions together or in one."""
        if both_ways:
            return self.bandwidth
        return self.bandwidth / 2


@dataclass(frozen=True)
class FatTree:
    """The tiers of a cluster, from the node up."""

    tiers: tuple[SwitchTier, ...]
    nodes: int

    def tier(self, name: str) -> SwitchTier:
        """A tier by name: node, leaf, spine or core."""
        by_name = {tier.name: tier for tier in self.tiers}
        if name not in by_name:
            raise unknown("tier", name, list(by_name))
        return by_name[name]

    @property
    def per_node(self) -> Number:
        """The bandwidth that every node has to any other, one way: that of the thinnest tier above the nodes."""
        # (tiers above the nodes,): a node's share of each
        return minimum(*(tier.bandwidth * tier.groups / self.nodes for tier in self.tiers[1:]))

    @property
    def full_bisection(self) -> bool:
        """Whether no tier is thinner than the nodes' own links."""
        leaf = self.tiers[1]
        return bool(self.per_node >= leaf.child_links * leaf.link)


def _levels(chip: Chip) -> tuple[Level, ...]:
    if not isinstance(chip.network, Tree):
        raise InputError(f"{chip.title} is wired as a torus; only chips under switches have a fat tree.")
    return chip.network.levels


def node_tier(chip: Chip, switch: TreeSwitch | None = None, groups: int = 1) -> SwitchTier:
    """The NVLink domain of a chip: its GPUs, their links, and the NVSwitches between them.

    Without a `switch`, the NVSwitches are taken to have as many ports as there are links.

    >>> node = node_tier(load_chip("h100"), load_switch("nvswitch3"))
    >>> node.link_bandwidth, node.switch_bandwidth, node.limit
    (3600000000000.0, 6400000000000.0, 'links')
    """
    level = _levels(chip)[0]
    links = int(chip.structure["nvlink_links"])
    switches = int(chip.structure.get("nvswitches", 1))
    return SwitchTier(
        name="node",
        children=level.degree,
        child_links=links,
        link=level.bandwidth / links,
        switches=switches,
        down=switch.ports if switch else math.ceil(level.degree * links / switches),
        up=0,
        groups=groups,
        chips=level.degree,
    )


def node_switch(chip: Chip) -> TreeSwitch | None:
    """The NVSwitch that joins the chips of a node.

    >>> node_switch(load_chip("h200")).ports, node_switch(load_chip("v5e"))
    (64, None)
    """
    return next((switch for switch in _switches().values() if chip.kin in switch.chips), None)


def switch_for(chip: Chip) -> TreeSwitch | None:
    """The InfiniBand switch with one port for each chip's share of its node's bandwidth, if there is one.

    >>> switch_for(load_chip("h100")).name, switch_for(load_chip("a100")).name
    ('ndr', 'hdr')
    """
    levels = _levels(chip)
    if len(levels) < 2 or "nvlink_links" not in chip.structure:
        return None
    bandwidth_per_chip = levels[1].bandwidth / levels[0].degree
    for name, switch in _switches().items():
        if not name.startswith("nv") and switch.link == bandwidth_per_chip:  # nvswitches join the chips of a node
            return switch
    return None


def fat_tree(
    chip: Chip, switch: TreeSwitch, chips: int, spines: int | None = None, cores: int | None = None, node_links: int = 0
) -> FatTree:
    """The tree that gives `chips` chips full bisection, or the same tree with other numbers of spines and cores.

    Nodes have as many links as their network bandwidth takes (8 of 400 Gb/s on an H100 node) unless `node_links` says
    otherwise. A third tier is added where the spines have too few ports to reach every leaf. There are as few spines as
    carry the traffic while every leaf has equally many cables to each.

    >>> sizes = [fat_tree(load_chip("h100"), load_switch("ndr"), chips) for chips in (256, 512, 768, 1024, 2048)]
    >>> [(tree.tier("leaf").total, tree.tier("spine").total) for tree in sizes]
    [(8, 4), (16, 8), (24, 16), (32, 16), (64, 32)]
    """
    half = switch.ports // 2
    if half < 2 or switch.ports % 2:
        need = "A fat tree needs switches with an even number of ports, 4 or more"
        raise InputError(f"{need}; {switch.title} has {switch.ports}.")
    if chips < 1:
        raise InputError(f"A tree of {chips} chips makes no sense; give at least one.")
    link = switch.link
    node_chips = int(node_tier(chip).chips)
    nodes = math.ceil(chips / node_chips)
    node = node_tier(chip, groups=nodes)
    links = node_links or round(_levels(chip)[1].bandwidth / link)
    # a scalable unit: as many nodes as a leaf has ports down for, while every leaf can have a cable to each spine
    units = math.ceil(nodes / max(min(half, half * half // links), 1))
    unit_nodes = math.ceil(nodes / units)
    leaves = math.ceil(unit_nodes * links / half)
    up = math.ceil(unit_nodes * links / leaves)  # cables of a leaf to the spines, as many as it has nodes' cables
    unit_chips = unit_nodes * node_chips
    leaf = SwitchTier("leaf", unit_nodes, links, link, leaves, down=half, up=up, groups=units, chips=unit_chips)
    if leaves * units <= switch.ports and cores is None:
        count = spines or _spread_evenly(math.ceil(leaves * units * up / switch.ports), up)
        ports, total = switch.ports, units * unit_chips
        spine = SwitchTier("spine", units, leaves * up, link, count, down=ports, up=0, groups=1, chips=total)
        return FatTree((node, leaf, spine), nodes)
    # three tiers: a pod is as many units as spines with half of their ports down can reach every leaf of
    pods = math.ceil(units / max(half // leaves, 1))
    if pods > switch.ports:
        need = f"{chips} chips of {chip.title} need more than three tiers"
        raise InputError(f"{need} of switches with {switch.ports} ports.")
    pod_units = math.ceil(units / pods)
    pod_chips = pod_units * unit_chips
    count = spines / pods if spines else _spread_evenly(math.ceil(leaves * pod_units * up / half), up)
    spine = SwitchTier("spine", pod_units, leaves * up, link, count, down=half, up=half, groups=pods, chips=pod_chips)
    total = cores or math.ceil(count * pods * half / switch.ports)
    core = SwitchTier("core", pods, count * half, link, total, switch.ports, up=0, groups=1, chips=pods * pod_chips)
    return FatTree((node, leaf, spine, core), nodes)


def _spread_evenly(fewest: int, cables: int) -> int:
    """The smallest number of switches, at least `fewest`, over which `cables` cables spread evenly."""
    for count in range(max(fewest, 1), cables + 1):
        if cables % count == 0:
            return count
    return fewest
