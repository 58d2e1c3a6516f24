"""`dscale collective KIND SIZE --axis X --on SLICE`: the time of one collective, and whether hops or bytes decide."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json, MeshText, On, Plot, check_ending
from dragonscale.cli.show import amount, emit_json, note, record_table, say, table

OneWay = Annotated[bool, Parameter(negative="", help="Send around rings in one direction only.")]
InNetwork = Annotated[bool, Parameter(negative="", help="Let switches add (SHARP, NVLS).")]
Filled = Annotated[float, Parameter(help="Part of an AllToAll's pieces that are not empty.")]
Picks = Annotated[int | None, Parameter(help="Experts that a token picks: fills that part of an AllToAll.")]
KIND = "all_gather, reduce_scatter, all_reduce, all_to_all or permute; send (--from, --to), gather (--to)."


def run(
    kind: Annotated[str, Parameter(help=KIND)],
    size: Annotated[str, Parameter(help="Bytes of the whole array as the axes' chips see it, such as 34MB.")],
    /,
    *,
    on: On,
    axis: Annotated[str, Parameter(name="--axis", help="Mesh axes, such as X or XY or data,fsdp.")] = "",
    mesh: MeshText = "",
    one_way: OneWay = False,
    in_network: InNetwork = False,
    filled: Filled = 1.0,
    picks: Picks = None,
    source: Annotated[str, Parameter(name="--from", help="Place of the chip that sends, such as 0,0.")] = "",
    target: Annotated[str, Parameter(name="--to", help="Place of the chip that receives, such as 3,3.")] = "",
    plot: Plot = None,
    json: Json = False,
) -> int:
    """How long does a collective take, and do its hops or its bytes decide?"""
    from dragonscale.hardware import parse_target
    from dragonscale.reports import collective as reports
    from dragonscale.reports.transfer import transfer_report
    from dragonscale.sharding.mesh import parse_mesh
    from dragonscale.units import parse

    chip, piece = parse_target(on)
    volume = parse(size, "bytes", "the size")
    if kind in ("send", "gather"):
        sent = transfer_report(kind, volume, piece, source, target)
        emit_json(sent) if json else say(_transfer(sent))
        return 0
    name, layout = reports.find_kind(kind), reports.collective_mesh(chip, piece, parse_mesh(mesh))
    axes = read_axes(axis, layout.axes)
    options = reports.read_options(layout.size(*axes), one_way, in_network, filled, picks)
    check_ending(plot)
    report = reports.collective_report(name, volume, axes, layout, options, on)
    emit_json(report) if json else say(_text(report))
    if plot:
        from dragonscale.charts import save_chart
        from dragonscale.reports.charts.collective import draw

        save_chart(draw("", reports.size_sweep(name, axes, layout, options), report), plot)
        note(f"Wrote {plot}.")
    return 0


def read_axes(text: str, known: dict) -> tuple[str, ...]:
    """`XY`, `X,Y` or `data,fsdp`, each an axis of the mesh; all of them if nothing is said."""
    from dragonscale.errors import InputError, shorten, unknown

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


def _text(report) -> str:
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    terms = {
        "bandwidth": (report.bandwidth_s, "exact bytes over links"),
        "latency": (report.latency_s, "hops"),
        "lower bound": (report.lower_s, "the larger of the two"),
        "book": (report.book_s, "to first order, without the (N-1)/N"),
        "expected": (report.expected_s, "through the measured efficiency profile"),
    }
    rows = [[name, amount(time, "s"), about] for name, (time, about) in terms.items() if time is not None]
    head = f"{report.collective} of {amount(report.bytes, 'bytes')} over {', '.join(report.axes)}"
    lines = [f"{head} ({report.chips} chips) on {report.on}; mesh {mesh}", ""]
    if report.filled < 1:
        lines += [f"{report.filled:.4g} of the pieces are not empty", ""]
    lines += [table(["term", "time", ""], rows, right=[1]), ""]
    lines += _inside(report)
    sent, links = amount(report.wire_bytes_per_chip, "bytes"), amount(report.link_bytes_per_s, "bytes/s")
    algorithm = amount(report.algorithm_bandwidth_bytes_per_s, "bytes/s")
    binding = max(report.tiers, key=lambda tier: tier.seconds, default=None)
    wires = f"a {binding.tier} link carries" if binding else "a chip's links carry"
    lines.append(f"each chip sends {sent}; algorithm bandwidth {algorithm}, where {wires} {links}")
    return "\n".join([*lines, report.advice])


def _inside(report) -> list[str]:
    """What goes on in the ring or on the tiers."""
    if report.tiers:
        columns = {
            "tier": "tier",
            "children": lambda tier: round(tier.children),
            "link of each": ("link_bytes_per_s", "bytes/s"),
            "time": ("seconds", "s"),
            "into its switches": ("ingress_bytes", "bytes"),
            "out of them": ("egress_bytes", "bytes"),
        }
        return [record_table(report.tiers, columns), ""]
    if report.ring is None:
        return []
    ring, where = report.ring, "ring" if report.ring.wraps else "line"
    size, link = amount(ring.hop_bytes, "bytes"), amount(ring.link_bytes, "bytes")
    each = f"each at least {amount(ring.hop_s, 's')}; the busiest link carries {link} one way"
    if report.collective == "all_to_all":
        return [f"{where}: pieces of {size}, {ring.sends:g} sent or passed on by each chip, {each}"]
    return [f"{where}: {ring.hops:g} hops of {size}, {each}"]


def _transfer(sent) -> str:
    places = ["(" + ",".join(map(str, place)) + ")" for place in (sent.source, sent.target)]
    size, bandwidth, latency = amount(sent.bytes, "bytes"), amount(sent.bandwidth_s, "s"), amount(sent.latency_s, "s")
    if sent.kind == "gather":
        ways = f"through the {sent.paths} links of {places[1]}: {bandwidth}; {sent.hops} hops: {latency}"
        return f"gather of {size} to {places[1]} of {sent.on}\n\n{ways}\n\n{amount(sent.total_s, 's')}, the larger."
    ways = f"{sent.paths} ways that share no link: {bandwidth}; {sent.hops} hops: {latency}"
    way = f"send of {size} from {places[0]} to {places[1]} of {sent.on}"
    return f"{way}\n\n{ways}\n\n{amount(sent.total_s, 's')} in all."
