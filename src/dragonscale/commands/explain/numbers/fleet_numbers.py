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

# Statistics of a latency that are listed, as `Latency` names them.
_AT = ("mean", "p50", "p90", "p95", "p99", "max")
# Replicas that are listed.
_MAX_REPLICAS = 32


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
        if not self.report.chips:
            return None
        return self.report.rates.output_tokens_per_s_per_chip

    def dollars(self) -> float | None:
        if not self.report.usd_per_h:
            return None
        return self.report.rates.cost_usd_per_mtok

    def _latency(self, rest: str) -> SimpleNamespace:
        report, (name, _, at) = self.report, rest.partition(":")
        if name not in report.latency or at not in _AT:
            raise unknown("latency called", rest, [f"{latency}:p95" for latency in report.latency])
        latency, analytic = report.latency[name], report.analytic
        rows = [Part(key, amount(getattr(latency, key), "s", f"latency:{name}:{key}")) for key in _AT]
        if analytic is not None and name in ("ttft_s", "tpot_s"):
            expected = amount(getattr(analytic, name), "s")
            # what `dscale serve` expects of a full batch in which nobody queues
            rows.append(Part("without traffic, at this batch", expected, f"batch {analytic.batch}"))
        word = {"mean": "The mean", "max": "The longest"}.get(at, f"{at[1:]} of 100 requests took this or less")
        title = f"{TITLES[name][0].upper()}{TITLES[name][1:]}, {at}"
        return SimpleNamespace(title=title, word=word, seconds=getattr(latency, at), rows=rows, sure=_sure(latency))

    def _replica(self, name: str) -> SimpleNamespace:
        unit = "share" if name == "busy_share" else "count"
        values, texts, rows = list[Any](), list[str](), list[Part]()
        for replica in self.report.replicas[:_MAX_REPLICAS]:
            value, text = getattr(replica, name), ""
            if name == "mean_batch":  # a mean of counts is no whole number
                text = f"{value:,.3g}"
            values.append(value)
            texts.append(text)
            rows.append(Part(f"replica {replica.index}", shown(value, unit, "", text)))
        # the number of the view is that of the first replica; all are listed under it
        title = name.replace("_", " ").capitalize()
        return SimpleNamespace(title=title, value=values[0], unit=unit, text=texts[0], rows=rows)


def _sure(latency: Latency) -> str:
    """How sure a latency is: the intervals of its mean and of its 99th percentile."""
    if latency.mean_low is None or latency.mean_high is None:
        return "The run is too short to say how sure this is."
    mean = f"The mean lies between {render(latency.mean_low, 's')} and {render(latency.mean_high, 's')}"
    mean += " with 95% confidence"
    if latency.p99_low is None or latency.p99_high is None:
        return f"{mean}."
    return f"{mean}, the 99th percentile between {render(latency.p99_low, 's')} and {render(latency.p99_high, 's')}."
