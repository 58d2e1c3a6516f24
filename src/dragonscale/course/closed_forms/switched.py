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

import math
from dataclasses import dataclass
from typing import Any

from dragonscale.course.closed_forms.rooflines import LayerTimes
from dragonscale.course.closed_forms.training_limits import split_tokens, tp_degree
from dragonscale.errors import InputError, unknown
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.cost import ragged_fill
from dragonscale.physics.collectives.tiers import tier_seconds
from dragonscale.physics.hardware.chip import Chip, Level, Torus, Tree
from dragonscale.physics.hardware.slices import Slice
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


def dp_regime(
    chip: Chip, gpus: Number, split: Number = 1, in_network: bool = False, exact: bool = False, **_: Any
) -> str:
    """Which tier the gradients wait for, in a sentence."""
    if is_symbolic(gpus) or is_symbolic(split):
        return ""
    group = Switches(gpus / split, _levels(chip), stride=split)
    seconds = tier_seconds("all_reduce", 1.0, group, Options(exact=exact, in_network=in_network))
    slowest = max(seconds, key=lambda tier: seconds[tier])
    return f"The {slowest} tier binds." if seconds[slowest] else ""


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


def ep_times(
    chip: Chip, tokens: Number, d: Number, width: Number, ways: Number, picks: Number = 1, random: bool = False
) -> LayerTimes:
    """Expert parallelism of one layer, forward: its two matmuls on the experts of `ways` GPUs, and the AllToAlls that
    send every token to its `picks` experts and back.

    As in `ep_width`, a token crosses to each other node once; inside one node the GPUs exchange over NVLink.

    >>> from dragonscale.physics.hardware import load_chip
    >>> times = ep_times(load_chip("h100"), 4096, 7168, 2048, ways=16, picks=8)
    >>> round(float(times.math) * 1e6, 2), round(float(times.network()) * 1e6, 2), times.bound()
    (121.54, 146.8, 'comms')
    """
    compute = 4 * tokens * picks * d * width / (ways * chip.peak("bf16"))
    level, below = _tier(chip, "leaf")
    nodes = ways / below
    if not is_symbolic(nodes) and nodes <= 1:
        inside = Options(exact=True, filled=ragged_fill(picks, ways, random))
        exchange = collective_time("all_to_all", 2 * tokens * d, Switches(ways, _levels(chip)), inside).bandwidth
    else:
        crossing = (nodes - 1) / nodes * ragged_fill(picks, nodes, random)
        exchange = 2 * tokens * d * crossing / level.bandwidth
    return LayerTimes(compute, {("expert",): 2 * exchange})


@dataclass(frozen=True)
class EnoughTokens:
    """Whether tensor parallelism with ZeRO-3 is enough: tokens and tensor degree against their limits, and the state
    that a chip holds against its memory."""

    tokens_per_chip: Number
    tokens_needed: Number
    tensor: Number
    most_tensor: Number
    state_bytes: Number
    hbm_bytes: Number

    @property
    def enough(self) -> str:
        """Yes, or what is lacking."""
        lacking = [
            f"{self.tokens_per_chip:,.4g} tokens a chip of the {self.tokens_needed:,.4g} that hide ZeRO-3"
            if self.tokens_per_chip < self.tokens_needed
            else "",
            f"a tensor degree of {self.tensor:g} where {self.most_tensor:.3g} is the most that hides"
            if self.tensor > self.most_tensor
            else "",
            "the state does not fit" if self.state_bytes > self.hbm_bytes else "",
        ]
        return f"no: {'; '.join(filter(None, lacking))}" if any(lacking) else "yes: compute binds and the state fits"


def tp_zero3(
    slice_: Slice, tokens: Number, params: Number, width: Number, tensor: Number = 8, bytes_per_param: Number = 10
) -> EnoughTokens:
    """Is tensor parallelism with ZeRO-3 (FSDP) over the rest of a slice enough for a batch: tokens of a chip against
    those that hide the weights' collectives, the tensor degree against the largest that hides, and the state of a chip
    (10 bytes a parameter: bf16 weights, fp32 moments) against its HBM, activations aside.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> tp_zero3(parse_slice("h100:512"), 4e6, 70e9, 28672).enough
    'yes: compute binds and the state fits'
    """
    chip, chips = slice_.chip, slice_.chips
    torus = isinstance(chip.network, Torus)
    needed = split_tokens(chip, math.inf, chips / tensor, tensor) / chips if torus else dp_tokens(chip, chips, tensor)
    most = tp_degree(chip, width) if torus else tp_ways(chip, width)
    return EnoughTokens(tokens / chips, needed, tensor, most, params * bytes_per_param / chips, chip.hbm.capacity)


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
