"""One message over a torus: from a chip to another, or from all chips to one."""

from dragonscale.app.record import Record
from dragonscale.errors import InputError
from dragonscale.physics.collectives import gather_time, transfer_time
from dragonscale.physics.hardware import Slice, Torus, disjoint_paths, eccentricity, hops, links_of
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet


class TransferReport(Record):
    """One message over a torus: from a chip to another over every way that shares no link, or from all chips to one."""

    kind: str
    on: str
    source: list[int]
    target: list[int]
    bytes: float
    paths: int
    hops: int
    bandwidth_s: float
    latency_s: float
    total_s: float

    def headline(self) -> str:
        return f"{self.kind} of {render(self.bytes, 'bytes')} on {self.on}: {render(self.total_s, 's')}"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.collective.sheet import transfer_sheet

        return transfer_sheet(self)


def read_position(text: str, piece: Slice, flag: str) -> tuple[int, ...]:
    """`0,3` as the place of a chip of a slice."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        example = ",".join("0" for _ in piece.shape)
        raise InputError(f"{flag} is {text!r}; write the place of a chip of {piece}, such as {example}.")
    return tuple(int(part[:9]) for part in parts)


def transfer_report(kind: str, volume: float, piece: Slice | None, source: str, target: str) -> TransferReport:
    """`send` from a chip to another, or `gather` to one chip what all of a slice hold."""
    if piece is None or not isinstance(piece.chip.network, Torus):
        raise InputError(f"A {kind} between chips needs a slice of a torus, such as --on v5e:4x4.")
    to = read_position(target, piece, "--to")
    if kind == "gather":
        cost, paths = gather_time(volume, piece, to), links_of(piece, to)
        start, far, total = to, eccentricity(piece, to), cost.lower
    else:
        start = read_position(source, piece, "--from")
        cost = transfer_time(volume, piece, start, to)
        paths, far, total = disjoint_paths(piece, start, to), hops(piece, start, to), cost.upper
    bandwidth, latency = float(cost.bandwidth), float(cost.latency)
    return TransferReport(kind, str(piece), list(start), list(to), volume, paths, far, bandwidth, latency, float(total))
