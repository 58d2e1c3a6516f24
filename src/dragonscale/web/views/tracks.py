"""A trace in Perfetto's format as tracks that the page draws; a suggested command line as the fields of a tab."""

import shlex
from typing import Any

from dragonscale.commands.charts.roles import time_role
from dragonscale.faces.cli.mcp.tools import tools

MICRO = 1e-6


def tracks_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Tracks (compute, and one for each set of mesh axes): [name, start, seconds, depth, role, term] of each slice."""
    events = trace["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks: dict[int, list[list[Any]]] = {number: [] for number in names}
    open_until: dict[int, list[float]] = {number: [] for number in names}
    slices = [(index, event) for index, event in enumerate(events) if event["ph"] == "X"]
    for _, event in sorted(slices, key=_outermost):
        number, start, length = event["tid"], event["ts"] * MICRO, event["dur"] * MICRO
        stack, term = open_until[number], event["args"].get("term", "")
        while stack and stack[-1] <= start + 1e-9 * length:
            stack.pop()
        # on the track of compute passes and sections frame the lines; a track of wires has lines alone
        depth = 0
        if number == 1:
            depth = 2 if event["args"] else min(len(stack), 1)
        stack.append(start + length)
        role = "overhead:2" if depth == 0 else "overhead:3"
        if term:
            role = time_role(term)
        tracks[number].append([event["name"], start, length, depth, role, term])
    return [{"name": names[number], "slices": slices} for number, slices in tracks.items()]


def _outermost(placed: tuple[int, dict[str, Any]]) -> tuple[float, bool, float, int]:
    """Of slices that begin together lines come last, and of those that end together too, the one that was closed last
    comes first."""
    index, event = placed
    return round(event["ts"], 6), bool(event["args"]), -round(event["dur"], 6), -index


def fields_of_command(text: str) -> dict[str, Any]:
    """The fields that a command line of ours sets: what `Next` of an answer opens.

    >>> fields_of_command("dscale simulate llama3-8b --on h100:1 --rate 4/s --max-rate")
    {'model': 'llama3-8b', 'on': 'h100:1', 'rate': '4/s', 'max_rate': True}
    """
    arguments = shlex.split(text)[1:]
    if not arguments:
        return {}
    fields = tools()[arguments[0]].fields()
    flags, places = {field.flag: field for field in fields}, (field for field in fields if field.place)
    values: dict[str, Any] = {}
    rest = iter(arguments[1:])
    for word in rest:
        field = flags.get(word)
        if field is not None:
            values[field.name] = True if field.switch else next(rest)
        elif not word.startswith("--"):
            values[next(places).name] = word
    return values
