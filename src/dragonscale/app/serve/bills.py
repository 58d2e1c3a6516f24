"""The ledgers behind a configuration's bars: every kernel, move and wait of a decode step and of a prompt, and every
tensor held.

Lines carry the names of the terms that `dscale serve` shows (`term_rows` of `config.py`), so that the lines of a term
add up to it. A prompt is the whole of one that runs alone, all its chunks together; `phase` then says which chunk a
line is of.
"""

from collections.abc import Iterator
from dataclasses import replace

from dragonscale.app.given import slice_of
from dragonscale.app.serve.config import PROMPT_SCORES, STEP_SCORES, CostedConfig, costed_config, first, wire_name
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.plan.ledger import HeldLine, Ledger, LedgerLine, at
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.held import cache_lines, weight_lines, workspace_lines
from dragonscale.serving.launch import engine_on
from dragonscale.serving.lines import IterationCost
from dragonscale.serving.plan import parse_serving_plan

_WAITS = {"sampling": "sampling and launch gaps"}
_TENSOR = {"expert": "tensor", "share": "tensor"}
"""Parts that a mesh cuts the tensor ways of a plan into; a plan knows them as one axis."""


def deployment_of(asked: ServeAsked, one: ConfigReport) -> Deployment:
    """One replica of a configuration of a report."""
    piece = slice_of(one.copy_slice, (chip for chip, _ in asked.targets))
    engine = engine_on(one.engine, piece.chip, asked.model, asked.limits)
    return Deployment(asked.model, piece, parse_serving_plan(one.plan), engine)


def keep_costs(report: ServeReport, costed: CostedConfig) -> None:
    """Remember the iterations of a report's first configuration, which its bills are made of."""
    vars(report)["costed"] = costed  # beside the fields, so that no encoder sees it


def bills_of(report: ServeReport) -> dict[str, Ledger]:
    """The bills of a report's first configuration, `decode` (where more than one token is asked for) and `prefill`;
    made once."""
    known = vars(report)
    if "bills" not in known:
        asked, one = report.asked, report.configs[0]
        costed: CostedConfig | None = known.get("costed")
        costed = costed or costed_config(asked, deployment_of(asked, one), one.batch)
        steps = (
            {"decode": _named(costed.deployment, costed.step, "decode", STEP_SCORES)} if asked.ask.output > 1 else {}
        )
        known["bills"] = steps | {"prefill": _prompt(costed)}
    return known["bills"]


def _prompt(costed: CostedConfig) -> Ledger:
    """A prompt that runs alone, all its chunks together."""
    lines: list[LedgerLine] = []
    for place, (times, cost) in enumerate(costed.chunks):
        phase = "prefill" if len(costed.chunks) == 1 else ("last chunk", "earlier chunks")[place]
        book = _named(costed.deployment, cost, phase, PROMPT_SCORES)
        lines += [replace(line, times=line.times * times) for line in book.lines]
    return Ledger(lines)


def _named(deployment: Deployment, cost: IterationCost, phase: str, scores: str) -> Ledger:
    """An iteration's lines under the names of the report's terms; axes are those of more than one chip."""
    names = {"scores": scores, "attention": "attention projections", **_WAITS}
    sizes, found = deployment.axis_sizes, []
    for line in at(cost.ledger(phase), 0).lines:
        term = wire_name(line.axes) if line.moves else names.get(line.term, line.term)
        axes = tuple(dict.fromkeys(_TENSOR.get(axis, axis) for axis in line.axes if sizes.get(axis, 1) > 1))
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
