"""What travels in a step: by kind of collective and by the mesh axes its groups run along, exposed and overlapped, against the wires.

A group is told by its size and stride (`groups of 8, stride 16`); with a plan's mesh, whose last axis is the innermost, these are axes. The
bandwidth is that of the bytes a chip sends (for a ring over n chips, (n-1)/n of the array for each pass) while the collective runs. It is
held against what the chip's wires carry: under switches the tier that the group spans, on a torus all links of the chip. Transfers between
the host's memory and the device are listed too, against the link to the host.

>>> group_form((0, 16, 32, 48)), group_form((0, 1, 2, 3)), group_form((0, 3, 4)), group_form(())
('groups of 4, stride 16', 'groups of 4', 'groups of 3', '')
>>> axes_of((0, 2), {"data": 1, "fsdp": 2, "tensor": 2})
('fsdp',)
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import OpTotals
from dragonscale.evidence.profiles.records import MoveLine
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.xla.spanned_axes import spanned_axes

if TYPE_CHECKING:
    from dragonscale.hardware import Chip

Flight = Callable[[list[int]], float]
"""Seconds of a step in which any of some ops is in flight."""


def moves(
    totals: OpTotals, roles: list[OpRole], chip: "Chip | None", mesh: dict[str, int], flight: Flight | None = None
) -> tuple[MoveLine, ...]:
    """A line for each kind of collective over each set of axes, the one waited for longest first."""
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in totals.ran.tolist():
        role = roles[number]
        if role.kind in TRAVELS:
            members[role.kind, over(role.group, mesh)].append(number)
        elif role.kind == "host":
            members["host", role.what or "to or from the host"].append(number)
    lines = [
        _line(kind, name, some, totals, roles, chip, mesh, flight or (lambda ops: float(totals.seconds[ops].sum())))
        for (kind, name), some in members.items()
    ]
    return tuple(sorted(lines, key=lambda one: (-one.exposed_s, -one.seconds)))


def _line(
    kind: str,
    name: str,
    some: list[int],
    totals: OpTotals,
    roles: list[OpRole],
    chip: "Chip | None",
    mesh: dict[str, int],
    flight: Flight,
) -> MoveLine:
    exposed = float(totals.exposed[some].sum())
    counted = [one for one in some if totals.works[one] > 0]
    seconds = max(flight(some), exposed)
    field = "hbm_bytes" if kind == "host" else "wire_bytes"
    sizes = [size * float(totals.works[one]) for one in counted if (size := getattr(roles[one], field)) is not None]
    sent = float(sum(sizes)) if sizes else None
    group = roles[some[0]].group
    rate = sent / seconds if sent and seconds else None
    wires = None if chip is None else chip.host_link if kind == "host" else wire_rate(chip, group) if group else None
    return MoveLine(
        kind, name, seconds, exposed, max(0.0, seconds - exposed), float(totals.works[some].sum()), axes_of(group, mesh) or (),
        len(group) or None, sent, rate, wires, rate / wires if rate and wires else None,
    )  # fmt: skip


def over(group: tuple[int, ...], mesh: dict[str, int]) -> str:
    """The axes of a group by their names, or its form; words where neither is known."""
    axes = axes_of(group, mesh)
    return "+".join(axes) if axes else group_form(group) or "groups not recorded"


def axes_of(group: tuple[int, ...], mesh: dict[str, int]) -> tuple[str, ...]:
    """The mesh axes that a group runs along; none where it is not along whole axes."""
    if len(group) < 2 or math.prod(mesh.values()) <= max(group):
        return ()
    return spanned_axes((tuple(group),), mesh) or ()


def group_form(group: tuple[int, ...]) -> str:
    """A group in words."""
    if len(group) < 2:
        return ""
    steps = {after - before for before, after in zip(sorted(group), sorted(group)[1:], strict=False)}
    stride = steps.pop() if len(steps) == 1 else 1
    return f"groups of {len(group)}" + (f", stride {stride}" if stride > 1 else "")


def wire_rate(chip: "Chip", group: tuple[int, ...]) -> float | None:
    """Bytes a second that a chip can send into a group."""
    from dragonscale.hardware.chip import Torus

    network = chip.network
    if isinstance(network, Torus):
        return 2 * network.axes * network.link
    below, span = 1, max(group) - min(group) + 1
    for level in network.levels:
        if not level.degree or span <= below * level.degree:
            return level.bandwidth / below
        below *= level.degree
    return None
