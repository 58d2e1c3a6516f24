"""A ledger as a timeline that Perfetto opens: what a chip does after what, and what travels beside it.

Time runs along the exposed seconds of the lines, so a timeline is as long as its step or iteration. Slices nest: a
pass, a section of the model (all its layers together), a line. Collectives lie on tracks of their own, one for each set
of mesh axes, one after the other and as long as they are expected to take. Each ends where the step has waited for it:
what of it lies under the compute before is hidden. Load the file at https://ui.perfetto.dev or chrome://tracing.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonscale.files import write_file
from dragonscale.plan.ledger import LedgerLine

CHIP, MICRO = 1, 1e6
"""The process of the trace, and microseconds in a second."""
_FACTS = {
    "flops": "flops",
    "hbm_bytes": "hbm_bytes",
    "sent_bytes": "wire_bytes",
    "bound_s": "bound_s",
    "expected_s": "expected_s",
    "exposed_s": "exposed_s",
}
"""What a slice of the timeline tells of its line, by the line's own name of it."""


@dataclass(frozen=True)
class TimelinePass:
    """Lines that run one after the other under one name, as often as `share` of all their times."""

    name: str
    lines: tuple[LedgerLine, ...]
    share: float = 1.0


def timeline(passes: Iterable[TimelinePass], title: str) -> dict[str, Any]:
    """The trace of some passes in order, in the format of Chrome's trace viewer."""
    events: list[dict[str, Any]] = []
    tracks: dict[str, int] = {"compute": 1}
    now = 0.0
    for one in passes:
        start = now
        for section in dict.fromkeys(line.section for line in one.lines):
            begin = now
            for line in one.lines:
                if line.section == section:
                    now = _draw(line, one.share, now, tracks, events)
            if now > begin:
                events.append(_slice(section, begin, now - begin, 1, {}))
        if now > start:
            events.append(_slice(one.name, start, now - start, 1, {}))
    for track in tracks.values():
        if track > 1:
            _queued([event for event in events if event["tid"] == track])
    names = [_name("process_name", 0, title)] + [_name("thread_name", track, name) for name, track in tracks.items()]
    # Outer slices come before the inner ones that begin with them.
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [*names, *sorted(events, key=lambda event: (event["ts"], -event["dur"]))],
    }


def _draw(line: LedgerLine, share: float, now: float, tracks: dict[str, int], events: list[dict[str, Any]]) -> float:
    exposed, expected = (float(line.total(name)) * share for name in ("exposed_s", "expected_s"))
    facts = {"phase": line.phase, "kind": line.kind, "term": line.term, "times": float(line.times) * share}
    for fact, quantity in _FACTS.items():
        facts[fact] = float(line.total(quantity)) * share
    name = f"{line.kind} {line.what}" if line.what else line.kind
    if line.moves and line.axes and expected > 0:
        where = "+".join(line.axes)
        track = tracks.setdefault(f"network: {where}", len(tracks) + 1)
        events.append(_slice(name, now + exposed - expected, expected, track, facts))
    if exposed > 0:
        events.append(_slice(name, now, exposed, 1, facts))
    return now + exposed


def _queued(events: list[dict[str, Any]]) -> None:
    """Lay what uses the same wires one after the other: as late as each may end, but none before the step begins."""
    limit = float("inf")
    for event in reversed(events):
        event["ts"] = min(event["ts"], limit - event["dur"])
        limit = event["ts"]
    free = 0.0
    for event in events:
        event["ts"] = max(event["ts"], free)
        free = event["ts"] + event["dur"]


def _slice(name: str, start: float, length: float, track: int, facts: dict[str, Any]) -> dict[str, Any]:
    lasting = {"ts": start * MICRO, "dur": length * MICRO}
    return {"name": name, "ph": "X", "pid": CHIP, "tid": track, **lasting, "args": facts}


def _name(what: str, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": CHIP, "tid": track, "args": {"name": name}}


def save_timeline(trace: dict[str, Any], path: str) -> None:
    """Write a trace to a file."""
    write_file(path, json.dumps(trace), "The timeline")
