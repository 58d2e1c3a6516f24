"""Answers of `train` and `serve` as sides of a comparison, and one side against another."""

from dataclasses import asdict

import msgspec

from dragonscale.commands.compare import compare_records as records
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.commands.train.cost import usd_per_mtok
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.physics.units import render
from dragonscale.training.plan.plan import short_plan

SETTINGS = ("tensor", "data", "expert", "context", "width", "pipe", "spread", "batch", "drafts", "chunk_tokens")
# Names of the figures that sides are compared by.
STEP, TOKENS, DOLLARS = "step", "tokens/s/chip", "$/Mtok"


def training_side(report: TrainReport, index: int = 0) -> records.Side:
    """A plan of a training answer; what no plan fits is a side that cannot run."""
    if not report.plans:
        return _nothing(report.slice, report.workload.stack, report.notes)
    plan, work = report.plans[index], report.workload
    figures = [
        records.Figure(STEP, plan.step_s, "s", plan.step_low_s, plan.step_high_s),
        records.Figure("MFU", plan.own_mfu, "part"),
        records.Figure(TOKENS, plan.tokens_per_s_per_chip, "count"),
        records.Figure(DOLLARS, usd_per_mtok(report, plan), "USD"),
        records.Figure("days", plan.days, "count"),
        records.Figure("cost", plan.cost_usd, "USD"),
    ]
    terms = [records.SideTerm(row.name, row.exposed_s, max(row.expected_s - row.exposed_s, 0.0)) for row in plan.terms]
    memory = [records.HeldPart(row.name, row.bytes) for row in plan.memory]
    side = _side(plan, (short_plan(plan.plan), report.slice, plan.stack), work.batch_tokens, figures, terms, memory)
    side.feasible, side.settings, side.problems = plan.feasible, asdict(plan.plan), list(plan.problems)
    if report.measured and not index:
        side.measured_s, side.measured = report.measured.step_s, report.measured.text
    return side


def _side(
    row: PlanReport | ConfigReport,
    names: tuple[str, str, str],
    tokens: float,
    figures: list[records.Figure],
    terms: list[records.SideTerm],
    memory: list[records.HeldPart],
) -> records.Side:
    """A side that runs; `names` are its plan, slice and software."""
    plan, on, software = names
    figures_known = [figure for figure in figures if figure.value is not None]
    return msgspec.structs.replace(
        _empty(on, software),
        plan=plan,
        chips=row.chips,
        feasible=True,
        tokens=tokens,
        figures=figures_known,
        terms=terms,
        memory=memory,
        hbm_bytes=row.hbm_bytes,
        hbm_limit_bytes=row.hbm_limit_bytes,
        bound_by=row.bound_by,
    )


def serving_side(report: ServeReport, index: int = 0) -> records.Side:
    """A configuration of a serving answer; its step is that of decoding."""
    if not report.configs:
        return _nothing("", report.workload.engine, [*report.notes, report.advice])
    config = report.configs[index]
    figures = [
        records.Figure("TTFT", config.ttft_s, "s", config.ttft_low_s, config.ttft_high_s),
        records.Figure("TPOT", config.tpot_s, "s", config.tpot_low_s, config.tpot_high_s),
        records.Figure("batch", config.batch, "count"),
        records.Figure(STEP, config.decode_step_s, "s"),
        records.Figure(TOKENS, config.output_tokens_per_s_per_chip, "count", config.tokens_low, config.tokens_high),
        records.Figure(DOLLARS, config.cost_usd_per_mtok, "USD"),
    ]
    terms = [records.SideTerm(row.name, row.expected_s, 0.0) for row in config.terms]
    if config.memory is not None:
        memory = [records.HeldPart(name, size) for name, size in config.memory.parts().items()]
    else:
        memory = []
    names = config.plan, config.copy_slice, config.engine or report.workload.engine
    side = _side(config, names, config.batch, figures, terms, memory)
    side.settings = {name: getattr(config, name) for name in SETTINGS} | config.dtypes
    side.problems = list(config.violations)
    return side


def _nothing(where: str, software: str, why: list[str]) -> records.Side:
    """A side that has no plan."""
    return msgspec.structs.replace(_empty(where, software), problems=[text for text in why if text])


def _empty(where: str, software: str) -> records.Side:
    """A side of which only the slice and the software are known."""
    nothing = {"key": "", "label": "", "plan": "", "bound_by": "", "figures": [], "terms": [], "memory": []}
    zero = {"chips": 0, "tokens": 0, "feasible": False, "hbm_bytes": 0.0, "hbm_limit_bytes": 0.0, "settings": {}}
    return records.Side(slice=where, software=software, **nothing, **zero)


def keyed(sides: list[records.Side]) -> list[records.Side]:
    """The sides with letters, each labelled by what differs: plan, slice, software."""
    plans, slices, programs = ({getattr(side, name) for side in sides} for name in ("plan", "slice", "software"))
    labelled = []
    for number, side in enumerate(sides):
        parts = [side.plan] if len(plans) > 1 else []
        if len(slices) > 1 and side.slice:
            parts += [f"on {side.slice}"]
        if len(programs) > 1:
            parts += [f"with {side.software}"]
        label = " ".join(filter(None, parts)) or side.plan
        labelled.append(msgspec.structs.replace(side, key=_letter(number), label=label))
    return labelled


def _letter(number: int) -> str:
    """A, B, … Z, then A2 and on."""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


# One side against another: the terms of time that differ, what explains most of it, and whether bands can tell them
# apart.


# The part of all that differs which the named terms should reach.
EXPLAINED = 0.9
MOST_NAMED = 3
# Steps closer than this are called the same.
SAME = 0.005


def difference(first: records.Side, second: records.Side, kind: str) -> records.Difference:
    """The second side against the first, for the tokens of the first."""
    if not (first.feasible and second.feasible):
        broken = next(side for side in (second, first) if not side.feasible)
        if broken.problems:
            why = broken.problems[0].rstrip(".")
        else:
            why = "nothing fits"
        text = f"{broken.key} ({broken.label or broken.slice}) cannot run: {why}."
        return records.Difference(first.key, second.key, 0.0, 0.0, [], changed(first, second), None, text)
    # for other tokens a step, its time is that for as many as the first has; decode steps stay as they are
    times = first.tokens / second.tokens if kind == "training" else 1.0
    mine, other = seconds_of(first), seconds_of(second) * times
    terms = term_differences(first, second, times)
    beyond = apart(first, second, kind, times)
    text = _sentence(first, second, other / mine, terms, kind) + _certain(beyond, kind)
    settings = changed(first, second)
    return records.Difference(first.key, second.key, other / mine, other - mine, terms, settings, beyond, text)


def seconds_of(side: records.Side) -> float:
    """The step."""
    figure = side.figure(STEP)
    if figure is None or figure.value is None:
        return 0.0
    return figure.value


def term_differences(first: records.Side, second: records.Side, times: float = 1.0) -> list[records.TermDifference]:
    """Every term of either step, what differs most first. What the terms leave of a step is a row of its own."""
    mine = {term.name: term.exposed_s for term in first.terms}
    other = {term.name: term.exposed_s * times for term in second.terms}
    names = [*mine, *(name for name in other if name not in mine)]
    rows = [
        records.TermDifference(
            name, mine.get(name, 0.0), other.get(name, 0.0), other.get(name, 0.0) - mine.get(name, 0.0)
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: -abs(row.difference_s))


def changed(first: records.Side, second: records.Side) -> list[records.SettingDifference]:
    """The settings that two plans have otherwise."""
    names = [*first.settings, *(name for name in second.settings if name not in first.settings)]
    pairs = [(name, first.settings.get(name), second.settings.get(name)) for name in names]
    return [records.SettingDifference(name, old, new) for name, old, new in pairs if old != new]


def apart(first: records.Side, second: records.Side, kind: str, times: float = 1.0) -> bool | None:
    """Whether the bands of two sides lie apart; None where one has none."""
    name = STEP if kind == "training" else TOKENS
    mine, other = first.figure(name), second.figure(name)
    if mine is None or other is None or None in (mine.low, mine.high, other.low, other.high):
        return None
    assert mine.low is not None and mine.high is not None and other.low is not None and other.high is not None  # noqa: PT018
    return other.high * times < mine.low or mine.high < other.low * times


def _sentence(
    first: records.Side, second: records.Side, ratio: float, terms: list[records.TermDifference], kind: str
) -> str:
    """How much faster the second is and by what."""
    who = f"{second.key} ({second.label})"
    step = "" if kind == "training" else " a decode step"
    if abs(ratio - 1) < SAME:
        start = f"{who} takes as long{step} as {first.key}"
    else:
        word = "faster" if ratio < 1 else "slower"
        start = f"{who} is {_much(ratio)} {word}{step} than {first.key}"
    named = _named(terms)
    named_terms = ", ".join(f"{render(abs(row.difference_s), 's')} {_more(row)} {row.name}" for row in named)
    if named_terms:
        start += f": {named_terms}"
    if kind == "serving":
        return start + _yielded(first, second)
    return start


def _much(ratio: float) -> str:
    """Speed over speed: 12%, or 2.4x where it is more than twice."""
    speed = 1 / ratio if ratio < 1 else ratio
    if speed >= 2:
        return f"{speed:.2g}x"
    if speed >= 1.1:
        return f"{speed - 1:.0%}"
    return f"{speed - 1:.1%}"


def _more(row: records.TermDifference) -> str:
    if row.difference_s > 0:
        return "more"
    return "less"


def _named(terms: list[records.TermDifference]) -> list[records.TermDifference]:
    """The few terms that make up most of what differs."""
    total, named, explained = sum(abs(row.difference_s) for row in terms), [], 0.0
    for row in terms[:MOST_NAMED]:
        if explained >= EXPLAINED * total or abs(row.difference_s) < 0.03 * total:
            break
        named.append(row)
        explained += abs(row.difference_s)
    return named


def _yielded(first: records.Side, second: records.Side) -> str:
    """What the second makes of a chip against the first."""
    mine, other = first.figure(TOKENS), second.figure(TOKENS)
    if mine is None or other is None or not mine.value or not other.value:
        return ""
    ratio = other.value / mine.value
    if abs(ratio - 1) < SAME:
        many = "as many"
    else:
        many = f"{_much(ratio)} {'more' if ratio > 1 else 'fewer'}"
    batches = ""
    if first.tokens != second.tokens:
        batches = f" (batches of {second.tokens:,.0f} and {first.tokens:,.0f})"
    return f"; {many} tokens/s a chip{batches}"


def _certain(beyond: bool | None, kind: str) -> str:
    what = "steps" if kind == "training" else "tokens/s"
    if beyond is None:
        return "."
    if beyond:
        return f". The error bands of their {what} lie apart: the difference is larger than the error."
    return f". The error bands of their {what} overlap: the order could be the other way round."
