"""A question about a collective, read and answered."""

from collections.abc import Mapping
from dataclasses import dataclass

from dragonscale.app.collective.report import (
    CollectiveReport,
    collective_mesh,
    collective_report,
    find_kind,
    read_options,
)
from dragonscale.app.collective.transfer import TransferReport, transfer_report
from dragonscale.app.given import axes_of, target_of, written_target
from dragonscale.app.questions.operations import CollectiveQuestion
from dragonscale.app.questions.explain import ExplainCollectiveQuestion
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener
from dragonscale.physics.collectives.cost import Options
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.notation import parse_array
from dragonscale.physics.numbers import product
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.units import parse


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
    volume = read_volume(question.size)
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


def read_volume(text: str) -> float:
    """Bytes with their unit, or of an array as one group of chips sees it.

    >>> read_volume("34MB"), read_volume("bf16[4096, 65536]")
    (34000000.0, 536870912.0)
    """
    if "[" not in str(text):
        return parse(text, "bytes", "the size")
    array = parse_array(text)
    sizes = [dim.size for dim in array.dims]
    if not array.dtype or array.axes or not all(isinstance(size, int) for size in sizes):
        need = "write its dtype and its dims as one group of chips sees them, such as 'bf16[4096, 65536]'"
        raise InputError(f"The size is {shorten(text)}; {need}, or a size in bytes such as '16GiB'.")
    return float(product(sizes) * dtype_bytes(array.dtype))


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
