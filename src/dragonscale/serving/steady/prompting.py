"""Prompts in the iterations of a replica: in how many chunks each, how many together, what they take; and the steady
state.

Under a token budget a prompt is cut into chunks that fill an iteration beside the decoding sequences, each with the
chunks before it in the cache; an engine that does not cut runs it whole. Every data rank has prompts of its own, and
the parts of a pipeline have a budget each. Prompts that come during one iteration are prefilled together in a later
one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import Iteration, IterationCost, iteration_cost
from dragonscale.serving.steady.steady import Habits, PromptTimes, Steady, SteadyLoop, closed_loop

DEGREES = ("tensor", "data", "expert", "context", "width", "pipe")
ROUGH = (12,)
_MODEL = ("sections", "decoding", "readings", "kv_heads", "latent", "recurrent")
ALIKE = (*_MODEL, "kernels", "network", "exchange_network")
"""What a deployment works out for itself that is the same several times over."""
PARTS = (0.0625, 0.25, 1.0)
"""Of a batch, how much decodes: a step is computed at these and linear in between."""

PACKED = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Between one prompt on every rank and as many as an iteration takes: few short ones take no longer than one, while
weights are read."""


@dataclass(frozen=True)
class Chunks:
    """How a prompt of `new` tokens after `past` cached ones is cut: into `count` chunks, the last of `last` tokens and
    the others of `size`. An iteration takes up to `together` of its kind."""

    count: Any
    size: Any
    last: Any
    new: int
    past: int
    together: Any

    @property
    def budgets(self) -> Any:
        """Iterations' worth of tokens in one prompt, of all ranks together."""
        return numpy.where(self.count > 1, self.new / self.size, 1.0) / self.together


def chunks_of(deployment: Deployment, new: int, past: int, decodes: Any) -> Chunks:
    """The chunks of a prompt beside so many decoding sequences (their tokens, with drafts)."""
    plan, limits = deployment.plan, deployment.engine.scheduling
    beside = decodes / plan.data if limits.beside else 0.0
    room = numpy.maximum(limits.max_tokens * plan.pipe - beside, 1.0) + 0.0 * decodes
    if limits.scheduler != "chunked":
        one = numpy.ones_like(room)
        together = numpy.maximum(numpy.floor(room * plan.data / new), 1.0)
        return Chunks(one, new * one, new * one, new, past, together)
    count = numpy.ceil(new / room)
    together = numpy.where(count > 1, plan.data, numpy.maximum(room * plan.data / new, 1.0))
    return Chunks(count, room, new - (count - 1) * room, new, past, together)


def tiled(deployment: Deployment, times: int) -> Deployment:
    """The same deployments several times over."""
    numbers = {name: numpy.tile(getattr(deployment.plan, name), times) for name in DEGREES}
    many = replace(deployment, plan=replace(deployment.plan, **numbers))
    vars(many).update({name: getattr(deployment, name) for name in ALIKE})
    return many


def costs(deployment: Deployment, rows: int, iterations: list[Iteration]) -> IterationCost:
    """Some iterations of `rows` deployments in one go, one after the other."""
    columns = zip(*(vars(one).values() for one in iterations), strict=True)
    wide = (numpy.concatenate([numpy.broadcast_to(value, rows) for value in column]) for column in columns)
    many = tiled(deployment, len(iterations)) if len(iterations) > 1 else deployment
    return iteration_cost(many, Iteration(*wide))


def seconds(cost: IterationCost, rows: int, count: int) -> list[Any]:
    """Expected seconds of each of `count` iterations that were costed in one go."""
    return numpy.split(numpy.broadcast_to(cost.expected, rows * count), count)


def prefill_seconds(
    deployment: Deployment, cut: Chunks, counts: list[Any], decodes: Any, keys: float, queries: Any = 1
) -> tuple[list[Any], Any]:
    """Seconds of a prompt's chunks from the first to the last, with some numbers of such prompts in its last iteration;
    and how much longer that iteration is if the next prompt fills it."""
    rows = len(cut.count)
    beside = {"decodes": decodes, "keys": keys, "queries": queries} if numpy.any(decodes > 0) else {}
    before = cut.past + (cut.count - 1) * cut.size
    asked = [Iteration(prompts=count, tokens=cut.last, past=before, **beside) for count in counts]
    if not numpy.any(cut.count > 1):
        return seconds(costs(deployment, rows, asked), rows, len(asked)), 0.0
    middle = cut.past + numpy.maximum(cut.count - 2, 0) / 2 * cut.size
    asked += [Iteration(prompts=count, tokens=cut.size, past=middle, **beside) for count in counts]
    found = seconds(costs(deployment, rows, asked), rows, len(asked))
    ends, full = found[: len(counts)], found[len(counts) :]
    fills = numpy.where(cut.count > 1, numpy.maximum(full[0] - ends[0], 0.0), 0.0)
    return [end + (cut.count - 1) * each for end, each in zip(ends, full, strict=True)], fills


def piecewise(knots: list[Any], values: list[Any]) -> Callable[[Any], Any]:
    """For each of many rows a function by its knots in rising order, linear between them and level beyond the ends."""
    ends = zip(knots, knots[1:], values, values[1:], strict=False)
    pairs = [(low, numpy.maximum(high - low, 1e-9), left, right - left) for low, high, left, right in ends]

    def curve(at: Any) -> Any:
        found = values[0]
        for low, wide, left, rise in pairs:
            part = numpy.minimum((at - low) / wide, 1.0)
            found = numpy.where(at > low, left + rise * part, found)
        return found

    return curve


@dataclass(frozen=True)
class DecodeSteps:
    """Seconds of a decode step by the sequences in it, of `keys` tokens on average, and by how much of itself it grows
    from the first token to the last; `cost` has those of the whole batch as its first rows."""

    curve: Callable[[Any], Any]
    growth: Any
    cost: IterationCost
    keys: float


def decode_steps(deployment: Deployment, batch: Any, prompt: int, keys: float) -> DecodeSteps:
    """Decode steps of up to so many sequences with `keys` tokens each on average."""
    knots = [numpy.maximum(batch * part, 1.0) for part in PARTS]
    asked = [Iteration(decodes=knot, keys=keys) for knot in knots[::-1]]
    cost = costs(deployment, len(batch), [*asked, Iteration(decodes=batch, keys=float(prompt))])
    *steps, first = seconds(cost, len(batch), len(asked) + 1)
    return DecodeSteps(piecewise(knots, steps[::-1]), 2 * (1 - first / steps[0]), cost, keys)


@dataclass(frozen=True)
class Looped:
    """How tokens come: a loop takes `seconds` of a plain decode step, `drafting` of them before its drafts are
    verified, and yields `tokens` on average. Without drafts it is the step."""

    seconds: Any = 1.0
    drafting: Any = 0.0
    drafts: Any = 0.0
    tokens: Any = 1.0


NO_DRAFTS = Looped()


@dataclass(frozen=True)
class Served:
    """The steady state of many batches, how many sequences decode in each, and the chunks of their prompts. Where
    other replicas prefill them, `packed` has numbers of them that are prefilled together, with the seconds: one, one on
    every data rank, and more up to as many as an iteration takes."""

    state: Steady
    decoding: Any
    cut: Chunks
    packed: tuple[tuple[Any, Any], ...] = ()


def served(
    deployment: Deployment,
    batch: Any,
    steps: DecodeSteps,
    new: int,
    past: int,
    output: int,
    looped: Looped = NO_DRAFTS,
    random: bool = False,
) -> Served:
    """The steady state of so many requests in flight on each deployment. First with prompts that meet nobody, then with
    as many sequences beside them, and prompts together, as that gives. With drafts an iteration is a whole loop, of
    which an output takes fewer than it has tokens. Requests come at `random`, or each as soon as another ends."""
    engine = deployment.engine
    limits, keys = engine.scheduling, steps.keys
    habits = Habits(limits.ahead + (limits.poll - 1) / 2, limits.beside, steps.growth, random)
    front = engine.host.front_s(new + past)
    nobody = 0.0 * batch

    loops, queries = 1 + (output - 1) / looped.tokens, 1 + looped.drafts

    def loop_s(decodes: Any) -> Any:
        return steps.curve(decodes) * looped.seconds

    cut = chunks_of(deployment, new, past, nobody)
    prompt = _times(deployment, cut, nobody + 4.0, nobody, keys, nobody)
    first = closed_loop(SteadyLoop(batch, loop_s, prompt, loops, front, replace(habits, beside=False)), ROUGH)
    if limits.beside:  # no more decode than end while the prompts of as many are prefilled
        others = numpy.clip(numpy.minimum(first.decoding - 1, (loops - 1) / cut.budgets), 1.0, None)
        single, cut = cut, chunks_of(deployment, new, past, others * queries)
        beside = _times(deployment, cut, 1 + first.coming, others, keys, loop_s(others) * cut.count, queries)
        drafting = steps.curve(others) * looped.drafting * cut.count
        by_count = beside.by_count
        prompt = replace(beside, alone=prompt.alone, by_count=lambda count: by_count(count) + drafting)
        shown = {name: numpy.where(batch > 1, getattr(cut, name), getattr(single, name)) for name in ("count", "size")}
        cut = replace(cut, **shown)
    else:
        prompt = replace(_times(deployment, cut, 1 + first.coming, nobody, keys, nobody), alone=prompt.alone)
    found = closed_loop(SteadyLoop(batch, loop_s, prompt, loops, front, habits), guess=first)
    state = replace(found.state, decode=found.state.decode / looped.tokens, output=output)
    return Served(state, found.decoding, cut)


def served_apart(
    deployment: Deployment, batch: Any, steps: DecodeSteps, new: int, past: int, output: int, looped: Looped = NO_DRAFTS
) -> Served:
    """The same where prompts are prefilled by other replicas than those that decode: a batch that only decodes, and
    prompts that run by themselves."""
    nobody = 0.0 * batch
    cut = chunks_of(deployment, new, past, nobody)
    packed = _packed(deployment, cut, steps.keys)
    step, front = steps.curve(batch) * looped.seconds / looped.tokens, deployment.engine.host.front_s(new + past)
    requests = batch / (step * max(output - 1, 1))
    each = packed[-1][1] / cut.together
    state = Steady(batch, step, packed[0][1], each, output, nobody, front, nobody, nobody, requests)
    return Served(state, batch, cut, packed)


def _packed(deployment: Deployment, cut: Chunks, keys: float) -> tuple[tuple[Any, Any], ...]:
    """Prompts that are prefilled together and their seconds, see `Served`."""
    one = numpy.ones_like(cut.together)
    ranks = numpy.minimum(deployment.plan.data * one, cut.together)
    counts = [one, *(ranks * (cut.together / ranks) ** part for part in PACKED)]
    return tuple(zip(counts, prefill_seconds(deployment, cut, counts, 0.0 * one, keys)[0], strict=True))


def _times(
    deployment: Deployment, cut: Chunks, near: Any, decodes: Any, keys: float, plain: Any, queries: Any = 1
) -> PromptTimes:
    """What prompts take, one by one, about so many together, and as many as share an iteration."""
    counts = [numpy.ones_like(cut.count), numpy.minimum(near, cut.together), cut.together]
    counts = counts[:1] if bool(numpy.all(cut.together <= 1)) else counts
    found, fills = prefill_seconds(deployment, cut, counts, decodes, keys, queries)
    return PromptTimes(piecewise(counts, found), found[0], plain, cut.count, cut.budgets, cut.together, fills)
