"""A run on the back of an envelope: bytes of state and checkpoints, sequences, days, dollars.

These are the book's first questions about a run (chapter 6), before any plan: how much must be held, on how many chips,
for how long. The planner answers them again with everything that is left out here.

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.physics.rooflines.model_flops import model_flops
>>> v5p = load_chip("v5p")
>>> state_bytes(70e9) / 1e9
700.0
>>> days = run_seconds(model_flops(70e9, 15e12), 8960, v5p.peak("bf16"), mfu=0.4) / DAY
>>> round(days, 1)
44.3
"""

from collections.abc import Iterable

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip, dtype_bytes
from dragonscale.physics.numbers import Number
from dragonscale.training.plan.stages import bubble

DAY = 86400.0
YEAR = 365.25 * DAY
"""Seconds of a day and of a year."""


def state_bytes(params: Number, weights: str = "bf16", moments: Iterable[str] = ("fp32", "fp32"), *more: str) -> Number:
    """Bytes that training keeps for its parameters: weights and the optimizer's moments. `more` are further copies by
    dtype, such as fp32 master weights or gradients, which the book leaves out.

    >>> state_bytes(1), state_bytes(1, "bf16", ("fp32", "fp32"), "fp32", "fp32")
    (10, 18)
    """
    return params * sum(dtype_bytes(dtype) for dtype in (weights, *moments, *more))


def largest_model(chip: Chip, bytes_per_param: Number) -> Number:
    """Parameters whose state fills one chip: what plain data parallelism can train, activations aside."""
    return chip.hbm.capacity / bytes_per_param


def checkpoint_bytes(tokens: Number, widths: Iterable[Number] | float, layers: Number, dtype: str = "bf16") -> Number:
    """Bytes of the activations kept for the backward pass: for each layer one value per token and channel of each kept
    tensor, whose channels are `widths` (a number, where one tensor is kept).

    >>> checkpoint_bytes(4e6, [8192] * 4, 80) / 1e12
    20.97152
    """
    channels = widths if isinstance(widths, int | float) else sum(widths)
    return tokens * channels * layers * dtype_bytes(dtype)


def sequences(tokens: int, length: int) -> int:
    """Whole sequences in a batch: the largest degree that splits no sequence."""
    if length < 1 or tokens < length:
        raise InputError(f"A batch of {tokens} tokens holds no sequence of {length}.")
    return tokens // length


def run_seconds(flops: Number, chips: Number, peak: Number, mfu: Number = 1) -> Number:
    """How long a run takes at a share of the chips' peak rate (the model FLOPs utilisation)."""
    return flops / (chips * peak * mfu)


def run_cost(chips: Number, seconds: Number, usd_per_chip_hour: Number) -> Number:
    """Dollars for chips rented by the hour.

    >>> run_cost(8, 7200, 4.0)
    64.0
    """
    return chips * seconds / 3600 * usd_per_chip_hour


def stage_utilisation(stages: Number, microbatches: Number = 1, schedule: str = "gpipe", virtual: Number = 1) -> Number:
    """The part of a step in which a pipeline stage works, if stages are equal and backward takes twice as long as
    forward (half of it for the weights).

    >>> stage_utilisation(8), stage_utilisation(8, 32)
    (0.125, 0.8205128205128205)
    """
    work = 3 * microbatches
    return work / (work + bubble(schedule, stages, virtual, 1, 2, 1))
