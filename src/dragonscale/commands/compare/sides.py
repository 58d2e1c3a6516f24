"""Answers of `train` and `serve` as sides of a comparison, and one side against another: the terms of time that differ,
what explains most of it, and whether bands can tell them apart."""

from dataclasses import asdict

import msgspec

from dragonscale.commands.compare.compare_records import (
    Difference,
    Figure,
    HeldPart,
    SettingDifference,
    Side,
    SideTerm,
    TermDifference,
)
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.commands.serve.variant_records import CountedRun
from dragonscale.commands.train.cost import usd_per_mtok
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.physics.units import render
from dragonscale.training.plan.plan import short_plan

# Settings of a serving configuration that are compared.
SETTINGS = ("tensor", "data", "expert", "context", "width", "pipe", "spread", "batch", "drafts", "chunk_tokens")
# Names of the figures that sides are compared by.
STEP = "step"
TOKENS = "tokens/s/chip"
DOLLARS = "$/Mtok"
# Ends of the names of figures under a load.
SERVED = "requests/s"
SLOWEST = "p90 of a request"
# The fraction of all that differs which the named terms should reach, of how many terms at most, and the least that a
# named term explains.
EXPLAINED = 0.9
MAX_NAMED = 3
MIN_NAMED = 0.03
# Steps closer than this fraction are called the same.
TIE_TOLERANCE = 0.005


def training_side(report: TrainReport, index: int = 0) -> Side:
    """A plan of a training answer; without any plan that fits, a side that cannot run."""
    work = report.workload
    if not report.plans:
        return _without_plan(report.slice, work.stack, report.notes)
    row = report.plans[index]
    figures = [
        Figure(STEP, row.step_s, "s", row.step_low_s, row.step_high_s),
        Figure("MFU", row.own_mfu, "part"),
        Figure(TOKENS, row.tokens_per_s_per_chip, "count"),
        Figure(DOLLARS, usd_per_mtok(report, row), "USD"),
        Figure("days", row.days, "count"),
        Figure("cost", row.cost_usd, "USD"),
    ]
    side = _side(row, short_plan(row.plan), report.slice, row.stack, figures)
    side.tokens, side.feasible, side.method = work.batch_tokens, row.feasible, work.method
    for term in row.terms:
        side.terms.append(SideTerm(term.name, term.exposed_s, max(term.expected_s - term.exposed_s, 0.0)))
    side.memory = [HeldPart(part.name, part.bytes) for part in row.memory]
    side.settings, side.problems = asdict(row.plan), list(row.problems)
    if report.measured and not index:  # what was measured is of the first plan
        side.measured_s, side.measured = report.measured.step_s, report.measured.text
    return side


def serving_side(report: ServeReport, index: int = 0) -> Side:
    """A configuration of a serving answer; its step is that of decoding, in which nothing is hidden."""
    if not report.configs:
        return _without_plan("", report.workload.engine, [*report.notes, report.advice])
    row = report.configs[index]
    figures = [
        Figure("TTFT", row.ttft_s, "s", row.ttft_low_s, row.ttft_high_s),
        Figure("TPOT", row.tpot_s, "s", row.tpot_low_s, row.tpot_high_s),
        Figure("batch", row.batch, "count"),
        Figure(STEP, row.decode_step_s, "s"),
        Figure(TOKENS, row.output_tokens_per_s_per_chip, "count", row.tokens_low, row.tokens_high),
        Figure(DOLLARS, row.cost_usd_per_mtok, "USD"),
    ]
    for run in report.counted_runs:
        figures += _run_figures(run)
    side = _side(row, row.plan, row.copy_slice, row.engine or report.workload.engine, figures)
    side.tokens = row.batch
    side.terms = [SideTerm(term.name, term.expected_s, 0.0) for term in row.terms]
    if row.memory is not None:
        side.memory = [HeldPart(name, size) for name, size in row.memory.parts().items()]
    side.settings = {name: getattr(row, name) for name in SETTINGS} | row.dtypes
    side.problems = list(row.violations)
    return side


def _run_figures(run: CountedRun) -> list[Figure]:
    """What became of a number of requests that came at a rate or together."""
    if run.rate:
        load = f"at {run.rate:.3g}/s"
    else:
        load = f"{run.requests:,} at once"
    return [
        Figure(f"{load}: {SERVED}", run.requests_per_s, "count"),
        Figure(f"{load}: output tok/s", run.output_tokens_per_s, "count"),
        Figure(f"{load}: TTFT", run.ttft_s, "s"),
        Figure(f"{load}: {SLOWEST}", run.e2e_p90_s, "s"),
    ]


def _side(row: PlanReport | ConfigReport, plan: str, on: str, software: str, figures: list[Figure]) -> Side:
    """A side that runs, its terms and memory still to be filled in."""
    side = _without_plan(on, software, [])
    side.plan, side.chips, side.feasible, side.bound_by = plan, row.chips, True, row.bound_by
    side.figures = [figure for figure in figures if figure.value is not None]
    side.hbm_bytes, side.hbm_limit_bytes = row.hbm_bytes, row.hbm_limit_bytes
    return side


def _without_plan(on: str, software: str, why: list[str]) -> Side:
    """A side that has no plan, of which only the slice and the software are known."""
    return Side(
        key="",
        label="",
        plan="",
        slice=on,
        software=software,
        chips=0,
        feasible=False,
        tokens=0,
        figures=[],
        terms=[],
        memory=[],
        hbm_bytes=0.0,
        hbm_limit_bytes=0.0,
        bound_by="",
        settings={},
        problems=list(filter(None, why)),
    )


def keyed(sides: list[Side]) -> list[Side]:
    """The sides with letters, each labelled by what differs: plan, slice, software."""
    plans = {side.plan for side in sides}
    slices = {side.slice for side in sides}
    programs = {side.software for side in sides}
    methods = {side.method for side in sides}
    labelled: list[Side] = []
    for number, side in enumerate(sides):
        parts: list[str] = []
        if len(plans) > 1 and side.plan:
            parts.append(side.plan)
        if len(slices) > 1 and side.slice:
            parts.append(f"on {side.slice}")
        if len(programs) > 1:
            parts.append(f"with {side.software}")
        if len(methods) > 1:
            parts.append(f"by {side.method}")
        labelled.append(msgspec.structs.replace(side, key=_letter(number), label=" ".join(parts) or side.plan))
    return labelled


def _letter(number: int) -> str:
    """A, B, … Z, then A2 and on."""
    letter = chr(ord("A") + number % 26)
    if number < 26:
        return letter
    return f"{letter}{number // 26 + 1}"


def difference(first: Side, second: Side, kind: str) -> Difference:
    """The second side against the first, for the tokens of the first."""
    settings = changed_settings(first, second)
    if not (first.feasible and second.feasible):
        broken = first if second.feasible else second
        why = next(iter(broken.problems), "nothing fits").rstrip(".")
        text = f"{broken.key} ({broken.label or broken.slice}) cannot run: {why}."
        return Difference(first.key, second.key, 0.0, 0.0, [], settings, None, text)
    # for other tokens a step, its time is that for as many as the first has; decode steps stay as they are
    scale = 1.0
    if kind == "training":
        scale = first.tokens / second.tokens
    first_s, second_s = seconds_of(first), seconds_of(second) * scale
    terms = term_differences(first, second, scale)
    beyond = bands_apart(first, second, kind, scale)
    text = _sentence(first, second, second_s / first_s, terms, kind) + _certainty(beyond, kind)
    return Difference(first.key, second.key, second_s / first_s, second_s - first_s, terms, settings, beyond, text=text)


def seconds_of(side: Side) -> float:
    """The step."""
    return side.value(STEP)


def term_differences(first: Side, second: Side, scale: float = 1.0) -> list[TermDifference]:
    """Every term of either step, that with the largest difference first; the second side's seconds times `scale`."""
    first_s = {term.name: term.exposed_s for term in first.terms}
    second_s = {term.name: term.exposed_s * scale for term in second.terms}
    rows: list[TermDifference] = []
    for name in first_s | second_s:
        before, after = first_s.get(name, 0.0), second_s.get(name, 0.0)
        rows.append(TermDifference(name, before, after, after - before))
    return sorted(rows, key=lambda row: -abs(row.difference_s))


def changed_settings(first: Side, second: Side) -> list[SettingDifference]:
    """The settings that two plans have otherwise."""
    changed: list[SettingDifference] = []
    for name in first.settings | second.settings:
        # plans of different kinds of slice may lack each other's settings
        before, after = first.settings.get(name), second.settings.get(name)
        if before != after:
            changed.append(SettingDifference(name, before, after))
    return changed


def bands_apart(first: Side, second: Side, kind: str, scale: float = 1.0) -> bool | None:
    """Whether the bands of two sides lie apart; None where one has none."""
    name = {"training": STEP, "serving": TOKENS}[kind]
    first_figure, second_figure = first.figure(name), second.figure(name)
    if first_figure is None or first_figure.low is None or first_figure.high is None:
        return None
    if second_figure is None or second_figure.low is None or second_figure.high is None:
        return None
    return second_figure.high * scale < first_figure.low or first_figure.high < second_figure.low * scale


def _sentence(first: Side, second: Side, ratio: float, terms: list[TermDifference], kind: str) -> str:
    """How much faster the second is and by what."""
    step = {"training": "", "serving": " for a decode step"}[kind]
    text = f"{second.key} ({second.label}) "
    if abs(ratio - 1) < TIE_TOLERANCE:
        text += f"takes as long{step} as {first.key}"
    else:
        if ratio < 1:
            text += f"is {_much(ratio)} faster{step} than {first.key}"
        else:
            text += f"takes {ratio - 1:.{int(ratio < 1.1)}%} longer{step} than {first.key}"
    named = ", ".join(map(_term_text, _named(terms)))
    if named:
        text += f": {named}"
    if kind == "serving":
        text += _throughput(first, second) + _under_load(first, second)
    return text


def _under_load(first: Side, second: Side) -> str:
    """What the second serves of the load that comes to both, and how long requests take; nothing without a load."""
    texts: list[str] = []
    for name in served_figures(second):
        load = name.removesuffix(SERVED)
        slowest = f"{load}{SLOWEST}"
        before, after = (render(side.value(slowest), "s") for side in (first, second))
        texts.append(
            f"; {load.removesuffix(': ')} it serves {second.value(name):.3g} requests/s and {first.key} "
            f"{first.value(name):.3g}, 90% of them within {after} and {before}"
        )
    return "".join(texts)


def served_figures(side: Side) -> list[str]:
    """The names of the figures that say how many requests a side serves of a load."""
    return [figure.name for figure in side.figures if figure.name.endswith(SERVED)]


def _term_text(row: TermDifference) -> str:
    return f"{render(abs(row.difference_s), 's')} {'more' if row.difference_s > 0 else 'less'} {row.name}"


def _much(ratio: float) -> str:
    """Speed over speed: 12%, or 2.4x where it is more than twice."""
    speed = max(ratio, 1 / ratio)
    if speed >= 2:
        return f"{speed:.2g}x"
    if speed >= 1.1:
        return f"{speed - 1:.0%}"
    return f"{speed - 1:.1%}"


def _named(terms: list[TermDifference]) -> list[TermDifference]:
    """The few terms that make up most of what differs."""
    total_s = sum(abs(row.difference_s) for row in terms)
    named: list[TermDifference] = []
    explained_s = 0.0
    for row in terms[:MAX_NAMED]:
        if explained_s >= EXPLAINED * total_s or abs(row.difference_s) < MIN_NAMED * total_s:
            break
        named.append(row)
        explained_s += abs(row.difference_s)
    return named


def _throughput(first: Side, second: Side) -> str:
    """Tokens per second and chip of the second against the first."""
    before, after = first.value(TOKENS), second.value(TOKENS)
    if not before or not after:
        return ""
    ratio = after / before
    many = "as many"
    if abs(ratio - 1) >= TIE_TOLERANCE:
        many = f"{_much(ratio)} more" if ratio > 1 else f"{1 - ratio:.{int(ratio > 0.9)}%} fewer"
    batches = ""
    if first.tokens != second.tokens:
        batches = f" (batches of {second.tokens:,.0f} and {first.tokens:,.0f})"
    return f"; {many} tokens/s a chip{batches}"


def _certainty(beyond: bool | None, kind: str) -> str:
    """Whether the difference is larger than the error, where that is known."""
    if beyond is None:
        return "."
    what = {"training": "steps", "serving": "tokens/s"}[kind]
    if beyond:
        return f". The error bands of their {what} lie apart: the difference is larger than the error."
    return f". The error bands of their {what} overlap: the order could be the other way round."
