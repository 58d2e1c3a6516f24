"""The verdict of `dscale serve`: one line that answers what was asked, before anything else."""

from dragonscale.blocks.sheet import amount, several
from dragonscale.commands.serve.advice import near_misses
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, Disaggregation, ServeReport, plan_text
from dragonscale.serving.advice.search import ONE_CARD
from dragonscale.serving.steady.targets import LATENCIES

# Requests at once up to which a model only just fits.
FEW = 2


def verdict_text(report: ServeReport, job: ServeAsked) -> str:
    """Whether it fits and meets what was asked of it; of a measurement, whether it is normal; of prefill and decode
    apart, where these were asked for, whether they are worth it."""
    first = report.configs[0]
    if report.measured is not None:
        return report.measured.text
    # drafts that targets need were not asked for: whether the targets are met comes first
    if report.speculation is not None and report.speculation.asked and not report.needs:
        return f"{report.speculation.verdict}."
    if job.disaggregate and report.disaggregation is not None:
        return _disaggregation(report.disaggregation)
    where = f"{plan_text(first)} on {first.slice}{_not_on_one_card(job, first)}"
    if not first.meets_slo:
        return f"Misses the targets: {' and '.join(first.violations)} ({where} is nearest)."
    only = f" only with {report.needs}" if report.needs else ""
    if report.workload.goals:
        return f"Meets the targets{only}: {where}, {_reached(report, first)}."
    fleet = ""
    if first.replicas is not None and report.workload.rate_per_s:
        rate = amount(report.workload.rate_per_s, "count")
        if report.counted_runs and report.counted_runs[0].rate:
            run = report.counted_runs[0]
            fleet = (
                f"; of {rate} requests/s it serves {run.requests_per_s:.3g} by itself "
                f"({run.output_tokens_per_s:,.0f} output tokens/s)"
            )
            rate = f"at this pace {rate}"
        fleet += f"; {rate} requests/s take {several(first.fleet_chips or 0, 'chip')}"
    if report.workload.output == 1:
        return f"Fits: {where}, {amount(first.requests_per_s, 'count')} prompts/s{fleet}."
    requests = f"{several(first.batch, 'request')} at once"
    compared = "".join(f"; beside {row.what}, {row.verdict}" for row in report.beside[:1])
    how = "Fits"
    if job.batch is None and first.prefill is None and first.max_batch <= FEW:
        how = "Barely fits"
    if report.starts:
        how = "Starts"
    return f"{how}: {where}, {requests} at {_rate(first.tokens_per_s_per_user)} tokens/s each{fleet}{compared}."


def _rate(tokens_per_s: float) -> str:
    """A rate as people compare it: whole above ten, three digits below.

    >>> _rate(1240.4), _rate(27.8), _rate(1.253)
    ('1,240', '28', '1.25')
    """
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.3g}"


def _not_on_one_card(job: ServeAsked, first: ConfigReport) -> str:
    """Why a card that is bought one by one is answered for with several."""
    chip, slice_ = job.targets[0]
    if job.compares_chips or slice_ is not None or chip.default_slice != ONE_CARD or first.chips == 1:
        return ""
    if job.goals:
        return " (one does not meet them)"
    return " (one does not hold it at a reading pace)"


def _reached(report: ServeReport, first: ConfigReport) -> str:
    """Each target with what is reached of it, as it was simulated where a percentile was asked for."""
    parts: list[str] = []
    for name, goal in report.workload.goals.items():
        seconds = first.latency_s if name == "e2e" else getattr(first, f"{name}_s", first.tpot_s)
        statistic = ""
        if report.simulated is not None and (goal.share or first.replicas is not None):
            seconds = getattr(report.simulated.latency[f"{name}_s"], goal.statistic)
        if goal.share:
            statistic = f"{goal.statistic} "
        parts.append(f"{LATENCIES[name]} {statistic}{amount(seconds, 's')} of {amount(goal.seconds, 's')}")
    text = ", ".join(parts)
    misses = near_misses(report.workload, first)
    if misses:
        text += f"; {' and '.join(miss.name for miss in misses)} not at the slow end of the band"
    return text


def _disaggregation(disaggregation: Disaggregation) -> str:
    """Whether prefill and decode apart are worth it."""
    gain = disaggregation.gain
    if not disaggregation.pools:
        return f"Not possible: {disaggregation.advice}"
    if gain is None:
        if disaggregation.pays:
            return "Worth it: disaggregated, the targets are met, and together they are not."
        return f"Not worth it: {disaggregation.advice}"
    verdict = "Worth it" if disaggregation.pays else "Not worth it"
    return f"{verdict}: disaggregated it makes {gain:.2f}x the tokens per dollar of replicas that do both."
