"""A given serving plan against the best configuration of the same chips, engine and formats.

Better means more output tokens a second of each chip while requests wait no longer: under the targets where there are
some, under the plan's own TTFT or TPOT where one is not said. With targets that the plan misses, meeting them is
better.
"""

import math
from dataclasses import replace

from dragonscale.app.serve.config import config_report
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.app.serve.search import Progress, ranked_apart, search
from dragonscale.app.serve.tables import config_text
from dragonscale.physics.units import render

WORTH = 1.02
"""A gain of less is within what simpler plans are allowed to lose."""


def against_best(asked: ServeAsked, report: ServeReport, progress: Progress | None) -> None:
    """Add to the report of a given plan what would be better, or that nothing is."""
    given = report.configs[0]
    ask = asked.ask
    # a target that is not said is what users have now; a little room, so that rounding refuses no neighbour
    targets = {
        "ttft": given.ttft_s * 1.005 if ask.ttft is None else ask.ttft,
        "tpot": given.tpot_s * 1.005 or None if ask.tpot is None else ask.tpot,  # one token has none
    }
    plan = asked.saved.plan if asked.saved is not None else None
    assert plan is not None
    words = {"weights": plan.weights, "compute": plan.compute, "kv_dtype": plan.kv, "attention": plan.attention}
    free = replace(
        asked,
        ask=replace(ask, **targets),
        saved=None,
        batch=None,
        question=replace(asked.question, plan="", batch="", **words),
    )
    configs = search(free, progress)
    chosen = ranked_apart(free, configs)[0] if configs else []
    if not chosen:
        return
    best = config_report(free, chosen[0], full=False)
    report.better = best
    report.comparison = comparison(given, best, len(configs))


def comparison(given: ConfigReport, best: ConfigReport, searched: int) -> str:
    """How far a plan is from the best, in a sentence or two."""
    own = given.output_tokens_per_s_per_chip
    gain = best.output_tokens_per_s_per_chip / own if own > 0 else math.inf
    line = f"{config_text(best)} on {best.copy_slice}"
    times = f"TTFT {render(best.ttft_s, 's')} and TPOT {render(best.tpot_s, 's')}"
    if not given.meets_slo and best.meets_slo:
        return f"It misses its targets; {line} meets them, with {times} and {_more(gain)} tokens/s a chip."
    if not best.meets_slo or gain < WORTH:
        return f"Nothing better among {searched:,} configurations of these chips, this engine and these formats."
    return f"{line} gives {_more(gain)} output tokens/s a chip with requests waiting no longer: {times}."


def _more(gain: float) -> str:
    """A gain in per cent; a plan that gives no tokens at all has none to compare with."""
    return f"{gain - 1:+.0%}" if math.isfinite(gain) else "the first"
