"""`dscale collective KIND SIZE --axis X --on SLICE`: the time of one collective, and whether hops or bytes decide."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json, MeshText, On, Plot
from dragonscale.cli.show import amount, emit_json, note, say, table


def run(
    kind: Annotated[str, Parameter(help="all_gather, reduce_scatter, all_reduce, all_to_all or permute.")],
    size: Annotated[str, Parameter(help="Bytes of the whole array as the axes' chips see it, such as 34MB.")],
    /,
    *,
    on: On,
    axis: Annotated[str, Parameter(name="--axis", help="Mesh axes, such as X or XY or data,fsdp.")] = "",
    mesh: MeshText = "",
    one_way: Annotated[bool, Parameter(negative="", help="Send around rings in one direction only.")] = False,
    in_network: Annotated[bool, Parameter(negative="", help="Let switches add (SHARP, NVLS).")] = False,
    filled: Annotated[float, Parameter(help="Part of an AllToAll's pieces that are not empty.")] = 1.0,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """How long does a collective take, and do its hops or its bytes decide?"""
    from dragonscale.collectives import Options
    from dragonscale.errors import InputError
    from dragonscale.hardware import parse_target
    from dragonscale.reports.collective import collective_mesh, collective_report, find_kind
    from dragonscale.sharding.mesh import parse_mesh
    from dragonscale.units import parse

    chip, piece = parse_target(on)
    name, volume = find_kind(kind), parse(size, "bytes", "the size")
    if not 0 < filled <= 1:
        raise InputError(f"--filled is {filled}; it is a part of the whole, above 0 and at most 1.")
    layout = collective_mesh(chip, piece, parse_mesh(mesh))
    axes = read_axes(axis, layout.axes)
    options = Options(one_way=one_way, in_network=in_network, filled=filled)
    report = collective_report(name, volume, axes, layout, options, on)
    if plot:
        from dragonscale.reports.collective import size_sweep
        from dragonscale.roofline.chart import line_chart, save_chart

        rows = size_sweep(name, axes, layout, options)
        save_chart(line_chart(rows, "bytes", "seconds", "what", f"{name} over {', '.join(axes)} on {on}"), plot)
        note(f"Wrote {plot}.")
    emit_json(report) if json else say(_text(report))
    return 0


def read_axes(text: str, known: dict) -> tuple[str, ...]:
    """`XY`, `X,Y` or `data,fsdp`, each an axis of the mesh; all of them if nothing is said."""
    from dragonscale.errors import InputError, shorten, unknown

    if not text.strip():
        return tuple(known)
    joined = text.strip()
    names = tuple(part.strip() for part in joined.split(",")) if "," in joined else (joined,)
    if len(names) == 1 and joined not in known:
        names = tuple(joined) if all(letter in known for letter in joined) else names
    for name in names:
        if name not in known:
            raise unknown("mesh axis", name, known)
    if len(set(names)) < len(names):
        raise InputError(f"--axis {shorten(text)} names an axis twice.")
    return names


def _text(report) -> str:
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    rows = [
        ["bandwidth", amount(report.bandwidth_s, "s"), "bytes over links, to first order"],
        ["latency", amount(report.latency_s, "s"), "hops"],
        ["book", amount(report.book_s, "s"), "the larger of the two"],
        ["lower bound", amount(report.lower_s, "s"), "the same with the exact bytes, (N-1)/N of them"],
    ]
    if report.expected_s is not None:
        rows.append(["expected", amount(report.expected_s, "s"), "through the measured efficiency profile"])
    lines = [
        f"{report.collective} of {amount(report.bytes, 'bytes')} over {', '.join(report.axes)} ({report.chips} chips) on {report.on}; mesh {mesh}",
        "",
        table(["term", "time", ""], rows, right=[1]),
        "",
        f"each chip sends {amount(report.wire_bytes_per_chip, 'bytes')}: {amount(report.bus_bandwidth_bytes_per_s, 'bytes/s')} at the lower bound",
        report.advice,
    ]
    return "\n".join(lines)
