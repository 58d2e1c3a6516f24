"""`dscale compare` laid out: which is faster and why, the figures side by side, then where the time
and the memory go."""

from collections.abc import Callable

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount, facts, table
from dragonscale.commands.compare.compare_records import CompareReport, Side
from dragonscale.commands.compare.sides import DOLLARS, STEP, seconds_of

# Rows of terms without `--explain`.
MOST_TERMS = 8
# Terms that differ by less of the longest step are left to `--explain`.
SEEN = 0.002
MOST_PARTS = 7


def compare_blocks(report: CompareReport, detail: bool) -> laid.Sheet:
    """The whole answer."""
    many = len(report.sides)
    blocks: list[laid.Block] = [
        laid.Title(f"{report.model}: {many} sides of {report.kind}", report.workload),
        _summary(report),
    ]
    blocks += [_figures(report)]
    blocks += _bars(report)
    terms = _terms(report, detail)
    if terms is not None:
        blocks += [terms]
    if detail and any(difference.settings for difference in report.differences):
        blocks += [_settings(report)]
    blocks += [laid.Prose(f"{side.key}: {side.measured}") for side in report.sides if side.measured]
    if report.overtakes:
        blocks += [laid.Prose("\n".join(report.overtakes))]
    return laid.Sheet((*blocks, *([laid.Prose("\n".join(report.notes), "dim")] if report.notes else [])))


def _summary(report: CompareReport) -> laid.Facts:
    best = report.best
    named = {"training": "fastest", "serving": "best"}[report.kind]
    cheapest = _cheapest(report)
    return facts(
        (named, f"{best.key}: {best.label}", "key") if best else (named, "none can run", "bad"),
        ("cheapest", f"{cheapest.key}: {cheapest.label}") if cheapest and cheapest is not best else None,
        *((f"{difference.second} vs {difference.first}", difference.text) for difference in report.differences),
    )


def _cheapest(report: CompareReport) -> Side | None:
    priced = [(figure.value, side) for side in report.sides if side.feasible and (figure := side.figure(DOLLARS))]
    if len(priced) > 1:
        return min(priced, key=lambda pair: pair[0] or 0.0)[1]
    return None


def _figures(report: CompareReport) -> laid.Grid:
    """A column for each side, a row for each figure."""
    sides = report.sides
    rows: list[tuple[str, ...]] = []

    def add(name: str, text: Callable[[Side], str], always: bool = False) -> None:
        cells = [text(side) for side in sides]
        if any(cells) and (always or len(set(cells)) > 1):
            rows.append((name, *cells))

    add("plan", lambda side: side.plan or "none fits", always=True)
    add("slice", lambda side: side.slice)
    add("engine" if report.kind == "serving" else "stack", lambda side: side.software)
    for name in dict.fromkeys(figure.name for side in sides for figure in side.figures):
        shown = {(STEP, "serving"): "decode step"}.get((name, report.kind), name)
        add(shown, lambda side, name=name: _figure(side, name), always=True)
        if any(_band(side, name) for side in sides):
            add(f"{shown} band", lambda side, name=name: _band(side, name), always=True)
    add("memory", _memory, always=True)
    add("measured", lambda side: "" if side.measured_s is None else amount(side.measured_s, "s"))
    add("bound by", lambda side: side.bound_by, always=True)
    add("misses" if report.kind == "serving" else "cannot run", lambda side: "; ".join(side.problems))
    columns = [
        laid.Column(""),
        *(laid.Column(side.key, wrap=True, tone="key" if side.key == report.winner else "") for side in sides),
    ]
    return table(columns, rows)


def _figure(side: Side, name: str) -> str:
    figure = side.figure(name)
    if figure is None or figure.value is None:
        return ""
    if figure.unit == "part":
        return f"{figure.value:.1%}"
    if figure.unit == "USD":
        return _dollars(figure.value)
    if figure.unit == "count":
        if figure.value < 100 and figure.value != int(figure.value):
            return f"{figure.value:,.1f}"
        return f"{figure.value:,.0f}"
    return amount(figure.value, figure.unit)


def _dollars(value: float) -> str:
    if value >= 1e6:
        return f"${value / 1e6:,.2f}M"
    if value >= 1000:
        return f"${value:,.0f}"
    if value >= 1:
        return f"${value:,.2f}"
    return f"${value:,.4f}"


def _band(side: Side, name: str) -> str:
    figure = side.figure(name)
    if figure is None or figure.low is None or figure.high is None:
        return ""
    ends = [f"{end:,.0f}" if figure.unit == "count" else amount(end, figure.unit) for end in (figure.low, figure.high)]
    return " to ".join(ends)


def _memory(side: Side) -> str:
    if side.hbm_limit_bytes:
        return f"{side.hbm_bytes / 1e9:.1f} of {side.hbm_limit_bytes / 1e9:.1f}GB"
    return ""


def _bars(report: CompareReport) -> list[laid.Block]:
    """Exposed time of every side against the longest, the same fill for the same term."""
    shown = [side for side in report.sides if side.terms]
    if not shown:
        return []
    longest = max(sum(term.exposed_s for term in side.terms) for side in shown)
    sizes = {name: max(_seconds(side, name) for side in shown) for name in _names(report)}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:MOST_PARTS]
    largest = [name for name in sizes if name in largest]  # in the order of the bill
    bars: list[laid.Block] = []
    for index, side in enumerate(shown):
        parts = [laid.BarPart(name, _seconds(side, name), "") for name in largest]
        rest = sum(term.exposed_s for term in side.terms if term.name not in largest)
        total = amount(seconds_of(side), "s")
        legend = "line" if index == len(shown) - 1 else "none"
        bars.append(laid.StackedBar(side.key, (*parts, laid.BarPart("the rest", rest, "")), longest, total, legend))
    return bars


def _names(report: CompareReport) -> list[str]:
    return list(dict.fromkeys(term.name for side in report.sides for term in side.terms))


def _seconds(side: Side, name: str) -> float:
    return sum(term.exposed_s for term in side.terms if term.name == name)


def _terms(report: CompareReport, detail: bool) -> laid.Grid | None:
    """The terms of time that differ, the largest difference first."""
    shown = [side for side in report.sides if side.terms]
    if len(shown) < 2:
        return None
    first, longest = shown[0], max(seconds_of(side) for side in shown) or 1.0
    spread = {name: max(abs(_seconds(side, name) - _seconds(first, name)) for side in shown) for name in _names(report)}
    names = sorted(spread, key=lambda name: -spread[name])
    if not detail:
        names = [name for name in names if spread[name] > SEEN * longest][:MOST_TERMS]
    rows = []
    for name in names:
        first_s = _seconds(first, name)
        cells = [amount(_seconds(side, name), "s") if _seconds(side, name) else "0" for side in shown]
        signed = [_signed(_seconds(side, name) - first_s) for side in shown[1:]]
        rows.append((name, *cells, *signed))
    heads = [*(side.key for side in shown), *(f"{side.key}-{first.key}" for side in shown[1:])]
    lower = [2 if "-" in head and len(shown) > 3 else 9 for head in heads]  # many sides: the differences go first
    columns = [
        laid.Column("term", wrap=True),
        *(laid.Column(head, right=True, keep=keep) for head, keep in zip(heads, lower, strict=True)),
    ]
    what = "a decode step" if report.kind == "serving" else "a step"
    title = f"what {what} waits for, where it differs (exposed time)"
    if rows:
        return table(columns, rows, title)
    return None


def _signed(seconds: float) -> str:
    if not seconds:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{amount(abs(seconds), 's')}"


def _settings(report: CompareReport) -> laid.Grid:
    """The settings that differ."""
    names = list(dict.fromkeys(changed.setting for pair in report.differences for changed in pair.settings))
    rows = [(name, *(str(side.settings.get(name, "")) for side in report.sides)) for name in names]
    return table(
        [laid.Column("setting"), *(laid.Column(side.key, wrap=True) for side in report.sides)],
        rows,
        "settings that differ",
    )
