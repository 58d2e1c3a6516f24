"""A given serving plan against the best configuration of the same chips, engine and formats.

Better means more output tokens a second of each chip: under the targets, or the pace that is kept without any; of a
batch that is given, while requests wait no longer. With targets that the plan misses, meeting them is better.
"""

import math
from dataclasses import dataclass, replace

from dragonscale.commands.serve.config import config_report
from dragonscale.commands.serve.confirm import sizing_job
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, config_text
from dragonscale.physics.units import render
from dragonscale.serving.advice.search import Progress, ranked_by_format, search
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.fleet_sizing.confirmation import confirm

# Ratio of tokens from which another plan is better: simpler plans are allowed to lose less.
WORTH = 1.02

# Ratio of a time within which it is no longer than another, so that rounding refuses no neighbour.
SLACK = 1.005


@dataclass(frozen=True)
class Better:
    """The best other configuration, and how far the given plan is from it, in a sentence."""

    row: ConfigReport
    comparison: str


def better_than(
    job: ServeAsked, plan: ServingPlan, given_row: ConfigReport, progress: Progress | None
) -> Better | None:
    """What would be better than a given plan, or that nothing is; None where nothing else fits."""
    ask = job.ask
    ttft, tpot = ask.ttft, ask.tpot
    # without a target the plan has to be beaten under the pace of an answer, if it keeps that, else at its own times
    keeps_pace = job.batch is None and (ask.tpot is None or given_row.tpot_s <= ask.tpot)
    if not keeps_pace:
        if ttft is None:
            ttft = SLACK * given_row.ttft_s
        if "tpot" not in job.goals:
            tpot = SLACK * given_row.tpot_s or None  # one token has no time per token
    formats = replace(job.formats, weights=plan.weights, compute=plan.compute, kv=plan.kv, attention=plan.attention)
    others = replace(job, ask=replace(ask, ttft=ttft, tpot=tpot), plan=None, batch=None, formats=formats)
    configs = search(others, progress)
    if not configs:
        return None
    chosen = ranked_by_format(others, configs).native
    has_percentiles = any(goal.share for goal in job.goals.values())
    best = chosen[0]
    if has_percentiles and best.meets:
        runs = confirm(sizing_job(others), chosen)
        best = runs[0].config if runs else best
    row = config_report(others, best)
    return Better(row, comparison(given_row, row, len(configs)))


def comparison(given_row: ConfigReport, best: ConfigReport, searched: int) -> str:
    """How far a plan is from the best, in a sentence."""
    tokens = given_row.output_tokens_per_s_per_chip
    gain, more = math.inf, "the first"
    if tokens > 0:
        gain = best.output_tokens_per_s_per_chip / tokens
        more = f"{gain - 1:+.0%}"
    plan = f"{config_text(best)} on {best.copy_slice}"
    times = f"TTFT {render(best.ttft_s, 's')} and TPOT {render(best.tpot_s, 's')}"
    if not given_row.meets_slo and best.meets_slo:
        return f"It misses its targets; {plan} meets them, with {times} and {more} tokens/s a chip."
    if not best.meets_slo or gain < WORTH:
        return f"Nothing better among {searched:,} configurations of these chips, this engine and these formats."
    waits = " with requests waiting no longer" if best.ttft_s <= SLACK * given_row.ttft_s else ""
    return f"{plan} gives {more} output tokens/s a chip{waits}: {times}."
