"""`dscale validate` laid out: the error over all, errors by group, what is scored apart, the worst rows."""

from collections.abc import Sequence
from typing import Any

from dragonscale.blocks.sheet import Block, Column, Facts, Grid, Prose, Sheet, Title, facts, table
from dragonscale.commands.grids import grid
from dragonscale.commands.validate.validate_records import MeasureRow, RunScore, Validation

APART = {"latencies": "latencies (static, prefill, decode)", "rates": "throughputs (max, serving)"}
APART |= {"tpot": "TPOT", "ttft": "TTFT"}
BANDS = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "tokens per second"}
PARTS = {"": "", "dense": ", dense", "moe": ", MoE"}
INFERRED = "apart: a launch setting inferred from results"


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1%}"


def _line(label: str, part: dict[str, Any]) -> list[Any]:
    return [label, part["rows"], _percent(part.get("median_ape")), _percent(part.get("mape"))]


def _scores(heads: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> Grid:
    """A name, then numbers."""
    columns = [Column(head, right=True, keep=3 if head == "mean" else 9) for head in heads[1:]]
    return table([Column(heads[0], wrap=True), *columns], rows, title)


def _apart(scores: dict[str, Any]) -> list[Block]:
    """Kinds of numbers that are scored apart: latencies and rates, TPOT and TTFT, each for dense models and MoE, and
    of runs whose launch is stated; below them runs with an inferred setting."""
    rows = []
    # each kind over all runs, then dense and MoE, then those whose launch was inferred
    for name, shown in APART.items():
        whole = scores.get(name, {})
        parts = {shown + label: whole.get(kind, {}) if kind else whole for kind, label in PARTS.items()}
        # of TPOT the numbers stand at the top, of the other kinds under their names
        inferred = scores.get("by_recipe", {}).get("inferred", {})
        parts[f"{shown}, {INFERRED}"] = inferred if name == "tpot" else inferred.get(name, {})
        rows += [_line(label, part) for label, part in parts.items() if part.get("rows")]
    if rows:
        return [_scores(["apart", "rows", "median error", "mean"], rows)]
    return []


def _said(lines: Sequence[str]) -> list[Block]:
    if lines:
        return [Prose("\n".join(lines))]
    return []


def _training(scores: dict[str, Any]) -> list[Block]:
    """Whether runs that ran fit, whether bands hold, whether alternatives are put in the right order, and whether what
    is recommended can be believed."""
    # other kinds of measurements have no plans
    if "fits" not in scores:
        return []
    fits, choices = scores["fits"], scores["choices"]
    lines = [
        f"{fits['fit']} of the {fits['rows']} runs, all of which ran, fit by the planner's count of memory "
        f"({fits['stated']['fit']} of {fits['stated']['rows']} whose recompute is stated)."
    ]
    band = scores["band"]
    if band["covered"] is not None:
        how = ""
        if band["sources_left_out"]:
            how = ", each source left out in turn"
        lines.append(_band(band, how))
    # alternatives of one job, of which the planner's best is compared with the measured best
    if choices["groups"]:
        tau = f"{choices['groups']} groups of alternatives: Kendall's tau {choices['tau']:.2f}"
        longer = f"{_percent(choices['regret_mean'])} longer than the measured best on average"
        lines.append(f"{tau}; the predicted best took {longer}, {_percent(choices['regret_max'])} at worst.")
    if searched := scores.get("searched"):
        lines.append(_searched(searched))
    return _said(lines)


def _served(scores: dict[str, Any], parts: tuple[str, ...]) -> list[Block]:
    """By which engines runs were judged, where one was asked for, and whether the bands of servers hold."""
    # only runs of servers have engines
    if "engines" not in scores:
        return []
    judged = ", ".join(f"{name} {count:,}" for name, count in scores["engines"].items())
    shipped = f"Every run is judged by an engine as it is shipped ({judged}), not as it was launched."
    lines = []
    if "engine" in parts:
        lines = [shipped]
    for name, band in scores["band"].items():
        how = ""
        if band["pairs_left_out"]:
            how = ", each model on each chip left out in turn"
        lines.append(_band(band, f" around {BANDS[name]}{how}"))
    return _said(lines)


def _band(band: dict[str, Any], how: str) -> str:
    return f"{_percent(band['covered'])} of the runs lie in their band of {band['nominal']:.0%}{how}."


def _served_choices(choices: dict[str, Any]) -> list[Block]:
    """What the predicted best configuration costs over the measured best, under limits on TPOT."""
    if not choices["groups"]:
        return _said(["No two configurations of the same model, chip, engine and lengths were measured."])
    rows = []
    for limit, part in choices["by_limit"].items():
        # a limit that must not be missed, beside one that costs what it is missed by
        strict = part.get("hard", {})
        if strict:
            hard = [f"{strict['missed']} of {strict['groups']}", _percent(strict["regret_mean"])]
        else:
            hard = ["", ""]
        rows.append([limit, _percent(part["regret_mean"]), _percent(part["regret_max"]), f"{part['tau']:.2f}", *hard])
    header = ["TPOT limit", "costs more", "at worst", "tau", "hard: picks miss", "others cost more"]
    text = (
        f"{choices['groups']} groups of {choices['configurations']} configurations of the same model, chip, engine and "
        f"lengths: the predicted best costs {_percent(choices['regret_mean'])} more than the measured best on average, "
        f"{_percent(choices['regret_max'])} at worst; Kendall's tau {choices['tau']:.2f}. "
        "A run over the limit counts as costing more by as much as it misses it."
    )
    return [Prose(text), _scores(header, rows)]


def _searched(searched: dict[str, Any]) -> str:
    if searched["median_ratio"] is None:
        return "No job has a plan that fits."
    text = (
        f"{searched['jobs']} jobs: the recommended plan is expected to take {searched['median_ratio']:.2f} of the time "
        f"of the best measured one in the median, {searched['p10_ratio']:.2f} at the tenth percentile "
        f"({searched['median_gain']:.2f} of what the planner expects of the measured plan)"
    )
    if searched["simple"] is not None:
        text += f"; {_percent(searched['simple'])} of those with short sequences use no context axis"
    return text + (f"; {searched['without_plan']} have no plan that fits" if searched["without_plan"] else "") + "."


def _memory(scores: dict[str, Any]) -> list[Block]:
    """Whether runs that ran fit, and runs that ran out are refused."""
    # only tables of memory have runs that ran out of it
    if "outcomes" not in scores:
        return []
    ran, out = scores["outcomes"]["ran"], scores["outcomes"]["oom"]
    fit = f"{ran['fit']} of {ran['rows']} runs that ran fit by the planner's count of memory."
    refused = f"{out['refused']} of {out['rows']} runs that ran out of memory are refused."
    times = scores["times"]
    off = f"expected seconds are {_percent(times['median_ape'] or 0.0)} off in the median"
    timed = f"{times['rows']} runs say how fast they were: {off}."
    return _said([line for part, line in ((ran, fit), (out, refused), (times, timed)) if part["rows"]])


def score_blocks(report: Validation, detail: bool) -> Sheet:
    """The whole answer."""
    scores, group = report.to_dict(), report.scores.group_name
    blocks: list[Block] = [_title(report, scores)]
    if scores["scored"]:
        blocks += [_summary(scores), _groups(scores, group), *_apart(scores)]
    blocks += [*_training(scores), *_memory(scores), *_served(scores, report.parts)]
    if "choices" in report.parts:
        blocks += _served_choices(scores["choices"])
    if scores["scored"]:
        blocks.append(_worst(scores["worst"]))
    if detail:
        blocks.append(_scores(["source", "rows", "median error", "mean"], _lines(scores["by_source"])))
    return Sheet(tuple(blocks))


def _title(report: Validation, scores: dict[str, Any]) -> Title:
    skipped = [f"left out: {count} ({reason})" for reason, count in scores["skipped"].items()]
    return Title(f"{report.kind}: {scores['scored']} of {scores['rows']} rows scored", "\n".join(skipped))


def _summary(scores: dict[str, Any]) -> Block:
    bias = scores["bias"] or 0.0
    if "rates" in scores or "outcomes" in scores:
        # rates and bytes are too high or low, times too slow or fast
        lean = ("high", "low")
    else:
        lean = ("slow", "fast")
    error = f"median {_percent(scores['median_ape'])}, mean {_percent(scores['mape'])}"
    within = f"{_percent(scores['within_10pct'])} of the rows within 10%"
    recipes = scores.get("by_recipe", {"inferred": {"rows": 0}})
    if inferred := recipes["inferred"]["rows"]:
        within += f"; {inferred} runs with a launch setting inferred from results are apart"
    return facts(
        ("error", f"{error}; {within}", "key"),
        ("bias", f"predictions are {_percent(abs(bias))} too {lean[bias <= 0]} on average"),
    )


def _groups(scores: dict[str, Any], group: str) -> Grid:
    """Errors by group; of collectives those of large messages too."""
    header, groups = [group, "rows", "median error", "mean"], scores[f"by_{group}"]
    rows = _lines(groups)
    # small messages are about latency, so large ones are scored apart
    if group == "network":
        header += ["above 1 MiB", "median error"]
        rows = [row + _line("", part["large"])[1:3] for row, part in zip(rows, groups.values(), strict=True)]
    return _scores(header, rows)


def _lines(parts: dict[str, Any]) -> list[list[Any]]:
    return [_line(name, part) for name, part in parts.items()]


def _worst(rows: list[dict[str, Any]]) -> Grid:
    cells = [(row["id"], f"{row['measured']:.4g}", f"{row['predicted']:.4g}", _percent(row["ape"])) for row in rows]
    return _scores(["id", "measured", "predicted", "error"], cells, "worst rows")


def run_blocks(report: RunScore, detail: bool) -> Sheet:
    """The whole answer."""
    what = "training" if report.kind == "training" else "serving"
    summary = f"{report.plan}, {report.workload}, judged by {report.judged_by}"
    title = Title(f"{report.software}: {what} {report.model} on {report.slice}", summary)
    tone = {True: "good", False: "warn", None: ""}[report.inside]
    blocks: list[Block] = [title, _read(report), _measures(report.measures), Prose(report.text, tone)]
    if report.suspects:
        blocks.append(grid("train-suspects", report.suspects))
    if report.notes:
        blocks.append(Prose("\n".join(report.notes), "dim"))
    if detail and report.band:
        blocks.append(Prose(report.band))
    return Sheet(tuple(blocks))


def _read(report: RunScore) -> Facts:
    """What of the log was counted."""
    unit = "step" if report.kind == "training" else "request"
    counted = f"{report.counted:,} logged {unit}{'s' * (report.counted != 1)} counted"
    left = ""
    if report.kind == "training":
        left = f"{report.skipped:,} of the warm-up left out"
    starts = f"{report.starts} starts" if report.starts > 1 else ""
    failed = f"{report.failed:,} failed" if report.failed else ""
    return facts(("log", ", ".join(filter(None, (counted, left, starts, failed)))))


def _measures(rows: list[MeasureRow]) -> Grid:
    cells = []
    for row in rows:
        band = ""
        if row.low is not None:
            band = f"{row.shown(row.low)} to {row.shown(row.high)}"
        spread = ""
        if row.spread_low is not None:
            spread = f"{row.shown(row.spread_low)} to {row.shown(row.spread_high)}"
        inside = {True: "inside", False: "outside", None: ""}[row.inside]
        expected = (row.shown(row.expected), band, f"{row.ratio:.2f}x", inside)
        cells.append([row.name, row.shown(row.measured), spread, *expected])
    heads = ["", "measured", "p10 to p90", "expected", "band", "ratio", ""]
    keep = {"p10 to p90": 3, "band": 5}
    columns = [Column(head, right=0 < index < 6, keep=keep.get(head, 9)) for index, head in enumerate(heads)]
    # no log of several steps: the column of percentiles would be empty
    if all(row.spread_low is None for row in rows):
        columns, cells = columns[:2] + columns[3:], [row[:2] + row[3:] for row in cells]
    return table(columns, cells)
