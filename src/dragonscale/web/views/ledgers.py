"""Lines of a ledger as rows for a table that opens under a bar, grouped as the bar is."""

from typing import Any

from dragonscale.app.train.plans import HELD
from dragonscale.plan.ledger import Ledger
from dragonscale.web.amounts import amount


def line_rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Kernels and moves by the term of the bill that they are counted under, the longest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(ledger.lines, key=lambda one: -float(one.total("expected_s"))):
        row = {
            "what": line.what,
            "section": line.section,
            "phase": line.phase,
            "kind": line.kind.replace("_", "-"),
            "axes": list(line.axes),
            "times": float(line.times),
            "flops": amount(float(line.total("flops")), "FLOP"),
            "hbm": amount(float(line.total("hbm_bytes")), "bytes"),
            "sent": amount(float(line.total("wire_bytes")), "bytes"),
            "bound": amount(float(line.total("bound_s")), "s"),
            "expected": amount(float(line.total("expected_s")), "s"),
            "exposed": amount(float(line.total("exposed_s")), "s"),
        }
        found.setdefault(line.term, []).append(row)
    return found


def held_rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Tensors on a chip by their part of memory, the largest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(ledger.held, key=lambda one: -float(one.bytes)):
        row = {
            "what": line.what,
            "section": line.section,
            "bytes": amount(float(line.bytes), "bytes"),
            "since": line.since,
            "until": line.until,
        }
        found.setdefault(HELD.get(line.part, line.part), []).append(row)
    return found
