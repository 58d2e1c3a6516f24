"""Arithmetic about tiers of switches, and about hops on rings, that only the book's questions need."""

from dragonscale.errors import InputError
from dragonscale.physics.collectives import BOOK, Options, Switches
from dragonscale.physics.collectives.tiers import tier_seconds
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.fat_tree import FatTree, TreeSwitch, fat_tree, switch_for
from dragonscale.physics.numbers import Number, is_symbolic, minimum


def egress_from_bisection(bisection: Number, children: Number) -> Number:
    """What one child sends when half of them send to the other half. The bisection must be counted one way.

    >>> egress_from_bisection(1.8e12, 8)
    450000000000.0
    """
    return 2 * bisection / children


def mean_hops(size: Number, closed: bool = True) -> Number:
    """Hops between two chips of a ring (of a line with closed=False) on average, a chip and itself included.

    >>> mean_hops(16), mean_hops(4, closed=False)
    (4.0, 1.25)
    """
    if closed:
        return size / 4
    return (size**2 - 1) / (3 * size)


def cables_per_pair(tree: FatTree) -> Number:
    """Cables between one leaf and one spine."""
    leaf, spine = tree.tier("leaf"), tree.tier("spine")
    return minimum(leaf.up, spine.down * spine.switches / (leaf.switches * spine.children)) / spine.switches


def ports_used(tree: FatTree, name: str) -> Number:
    """Ports in use on each switch of a tier, down and up. A node's cables to its leaves hang on its NICs and not on its
    NVSwitches, which have none up.

    >>> from dragonscale.physics.hardware import load_chip
    >>> tree = fat_tree(load_chip("h100"), _fabric(load_chip("h100")), 1024)
    >>> [ports_used(tree, tier) for tier in ("node", "leaf", "spine")]
    [36.0, 64.0, 64.0]
    """
    tier, place = tree.tier(name), [tier.name for tier in tree.tiers].index(name)
    above = tree.tiers[place + 1] if place + 1 < len(tree.tiers) else None
    cables = minimum(tier.children * tier.child_links, tier.switches * tier.down) / tier.switches
    return cables + (above.child_links / tier.switches if above and place else 0)


def tree_switches(chip: Chip, gpus: int, tier: str = "spine") -> Number:
    """Switches of a tier (node, leaf, spine, core) in the fat tree that gives so many GPUs full bisection.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [tree_switches(load_chip("h100"), 2048, tier) for tier in ("leaf", "spine")]
    [64, 32]
    """
    return fat_tree(chip, _fabric(chip), gpus).tier(tier).total


def tree_bandwidth(chip: Chip, gpus: int, spines: int | None = None, cores: int | None = None) -> Number:
    """Bytes per second that every node has to any other, one way, with so many spine (and core) switches; without
    them, as many as full bisection takes.

    >>> from dragonscale.physics.hardware import load_chip
    >>> tree_bandwidth(load_chip("h100"), 1024), tree_bandwidth(load_chip("h100"), 1024, spines=4)
    (400000000000.0, 100000000000.0)
    """
    return fat_tree(chip, _fabric(chip), gpus, spines, cores).per_node


def _fabric(chip: Chip) -> TreeSwitch:
    switch = switch_for(chip)
    if switch is None:
        raise InputError(f"No network switch is known whose ports are as fast as the links of {chip.title}.")
    return switch


def tier_bandwidths(kind: str, group: Switches, options: Options = BOOK) -> dict[str, Number]:
    """Bytes of the array per second that each tier sustains; a tier that the group does not cross is left out."""
    seconds = tier_seconds(kind, 1.0, group, options)
    return {name: 1 / time for name, time in seconds.items() if is_symbolic(time) or time > 0}


def binding_tier(kind: str, group: Switches, options: Options = BOOK) -> str:
    """The tier that the collective waits for."""
    rates = tier_bandwidths(kind, group, options)
    if not rates:
        raise InputError("A group of one chip sends nothing, so no tier binds.")
    return min(rates, key=lambda name: rates[name])
