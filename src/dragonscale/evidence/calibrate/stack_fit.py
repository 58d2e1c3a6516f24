"""The few constants of a stack and an engine that no kernel measurement gives, settled on whole steps.

What is expected of a step is nearly a sum of seconds, each times a constant. From the constants as they are, a few
steps of Gauss and Newton on the logarithms of measured over expected seconds find better ones; each is held near its
start as by a measurement of its own with an error of `LOOSE`, so that what the rows do not tell stays as it was. Models
left out only say how good the result is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.evidence.calibrate.stack_cases import Case, ServeCase, TrainCase
from dragonscale.evidence.calibrate.stack_expected import ExpectedCase, expected_case
from dragonscale.evidence.calibrate.stack_rows import MeasuredCase
from dragonscale.physics.hardware import Slice
from dragonscale.plan.measured_on import MeasuredOn
from dragonscale.serving.engine import Engine, adjust
from dragonscale.training.stack import Stack, change

FREE_STACK = (
    "kernels.matmul",
    "kernels.head",
    "kernels.attention",
    "kernels.elementwise_passes",
    "kernels.block_bytes",
    "kernels.block_backward_bytes",
    "experts.route_passes",
    "memory.kept_moves",
)
FREE_ENGINE = (
    "kernels.matmul",
    "kernels.prefill_attention",
    "kernels.decode_attention",
    "kernels.elementwise",
    "kernels.block_bytes",
    "kernels.cache_moves",
    "kernels.gap_s",
    "experts.route_passes",
    "program.loop_s",
    "program.scan_s",
)
LOOSE = 0.5
"""How far, in logarithms, a constant may be from its start as easily as a step by `NOISE` from what is expected."""
NOISE = 0.03
PART_NOISE = 0.1
"""The same for a step's matmuls or attention: a profile's, of one step."""
FAR = 7.0
"""The farthest, in logarithms, that a constant may be from its start: a thousand times."""
STEPS = 4
NUDGE = 0.05


@dataclass(frozen=True)
class Settled:
    """A stack and an engine with their constants settled, and the ratios of measured to expected seconds of every row
    by its case."""

    stack: Stack
    engine: Engine
    ratios: dict[Case, float]


Rows = Mapping[Case, MeasuredCase]


def settle(rows: Rows, piece: Slice, stack: Stack, engine: Engine) -> Settled:
    """Constants from the rows to fit on, and how all rows then stand."""
    fit = {case: row for case, row in rows.items() if case.use == "fit"}
    training: Rows = {case: row for case, row in fit.items() if isinstance(case, TrainCase)}
    serving: Rows = {case: row for case, row in fit.items() if isinstance(case, ServeCase)}
    if training:
        found = _solved(FREE_STACK, stack, training, lambda one, case: expected_case(case, piece, one, engine))
        stack = with_constants(stack, found)
    if serving:
        found = _solved(FREE_ENGINE, engine, serving, lambda one, case: expected_case(case, piece, stack, one))
        engine = with_constants(engine, found)
    return Settled(stack, engine, ratios(rows, piece, stack, engine))


def ratios(rows: Rows, piece: Slice, stack: Stack, engine: Engine) -> dict[Case, float]:
    """Measured over expected seconds."""
    return {case: row.seconds / expected_case(case, piece, stack, engine).seconds for case, row in rows.items()}


def constant(record: Any, path: str) -> float:
    """A constant of a stack or an engine by its group and name."""
    group, name = path.split(".")
    return float(getattr(getattr(record, group), name))


def with_constants(record: Any, values: Mapping[str, float]) -> Any:
    """A stack or an engine with some constants set."""
    for path, value in values.items():
        group, name = path.split(".")
        record = (
            change(record, group, **{name: value})
            if isinstance(record, Stack)
            else adjust(record, **{group: {name: value}})
        )
    return record


def _solved(
    free: Sequence[str], start: Any, rows: Rows, expected: Callable[[Any, Case], ExpectedCase]
) -> dict[str, float]:
    """Constants that make what is expected what was measured: of whole steps, and more loosely of their matmuls and
    attention."""
    names = [path for path in free if constant(start, path) > 0]
    origin = numpy.log([constant(start, path) for path in names])
    kinds = [(case, kind) for case in rows for kind in _told(case, rows[case])]
    measured = numpy.log([max(getattr(rows[case], kind), 1e-9) for case, kind in kinds])
    noise = numpy.array([NOISE if kind == "seconds" else PART_NOISE for _, kind in kinds])
    at = origin.copy()

    def seconds(point: Any) -> Any:
        record = with_constants(start, dict(zip(names, numpy.exp(point).tolist(), strict=True)))
        found = {case: expected(record, case) for case in rows}
        return numpy.log([max(getattr(found[case], kind), 1e-9) for case, kind in kinds])

    for _ in range(STEPS):
        here = seconds(at)
        slopes = numpy.stack([(seconds(at + NUDGE * one) - here) / NUDGE for one in numpy.eye(len(names))], 1)
        known = [slopes / noise[:, None], numpy.eye(len(names)) / LOOSE]
        wanted = [(measured - here) / noise, (origin - at) / LOOSE]
        at = at + numpy.linalg.lstsq(numpy.concatenate(known), numpy.concatenate(wanted), rcond=None)[0]
        at = numpy.clip(at, origin - FAR, origin + FAR)  # rows that no constants explain must not send them anywhere
    return {path: float(f"{value:.3g}") for path, value in zip(names, numpy.exp(at), strict=True)}


def _told(case: Case, row: MeasuredCase) -> tuple[str, ...]:
    """What a row says: where attention is no kernel of its own, its matmuls cannot be told from others, and while
    decoding many matmuls are loops."""
    if not (row.attention and row.matmul):
        return ("seconds",)
    return ("seconds", "attention") if kind_of_case(case) == "decode" else ("seconds", "matmul", "attention")


def measured_on(settled: Settled, chip: str, source: str, date: str) -> dict[str, MeasuredOn]:
    """What the rows left out say, of training, prefill and decode."""
    found: dict[str, MeasuredOn] = {}
    for what in ("training", "prefill", "decode"):
        chosen = {case: ratio for case, ratio in settled.ratios.items() if kind_of_case(case) == what}
        fitted = sum(case.use == "fit" for case in chosen)
        out = sorted(ratio - 1 for case, ratio in chosen.items() if case.use == "left out")
        if out:
            errors = numpy.abs([1 / (1 + one) - 1 for one in out])
            found[what] = MeasuredOn(
                chip,
                what,
                source,
                date,
                fitted,
                len(out),
                round(float(numpy.median(errors)), 3),
                round(float(errors.max()), 3),
                round(out[0], 3),
                round(out[-1], 3),
            )
    return found


def kind_of_case(case: Case) -> str:
    """Training, prefill or decode."""
    return "training" if isinstance(case, TrainCase) else case.kind
