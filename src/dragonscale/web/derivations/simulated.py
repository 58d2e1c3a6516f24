"""Numbers of a simulated fleet: measured on the simulation, with how many requests they rest on and how sure that makes
them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.simulate.records import Latency, SimulateReport
from dragonscale.errors import unknown
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count, share
from dragonscale.web.derivations.pieces import Piece, facts, formulas, row, step
from dragonscale.web.page_request import PageRequest

_NAMES = {
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "e2e_s": "Time of a whole request",
    "queue_s": "Time in the queue",
}
_RATES = {
    "goodput_requests_per_s": ("Goodput", "Requests per second that end and meet the targets.", "count/s"),
    "utilisation": ("Busy", "The part of the time that replicas run an iteration.", "share"),
    "kv_occupancy": ("KV cache in use", "The part of the caches' room that holds tokens, on average.", "share"),
    "output_tokens_per_s_per_chip": (
        "Output tokens per second of a chip",
        "Output tokens of the fleet over its chips.",
        "count",
    ),
    "cost_usd_per_mtok": (
        "Cost of a million output tokens",
        "What the fleet costs while it makes a million output tokens.",
        "USD",
    ),
}
_AT = ("mean", "p50", "p90", "p95", "p99", "max")
Told = tuple[str, str, Amount, list[Piece], str]
"""Title, sentence, the number, what stands beside it, how sure it is."""
DOCS = ("simulation", "how-it-works-and-how-it-is-checked")


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any]) -> "SimulatedNumbers":
    """The simulation that was shown."""
    return SimulatedNumbers(asked.ask(of, fields, brief=False))


@dataclass(frozen=True)
class SimulatedNumbers:
    """A simulated fleet."""

    report: SimulateReport

    def facts(self, number: str) -> Piece:
        report = self.report
        title, sentence, shown, rows, error = self._told(number)
        fleet = "; ".join(f"{pool.replicas} x {pool.plan} on {pool.slice} by {pool.engine}" for pool in report.fleet)
        source = {
            "text": (
                f"Simulated: {report.requests.finished:,} requests in {render(report.simulated_s, 's')} of a fleet of "
                f"{fleet}, seed {report.seed}; step times are those of `dscale serve`."
            ),
            "url": "",
        }
        return facts(
            title,
            sentence,
            shown,
            steps=[step("Beside", rows)] if rows else [],
            error=error,
            sources=[source],
            docs=DOCS,
        )

    def formula(self, number: str) -> Piece:
        report, rates = self.report, self.report.rates
        lines = []
        if number == "output_tokens_per_s_per_chip" and report.chips:
            lines = [
                FormulaLine(
                    "output tokens/s per chip",
                    "r_tokens/n_chips",
                    f"{rates.output_tokens_per_s:.6g}/{report.chips:.6g}",
                    f"{rates.output_tokens_per_s_per_chip:,.4g}",
                    rates.output_tokens_per_s_per_chip,
                    "count",
                )
            ]
        if number == "cost_usd_per_mtok" and report.usd_per_h and rates.cost_usd_per_mtok is not None:
            lines = [
                FormulaLine(
                    "dollars",
                    "price_fleet*1e6/(r_tokens*3600)",
                    f"{report.usd_per_h:.6g}*1e6/({rates.output_tokens_per_s:.6g}*3600)",
                    f"${rates.cost_usd_per_mtok:,.4g}",
                    rates.cost_usd_per_mtok,
                    "USD",
                )
            ]
        note = "Counted in the simulation, request by request; there is no formula for it under traffic."
        return formulas(lines, notes=[] if lines else [note])

    def _told(self, number: str) -> Told:
        kind, _, rest = number.partition(":")
        if kind == "latency":
            return self._latency(rest, number)
        if kind == "replica":
            return self._replicas(rest, number)
        if number not in _RATES:
            raise unknown(
                "number of a simulation called", number, [*_RATES, "latency:ttft_s:p95", "replica:busy_share"]
            )
        return self._rate(number)

    def _latency(self, rest: str, number: str) -> Told:
        report = self.report
        name, _, at = rest.partition(":")
        if name not in report.latency or at not in _AT:
            raise unknown("latency called", rest, [f"{one}:p95" for one in report.latency])
        one = report.latency[name]
        rows = [row(key, amount(getattr(one, key), "s", f"latency:{name}:{key}")) for key in _AT]
        analytic = report.analytic
        if analytic is not None and name in ("ttft_s", "tpot_s"):
            expected = amount(getattr(analytic, name), "s")
            rows.append(row("without traffic, at this batch", expected, f"batch {analytic.batch}"))
        word = {"mean": "The mean", "max": "The longest"}.get(at, f"{at[1:]} of 100 requests took this or less")
        sentence = f"{word} of {report.requests.finished:,} simulated requests."
        return f"{_NAMES.get(name, name)}, {at}", sentence, amount(getattr(one, at), "s", number), rows, _sure(one)

    def _replicas(self, rest: str, number: str) -> Told:
        shown = [(one.index, self._replica(rest, getattr(one, rest))) for one in self.report.replicas[:32]]
        rows = [row(f"replica {index}", found) for index, found in shown]
        sentence = "Counted for each replica of the simulated fleet."
        return rest.replace("_", " ").capitalize(), sentence, shown[0][1] | {"why": number}, rows, ""

    def _rate(self, number: str) -> Told:
        report = self.report
        title, sentence, unit = _RATES[number]
        value = getattr(report.rates, number, None)
        value = getattr(report, number) if value is None else value
        if unit in ("share", "count"):
            shown = (share if unit == "share" else count)(value, number)
        else:
            shown = amount(value, unit, number, f"${value:,.2f}" if unit == "USD" else f"{value:,.3g}")
        rows = []
        if number in ("output_tokens_per_s_per_chip", "cost_usd_per_mtok"):
            tokens = row("output tokens/s of the fleet", count(report.rates.output_tokens_per_s))
            rows = [row("chips", count(report.chips)), tokens]
        return title, sentence, shown, rows, ""

    def _replica(self, name: str, value: float) -> Amount:
        return (
            share(value)
            if name == "busy_share"
            else amount(value, "count", "", f"{value:,.3g}")
            if name == "mean_batch"
            else count(value)
        )


def _sure(one: Latency) -> str:
    """How sure a latency is: the intervals of its mean and of its 99th percentile."""
    if one.mean_low is None or one.mean_high is None:
        return "The run is too short to say how sure this is."
    mean = f"The mean lies between {render(one.mean_low, 's')} and {render(one.mean_high, 's')} with 95% confidence"
    if one.p99_low is None or one.p99_high is None:
        return f"{mean}."
    return f"{mean}, the 99th percentile between {render(one.p99_low, 's')} and {render(one.p99_high, 's')}."
