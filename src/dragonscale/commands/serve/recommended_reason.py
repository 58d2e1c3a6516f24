"""Why a configuration is recommended though another one that is shown costs less."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.serving.space.ranking import CLOSE
from dragonscale.serving.steady.targets import LATENCIES

# Of what the first costs, what another one costs at most that counts as cheaper.
CHEAPER = 0.995


@dataclass(frozen=True)
class _Cheaper:
    """A configuration that costs less than the first, with its number in the table."""

    number: int
    row: ConfigReport


def recommended_reason(report: ServeReport) -> str:
    """One sentence; empty where the first configuration costs least of those that are shown in formats like its own."""
    first = report.configs[0]
    cheaper = _cheaper(report)
    if not first.meets_slo or not cheaper:
        return ""
    rows = [config.row for config in cheaper]
    is_smallest = all(first.paid <= (1 + CLOSE) * row.paid and first.chips < row.chips for row in rows)
    if first.replicas is None and is_smallest:
        return f"#1 has the fewest chips of those within {CLOSE:.0%} of the lowest cost"
    if first.data * first.expert == 1 and all(row.data * row.expert > 1 for row in rows):
        return "#1 is tensor parallelism alone; dealing out experts or attention gains less than the estimate's error"
    if report.simulated is None:
        return ""
    not_run = [f"#{config.number}" for config in cheaper if not config.row.simulated]
    if not not_run:
        return ""
    verb = "was" if len(not_run) == 1 else "were"
    return f"{_run_text(report)}; {_listed(not_run)} would cost less but {verb} not simulated"


def _cheaper(report: ServeReport) -> list[_Cheaper]:
    """The configurations that meet the targets in formats like the first's, and cost less."""
    first = report.configs[0]
    cheaper: list[_Cheaper] = []
    for number, row in enumerate(report.configs[1:], 2):
        is_alike = row.quantized == first.quantized and row.meets_slo
        if is_alike and row.cost_usd_per_mtok and row.paid < CHEAPER * first.paid:
            cheaper.append(_Cheaper(number, row))
    return cheaper


def _run_text(report: ServeReport) -> str:
    """What the run of the first showed of its targets."""
    run = report.simulated
    assert run is not None
    ratios: dict[str, float] = {}
    for name, target in report.workload.goals.items():
        ratios[name] = getattr(run.latency[f"{name}_s"], target.statistic) / target.seconds
    if not ratios:
        return "#1 was simulated"
    nearest = max(ratios, key=lambda name: ratios[name])
    return f"#1 was simulated, with {LATENCIES[nearest]} at {ratios[nearest]:.0%} of its target"


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
