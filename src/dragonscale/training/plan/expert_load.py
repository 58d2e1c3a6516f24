"""How many rows the experts of the busiest chip work on, over the mean of all chips.

`skew` is the tokens of the busiest expert over the mean. A chip with several experts averages over them: experts' loads
taken as independent, the mean of g of E loads lies √((E − g) / (g(E − 1))) as far from 1 as one load does (draws
without putting back). One expert to a chip has all of the skew, a chip with every expert none. The busiest chip sets
the pace of its grouped matmuls and routing passes, of the AllToAll (it receives most), and it holds most rows.

A capacity caps what one expert takes, over its even share: rows beyond it are dropped. Where the program pads, every
expert computes that many rows whatever was routed to it.
"""

from dataclasses import replace

from dragonscale.physics.numbers import Number, ceil, floor, maximum, minimum
from dragonscale.training.plan.local_section import LocalSection
from dragonscale.training.plan.stack import Stack, change

UNEVEN = 1.3
"""Tokens of the busiest expert over the mean that a recommended plan must have memory for. Chosen between trained MoEs
whose load is balanced by a loss (50% and more over the mean on a test set) and by a bias (a few percent): Wang et al.
2024, Auxiliary-Loss-Free Load Balancing, MaxVio."""


def uneven(stack: Stack) -> Stack:
    """A stack whose busiest expert has at least `UNEVEN` times the mean.

    >>> uneven(Stack()).experts.skew, uneven(change(Stack(), "experts", skew=2.0)).experts.skew
    (1.3, 2.0)
    """
    return change(stack, "experts", skew=max(stack.experts.skew, UNEVEN))


def chip_load(skew: float, experts: Number, held: Number) -> Number:
    """Rows of the busiest chip over the mean, where each chip holds `held` of the experts.

    >>> chip_load(2.0, 64, 1), round(chip_load(2.0, 64, 8), 2), chip_load(2.0, 64, 64)
    (2.0, 1.33, 1.0)
    """
    held = maximum(held, 1.0)
    return 1 + (skew - 1) * ((experts - held) / (held * maximum(experts - 1, 1))) ** 0.5


def busiest_row_factor(local: LocalSection) -> Number:
    """Rows that the experts of the busiest chip compute, over those that are routed to a chip on average."""
    routed, sizes = local.routed(), local.sizes
    skew, capacity = local.stack.experts.skew, local.stack.experts.capacity
    if routed is None or (not capacity and skew == 1):
        return 1.0
    if capacity and local.stack.experts.pads:
        rows = local.elements(routed, without=("d",))
        # Every expert has the same whole number of slots, at least one, whether they are filled or not.
        slots = maximum(1, ceil(floor(rows * capacity) / sizes["e"]))
        return slots * sizes["e"] / rows
    experts_per_chip = sizes["e"] / local.mesh.size(*local.rules.dealt)
    if not capacity:
        return chip_load(skew, sizes["e"], experts_per_chip)
    return minimum(chip_load(min(skew, capacity), sizes["e"], experts_per_chip), capacity)


def at_busiest(local: LocalSection) -> LocalSection:
    """A section as the chip with the busiest experts has it: more of its tokens' choices (x) are its own experts."""
    factor, sizes = busiest_row_factor(local), local.sizes
    if "x" not in sizes:
        return local
    return replace(local, sizes=sizes | {"x": sizes["x"] * factor})


def dropped_share(skew: float, capacity: float) -> float:
    """The part of all routed rows beyond the experts' capacity, with loads s·u^(s−1) for u from 0 to 1: mean 1, and the
    busiest s.

    >>> [round(dropped_share(skew, 1.25), 3) for skew in (1.0, 1.5, 2.0, 4.0)]
    [0.0, 0.039, 0.141, 0.386]
    """
    if capacity >= skew:
        return 0.0
    if skew == 1:
        return 1 - capacity
    # The share u of experts whose load is below the capacity: skew·u^(skew-1) = capacity.
    below = (capacity / skew) ** (1 / (skew - 1))
    return 1 - below**skew - capacity * (1 - below)
