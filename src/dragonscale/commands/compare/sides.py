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
STEP, TOKENS, DOLLARS = "step", "tokens/s/chip", "$/Mtok"
"""Names of the figures that sides are compared by."""


def training_side(report: TrainReport, place: int = 0) -> records.Side:
    """A plan of a training answer; what no plan fits is a side that cannot run."""
    if not report.plans:
        return _nothing(report.slice, report.workload.stack, report.notes)
    one, work = report.plans[place], report.workload
    figures = [
        records.Figure(STEP, one.step_s, "s", one.step_low_s, one.step_high_s),
        records.Figure("MFU", one.own_mfu, "part"),
        records.Figure(TOKENS, one.tokens_per_s_per_chip, "count"),
        records.Figure(DOLLARS, usd_per_mtok(report, one), "USD"),
        records.Figure("days", one.days, "count"),
        records.Figure("cost", one.cost_usd, "USD"),
    ]
    terms = [records.SideTerm(row.name, row.exposed_s, max(row.expected_s - row.exposed_s, 0.0)) for row in one.terms]
    memory = [records.HeldPart(row.name, row.bytes) for row in one.memory]
    side = _side(one, (short_plan(one.plan), report.slice, one.stack), work.batch_tokens, figures, terms, memory)
    side.feasible, side.settings, side.problems = one.feasible, asdict(one.plan), list(one.problems)
    if report.measured and not place:
        side.measured_s, side.measured = report.measured.step_s, report.measured.text
    return side


def _side(
    one: PlanReport | ConfigReport,
    names: tuple[str, str, str],
    tokens: float,
    figures: list[records.Figure],
    terms: list[records.SideTerm],
    memory: list[records.HeldPart],
) -> records.Side:
    """A side that runs; `names` are its plan, slice and software."""
    plan, on, software = names
    known = [figure for figure in figures if figure.value is not None]
    return msgspec.structs.replace(
        _empty(on, software),
        plan=plan,
        chips=one.chips,
        feasible=True,
        tokens=tokens,
        figures=known,
        terms=terms,
        memory=memory,
        hbm_bytes=one.hbm_bytes,
        hbm_limit_bytes=one.hbm_limit_bytes,
        bound_by=one.bound_by,
    )


def serving_side(report: ServeReport, place: int = 0) -> records.Side:
    """A configuration of a serving answer; its step is that of decoding."""
    if not report.configs:
        return _nothing("", report.workload.engine, [*report.notes, report.advice])
    one = report.configs[place]
    figures = [
        records.Figure("TTFT", one.ttft_s, "s", one.ttft_low_s, one.ttft_high_s),
        records.Figure("TPOT", one.tpot_s, "s", one.tpot_low_s, one.tpot_high_s),
        records.Figure("batch", one.batch, "count"),
        records.Figure(STEP, one.decode_step_s, "s"),
        records.Figure(TOKENS, one.output_tokens_per_s_per_chip, "count", one.tokens_low, one.tokens_high),
        records.Figure(DOLLARS, one.cost_usd_per_mtok, "USD"),
    ]
    terms = [records.SideTerm(row.name, row.expected_s, 0.0) for row in one.terms]
    memory = (
        [records.HeldPart(name, size) for name, size in one.memory.parts().items()] if one.memory is not None else []
    )
    names = one.plan, one.copy_slice, one.engine or report.workload.engine
    side = _side(one, names, one.batch, figures, terms, memory)
    side.settings = {name: getattr(one, name) for name in SETTINGS} | one.dtypes
    side.problems = list(one.violations)
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
    made = []
    for number, side in enumerate(sides):
        words = [side.plan] if len(plans) > 1 else []
        words += [f"on {side.slice}"] if len(slices) > 1 and side.slice else []
        words += [f"with {side.software}"] if len(programs) > 1 else []
        label = " ".join(filter(None, words)) or side.plan
        made.append(msgspec.structs.replace(side, key=_letter(number), label=label))
    return made


def _letter(number: int) -> str:
    """A, B, … Z, then A2 and on."""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


# One side against another: the terms of time that differ, what explains most of it, and whether bands can tell them
# apart.


EXPLAINED = 0.9
"""The part of all that differs which the named terms should reach."""
MOST_NAMED = 3
SAME = 0.005
"""Steps closer than this are called the same."""


def difference(first: records.Side, second: records.Side, kind: str) -> records.Difference:
    """The second side against the first, for the tokens of the first."""
    if not (first.feasible and second.feasible):
        broken = next(side for side in (second, first) if not side.feasible)
        why = broken.problems[0].rstrip(".") if broken.problems else "nothing fits"
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
    found = side.figure(STEP)
    return 0.0 if found is None or found.value is None else found.value


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
    one, other = first.figure(name), second.figure(name)
    if one is None or other is None or None in (one.low, one.high, other.low, other.high):
        return None
    assert one.low is not None and one.high is not None and other.low is not None and other.high is not None  # noqa: PT018
    return other.high * times < one.low or one.high < other.low * times


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
    said = ", ".join(f"{render(abs(row.difference_s), 's')} {_more(row)} {row.name}" for row in named)
    start += f": {said}" if said else ""
    return start + _yielded(first, second) if kind == "serving" else start


def _much(ratio: float) -> str:
    """Speed over speed: 12%, or 2.4x where it is more than twice."""
    speed = 1 / ratio if ratio < 1 else ratio
    return f"{speed:.2g}x" if speed >= 2 else f"{speed - 1:.0%}" if speed >= 1.1 else f"{speed - 1:.1%}"


def _more(row: records.TermDifference) -> str:
    return "more" if row.difference_s > 0 else "less"


def _named(terms: list[records.TermDifference]) -> list[records.TermDifference]:
    """The few terms that make up most of what differs."""
    total, named, seen = sum(abs(row.difference_s) for row in terms), [], 0.0
    for row in terms[:MOST_NAMED]:
        if seen >= EXPLAINED * total or abs(row.difference_s) < 0.03 * total:
            break
        named.append(row)
        seen += abs(row.difference_s)
    return named


def _yielded(first: records.Side, second: records.Side) -> str:
    """What the second makes of a chip against the first."""
    one, other = first.figure(TOKENS), second.figure(TOKENS)
    if one is None or other is None or not one.value or not other.value:
        return ""
    ratio = other.value / one.value
    many = "as many" if abs(ratio - 1) < SAME else f"{_much(ratio)} {'more' if ratio > 1 else 'fewer'}"
    batches = f" (batches of {second.tokens:,.0f} and {first.tokens:,.0f})" if first.tokens != second.tokens else ""
    return f"; {many} tokens/s a chip{batches}"


def _certain(beyond: bool | None, kind: str) -> str:
    what = "steps" if kind == "training" else "tokens/s"
    if beyond is None:
        return "."
    return (
        f". The error bands of their {what} lie apart: the difference is larger than the error."
        if beyond
        else f". The error bands of their {what} overlap: the order could be the other way round."
    )
