"""A trace in Perfetto's format as tracks that the page draws: what a chip does after what, and what travels beside it."""

from typing import Any

from dragonscale.reports.charts.roles import time_role

MICRO = 1e-6


def tracks_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Tracks (compute, and one for each set of mesh axes): [name, start, seconds, depth, role, term] of each slice."""
    events = trace["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks: dict[int, list[list[Any]]] = {number: [] for number in names}
    open_until: dict[int, list[float]] = {number: [] for number in names}
    for event in (event for event in events if event["ph"] == "X"):
        number, start, length = event["tid"], event["ts"] * MICRO, event["dur"] * MICRO
        stack = open_until[number]
        while stack and stack[-1] <= start * (1 + 1e-12):
            stack.pop()
        depth = len(stack) if number == 1 else 0
        stack.append(start + length)
        term = event["args"].get("term", "")
        role = time_role(term) if term else ("overhead:2" if depth == 0 else "overhead:3")
        tracks[number].append([event["name"], start, length, min(depth, 2), role, term])
    return [{"name": names[number], "slices": slices} for number, slices in tracks.items()]
