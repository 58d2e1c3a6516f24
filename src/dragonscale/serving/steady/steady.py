"""What a replica does in a steady state: B requests in flight, each followed by another as soon as it ends (a closed
loop).

A request passes the front end, waits for an iteration that takes it, is prefilled, and decodes its other O−1 tokens,
while the prompts of the B−1 others come between its steps. With d the seconds of a decode step and p what a prompt adds
to the iterations (its whole prefill where prompts run by themselves, the difference to a decode step where they run
beside decoding)

    TPOT  =  d  +  p · met/(O−1)                    met of the B−1 others' prompts are prefilled while it decodes
    TTFT  =  front + iteration under way + prompts before it + its own prefill
    B     =  requests/s · (TTFT + (O−1) · TPOT)     Little's law

Prompts wait for those before them as in a network of one queue (prefill) and a delay (decoding, the front end), by its
mean values: a request that arrives finds the prompts that the B−1 others have there (the arrival theorem), the first of
them half done. One request meets nobody and pays no queue. Floats or arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.physics.numbers import Number, maximum, minimum, where

HALVINGS = (12, 12)
"""Of the range of rates, and once more around what was found, since what happens at a rate is settled meanwhile."""


@dataclass(frozen=True)
class Steady:
    """Seconds and rates of one replica with `batch` requests in flight. `prefill` is a prompt's own way through,
    `waiting` the prompts before it, `under_way` the iteration it has to wait for, `met` the prompts of others that it
    meets while it decodes."""

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
    # M/D/1 (Pollaczek-Khinchine with constant service times)
    waiting = minimum(busy * added / (2 * maximum(1 - busy, 1e-3)), batch * added)  # no more wait than there are
    met = (batch - 1) * where(output > 1, 1, 0)
    return Steady(batch, decode, prefill, added, output, waiting, front, decode / 2, met, requests)


@dataclass(frozen=True)
class PromptTimes:
    """A prompt in the iterations of one replica: seconds of its way through beside those who decode, `by_count` of the
    prompts in its iteration, and of the same while nobody decodes (`alone`). In its iterations those who decode get
    tokens that would have taken `plain` seconds anyway. It takes `chunks` iterations, of the tokens that an iteration
    has room for `budgets`, and up to `together` prompts share one. Where its last chunk leaves room, that of the next
    prompt `fills` the iteration, which takes so much longer."""

    by_count: Callable[[Any], Any]
    alone: Any
    plain: Any
    chunks: Any
    budgets: Any
    together: Any
    fills: Any = 0.0

    @property
    def full_s(self) -> Any:
        """Of a replica's time what a prompt takes when there is always another behind it."""
        # of the last chunk's iteration
        unused = where(self.chunks > 1, 1 - self.budgets * self.together / self.chunks, 0.0)
        return (self.by_count(self.together) - self.plain * unused) / self.together


@dataclass(frozen=True)
class Habits:
    """When an engine looks at what has come: `look` iterations after the end of the one under way. Prompts run `beside`
    decoding sequences or stop them. While a sequence decodes its step grows by `growth` of itself. Requests come at
    `random`, or each follows another as soon as that ends."""

    look: float
    beside: bool
    growth: Number = 0.0
    random: bool = False


@dataclass(frozen=True)
class Balance:
    """A steady state, how many sequences decode in it at a time, how many prompts come during one iteration, and how
    many of the others decode while nobody is prefilled."""

    state: Steady
    decoding: Any
    coming: Any
    apart: Any


_NONE = Steady(*[0.0] * 10)


@dataclass(frozen=True)
class SteadyLoop:
    """So many clients: `decode` gives the seconds of a step by the sequences in it, `output` are the tokens of an
    answer, `front` the seconds before the engine."""

    batch: Any
    decode: Callable[[Any], Any]
    prompt: PromptTimes
    output: float
    front: float
    habits: Habits


def closed_loop(loop: SteadyLoop, halvings: tuple[int, ...] = HALVINGS, guess: Balance | None = None) -> Balance:
    """The steady state of so many clients."""
    batch, decode, prompt, front, habits = loop.batch, loop.decode, loop.prompt, loop.front, loop.habits
    steps, single, full = loop.output - 1.0, decode(numpy.ones_like(batch)), decode(batch)
    least = front + numpy.minimum(prompt.by_count(1.0), prompt.alone) + steps * numpy.minimum(single, full)
    longest = numpy.maximum(prompt.by_count(1.0), prompt.alone) + (2 + habits.look) * full
    high, low = batch / least, batch / (front + (batch + 2) * longest * 1.5 + steps * full)
    balance = guess or Balance(_NONE, batch, 0.0 * batch, batch - 1)
    rate = numpy.sqrt(low * high)
    for count in halvings:
        for _ in range(count):
            balance = _at_rate(rate, loop, balance)
            slow = balance.state.latency * rate > batch  # these requests would need more clients than there are
            high, low = numpy.where(slow, rate, high), numpy.where(slow, low, rate)
            rate = numpy.sqrt(low * high)
        high, low = rate * 1.3, rate / 1.3
    state = replace(balance.state, requests=batch / balance.state.latency)
    # Where nobody decodes there is nothing for prompts to ride on: they wait for the time that others take.
    highest_rate = numpy.where(loop.output == 1, 1 / prompt.full_s, state.requests)
    requests = numpy.minimum(state.requests, highest_rate)
    state = replace(state, requests=requests, waiting=state.waiting + batch / requests - batch / state.requests)
    balance = replace(balance, state=state)
    return _full(loop, balance) if habits.beside else balance


def _full(loop: SteadyLoop, balance: Balance) -> Balance:
    """Where there is always a prompt to prefill beside those who decode: every iteration has as much of prompts as it
    has room for, and the rest of the clients wait."""
    prompt, state, each, steps = loop.prompt, balance.state, loop.prompt.full_s, loop.output - 1.0
    iteration = each / prompt.budgets
    prefill = prompt.by_count(prompt.together)
    queue = loop.batch * each - loop.front - prefill - steps * iteration
    full = queue > prefill / 2
    met = steps * (iteration - state.decode) / numpy.maximum(state.added, 1e-12)
    rows = (("prefill", prefill), ("waiting", queue), ("under_way", 0.0), ("met", met), ("requests", 1 / each))
    full_state = replace(state, **{name: numpy.where(full, value, getattr(state, name)) for name, value in rows})
    return replace(balance, state=full_state, decoding=numpy.where(full, steps / prompt.budgets, balance.decoding))


def _at_rate(rate: Any, loop: SteadyLoop, last: Balance) -> Balance:
    """The latencies of requests of which so many come each second, from a guess of how many decode and
    come together."""
    batch, decode, prompt, habits = loop.batch, loop.decode, loop.prompt, loop.habits
    steps, others = loop.output - 1.0, rate * (batch - 1) / batch
    # to an iteration: new ones, and those of the iterations before with chunks left
    coming = last.coming * prompt.chunks
    step, mixed = decode(last.decoding), 1.0 if habits.beside else 0.0
    crowd = numpy.minimum(numpy.maximum(coming, 1e-9), prompt.together)
    mean = numpy.minimum(crowd / -numpy.expm1(-crowd), prompt.together)  # prompts of an iteration that has any
    companions = numpy.minimum(coming, prompt.together - 1)  # and beside a prompt that is there
    whole = prompt.by_count(1 + companions)
    added = numpy.maximum(prompt.by_count(mean) - mixed * prompt.plain, 0.0) / mean
    absent = decode(numpy.maximum(last.decoding - 1, 1.0))  # a step of the others
    ending = last.apart / numpy.maximum(steps * absent, 1e-12)  # requests per second while nobody is prefilled
    wait = _waiting(loop, others, ending, absent, whole, added, mean)
    # decoding: the prompts of all others come between its steps, but for those before it or with it in the queue
    each = where(prompt.chunks > 1, added + mixed * prompt.budgets * step, whole / mean)  # of a queue without gaps
    before = (wait.front_work + wait.queue + wait.finds_busy * wait.under_way) / each + companions
    met = numpy.maximum(batch - 1 - before, 0.0)
    spent = steps * step + met * added
    decoding_share = steps / numpy.maximum(steps + numpy.maximum(wait.window - wait.front_work, 0.0) / step, 1e-9)
    part = _within(spent * rate / batch, 0.0, 1.0) if habits.beside else decoding_share
    nobody = (1 - _within(spent * rate / batch, 0.0, 1.0)) ** (batch - 1)
    prefill = nobody * prompt.alone + (1 - nobody) * whole - numpy.expm1(-wait.behind) * prompt.fills
    state = Steady(batch, step, prefill, added, loop.output, wait.queue, loop.front, wait.under_way, met, rate)
    decoding, coming = 1 + (batch - 1) * part, wait.coming
    return Balance(state, (last.decoding + decoding) / 2, (last.coming + coming) / 2, (batch - 1) * decoding_share)


@dataclass(frozen=True)
class _Waiting:
    """What a request waits for: the `queue` of prompts before it, the iteration `under_way`. In its `window` between
    two requests others end, and of their prompts `front_work` seconds pass before it is even there; `coming` prompts
    come in one iteration, and `behind` it wait so many."""

    queue: Any
    under_way: Any
    finds_busy: Any
    window: Any
    front_work: Any
    coming: Any
    behind: Any


def _waiting(loop: SteadyLoop, others: Any, ending: Any, step: Any, whole: Any, added: Any, mean: Any) -> _Waiting:
    """Requests end while others decode, and the next ones are there after the front end's time. A prompt that finds the
    replica decoding begins a busy period; the requests that ended in the window before are prefilled after it, and so
    are those that end beside it. With a window longer than a prefill arrivals are as good as random (M/D/1); with none,
    and prompts that stop all decoding, nobody ever waits. Where several prompts share an iteration few wait for a
    second one (a bulk queue, after Sakasegawa's M/M/c)."""
    batch, prompt, front, habits = loop.batch, loop.prompt, loop.front, loop.habits
    mixed = 1.0 if habits.beside else 0.0
    window = front + (0.5 + habits.look) * step
    # others in between join it, where they may
    within = whole if habits.random else numpy.minimum(whole, where(prompt.together > 1, front + 1e-9, window))
    mixing = within / whole  # 1: random arrivals, 0: only as decoding goes on
    random = mixing if habits.beside or habits.random else where(ending > 0, 0.0, 1.0)
    load = _within(others * (added + mixed * prompt.chunks / mean * step * mixing), 0.0, 0.99)
    deep = _within(others * (added + mixed * prompt.budgets * step), 0.0, 0.99)
    at_once = numpy.maximum(ending * step, 1e-9)
    at_once = (1 - random) * (at_once / -numpy.expm1(-at_once) - 1)  # others that end with the same step
    at_once = where(prompt.together > 1, 0.0, at_once)  # these join it, where they may
    ended = (random * others / (1 - load) + (1 - random) * ending) * within + at_once  # within the window
    # those who stop all decoding together come in turns: whoever ends with a step finds the prompts of the step before
    # under way if these had to wait for the step, which is so in one turn of two where every step ends somebody
    turns = where((prompt.together > 1) & (front < step), 0.0 if habits.beside or habits.random else 1.0, 0.0)
    ended = where(turns > 0, -numpy.expm1(-ending * step), ended)
    behind = (random * others / (1 - deep) + (1 - random) * ending) * within + at_once
    behind = behind * deep ** (numpy.sqrt(2 * (prompt.together + 1)) - 2) / prompt.together
    behind = behind * numpy.maximum(batch - 2, 0.0) / numpy.maximum(batch - 1, 1.0)  # of finitely many
    finds_busy = ended / (1 + ended)
    first = finds_busy * (whole * (1 + behind / 2) - within * (1 + turns) / 2)
    pace = step / (1 - _within(others * added, 0.0, 0.99))
    later = _within(mixed * others * pace * prompt.budgets * (1 - mixing), 0.0, 0.99)
    each = where(prompt.chunks > 1, added + mixed * prompt.budgets * step, whole)
    started = each * (1 + 3 * behind + behind**2) / (2 * (1 + behind))
    queue = (1 - later) * first + later * (started + later * each / (2 * (1 - later)))
    seen_iteration = (1 - load) * step + load * whole / prompt.chunks
    during = step if habits.beside else numpy.maximum(step, (1 - finds_busy) * step + finds_busy * within / 2)
    coming = random * others * seen_iteration + (1 - random) * ending * during
    # the iteration under way, and those after it that are settled already
    idle = numpy.minimum(front * others / numpy.maximum(batch - 1, 1), 1.0) ** (batch - 1)
    steady = 0.0 if habits.random else numpy.exp(-numpy.minimum(ending * front, 50.0))
    rest = steady * _phase(front / step, habits.growth) + (1 - steady) * 0.5
    mean_s = 1 / (load * prompt.chunks / whole + (1 - load) / step)  # of an iteration
    # has prompts of others that are not waited for
    has_prompts = where(prompt.together > 1, -numpy.expm1(-others * mean_s), 0.0)
    settled = habits.look * ((1 - has_prompts) * step + has_prompts * whole)
    alone = where(prompt.together > 1, 1.0, 1 / prompt.chunks) / (1 + behind)
    under_way = (1 - idle) * ((1 - finds_busy) * (rest * step + settled) + finds_busy * alone * settled)
    may_join = where(prompt.together > 1, finds_busy, 0.0)
    # of those behind it, the ones that were there before the iteration that its last chunk was settled in
    early = where(prompt.chunks > 1.5 + habits.look, behind, numpy.minimum(ending * (0.5 + habits.look) * step, behind))
    return _Waiting(queue, under_way, may_join, window, finds_busy * (window - within / 2), coming, early)


def _within(value: Any, low: float, high: float) -> Any:
    # as `numpy.clip`, which takes longer than all else on one row
    return numpy.minimum(numpy.maximum(value, low), high)


def _phase(steps: Any, growth: Any) -> Any:
    """The part of a step that is left after so many steps, the next request of a client coming a fixed time after a
    step's end; the mean while steps grow by `growth` of themselves."""

    def sawtooth(at: Any) -> Any:
        whole = numpy.floor(at)
        return whole / 2 + (at - whole) - (at - whole) ** 2 / 2

    half = numpy.maximum(steps * growth / 2, 1e-6)
    early, late = numpy.maximum(steps - half, 0.0), steps + half  # a request comes after the step that it follows
    return (sawtooth(late) - sawtooth(early)) / (late - early)
