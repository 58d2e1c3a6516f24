"""Prefill in the steady state of a replica: into how many chunks a prompt is cut, how many run together, how long they
take; and with these the steady state itself.

Under a token budget a prompt is cut into chunks that fill an iteration beside the decoding sequences, each with the
earlier chunks in the cache; an engine that does not cut runs it whole. Every data rank has prompts of its own, and each
part of a pipeline has its own budget. Prompts that arrive during one iteration are prefilled together in a later one.

Arrays have one row for each plan and batch that is judged: (rows,).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.serving.engine.plan import DEGREES
from dragonscale.serving.iteration.deployment import Deployment, shared
from dragonscale.serving.iteration.iteration import Iteration, IterationCost
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.steady.steady import Habits, PromptTimes, Steady, SteadyLoop, closed_loop

Column = NDArray[numpy.float64]
"""Numbers of shape (rows,)."""

ROUGH = (12,)
"""Bisection steps of the first steady state, which only serves as a guess."""
DECODING_SHARES = (0.0625, 0.25, 1.0)
"""Fractions of a batch that decode at a time: a step is computed at these, and linear in between."""
PACKED_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How many prompts are packed into an iteration, on a logarithmic scale from one on every rank (0) to as many as fit
(1). A few short prompts take no longer than one, since reading the weights dominates."""


@dataclass(frozen=True)
class Chunks:
    """How a prompt of `new` tokens after `past` cached ones is cut.

    `count` chunks, the last of `last` tokens and the others of `size`. An iteration takes up to `together` of them.
    """

    count: Column
    size: Column
    last: Column
    new: int
    past: int
    together: Column

    @property
    def budgets(self) -> Column:
        """The fraction of an iteration's token budget, of all ranks together, that one prompt takes in all."""
        return numpy.where(self.count > 1, self.new / self.size, 1.0) / self.together


def chunks_of(deployment: Deployment, new: int, past: int, decodes: Column) -> Chunks:
    """The chunks of a prompt beside so many decoding tokens (one for each sequence, more with drafts)."""
    plan, limits = deployment.plan, deployment.engine.scheduling
    decoding_tokens = decodes / plan.data if limits.beside else 0.0
    budget = numpy.maximum(limits.max_tokens * plan.pipe - decoding_tokens, 1.0) + 0.0 * decodes  # (rows,)
    if limits.scheduler != "chunked":
        ones = numpy.ones_like(budget)
        together = numpy.maximum(numpy.floor(budget * plan.data / new), 1.0)
        return Chunks(ones, new * ones, new * ones, new, past, together)
    count = numpy.ceil(new / budget)
    # a prompt that fills whole iterations shares them with no other of its rank
    together = numpy.where(count > 1, plan.data, numpy.maximum(budget * plan.data / new, 1.0))
    return Chunks(count, budget, new - (count - 1) * budget, new, past, together)


@dataclass(frozen=True, kw_only=True)
class TiledDeployment(Deployment):
    """Deployments repeated several times, to cost several iterations of each in one call.

    What does not depend on the plan's degrees is shared with `origin`, the deployments once.
    """

    origin: Deployment

    sections = shared("sections")
    decoding = shared("decoding")
    readings = shared("readings")
    kv_heads = shared("kv_heads")
    latent = shared("latent")
    recurrent = shared("recurrent")
    kernels = shared("kernels")
    network = shared("network")
    exchange_network = shared("exchange_network")


def tiled(deployment: Deployment, times: int) -> TiledDeployment:
    """The same deployments `times` times in a row: (times x rows,)."""
    degrees = {name: numpy.tile(getattr(deployment.plan, name), times) for name in DEGREES}
    return TiledDeployment(
        model=deployment.model,
        piece=deployment.piece,
        plan=replace(deployment.plan, **degrees),
        launched_engine=deployment.launched_engine,
        transport=deployment.transport,
        origin=deployment,
    )


def costs(deployment: Deployment, rows: int, iterations: list[Iteration]) -> IterationCost:
    """Some iterations of `rows` deployments in one call, one after the other: (iterations x rows,)."""
    fields = zip(*(vars(iteration).values() for iteration in iterations), strict=True)
    columns = (numpy.concatenate([numpy.broadcast_to(value, rows) for value in values]) for values in fields)
    many = tiled(deployment, len(iterations)) if len(iterations) > 1 else deployment
    return iteration_cost(many, Iteration(*columns))


def seconds(cost: IterationCost, rows: int, count: int) -> list[Column]:
    """Expected seconds of each of `count` iterations that were costed in one call, (rows,) each."""
    return numpy.split(numpy.broadcast_to(cost.expected, rows * count), count)


@dataclass(frozen=True)
class PrefillTimes:
    """Seconds of a prompt's chunks from the first to the last, by how many such prompts share its last iteration; and
    how much longer that iteration is if the next prompt fills it."""

    by_count: list[Column]
    fills: Column | float


def prefill_seconds(
    deployment: Deployment, cut: Chunks, counts: list[Column], decodes: Column, keys: float, queries: Any = 1
) -> PrefillTimes:
    """The prefill of a prompt beside `decodes` sequences with `keys` cached tokens, for some numbers of prompts."""
    rows = len(cut.count)
    beside = {"decodes": decodes, "keys": keys, "queries": queries} if numpy.any(decodes > 0) else {}
    before_last = cut.past + (cut.count - 1) * cut.size
    iterations = [Iteration(prompts=count, tokens=cut.last, past=before_last, **beside) for count in counts]
    if not numpy.any(cut.count > 1):
        return PrefillTimes(seconds(costs(deployment, rows, iterations), rows, len(iterations)), 0.0)
    # the full chunks before the last, with what the middle one of them has cached
    middle = cut.past + numpy.maximum(cut.count - 2, 0) / 2 * cut.size
    iterations += [Iteration(prompts=count, tokens=cut.size, past=middle, **beside) for count in counts]
    times = seconds(costs(deployment, rows, iterations), rows, len(iterations))
    last, full = times[: len(counts)], times[len(counts) :]
    fills = numpy.where(cut.count > 1, numpy.maximum(full[0] - last[0], 0.0), 0.0)
    by_count = [last_s + (cut.count - 1) * full_s for last_s, full_s in zip(last, full, strict=True)]
    return PrefillTimes(by_count, fills)


def piecewise(knots: list[Column], values: list[Column]) -> Callable[[Any], Any]:
    """For each of many rows a function by its ascending knots, linear between them and constant beyond the ends."""

    def curve(x: Any) -> Any:
        y = values[0]
        for low, high, left, right in zip(knots, knots[1:], values, values[1:], strict=False):
            fraction = numpy.minimum((x - low) / numpy.maximum(high - low, 1e-9), 1.0)
            y = numpy.where(x > low, left + (right - left) * fraction, y)
        return y

    return curve


@dataclass(frozen=True)
class BatchSteps:
    """Decode steps by the number of sequences, with `keys` tokens each on average.

    `curve` gives seconds; `growth` is the fraction of itself by which a step grows from a sequence's first token to its
    last; the first rows of `cost` are the step of the whole batch.
    """

    curve: Callable[[Any], Any]
    growth: Any
    cost: IterationCost
    keys: float


def decode_steps(deployment: Deployment, batch: Column, prompt: int, keys: float) -> BatchSteps:
    """Decode steps of up to `batch` sequences with `keys` tokens each on average."""
    knots = [numpy.maximum(batch * share, 1.0) for share in DECODING_SHARES]
    iterations = [Iteration(decodes=knot, keys=keys) for knot in knots[::-1]]
    first_token = Iteration(decodes=batch, keys=float(prompt))
    cost = costs(deployment, len(batch), [*iterations, first_token])
    *steps, first = seconds(cost, len(batch), len(iterations) + 1)
    # a step grows linearly, and `keys` is half-way through the output
    growth = 2 * (1 - first / steps[0])
    return BatchSteps(piecewise(knots, steps[::-1]), growth, cost, keys)


@dataclass(frozen=True)
class DraftLoop:
    """A loop of speculative decoding: draft, then verify.

    It takes `seconds` times a plain decode step, `drafting` of that before its `drafts` are verified, and yields
    `tokens` on average. Without drafts it is a plain step.
    """

    seconds: Any = 1.0
    drafting: Any = 0.0
    drafts: Any = 0.0
    tokens: Any = 1.0


NO_DRAFTS = DraftLoop()


@dataclass(frozen=True)
class Served:
    """The steady state of many batches, how many sequences decode in each at a time, and the chunks of their prompts.

    If other replicas prefill, `packed` has numbers of prompts that are prefilled together, with the seconds: one, one
    on every data rank, and more up to as many as an iteration takes.
    """

    state: Steady
    decoding: Any
    cut: Chunks
    packed: tuple[tuple[Any, Any], ...] = ()


def served(
    deployment: Deployment,
    batch: Column,
    steps: BatchSteps,
    new: int,
    past: int,
    output: int,
    loop: DraftLoop = NO_DRAFTS,
    random: bool = False,
) -> Served:
    """The steady state of `batch` requests in flight on each deployment.

    Two rounds: first with prompts that meet nobody, then with as many sequences beside them, and prompts together, as
    the first round found. With drafts an iteration is a whole loop, of which an output takes fewer than it has tokens.
    Requests arrive at `random`, or each as soon as another ends.
    """
    engine = deployment.engine
    limits, keys = engine.scheduling, steps.keys
    habits = Habits(limits.ahead + (limits.poll - 1) / 2, limits.beside, steps.growth, random)
    front = engine.host.front_s(new + past)
    nobody = 0.0 * batch  # (rows,)
    loops, queries = 1 + (output - 1) / loop.tokens, 1 + loop.drafts

    def loop_s(decodes: Column) -> Column:
        return steps.curve(decodes) * loop.seconds

    cut = chunks_of(deployment, new, past, nobody)
    prompt = _prompt_times(deployment, cut, nobody + 4.0, nobody, keys, nobody)
    guess = closed_loop(SteadyLoop(batch, loop_s, prompt, loops, front, replace(habits, beside=False)), ROUGH)
    if limits.beside:
        # no more decode than end while the prompts of as many are prefilled
        others = numpy.clip(numpy.minimum(guess.decoding - 1, (loops - 1) / cut.budgets), 1.0, None)
        alone_cut, cut = cut, chunks_of(deployment, new, past, others * queries)
        plain = loop_s(others) * cut.count
        shared = _prompt_times(deployment, cut, 1 + guess.coming, others, keys, plain, queries)
        # drafting comes on top of each of a prompt's iterations
        drafting = steps.curve(others) * loop.drafting * cut.count
        by_count = shared.by_count
        prompt = replace(shared, alone=prompt.alone, by_count=lambda count: by_count(count) + drafting)
        # what is reported of a batch of one are the chunks of a prompt alone
        count = numpy.where(batch > 1, cut.count, alone_cut.count)
        cut = replace(cut, count=count, size=numpy.where(batch > 1, cut.size, alone_cut.size))
    else:
        shared = _prompt_times(deployment, cut, 1 + guess.coming, nobody, keys, nobody)
        prompt = replace(shared, alone=prompt.alone)
    balance = closed_loop(SteadyLoop(batch, loop_s, prompt, loops, front, habits), guess=guess)
    # from seconds of a loop back to seconds of a token
    state = replace(balance.state, decode=balance.state.decode / loop.tokens, output=output)
    return Served(state, balance.decoding, cut)


def served_apart(
    deployment: Deployment,
    batch: Column,
    steps: BatchSteps,
    new: int,
    past: int,
    output: int,
    loop: DraftLoop = NO_DRAFTS,
) -> Served:
    """The steady state if other replicas prefill: a batch that only decodes, and prompts that run by themselves."""
    nobody = 0.0 * batch
    cut = chunks_of(deployment, new, past, nobody)
    packed = _packed(deployment, cut, steps.keys)
    step, front = steps.curve(batch) * loop.seconds / loop.tokens, deployment.engine.host.front_s(new + past)
    requests = batch / (step * max(output - 1, 1))
    added = packed[-1][1] / cut.together  # seconds that a prompt takes of a prefill replica
    state = Steady(
        batch=batch,
        decode=step,
        prefill=packed[0][1],
        added=added,
        output=output,
        waiting=nobody,
        front=front,
        under_way=nobody,
        met=nobody,
        requests=requests,
    )
    return Served(state, batch, cut, packed)


def _packed(deployment: Deployment, cut: Chunks, keys: float) -> tuple[tuple[Column, Column], ...]:
    """Prompts that are prefilled together and their seconds, see `Served`."""
    ones = numpy.ones_like(cut.together)
    ranks = numpy.minimum(deployment.plan.data * ones, cut.together)
    counts = [ones, *(ranks * (cut.together / ranks) ** power for power in PACKED_POWERS)]
    return tuple(zip(counts, prefill_seconds(deployment, cut, counts, 0.0 * ones, keys).by_count, strict=True))


def _prompt_times(
    deployment: Deployment, cut: Chunks, likely: Column, decodes: Column, keys: float, plain: Column, queries: Any = 1
) -> PromptTimes:
    """What prompts take, one by one, about `likely` of them together, and as many as share an iteration."""
    counts = [numpy.ones_like(cut.count)]
    if not numpy.all(cut.together <= 1):
        counts += [numpy.minimum(likely, cut.together), cut.together]
    times = prefill_seconds(deployment, cut, counts, decodes, keys, queries)
    by_count = piecewise(counts, times.by_count)
    return PromptTimes(by_count, times.by_count[0], plain, cut.count, cut.budgets, cut.together, times.fills)
