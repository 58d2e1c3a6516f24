"""A plan's ledger beside what was measured, line by line, so that both sides add up to their step.

Both sides are put into the same drawers. Matmuls and attention by the part of the model and the phase; what is
elementwise by layers, embedding and head, because compilers fuse a norm with what follows it; copies in all;
collectives by kind and mesh axes, whatever the phase, as compilers move them; the optimizer; and what the step waits
for. Of what travels the exposed part is compared: the rest costs the step nothing. Where a profile does not say the
phase of most of its time, phases are left out on both sides.
"""

from collections import defaultdict
from dataclasses import dataclass

from dragonscale.evidence.profiles.communication import over
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import OpTotals
from dragonscale.evidence.profiles.planned import ExpectedStep
from dragonscale.evidence.profiles.records import BesideLine, WorkGroup
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.plan.ledger import COLLECTIVES, LedgerLine

Drawer = tuple[str, str, str]
"""Section, phase, kind."""
IDLE: Drawer = ("step", "", "idle")
_AGAIN: Drawer = ("attention", "recompute", "attention")
_MATMULS = ("matmul", "grouped matmul")
_ENDS = {"embed": "embedding", "embedding": "embedding", "head": "head", "loss": "head", "sampling": "head"}
_PARTS = {"scores": "attention", "experts": "experts", "moe": "experts", "router": "experts", "embed": "embedding"}
_GROUPED = ("elementwise", "reduction", "gather", "control", "sampling", "")
_COPIES = ("copy", "memory")


@dataclass
class Sums:
    """What lies in a drawer on one side."""

    seconds: float = 0.0
    bound: float = 0.0
    flops: float = 0.0
    hbm: float = 0.0
    wire: float = 0.0

    def add(self, seconds: float, bound: float, flops: float, hbm: float, wire: float) -> None:
        """Put one more line in."""
        self.seconds += seconds
        self.bound += bound
        self.flops += flops
        self.hbm += hbm
        self.wire += wire


def beside(
    expected: ExpectedStep,
    totals: OpTotals,
    roles: list[OpRole],
    groups: tuple[WorkGroup, ...],
    idle_s: float,
) -> tuple[BesideLine, ...]:
    """Every drawer that has something on either side, the largest difference first."""
    timed = sum(group.exposed_s for group in groups)
    named = sum(group.exposed_s for group in groups if group.phase)
    phases = bool(timed) and named > 0.8 * timed and expected.request.program == "train"
    measured = _measured(totals, roles, expected.mesh, phases)
    measured[IDLE].seconds += idle_s
    planned = _planned(expected.lines, phases)
    if (
        _AGAIN not in planned and _AGAIN in measured
    ):  # blocks of scores are computed again in the backward pass, and are its own work
        again = measured.pop(_AGAIN)
        measured["attention", "backward", "attention"].add(
            again.seconds, again.bound, again.flops, again.hbm, again.wire
        )
    lines = [
        _line(drawer, measured.get(drawer, Sums()), planned.get(drawer, Sums())) for drawer in {**measured, **planned}
    ]
    some = [line for line in lines if line.measured_s or line.expected_s]
    return tuple(sorted(some, key=lambda one: -abs(one.difference_s)))


def _measured(totals: OpTotals, roles: list[OpRole], mesh: dict[str, int], phases: bool) -> defaultdict[Drawer, Sums]:
    found: defaultdict[Drawer, Sums] = defaultdict(Sums)
    for one in totals.ran.tolist():
        role, works = roles[one], float(totals.works[one])
        amounts = ((value or 0.0) * works for value in (role.flops, role.hbm_bytes, role.wire_bytes))
        found[measured_drawer(role, mesh, phases)].add(float(totals.exposed[one]), 0.0, *amounts)
    return found


def _planned(lines: list[LedgerLine], phases: bool) -> defaultdict[Drawer, Sums]:
    found: defaultdict[Drawer, Sums] = defaultdict(Sums)
    for line in lines:
        values = (float(line.total(name)) for name in ("exposed_s", "bound_s", "flops", "hbm_bytes", "wire_bytes"))
        found[planned_drawer(line, phases)].add(*values)
    return found


def measured_drawer(role: OpRole, mesh: dict[str, int], phases: bool) -> Drawer:
    """Where an op belongs."""
    if role.kind in TRAVELS:
        return over(role.group, mesh), "", role.kind
    if role.section in ("optimizer", "gradients") or role.phase == "update":
        return "optimizer", "", "update"
    if role.kind == "host":
        return "step", "", "host"
    phase = role.phase if phases else ""
    if role.kind == "attention" or (role.section, role.what) == ("attention", "scores"):
        return "attention", phase, "attention"
    if role.kind in _MATMULS:
        section = _ENDS.get(role.section, role.section) or "not known"
        return section, phase, "matmul"
    ends = _ENDS.get(role.section, "layers")
    return ("step", "", "copies") if role.kind in _COPIES else (ends, phase, "elementwise")


def planned_drawer(line: LedgerLine, phases: bool) -> Drawer:
    """Where a line of the ledger belongs."""
    if line.kind in COLLECTIVES:
        return "+".join(line.axes) or "groups not recorded", "", line.kind
    if line.kind == "optimizer" or line.phase == "update":
        return "optimizer", "", "update"
    phase = line.phase if phases else ""
    ends = _ENDS.get(line.section, "layers")
    if line.kind == "attention":
        return "attention", phase, "attention"
    if line.kind in _MATMULS:
        return ("head" if line.section == "head" else _PARTS.get(line.part, line.part)) or "not known", phase, "matmul"
    if line.kind == "sampling":
        return "head", phase, "elementwise"
    if line.kind in _COPIES:
        return "step", "", "copies"
    if line.kind in _GROUPED:
        return ends, phase, "elementwise"
    return IDLE


def _line(drawer: Drawer, measured: Sums, planned: Sums) -> BesideLine:
    moves = drawer[2] in TRAVELS
    had, meant = (measured.wire, planned.wire) if moves else (measured.hbm, planned.hbm)
    return BesideLine(
        *drawer,
        measured.seconds,
        planned.seconds,
        measured.seconds - planned.seconds,
        planned.bound or None,
        measured.flops or None,
        planned.flops or None,
        had or None,
        meant or None,
        _why(drawer, measured, planned),
    )


def _why(drawer: Drawer, measured: Sums, planned: Sums) -> str:
    """What the two sides differ in: work, or the rate at which it is done."""
    if not planned.seconds or not measured.seconds:
        return (
            "" if planned.seconds == measured.seconds else "not planned" if measured.seconds else "not in the profile"
        )
    if drawer[2] in TRAVELS:
        return _more(measured.wire, planned.wire, "bytes sent")
    if drawer[2] not in ("matmul", "attention"):
        return _more(measured.hbm, planned.hbm, "bytes")
    more = _more(measured.flops, planned.flops, "FLOPs")
    if more or not measured.flops or not planned.flops:
        return more
    rate = (measured.flops / measured.seconds) / (planned.flops / planned.seconds)
    return f"{rate:.0%} of the expected rate" if abs(rate - 1) > 0.03 else ""


def _more(measured: float, planned: float, what: str) -> str:
    if not measured or not planned or abs(measured / planned - 1) < 0.05:
        return ""
    ratio = measured / planned
    return f"{ratio:.2g} times the planned {what}" if ratio > 1 else f"{ratio:.0%} of the planned {what}"
