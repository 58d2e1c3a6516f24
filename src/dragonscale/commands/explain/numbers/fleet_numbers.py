"""Numbers of a simulated fleet: measured on the simulation, with how many requests they rest on and how sure that makes
them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.blocks.amounts import amount
from dragonscale.commands.explain.numbers.number_table import Numbers, shown
from dragonscale.commands.explain.numbers.records import Part
from dragonscale.commands.simulate.simulate_records import TITLES, SimulateReport
from dragonscale.errors import unknown
from dragonscale.physics.units import render
from dragonscale.simulation.fleet_sizing.simulated_run import Latency

_AT = ("mean", "p50", "p90", "p95", "p99", "max")
_REPLICAS = 32
"""Replicas that are listed."""


@dataclass(frozen=True)
class FleetNumbers(Numbers):
    """A simulated fleet."""

    report: SimulateReport
    view: ClassVar[str] = "simulate"
    what: ClassVar[str] = "number of a simulation called"

    def names(self) -> dict[str, Any]:
        return {"of": self, "report": self.report}

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {"latency": self._latency, "replica": self._replica}

    def sources(self) -> list[str]:
        report = self.report
        fleet = "; ".join(f"{pool.replicas} x {pool.plan} on {pool.slice} by {pool.engine}" for pool in report.fleet)
        text = (
            f"Simulated: {report.requests.finished:,} requests in {render(report.simulated_s, 's')} of a fleet of "
            f"{fleet}, seed {report.seed}; step times are those of `dscale serve`."
        )
        return [text]

    def tokens_per_chip(self) -> float | None:
        return self.report.rates.output_tokens_per_s_per_chip if self.report.chips else None

    def dollars(self) -> float | None:
        return self.report.rates.cost_usd_per_mtok if self.report.usd_per_h else None

    def _latency(self, rest: str) -> SimpleNamespace:
        report, (name, _, at) = self.report, rest.partition(":")
        if name not in report.latency or at not in _AT:
            raise unknown("latency called", rest, [f"{latency}:p95" for latency in report.latency])
        latency, analytic = report.latency[name], report.analytic
        rows = [Part(key, amount(getattr(latency, key), "s", f"latency:{name}:{key}")) for key in _AT]
        if analytic is not None and name in ("ttft_s", "tpot_s"):
            expected = amount(getattr(analytic, name), "s")
            rows.append(Part("without traffic, at this batch", expected, f"batch {analytic.batch}"))
        word = {"mean": "The mean", "max": "The longest"}.get(at, f"{at[1:]} of 100 requests took this or less")
        title = f"{TITLES[name][0].upper()}{TITLES[name][1:]}, {at}"
        return SimpleNamespace(title=title, word=word, seconds=getattr(latency, at), rows=rows, sure=_sure(latency))

    def _replica(self, name: str) -> SimpleNamespace:
        unit = "share" if name == "busy_share" else "count"
        values = {replica.index: getattr(replica, name) for replica in self.report.replicas[:_REPLICAS]}
        texts = {index: f"{value:,.3g}" if name == "mean_batch" else "" for index, value in values.items()}
        rows = [Part(f"replica {index}", shown(value, unit, "", texts[index])) for index, value in values.items()]
        first, title = next(iter(values)), name.replace("_", " ").capitalize()
        return SimpleNamespace(title=title, value=values[first], unit=unit, text=texts[first], rows=rows)


def _sure(latency: Latency) -> str:
    """How sure a latency is: the intervals of its mean and of its 99th percentile."""
    if latency.mean_low is None or latency.mean_high is None:
        return "The run is too short to say how sure this is."
    mean = f"The mean lies between {render(latency.mean_low, 's')} and {render(latency.mean_high, 's')}"
    mean += " with 95% confidence"
    if latency.p99_low is None or latency.p99_high is None:
        return f"{mean}."
    return f"{mean}, the 99th percentile between {render(latency.p99_low, 's')} and {render(latency.p99_high, 's')}."
