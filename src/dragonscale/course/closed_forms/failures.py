"""What failures leave of a run: the time between them, how often to save, the share of time that makes progress.

A job of N hosts, each failing r times a second, is interrupted every 1/(N·r) seconds. Each time it loses the restart
and, on average, half of the interval between two checkpoints; and saving a checkpoint stops it for a moment. So of all
time

    goodput = (1 − N·r·(restart + interval/2)) / (1 + save/interval)

makes progress (Meta's closed form, arXiv:2410.21680), and the interval √(2·save/(N·r)) costs least (Young, 1974). What
is published: 3.8 failures for 1,000 days of an H100 host (LLaMA-3 405B: 419 unexpected interruptions of 16,384 GPUs in
54 days, arXiv:2407.21783), 6.5 for an A100 host (arXiv:2410.21680). Not in the formulas: slow chips, jobs that wait for
spares, failures that come together.

>>> round(time_between_failures(2048, 3.8e-3 / DAY) / 3600, 1)
3.1
>>> round(goodput(2048, 3.8e-3 / DAY, interval=600, restart=600, save=10), 2)
0.9
"""

from dragonscale.course.closed_forms.rules_of_thumb import DAY
from dragonscale.errors import Infeasible, InputError
from dragonscale.physics.numbers import Number, sqrt

__all__ = ["DAY", "checkpoint_interval", "goodput", "time_between_failures", "time_with_failures"]


def time_between_failures(hosts: Number, rate: Number) -> Number:
    """Seconds between two interruptions of a job whose hosts each fail `rate` times a second."""
    return 1 / (hosts * rate)


def checkpoint_interval(hosts: Number, rate: Number, save: Number) -> Number:
    """Seconds between checkpoints that lose least, if saving one stops the job for `save` seconds: √(2·save/(N·r)).

    >>> round(checkpoint_interval(2048, 3.8e-3 / DAY, 10))
    471
    """
    return sqrt(2 * save / (hosts * rate))


def goodput(hosts: Number, rate: Number, interval: Number, restart: Number, save: Number = 0) -> Number:
    """The share of time that makes progress: restarts, lost work and the stops for checkpoints taken off.

    >>> goodput(10**6, 1 / DAY, interval=600, restart=600)
    Traceback (most recent call last):
        ...
    dragonscale.errors.Infeasible: No time is left: in each second 11.6 failures lose 1.04e+04 s; take fewer hosts, or
    save and restart faster.
    """
    lost = hosts * rate * (restart + interval / 2)
    if isinstance(lost, int | float) and lost >= 1:
        raise Infeasible(
            f"No time is left: in each second {hosts * rate:.3g} failures lose {lost:.3g} s; take fewer hosts, or "
            "save and restart faster."
        )
    return (1 - lost) / (1 + save / interval)


def time_with_failures(seconds: Number, share: Number) -> Number:
    """How long a run takes of which only a share of the time makes progress.

    >>> time_with_failures(100.0, 0.8)
    125.0
    """
    if isinstance(share, int | float) and not 0 < share <= 1:
        raise InputError(f"A share of {share:g} is none; it lies above 0 and is 1 at most.")
    return seconds / share
