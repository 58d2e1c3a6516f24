"""Lines of a ledger as tables in a derivation: the largest of them, and what the others come to; the constants of a
stack that are in them."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from dragonscale.plan.ledger import HeldLine, LedgerLine
from dragonscale.training.cost.evaluation import Job
from dragonscale.web.amounts import Amount, amount, quantity
from dragonscale.web.derivations.letters import letter_table
from dragonscale.web.derivations.pieces import Piece, table

MOST = 24
"""Lines that a table shows."""
COLUMNS = ("what", "when", "times", "FLOPs", "HBM", "sent", "bound", "expected", "exposed")
_WORK = ("flops", "hbm_bytes", "wire_bytes", "bound_s", "expected_s", "exposed_s")


def line_table(lines: Sequence[LedgerLine], title: str = "Lines of the ledger") -> Piece:
    """Kernels and moves, the longest first: each with its work over all the times it runs."""
    every = sorted(lines, key=lambda line: -float(line.total("expected_s")))
    more = f"{len(every) - MOST} shorter lines are left out." if len(every) > MOST else ""
    return table(title, COLUMNS, map(_line, every[:MOST]), more)


def _line(line: LedgerLine) -> list[object]:
    over = f" over {'+'.join(line.axes)}" if line.axes else ""
    totals = {name: float(line.total(name)) for name in _WORK}
    work = [quantity(name, total) if total else "–" for name, total in totals.items()]
    what = f"{line.what} ({line.kind.replace('_', '-')}{over})"
    return [what, f"{line.section}, {line.phase}", f"{float(line.times):,.6g}", *work]


def held_table(lines: Iterable[HeldLine], total: Amount | None = None) -> Piece:
    """Tensors on a chip, the largest first."""
    every = sorted(lines, key=lambda line: -float(line.bytes))
    rows = []
    for line in every[:MOST]:
        since = "always" if line.since == line.until == "always" else f"{line.since} to {line.until}"
        rows.append([line.what, line.section or "–", amount(float(line.bytes), "bytes"), since])
    more = f"{len(every) - MOST} smaller tensors are left out." if len(every) > MOST else ""
    return table("Tensors", ("tensor", "of", "bytes", "held"), rows, more) | {"total": total}


def constants_table(job: Job, term: str) -> list[Piece]:
    """The rule and the constants by which a stack turns an expected time into what the step waits for; none where no
    constant of the stack is in a term."""
    rule, stack = letter_table().rules.get(term), job.stack
    if rule is None:
        return []
    rows = [[name, f"{attrgetter(name)(stack):.4g}", f"stack {stack.name}: {stack.why}"] for name in rule.constants]
    return [table("The stack's rule and constants", ("constant", "value", "from"), rows, rule.rule)]
