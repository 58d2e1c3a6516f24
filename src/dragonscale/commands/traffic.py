"""`dscale traffic`: what a trace is like, and a generator fitted to it."""

from pathlib import Path

from msgspec.structs import asdict

from dragonscale.blocks.sheet import Sheet, Title, table
from dragonscale.commands import grids
from dragonscale.commands.questions.simulate import TrafficQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.listener import Listener
from dragonscale.simulation import read_trace
from dragonscale.simulation.trace_fit import STATISTICS, TraceFit, fit_trace
from dragonscale.tables import toml_value


class TrafficReport(TraceFit, Record):
    """What a trace is like, and the traffic class that was fitted to it."""

    def headline(self) -> str:
        return f"{self.trace}: {self.requests:,} requests, {self.turns:.3g} turns a session"


def ask(question: TrafficQuestion, listener: Listener) -> TrafficReport:
    """Read a trace and fit a class to it."""
    trace = read_trace(question.file)
    if trace.note:
        listener.note(trace.note)
    requests = list(trace.read())
    return TrafficReport(**asdict(fit_trace(Path(question.file).name, requests))).came_from(question, listener.notes)


def save_traffic(report: TraceFit, path: str) -> str:
    """Write the class that was fitted."""
    lines = [f"# fitted to {report.trace}", "[[class]]"]
    for key, value in report.traffic.items():
        lines.append(f"{key} = {toml_value(value)}")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"; `dscale simulate MODEL --on SLICE --traffic {path}` runs it"


def traffic_blocks(report: TraceFit, _detail: bool) -> Sheet:
    """What the trace is like."""
    rows = [[name, *(f"{value:,.0f}" for value in lengths.values())] for name, lengths in report.lengths.items()]
    # reuse and sessions are shown only where there are some
    facts = grids.summary(
        "traffic-facts",
        report,
        reuse=report if report.repeated else None,
        sessions=report if report.turns > 1 else None,
    )
    return Sheet((Title(report.trace), facts, table(["tokens", *STATISTICS], rows, "lengths")))


bind(TrafficReport, Face(traffic_blocks, save=save_traffic))
