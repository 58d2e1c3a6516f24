"""Prefill and decode on replicas of their own, on the back of an envelope.

A replica that does both runs the prompts of others between the steps of a sequence: while one sequence decodes its O -
1 tokens after the first, each of the B - 1 others ends once and is followed by a prompt of p seconds, so that

    TPOT = d + p·(B - 1)/(O - 1)

instead of the decode step d alone. Apart, a prompt's cache has to travel instead, and prompts wait for each other in
front of the prefill pool. `pool_ratio` says how many replicas of each kind keep the other busy.

>>> round(interrupted_step(0.0086, 0.91, 32, 512), 4), round(transfer_seconds(1.34e9, 50e9), 4)
(0.0638, 0.0268)
>>> prompt_wait(0.2, 0.5), longest_prefill(0.03, 0.01, 32, 512) > 0.3
(0.1, True)
"""

from dragonscale.errors import Infeasible
from dragonscale.physics.numbers import Number, maximum


def interrupted_step(step: Number, prefill: Number, batch: Number, output: Number) -> Number:
    """Seconds per output token where prompts of `prefill` seconds come between decode steps of `step`."""
    return step + prefill * (batch - 1) / maximum(output - 1, 1)


def longest_prefill(tpot: Number, step: Number, batch: Number, output: Number) -> Number:
    """The longest prefill that keeps the time per output token within `tpot` on a replica that does both; below 0 where
    the decode step alone is longer."""
    return (tpot - step) * maximum(output - 1, 1) / maximum(batch - 1, 1)


def transfer_seconds(size: Number, bandwidth: Number, latency: Number = 0) -> Number:
    """Seconds for a cache of `size` bytes to reach the other pool."""
    return latency + size / bandwidth


def break_even_bandwidth(size: Number, prefill: Number) -> Number:
    """Bytes per second from which moving a prompt's cache takes less time than computing it again."""
    return size / prefill


def prompt_wait(prefill: Number, load: Number, replicas: Number = 1) -> Number:
    """Mean seconds that a prompt waits for those before it, all equally long, coming at random, dealt to the replicas
    in turn: Kingman's formula, exact for one replica. `load` is the part of the time that a replica is busy."""
    if isinstance(load, int | float) and not 0 <= load < 1:
        raise Infeasible(
            f"A load of {load:g} is not below 1: prompts come as fast as they are done or faster, and wait ever longer."
        )
    return prefill / (2 * replicas) * load / (1 - load)
