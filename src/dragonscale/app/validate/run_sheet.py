"""One run against its plan laid out: what was measured, what was expected, and where the rest may have gone."""

from dragonscale.app.validate.run_records import MeasureRow, RunScore
from dragonscale.sheets.sheet import Block, Column, Facts, Grid, Prose, Sheet, Title, amount, facts, table


def run_sheet(report: RunScore, detail: bool) -> Sheet:
    """The whole answer."""
    what = "training" if report.kind == "training" else "serving"
    title = Title(
        f"{report.software}: {what} {report.model} on {report.slice}",
        f"{report.plan}, {report.workload}, judged by {report.judged_by}",
    )
    blocks: list[Block] = [title, _read(report), _measures(report.measures), Prose(report.text, _tone(report))]
    if report.suspects:
        blocks.append(_suspects(report))
    if report.notes:
        blocks.append(Prose("\n".join(report.notes), "dim"))
    if detail and report.band:
        blocks.append(Prose(report.band))
    return Sheet(tuple(blocks))


def _tone(report: RunScore) -> str:
    return {True: "good", False: "warn", None: ""}[report.inside]


def _read(report: RunScore) -> Facts:
    """What of the log was counted."""
    unit = "step" if report.kind == "training" else "request"
    counted = f"{report.counted:,} logged {unit}{'s' * (report.counted != 1)} counted"
    left = f"{report.skipped:,} of the warm-up left out" if report.kind == "training" else ""
    starts = f"{report.starts} starts" if report.starts > 1 else ""
    failed = f"{report.failed:,} failed" if report.failed else ""
    return facts(("log", ", ".join(filter(None, (counted, left, starts, failed)))))


def _measures(rows: list[MeasureRow]) -> Grid:
    cells = []
    for row in rows:
        band = "" if row.low is None else f"{row.shown(row.low)} to {row.shown(row.high)}"
        spread = "" if row.spread_low is None else f"{row.shown(row.spread_low)} to {row.shown(row.spread_high)}"
        inside = {True: "inside", False: "outside", None: ""}[row.inside]
        cells.append(
            [row.name, row.shown(row.measured), spread, row.shown(row.expected), band, f"{row.ratio:.2f}x", inside]
        )
    heads = ["", "measured", "p10 to p90", "expected", "band", "ratio", ""]
    keep = {"p10 to p90": 3, "band": 5}
    columns = [Column(head, right=0 < place < 6, keep=keep.get(head, 9)) for place, head in enumerate(heads)]
    if all(row.spread_low is None for row in rows):
        columns, cells = columns[:2] + columns[3:], [row[:2] + row[3:] for row in cells]
    return table(columns, cells)


def _suspects(report: RunScore) -> Grid:
    rows = [[one.cause, amount(one.step_s, "s"), f"{one.explains:.0%}", one.look] for one in report.suspects]
    columns = [
        Column("where it may have gone", wrap=True),
        Column("gives", right=True),
        Column("explains", right=True),
        Column("look at", wrap=True, keep=5),
    ]
    return table(columns, rows)
