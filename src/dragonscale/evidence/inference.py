"""Scoring expected latencies and rates against measured inference runs: `dscale validate inference FILE`.

All predictions come from the cost of single iterations. A static batch is one prefill (in parts, where the engine
limits the tokens of a pass) and a decode step for every further token. A server under full load is in its steady state,
with as many sequences as the memory has room for; served clients are simulated. Where nothing says how the model is
split, the planner's choice is taken: the split with the most tokens per second that keeps the limits on latency.
Latencies (seconds) and rates (tokens per second) are reported apart, and so are rows for which the planner chose the
split."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.evidence.inference_rows import FORMS, LATENCIES, InferenceCase, InferenceRow, case_of
from dragonscale.evidence.rows import attempt, read_cases, skip_if, sound
from dragonscale.evidence.score import Scored, ScoreReport, report_of, statistics_of
from dragonscale.physics.hardware import Torus
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import Iteration, decode, iteration_cost, prefill
from dragonscale.serving.steady.steady import Steady, steady_state
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import pool_for

POINTS = 9
"""Lengths at which the decode steps of a growing cache are computed; the time between is nearly
straight."""
BATCHES = 24
"""Batches among which the largest that keeps a latency limit is looked for."""
MOST_REQUESTS = 20_000
"""Requests after which a simulated rate has settled."""
LATE = 2.33
"""Standard deviations of a normal distribution that one of a hundred exceeds."""
SHORT = 0.1
"""Length of a short answer over the mean: it meets fewer prompts on its way, and therefore more
varying numbers of them."""


def deployment_of(case: InferenceCase, plan: ServingPlan | None = None) -> Deployment:
    """The case's own deployment, or the same under another plan on as many chips as that needs."""
    chosen = plan or case.plan
    assert chosen is not None
    piece = case.piece if chosen.chips == case.piece.chips else replace(case.piece, shape=(chosen.chips,), pods=1)
    stated = {"max_tokens": case.row.tokens_per_pass, "max_sequences": case.row.sequences}
    engine = adjust(case.engine, scheduling={name: value for name, value in stated.items() if value})
    if case.row.memory_share:
        engine = adjust(engine, memory={"share": case.row.memory_share})
    return Deployment(case.model, piece, chosen, engine, case.row.transport or "ib")


def seconds(deployment: Deployment, iteration: Iteration) -> Any:
    """The expected seconds of iterations."""
    return numpy.asarray(iteration_cost(deployment, iteration).expected, float)


def decode_seconds(deployment: Deployment, batch: float, prompt: int, output: int) -> float:
    """The mean decode step while caches grow from the prompt to the whole sequence."""
    keys = numpy.linspace(prompt, prompt + max(output - 1, 0), POINTS if output > 1 else 1)
    return float(seconds(deployment, decode(batch, keys)).mean())


def passes(batch: int, prompt: int, stages: int, limit: int) -> int:
    """Parts in which a static batch is prefilled: one for each stage of a pipeline if that divides
    it, then halved until a part has no more tokens than the engine allows.

    >>> passes(256, 128, 3, 2048), passes(16, 128, 3, 2048), passes(6, 20, 3, 2048)
    (16, 1, 3)
    """
    size = batch // stages if batch % stages == 0 else batch
    while size * prompt > limit and size % 2 == 0:
        size //= 2
    return batch // size


def prefill_seconds(deployment: Deployment, batch: int, prompt: int) -> float:
    """A static batch's prompts, part after part; the parts follow each other through a pipeline's
    stages."""
    stages = deployment.plan.pipe
    parts = passes(batch, prompt, stages, deployment.engine.scheduling.max_tokens * deployment.plan.data)
    one = float(seconds(deployment, prefill(prompt, batch / parts * stages)).mean())
    return one * (parts + stages - 1) / stages


def steady(deployment: Deployment, sequences: Any, prompt: int, output: int) -> Steady:
    """The steady state with so many sequences in flight. As many prompts as the engine allows
    tokens share an iteration with the decoding sequences; longer ones take several, each with more
    of the prompt behind it."""
    limit = deployment.engine.scheduling.max_tokens * deployment.plan.data
    together = max(1, limit // prompt)
    pieces = max(1.0, prompt / limit)
    sequences = numpy.minimum(sequences, max(1.0, together / pieces * output))
    keys = prompt + output / 2
    plain = seconds(deployment, decode(sequences, keys))
    new = prompt / pieces
    mixed = Iteration(decodes=sequences, keys=keys, prompts=together, tokens=new, past=(prompt - new) / 2)
    added = (seconds(deployment, mixed) - plain) * pieces / together
    return steady_state(sequences, plain, added * together, added, output)


def room(deployment: Deployment, tokens: int) -> float:
    """Sequences of so many tokens that fit beside the weights and that the engine allows."""
    found = float(numpy.min(capacity(deployment).sequences(tokens)))
    return min(found, deployment.engine.scheduling.max_sequences * deployment.plan.data)


def full_load(case: InferenceCase, plan: ServingPlan) -> float:
    """Tokens per second of all replicas of the model under full load; 0 where it does not fit."""
    row, deployment, copies = case.row, deployment_of(case, plan), case.piece.chips // plan.chips
    most = room(deployment, row.prompt + row.output)
    if most < 1:
        return 0.0
    if row.requests and not row.clients:
        return in_waves(deployment, most, row) * copies
    most = min(most, row.clients / copies) if row.clients else most
    sizes = numpy.unique(numpy.geomspace(1, most, BATCHES).round()) if row.tpot_limit else numpy.array([most])
    state = steady(deployment, sizes, row.prompt, row.output)
    first, each = late(state)
    kept = ((first <= row.ttft_limit) & (each <= row.tpot_limit)) | (not row.tpot_limit)
    return float(numpy.where(kept, state.tokens, 0.0).max()) * copies


def in_waves(deployment: Deployment, most: float, row: InferenceRow) -> float:
    """Tokens per second of so many equal requests that are all there from the start: they run in waves of as many as
    there is room for, and the last wave has what is left."""
    full = min(float(steady(deployment, min(most, row.requests), row.prompt, row.output).batch), row.requests)
    waves, rest = divmod(row.requests, full)
    sizes = numpy.array([full, max(rest, 1.0)])
    rates = steady(deployment, sizes, row.prompt, row.output).tokens
    return row.requests / float(waves * full / rates[0] + rest / rates[1])


def late(state: Steady) -> tuple[Any, Any]:
    """Seconds to the first token, and for each further one, that one request of a hundred exceeds.
    Requests arrive at random, so that waiting times fall off exponentially; a request of L of the
    mean O tokens meets about L/O·B prompts, give or take the root of that."""
    busy = state.added * state.requests
    scale = state.waiting / numpy.maximum(busy, 1e-9)
    first = state.ttft - state.waiting + scale * numpy.log(numpy.maximum(100 * busy, 1.0))
    met = state.batch + LATE * numpy.sqrt(state.batch / SHORT)
    return first, state.decode + state.added * met / numpy.maximum(state.output - 1, 1)


def choices(case: InferenceCase) -> list[ServingPlan]:
    """Splits to choose from where the source names none: tensor parallelism, pipelines of that,
    copies of both; on a torus the whole slice."""
    chips, own = case.piece.chips, ServingPlan(weights=case.row.weights, compute=case.row.compute, kv=case.row.kv)
    if isinstance(case.piece.chip.network, Torus):
        return [replace(own, tensor=chips)]
    sizes = [(tensor, pipe) for tensor in (1, 2, 4, 8) for pipe in (1, 2, 4) if tensor * pipe <= 16]
    return [replace(own, tensor=tensor, pipe=pipe) for tensor, pipe in sizes if chips % (tensor * pipe) == 0]


def predict(case: InferenceCase) -> float:
    """What is to be expected: seconds, or tokens per second."""
    found = _predicted(case)
    skip_if(not found, "does not fit the memory of its chips")
    return found


def predict_memory(case: InferenceCase) -> float:
    """Bytes in use on the busiest chip with the whole batch at its full length."""
    return float(numpy.max(capacity(deployment_of(case)).held(case.row.batch, case.row.prompt + case.row.output)))


def _predicted(case: InferenceCase) -> float:
    if case.plan is None:
        return max(full_load(case, plan) for plan in choices(case))
    own, row = deployment_of(case), case.row
    if row.scenario == "prefill_only":
        return prefill_seconds(own, row.batch, row.prompt)
    if row.scenario in ("static_batch", "decode_only"):
        # A pipeline's stages share a batch only if they divide it.
        batch = row.batch if row.batch % case.plan.pipe == 0 else row.batch * case.plan.pipe
        step = decode_seconds(own, batch, row.prompt, row.output)
        if row.scenario == "decode_only":
            return step
        return prefill_seconds(own, row.batch, row.prompt) + (row.output - 1) * step
    if row.scenario == "prefill_throughput":
        tokens = row.tokens_per_pass or own.engine.scheduling.max_tokens
        prompts = max(1, tokens // row.prompt) * case.plan.data
        return prompts * row.prompt / float(seconds(own, prefill(row.prompt, prompts)).mean())
    if row.scenario == "decode_throughput":
        most = room(own, row.prompt + row.output)
        return most / decode_seconds(own, most, row.prompt, 1) if most >= 1 else 0.0
    if row.slots:
        return _slotted(row, own)
    if row.scenario == "serving" and row.clients:
        return _simulated(row, own)
    return full_load(case, case.plan)


def _slotted(row: InferenceRow, own: Deployment) -> float:
    """An engine with fixed slots whose attention reads every slot to its full length, and which
    prefills prompts one by one, padded to a power of two."""
    length, held = row.cache_length or row.prompt + row.output, capacity(own)
    if numpy.any(held.weights + row.slots * length * held.per_token > held.hbm):
        return 0.0
    padded = 2 ** int(numpy.ceil(numpy.log2(row.prompt)))
    one = float(seconds(own, prefill(padded, 1)).mean())
    return row.slots * row.output / (row.output * decode_seconds(own, row.slots, length, 1) + row.slots * one)


def _simulated(row: InferenceRow, own: Deployment) -> float:
    """Clients that send their next request when the last is answered."""

    def lengths(mean: int) -> Fixed | Uniform:
        low, high = (round(mean * (1 + side * row.spread)) for side in (-1, 1))
        return Uniform(low, high) if row.spread else Fixed(mean)

    clients = min(row.clients, MOST_REQUESTS)
    requests = min(row.requests or 5 * clients, MOST_REQUESTS)
    load = ClosedLoop(clients, requests, lengths(row.prompt), lengths(row.output))
    longest = math.ceil((row.prompt + row.output) * (1 + row.spread))
    result = simulate(Fleet(pool_for(own, longest)), load, SimulationOptions(seed=0))
    return float(result.throughput.output_tokens_per_s)


def inference_cases(path: str | Path) -> tuple[list[InferenceCase], list[str]]:
    """The rows of a file of inference runs that can be predicted, and the reason for each one that
    cannot."""
    return read_cases(path, "inference runs", FORMS, case_of)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured inference runs."""
    cases, reasons = inference_cases(path)
    judged = attempt(cases, lambda case: sound(predict(case)), reasons)
    pairs = [
        (case, Scored(case.row.id, case.row.source, case.row.measured, expected, case.row.scenario))
        for case, expected in judged
    ]
    memory = [
        replace(row, measured=case.row.memory_bytes, predicted=predict_memory(case))
        for case, row in pairs
        if case.row.memory_bytes and case.plan is not None and case.row.batch
    ]
    return report_of(
        [row for _, row in pairs],
        reasons,
        "scenario",
        latencies=statistics_of([row for _, row in pairs if row.group in LATENCIES]),
        rates=statistics_of([row for _, row in pairs if row.group not in LATENCIES]),
        plan_chosen=statistics_of([row for case, row in pairs if case.plan is None]),
        plan_stated=statistics_of([row for case, row in pairs if case.plan is not None]),
        assumed=dict(Counter(mark for case, _ in judged for mark in case.row.marks)),
        memory={"mape": None} | statistics_of(memory),
    )
