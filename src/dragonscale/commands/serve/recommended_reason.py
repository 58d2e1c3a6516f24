"""Why a configuration is recommended though another one that is shown costs less."""

from collections.abc import Sequence

from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.serving.space.ranking import CLOSE
from dragonscale.serving.steady.targets import LATENCIES

CHEAPER = 0.995
"""Of what the first costs, what another one costs at most that counts as cheaper."""


def recommended_reason(report: ServeReport) -> str:
    """One sentence; empty where the first configuration costs least of those that are shown in formats like its own."""
    first = report.configs[0]
    shown = list(enumerate(report.configs[1:], 2))
    alike = [(number, one) for number, one in shown if one.quantized == first.quantized and one.meets_slo]
    priced = [(number, one) for number, one in alike if one.cost_usd_per_mtok]
    cheaper = [(number, one) for number, one in priced if one.paid < CHEAPER * first.paid]
    if not first.meets_slo or not cheaper:
        return ""
    others = [one for _, one in cheaper]
    is_close = all(first.paid <= (1 + CLOSE) * one.paid and first.chips < one.chips for one in others)
    if first.replicas is None and is_close:
        return f"#1 has the fewest chips of those within {CLOSE:.0%} of the lowest cost"
    if first.data * first.expert == 1 and all(one.data * one.expert > 1 for one in others):
        return "#1 is tensor parallelism alone; dealing out experts or attention gains less than the estimate's error"
    if report.simulated is None:
        return ""
    numbers = [f"#{number}" for number, one in cheaper if not one.simulated]
    if not numbers:
        return ""
    return f"{_run_text(report)}; {_listed(numbers)} would cost less but {_were(numbers)} not simulated"


def _run_text(report: ServeReport) -> str:
    """What the run of the first showed of its targets."""
    run = report.simulated
    assert run is not None
    reached = {
        name: getattr(run.latency[f"{name}_s"], goal.statistic) / goal.seconds
        for name, goal in report.workload.goals.items()
    }
    if not reached:
        return "#1 was simulated"
    nearest = max(reached, key=lambda name: reached[name])
    return f"#1 was simulated, with {LATENCIES[nearest]} at {reached[nearest]:.0%} of its target"


def _listed(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}"


def _were(numbers: Sequence[str]) -> str:
    return "was" if len(numbers) == 1 else "were"
