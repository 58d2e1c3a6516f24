"""`dscale export`: the plan judged as the target runs it, then written down."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.blocks.sheet import NextStep, Prose, Sheet, Title, Verbatim, facts, sheet
from dragonscale.commands.export.plans import GivenPlan, given_plan
from dragonscale.commands.export.serving import judged_serving
from dragonscale.commands.export.training import JudgedPlan, judged_training
from dragonscale.commands.given import comma_list
from dragonscale.commands.questions.export import ExportQuestion
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
from dragonscale.training.plan.plan_file import TrainingFile


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
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise InputError(f"--out is {shorten(folder)}, which is a file; give a folder.")
        paths = {name: target / name for name in self.files}
        existing = next((path for path in paths.values() if path.exists()), None)
        if existing is not None and not overwrite:
            raise InputError(f"{shorten(str(existing))} is there already; give --overwrite or another --out.")
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"The folder {shorten(folder)} cannot be made: {error.strerror}.") from None
        for name, path in paths.items():
            write_file(path, self.files[name], "The export")
            if name.endswith((".sh", ".sbatch")):
                path.chmod(0o755)
        self.written = list(map(str, paths.values()))


@dataclass(frozen=True)
class NamedTargets:
    """What `--to` names: the software, the launcher and the load generator, each where it names one."""

    software: Target | None = None
    launcher: Target | None = None
    load: Target | None = None

    @property
    def kind(self) -> str:
        """The kind of plans that the targets run; empty where only a launcher is named."""
        if self.load is not None:
            return "serving"
        if self.software is None:
            return ""
        return self.software.kind


def ask(question: ExportQuestion, listener: Listener) -> ExportReport:
    """Read a plan, judge it under the target's software, write it down."""
    targets = named_targets(question.to)
    plan = given_plan(question, targets.kind)
    for text in plan.notes:
        listener.note(text)
    software = targets.software or _software_of(plan, targets.load)
    if plan.kind == "training":
        judge = judged_training
    else:
        judge = judged_serving
    judged = judge(question, plan, software, None)
    if targets.load is not None:
        output: WrittenFiles = write_load(targets.load, judged.run, software)  # pyright: ignore[reportArgumentType]
    else:
        output = _written(judged.run, software, targets.launcher)
        if output.as_run is not None and output.as_run != judged.run.file.plan:
            # what runs is another plan: its time and memory are told in the files too
            judged = judge(question, plan, software, output.as_run)
        # the first pass found what the files have to say
        if output.notes or output.as_run is not None:
            judged = replace(judged, run=replace(judged.run, notes=output.notes))
            output = _written(judged.run, software, targets.launcher)
        output = launched(judged.run, software, targets.launcher, output)
    report = _report(judged, software, targets, output)
    for difference in output.differences:
        listener.note(f"{difference}.")
    for text in judged.run.expected[1:]:
        listener.note(f"{text[:1].upper()}{text[1:]}")
    for text in output.notes:
        listener.note(text)
    if question.out.strip():
        report.write_into(question.out.strip(), question.overwrite)
    return report.came_from(question, listener.notes)


def _written(run: Run, software: Target, launcher: Target | None) -> WrittenFiles:
    """What the software's module writes; a note says what to put before the servers where the launcher does not."""
    output: WrittenFiles = exported(software).write(run)
    routes = ""
    if launcher is not None:
        routes = starts(launcher).ROUTES
    if routes == "programs" or (routes and len(output.programs) == 1):
        return output
    return replace(output, notes=(*output.notes, *output.routing))


def launched(run: Run, software: Target, launcher: Target | None, output: WrittenFiles) -> WrittenFiles:
    """What was written with what starts it: a shell script unless another launcher was named. A target that starts its
    programs itself has none to launch."""
    if not output.programs:
        if launcher is not None:
            raise InputError(f"{software.title} starts its own pods; leave {launcher.name} out.")
        return output
    module = starts(launcher or target_named("shell"))
    files = module.launch(run, software, output)
    if module.HOLDS_FILES:
        return replace(output, files=files)
    return output.plus(files)


def _report(judged: JudgedPlan, software: Target, targets: NamedTargets, output: WrittenFiles) -> ExportReport:
    run, target = judged.run, targets.load or software
    launcher = ""
    if targets.launcher is not None:
        launcher = targets.launcher.name
    elif output.programs and targets.load is None:
        launcher = "shell"
    return ExportReport(
        target=target.name,
        version=target.version,
        launcher=launcher,
        model=run.model.name,
        slice=str(run.slice),
        plan=msgspec.to_builtins(run.file.plan),
        files=dict(output.files),
        expected=list(run.expected),
        differences=[DifferenceRow(row.setting, row.planned, row.instead, row.why) for row in output.differences],
        notes=list(output.notes),
        written=[],
        **judged.numbers,
    )


def named_targets(text: str) -> NamedTargets:
    """The targets of `--to`, of which each kind may be named once.

    >>> targets = named_targets("megatron,slurm")
    >>> targets.software.name, targets.launcher.name, targets.load
    ('megatron', 'slurm', None)
    """
    by_kind: dict[str, Target] = {}
    for name in comma_list(text):
        target = target_named(name)
        if target.kind in ("training", "serving"):
            kind = "software"
        else:
            kind = target.kind
        if kind in by_kind:
            raise InputError(
                f"--to names {by_kind[kind].name} and {target.name}; one of a kind can be written at a time."
            )
        by_kind[kind] = target
    if not by_kind:
        names = ", ".join(target.name for target in of_kind("training"))
        raise InputError(f"Say what to write the plan for: --to {names} …")
    targets = NamedTargets(**by_kind)
    if targets.load and targets.launcher:
        raise InputError("A load test is a command of its own; leave the launcher out.")
    return targets


def _software_of(plan: GivenPlan, load: Target | None) -> Target:
    """The software that a plan is for, where only a launcher or a load test was named; a load test of an engine means
    that engine."""
    if isinstance(plan.file, TrainingFile):
        name = plan.file.stack
    else:
        name = plan.file.engine
    software = None
    if name:
        software = software_for(name, plan.kind)
    if software is not None:
        return software
    if load is not None and not name:
        return target_named(load.runs[0])
    options = ", ".join(target.name for target in of_kind(plan.kind))
    if name:
        why = f"is made for {name}, which no target runs"
    else:
        why = "does not say its software"
    raise InputError(f"The plan {shorten(plan.text)} {why}; name one: --to {options}.")


def export_blocks(report: ExportReport, _detail: bool) -> Sheet:
    """The files themselves where nothing was written; a list of them where it was."""
    if not report.written:
        return Sheet((Verbatim(report.text()),))
    first, *others = report.written
    files = [("files", first), *(("", path) for path in others)]
    return sheet(
        Title(f"{report.model} on {report.slice}", f"for {report.target} {report.version}".strip()),
        facts(*files, *(("expected", text) for text in report.expected[:1])),
        *(Prose(f"{row.planned} cannot be said there; {row.instead}.", "warn") for row in report.differences),
        NextStep(f"dscale import {report.written[0]}", "reads it back"),
    )


bind(ExportReport, Face(export_blocks, save=lambda report, path: report.write_into(path)))
