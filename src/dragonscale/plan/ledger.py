"""The ledger of a plan: a line for each kernel and each move of a step, and one for each tensor in memory.

Everything that is shown of a plan is a grouping of these lines: terms, totals, MFU, formulas, the comparison with a
compiled program, a timeline. Numbers may be floats (one plan), arrays (many plans) or SymPy symbols (formulas).

>>> book = Ledger(
...     [
...         LedgerLine(
...             "block",
...             "forward",
...             "G",
...             "matmul",
...             part="mlp",
...             times=2,
...             flops=100.0,
...             bound_s=1.0,
...             expected_s=1.5,
...             exposed_s=1.5,
...         ),
...         LedgerLine(
...             "block", "forward", "X", "all_gather", ("tensor",), 2, wire_bytes=8.0, expected_s=0.5, exposed_s=0.25
...         ),
...     ]
... )
>>> book.total("flops"), book.total("exposed_s"), book.by("axes", "wire_bytes")
(200.0, 3.5, {(): 0.0, ('tensor',): 16.0})
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError
from dragonscale.physics.numbers import Number, is_array

if TYPE_CHECKING:
    import pandas

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


@dataclass(frozen=True)
class LedgerLine:
    """One kernel or move.

    `phase` is when it runs: forward, recompute, backward (the gradients of inputs and of weights), gradient (their sum
    over replicas), update, prefill, decode, or `step` for what belongs to no pass (bubbles, waiting for the slowest
    machine). `what` is the tensor or op by its name in the program. `kind` is matmul, grouped matmul, attention,
    elementwise, a collective, or the reason of a wait (host, bubble …). `part` is the part of the model, `term` the
    term of the step's time that the line is summed into. FLOPs, bytes and seconds are those of one chip and one time:
    `bound_s` at datasheet rates, `expected_s` through the efficiency profile, `exposed_s` the part that the step waits
    for.
    """

    section: str
    phase: str
    what: str
    kind: str
    axes: tuple[str, ...] = ()
    times: Number = 1
    part: str = ""
    term: str = ""
    carries: str = ""
    flops: Number = 0.0
    hbm_bytes: Number = 0.0
    wire_bytes: Number = 0.0
    bound_s: Number = 0.0
    expected_s: Number = 0.0
    exposed_s: Number = 0.0

    @property
    def moves(self) -> bool:
        """Whether it is a collective; `carries` is then weight, activation, gradient or statistic."""
        return self.kind in COLLECTIVES

    def total(self, name: str) -> Number:
        """A quantity over all the times that the line runs."""
        return getattr(self, name) * self.times


@dataclass(frozen=True)
class HeldLine:
    """A tensor in a chip's memory: its bytes, and from when to when it is there."""

    part: str
    what: str
    bytes: Number
    since: str = "always"
    until: str = "always"
    section: str = ""


@dataclass(frozen=True, repr=False)
class Ledger:
    """Lines of one step or iteration, the tensors in the chip's memory while it runs, and those in its host's."""

    lines: list[LedgerLine] = field(default_factory=list)
    held: list[HeldLine] = field(default_factory=list)
    hosted: list[HeldLine] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Ledger: {len(self.lines):,} lines, {len(self.held):,} tensors held>"

    def rows(self) -> list[dict[str, Any]]:
        """The lines as flat rows; the names of their axes are joined by `+`."""
        return [vars(line) | {"axes": "+".join(line.axes)} for line in self.lines]

    def to_frame(self) -> "pandas.DataFrame":
        """`rows` as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise InputError("A DataFrame needs pandas: pip install pandas. `.rows()` needs nothing.") from None
        return pandas.DataFrame(self.rows())

    def total(self, name: str, chosen: Callable[[LedgerLine], bool] = lambda _: True) -> Number:
        """A quantity summed over the lines that are chosen."""
        return sum((line.total(name) for line in filter(chosen, self.lines)), 0.0)

    def by(self, key: str, name: str, chosen: Callable[[LedgerLine], bool] = lambda _: True) -> dict[Any, Number]:
        """A quantity summed by a field of the lines (`axes`, `term`, `part` …)."""
        return _summed((getattr(line, key), line.total(name)) for line in filter(chosen, self.lines))

    @property
    def memory(self) -> dict[str, Number]:
        """Bytes held, by part."""
        return _summed((line.part, line.bytes) for line in self.held)

    @property
    def hbm_bytes(self) -> Number:
        """Bytes held in all."""
        return sum((line.bytes for line in self.held), 0.0)

    @property
    def host_bytes(self) -> Number:
        """Bytes that the host holds for the chip."""
        return sum((line.bytes for line in self.hosted), 0.0)

    @property
    def sent_bytes(self) -> dict[tuple[str, ...], Number]:
        """Bytes that a chip sends, by the set of mesh axes they go over (names in alphabetical order)."""
        moves = [line for line in self.lines if line.moves and line.axes]
        return _summed((tuple(sorted(line.axes)), line.total("wire_bytes")) for line in moves)


def _summed(pairs: Iterable[tuple[Any, Number]]) -> dict[Any, Number]:
    sums: dict[Any, Number] = {}
    for key, value in pairs:
        sums[key] = sums.get(key, 0.0) + value
    return sums


QUANTITIES = ("times", "flops", "hbm_bytes", "wire_bytes", "bound_s", "expected_s", "exposed_s")


def plan_ledger(ledger: Ledger, index: int) -> Ledger:
    """The ledger of one plan, its numbers as floats, out of a ledger over many."""

    def number(value: Number) -> Number:
        if is_array(value):  # of shape (plans,), or of one number for all plans
            return float(value.item(index if value.size > 1 else 0))
        if isinstance(value, int | float):
            return float(value)
        return value  # a formula

    def tensors(lines: list[HeldLine]) -> list[HeldLine]:
        return [replace(line, bytes=number(line.bytes)) for line in lines]

    lines: list[LedgerLine] = []
    for line in ledger.lines:
        # built from its fields, which takes half the time of `replace`
        fields = dict(vars(line))
        for name in QUANTITIES:
            fields[name] = number(fields[name])
        lines.append(type(line)(**fields))
    return Ledger(lines, tensors(ledger.held), tensors(ledger.hosted))


def present(lines: Iterable[LedgerLine], sizes: dict[str, Number]) -> list[LedgerLine]:
    """The lines that do something, with only those mesh axes that have more than one chip."""
    working: list[LedgerLine] = []
    for line in lines:
        axes = tuple(axis for axis in line.axes if sizes.get(axis, 1) != 1)
        if line.times == 0 or (line.moves and not axes):
            continue
        if any(getattr(line, name) != 0 for name in QUANTITIES[1:]):
            working.append(line if axes == line.axes else replace(line, axes=axes))
    return working
