"""The ledgers behind a configuration's bars: every kernel, move and wait of a decode step and of a prompt, and every tensor held.

Lines carry the names of the terms that `dscale serve` shows (`term_rows` of `config.py`), so that the lines of a term add up to
it. A prompt is the whole of one that runs alone, all its chunks together; `phase` then says which chunk a line is of.
"""

from collections.abc import Iterator
from dataclasses import replace

from dragonscale.plan.ledger import HeldLine, Ledger, at
from dragonscale.reports.given import slice_of
from dragonscale.reports.serve.config import PROMPT_SCORES, STEP_SCORES, first, iterations, prompt_chunks, wire_name
from dragonscale.reports.serve.question import ServeAsked
from dragonscale.reports.serve.records import ConfigReport, ServeReport
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.held import cache_lines, weight_lines, workspace_lines
from dragonscale.serving.iteration import Iteration
from dragonscale.serving.launch import engine_on
from dragonscale.serving.phases import iteration_cost, prefill
from dragonscale.serving.plan import parse_serving_plan

_WAITS = {"sampling": "sampling and launch gaps"}


def deployment_of(asked: ServeAsked, one: ConfigReport) -> Deployment:
    """One replica of a configuration of a report."""
    piece = slice_of(one.copy_slice, (chip for chip, _ in asked.targets))
    engine = engine_on(one.engine, piece.chip, asked.model, asked.limits)
    return Deployment(asked.model, piece, parse_serving_plan(one.plan), engine)


def bills_of(report: ServeReport) -> dict[str, Ledger]:
    """The bills of a report's first configuration, `decode` (where more than one token is asked for) and `prefill`; made once."""
    known = vars(report)  # beside the fields, so that no encoder sees it
    if "bills" not in known:
        one, asked = report.configs[0], report.asked
        deployment = deployment_of(asked, one)
        steps = {"decode": step_bill(asked, one, deployment)} if asked.ask.output > 1 else {}
        known["bills"] = steps | {"prefill": prompt_bill(asked, deployment)}
    return known["bills"]


def step_bill(asked: ServeAsked, one: ConfigReport, deployment: Deployment) -> Ledger:
    """A decode step halfway through the outputs; `exposed_s` adds up to it."""
    return _named(deployment, iterations(asked, one.batch, deployment)["decode"], "decode", STEP_SCORES)


def prompt_bill(asked: ServeAsked, deployment: Deployment) -> Ledger:
    """A prompt that runs alone, all its chunks together."""
    chunks = prompt_chunks(asked, deployment)
    lines = []
    for place, (times, tokens, past) in enumerate(chunks):
        phase = "prefill" if len(chunks) == 1 else ("last chunk", "earlier chunks")[place]
        book = _named(deployment, prefill(tokens, 1, past), phase, PROMPT_SCORES)
        lines += [replace(line, times=line.times * times) for line in book.lines]
    return Ledger(lines)


def _named(deployment: Deployment, step: Iteration, phase: str, scores: str) -> Ledger:
    """An iteration's lines under the names of the report's terms; axes are those of more than one chip."""
    names = {"scores": scores, "attention": "attention projections", **_WAITS}
    sizes, found = deployment.axis_sizes, []
    for line in at(iteration_cost(deployment, step).ledger(phase), 0).lines:
        term = wire_name(line.axes) if line.moves else names.get(line.term, line.term)
        axes = tuple(axis for axis in line.axes if sizes.get(axis, 1) > 1)
        if float(line.total("expected_s")) > 0 and (axes or not line.moves):
            found.append(replace(line, term=term, axes=axes, phase=phase))
    return Ledger(found)


def held_bill(asked: ServeAsked, one: ConfigReport, deployment: Deployment) -> Ledger:
    """The tensors on a chip: weights, caches of all sequences at full length, workspace."""
    return Ledger([], [replace(line, bytes=first(line.bytes)) for line in _held(asked, one, deployment)])


def _held(asked: ServeAsked, one: ConfigReport, deployment: Deployment) -> Iterator[HeldLine]:
    length = capacity(deployment).in_pages(float(asked.ask.prompt + asked.ask.output))
    yield from weight_lines(deployment)
    for line in cache_lines(deployment, length):
        yield replace(line, bytes=line.bytes * one.batch)
    yield from workspace_lines(deployment)
