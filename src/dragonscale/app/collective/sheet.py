"""`dscale collective` laid out: the terms of its time, what goes on in the ring or on the tiers, and what decides."""

from dragonscale.app.collective.report import CollectiveReport, RingFacts
from dragonscale.app.collective.transfer import TransferReport
from dragonscale.sheets.sheet import Block, Column, Facts, Grid, Prose, Sheet, Title, amount, facts, records, table


def collective_sheet(report: CollectiveReport) -> Sheet:
    """One collective over mesh axes."""
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    head = f"{report.collective} of {amount(report.bytes, 'bytes')} over {', '.join(report.axes)}"
    blocks: list[Block] = [Title(f"{head} ({report.chips} chips) on {report.on}", f"mesh {mesh}"), _terms(report)]
    if report.tiers:
        blocks.append(_tiers(report))
    return Sheet((*blocks, _inside(report), Prose(report.advice, "key")))


def _terms(report: CollectiveReport) -> Grid:
    terms = {
        "bandwidth": (report.bandwidth_s, "exact bytes over links"),
        "latency": (report.latency_s, "hops"),
        "lower bound": (report.lower_s, "the larger of the two: at best"),
        "book": (report.book_s, f"to first order, {report.book_drops}"),
        "expected": (report.expected_s, "through the measured efficiency profile"),
    }
    rows = [[name, amount(time, "s"), about] for name, (time, about) in terms.items() if time is not None]
    return table([Column("term"), Column("time", right=True), Column("", wrap=True)], rows)


def _tiers(report: CollectiveReport) -> Grid:
    columns = {
        "tier": "tier",
        "children": lambda tier: round(tier.children),
        "link of each": ("link_bytes_per_s", "bytes/s"),
        "time": ("seconds", "s"),
        "into its switches": ("ingress_bytes", "bytes"),
        "out of them": ("egress_bytes", "bytes"),
    }
    how = {"into its switches": {"keep": 2}, "out of them": {"keep": 1}}
    return records(report.tiers, columns, how=how)


def _inside(report: CollectiveReport) -> Facts:
    """What the chips send and the links carry."""
    binding = max(report.tiers, key=lambda tier: tier.seconds, default=None)
    wires = f"a {binding.tier} link carries" if binding else "a chip's links carry"
    ring = report.ring
    added = "; the switches add, so its array goes up once and the sum comes down once" if report.in_network else ""
    rate = amount(report.algorithm_bandwidth_bytes_per_s, "bytes/s")
    meaning = f"{rate}, the array over the time; {wires} {amount(report.link_bytes_per_s, 'bytes/s')}"
    return facts(
        ("filled", f"{report.filled:.4g} of the pieces are not empty") if report.filled < 1 else None,
        ("sent", f"{amount(report.wire_bytes_per_chip, 'bytes')} by each chip{added}"),
        (("ring" if ring.wraps else "line"), _ring(report, ring)) if ring else None,
        ("busiest link", f"carries {amount(ring.link_bytes, 'bytes')} one way") if ring else None,
        ("algorithm bandwidth", meaning),
    )


BOTH_WAYS = 1.5
"""A chip that sends more than so many pieces in a hop sends them both ways round."""


def _ring(report: CollectiveReport, ring: RingFacts) -> str:
    size, each = amount(ring.hop_bytes, "bytes"), f"each at least {amount(ring.hop_s, 's')}"
    if report.collective == "all_to_all":
        return f"pieces of {size}, {ring.sends:g} sent or passed on by each chip, {each}"
    if ring.hop_bytes * report.chips < BOTH_WAYS * report.bytes:
        return f"{ring.hops:g} hop{'s' * (ring.hops != 1)} of {size}, {each}"
    # the two ways round an even ring meet in the chip opposite, whose piece comes half from either side
    halves = (2 if report.collective == "all_reduce" else 1) * (report.chips % 2 == 0)
    whole, piece = round(ring.hops) - halves, amount(ring.hop_bytes / 2, "bytes")
    full = f"{whole} hop{'s' * (whole != 1)} of {piece} each way, {each}"
    half = f"{halves} of {amount(ring.hop_bytes / 4, 'bytes')}" if halves else ""
    return f"both ways round at once: {full}{', and ' if half else ''}{half}"


def transfer_sheet(sent: TransferReport) -> Sheet:
    """One message between two chips, or from all to one."""
    source, target = ("(" + ",".join(map(str, place)) + ")" for place in (sent.source, sent.target))
    size = amount(sent.bytes, "bytes")
    gathers = sent.kind == "gather"
    head = f"gather of {size} to {target}" if gathers else f"send of {size} from {source} to {target}"
    paths = f"over the {sent.paths} links of {target}" if gathers else f"over {sent.paths} paths that share no link"
    total = amount(sent.total_s, "s")
    return Sheet(
        (
            Title(f"{head} of {sent.on}"),
            facts(
                ("bandwidth", f"{amount(sent.bandwidth_s, 's')} {paths}"),
                ("latency", f"{amount(sent.latency_s, 's')} for {sent.hops} hops"),
            ),
            Prose(
                f"{total}, the larger of the two." if gathers else f"{total} in all: the two follow each other.", "key"
            ),
        )
    )
