"""Lines of a ledger as tables in a derivation: the largest of them, and what the others come to."""

from collections.abc import Iterable, Sequence

from dragonscale.plan.ledger import HeldLine, LedgerLine
from dragonscale.web.amounts import Amount, amount
from dragonscale.web.derivations.pieces import Piece, table

MOST = 24
"""Lines that a table shows."""
COLUMNS = ("what", "when", "times", "FLOPs", "HBM", "sent", "bound", "expected", "exposed")


def line_table(lines: Sequence[LedgerLine], title: str = "Lines of the ledger") -> Piece:
    """Kernels and moves, the longest first: each with its work over all the times it runs."""
    every = sorted(lines, key=lambda line: -float(line.total("expected_s")))
    rows = [_line(line) for line in every[:MOST]]
    more = f"{len(every) - MOST} shorter lines are left out." if len(every) > MOST else ""
    return table(title, COLUMNS, rows, more)


def _line(line: LedgerLine) -> list[object]:
    over = f" over {'+'.join(line.axes)}" if line.axes else ""
    kind = line.kind.replace("_", "-")
    work = [
        _shown(float(line.total(name)), unit)
        for name, unit in (
            ("flops", "FLOP"),
            ("hbm_bytes", "bytes"),
            ("wire_bytes", "bytes"),
            ("bound_s", "s"),
            ("expected_s", "s"),
            ("exposed_s", "s"),
        )
    ]
    return [f"{line.what} ({kind}{over})", f"{line.section}, {line.phase}", f"{float(line.times):,.6g}", *work]


def _shown(value: float, unit: str) -> Amount | str:
    return amount(value, unit) if value else "–"


def held_table(lines: Iterable[HeldLine], total: Amount | None = None) -> Piece:
    """Tensors on a chip, the largest first."""
    every = sorted(lines, key=lambda line: -float(line.bytes))
    rows = [[line.what, line.section or "–", amount(float(line.bytes), "bytes"), _while(line)] for line in every[:MOST]]
    more = f"{len(every) - MOST} smaller tensors are left out." if len(every) > MOST else ""
    return table("Tensors", ("tensor", "of", "bytes", "held"), rows, more) | {"total": total}


def _while(line: HeldLine) -> str:
    return "always" if line.since == line.until == "always" else f"{line.since} to {line.until}"
