"""Answers of `train` and `serve` as sides of a comparison."""

from typing import Any

import msgspec

from dragonscale.app.compare.records import Figure, HeldPart, Side, SideTerm
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.app.train.records import PlanReport, TrainReport
from dragonscale.app.train.tables import plan_text
from dragonscale.serving.economics import usd_per_million

STEP, TOKENS, DOLLARS = "step", "tokens/s/chip", "$/Mtok"
"""Names of the figures that sides are compared by."""


def training_side(report: TrainReport, place: int = 0) -> Side:
    """A plan of a training answer; what no plan fits is a side that cannot run."""
    if not report.plans:
        return _nothing(report.slice, report.workload.stack, report.notes)
    one, work = report.plans[place], report.workload
    figures = [
        Figure(STEP, one.step_s, "s", one.step_low_s, one.step_high_s),
        Figure("MFU", one.mfu, "part"),
        Figure(TOKENS, one.tokens_per_s_per_chip, "count"),
        Figure(DOLLARS, _dollars(report, one), "USD"),
        Figure("days", one.days, "count"),
        Figure("cost", one.cost_usd, "USD"),
    ]
    return Side(
        "",
        "",
        plan_text(one.plan),
        report.slice,
        one.stack,
        one.chips,
        one.feasible,
        work.batch_tokens,
        [figure for figure in figures if figure.value is not None],
        [SideTerm(row.name, row.exposed_s, max(row.expected_s - row.exposed_s, 0.0)) for row in one.terms],
        [HeldPart(row.name, row.bytes) for row in one.memory],
        one.hbm_bytes,
        one.hbm_limit_bytes,
        one.bound_by,
        dict(one.plan),
        list(one.problems),
        report.measured.step_s if report.measured and not place else None,
        report.measured.text if report.measured and not place else "",
    )


def _dollars(report: TrainReport, one: PlanReport) -> float | None:
    """Dollars for a million tokens trained on, where the chip has a price."""
    chip = report.slice.partition(":")[0]
    price = next((row.usd_per_h for row in report.prices if row.chip == chip), None)
    return None if price is None else usd_per_million(report.workload.batch_tokens / one.step_s, one.chips, price)


def serving_side(report: ServeReport, place: int = 0) -> Side:
    """A configuration of a serving answer; its step is that of decoding."""
    if not report.configs:
        return _nothing("", report.workload.engine, [*report.notes, report.advice])
    one = report.configs[place]
    figures = [
        Figure("TTFT", one.ttft_s, "s", one.ttft_low_s, one.ttft_high_s),
        Figure("TPOT", one.tpot_s, "s", one.tpot_low_s, one.tpot_high_s),
        Figure("batch", one.batch, "count"),
        Figure(STEP, one.decode_step_s, "s"),
        Figure(TOKENS, one.output_tokens_per_s_per_chip, "count", one.tokens_low, one.tokens_high),
        Figure(DOLLARS, one.cost_usd_per_mtok, "USD"),
    ]
    return Side(
        "",
        "",
        one.plan,
        one.copy_slice,
        one.engine or report.workload.engine,
        one.chips,
        True,
        one.batch,
        [figure for figure in figures if figure.value is not None],
        [SideTerm(row.name, row.expected_s, 0.0) for row in one.terms],
        _held(one),
        one.hbm_bytes,
        one.hbm_limit_bytes,
        one.bound_by,
        _degrees(one),
        list(one.violations),
    )


def _held(one: ConfigReport) -> list[HeldPart]:
    use = one.memory
    if use is None:
        return []
    rows = {
        "weights": use.weights_bytes,
        "KV cache": use.cache_bytes,
        "workspace": use.working_bytes,
        "reserve": use.reserve_bytes,
        "free for KV cache": use.free_bytes,
        "unused": use.left_alone_bytes,
    }
    return [HeldPart(name, size) for name, size in rows.items()]


def _degrees(one: ConfigReport) -> dict[str, Any]:
    names = ("tensor", "data", "expert", "context", "width", "pipe", "spread", "batch", "drafts", "chunk_tokens")
    return {name: getattr(one, name) for name in names} | one.dtypes


def _nothing(where: str, software: str, why: list[str]) -> Side:
    """A side that has no plan."""
    problems = [text for text in why if text]
    return Side("", "", "", where, software, 0, False, 0, [], [], [], 0.0, 0.0, "", {}, problems)


def keyed(sides: list[Side]) -> list[Side]:
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
