"""What a replica does when its batch is always full: the steady state between prefill and decoding.

Every sequence takes one prefill and a decode step for each further token. With B sequences decoding, B/(O−1) of them end
in each step and as many prompts take their place, so a token takes

    TPOT  =  d(B)  +  p · B/(O−1)

where d is a decode step and p what a prompt adds to the iterations (its whole prefill where prompts run by themselves, the
difference to a plain decode step where they ride along in chunks). A request takes p + (O−1)·d/B of the replica. Prompts
wait for those before them; a queue with Poisson arrivals and a constant service time (M/D/1) says how long. Floats or
arrays.
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.numbers import Number, maximum, minimum, where


@dataclass(frozen=True)
class Steady:
    """Seconds and rates of one replica. `prefill` is a prompt's own way through, `waiting` the queue before it."""

    batch: Number
    decode: Number
    prefill: Number
    added: Number
    output: Number
    waiting: Number
    front: Number = 0.0

    @property
    def tpot(self) -> Number:
        """Seconds between a request's tokens."""
        return self.decode + self.added * self.batch / maximum(self.output - 1, 1) * where(self.output > 1, 1, 0)

    @property
    def requests(self) -> Number:
        """Requests per second."""
        return 1 / (self.added + (self.output - 1) * self.decode / self.batch)

    @property
    def tokens(self) -> Number:
        """Output tokens per second."""
        return self.requests * self.output

    @property
    def ttft(self) -> Number:
        """Seconds to the first token: the front end, the iteration that is under way, the queue, the prefill."""
        return self.front + self.decode / 2 + self.waiting + self.prefill

    @property
    def latency(self) -> Number:
        """Seconds from arrival to the last token."""
        return self.ttft + (self.output - 1) * self.tpot


def steady_state(
    batch: Number, decode: Number, prefill: Number, added: Number, output: Number, front: Number = 0.0
) -> Steady:
    """The steady state of `batch` decoding sequences.

    >>> state = steady_state(batch=32, decode=0.02, prefill=0.1, added=0.1, output=101)
    >>> round(state.tpot, 4), round(state.requests, 3)
    (0.052, 6.154)
    """
    busy = added / (added + (output - 1) * decode / batch)
    waiting = minimum(busy * added / (2 * maximum(1 - busy, 1e-3)), batch * added)  # no more wait than there are
    return Steady(batch, decode, prefill, added, output, waiting, front)


def closed_loop(concurrency: float, decode: Any, prefill: float, added: float, output: float) -> Steady:
    """The steady state with a fixed number of clients: those not decoding are waiting or in prefill. `decode` gives the
    seconds of a step for a batch; the batch is found by Little's law."""
    batch = float(concurrency)
    for _ in range(60):
        state = steady_state(batch, decode(max(batch, 1e-9)), prefill, added, output)
        away = state.requests * (state.prefill + state.waiting)
        new = min(max(concurrency - away, 1.0), concurrency)
        if abs(new - batch) < 1e-6 * concurrency:
            break
        batch = (batch + new) / 2
    return steady_state(batch, decode(batch), prefill, added, output)
