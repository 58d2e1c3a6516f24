"""The answer to `dscale calibrate --whole-steps`: whole steps of our program timed, its stack and engine settled
from them.

The answer to `dscale calibrate`: measure, fit, write; or check; or only list what would be measured.
"""

import datetime
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dragonscale.commands.calibrate import calibrate_records
from dragonscale.commands.calibrate.calibrate_blocks import calibration_blocks
from dragonscale.commands.calibrate.calibrate_records import CalibrationReport
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.verify import CalibrateQuestion
from dragonscale.commands.record import Face, bind, shared
from dragonscale.errors import InputError, unknown
from dragonscale.evidence.calibrate import cases, stack_fit
from dragonscale.evidence.calibrate.cases import BenchCase, Machine, Measurements, TimedCase
from dragonscale.evidence.calibrate.fitting import check_tables, few_cases, has_rate
from dragonscale.evidence.calibrate.measuring import BENCHES, bench_with, measure, timed
from dragonscale.evidence.calibrate.own_profile import fit_profile
from dragonscale.files import write_file
from dragonscale.listener import Listener
from dragonscale.physics.collectives.profile import expected_time
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_slice
from dragonscale.physics.hardware.driver_names import chip_named, nearest_chip
from dragonscale.physics.kernels import kernel_profile_for
from dragonscale.physics.kernels.profile_file import own_folder
from dragonscale.physics.sharding.mesh import natural_mesh
from dragonscale.serving.engine.engine import load_engine, on_kind
from dragonscale.tables import read_table
from dragonscale.training.plan.stack import load_stack, on_chip

KINDS = ("training", "prefill", "decode")


def chosen_cases(question: CalibrateQuestion) -> list[stack_fit.Case]:
    """The steps that are asked for."""
    kinds = named(question.only, "kind of step to time", KINDS) or KINDS
    return [
        case
        for case in (stack_fit.small_steps() if question.small else stack_fit.step_cases())
        if stack_fit.kind_of_case(case) in kinds
    ]


def named(text: str, what: str, names_known: Iterable[str]) -> list[str]:
    """The names of a flag's list, all of which are known."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in names_known:
            raise unknown(what, name, names_known)
    return names


def check_stack(question: CalibrateQuestion) -> None:
    """What can be told wrong before anything is loaded."""
    if question.check or question.install or question.dtypes:
        if question.check:
            wrong = "--check"
        else:
            wrong = "--install" if question.install else "--dtypes"
        raise InputError(
            f"{wrong} is about profiles of kernels; leave it out with --whole-steps, which times whole steps."
        )
    if question.timed_with not in ("", "jax"):
        raise InputError(f"--whole-steps times our own program, which is JAX; --with is {question.timed_with!r}.")
    if question.minutes == 0 and not question.records and not question.dry_run:
        raise InputError("--minutes 0 settles constants from a file of steps; name it with --records.")
    chosen_cases(question)


def measured_rows(
    question: CalibrateQuestion, path: Path, listener: Listener
) -> dict[stack_fit.Case, stack_fit.MeasuredCase]:
    """Steps timed now, and those that the file has."""
    chosen = chosen_cases(question)
    # with 0 minutes the steps of the file are all there is
    if question.minutes:
        from dragonscale.evidence.calibrate.stack_measure import measure

        done = 0

        def say(text: str) -> None:
            nonlocal done
            # a row of the file is printed for each step that was timed
            done += ": {" in text
            listener.step(min(done, len(chosen)), len(chosen))
            if question.verbose:
                listener.note(text)

        measure(chosen, path, 60 * question.minutes, say)
    rows = stack_fit.read_rows(path, chosen)
    # rows of models that are left out settle nothing
    if not any(case.use == "fit" for case in rows):
        raise InputError(f"None of the steps to settle constants on are in {str(path)!r}; give --minutes more time.")
    return rows


def fill_stack(
    report: CalibrationReport, question: CalibrateQuestion, chip: Chip, path: Path, listener: Listener
) -> CalibrationReport:
    """Time, settle and write."""
    rows = measured_rows(question, path, listener)
    listener.wait("Settling the constants.")
    slice_, start, served = parse_slice(f"{chip.name}:1"), load_stack(stack_fit.BASE), load_engine(stack_fit.ENGINE)
    # With what differs on TPUs set, and nothing left to be set again over what is settled.
    stack, engine = on_chip(start, chip.kind), on_kind(served, chip.kind)
    settled = stack_fit.settle(rows, slice_, stack, engine)
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    software = ", ".join(f"{name} {version}" for name, version in report.software.items())
    if software:
        where = f"{report.device or chip.title} ({software})"
    else:
        where = report.device or chip.title
    measured_on = stack_fit.measured_on(settled, chip.name, where, date)
    for kind, *pair, free in (
        ("stack", stack, settled.stack, stack_fit.FREE_STACK),
        ("engine", engine, settled.engine, stack_fit.FREE_ENGINE),
    ):
        for name in free:
            values = (stack_fit.constant(record, name) for record in pair)
            report.constants.append(calibrate_records.SettledConstant(kind, name, *values))
    for case, row in rows.items():
        before = stack_fit.expected_case(case, slice_, stack, engine).seconds
        # measured, expected before, and expected with the settled constants
        seconds = (row.seconds, before, row.seconds / settled.ratios[case])
        report.steps.append(calibrate_records.TimedStep(case.key, case.use, *seconds))
    for errors_of in measured_on.values():
        errors = (errors_of.rows, errors_of.left_out, errors_of.median, errors_of.worst)
        report.left_out.append(calibrate_records.LeftOutSteps(errors_of.what, *errors))
    if chip.kind == "tpu":
        tpu = {"stack": start.tpu, "engine": served.tpu}
    else:
        tpu = None
    report.measured, report.records = len(rows), str(path)
    report.unknown_rows = stack_fit.unknown_rows(path)
    report.profile = question.out or f"{Path(chip.name).stem}-stack.toml"
    write_file(report.profile, stack_fit.stack_text(settled, measured_on, where, date, tpu), "The stack")
    return report


# Of a whole step with its compiling.
STEP_SECONDS = 12.0
# Of a case with its compiling, for the estimate of --dry-run.
SECONDS_EACH = 1.2
MOST_MINUTES = 600


def ask(question: CalibrateQuestion, listener: Listener) -> CalibrationReport:
    """Read a question, measure, and fit or check."""
    _check(question)
    return _answer(question, listener).came_from(question, listener.notes)


def _answer(question: CalibrateQuestion, listener: Listener) -> CalibrationReport:
    if question.whole_steps:
        return _stack(question, listener)
    if question.minutes == 0 and question.records and not question.check and not question.dry_run:
        return _from_records(question, listener)
    # loads JAX or PyTorch
    bench = bench_with(question.timed_with, question.small)
    machine = bench.machine()
    chip = _chip(question, machine)
    listed = _cases(question, bench.dtypes(), machine.devices)
    if question.dry_run:
        report = _report(Measurements(machine, []), chip, question)
        report.planned, report.planned_s = [case.id for case in listed], SECONDS_EACH * len(listed)
        return report
    listener.wait(f"Measuring on {machine.device}; what is measured is kept, so stopping loses nothing.")
    if question.check:
        return _checked(question, bench, chip, listed, listener)
    path = Path(records_of(question, chip, machine))
    measurements = measure(bench, listed, path, 60 * question.minutes, listener, bool(question.verbose))
    return _fitted(measurements, chip, question, listener)


def _check(question: CalibrateQuestion) -> None:
    """What can be told wrong before anything is loaded."""
    if not 0 <= question.minutes <= MOST_MINUTES:
        raise InputError(f"--minutes is {question.minutes:g}; measure for 0 to {MOST_MINUTES} minutes.")
    if question.timed_with and question.timed_with not in BENCHES:
        raise unknown("software to time with", question.timed_with, BENCHES)
    if isinstance(question.on, str) and question.on.strip():
        load_chip(question.on.strip())
    if question.whole_steps:
        return check_stack(question)
    _kinds(question.only)
    _formats(question.dtypes)
    if question.check and question.install:
        raise InputError("--check looks at a profile and --install puts one in place; leave out one of them.")
    if question.check.endswith(".toml"):  # told before a device is woken
        read_table(Path(question.check), "Kernel profile")
    return None


def _stack(question: CalibrateQuestion, listener: Listener) -> CalibrationReport:
    """Whole steps instead of kernels."""
    if question.minutes or question.dry_run:
        machine = bench_with("jax", question.small).machine()
    else:
        device, software = stack_fit.read_device(Path(question.records))
        machine = Machine(device, 1, "", software, "jax", "")
    chip = _chip(question, machine)
    report = _report(Measurements(machine, []), chip, question)
    path = Path(question.records or f"{Path(chip.name).stem}-jax-steps.jsonl")
    if question.dry_run:
        report.planned = [case.key for case in chosen_cases(question)]
        report.planned_s, report.records = STEP_SECONDS * len(report.planned), str(path)
        return report
    listener.wait(f"Timing whole steps on {machine.device}; what is timed is kept, so stopping loses nothing.")
    return fill_stack(report, question, chip, path, listener)


def records_of(question: CalibrateQuestion, chip: Chip, machine: Machine) -> str:
    """The file of measurements: as given, or named after the chip and the software."""
    return question.records or f"{Path(chip.name).stem}-{machine.timed_with}-measured.jsonl"


def _from_records(question: CalibrateQuestion, listener: Listener) -> CalibrationReport:
    """A profile out of a file alone: nothing need be installed, no device be there."""
    try:
        measurements = cases.read_measurements(question.records)
    except OSError as error:
        raise InputError(f"The file {question.records!r} cannot be read: {error.strerror}.") from None
    kinds = _kinds(question.only)
    rows = [row for row in measurements.rows if row.kind in kinds]
    return _fitted(Measurements(measurements.machine, rows), _chip(question, measurements.machine), question, listener)


def _fitted(
    measurements: Measurements, chip: Chip, question: CalibrateQuestion, listener: Listener
) -> CalibrationReport:
    listener.wait("Fitting the constants.")
    fitted = fit_profile(measurements.good, measurements.machine, chip)
    report = _report(measurements, chip, question)
    report.tables = fitted.tables
    report.profile = question.out or f"{Path(chip.name).stem}-profile.toml"
    write_file(report.profile, fitted.text, "The profile")
    if question.install:
        target = own_folder() / f"{Path(chip.kin).stem}.toml"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, fitted.text, "The profile")
        report.installed = str(target)
    return report


def _checked(
    question: CalibrateQuestion, bench: Any, chip: Chip, listed: list[BenchCase], listener: Listener
) -> CalibrationReport:
    profile = kernel_profile_for(chip, question.check)
    few, rows = few_cases(listed, profile.chip), list[TimedCase]()
    # formats without a matrix rate have no roofline to check against
    without = sorted({case.dtype for case in listed if not has_rate(case, profile.chip)})
    if without:
        listener.note(f"{chip.title} has no known matrix rate for {' and '.join(without)}: left out of the check.")
    if not few:
        raise InputError("There is nothing to check: no case here is of a table that a kernel profile has.")
    for row in timed(bench, few, time.monotonic() + 60 * question.minutes):
        rows.append(row)
        listener.step(len(rows), len(few))
    measurements = Measurements(bench.machine(), rows)
    if not measurements.good:
        why = rows[0].failed if rows else "there was no time"
        raise InputError(f"None of the cases could be measured here: {why}.")
    report = _report(measurements, chip, question)
    report.records, report.checked_profile = "", f"{question.check} ({profile.title})"
    report.checked_tables, report.checked = check_tables(measurements.good, profile)
    return report


def _report(measurements: Measurements, chip: Chip, question: CalibrateQuestion) -> CalibrationReport:
    machine = measurements.machine
    # what a call costs the host, and a call with the wait for its result
    host = {row.kind: row.seconds for row in measurements.good}
    named = written(question.on).strip()
    shown = named if named.endswith(".toml") else chip.name  # a chip of one's own is known by its file
    fields: dict[str, Any] = {name: [] for name in ("planned", "tables", "checked", "checked_tables")}
    fields |= dict.fromkeys(("checked_profile", "profile", "installed"), "")
    fields |= {f"host_{what}_s": host.get(what) for what in ("dispatch", "round_trip")}
    fields |= {
        "measured": len(measurements.good),
        "failed": len(measurements.rows) - len(measurements.good),
        "planned_s": 0.0,
    }
    fields |= {"collectives": _collectives(measurements, chip), "records": records_of(question, chip, machine)}
    return CalibrationReport(**shared(CalibrationReport, machine, chip=shown, **fields))


def _collectives(measurements: Measurements, chip: Chip) -> list[calibrate_records.MeasuredCollective]:
    """Measured collectives beside the expectation of the built-in profile, where the chip has a slice of so many."""
    collectives = []
    for row in (row for row in measurements.good if row.kind == "collective"):
        size, devices = row.sizes
        try:
            mesh = natural_mesh(parse_slice(f"{chip.name}:{devices}"))
            expected = float(expected_time(row.what, size, mesh.group(tuple(mesh.axes)), profile_for(chip)))
        except InputError:
            expected = None
        collectives.append(calibrate_records.MeasuredCollective(row.what, size, devices, row.seconds, expected))
    return collectives


def _chip(question: CalibrateQuestion, machine: Machine) -> Chip:
    """The chip that the device is: as given, or by the device's name."""
    if isinstance(question.on, Chip | Slice):
        if isinstance(question.on, Chip):
            return question.on
        return question.on.chip
    named = written(question.on).strip()
    named_or_here = named or chip_named(machine.device)
    if not named_or_here:
        nearest_name = nearest_chip(machine.device)
        nearest = ""
        if nearest_name:
            nearest = f" (the nearest is {nearest_name})"
        raise InputError(
            f"The device here is {machine.device!r}, no chip of the catalogue{nearest}; name the chip that it is with "
            "--on: one of `dscale chips`, or a TOML file of your own with its datasheet's rates."
        )
    chip = load_chip(named_or_here)
    # a chip file may have the CPU's own rates
    if machine.device.strip().lower() == "cpu" and not named.endswith(".toml"):
        raise InputError(
            f"The device here is a CPU, and --on says {named}; its times would be told as those of {chip.title}. Run "
            "it where that chip is, or write a chip file with the CPU's rates and name that (--on laptop.toml)."
        )
    return chip


def _cases(question: CalibrateQuestion, dtypes: Any, devices: int) -> list[BenchCase]:
    dtypes_timed = _formats(question.dtypes) or tuple(dtypes)
    if question.small:
        all_cases = cases.small_cases(dtypes_timed[0], devices)
    else:
        all_cases = cases.all_cases(dtypes_timed, devices)
    kinds = _kinds(question.only)
    return [case for case in all_cases if case.kind in kinds]


def _formats(text: str) -> tuple[str, ...]:
    return tuple(named(text, "format to measure", cases.WIDTHS))


def _kinds(only: str) -> set[str]:
    # --only names groups of kernels, each of one or several kinds
    kinds = {kind: row["group"] for kind, row in cases.calibrated("kinds").items()}
    groups = named(only, "kind to measure", dict.fromkeys(kinds.values()))
    return {kind for kind, group in kinds.items() if not groups or group in groups}


bind(CalibrationReport, Face(sheet=calibration_blocks))
