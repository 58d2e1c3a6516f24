"""How many rows the experts of the busiest chip work on, over the mean of all chips.

`skew` is the tokens of the busiest expert over the mean. A chip with several experts averages over them: experts' loads
taken as independent, the mean of g of E loads lies √((E − g) / (g(E − 1))) as far from 1 as one load does (draws
without putting back). One expert to a chip has all of the skew, a chip with every expert none. The busiest chip sets
the pace of its grouped matmuls and routing passes, of the AllToAll (it receives most), and it holds most rows.

A capacity caps what one expert takes, over its even share: rows beyond it are dropped. Where the program pads, every
expert computes that many rows whatever was routed to it.
"""

from dragonscale.models.program import Section
from dragonscale.physics.numbers import Number, ceil, floor, maximum, minimum
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.rules import Rules
from dragonscale.training.plan.stack import Stack, change

UNEVEN = 1.3
"""Tokens of the busiest expert over the mean that a recommended plan must have memory for: a judgement between trained
MoEs whose load a loss balances, which were half as much again and more over a test set, and those that a bias balances,
which were a few percent (Wang et al. 2024, Auxiliary-Loss-Free Load Balancing, MaxVio)."""


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


def expert_room(section: Section, rules: Rules, sizes: dict[str, Number], mesh: Mesh, stack: Stack) -> Number:
    """Rows that the experts of the busiest chip compute, over those that are routed to a chip on average."""
    routed = next((op.output for op in section.ops if op.function == "dispatch"), None)
    skew, capacity = stack.experts.skew, stack.experts.capacity
    if routed is None or (not capacity and skew == 1):
        return 1.0
    if capacity and stack.experts.pads:
        rows = local_elements(rules.activation(routed), sizes, mesh, without=("d",))
        return maximum(1, ceil(floor(rows * capacity) / sizes["e"])) * sizes["e"] / rows
    held = sizes["e"] / mesh.size(*rules.dealt)
    if not capacity:
        return chip_load(skew, sizes["e"], held)
    return minimum(chip_load(min(skew, capacity), sizes["e"], held), capacity)


def at_busiest(section: Section, rules: Rules, sizes: dict[str, Number], mesh: Mesh, stack: Stack) -> dict[str, Number]:
    """Sizes as the busiest chip has them: more of its tokens' choices (x) are its own experts."""
    room = expert_room(section, rules, sizes, mesh, stack)
    return sizes | {"x": sizes["x"] * room} if "x" in sizes else sizes


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
    even = (capacity / skew) ** (1 / (skew - 1))
    return 1 - even**skew - capacity * (1 - even)
