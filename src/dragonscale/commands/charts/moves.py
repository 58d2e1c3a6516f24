"""The moves of a ledger as rows of a mesh's picture: by axis and collective, bytes, seconds and what is exposed."""

from collections.abc import Iterable

from dragonscale.blocks.charts.mesh import AxisMove, MeshAxis
from dragonscale.commands.charts.roles import SPLITS, TABLE
from dragonscale.plan.ledger import LedgerLine

# From the outermost axis of a mesh to the innermost, whose chips are nearest.
ORDER = tuple(SPLITS)
# What is less of the largest move is not told: a few statistics of norms.
SMALLEST = 1e-4


def serving_splits(axis: str, experts: int) -> str:
    """What an axis of a serving mesh splits."""
    if axis != "data":
        return SPLITS[axis]
    if experts > 1:
        return "requests; experts"
    return "requests"


def mesh_axes(degrees: dict[str, int], lines: Iterable[LedgerLine]) -> list[MeshAxis]:
    """The axes of a plan with what goes over each in a step. What goes over several is told at the
    outermost of them."""
    order = [name for name in ORDER if degrees.get(name, 1) > 1]
    sums: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        axes = [name for name in order if name in line.axes]
        if not line.moves or not axes:
            continue
        carried = TABLE["carried"].get(line.carries, line.carries)
        notes = f"{line.kind.replace('_', '-')} {carried}".strip().replace("permute", "send")
        if len(axes) > 1:
            notes += f" (with {', '.join(axes[1:])})"
        moves = sums.setdefault((axes[0], notes), [0.0, 0.0, 0.0])
        for index, name in enumerate(("wire_bytes", "expected_s", "exposed_s")):
            moves[index] += float(line.total(name))
    roles = {name: "tensor:1" if name == "width" else name for name in order}
    return [MeshAxis(name, degrees[name], roles[name], SPLITS[name], _moves(name, sums)) for name in order]


def _moves(axis: str, sums: dict[tuple[str, str], list[float]]) -> tuple[AxisMove, ...]:
    largest = max((moves[0] for moves in sums.values()), default=0.0)
    rows = [AxisMove(text, *moves) for (local, text), moves in sums.items() if local == axis]
    return tuple(sorted((row for row in rows if row.bytes > SMALLEST * largest), key=lambda row: -row.bytes))
