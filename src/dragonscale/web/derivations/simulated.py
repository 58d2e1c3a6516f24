"""Numbers of a simulated fleet: measured on the simulation, with how many requests they rest on and how sure that makes
them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.commands.simulate.simulate_records import TITLES, SimulateReport
from dragonscale.errors import unknown
from dragonscale.physics.units import render
from dragonscale.simulation.fleet_sizing.simulated_run import Latency
from dragonscale.web.amounts import amount
from dragonscale.web.derivations.pieces import Piece, row
from dragonscale.web.derivations.table import Numbers, shown
from dragonscale.web.page_request import PageRequest

_AT = ("mean", "p50", "p90", "p95", "p99", "max")
_REPLICAS = 32
"""Replicas that are listed."""


@dataclass(frozen=True)
class SimulatedNumbers(Numbers):
    """A simulated fleet."""

    report: SimulateReport
    view: ClassVar[str] = "simulate"
    what: ClassVar[str] = "number of a simulation called"

    def names(self) -> dict[str, Any]:
        return {"of": self, "report": self.report}

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {"latency": self._latency, "replica": self._replica}

    def sources(self) -> list[Piece]:
        report = self.report
        fleet = "; ".join(f"{pool.replicas} x {pool.plan} on {pool.slice} by {pool.engine}" for pool in report.fleet)
        text = (
            f"Simulated: {report.requests.finished:,} requests in {render(report.simulated_s, 's')} of a fleet of "
            f"{fleet}, seed {report.seed}; step times are those of `dscale serve`."
        )
        return [{"text": text, "url": ""}]

    def tokens_per_chip(self) -> float | None:
        return self.report.rates.output_tokens_per_s_per_chip if self.report.chips else None

    def dollars(self) -> float | None:
        return self.report.rates.cost_usd_per_mtok if self.report.usd_per_h else None

    def _latency(self, rest: str) -> SimpleNamespace:
        report, (name, _, at) = self.report, rest.partition(":")
        if name not in report.latency or at not in _AT:
            raise unknown("latency called", rest, [f"{one}:p95" for one in report.latency])
        one, analytic = report.latency[name], report.analytic
        rows = [row(key, amount(getattr(one, key), "s", f"latency:{name}:{key}")) for key in _AT]
        if analytic is not None and name in ("ttft_s", "tpot_s"):
            expected = amount(getattr(analytic, name), "s")
            rows.append(row("without traffic, at this batch", expected, f"batch {analytic.batch}"))
        word = {"mean": "The mean", "max": "The longest"}.get(at, f"{at[1:]} of 100 requests took this or less")
        title = f"{TITLES[name][0].upper()}{TITLES[name][1:]}, {at}"
        return SimpleNamespace(title=title, word=word, seconds=getattr(one, at), rows=rows, sure=_sure(one))

    def _replica(self, name: str) -> SimpleNamespace:
        unit = "share" if name == "busy_share" else "count"
        values = {one.index: getattr(one, name) for one in self.report.replicas[:_REPLICAS]}
        texts = {index: f"{value:,.3g}" if name == "mean_batch" else "" for index, value in values.items()}
        rows = [row(f"replica {index}", shown(value, unit, "", texts[index])) for index, value in values.items()]
        first, title = next(iter(values)), name.replace("_", " ").capitalize()
        return SimpleNamespace(title=title, value=values[first], unit=unit, text=texts[first], rows=rows)


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any], _: str) -> SimulatedNumbers:
    """The simulation that was shown."""
    return SimulatedNumbers(asked.ask(of, fields, brief=False))


def _sure(one: Latency) -> str:
    """How sure a latency is: the intervals of its mean and of its 99th percentile."""
    if one.mean_low is None or one.mean_high is None:
        return "The run is too short to say how sure this is."
    mean = f"The mean lies between {render(one.mean_low, 's')} and {render(one.mean_high, 's')} with 95% confidence"
    if one.p99_low is None or one.p99_high is None:
        return f"{mean}."
    return f"{mean}, the 99th percentile between {render(one.p99_low, 's')} and {render(one.p99_high, 's')}."
