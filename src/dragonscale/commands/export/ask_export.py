"""`dscale export`: the plan judged as the target runs it, then written down."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.blocks.sheet import NextStep, Prose, Sheet, Title, Verbatim, facts, sheet
from dragonscale.commands.export.plans import GivenPlan, given_plan
from dragonscale.commands.export.serving import judged_serving
from dragonscale.commands.export.training import JudgedPlan, judged_training
from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.record import Face, Record, bind
from dragonscale.errors import InputError, shorten
from dragonscale.exports.loads import write_load
from dragonscale.exports.runs import Run
from dragonscale.exports.software import launcher as starts
from dragonscale.exports.software import software as exported
from dragonscale.exports.target import Target, of_kind, software_for, target_named
from dragonscale.exports.written import WrittenFiles
from dragonscale.files import write_file
from dragonscale.listener import Listener


class DifferenceRow(msgspec.Struct):
    """Something of the plan that the target cannot say."""

    setting: str
    planned: str
    instead: str
    why: str


class ExportReport(Record):
    """The files, by name; the first is what to start. `step_s`, `ttft_s` and `tpot_s` are what is expected of the plan
    as the target runs it; `planned_s` is the step, or the TPOT, of the plan as it was asked for, where the target runs
    another."""

    target: str
    version: str
    launcher: str
    model: str
    slice: str
    plan: dict[str, Any]
    files: dict[str, str]
    expected: list[str]
    differences: list[DifferenceRow] = []
    notes: list[str] = []
    step_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    planned_s: float | None = None
    hbm_bytes: float | None = None
    written: list[str] = []
    """The paths that were written."""

    ROWS = ""

    def headline(self) -> str:
        return f"{self.model} on {self.slice} for {self.target} {self.version}: {', '.join(self.files)}"

    def text(self) -> str:
        """The files one after the other, each after its name where there are several."""
        if len(self.files) == 1:
            return next(iter(self.files.values())).rstrip("\n")
        return "\n\n".join(f"# ---- {name} ----\n{text.rstrip()}" for name, text in self.files.items())

    def write_into(self, folder: str, overwrite: bool = False) -> None:
        """Write the files into a folder; files that are there stay unless they may be written over."""
        place = Path(folder)
        if place.exists() and not place.is_dir():
            raise InputError(f"--out is {shorten(folder)}, which is a file; give a folder.")
        there = [name for name in self.files if (place / name).exists()]
        if there and not overwrite:
            raise InputError(f"{shorten(str(place / there[0]))} is there already; give --overwrite or another --out.")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"The folder {shorten(folder)} cannot be made: {error.strerror}.") from None
        for name, text in self.files.items():
            write_file(place / name, text, "The export")
            if name.endswith((".sh", ".sbatch")):
                (place / name).chmod(0o755)
        self.written = [str(place / name) for name in self.files]


def ask(question: ExportQuestion, listener: Listener) -> ExportReport:
    """Read a plan, judge it under the target's software, write it down."""
    software, launcher, load = targets(question.to)
    plan = given_plan(question, _kind(software, load))
    for text in plan.notes:
        listener.note(text)
    software = software or _own_software(plan, load)
    judge = judged_training if plan.kind == "training" else judged_serving
    judged = judge(question, plan, software, None)
    if load is not None:
        made: WrittenFiles = write_load(load, judged.run, software)  # pyright: ignore[reportArgumentType]
    else:
        made = _written(judged.run, software, launcher)
        if made.as_run is not None and made.as_run != judged.run.file.plan:
            # what runs is another plan: its time and memory are told in the files too
            judged = judge(question, plan, software, made.as_run)
        if made.notes or made.as_run is not None:
            judged = replace(judged, run=replace(judged.run, notes=made.notes))
            made = _written(judged.run, software, launcher)
        made = launched(judged.run, software, launcher, made)
    report = _report(judged, software, launcher, load, made)
    for row in made.differences:
        listener.note(f"{row}.")
    for text in judged.run.expected[1:]:
        listener.note(f"{text[:1].upper()}{text[1:]}")
    for text in made.notes:
        listener.note(text)
    if question.out.strip():
        report.write_into(question.out.strip(), question.overwrite)
    return report.came_from(question, listener.notes)


def _written(run: Run, software: Target, launcher: Target | None) -> WrittenFiles:
    """What the software's module writes; what is to be put before the servers is a note where the launcher does not see
    to it."""
    made: WrittenFiles = exported(software).write(run)
    routes = starts(launcher).ROUTES if launcher is not None else ""
    alone = len(made.programs) == 1
    return made if routes == "programs" or (routes and alone) else replace(made, notes=(*made.notes, *made.routing))


def launched(run: Run, software: Target, launcher: Target | None, made: WrittenFiles) -> WrittenFiles:
    """What was written with what starts it: a shell script unless another launcher was named. A target that starts its
    programs itself has none to launch."""
    if not made.programs:
        if launcher is not None:
            raise InputError(f"{software.title} starts its own pods; leave {launcher.name} out.")
        return made
    module = starts(launcher or target_named("shell"))
    files = module.launch(run, software, made)
    return replace(made, files=files) if module.HOLDS_FILES else made.plus(files)


def _report(
    judged: JudgedPlan, software: Target, launcher: Target | None, load: Target | None, made: WrittenFiles
) -> ExportReport:
    run = judged.run
    rows = [DifferenceRow(one.setting, one.planned, one.instead, one.why) for one in made.differences]
    named = load or software
    return ExportReport(
        named.name,
        named.version,
        launcher.name if launcher else "shell" if made.programs and not load else "",
        run.model.name,
        str(run.slice),
        msgspec.to_builtins(run.file.plan),
        dict(made.files),
        list(run.expected),
        rows,
        list(made.notes),
        written=[],
        **judged.numbers,
    )


def targets(text: str) -> tuple[Target | None, Target | None, Target | None]:
    """The software, the launcher and the load generator that were named.

    >>> [one and one.name for one in targets("megatron,slurm")]
    ['megatron', 'slurm', None]
    """
    found: dict[str, Target] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        target = target_named(name)
        kind = "software" if target.kind in ("training", "serving") else target.kind
        if kind in found:
            raise InputError(
                f"--to names {found[kind].name} and {target.name}; one of a kind can be written at a time."
            )
        found[kind] = target
    if not found:
        raise InputError(f"Say what to write the plan for: --to {', '.join(one.name for one in of_kind('training'))} …")
    if "load" in found and "launcher" in found:
        raise InputError("A load test is a command of its own; leave the launcher out.")
    return found.get("software"), found.get("launcher"), found.get("load")


def _kind(software: Target | None, load: Target | None) -> str:
    return "serving" if load is not None else software.kind if software is not None else ""


def _own_software(plan: GivenPlan, load: Target | None) -> Target:
    """The software that a plan is for, where only a launcher or a load test was named; a load test of an engine means
    that engine."""
    name = plan.file.stack if plan.kind == "training" else plan.file.engine  # pyright: ignore[reportAttributeAccessIssue]
    found = software_for(name, plan.kind) if name else None
    if found is None and load is not None and not name:
        found = target_named(load.runs[0])
    if found is None:
        options = ", ".join(target.name for target in of_kind(plan.kind))
        said = f"is made for {name}, which no target runs" if name else "does not say its software"
        raise InputError(f"The plan {shorten(written(plan.shown))} {said}; name one: --to {options}.")
    return found


def export_blocks(report: ExportReport, _detail: bool) -> Sheet:
    """The files themselves where nothing was written; a list of them where it was."""
    if not report.written:
        return Sheet((Verbatim(report.text()),))
    files = [("" if place else "files", path) for place, path in enumerate(report.written)]
    return sheet(
        Title(f"{report.model} on {report.slice}", f"for {report.target} {report.version}".strip()),
        facts(*files, *(("expected", text) for text in report.expected[:1])),
        *(Prose(f"{row.planned} cannot be said there; {row.instead}.", "warn") for row in report.differences),
        NextStep(f"dscale import {report.written[0]}", "reads it back"),
    )


bind(ExportReport, Face(export_blocks, save=lambda report, path: report.write_into(path)))
