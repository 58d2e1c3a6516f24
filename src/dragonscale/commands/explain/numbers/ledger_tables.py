"""Lines of a ledger as tables of a derivation, and the constants of a stack that are in them."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from dragonscale.blocks.amounts import Amount, amount, quantity
from dragonscale.commands.explain.numbers.records import LineTable
from dragonscale.plan.ledger import HeldLine, LedgerLine
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.stack_rules import stack_rules

MAX_LINES = 24
"""Lines that a table shows; the largest are worth reading, a plan has hundreds."""
_COLUMNS = ("what", "when", "times", "FLOPs", "HBM", "sent", "bound", "expected", "exposed")
_WORK = ("flops", "hbm_bytes", "wire_bytes", "bound_s", "expected_s", "exposed_s")


def line_table(lines: Sequence[LedgerLine], title: str = "Lines of the ledger") -> LineTable:
    """Kernels and moves, the longest first, each with its work over all the times that it runs."""
    longest_first = sorted(lines, key=lambda line: -float(line.total("expected_s")))
    rows = list(map(_work_row, longest_first[:MAX_LINES]))
    return LineTable(title, _COLUMNS, rows, _left_out(len(lines), "shorter lines"))


def _work_row(line: LedgerLine) -> list[object]:
    over = ""
    if line.axes:  # a collective, and the mesh axes that its chips lie along
        over = f" over {'+'.join(line.axes)}"
    cells: list[object] = [
        f"{line.what} ({line.kind.replace('_', '-')}{over})",
        f"{line.section}, {line.phase}",
        f"{float(line.times):,.6g}",
    ]
    for name in _WORK:
        total = float(line.total(name))
        # kernels send nothing and moves have no FLOPs
        cells.append(quantity(name, total) if total else "–")
    return cells


def held_table(lines: Sequence[HeldLine], total: Amount | None = None) -> LineTable:
    """Tensors on a chip, the largest first."""
    rows = []
    for line in sorted(lines, key=lambda line: -float(line.bytes))[:MAX_LINES]:
        since = f"{line.since} to {line.until}"
        if since == "always to always":  # state such as weights lives as long as the program
            since = "always"
        rows.append([line.what, line.section or "–", amount(float(line.bytes), "bytes"), since])
    return LineTable(
        "Tensors", ("tensor", "of", "bytes", "held"), rows, _left_out(len(lines), "smaller tensors"), total
    )


def _left_out(many: int, things: str) -> str:
    if many <= MAX_LINES:
        return ""
    return f"{many - MAX_LINES} {things} are left out."


def constants_table(job: Job, term: str) -> Iterable[LineTable]:
    """The rule and the constants by which a stack turns the expected time of a term into what the step waits for; none
    where no constant of the stack is in it."""
    rule, stack = stack_rules().get(term), job.stack
    if rule is None:
        return []
    rows = [[name, f"{attrgetter(name)(stack):.4g}", f"stack {stack.name}: {stack.why}"] for name in rule.constants]
    return [LineTable("The stack's rule and constants", ("constant", "value", "from"), rows, rule.rule)]
