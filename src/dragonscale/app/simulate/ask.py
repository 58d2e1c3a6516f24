"""The answer to `dscale simulate`, put together from what was asked."""

import shlex
from dataclasses import replace
from typing import Any

from dragonscale.app.given import unnamed
from dragonscale.app.questions.flag import fields_of, written
from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.app.simulate.reading import SimulateAsked, read_question
from dragonscale.app.simulate.records import CapacityReport, SimulateReport
from dragonscale.app.simulate.report import run_simulation
from dragonscale.listener import Listener
from dragonscale.simulation import save_trace, simulate

EVENTS = 200_000
"""Events of a timeline at most: some tens of megabytes, which the viewer opens."""
SEARCHING = 0.5
"""The part of the progress that the run itself is; looking for what would hold is the rest."""


def ask(question: SimulateQuestion, listener: Listener, watch: int = 0) -> SimulateReport:
    """Read a question, tell how it was read, and answer it; the run keeps what the first `watch`
    replicas do over time."""
    asked = read_question(question)
    asked = replace(asked, options=replace(asked.options, watch=watch))
    for text in asked.notes:
        listener.note(text)
    total = max(asked.traffic.source.requests, 1)

    def running(done: int) -> None:
        listener.step(done, round(total / SEARCHING))

    def searching(done: int, runs: int) -> None:
        listener.step(round((SEARCHING + (1 - SEARCHING) * done / max(runs, 1)) * 1000), 1000)

    report, result = run_simulation(asked, running, searching)
    return report.came_from(asked, listener.notes).came_of(result)


def save_run(asked: SimulateAsked, path: str) -> None:
    """Write the run as a timeline. The same seed gives the same run, so it is run again with its events kept."""
    result = simulate(asked.fleet, asked.traffic.source, replace(asked.options, events=EVENTS))
    save_trace(result.trace, path)


def next_command(asked: SimulateAsked, report: SimulateReport) -> tuple[str, str]:
    """What to ask next, and why: the fleet that would hold, or the largest rate of one that does."""
    question = asked.original
    if question is None or not report.requests.finished:
        return "", ""
    if unnamed(*(getattr(question, field.name) for field in fields_of(SimulateQuestion))):
        return "", ""
    found = report.capacity
    holds = report.meets_slo is not False and not (report.load is not None and report.load.grows)
    if holds:
        if report.load is None:
            return "", ""
        if found is not None:
            fewer = found.replicas is not None and found.replicas < report.fleet[0].replicas
            return (_with_replicas(question, found), "Next, the smaller fleet:") if fewer else ("", "")
        return command_of(replace(question, capacity=True)), "Next, the largest rate that it holds:"
    if found is None or found.replicas is None or question.autoscale or question.trace:
        return "", ""
    return _with_replicas(question, found), "Next, the fleet that would hold:"


def _with_replicas(question: SimulateQuestion, found: CapacityReport) -> str:
    more: dict[str, Any] = {"replicas": found.replicas, "capacity": None}
    more |= {"prefill_replicas": found.prefill_replicas} if found.prefill_replicas else {}
    return command_of(replace(question, **more))


def command_of(question: SimulateQuestion) -> str:
    """The command that asks a question.

    >>> command_of(SimulateQuestion("llama3-8b", on="h100:1", rate="4/s", capacity=True))
    'dscale simulate llama3-8b --on h100:1 --rate 4/s --capacity'
    """
    words = ["dscale simulate"]
    for field in fields_of(SimulateQuestion):
        value = getattr(question, field.name)
        if field.place:
            words.append(shlex.quote(written(value)))
        elif value != field.default:
            words.append(field.flag if value is not False else f"--no-{field.flag[2:]}")
            words += [] if field.switch else [shlex.quote(written(value))]
    return " ".join(words)
