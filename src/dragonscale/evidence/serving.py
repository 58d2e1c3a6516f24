"""Scoring simulated latencies against measured serving runs: `dscale validate serving FILE`.

The load generator is simulated with the engine: a fixed number of clients who all start together
and send their next request when the last is answered, so that the mean time to a first token holds
the burst at the start, and every output token the prompts of others that are prefilled beside it.
Time to first token (TTFT) and time per output token (TPOT) are scored apart; the report's overall
numbers are TPOT's."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, by, report_of, statistics_of, worst_of
from dragonscale.evidence.serving_bands import coverage, served_residuals
from dragonscale.evidence.serving_choices import choices
from dragonscale.evidence.serving_drafts import Drafted, Reused
from dragonscale.evidence.serving_rows import FORMS, ServedRun, run_of
from dragonscale.evidence.serving_shipped import as_shipped, known_engine
from dragonscale.evidence.serving_waits import balanced, gathered
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import adjust
from dragonscale.serving.table import StepTable, StepTimes
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, Pool, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import scheduler_of

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
        held = balanced(
            recipe.balance, run.plan.data, max(row.clients // run.plan.data, 1), tokens, each, recipe.batching
        )
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
    scheduler = replace(scheduler_of(own), sequences=run.sequences, tokens=_budget(run), ranks=run.plan.data, poll=poll)
    times: StepTimes = Reused(table, recipe.reuse) if recipe.reuse else table
    pace = 1.0
    if run.drafts:
        times = drafted = Drafted(table, drafts=run.drafts, acceptance=recipe.acceptance)
        pace = drafted.tokens
    prompts, outputs = _lengths(run, row.input), _lengths(run, max(round(row.output / pace), 2))
    fleet = Fleet(
        Pool(times, cache_tokens(run), scheduler), overhead_s=front_seconds(run, own.host.request_s, times, pace)
    )
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
        choices=choices(judged),
        engines=dict(Counter(run.engine.name for run, _ in judged)),
        band={name: coverage(found, name) for name, found in served_residuals(judged).items() if found},
    )


def _scored(run: ServedRun, measured: float, predicted: float) -> Scored:
    return Scored(run.row.id, run.row.engine, measured, predicted, run.row.model)


def _of(pairs: Sequence[tuple[ServedRun, Scored]], inferred: bool) -> dict[str, Any]:
    """Rows of recipes that were stated, or of those with a setting that was inferred from
    results."""
    return statistics_of([row for run, row in pairs if bool(run.recipe.inferred) == inferred])


def _apart(pairs: Sequence[tuple[ServedRun, Scored]]) -> dict[str, Any]:
    rows = [row for _, row in pairs]
    return {
        **statistics_of(rows),
        "dense": statistics_of([row for run, row in pairs if not run.moe]),
        "moe": statistics_of([row for run, row in pairs if run.moe]),
        "speculative": statistics_of([row for run, row in pairs if run.drafts]),
        "by_source": {name: statistics_of(some) for name, some in by(rows, lambda row: row.source).items()},
        "by_model": {name: statistics_of(some) for name, some in sorted(by(rows, lambda row: row.group).items())},
        "worst": worst_of(rows),
    }
