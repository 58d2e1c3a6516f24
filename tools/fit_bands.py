"""Write the bands of expected step times and of servers' latencies and rates from measured runs.

    python -m tools.fit_bands                    # print those of training, and how they hold for sources left out
    python -m tools.fit_bands serving            # those of serving, and how they hold for models on chips left out
    python -m tools.fit_bands serving --write    # and write src/dragonscale/serving/space/errors.toml

How is told in `dragonscale/evidence/bands.py`. `generic` is no stack and no engine that was measured: every training
run and every tenth served run is judged by it too. For a chip of which nothing was measured, all runs of a generation
of chips are left out together."""

import argparse
import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from dragonscale.evidence.bands import (
    TAIL,
    BandOf,
    Kinds,
    Residual,
    band_around,
    inside,
    kinds_of,
    left_out,
    quantile,
    served_residuals,
    sides_of,
    widened,
    widened_sides,
    without_groups,
)
from dragonscale.evidence.inference import inference_cases
from dragonscale.evidence.inference import predict as expect
from dragonscale.evidence.inference_rows import LATENCIES, InferenceCase
from dragonscale.evidence.rows import attempt
from dragonscale.evidence.serving import as_shipped, predict_all, served_runs
from dragonscale.evidence.training import predict, residual, training_runs
from dragonscale.physics.numbers import first_number
from dragonscale.serving.space.bands import MEASURES, ServedKind, fitted_kernels
from dragonscale.serving.space.bands import MIN_RUNS as SERVED_MIN_RUNS
from dragonscale.training.search.error_bands import MIN_RUNS, NOMINAL, narrowest
from dragonscale.training.search.published_runs import shape_of
from dragonscale.training.search.run_kinds import UNNAMED, RunKind, wide_format
from tools.refit import MEASURED, ROOT

TAILS = (0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03)
"""Parts of the runs to leave outside on each side. Groups that are left out differ more than those that are kept, so
the tails may be narrower than (1 - NOMINAL) / 2."""
STRETCHES = (1.5, 1.75, 2.0, 2.5, 3.0)
"""Bands of chips whose kernels were chosen are half as wide again at least, a judgement, and wider where runs on such
chips need it."""

REACH, NEAREST = 1.25, 0.08
"""How much further than its furthest run a band may reach on a side, and the least of that run, in logarithms: another
source may lie on the other side."""
LEANS, MOST = 8.0, 0.88
"""A kind whose runs need less than those of the wider one leans on that as if it lent so many runs, while no more than
`MOST` of its own lie inside."""

FILE = MEASURED / "training.csv.gz"
TABLE = ROOT / "src" / "dragonscale" / "training" / "search" / "errors.toml"
HEAD = """\
# How far measured training runs were from what was expected of them, by kind of run: dense or moe, chip or generation, family of the
# stack, how the plan splits the step, format. low and high: four of five runs took 1 + low to 1 + high times the expected seconds, as
# other sources have it; wider: by how much that was widened, in logarithms, or, below zero, which part it
# is narrower by, so that it holds for sources that were left out.
# unpublished: how much wider the band is of a kind of plan of which no step is published. published: the most chips and stages of
# measured runs of a kind of plan on a generation of chips, and the shortest sequence. Written by `python -m tools.fit_bands --write` from docs/data/measured/training.csv.gz.

"""


def residuals(stack: str = "", every: int = 1) -> tuple[list[Residual], dict[str, dict[str, Any]]]:
    """How far runs are from their expected seconds, by their own stack or another, and how far kinds of plan have been
    taken."""
    runs, reasons = training_runs(FILE, stack)
    found: list[Residual] = []
    published: dict[str, dict[str, Any]] = {}
    for _, (run, verdict) in attempt(runs[::every], predict, reasons):
        one = residual(run, first_number(verdict.seconds))
        found.append(replace(one, kind=replace(one.kind, stack=stack)) if stack else one)
        assert isinstance(one.kind, RunKind)
        if one.kind.split:
            least = {"chips": 0, "pipe": 0, "sequence": run.job.sequence, "formats": []}
            most = published.setdefault(one.kind.plan_name, least)
            most["formats"] = sorted({*most["formats"], wide_format(run.plan.dtype)})
            most["chips"] = max(most["chips"], run.job.slice.chips)
            most["pipe"] = max(most["pipe"], run.plan.pipe)
            most["sequence"] = min(most["sequence"], run.job.sequence)
    return found, dict(sorted(published.items()))


RUNS_TABLE = TABLE.with_name("measured_runs.toml")
RUNS_HEAD = """\
# Measured training steps: what people published, to lay beside what somebody measures. A row a step of the model in seconds, on so many
# chips, judged by a stack (training/plan/stacks.toml). Written by `python -m tools.fit_bands --write` from docs/data/measured/training.csv.gz.

"""


def measured_runs() -> str:
    """`measured_runs.toml`: the rows of the published runs that answers are laid beside."""
    runs, _ = training_runs(FILE)
    lines = []
    for run in runs:
        row = run.row
        values = {
            "source": row.source,
            "model": row.model,
            **asdict(shape_of(run.job)),
            "chip": run.job.slice.chip.kin,
            "chips": run.job.slice.chips,
            "stack": run.job.stack.name,
            "plan": str(run.plan),
            "batch": run.job.batch,
            "seq": run.job.sequence,
            "step_s": row.step_s,
        }
        lines.append(f"  {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in values.items())} }},\n")
    return f"{RUNS_HEAD}runs = [\n{''.join(lines)}]\n"


def calibrated(residuals: Sequence[Residual]) -> dict[str, dict[str, float]]:
    """The kinds of training runs of `errors.toml`: the runs of each, how much wider than the band that other sources
    give it has to be, and the band: the mean of those of its runs, widened. It holds for all of them, and for those
    that no narrower kind speaks for."""
    rest = without_groups(residuals, TAIL, lambda run: run.group)
    counts = Counter(name for run in residuals for name in run.kind.names)
    enough = {name: {"runs": float(runs)} for name, runs in counts.items()}
    needs: dict[str, list[tuple[bool, float, float, float]]] = {}
    logs: dict[str, list[float]] = defaultdict(list)
    wider: dict[str, str] = {}
    for run in residuals:
        names = run.kind.names
        wider |= zip(names, (*names[1:], ""), strict=True)
        for place, name in enumerate(names):
            low, high = sides_of(names[place:], rest[run.group])
            own = narrowest(names, enough) == name
            needs.setdefault(name, []).append((own, _need(run.log, low, high), low, high))
            logs[name].append(run.log)
    kinds: dict[str, dict[str, float]] = {}

    def settled(name: str) -> dict[str, float]:
        if name not in kinds:
            _, scores, lows, highs = zip(*needs[name], strict=True)
            above = settled(wider[name])["wider"] if wider[name] else -math.inf
            mine = [score for own, score, *_ in needs[name] if own]
            more = max(_widening(some, above) for some in (scores, mine) if 2 * len(some) >= MIN_RUNS or some is scores)
            low, high = _trimmed(widened_sides((statistics.mean(lows), statistics.mean(highs)), more), logs[name])
            kinds[name] = {"runs": len(needs[name]), "low": low, "high": high, "wider": more}
        return kinds[name]

    return {name: settled(name) for name in sorted(needs, key=lambda name: (name != "all", len(name.split()), name))}


def _trimmed(band: tuple[float, float], logs: Sequence[float]) -> tuple[float, float]:
    """A band that reaches on neither side much further than the furthest of its own runs: widening is on both sides,
    and runs that are all on one side say nothing of the other."""
    if len(logs) < MIN_RUNS:
        return band
    furthest = (math.expm1(REACH * side) for side in (min(*logs, -NEAREST), max(*logs, NEAREST)))
    return max(band[0], next(furthest)), min(band[1], next(furthest))


def _widening(scores: Sequence[float], wider: float) -> float:
    """What four of five runs need, or nearer to what those of a wider kind need where that is more."""
    own, share = quantile(scores, NOMINAL), len(scores) / (len(scores) + LEANS)
    last = int(MOST * len(scores))
    most = sum(sorted(scores)[last - 1 : last + 1]) / 2 if len(scores) >= MIN_RUNS else math.inf
    return min(share * own + (1 - share) * max(own, wider), most)


def _need(log: float, low: float, high: float) -> float:
    """How much wider a band has to be on both sides for a run, or, below zero, by which part it could be narrower."""
    beyond = max(low - log, log - high)
    return beyond if beyond > 0 else log / (high if log > 0 else low) - 1


def unpublished_stretch(residuals: Sequence[Residual], kinds: Kinds) -> float:
    """How much wider, in logarithms, bands must be to hold for kinds of plan that were left out on a generation of
    chips: half as wide again at least. That is a judgement: plans that nobody has published may be further from those
    that were."""
    planned = [run for run in residuals if isinstance(run.kind, RunKind) and run.kind.split]
    rest = without_groups(planned, TAIL, _plan_name)
    scores = []
    for run in planned:
        band = widened(kinds)(replace(run.kind, split=""), rest[_plan_name(run)])
        scores.append(run.log / math.log1p(band.high if run.log > 0 else band.low))
    return max(1.5, quantile(scores, NOMINAL))


def _plan_name(run: Residual) -> str:
    assert isinstance(run.kind, RunKind)
    return run.kind.plan_name


SERVED = ROOT / "src" / "dragonscale" / "serving" / "space" / "errors.toml"
SERVED_HEAD = """\
# How far measured servers were from what was expected of them, by kind of run: dense or moe, generation of the chip, engine.
# low and high: four of five runs had 1 + low to 1 + high times the expected number; median: the median relative error. tail: the
# part of the runs that is left outside on each side so that this holds for models on chips, half of them left out. stretch: how
# much wider, in logarithms, the band of a chip is of which neither kernels nor runs were measured. chips: runs by chip and engine. tpot,
# ttft: servers under load; tokens: their rates and those of full servers; step: static batches and single steps. Written by
# `python -m tools.fit_bands serving --write` from docs/data/measured/serving.csv.gz and inference.csv.gz.
"""


def best_tail(residuals: Sequence[Residual], band_of: BandOf) -> float:
    """The widest tails with which the bands hold for what is asked about, a model on a chip that was measured as often
    as one that was left out; narrower ones hold too, so the range is halved until it is found."""
    least, most = 0, len(TAILS) - 1
    while least < most:
        middle = (least + most) // 2
        kinds = kinds_of(residuals, TAILS[middle])
        held = [*left_out(residuals, TAILS[middle], band_of), *(inside(run, band_of, kinds) for run in residuals)]
        least, most = (least, middle) if sum(held) >= NOMINAL * len(held) else (middle + 1, most)
    return TAILS[least]


def generation(run: Residual) -> str:
    """The generation of a served run's chip."""
    assert isinstance(run.kind, ServedKind)
    return run.kind.generation


def best_stretch(residuals: Sequence[Residual], measure: str, tail: float) -> float:
    """How much wider, in logarithms, bands must be to hold for a generation of chips that was left out: for those whose
    kernels were chosen, where there are runs on such chips."""
    chosen = [isinstance(run.kind, ServedKind) and not fitted_kernels(run.kind.chip) for run in residuals]
    counts = chosen if sum(chosen) >= SERVED_MIN_RUNS else [True] * len(residuals)
    for stretch in STRETCHES:
        held = left_out(residuals, tail, band_around(measure, stretch), generation)
        if sum(itertools.compress(held, counts)) >= NOMINAL * sum(counts):
            return stretch
    return STRETCHES[-1]


def inference_residuals(judged: Iterable[tuple[InferenceCase, float]]) -> dict[str, list[Residual]]:
    """How far published latencies of steps and rates of full servers were from what was expected."""
    residuals: dict[str, list[Residual]] = {measure: [] for measure in MEASURES}
    for case, predicted in judged:
        row, kind = case.row, ServedKind(case.row.chip, case.engine.name, bool(case.row.experts))
        measure = "step" if row.scenario in LATENCIES else "tokens"
        residuals[measure].append(Residual(kind, f"{row.model} {row.chip}", math.log(row.measured / predicted)))
    return residuals


def served(engine: str = "", sampled: bool = False) -> dict[str, list[Residual]]:
    """How far every served run and every published latency and rate is from what was expected, by its own engine or
    another."""
    runs, reasons = served_runs(MEASURED / "serving.csv.gz")
    if engine:
        return served_residuals(
            predict_all([as_shipped(run, engine) for run in runs[:: 10 if sampled else 1]], reasons)
        )
    cases, reasons = inference_cases(MEASURED / "inference.csv.gz")
    found, more = served_residuals(predict_all(runs, reasons)), inference_residuals(attempt(cases, expect, reasons))
    return {measure: [*found[measure], *more[measure]] for measure in found}


def write_served(write: bool) -> None:
    """The bands of servers."""
    own, unnamed = served(), served(UNNAMED[0], sampled=True)
    tails = {measure: best_tail(found, band_around(measure, 1.0)) for measure, found in own.items()}
    # chips with chosen kernels were measured by their rates and steps alone; their latencies are as uncertain
    stretch = max(best_stretch(found, measure, tails[measure]) for measure, found in own.items())
    text, table = SERVED_HEAD, dict[str, dict[str, str]]()
    for measure, found in own.items():
        kinds = kinds_of(found, tails[measure])
        others = kinds_of(unnamed[measure], tails[measure]) if unnamed[measure] else {}
        kinds |= {name: row for name, row in others.items() if name.endswith(f" * {UNNAMED[0]}")}
        for name, told in covered(found, kinds, measure, tails[measure]):
            table.setdefault(name, {})[measure] = told
        text += f"\n[{measure}]\ntail = {tails[measure]}\nstretch = {stretch}\n\n[{measure}.kinds]\n"
        text += "".join(
            f'"{name}" = {{ runs = {int(row["runs"])}, low = {row["low"]:.3f}, high = {row["high"]:.3f}, '
            f"median = {row['median']:.3f} }}\n"
            for name, row in kinds.items()
            if row["runs"] >= SERVED_MIN_RUNS
        )
        chips = Counter(run.kind.on_chip for run in found if isinstance(run.kind, ServedKind))
        text += f"\n[{measure}.chips]\n" + "".join(f'"{name}" = {runs}\n' for name, runs in sorted(chips.items()))
    print(f"| | {' | '.join(MEASURES)} |\n|---|{'---|' * len(MEASURES)}")
    for name in sorted(table, key=lambda name: (name != "all", name)):
        print(f"| {name} | {' | '.join(table[name].get(measure, '') for measure in MEASURES)} |")
    if write:
        SERVED.write_text(text, encoding="utf-8")
    else:
        print(text)


def covered(found: Sequence[Residual], kinds: Kinds, measure: str, tail: float) -> Iterable[tuple[str, str]]:
    """How many runs are inside their bands, of all and by kind: with their model on their chip left out, and of all."""
    around = band_around(measure, 1.0)
    rows: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for run, apart in zip(found, left_out(found, tail, around), strict=True):
        for name in ("all", *run.kind.reported):
            rows[name].append((apart, inside(run, around, kinds)))
    for name, both in rows.items():
        if len(both) >= SERVED_MIN_RUNS:
            apart, every = (sum(side) / len(both) for side in zip(*both, strict=True))
            yield name, f"{apart:.0%}, {every:.0%} of {len(both):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the bands of expected numbers from measured runs.")
    parser.add_argument("kind", nargs="?", choices=["training", "serving"], default="training")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.kind == "serving":
        write_served(options.write)
    else:
        write_training(options.write)


def write_training(write: bool) -> None:
    """The bands of training steps."""
    own, published = residuals()
    kinds = calibrated(own)
    held: dict[str, list[bool]] = defaultdict(list)
    for stack in UNNAMED:
        unnamed = residuals(stack)[0]
        others = calibrated(unnamed)
        kinds |= {name: row for name, row in others.items() if name.endswith(f" {stack}")}
        held[stack] = left_out(unnamed, TAIL, widened(others))
    for one, apart in zip(own, left_out(own, TAIL, widened(kinds)), strict=True):
        for name in ("all", *one.kind.reported):
            held[name].append(apart)
    for name, some in sorted(held.items()):
        if len(some) >= MIN_RUNS:
            print(f"{name:<36} {len(some):4d} runs, {sum(some) / len(some):.0%} inside with their source left out")
    text = f"{HEAD}unpublished = {unpublished_stretch(own, kinds):.2f}\n\n[kinds]\n"
    text += "".join(
        f'"{name}" = {{ runs = {int(row["runs"])}, low = {row["low"]:.3f}, high = {row["high"]:.3f}, '
        f"wider = {row['wider']:.3f} }}\n"
        for name, row in kinds.items()
        if row["runs"] >= MIN_RUNS
    )
    text += "\n[published]\n"
    text += "".join(
        f'"{name}" = {{ {", ".join(f"{key} = {value}" for key, value in row.items())} }}\n'
        for name, row in published.items()
    )
    if write:
        TABLE.write_text(text, encoding="utf-8")
        RUNS_TABLE.write_text(measured_runs(), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
