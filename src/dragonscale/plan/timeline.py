"""A ledger as a timeline that Perfetto opens: the order of a chip's work, and the collectives that overlap with it.

Time runs along the exposed seconds of the lines, so a timeline is as long as its step or iteration. Slices nest: a
pass, a section of the model (all its layers together), a line. Collectives have a track for each set of mesh axes, one
after the other and as long as they are expected to take. Each ends where the step has waited for it; the part that lies
under earlier compute is hidden. Load the file at https://ui.perfetto.dev or chrome://tracing.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonscale.files import write_file
from dragonscale.plan.ledger import LedgerLine

# The process id of the chip in the trace, and microseconds in a second.
CHIP = 1
MICROSECONDS = 1e6
# The arguments of a slice, each with the field of the ledger line that it shows.
_FACTS = {
    "flops": "flops",
    "hbm_bytes": "hbm_bytes",
    "sent_bytes": "wire_bytes",
    "bound_s": "bound_s",
    "expected_s": "expected_s",
    "exposed_s": "exposed_s",
}


@dataclass(frozen=True)
class TimelinePass:
    """Lines that run one after the other under one name; `share` is the fraction of their times that this pass has."""

    name: str
    lines: tuple[LedgerLine, ...]
    share: float = 1.0


def timeline(passes: Iterable[TimelinePass], title: str) -> dict[str, Any]:
    """The trace of some passes in order, in the format of Chrome's trace viewer."""
    events: list[dict[str, Any]] = []
    tracks: dict[str, int] = {"compute": 1}
    now = 0.0  # seconds since the step began
    for pass_ in passes:
        pass_start = now
        for section in dict.fromkeys(line.section for line in pass_.lines):
            section_start = now
            for line in pass_.lines:
                if line.section == section:
                    now = _draw(line, pass_.share, now, tracks, events)
            if now > section_start:
                events.append(_slice(section, section_start, now - section_start, 1, {}))
        if now > pass_start:
            events.append(_slice(pass_.name, pass_start, now - pass_start, 1, {}))
    for track in tracks.values():
        if track > 1:
            _queue([event for event in events if event["tid"] == track])
    names = [_name("process_name", 0, title)]
    names += [_name("thread_name", track, name) for name, track in tracks.items()]
    # outer slices come before the inner ones that begin with them
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *events]}


def _draw(line: LedgerLine, share: float, now: float, tracks: dict[str, int], events: list[dict[str, Any]]) -> float:
    """Add the slices of a line that begins now; the time at which it ends."""
    exposed, expected = float(line.total("exposed_s")) * share, float(line.total("expected_s")) * share
    facts = {"phase": line.phase, "kind": line.kind, "term": line.term, "times": float(line.times) * share}
    for fact, quantity in _FACTS.items():
        facts[fact] = float(line.total(quantity)) * share
    name = f"{line.kind} {line.what}".strip()  # waits have no tensor
    if line.moves and line.axes and expected > 0:
        track = tracks.setdefault(f"network: {'+'.join(line.axes)}", len(tracks) + 1)
        events.append(_slice(name, now + exposed - expected, expected, track, facts))
    if exposed > 0:
        events.append(_slice(name, now, exposed, 1, facts))
    return now + exposed


def _queue(events: list[dict[str, Any]]) -> None:
    """Move collectives over the same wires so that none overlap: each as late as it may end, but none before the step
    begins."""
    # backwards: none ends after the next one begins
    limit = float("inf")
    for event in reversed(events):
        event["ts"] = min(event["ts"], limit - event["dur"])
        limit = event["ts"]
    # forwards: what would begin before the step is moved to its start, and pushes the others on
    free = 0.0
    for event in events:
        event["ts"] = max(event["ts"], free)
        free = event["ts"] + event["dur"]


def _slice(name: str, start: float, length: float, track: int, facts: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start * MICROSECONDS, "dur": length * MICROSECONDS}
    return {"name": name, "ph": "X", "pid": CHIP, "tid": track, **times, "args": facts}


def _name(what: str, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": CHIP, "tid": track, "args": {"name": name}}


def save_timeline(trace: dict[str, Any], path: str) -> None:
    """Write a trace to a file."""
    write_file(path, json.dumps(trace), "The timeline")
