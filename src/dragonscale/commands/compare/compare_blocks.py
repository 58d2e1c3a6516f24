"""`dscale compare` laid out: which is faster and why, the figures side by side, then where time and memory go."""

from collections.abc import Callable

from dragonscale.blocks.sheet import (
    EXPLAINED,
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
    explained,
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
# Of the memory of the fullest side, from which on a part that differs has a row.
MIN_PART = 0.05
MAX_PARTS = 7


def compare_blocks(report: CompareReport, detail: bool) -> Sheet:
    """The whole answer."""
    settings = None
    if detail and any(difference.settings for difference in report.differences):
        settings = _settings(report)
    return sheet(
        Title(
            f"{report.model}: {len(report.sides)} sides of {report.kind}",
            report.workload,
            verdict_text(report),
            "good" if report.best is not None else "bad",
        ),
        _summary(report),
        _figures(report),
        *map(explained, _bars(report)),
        explained(terms) if (terms := _terms(report, detail)) is not None else None,
        settings,
        *(Prose(f"{side.key}: {side.measured}") for side in report.sides if side.measured),
        Prose("\n".join(report.memories)),
        Prose("\n".join(report.overtakes), level=EXPLAINED),
        Prose("\n".join(report.notes), "dim", EXPLAINED),
    )


def verdict_text(report: CompareReport) -> str:
    """Which side is best, and by how much where there are two."""
    best = report.best
    if best is None:
        return "None of them can run."
    unable = [side.key for side in report.sides if not side.feasible]
    able = [side for side in report.sides if side.feasible and side is not best]
    text = f"{best.key} ({best.label}) is best"
    if report.kind == "training":
        text = f"{best.key} ({best.label}) is fastest"
    if able and report.kind == "training":
        next_s = min(seconds_of(side) / side.tokens for side in able)
        text += f", by {next_s / (seconds_of(best) / best.tokens) - 1:.1%}"
    if unable:
        text += f"; {' and '.join(unable)} cannot run"
    return f"{text}."


def _summary(report: CompareReport) -> Facts:
    """The fastest and the cheapest side, and each side against the first."""
    best, cheapest, label = report.best, _cheapest(report), "best"
    if report.kind == "training":
        label = "fastest"
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

    # what the two kinds call the same thing
    names = {STEP: STEP, "software": "stack", "problems": "cannot run"}
    if report.kind == "serving":
        names = {STEP: "decode step", "software": "engine", "problems": "misses"}
    add("plan", lambda side: side.plan or "none fits", always=True)
    add("slice", lambda side: side.slice)
    add(names["software"], lambda side: side.software)
    for name in dict.fromkeys(figure.name for side in sides for figure in side.figures):
        label = names.get(name, name)
        add(label, lambda side, name=name: _figure(side.figure(name)), always=True)
        add(f"{label} band", lambda side, name=name: _band(side.figure(name)), always=True)
    add("memory", _memory, always=True)
    for part in _differing_parts(sides):
        add(part, lambda side, part=part: f"{_part_bytes(side, part) / 1e9:.1f}GB" if side.memory else "")
    add("measured", lambda side: amount(side.measured_s, "s") if side.measured_s is not None else "")
    add("bound by", lambda side: side.bound_by, always=True)
    add(names["problems"], lambda side: "; ".join(side.problems))
    columns = [Column("")]
    tones = {report.winner: "key"}
    for side in sides:
        columns.append(Column(side.key, wrap=True, tone=tones.get(side.key, "")))
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
        if value < 100 and value != int(value):
            return f"{value:,.1f}"
        return f"{value:,.0f}"
    return amount(value, figure.unit)


def _dollars(value: float) -> str:
    """Dollars with as many digits as people write."""
    if value >= 1e6:
        return f"${value / 1e6:,.2f}M"
    if value >= 1000:
        return f"${value:,.0f}"
    if value >= 1:
        return f"${value:,.2f}"
    return f"${value:,.4f}"


def _band(figure: Figure | None) -> str:
    """Both ends of a figure's band, where it has one."""
    if figure is None or figure.low is None or figure.high is None:
        return ""
    if figure.unit == "count":
        return f"{figure.low:,.0f} to {figure.high:,.0f}"
    return f"{amount(figure.low, figure.unit)} to {amount(figure.high, figure.unit)}"


def _memory(side: Side) -> str:
    """Bytes on the fullest chip, of those that it has; empty where no plan fits."""
    if not side.hbm_limit_bytes:
        return ""
    return f"{side.hbm_bytes / 1e9:.1f} of {side.hbm_limit_bytes / 1e9:.1f}GB"


def _part_bytes(side: Side, name: str) -> float:
    """Bytes of a part of a side's memory."""
    return sum(part.bytes for part in side.memory if part.name == name)


def _differing_parts(sides: list[Side]) -> list[str]:
    """Parts of memory in which sides differ by more than a twentieth of the fullest, those of the first side first."""
    names = dict.fromkeys(part.name for side in sides for part in side.memory)
    fullest_bytes = max((side.hbm_bytes for side in sides), default=0.0)
    differing: list[str] = []
    for name in names:
        sizes = [_part_bytes(side, name) for side in sides if side.memory]
        if max(sizes) - min(sizes) > MIN_PART * fullest_bytes:
            differing.append(name)
    return differing


def _bars(report: CompareReport) -> list[Block]:
    """Exposed time of every side against the longest, the same fill for the same term."""
    shown = [side for side in report.sides if side.terms]
    if not shown:
        return []
    longest_s = max(sum(side.exposed.values()) for side in shown)
    longest = _longest(shown)
    largest = sorted(longest, key=lambda name: -longest[name])[:MAX_PARTS]
    drawn = [name for name in longest if name in largest]  # in the order of the terms
    bars: list[Block] = []
    for side in shown:
        exposed = side.exposed
        parts = [BarPart(name, exposed.pop(name, 0.0), "") for name in drawn]
        parts.append(BarPart("the rest", sum(exposed.values()), ""))
        legend = "line" if side is shown[-1] else "none"  # one legend, below the last bar
        bars.append(StackedBar(side.key, tuple(parts), longest_s, amount(seconds_of(side), "s"), legend))
    return bars


def _longest(sides: list[Side]) -> dict[str, float]:
    """The exposed seconds of each term in the side in which it has most, in the order of the terms."""
    longest: dict[str, float] = {}
    for side in sides:
        for name, seconds in side.exposed.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    return longest


def _terms(report: CompareReport, detail: bool) -> Grid | None:
    """The terms of time that differ, the largest difference first."""
    shown = [side for side in report.sides if side.terms]
    if len(shown) < 2:
        return None
    first, *others = shown

    def spread(name: str) -> float:
        """The largest difference of a term to that of the first side."""
        return max(abs(side.exposed.get(name, 0.0) - first.exposed.get(name, 0.0)) for side in shown)

    names = sorted(_longest(shown), key=lambda name: -spread(name))
    if not detail:
        least_s = MIN_DIFFERENCE * (max(map(seconds_of, shown)) or 1.0)
        names = [name for name in names if spread(name) > least_s][:MAX_TERMS]
    if not names:
        return None
    rows: list[list[str]] = []
    for name in names:
        seconds = [side.exposed.get(name, 0.0) for side in shown]
        differences = [_signed(other_s - seconds[0]) for other_s in seconds[1:]]
        rows.append([name, *map(_seconds, seconds), *differences])
    columns = [Column("term", wrap=True)]
    columns += [Column(side.key, right=True) for side in shown]
    # where many sides leave no room, the differences are dropped first
    keep = 2 if len(shown) > 3 else 9
    columns += [Column(f"{side.key}-{first.key}", right=True, keep=keep) for side in others]
    step = {"serving": "a decode step", "training": "a step"}[report.kind]
    return table(columns, rows, f"what {step} waits for, where it differs (exposed time)")


def _seconds(seconds: float) -> str:
    if not seconds:  # a side without the term
        return "0"
    return amount(seconds, "s")


def _signed(seconds: float) -> str:
    if seconds > 0:
        return f"+{amount(seconds, 's')}"
    if seconds < 0:
        return f"-{amount(-seconds, 's')}"
    return "0"


def _settings(report: CompareReport) -> Grid:
    """The settings that differ."""
    names = dict.fromkeys(changed.setting for difference in report.differences for changed in difference.settings)
    rows = [[name, *(str(side.settings.get(name, "")) for side in report.sides)] for name in names]
    columns = [Column("setting"), *(Column(side.key, wrap=True) for side in report.sides)]
    return table(columns, rows, "settings that differ")
