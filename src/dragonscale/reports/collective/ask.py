"""A question about a collective, read and answered."""

from collections.abc import Mapping
from dataclasses import dataclass

from dragonscale.collectives.cost import Options
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.hardware.changes import with_changes
from dragonscale.listener import Listener
from dragonscale.questions.collective import CollectiveQuestion
from dragonscale.questions.explain import ExplainCollectiveQuestion
from dragonscale.reports.collective.report import (
    CollectiveReport,
    collective_mesh,
    collective_report,
    find_kind,
    read_options,
)  # fmt: skip
from dragonscale.reports.collective.transfer import TransferReport, transfer_report
from dragonscale.reports.given import axes_of, target_of, written_target
from dragonscale.sharding.mesh import Mesh
from dragonscale.units import parse


@dataclass(frozen=True)
class CollectiveAsked:
    """A question understood."""

    kind: str
    mesh: Mesh
    axes: tuple[str, ...]
    options: Options


def read_question(question: CollectiveQuestion | ExplainCollectiveQuestion, listener: Listener) -> CollectiveAsked:
    """The collective, over which wires, and how it is done."""
    chip, piece = target_of(with_changes(question.on, question.set), listener)
    kind, mesh = find_kind(question.kind), collective_mesh(chip, piece, axes_of(question.mesh))
    axes = read_axes(question.axis, mesh.axes)
    ways = question.one_way, question.in_network, question.filled, question.picks
    return CollectiveAsked(kind, mesh, axes, read_options(mesh.size(*axes), *ways))


def ask(question: CollectiveQuestion, listener: Listener) -> CollectiveReport | TransferReport:
    """The time of a collective, or of one message between chips."""
    volume = parse(question.size, "bytes", "the size")
    if question.kind in ("send", "gather"):
        sent = transfer_report(
            question.kind,
            volume,
            target_of(with_changes(question.on, question.set))[1],
            question.from_chip,
            question.to_chip,
        )
        return sent.came_from(None, listener.notes)
    asked = read_question(question, listener)
    report = collective_report(
        asked.kind,
        volume,
        asked.axes,
        asked.mesh,
        asked.options,
        written_target(with_changes(question.on, question.set)),
    )
    return report.came_from(asked, listener.notes)


def read_axes(text: str, known: Mapping[str, object]) -> tuple[str, ...]:
    """`XY`, `X,Y` or `data,fsdp`, each an axis of the mesh; all of them if nothing is said.

    >>> read_axes("XY", {"X": 4, "Y": 8}), read_axes("", {"data": 4})
    (('X', 'Y'), ('data',))
    """
    if not text.strip():
        return tuple(known)
    joined = text.strip()
    names = tuple(part.strip() for part in joined.split(","))
    if joined not in known and all(letter in known for letter in joined):
        names = tuple(joined)
    for name in names:
        if name not in known:
            raise unknown("mesh axis", name, known)
    if len(set(names)) < len(names):
        raise InputError(f"--axis {shorten(text)} names an axis twice.")
    return names
