"""`dscale collective`: a question about a collective read, answered and laid out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dragonscale.blocks.sheet import Column, Facts, Grid, Prose, Sheet, Title, amount, sheet, table
from dragonscale.commands import collective_report as reports
from dragonscale.commands.charts.pictures import draw_collective
from dragonscale.commands.given import axes_of, target_of, written_target
from dragonscale.commands.grids import grid, summary
from dragonscale.commands.questions.explain import ExplainCollectiveQuestion
from dragonscale.commands.questions.operations import CollectiveQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener
from dragonscale.physics.collectives.cost import Options
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.hardware.changes import check_effect, with_changes
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
    """The collective, over which wires, and how it is done: without --axis over all that split the array, if any do."""
    check_effect(question.set, "wires")
    chip, slice_ = target_of(with_changes(question.on, question.set), listener)
    kind, mesh = reports.find_kind(question.kind), reports.collective_mesh(chip, slice_, axes_of(question.mesh))
    array = None
    if "[" in str(question.size):
        array = parse_array(question.size)
    split = ()
    if array is not None:
        split = array.partial or array.axes
    axes = read_axes(question.axis or ",".join(split), mesh.axes)
    ways = question.one_way, question.in_network, question.filled, question.picks
    return CollectiveAsked(kind, mesh, axes, reports.read_options(mesh.size(*axes), *ways))


def ask(question: CollectiveQuestion, listener: Listener) -> reports.CollectiveReport | reports.TransferReport:
    """The time of a collective, or of one message between chips."""
    check_effect(question.set, "wires")
    if question.kind in ("send", "gather"):
        volume = read_volume(question.size)
        sent = reports.transfer_report(
            question.kind,
            volume,
            target_of(with_changes(question.on, question.set))[1],
            question.from_chip,
            question.to_chip,
        )
        return sent.came_from(None, listener.notes)
    understood = read_question(question, listener)
    _note_unnamed_axes(question, understood, listener)
    report = reports.collective_report(
        understood.kind,
        read_volume(question.size, understood),
        understood.axes,
        understood.mesh,
        understood.options,
        written_target(with_changes(question.on, question.set)),
    )
    report.array = question.size if "[" in str(question.size) else ""
    return report.came_from(understood, listener.notes)


def _note_unnamed_axes(question: CollectiveQuestion, understood: CollectiveAsked, listener: Listener) -> None:
    """Say how an array is read that names no axes where the mesh has others than those of the collective: whether these
    split it too makes a difference of as many times as they have chips."""
    if "[" not in str(question.size):
        return
    array = parse_array(question.size)
    others = [axis for axis, size in understood.mesh.axes.items() if axis not in understood.axes and int(size) > 1]
    if array.axes or array.partial or not others:
        return
    count, names = int(understood.mesh.size(*others)), ", ".join(others)
    listener.note(
        f"{question.size} is read as whole in each group. If {names} split it too, a group has 1/{count} of it: name "
        f"the axes in the array, such as [8192_{understood.axes[0]}, 32768_{others[0]}]."
    )


def read_volume(text: str, understood: CollectiveAsked | None = None) -> float:
    """V: bytes with their unit, or of an array as one group of chips has it together: what mesh axes outside the group
    split is not in it.

    >>> read_volume("34MB"), read_volume("bf16[4096, 65536]")
    (34000000.0, 536870912.0)
    """
    if "[" not in str(text):
        return parse(text, "bytes", "the size")
    array = parse_array(text)
    sizes = [dim.size for dim in array.dims]
    if not array.dtype or (array.axes and understood is None) or not all(isinstance(size, int) for size in sizes):
        need = "write its dtype and the sizes of its dims, such as 'bf16[4096, 65536]' or 'bf16[8192_X, 32768_Y]'"
        raise InputError(f"The size is {shorten(text)}; {need}, or a size in bytes such as '16GiB'.")
    # all bytes of the array, however it is split
    whole = float(product(sizes) * dtype_bytes(array.dtype))
    if understood is None:
        return whole
    for axis in array.axes:
        if axis not in understood.mesh.axes:
            raise unknown("mesh axis", axis, understood.mesh.axes)
    return whole / float(understood.mesh.size(*(axis for axis in array.axes if axis not in understood.axes)))


def read_axes(text: str, axes: Mapping[str, object]) -> tuple[str, ...]:
    """`XY`, `X,Y` or `data,fsdp`, each an axis of the mesh; all of them if nothing is said.

    >>> read_axes("XY", {"X": 4, "Y": 8}), read_axes("", {"data": 4})
    (('X', 'Y'), ('data',))
    """
    if not text.strip():
        return tuple(axes)
    joined = text.strip()
    names = tuple(map(str.strip, joined.split(",")))
    # letters of axes written together
    if joined not in axes and all(letter in axes for letter in joined):
        names = tuple(joined)
    for name in names:
        if name not in axes:
            raise unknown("mesh axis", name, axes)
    if len(set(names)) < len(names):
        raise InputError(f"--axis {shorten(text)} names an axis twice.")
    return names


def collective_blocks(report: reports.CollectiveReport, _detail: bool) -> Sheet:
    """One collective over mesh axes."""
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    head = f"{report.collective} of {amount(report.bytes, 'bytes')} over {', '.join(report.axes)}"
    title, counted = f"{head} ({report.chips} chips) on {report.on}", {"children": lambda tier: round(tier.children)}
    if report.tiers:
        tiers = grid("collective-tiers", report.tiers, own=counted)
    else:
        tiers = None
    return sheet(
        Title(title, f"mesh {mesh}"),
        Prose(report.advice, "key"),
        _terms(report),
        tiers,
        _inside(report),
    )


def _terms(report: reports.CollectiveReport) -> Grid:
    terms = {
        "bandwidth": (report.bandwidth_s, "exact bytes over links"),
        "latency": (report.latency_s, "hops"),
        "lower bound": (report.lower_s, "the larger of the two: at best"),
        "book": (report.book_s, f"the same to first order, {report.book_drops}"),
        "expected": (report.expected_s, report.expected_by),
    }
    rows = [[name, amount(time, "s"), meaning] for name, (time, meaning) in terms.items() if time is not None]
    return table([Column("term"), Column("time", right=True), Column("", wrap=True)], rows)


def _inside(report: reports.CollectiveReport) -> Facts:
    """What the chips send and the links carry."""
    binding = max(report.tiers, key=lambda tier: tier.seconds, default=None)
    if binding:
        wires = f"a {binding.tier} link carries"
    else:
        wires = "a chip's links carry"
    ring = report.ring
    ring_text = None
    if ring is not None:
        ring_text = _ring(report, ring)
    return summary(
        "collective-facts",
        report,
        filled=report.filled if report.filled < 1 else None,
        added="; the switches add, so its array goes up once and the sum comes down once" if report.in_network else "",
        gain=report.lower_s and report.ring_s and report.ring_s / report.lower_s,
        whose="what each chip sends"
        if report.collective == "permute"
        else f"the array as one group of {report.chips} chips sees it",
        groups=math.prod(report.mesh.values()) // report.chips,
        array=f"; {report.array} over {', '.join(report.axes)}" if report.array else "",
        ring=ring_text if ring and ring.wraps else None,
        line=ring_text if ring and not ring.wraps else None,
        link=ring and ring.link_bytes,
        wires=wires,
    )


# A chip that sends more than so many pieces in a hop sends them both ways round.
BOTH_WAYS = 1.5


def _ring(report: reports.CollectiveReport, ring: reports.RingFacts) -> str:
    size, each = amount(ring.hop_bytes, "bytes"), f"each at least {amount(ring.hop_s, 's')}"
    if report.collective == "all_to_all":
        return f"pieces of {size}, {ring.sends:g} sent or passed on by each chip, {each}"
    if ring.hop_bytes * report.chips < BOTH_WAYS * report.bytes:
        return f"{ring.hops:g} hop{'s' * (ring.hops != 1)} of {size}, {each}"
    # the two ways round an even ring meet in the chip opposite, whose piece comes half from either side
    halves = (2 if report.collective == "all_reduce" else 1) * (report.chips % 2 == 0)
    whole = round(ring.hops) - halves
    if not whole:
        size, least = amount(ring.hop_bytes / 4, "bytes"), amount(ring.hop_s / 2, "s")
        return f"both ways at once: {halves} hop{'s' * (halves != 1)} of {size} each way, each at least {least}"
    # a chip sends half of each hop's bytes either way
    full = f"{whole} hop{'s' * (whole != 1)} of {amount(ring.hop_bytes / 2, 'bytes')} each way, {each}"
    if halves:
        full += f", and {halves} of {amount(ring.hop_bytes / 4, 'bytes')}"
    return f"both ways round at once: {full}"


def transfer_blocks(sent: reports.TransferReport, _detail: bool) -> Sheet:
    """One message between two chips, or from all to one."""
    source, target = ("(" + ",".join(map(str, position)) + ")" for position in (sent.source, sent.target))
    size = amount(sent.bytes, "bytes")
    gathers = sent.kind == "gather"
    if gathers:
        head = f"gather of {size} to {target}"
    else:
        head = f"send of {size} from {source} to {target}"
    if gathers:
        paths = f"over the {sent.paths} links of {target}"
    else:
        paths = f"over {sent.paths} paths that share no link"
    if gathers:
        total = ", the larger of the two."
    else:
        total = " in all: the two follow each other."
    return sheet(
        Title(f"{head} of {sent.on}"),
        summary("transfer-facts", sent, paths=paths),
        Prose(amount(sent.total_s, "s") + total, "key"),
    )


bind(reports.CollectiveReport, Face(collective_blocks, draw_collective))
bind(reports.TransferReport, Face(transfer_blocks))
