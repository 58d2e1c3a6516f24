"""The fleet that serves a rate, which is then what was asked for: it comes first, and a replica at its full load is
shown apart from it.

A replica at its full load answers later than one of a fleet, which has headroom; so the two have figures of their own.
"""

from dataclasses import dataclass

from dragonscale.blocks.amounts import amount, count, dollars, hour_text
from dragonscale.commands.serve.serve_blocks import idle_text, ran
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.physics.units import render
from dragonscale.serving.steady.targets import LATENCIES
from dragonscale.web.views.cards import Card, figure


@dataclass(frozen=True)
class FleetTime:
    """A latency of requests in the fleet: the mean, and the statistic that a target is about where a run tells it."""

    name: str
    mean_s: float
    statistic: str
    statistic_s: float | None
    target_s: float | None

    @property
    def text(self) -> str:
        """The latency in a few words."""
        mean = f"{self.name} {render(self.mean_s, 's')}"
        if self.statistic_s is None:
            return mean
        return f"{mean} ({self.statistic} {render(self.statistic_s, 's')})"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or where no run tells its statistic."""
        reached = self.mean_s if self.statistic == "mean" else self.statistic_s
        if self.target_s is None or reached is None:
            return None
        return reached <= self.target_s


def has_fleet(report: ServeReport, config: ConfigReport) -> bool:
    """Whether a rate was asked for, and the configuration has a fleet that serves it."""
    return bool(report.workload.rate_per_s and config.replicas and config.fleet_chips)


def fleet_times(report: ServeReport, config: ConfigReport) -> list[FleetTime]:
    """TTFT and TPOT of the fleet, as far as they are known; one output token has no TPOT."""
    goals = report.workload.goals
    latency = report.simulated.latency if report.simulated is not None else {}
    times = []
    for name in ("ttft", "tpot"):
        mean_s = getattr(config, f"fleet_{name}_s") or getattr(config, f"{name}_s")
        if not mean_s:
            continue
        goal = goals.get(name)
        statistic = "mean" if goal is None else goal.statistic
        run = latency.get(f"{name}_s")
        statistic_s = None
        if run is not None and statistic != "mean":
            statistic_s = getattr(run, statistic)
        target_s = None if goal is None else goal.seconds
        times.append(FleetTime(LATENCIES[name], mean_s, statistic, statistic_s, target_s))
    return times


def fleet_sentence(report: ServeReport, config: ConfigReport) -> str:
    """How many replicas and chips serve the rate, what they cost an hour, and what requests wait."""
    rate = f"{report.workload.rate_per_s or 0:,.3g} requests/s"
    chips = f"{config.fleet_chips:,} {config.chip} chip{'' if config.fleet_chips == 1 else 's'}"
    hour = "" if config.fleet_usd_per_h is None else f", {hour_text(config.fleet_usd_per_h)}/h"
    times = " and ".join(time.text for time in fleet_times(report, config))
    serve = "serves" if config.prefill is None and config.replicas == 1 else "serve"
    return f"{replicas_text(config)} {serve} {rate} of {report.model}: {chips}{hour}, {times}."


def replicas_text(config: ConfigReport) -> str:
    """How many replicas a fleet has, of both kinds where prefill is apart."""
    if config.prefill is not None:
        return f"{_several(config.prefill.replicas, 'prefill')} and {_several(config.decodes, 'decode')}"
    return _several(config.replicas or 0, "")


def _several(number: int, kind: str) -> str:
    noun = f"{kind} replica".strip()
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def fleet_figures(report: ServeReport, config: ConfigReport) -> list[Card]:
    """The figures of the fleet, which the sentence states: its size and cost, and what requests wait in it."""
    how = "mean of a simulated run" if config.simulated else "mean, expected"

    def derived(number: str) -> str:
        # pools of two kinds have no formula of their own
        return "" if config.prefill is not None or getattr(config, number) is None else number

    figures = [
        *_size_figures(report, config),
        figure("chips", count(config.fleet_chips, derived("fleet_chips")), idle_text(config).lstrip(", ")),
    ]
    if config.fleet_usd_per_h is not None:
        price = next((row.text for row in report.prices if row.chip == config.chip), "")
        hour = amount(config.fleet_usd_per_h, "USD/h", derived("fleet_usd_per_h"), hour_text(config.fleet_usd_per_h))
        figures.append(figure("cost of an hour", hour, f"at {price}" if price else ""))
    for time in fleet_times(report, config):
        notes = [how]
        if time.statistic_s is not None:
            notes.append(f"{time.statistic} {render(time.statistic_s, 's')}")
        if time.target_s is not None:
            at = "" if time.statistic == "mean" else f" at {time.statistic}"
            notes.append(f"asked for: {render(time.target_s, 's')}{at}")
        mean = amount(time.mean_s, "s", derived(f"fleet_{time.name.lower()}_s"))
        figures.append(figure(time.name, mean, "; ".join(notes), met=time.met))
    if config.fleet_usd_per_mtok is not None and report.workload.output > 1:
        million = dollars(config.fleet_usd_per_mtok, derived("fleet_usd_per_mtok"))
        figures.append(figure("per million output tokens", million, "at the rate asked for, prompts included"))
    return figures


def _size_figures(report: ServeReport, config: ConfigReport) -> list[Card]:
    """How many replicas there are, of both kinds where prefill is apart, and what each is."""
    pool = config.prefill
    if pool is None:
        load = (report.workload.rate_per_s or 0.0) / (config.replicas or 1) / full_load(report, config)
        note = f"of {config.chips:,} x {config.chip} each, at {load:.0%} of full load"
        return [figure("replicas", count(config.replicas, "replicas"), note)]
    return [
        figure("prefill replicas", count(pool.replicas), f"on {pool.slice}, at {pool.load:.0%} of their rate"),
        figure("decode replicas", count(config.decodes), f"on {config.copy_slice}, places for {config.places}"),
    ]


def full_load(report: ServeReport, config: ConfigReport) -> float:
    """Requests a second that one replica holds: as it was run where `--max-rate` asked for it, else as expected."""
    run = ran(report, config)
    if run is not None and run.requests_per_s:
        return run.requests_per_s
    return config.requests_per_s


def replica_text(report: ServeReport, config: ConfigReport) -> str:
    """Why the figures of a replica at its full load differ from the fleet's."""
    full = full_load(report, config)
    load = (report.workload.rate_per_s or 0.0) / (config.replicas or 1)
    sequences = "one sequence" if config.batch == 1 else f"{config.batch:,} sequences"
    return (
        f"These figures and the charts below are of one replica at its full load of {full:,.3g} requests/s, with "
        f"{sequences} at once. In the fleet each gets {load:,.3g} requests/s ({load / full:.0%} of it), which is why "
        "its times and costs are others."
    )


def enough_text(config: ConfigReport) -> str:
    """That fewer replicas would do where they are not rented in whole slices; empty where they would not."""
    enough = config.enough_replicas
    if enough is None or enough >= (config.replicas or 0):
        return ""
    return f"Rented one by one, {_several(enough, '')} would do (--on {config.copy_slice})."
