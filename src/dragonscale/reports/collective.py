"""How long one collective takes over mesh axes of a slice, and whether bytes or hops decide."""

from dataclasses import replace

import msgspec

from dragonscale.collectives import KINDS, Options, collective_time, wire_bytes
from dragonscale.errors import InputError, unknown
from dragonscale.hardware import Chip, Slice
from dragonscale.sharding.mesh import Mesh, make_mesh, natural_mesh


class CollectiveReport(msgspec.Struct):
    collective: str
    on: str
    mesh: dict[str, int]
    axes: list[str]
    chips: int
    bytes: float
    wire_bytes_per_chip: float
    bandwidth_s: float
    latency_s: float
    book_s: float
    lower_s: float
    upper_s: float
    regime: str
    bus_bandwidth_bytes_per_s: float
    latency_bound_below_bytes: float
    expected_s: float | None
    advice: str


def find_kind(name: str) -> str:
    """The collective meant by a name such as `AllGather`, `all-gather` or `ag`."""
    short = {"ag": "all_gather", "rs": "reduce_scatter", "ar": "all_reduce", "a2a": "all_to_all", "psum": "all_reduce"}
    flat = {kind.replace("_", ""): kind for kind in KINDS}
    key = name.lower().replace("-", "").replace("_", "")
    found = flat.get(key) or short.get(key) or {"alltoall": "all_to_all", "collectivepermute": "permute"}.get(key)
    if found is None:
        raise unknown("collective", name, KINDS)
    return found


def collective_mesh(chip: Chip, piece: Slice | None, axes: dict[str, int] | None) -> Mesh:
    """The mesh of a question: as given, or the slice's own axes."""
    if axes:
        return make_mesh(dict(axes), chip, piece)
    if piece is None:
        raise InputError(
            f"{chip.name} alone has no axes; name a slice such as {chip.name}:{chip.default_slice or '4x4'}, or a --mesh."
        )
    return natural_mesh(piece)


def collective_report(
    kind: str, volume: float, axes: tuple[str, ...], mesh: Mesh, options: Options, on: str
) -> CollectiveReport:
    """The answer, with the book's first-order time, the exact bound, and the expectation of an efficiency profile."""
    from dragonscale.reports.expectation import expected_collective

    group = mesh.group(axes)
    book = collective_time(kind, volume, group, options)
    true = collective_time(kind, volume, group, replace(options, exact=True))
    size = mesh.size(*axes)
    sent = wire_bytes(kind, volume, size)
    per_byte = book.bandwidth / volume if volume else 0.0
    threshold = book.latency / per_byte if per_byte else 0.0
    report = CollectiveReport(
        collective=kind,
        on=on,
        mesh={name: int(length) for name, length in mesh.axes.items()},
        axes=list(axes),
        chips=int(size),
        bytes=volume,
        wire_bytes_per_chip=float(sent),
        bandwidth_s=float(book.bandwidth),
        latency_s=float(book.latency),
        book_s=float(book.lower),
        lower_s=float(true.lower),
        upper_s=float(book.upper),
        regime=book.regime,
        bus_bandwidth_bytes_per_s=float(sent / true.lower) if true.lower else 0.0,
        latency_bound_below_bytes=float(threshold),
        expected_s=expected_collective(kind, volume, group, mesh, options),
        advice="",
    )
    report.advice = _advice(report)
    return report


def _advice(report: CollectiveReport) -> str:
    from dragonscale.units import render

    threshold = render(report.latency_bound_below_bytes, "bytes")
    if report.chips == 1:
        return "One chip: nothing travels."
    if report.regime == "latency":
        return f"Bound by the latency of {render(report.latency_s, 's')}; messages above {threshold} are bound by bandwidth."
    return f"Bound by the bandwidth of {', '.join(report.axes)}; messages below {threshold} would be bound by latency."


def size_sweep(kind: str, axes: tuple[str, ...], mesh: Mesh, options: Options) -> list[dict[str, float | str]]:
    """The time over message sizes from 1 kB to 10 GB: the two terms and their bound, for a chart."""
    import numpy

    volumes = numpy.logspace(3, 10, 57)
    cost = collective_time(kind, volumes, mesh.group(axes), options)
    curves = {"bound": cost.lower, "bandwidth": cost.bandwidth, "latency": cost.latency + 0 * volumes}
    return [
        {"bytes": float(volume), "seconds": float(seconds), "what": name}
        for name, curve in curves.items()
        for volume, seconds in zip(volumes, curve, strict=True)
        if seconds > 0
    ]
