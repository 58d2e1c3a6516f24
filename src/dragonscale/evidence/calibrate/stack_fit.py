"""The few constants of a stack and an engine that no kernel measurement gives, settled on whole steps.

What is expected of a step is nearly a sum of seconds, each times a constant. From the constants as they are, a few steps of Gauss and
Newton on the logarithms of measured over expected seconds find better ones; each is held near its start as by a measurement of its own with
an error of `LOOSE`, so that what the rows do not tell stays as it was. Models left out only say how good the result is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy

from dragonscale.evidence.calibrate.stack_cases import Case, ServeCase, TrainCase
from dragonscale.evidence.calibrate.stack_expected import expected_case
from dragonscale.hardware import Slice
from dragonscale.plan.measured_on import MeasuredOn
from dragonscale.serving.engine import Engine, adjust
from dragonscale.training.stack import Stack, change

FREE_STACK = (
    "kernels.matmul", "kernels.head", "kernels.attention", "kernels.elementwise_passes", "kernels.block_bytes",
    "kernels.block_backward_bytes", "experts.route_passes", "memory.kept_moves",
)  # fmt: skip
FREE_ENGINE = (
    "kernels.matmul", "kernels.prefill_attention", "kernels.decode_attention", "kernels.elementwise", "kernels.block_bytes",
    "experts.slowdown",
)  # fmt: skip
LOOSE = 0.5
"""How far, in logarithms, a constant may be from its start as easily as a step by `NOISE` from what is expected."""
NOISE = 0.03
STEPS = 4
NUDGE = 0.05


@dataclass(frozen=True)
class Settled:
    """A stack and an engine with their constants settled, and the ratios of measured to expected seconds of every row by its case."""

    stack: Stack
    engine: Engine
    ratios: dict[Case, float]


def settle(rows: Mapping[Case, float], piece: Slice, stack: Stack, engine: Engine) -> Settled:
    """Constants from the rows to fit on (seconds by case), and how all rows then stand."""
    fit = {case: seconds for case, seconds in rows.items() if case.use == "fit"}
    training = {case: seconds for case, seconds in fit.items() if isinstance(case, TrainCase)}
    serving = {case: seconds for case, seconds in fit.items() if isinstance(case, ServeCase)}
    if training:
        found = _solved(FREE_STACK, stack, training, lambda one, case: expected_case(case, piece, one, engine).seconds)
        stack = with_constants(stack, found)
    if serving:
        found = _solved(FREE_ENGINE, engine, serving, lambda one, case: expected_case(case, piece, stack, one).seconds)
        engine = with_constants(engine, found)
    return Settled(
        stack, engine, {case: s / expected_case(case, piece, stack, engine).seconds for case, s in rows.items()}
    )


def constant(record: Any, path: str) -> float:
    """A constant of a stack or an engine by its group and name."""
    group, name = path.split(".")
    return float(getattr(getattr(record, group), name))


def with_constants(record: Any, values: Mapping[str, float]) -> Any:
    """A stack or an engine with some constants set."""
    for path, value in values.items():
        group, name = path.split(".")
        if isinstance(record, Stack):
            record = change(record, group, **{name: value})
        else:
            record = adjust(record, **{group: {name: value}})
    return record


def _solved(free: Sequence[str], start: Any, rows: Mapping[Case, float], expected: Any) -> dict[str, float]:
    """Constants that make expected seconds those of the rows."""
    names = [path for path in free if constant(start, path) > 0]
    origin = numpy.log([constant(start, path) for path in names])
    measured = numpy.log(list(rows.values()))
    at = origin.copy()

    def seconds(point: Any) -> Any:
        record = with_constants(start, dict(zip(names, numpy.exp(point).tolist(), strict=True)))
        return numpy.log([expected(record, case) for case in rows])

    for _ in range(STEPS):
        here = seconds(at)
        slopes = numpy.stack([(seconds(at + NUDGE * one) - here) / NUDGE for one in numpy.eye(len(names))], 1)
        known = [slopes / NOISE, numpy.eye(len(names)) / LOOSE]
        wanted = [(measured - here) / NOISE, (origin - at) / LOOSE]
        at = at + numpy.linalg.lstsq(numpy.concatenate(known), numpy.concatenate(wanted), rcond=None)[0]
    return {path: float(f"{value:.3g}") for path, value in zip(names, numpy.exp(at), strict=True)}


def measured_on(settled: Settled, chip: str, source: str, date: str) -> dict[str, MeasuredOn]:
    """What the rows left out say, of training, prefill and decode."""
    found: dict[str, MeasuredOn] = {}
    for what in ("training", "prefill", "decode"):
        chosen = {case: ratio for case, ratio in settled.ratios.items() if kind_of_case(case) == what}
        out = sorted(ratio - 1 for case, ratio in chosen.items() if case.use != "fit")
        if out:
            errors = numpy.abs([1 / (1 + one) - 1 for one in out])
            found[what] = MeasuredOn(
                chip, what, source, date, len(chosen) - len(out), len(out), round(float(numpy.median(errors)), 3),
                round(float(errors.max()), 3), round(out[0], 3), round(out[-1], 3),
            )  # fmt: skip
    return found


def kind_of_case(case: Case) -> str:
    """Training, prefill or decode."""
    return "training" if isinstance(case, TrainCase) else case.kind


def as_table(record: Any) -> dict[str, Any]:
    """A record's fields that differ from their defaults."""
    return msgspec.to_builtins(record)
