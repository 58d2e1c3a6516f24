"""What an answer of `dscale serve` says after its configurations were run: the numbers of runs in their rows."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.bands import add_bands, kind_of
from dragonscale.commands.serve.config import set_fleet, violation
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, config_text
from dragonscale.commands.simulate.traffic_flags import read_classes
from dragonscale.serving.space.fleet_cost import FleetCost, config_cost
from dragonscale.serving.space.frontier import Config
from dragonscale.simulation.fleet_sizing.confirmation import Confirmed, reached_targets
from dragonscale.simulation.fleet_sizing.short_run import SizingJob
from dragonscale.simulation.fleet_sizing.simulated_run import SimulatedRun

# Part of a target above which a latency of a run that misses is named: percentiles are known to half a percent.
NEARLY = 0.995

# How far a run may be from what is expected, as a part of it; what is further is shown as it was simulated.
MAX_DIFFERENCE = 0.05


def sizing_job(asked: ServeAsked) -> SizingJob:
    """What fleets are sized and confirmed for, from a question that was read."""
    traffic_class = None
    if asked.case:
        flags = {name: value for name, value in asked.case.items() if name != "router"}
        (traffic_class,) = read_classes(SimulateQuestion("", **flags))
    return SizingJob(
        asked,
        traffic_class=traffic_class,
        router=asked.router or SimulateQuestion.router,
        session_s=asked.session_s,
        session_calls=asked.session_calls,
    )


def as_run(asked: ServeAsked, rows: Sequence[tuple[Config, ConfigReport]], runs: Sequence[Confirmed]) -> list[str]:
    """Put runs into the rows of their configurations; what to say of the first."""
    run_of = {run.config.place: run for run in runs}
    first_row = rows[0][1]
    first_notes: list[str] | None = None
    for config, row in rows:
        run = run_of.get(config.place)
        if run is None:
            continue
        headline = asked.compares_chips or row is first_row or run.token_loss > 1
        notes = as_simulated(asked, row, run, headline)
        if first_notes is None:
            first_notes = notes
    assert first_notes is not None  # the first row is of a configuration that was run
    return first_notes


def as_simulated(asked: ServeAsked, row: ConfigReport, run: Confirmed, headline: bool = True) -> list[str]:
    """Put a run's replicas into the row of the configuration that it confirms, and into the headline its numbers where
    they are far from those expected; what to say of it."""
    row.simulated = True
    if run.replicas is not None and row.replicas is not None:
        cost = config_cost(run.config, run.replicas)
        with_fleet(row, run.replicas, cost, run.run, tokens_per_s=(asked.ask.rate or 0.0) * asked.ask.output)
    if row.prefill is not None:
        row.prefill.ttft_p95_s = run.run.latency["ttft_s"].p95
    if not run.run.meets_slo:
        row.violations = _violations(asked, run)
        lacking = " and ".join(row.violations)
        return [f"Nothing meets the targets when it is simulated. The nearest is {config_text(row)}: {lacking}."]
    if headline and (asked.ask.rate is None or row.prefill is not None):
        return _corrected(asked, row, run)
    return []


def _violations(asked: ServeAsked, run: Confirmed) -> list[str]:
    """The targets that a run missed, in words."""
    violations: list[str] = []
    for name, seconds in reached_targets(sizing_job(asked), run.run).items():
        target = asked.goals[name]
        if seconds > NEARLY * target.seconds:
            violations.append(violation(name, seconds, target.seconds, f" {target.at}"))
    if violations:
        return violations
    if math.isinf(run.worst):
        return ["more requests come than are served"]
    return ["too few requests of a class meet its targets"]


def with_fleet(row: ConfigReport, replicas: int, cost: FleetCost, run: SimulatedRun, tokens_per_s: float) -> None:
    """Put the replicas that hold a rate when they are run into a configuration's row, with what they cost and their
    mean times. `tokens_per_s` are the output tokens of all requests at that rate."""
    if replicas != row.replicas:
        row.enough_replicas = None  # sized by the rule that the run did not bear out
    set_fleet(row, replicas, cost, tokens_per_s)
    row.simulated = True
    row.fleet_ttft_s = run.latency["ttft_s"].mean
    row.fleet_tpot_s = run.latency["tpot_s"].mean


def _corrected(asked: ServeAsked, row: ConfigReport, run: Confirmed) -> list[str]:
    """Where a run is far from what was expected of it, its numbers."""
    latency = run.run.latency
    expected = {"TTFT": row.ttft_s, "TPOT": row.tpot_s, "tok/s per chip": row.output_tokens_per_s_per_chip}
    simulated = {
        "TTFT": latency["ttft_s"].mean,
        "TPOT": latency["tpot_s"].mean,
        "tok/s per chip": run.run.output_tokens_per_s_per_chip,
    }
    corrected = [
        name for name, value in expected.items() if value and abs(simulated[name] / value - 1) > MAX_DIFFERENCE
    ]
    if not corrected:
        return []
    shown = expected | {name: simulated[name] for name in corrected}
    output = asked.ask.output
    token_ratio = shown["tok/s per chip"] / row.output_tokens_per_s_per_chip
    row.ttft_s, row.tpot_s, row.output_tokens_per_s_per_chip = shown.values()
    row.latency_s = row.ttft_s + (output - 1) * row.tpot_s
    row.tokens_per_s_per_user = 1 / row.tpot_s if row.tpot_s else 0.0
    row.requests_per_s *= token_ratio
    _correct_state(row, output)
    for name in ("cost_usd_per_mtok", "cost_usd_per_mtok_input", "cost_usd_per_mtok_output"):
        cost = getattr(row, name)
        if cost:
            setattr(row, name, cost / token_ratio)
    add_bands(row, kind_of(asked, run.config))
    differences = " and ".join(f"{name} by {simulated[name] / expected[name] - 1:+.0%}" for name in corrected)
    return [
        f"What is expected is what was simulated where that is far from the steady state's formulas ({differences})."
    ]


def _correct_state(row: ConfigReport, output: int) -> None:
    """Make the parts of the row's steady state add up to the times that it shows: what TTFT is longer by is waiting,
    what TPOT is longer by is met prompts of others."""
    state = row.state
    late_s = row.ttft_s - float(state.ttft)
    slow_s = (row.tpot_s - float(state.tpot)) * max(output - 1, 1)
    row.state = replace(
        state, waiting=state.waiting + late_s, met=state.met + slow_s / state.added, requests=row.requests_per_s
    )
