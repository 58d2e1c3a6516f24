"""The answer to `dscale calibrate --stack`: whole steps of our own program timed, the constants of its stack and engine
settled."""

import datetime
from collections.abc import Iterable
from pathlib import Path

from dragonscale.app.calibrate.calibrate_records import CalibrationReport, LeftOutSteps, SettledConstant, TimedStep
from dragonscale.app.questions.verify import CalibrateQuestion
from dragonscale.errors import InputError, unknown
from dragonscale.evidence.calibrate.stack_cases import (
    Case,
    MeasuredCase,
    cases,
    read_rows,
    small_cases,
    unknown_rows,
)
from dragonscale.evidence.calibrate.stack_fit import (
    BASE,
    ENGINE,
    FREE_ENGINE,
    FREE_STACK,
    constant,
    expected_case,
    kind_of_case,
    measured_on,
    settle,
    stack_text,
)
from dragonscale.files import write_file
from dragonscale.listener import Listener
from dragonscale.physics.hardware import Chip, parse_slice
from dragonscale.serving.engine import load_engine, on_kind
from dragonscale.training.stack import load_stack, on_chip

KINDS = ("training", "prefill", "decode")


def chosen_cases(question: CalibrateQuestion) -> list[Case]:
    """The steps that are asked for."""
    kinds = named(question.only, "kind of step to time", KINDS) or KINDS
    return [case for case in (small_cases() if question.small else cases()) if kind_of_case(case) in kinds]


def named(text: str, what: str, known: Iterable[str]) -> list[str]:
    """The names of a flag's list, all of which are known."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return names


def check_stack(question: CalibrateQuestion) -> None:
    """What can be told wrong before anything is loaded."""
    if question.check or question.install or question.dtypes:
        wrong = "--check" if question.check else "--install" if question.install else "--dtypes"
        raise InputError(f"{wrong} is about profiles of kernels; leave it out with --stack, which times whole steps.")
    if question.timed_with not in ("", "jax"):
        raise InputError(f"--stack times our own program, which is JAX; --with is {question.timed_with!r}.")
    if question.minutes == 0 and not question.records and not question.dry_run:
        raise InputError("--minutes 0 settles constants from a file of steps; name it with --records.")
    chosen_cases(question)


def measured_rows(question: CalibrateQuestion, path: Path, listener: Listener) -> dict[Case, MeasuredCase]:
    """Steps timed now, and those that the file has."""
    chosen = chosen_cases(question)
    if question.minutes:
        from dragonscale.evidence.calibrate.stack_measure import measure

        done = 0

        def say(text: str) -> None:
            nonlocal done
            done += ": {" in text
            listener.step(min(done, len(chosen)), len(chosen))
            if question.log:
                listener.note(text)

        measure(chosen, path, 60 * question.minutes, say)
    rows = read_rows(path, chosen)
    if not any(case.use == "fit" for case in rows):
        raise InputError(f"None of the steps to settle constants on are in {str(path)!r}; give --minutes more time.")
    return rows


def fill_stack(
    report: CalibrationReport, question: CalibrateQuestion, chip: Chip, path: Path, listener: Listener
) -> CalibrationReport:
    """Time, settle and write."""
    rows = measured_rows(question, path, listener)
    listener.wait("Settling the constants.")
    piece, start, served = parse_slice(f"{chip.name}:1"), load_stack(BASE), load_engine(ENGINE)
    # With what differs on TPUs set, and nothing left to be set again over what is settled.
    stack, engine = on_chip(start, chip.kind), on_kind(served, chip.kind)
    settled = settle(rows, piece, stack, engine)
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    software = ", ".join(f"{name} {version}" for name, version in report.software.items())
    where = f"{report.device or chip.title} ({software})" if software else report.device or chip.title
    found = measured_on(settled, chip.name, where, date)
    report.constants = [
        SettledConstant(kind, path, constant(before, path), constant(after, path))
        for kind, before, after, free in (
            ("stack", stack, settled.stack, FREE_STACK),
            ("engine", engine, settled.engine, FREE_ENGINE),
        )
        for path in free
    ]
    report.steps = [
        TimedStep(
            case.key,
            case.use,
            row.seconds,
            expected_case(case, piece, stack, engine).seconds,
            row.seconds / settled.ratios[case],
        )
        for case, row in rows.items()
    ]
    report.left_out = [LeftOutSteps(one.what, one.rows, one.left_out, one.median, one.worst) for one in found.values()]
    tpu = {"stack": start.tpu, "engine": served.tpu} if chip.kind == "tpu" else None
    report.measured, report.records = len(rows), str(path)
    report.unknown_rows = unknown_rows(path)
    report.profile = question.profile or f"{Path(chip.name).stem}-stack.toml"
    write_file(report.profile, stack_text(settled, found, where, date, tpu), "The stack")
    return report
