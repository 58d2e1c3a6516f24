"""Step times of special runs: multi-token prediction, and prompts that the cache holds already.

Multi-token prediction means fewer iterations, each of which verifies what was guessed. Whether a
guess is accepted is drawn anew in every step of every sequence, so over a whole answer the mean is
what counts: an answer of n tokens takes n / `tokens` iterations, and the simulator is given these
as its tokens.

Scoring simulated latencies against measured serving runs: `dscale validate serving FILE`.

The load generator is simulated with the engine: a fixed number of clients who all start together and send their next
request when the last is answered, so that the mean time to a first token holds the burst at the start, and every output
token the prompts of others that are prefilled beside it. Time to first token (TTFT) and time per output token (TPOT)
are scored apart; the report's overall numbers are TPOT's, of runs whose launch is stated: where a recipe has a setting
that was read off results, its runs stand apart from them.

Runs can also be judged by an engine as it is shipped: by its own limits and memory share for the chip, not those of the
run's launch script. What stays is the load (clients, lengths), the plan with its formats, and whether tokens were
drafted. With `auto` this is what a user gets who names no engine.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.evidence.bands import served_coverage
from dragonscale.evidence.choices import served_choices
from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, by, report_of, statistics_of, worst_of
from dragonscale.evidence.serving_rows import FORMS, Recipe, ServedRun, run_of
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.serving.engine.auto import AUTO
from dragonscale.serving.engine.engine import Engine, adjust, load_engine, split_settings
from dragonscale.serving.engine.launch import engine_on
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.step_table import StepTable
from dragonscale.serving.iteration.step_times import PromptChunk, StepTimes
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, Pool, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import scheduler_of


@dataclass(frozen=True)
class Reused:
    """Step times where a `part` of every prompt is found in the cache; all else is as in the table
    (see `StepTimes`)."""

    table: StepTable
    part: float = 0.0

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration, with the found part of its prompts in the past."""
        fewer = [(max(round(new * (1 - self.part)), 1), past + round(new * self.part)) for new, past in chunks]
        return self.table.step(decodes, cached, fewer, queries)

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """Iterations of pure decoding."""
        return self.table.run(decodes, cached, steps, queries)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """Iterations of pure decoding that end in time."""
        return self.table.steps_within(decodes, cached, seconds, queries)

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to guess."""
        return self.table.draft(decodes, cached, tokens)

    def transfer(self, tokens: int) -> float:
        """Seconds to send a cache."""
        return self.table.transfer(tokens)


@dataclass(frozen=True)
class Drafted(Reused):
    """Step times with `drafts` guesses for every sequence in every iteration, of which each is
    right with probability `acceptance`, given those before it."""

    drafts: int = 1
    acceptance: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens that an iteration brings a sequence: the one that is sure, and guesses up to the
        first that is wrong.

        >>> Drafted(None, drafts=3, acceptance=0.5).tokens
        1.875
        """
        return sum(self.acceptance**place for place in range(self.drafts + 1))

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration that guesses and verifies."""
        del queries
        if not decodes:
            return self.table.step(0, 0.0, chunks)
        guessing = self.table.draft(decodes, cached, self.drafts)
        return self.table.step(decodes, cached, chunks, self.drafts + 1) + guessing

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations one after the other, at their mean cache."""
        del queries
        if steps < 1 or decodes < 1:
            return 0.0
        return steps * self.step(decodes, cached + decodes * self.tokens * (steps - 1) / 2)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations within `seconds`: from a first guess, up or down."""
        del queries
        first = self.step(decodes, cached)
        if first > seconds:
            return 0
        count = max(int(seconds / first), 1)
        count = max(int(seconds / (self.run(decodes, cached, count) / count)), 1)
        while count > 0 and self.run(decodes, cached, count) > seconds:
            count -= 1
        while self.run(decodes, cached, count + 1) <= seconds:
            count += 1
        return count

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Counted in every step already."""
        del decodes, cached, tokens
        return 0.0


def gathered(patience: float, others: float, gap: float) -> float:
    """Mean iterations for which prompts that come every `gap` iterations are held back (`batch_wait_timeout_iters`):
    the first until so many `others` have come or its patience ends, those others for what is left of that.

    >>> gathered(40, 4, 5), gathered(40, 16, 8)
    (10.0, 23.333333333333332)
    """
    held = min(patience, others * gap)
    come = held / gap
    return held * (1 + come / 2) / (1 + come) if held == patience else held / 2


@functools.cache
def balanced(
    patience: int, ranks: int, places: int, output: float, each: int, batching: int = 0, rounds: float = 4.0
) -> float:
    """Mean iterations for which prompts wait with data-parallel attention until every rank has one (`enable_balance`),
    or until that was not so for `timeout_iters`. Every rank has its own `places`, so a prompt comes to the rank on
    which a sequence has just ended; a rank takes at most `each` prompts at once. When all have one, more are waited for
    (`batching_wait_iters`). `output`: iterations that a sequence decodes.

    >>> 20 < balanced(60, 8, 8, 1024.0, 1) < 60, balanced(60, 1, 64, 1024.0, 1) < 1
    (True, True)
    """
    draw = numpy.random.default_rng(0)
    left = draw.integers(1, max(int(output), 2), (ranks, places))
    since = numpy.zeros((ranks, places), int)
    waits, served, count, more = 0, 0, 0, 0
    for now in range(int(rounds * output)):
        left -= 1
        since[left == 0] = now
        waiting = left <= 0
        ready = bool(waiting.any(axis=1).all())
        count, more = (0, more + 1) if ready else (count + 1, 0)
        if (ready and more > batching) or count >= patience:
            count, more = 0, 0
            for rank in numpy.flatnonzero(waiting.any(axis=1)):
                own = numpy.flatnonzero(waiting[rank])
                first = own[numpy.argsort(since[rank, own])[:each]]
                waits, served = waits + int((now - since[rank, first]).sum()), served + len(first)
                left[rank, first] = draw.integers(int(0.8 * output), max(int(output), 1) + 1, len(first)) + 1
    return waits / max(served, 1)


LOAD = ("why", "inferred", "kv", "drafts", "acceptance", "prompts", "spread", "reuse", "cold")
"""What of a recipe is the load, or cannot be told from a plan."""
EVERY_TOKEN = 2**40
"""More tokens than any iteration has."""


def known_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if split_settings(name)[0] != AUTO:
        load_engine(name)


def engine_for(name: str, run: ServedRun) -> Engine:
    """The engine of that name with its settings for the run's chip; `auto`: what people run for the
    model on the chip."""
    return engine_on(name, load_chip(run.row.chip), run.model, chips=run.plan.chips, plan=run.plan)


def as_shipped(run: ServedRun, name: str) -> ServedRun:
    """The run with an engine as it is shipped."""
    engine = engine_for(name, run)
    limits, host = engine.scheduling, engine.host
    own = {"budget": limits.max_tokens, "sequences": limits.max_sequences * run.plan.data, "poll": (limits.poll,) * 2}
    own |= {"memory": engine.memory.share, "interval": host.stream_interval}
    own |= {"captured": EVERY_TOKEN if host.prompt_graphs else 0}
    recipe = Recipe(**{name: getattr(run.recipe, name) for name in LOAD}, **own)
    return replace(run, engine=engine, recipe=recipe)


COLD = "kernels were compiled while requests were timed"


def step_table(runs: Sequence[ServedRun]) -> StepTable:
    """The step times of a deployment that all these runs share, up to the longest iteration of any
    of them."""
    deployment = deployment_of(runs[0], max(map(_budget, runs)), max(run.row.clients for run in runs))
    return StepTable(deployment, longest=16384, draft_part=1.5 / runs[0].model.n_layers)


def deployment_of(run: ServedRun, tokens: int, sequences: int) -> Deployment:
    """The copy of the model that served, with the engine as it was launched."""
    engine = adjust(
        run.engine,
        experts=run.recipe.experts,
        memory={"share": run.recipe.memory},
        scheduling={"max_tokens": tokens, "max_sequences": sequences},
        host={"stream_interval": run.recipe.interval, "prompt_graphs": _captured(run)},
    )
    return Deployment(run.model, parse_slice(f"{run.row.chip}:{run.plan.chips}"), run.plan, engine)


def _captured(run: ServedRun) -> bool:
    """Whether an iteration with one of the run's prompts is replayed from a graph."""
    row, recipe = run.row, run.recipe
    whole = run.plan.data == 1 and recipe.begun(recipe.piecewise, f"{row.input}/{row.output}", row.clients)
    return whole or row.input + row.clients <= recipe.captured


def _budget(run: ServedRun) -> int:
    """Most tokens of an iteration; every place of data-parallel attention has a budget of its
    own."""
    return run.budget * run.plan.data


def cache_tokens(run: ServedRun) -> int:
    """Tokens of cache that the run's requests have room for. Where there seems to be none at all
    the run took place nevertheless, so nothing is known of its memory and all clients are taken to
    fit."""
    row, room = run.row, capacity(deployment_of(run, _budget(run), run.row.clients))
    each = row.input + row.output
    fitting = int(numpy.min(room.sequences(each)))
    return (fitting if fitting > 1 else 2 * row.clients) * each


def front_seconds(run: ServedRun, request_seconds: float, times: StepTimes, pace: float = 1.0) -> float:
    """What passes between a client's sending and the engine's knowing: the front, the tokeniser,
    and iterations for which a scheduler was told to hold prompts back: until they fill its budget,
    or until every GPU has one."""
    row, recipe = run.row, run.recipe
    seconds = request_seconds + run.engine.host.tokenise_s * row.input
    mean, tokens = row.input * (1 + min(recipe.spread, 1.0)) / 2, row.output / pace
    held = 0.0
    if run.plan.data > 1 and recipe.balance:
        each = max(int((run.budget - row.clients / run.plan.data) / mean), 1)
        places = max(row.clients // run.plan.data, 1)
        held = balanced(recipe.balance, run.plan.data, places, tokens, each, recipe.batching)
    elif recipe.wait:
        # Sums of random prompts pass the wanted one half a prompt late on average; the first prompt waits for the
        # others.
        others = (recipe.wait_ratio * run.budget - row.clients) / mean - 0.5
        held = gathered(recipe.wait, max(others, 0.0), tokens / row.clients)
    if held:
        seconds += held * times.step(row.clients, row.clients * (row.input + row.output / 2))
    return seconds


def predict(run: ServedRun, table: StepTable) -> tuple[float, float]:
    """Mean seconds to the first token and between tokens."""
    row, recipe, own = run.row, run.recipe, table.deployment.engine
    poll = recipe.poll[0 if row.clients < 16 else 1]
    ahead = own.scheduling.ahead if recipe.overlap else 0
    limits: dict[str, int] = {"sequences": run.sequences, "tokens": _budget(run), "ranks": run.plan.data}
    scheduler = replace(scheduler_of(own), **limits, poll=poll, ahead=ahead)
    times: StepTimes = Reused(table, recipe.reuse) if recipe.reuse else table
    pace = 1.0
    if run.drafts:
        times = drafted = Drafted(table, drafts=run.drafts, acceptance=recipe.acceptance)
        pace = drafted.tokens
    prompts, outputs = _lengths(run, row.input), _lengths(run, max(round(row.output / pace), 2))
    front = front_seconds(run, own.host.request_s, times, pace)
    fleet = Fleet(Pool(times, cache_tokens(run), scheduler), overhead_s=front)
    load = ClosedLoop(row.clients, row.clients * recipe.prompts, prompts, outputs)
    result = simulate(fleet, load, SimulationOptions(seed=0))
    return result.latency["ttft_s"].mean.value, result.latency["tpot_s"].mean.value / pace


def _lengths(run: ServedRun, stated: int) -> Fixed | Uniform:
    """Lengths of prompts or outputs: InferenceX draws them up to the stated one, NVIDIA's own runs
    around it."""
    spread = run.recipe.spread
    if spread >= 1:
        return Fixed(stated)
    if run.row.source == "inferencex":
        return Uniform.below(stated, spread)
    half = (1 - spread) / 2
    return Uniform(max(round(stated * (1 - half)), 1), max(round(stated * (1 + half)), 1))


def served_runs(path: str | Path) -> tuple[list[ServedRun], list[str]]:
    """The rows of a file of serving runs that can be predicted, and the reason for each one that
    cannot."""
    return read_cases(path, "serving runs", FORMS, run_of)


def predict_all(runs: Sequence[ServedRun], reasons: list[str]) -> list[tuple[ServedRun, tuple[float, float]]]:
    """Runs with their predicted latencies. A deployment's step times are tabulated once, and runs
    of one description are simulated once."""
    deployments: dict[tuple[object, ...], list[ServedRun]] = {}
    for run in runs:
        deployments.setdefault(_deployed(run), []).append(run)
    table = functools.cache(lambda key: step_table(deployments[key]))
    known: dict[tuple[object, ...], tuple[float, float]] = {}

    def once(run: ServedRun) -> tuple[float, float]:
        key = (*_deployed(run), run.row.recipe, run.row.input, run.row.output, run.row.clients)
        if key not in known:
            first, each = predict(run, table(_deployed(run)))
            known[key] = sound(first), sound(each)
        return known[key]

    return attempt(runs, once, reasons)


def _deployed(run: ServedRun) -> tuple[object, ...]:
    return run.engine.name, run.row.model, run.row.chip, run.plan, _captured(run)


def validate(path: str | Path, engine: str = "") -> ScoreReport:
    """Score every row of a file of measured serving runs, each by its own engine as it was launched, or all by one as
    it is shipped."""
    runs, reasons = served_runs(path)
    if engine:
        known_engine(engine)
        runs = [run for _, run in attempt(runs, lambda run: as_shipped(run, engine), reasons)]
    judged = predict_all(runs, reasons)
    tpot = [(run, _scored(run, run.row.tpot_s, each)) for run, (_, each) in judged]
    ttft = [(run, _scored(run, run.row.ttft_s, first)) for run, (first, _) in judged if not run.recipe.cold]
    cold = len(tpot) - len(ttft)
    return report_of(
        [row for _, row in tpot],
        reasons,
        "model",
        tpot=_apart(tpot),
        ttft=_apart(ttft) | {"skipped": {COLD: cold} if cold else {}},
        by_recipe={
            name: _of(tpot, inferred) | {"ttft": _of(ttft, inferred)}
            for name, inferred in (("stated", False), ("inferred", True))
        },
        choices=served_choices(judged),
        engines=dict(Counter(run.engine.name for run, _ in judged)),
        band=served_coverage(judged),
    )


def _scored(run: ServedRun, measured: float, predicted: float) -> Scored:
    inferred = bool(run.recipe.inferred)
    return Scored(run.row.id, run.row.engine, measured, predicted, run.row.model, inferred=inferred)


def _of(pairs: Sequence[tuple[ServedRun, Scored]], inferred: bool) -> dict[str, Any]:
    """Rows of recipes that were stated, or of those with a setting that was inferred from
    results."""
    return statistics_of([row for _, row in pairs if row.inferred == inferred])


def _apart(pairs: Sequence[tuple[ServedRun, Scored]]) -> dict[str, Any]:
    """One number of every run: runs whose launch is stated, and those with drafts, whose acceptance nobody states."""
    stated = [(run, row) for run, row in pairs if not row.inferred] or pairs
    rows = [row for _, row in stated]
    return {
        **statistics_of(rows),
        "dense": statistics_of([row for run, row in stated if not run.moe]),
        "moe": statistics_of([row for run, row in stated if run.moe]),
        "speculative": statistics_of([row for run, row in pairs if run.drafts]),
        "by_source": {name: statistics_of(some) for name, some in by(rows, lambda row: row.source).items()},
        "by_model": {name: statistics_of(some) for name, some in sorted(by(rows, lambda row: row.group).items())},
        "worst": worst_of(rows),
    }
