"""Scoring simulated latencies against measured serving runs: `dscale validate serving FILE`.

The load generator is simulated with the engine: a fixed number of clients who all start together and send their next
request when the last is answered, so that the mean time to a first token holds the burst at the start, and every
output token the prompts of others that are prefilled beside it. Time to first token (TTFT) and time per output token
(TPOT) are scored apart; the report's overall numbers are TPOT's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.evidence.run_files import read_runs
from dragonscale.evidence.score import Report, Scored, by, report_of, statistics_of
from dragonscale.evidence.serving_drafts import Drafted, Reused
from dragonscale.evidence.serving_rows import COLUMNS, Served, served_of
from dragonscale.hardware import parse_slice
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import adjust, load_engine
from dragonscale.serving.table import StepTable
from dragonscale.serving.times import StepTimes
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, Pool, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import scheduler_of

TOKENISE = 2.5e-6
"""Seconds of a tokeniser for a token of a prompt: the Hugging Face tokenisers that all three engines use do about
400,000 tokens a second on one core."""
COLD = "kernels were compiled while requests were timed"


@dataclass(frozen=True)
class ServingReport(Report):
    """TPOT as any report; `ttft` beside it, row by row, and the ids of runs of mixtures and of runs with speculation. `cold` runs
    have no TTFT to score."""

    ttft: tuple[Scored, ...] = ()
    mixtures: frozenset[str] = frozenset()
    speculative: frozenset[str] = frozenset()
    cold: int = 0

    def as_json(self, worst: int = 10) -> dict[str, Any]:
        """The record of `dscale validate --json`."""
        found = super().as_json(worst)
        found["tpot"] = self._apart(self.scored, worst)
        found["ttft"] = self._apart(self.ttft, worst)
        found["ttft"]["skipped"] = {COLD: self.cold} if self.cold else {}
        return found

    def _apart(self, rows: Sequence[Scored], worst: int) -> dict[str, Any]:
        heavy = sorted(rows, key=lambda row: -row.ape)[:worst]
        return {
            **statistics_of(rows),
            "dense": statistics_of([row for row in rows if row.id not in self.mixtures]),
            "moe": statistics_of([row for row in rows if row.id in self.mixtures]),
            "speculative": statistics_of([row for row in rows if row.id in self.speculative]),
            "by_source": {name: statistics_of(some) for name, some in by(rows, lambda row: row.source).items()},
            "by_model": {name: statistics_of(some) for name, some in sorted(by(rows, lambda row: row.group).items())},
            "worst": [
                {"id": row.id, "measured": row.measured, "predicted": row.predicted, "ape": row.ape} for row in heavy
            ],
        }


class Bench:
    """Deployments of a file with their step tables, each built once."""

    def __init__(self, runs: Iterable[Served]) -> None:
        self.most: dict[tuple[object, ...], tuple[int, int]] = {}
        for run in runs:
            tokens, sequences = self.most.get(self._key(run), (0, 0))
            self.most[self._key(run)] = (max(tokens, _budget(run)), max(sequences, run.clients))
        self.tables: dict[tuple[object, ...], StepTable] = {}

    @staticmethod
    def _key(run: Served) -> tuple[object, ...]:
        return run.engine, run.model.name, run.chip.name, run.plan, _captured(run)

    def table(self, run: Served) -> StepTable:
        """The step times of a run's deployment."""
        key = self._key(run)
        if key not in self.tables:
            tokens, sequences = self.most[key]
            deployment = deployment_of(run, tokens, sequences)
            self.tables[key] = StepTable(deployment, longest=16384, draft_part=1.5 / run.model.n_layers)
        return self.tables[key]


def deployment_of(run: Served, tokens: int, sequences: int) -> Deployment:
    """The copy of the model that served, with the engine as it was launched."""
    engine = load_engine(run.engine)
    engine = adjust(
        engine,
        memory={"share": run.recipe.memory},
        scheduling={"max_tokens": tokens, "max_sequences": sequences},
        host={"stream_s": engine.host.stream_s / run.recipe.interval, "prompt_graphs": _captured(run)},
    )
    return Deployment(run.model, parse_slice(f"{run.chip.name}:{run.plan.chips}"), run.plan, engine)


def _captured(run: Served) -> bool:
    """Whether an iteration with one of the run's prompts is replayed from a graph."""
    return run.input + run.clients <= run.recipe.captured


def _budget(run: Served) -> int:
    """Most tokens of an iteration; every place of data-parallel attention has a budget of its own."""
    return run.budget * run.plan.data


def cache_tokens(run: Served) -> int:
    """Tokens of cache that the run's requests have room for. TensorRT-LLM's part of the memory is one of what is left
    beside weights and activations, the others' is one of the whole. Where there seems to be none at all the run took place
    nevertheless, so nothing is known of its memory and all clients are taken to fit."""
    room = capacity(deployment_of(run, _budget(run), run.clients))
    if run.engine == "trtllm":
        free = room.hbm - numpy.max(room.weights) - numpy.max(room.working) - room.reserve
        room = replace(room, usable=room.hbm - free * (1 - run.recipe.memory))
    each = run.input + run.output
    fitting = int(numpy.min(room.sequences(each)))
    return (fitting if fitting > 1 else 2 * run.clients) * each


def front_seconds(run: Served, request_seconds: float, times: StepTimes) -> float:
    """What passes between a client's sending and the engine's knowing: the front, the tokeniser, and iterations for which
    a scheduler was told to hold prompts back: until they fill its budget, or until every GPU has one."""
    seconds = request_seconds + TOKENISE * run.input
    wait, wanted = run.recipe.wait, round((0.9 * run.budget - run.clients) / run.input)
    if run.plan.data > 1 and run.recipe.balance:
        wait, wanted = run.recipe.balance, run.plan.data
    if wait and wanted > 1:
        gathering = (wanted - 1) * run.output / (2 * run.clients)
        seconds += min(wait, gathering) * times.step(run.clients, run.clients * (run.input + run.output / 2))
    return seconds


def predict(run: Served, table: StepTable) -> tuple[float, float]:
    """Mean seconds to the first token and between tokens."""
    own = table.deployment.engine
    engine = replace(
        scheduler_of(own),
        sequences=run.recipe.sequences or run.clients,
        tokens=_budget(run),
        poll=run.recipe.poll[0 if run.clients < 16 else 1],
    )
    times: StepTimes = table
    pace = 1.0
    if run.drafts:
        times = drafted = Drafted(table, run.drafts, run.recipe.acceptance)
        pace = drafted.tokens
    elif run.recipe.reuse:
        times = Reused(table, run.recipe.reuse)
    result = simulate(
        Fleet(Pool(times, cache_tokens(run), engine), overhead_s=front_seconds(run, own.host.request_s, times)),
        ClosedLoop(
            run.clients,
            run.clients * run.recipe.prompts,
            _lengths(run, run.input),
            _lengths(run, max(round(run.output / pace), 2)),
        ),
        SimulationOptions(seed=0),
    )
    return result.latency["ttft_s"].mean.value, result.latency["tpot_s"].mean.value / pace


def _lengths(run: Served, stated: int) -> Fixed | Uniform:
    """Lengths of prompts or outputs: InferenceX draws them up to the stated one, NVIDIA's own runs around it."""
    spread = run.recipe.spread
    if spread >= 1:
        return Fixed(stated)
    if run.source == "inferencex":
        return Uniform.below(stated, spread)
    half = (1 - spread) / 2
    return Uniform(max(round(stated * (1 - half)), 1), max(round(stated * (1 + half)), 1))


def served_runs(path: str | Path) -> tuple[list[Served], list[str]]:
    """The rows of a file of serving runs that can be predicted, and the reason for each one that cannot."""
    return read_runs(path, COLUMNS, "serving", served_of)


def validate(path: str | Path) -> ServingReport:
    """Score every row of a file of measured serving runs; runs of one description are simulated once."""
    runs, reasons = served_runs(path)
    bench = Bench(runs)
    known: dict[tuple[object, ...], tuple[float, float]] = {}
    tpot: list[Scored] = []
    ttft: list[Scored] = []
    cold: list[str] = []
    mixtures: set[str] = set()
    speculative: set[str] = set()
    for run in runs:
        key = (run.engine, run.model.name, run.chip.name, run.plan, run.recipe, run.input, run.output, run.clients)
        try:
            if key not in known:
                known[key] = predict(run, bench.table(run))
        except InputError as error:
            reasons.append(f"not a possible run: {error}")
            continue
        first, each = known[key]
        if run.recipe.cold:
            cold.append(run.id)
        else:
            ttft.append(Scored(run.id, run.engine, run.ttft, first, run.model.name))
        tpot.append(Scored(run.id, run.engine, run.tpot, each, run.model.name))
        if run.mixture:
            mixtures.add(run.id)
        if run.drafts:
            speculative.add(run.id)
    plain = report_of(tpot, reasons, "model")
    return ServingReport(
        plain.scored, plain.skipped, "model", tuple(ttft), frozenset(mixtures), frozenset(speculative), len(cold)
    )
