"""What a replica does in a steady state: B requests in flight, each followed by another as soon as it ends (a closed loop).

A request passes the front end, waits for an iteration that takes it, is prefilled, and decodes its other O−1 tokens, while the
prompts of the B−1 others come between its steps. With d the seconds of a decode step and p what a prompt adds to the
iterations (its whole prefill where prompts run by themselves, the difference to a decode step where they run beside decoding)

    TPOT  =  d  +  p · met/(O−1)                    met of the B−1 others' prompts are prefilled while it decodes
    TTFT  =  front + iteration under way + prompts before it + its own prefill
    B     =  requests/s · (TTFT + (O−1) · TPOT)     Little's law

Prompts wait for those before them as in a network of one queue (prefill) and a delay (decoding, the front end), by its mean
values: a request that arrives finds the prompts that the B−1 others have there (the arrival theorem), the first of them half
done. One request meets nobody and pays no queue. Floats or arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.numbers import Number, maximum, minimum, where

HALVINGS = 40


@dataclass(frozen=True)
class Steady:
    """Seconds and rates of one replica with `batch` requests in flight. `prefill` is a prompt's own way through, `waiting` the
    prompts before it, `under_way` the iteration it has to wait for, `met` the prompts of others that it meets while it decodes."""

    batch: Number
    decode: Number
    prefill: Number
    added: Number
    output: Number
    waiting: Number
    front: Number
    under_way: Number
    met: Number
    requests: Number

    @property
    def tpot(self) -> Number:
        """Seconds between a request's tokens."""
        return self.decode + self.added * self.met / maximum(self.output - 1, 1)

    @property
    def tokens(self) -> Number:
        """Output tokens per second."""
        return self.requests * self.output

    @property
    def ttft(self) -> Number:
        """Seconds to the first token: the front end, the iteration that is under way, the queue, the prefill."""
        return self.front + self.under_way + self.waiting + self.prefill

    @property
    def latency(self) -> Number:
        """Seconds from arrival to the last token."""
        return self.ttft + (self.output - 1) * self.tpot


def steady_state(
    batch: Number, decode: Number, prefill: Number, added: Number, output: Number, front: Number = 0.0
) -> Steady:
    """The steady state of `batch` sequences that always decode: a queue always has the next prompt, as under full load.

    >>> state = steady_state(batch=32, decode=0.02, prefill=0.1, added=0.1, output=101)
    >>> round(state.tpot, 4), round(state.requests, 3)
    (0.051, 6.154)
    """
    requests = 1 / (added + (output - 1) * decode / batch)
    busy = added * requests
    waiting = minimum(busy * added / (2 * maximum(1 - busy, 1e-3)), batch * added)  # no more wait than there are
    met = (batch - 1) * where(output > 1, 1, 0)
    return Steady(batch, decode, prefill, added, output, waiting, front, decode / 2, met, requests)


@dataclass(frozen=True)
class PromptTimes:
    """A prompt in the iterations of one replica: seconds of its `whole` way through beside those who decode, of the same while
    nobody does (`alone`), and what it has `added` to iterations in the end. It takes `chunks` iterations and, of the tokens that
    an iteration has room for, `budgets`."""

    whole: Number
    alone: Number
    added: Number
    chunks: Number
    budgets: Number


@dataclass(frozen=True)
class Habits:
    """When an engine looks at what has come: `look` iterations after the end of the one under way; prompts run `beside`
    decoding sequences or stop them."""

    look: float
    beside: bool


def closed_loop(
    batch: Any, decode: Callable[[Any], Any], prompt: PromptTimes, output: float, front: float, habits: Habits
) -> tuple[Steady, Any, Any]:
    """The steady state of so many clients, how many of them decode at a time, and the seconds of an iteration as one that
    arrives finds it. `decode` gives the seconds of a step by the sequences in it."""
    low = numpy.zeros_like(batch)
    high = batch / (front + prompt.alone * 0 + 1e-9)
    found = None
    for _ in range(HALVINGS):
        rate = numpy.sqrt(numpy.maximum(low, 1e-12) * high)
        found = _state(rate, batch, decode, prompt, output, front, habits)
        slow = found[0].latency * rate > batch  # these requests would need more clients than there are
        high, low = numpy.where(slow, rate, high), numpy.where(slow, low, rate)
    assert found is not None
    return found


def _state(
    rate: Any, batch: Any, decode: Callable[[Any], Any], prompt: PromptTimes, output: float, front: float, habits: Habits
) -> tuple[Steady, Any, Any]:  # fmt: skip
    """The latencies of requests of which so many come each second."""
    cycle, steps = batch / rate, output - 1.0
    others = rate * (batch - 1) / batch
    # decoding: others' prompts fall into the part of a request's time in which it is not prefilled itself
    taken = numpy.minimum((batch - 1) * prompt.added / numpy.maximum(cycle - prompt.whole, 1e-9), 0.999)
    step = decode(batch)
    for _ in range(3):
        spent = steps * step / (1 - taken)
        away = cycle - spent if habits.beside else front * (1 - taken) + (habits.look + 0.5) * step
        part = numpy.clip(spent / cycle if habits.beside else steps * step / (steps * step + away), 0.0, 1.0)
        decoding = 1 + (batch - 1) * part
        step = decode(decoding)
    spent = steps * step / (1 - taken)
    met = numpy.where(prompt.added > 0, (spent - steps * step) / numpy.maximum(prompt.added, 1e-12), 0.0)
    # the prompt itself: beside those who decode, if any
    nobody = (1 - numpy.clip(spent / cycle, 0.0, 1.0)) ** (batch - 1)
    whole = nobody * prompt.alone + (1 - nobody) * prompt.whole
    # the queue before it, and the iteration under way
    each = prompt.added + (step * prompt.budgets if habits.beside else 0.0)  # of the replica's time, one after the other
    busy = numpy.minimum(others * numpy.maximum(prompt.added + step * prompt.chunks * habits.beside, 0.0), 1.0)
    queued = busy * prompt.whole / 2 / numpy.maximum(1 - others * each, 1e-6)
    idle = numpy.minimum(front / cycle, 1.0) ** (batch - 1)
    free = numpy.maximum(1 - busy - idle, 0.0)
    under_way = free * (0.5 + habits.look) * step + (1 - free - idle) * habits.look * step / prompt.chunks
    state = Steady(batch, step, whole, prompt.added, output, queued, front, under_way, met, rate)
    found = (1 - busy) * step + busy * prompt.whole / prompt.chunks
    return state, decoding * numpy.ones_like(batch) if steps else 0.0 * batch, found
