"""A training step as a timeline: microbatches forward and backward, then what happens once a step."""

from dataclasses import replace
from typing import Any

from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline

# Microbatches that are drawn one by one; the rest of them are one slice.
MAX_DRAWN = 8

_BEFORE = ("pipeline bubble",)
_AFTER = ("gradient reduction", "optimizer", "stragglers", "uneven stages", "bound at datasheet rates")


def step_timeline(ledger: Ledger, microbatches: float, title: str) -> dict[str, Any]:
    """The trace of one step of a chip in the fullest pipeline stage."""
    forward: list[LedgerLine] = []
    backward: list[LedgerLine] = []
    for line in ledger.lines:
        if line.term in (*_BEFORE, *_AFTER):
            continue
        if line.phase == "forward":
            forward.append(line)
        else:
            backward.append(line)
    # The backward pass goes through the sections from the last to the first.
    sections = list(dict.fromkeys(line.section for line in backward))[::-1]
    backward.sort(key=lambda line: sections.index(line.section))
    drawn = int(microbatches)
    if microbatches > MAX_DRAWN + 1:
        drawn = MAX_DRAWN
    passes = [TimelinePass("pipeline bubble", _of_terms(ledger, _BEFORE))]
    for index in range(drawn):
        passes += _both_passes(forward, backward, f"microbatch {index + 1}", 1 / microbatches)
    if microbatches > drawn:
        name = f"microbatches {drawn + 1} to {microbatches:.0f}"
        passes += _both_passes(forward, backward, name, 1 - drawn / microbatches)
    passes += [TimelinePass(term, _of_terms(ledger, (term,))) for term in _AFTER]
    return timeline(passes, title)


def _of_terms(ledger: Ledger, terms: tuple[str, ...]) -> tuple[LedgerLine, ...]:
    """Lines of some terms, which are drawn as sections of their own."""
    return tuple(replace(line, section=line.term) for line in ledger.lines if line.term in terms)


def _both_passes(forward: list[LedgerLine], backward: list[LedgerLine], name: str, share: float) -> list[TimelinePass]:
    return [
        TimelinePass(f"{name}: forward", tuple(forward), share),
        TimelinePass(f"{name}: backward", tuple(backward), share),
    ]
