"""A training step as a timeline: microbatches forward and backward, then what happens once a step."""

from dataclasses import replace
from typing import Any

from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline

SHOWN = 8
"""Microbatches that are drawn one by one; the rest of them are one slice."""
_BEFORE, _AFTER = (
    ("pipeline bubble",),
    ("gradient reduction", "optimizer", "stragglers", "uneven stages", "bound at datasheet rates"),
)


def step_timeline(ledger: Ledger, microbatches: float, title: str) -> dict[str, Any]:
    """The trace of one step of a chip in the fullest pipeline stage."""
    lines = ledger.lines
    often = [line for line in lines if line.term not in (*_BEFORE, *_AFTER)]
    forward = [line for line in often if line.phase == "forward"]
    backward = [line for line in often if line.phase != "forward"]
    order = list(dict.fromkeys(line.section for line in backward))[::-1]
    backward.sort(key=lambda line: order.index(line.section))
    passes = [TimelinePass("pipeline bubble", _of(lines, _BEFORE))]
    drawn = int(min(microbatches, SHOWN if microbatches > SHOWN + 1 else microbatches))
    for number in range(drawn):
        passes += _both(forward, backward, f"microbatch {number + 1}", 1 / microbatches)
    if microbatches > drawn:
        passes += _both(forward, backward, f"microbatches {drawn + 1} to {microbatches:.0f}", 1 - drawn / microbatches)
    passes += [TimelinePass(term, _of(lines, (term,))) for term in _AFTER]
    return timeline(passes, title)


def _of(lines: list[LedgerLine], terms: tuple[str, ...]) -> tuple[LedgerLine, ...]:
    return tuple(replace(line, section=line.term) for line in lines if line.term in terms)


def _both(forward: list[LedgerLine], backward: list[LedgerLine], name: str, share: float) -> list[TimelinePass]:
    return [
        TimelinePass(f"{name}: forward", tuple(forward), share),
        TimelinePass(f"{name}: backward", tuple(backward), share),
    ]
