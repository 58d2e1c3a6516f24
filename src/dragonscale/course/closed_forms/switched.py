"""Where a parallelism turns bound by the network on chips under switches: the book's chapter on GPUs.

Two matmuls of a layer, D·F and F·D, against what each parallelism sends for them. The times come from `collective_time`
over the chip's own tiers, to first order unless `exact` keeps the (N−1)/N. α stands for C/W, the peak rate over what
leaves one GPU (inside a node) or one node (beyond).

>>> from dragonscale.physics.hardware import load_chip
>>> h100 = load_chip("h100").reading("book")
>>> dp_tokens(h100, 8), dp_tokens(h100, 1024), dp_tokens(h100, 4096, split=64)
(2200.0, 2475.0, 309.375)
>>> dp_tokens(h100, 1024, sparsity=4)  # 128 experts, 32 of them picked
9900.0
>>> round(tp_ways(h100, 28672), 2), round(tp_ways(h100, 28000, "leaf", exact=True), 2)
(13.03, 19.31)
>>> ep_width(h100), round(ep_width(h100, ways=16, picks=8))
(19800.0, 2475)
"""

from dragonscale.errors import InputError, unknown
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.cost import ragged_fill
from dragonscale.physics.hardware.chip import Chip, Level, Tree
from dragonscale.physics.numbers import Number, is_symbolic

GRADIENT = 2
"""Bytes of one parameter's gradient, in bf16."""
BACKWARD = 4
"""FLOPs of the backward pass for each parameter and token."""


def dp_tokens(
    chip: Chip,
    gpus: Number,
    split: Number = 1,
    in_network: bool = False,
    exact: bool = False,
    dtype: str = "bf16",
    sparsity: Number = 1,
) -> Number:
    """Tokens of a step for each GPU from which data parallelism hides its gradients under the backward pass.

    `split` neighbouring GPUs hold one copy of the model (TP times PP, or EP): each reduces a part of the gradients,
    with as many other groups on the same links. `in_network`: the switches add (SHARP). An MoE has gradients of all
    experts and FLOPs of those that a token picks: `sparsity` is E/k.
    """
    group = Switches(gpus / split, _levels(chip), stride=split)
    options = Options(exact=exact, in_network=in_network)
    reduction = collective_time("all_reduce", GRADIENT / split, group, options).bandwidth
    return sparsity * reduction * chip.peak(dtype) / BACKWARD


def tp_ways(chip: Chip, d_ff: Number, tier: str = "node", exact: bool = False, dtype: str = "bf16") -> Number:
    """The degree of tensor parallelism at which a layer of this hidden width stops being bound by compute.

    `tier` is the one that the activations cross: node, leaf. With `exact` a group in one place sends nothing: one GPU
    inside a node, one node's GPUs beyond.
    """
    level, below = _tier(chip, tier)
    return d_ff * level.bandwidth / chip.peak(dtype) + (below if exact else 0)


def ep_width(chip: Chip, ways: Number = 0, picks: Number = 1, random: bool = False, dtype: str = "bf16") -> Number:
    """The hidden width of an expert from which spreading experts over nodes hides its AllToAlls under their matmuls.

    `ways` GPUs hold the experts, and every token goes to `picks` of them, sent once to each node that has one (picks on
    distinct nodes, or as chance has it with `random`). Without `ways`: far more nodes than picks.
    """
    level, below = _tier(chip, "leaf")
    intensity = chip.peak(dtype) / level.bandwidth
    if not ways:
        return below * intensity
    nodes = ways / below
    return intensity * ways / picks * (nodes - 1) / nodes * ragged_fill(picks, nodes, random)


def ep_regime(chip: Chip, ways: Number = 0, picks: Number = 1, random: bool = False, dtype: str = "bf16") -> str:  # noqa: ARG001
    """Which case of `ep_width` applies, in a sentence."""
    _, below = _tier(chip, "leaf")
    if not ways:
        return "Taken for far more nodes than picks, so a token is sent once for each pick."
    nodes = ways / below
    if is_symbolic(nodes) or is_symbolic(picks):
        return ""
    told = f"{ways:g} GPUs are {nodes:g} nodes, and a token has {picks:g} picks"
    if random:
        return f"{told}: as chance spreads them, some nodes get a token once for several of its picks."
    if picks >= nodes:
        return f"{told}: few nodes, so every token goes to every node once (k >= Z/{below})."
    return f"{told}: more nodes than picks, so a token is sent once for each pick (k < Z/{below})."


def _levels(chip: Chip) -> tuple[Level, ...]:
    if not isinstance(chip.network, Tree):
        raise InputError(f"{chip.title} is wired as a torus; this rule is for chips under switches.")
    return chip.network.levels


def _tier(chip: Chip, name: str) -> tuple[Level, int]:
    """A tier and the chips under each of its children."""
    below = 1
    for level in _levels(chip):
        if level.name == name:
            return level, below
        below *= level.degree
    raise unknown("tier", name, [level.name for level in _levels(chip)])
