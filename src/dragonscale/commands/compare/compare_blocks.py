"""`dscale compare` laid out: which is faster and why, the figures side by side, then where time and memory go."""

from collections.abc import Callable

from dragonscale.blocks.sheet import (
    BarPart,
    Block,
    Column,
    Facts,
    Grid,
    Prose,
    Sheet,
    StackedBar,
    Title,
    amount,
    facts,
    sheet,
    table,
)
from dragonscale.commands.compare.compare_records import CompareReport, Figure, Side
from dragonscale.commands.compare.sides import DOLLARS, STEP, seconds_of

# Rows of terms without `--explain`.
MAX_TERMS = 8
# Terms that differ by less than this fraction of the longest step are left to `--explain`.
MIN_DIFFERENCE = 0.002
# Terms of a bar that are drawn each by itself; the others are one part.
MAX_PARTS = 7


def compare_blocks(report: CompareReport, detail: bool) -> Sheet:
    """The whole answer."""
    settings = detail and any(difference.settings for difference in report.differences)
    return sheet(
        Title(f"{report.model}: {len(report.sides)} sides of {report.kind}", report.workload),
        _summary(report),
        _figures(report),
        *_bars(report),
        _terms(report, detail),
        _settings(report) if settings else None,
        *(Prose(f"{side.key}: {side.measured}") for side in report.sides if side.measured),
        Prose("\n".join(report.overtakes)),
        Prose("\n".join(report.notes), "dim"),
    )


def _summary(report: CompareReport) -> Facts:
    """The fastest and the cheapest side, and each side against the first."""
    best, cheapest = report.best, _cheapest(report)
    label = "fastest" if report.kind == "training" else "best"
    rows: list[tuple[str, str] | tuple[str, str, str]] = [(label, "none can run", "bad")]
    if best:
        rows = [(label, f"{best.key}: {best.label}", "key")]
    if cheapest and cheapest is not best:
        rows.append(("cheapest", f"{cheapest.key}: {cheapest.label}"))
    for difference in report.differences:
        rows.append((f"{difference.second} vs {difference.first}", difference.text))
    return facts(*rows)


def _cheapest(report: CompareReport) -> Side | None:
    """The side with the fewest dollars per token; None where fewer than two have a price."""
    priced = [side for side in report.sides if side.feasible and side.figure(DOLLARS)]
    if len(priced) < 2:
        return None
    return min(priced, key=lambda side: side.value(DOLLARS))


def _figures(report: CompareReport) -> Grid:
    """A column for each side, a row for each figure."""
    sides = report.sides
    rows: list[tuple[str, ...]] = []

    def add(name: str, text: Callable[[Side], str], always: bool = False) -> None:
        """Add a row where some side has something to show; unless `always`, only where sides differ."""
        cells = list(map(text, sides))
        if any(cells) and (always or len(set(cells)) > 1):
            rows.append((name, *cells))

    serving = report.kind == "serving"
    add("plan", lambda side: side.plan or "none fits", always=True)
    add("slice", lambda side: side.slice)
    add("engine" if serving else "stack", lambda side: side.software)
    for name in dict.fromkeys(figure.name for side in sides for figure in side.figures):
        label = "decode step" if serving and name == STEP else name
        add(label, lambda side, name=name: _figure(side.figure(name)), always=True)
        add(f"{label} band", lambda side, name=name: _band(side.figure(name)), always=True)
    add("memory", _memory, always=True)
    add("measured", lambda side: "" if side.measured_s is None else amount(side.measured_s, "s"))
    add("bound by", lambda side: side.bound_by, always=True)
    add("misses" if serving else "cannot run", lambda side: "; ".join(side.problems))
    columns = [Column("")]
    for side in sides:
        columns.append(Column(side.key, wrap=True, tone="key" if side.key == report.winner else ""))
    return table(columns, rows)


def _figure(figure: Figure | None) -> str:
    """A figure in its unit."""
    if figure is None or figure.value is None:
        return ""
    value = figure.value
    if figure.unit == "part":
        return f"{value:.1%}"
    if figure.unit == "USD":
        return _dollars(value)
    if figure.unit == "count":
        decimals = 0
        if value < 100 and value != int(value):
            decimals = 1
        return f"{value:,.{decimals}f}"
    return amount(value, figure.unit)


def _dollars(value: float) -> str:
    """Dollars with as many digits as people write."""
    if value >= 1e6:
        return f"${value / 1e6:,.2f}M"
    if value >= 1000:
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"


def _band(figure: Figure | None) -> str:
    """Both ends of a figure's band, where it has one."""
    if figure is None or figure.low is None or figure.high is None:
        return ""
    if figure.unit == "count":
        return f"{figure.low:,.0f} to {figure.high:,.0f}"
    return f"{amount(figure.low, figure.unit)} to {amount(figure.high, figure.unit)}"


def _memory(side: Side) -> str:
    return f"{side.hbm_bytes / 1e9:.1f} of {side.hbm_limit_bytes / 1e9:.1f}GB" if side.hbm_limit_bytes else ""


def _bars(report: CompareReport) -> list[Block]:
    """Exposed time of every side against the longest, the same fill for the same term."""
    shown = [side for side in report.sides if side.terms]
    if not shown:
        return []
    longest_s = max(sum(side.exposed.values()) for side in shown)
    names = _names(shown)
    by_size = sorted(names, key=lambda name: -max(side.exposed.get(name, 0.0) for side in shown))
    drawn = [name for name in names if name in by_size[:MAX_PARTS]]  # in the order of the terms
    bars: list[Block] = []
    for side in shown:
        parts = [BarPart(name, side.exposed.get(name, 0.0), "") for name in drawn]
        rest_s = sum(seconds for name, seconds in side.exposed.items() if name not in drawn)
        legend = "line" if side is shown[-1] else "none"
        total = amount(seconds_of(side), "s")
        bars.append(StackedBar(side.key, (*parts, BarPart("the rest", rest_s, "")), longest_s, total, legend))
    return bars


def _names(sides: list[Side]) -> list[str]:
    """The terms of all sides, each once, in their order."""
    return list(dict.fromkeys(name for side in sides for name in side.exposed))


def _terms(report: CompareReport, detail: bool) -> Grid | None:
    """The terms of time that differ, the largest difference first."""
    shown = [side for side in report.sides if side.terms]
    if len(shown) < 2:
        return None
    first, *others = shown

    def spread(name: str) -> float:
        """The largest difference of a term to that of the first side."""
        return max(abs(side.exposed.get(name, 0.0) - first.exposed.get(name, 0.0)) for side in shown)

    names = sorted(_names(shown), key=lambda name: -spread(name))
    if not detail:
        least_s = MIN_DIFFERENCE * (max(map(seconds_of, shown)) or 1.0)
        names = [name for name in names if spread(name) > least_s][:MAX_TERMS]
    if not names:
        return None
    rows: list[list[str]] = []
    for name in names:
        seconds = [side.exposed.get(name, 0.0) for side in shown]
        differences = [_signed(other_s - seconds[0]) for other_s in seconds[1:]]
        rows.append([name, *(amount(term_s, "s") if term_s else "0" for term_s in seconds), *differences])
    columns = [Column("term", wrap=True)]
    columns += [Column(side.key, right=True) for side in shown]
    for side in others:
        # where many sides leave no room, the differences are dropped first
        columns.append(Column(f"{side.key}-{first.key}", right=True, keep=2 if len(shown) > 3 else 9))
    step = "a decode step" if report.kind == "serving" else "a step"
    return table(columns, rows, f"what {step} waits for, where it differs (exposed time)")


def _signed(seconds: float) -> str:
    if not seconds:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{amount(abs(seconds), 's')}"


def _settings(report: CompareReport) -> Grid:
    """The settings that differ."""
    names = dict.fromkeys(changed.setting for difference in report.differences for changed in difference.settings)
    rows = [[name, *(str(side.settings.get(name, "")) for side in report.sides)] for name in names]
    columns = [Column("setting"), *(Column(side.key, wrap=True) for side in report.sides)]
    return table(columns, rows, "settings that differ")
