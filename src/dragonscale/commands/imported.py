"""`dscale import`: whose words they are, and the plan that they say."""

import shlex
from typing import Any

import msgspec

from dragonscale.blocks.sheet import NextStep, Prose, Sheet, Title, facts, sheet
from dragonscale.commands.questions.export import ImportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.record import Beside, Face, Record, bind, shared
from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given, Imported, as_path
from dragonscale.exports.reading import read_plan
from dragonscale.exports.target import target_named
from dragonscale.listener import Listener
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, save_serving_plan
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.plan.plan_file import TrainingFile, save_training_file
from dragonscale.training.plan.tuning import FIELDS


class ImportReport(Record):
    """A plan as it was read. `ignored` are options that change nothing that is planned, `unplanned` those that would
    and that the planner has no word for, `unknown` names that the software's version does not have. `workload` is the
    batch and sequence of a step, or the traffic, limits and drafts of an engine."""

    file = Beside[TrainingFile | SavedPlan](SavedPlan(ServingPlan()))
    """The plan as a plan file holds it."""
    judge = Beside[str]("")
    """The command that judges what was read."""

    kind: str
    software: str
    version: str
    model: str
    slice: str
    plan: dict[str, Any]
    plan_text: str
    workload: dict[str, Any]
    stack: str = ""
    engine: str = ""
    notes: list[str] = []
    ignored: list[str] = []
    unplanned: list[str] = []
    unknown: list[str] = []

    def headline(self) -> str:
        return (
            f"{self.software}: {self.model or 'a model'} on {self.slice or 'chips that it does not name'}, "
            f"{self.plan_text}"
        )


def import_blocks(report: ImportReport, detail: bool) -> Sheet:
    """What was read, and what of it changes nothing, is not planned or not known."""
    return sheet(
        Title(f"A {report.kind} plan of {report.software}", f"read with the names of version {report.version}"),
        facts(
            ("model", report.model or "not said"),
            ("slice", report.slice or "not said: give --on"),
            ("plan", report.plan_text),
            *((name, _shown(value)) for name, value in report.workload.items() if value),
            ("stack" if report.stack else "engine", report.stack or report.engine),
            ("numerics", getattr(report.file, "numerics", "")),
        ),
        *map(Prose, report.notes),
        _listed("Not planned", report.unplanned, "warn"),
        _listed(f"Unknown to {report.software} {report.version}", report.unknown, "warn"),
        _listed("Changes nothing that is planned", report.ignored if detail else [], "dim"),
        NextStep(report.judge, "judges it"),
    )


def _listed(what: str, names: list[str], tone: str) -> Prose:
    """Options that are not part of the plan; nothing where there are none."""
    return Prose(f"{what}: {', '.join(names)}." if names else "", tone)


def save_import(report: ImportReport, path: str) -> str:
    """Write it as a plan file."""
    if isinstance(report.file, TrainingFile):
        save_training_file(report.file, path)
        return f"; `dscale train --plan {path}` judges it"
    save_serving_plan(report.file, path)
    return f"; `dscale serve --plan {path}` judges it"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner)
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def ask(question: ImportQuestion, listener: Listener) -> ImportReport:
    """Read a config or a command."""
    text = written(question.config).strip()
    if not text:
        raise InputError("Say what to import: the path of a config or a script, or a command in quotes.")
    # one word that is neither a file nor a command
    if as_path(text) is None and " " not in text:
        shown = shorten(text, 120)
        raise InputError(f"There is no file {shown}; give the path of a config or a script, or a command in quotes.")
    plan_read = read_plan(text, Given(written(question.model), written(question.on)))
    report = report_of(plan_read)
    report.judge = _judging(question, text, report)
    return report.came_from(question, listener.notes)


# Characters of a command that is worth typing again; a longer one is saved first.
SHORT = 160


def _judging(question: ImportQuestion, text: str, report: ImportReport) -> str:
    """The command that judges what was read: with the flags that were given, and those that are still to give."""
    verb = "train" if report.kind == "training" else "serve"
    if len(text) < SHORT and "\n" not in text:
        plan = shlex.quote(text)
    else:
        plan = "plan.toml"
    parts = [
        f"dscale {verb}",
        *([shlex.quote(written(question.model))] if written(question.model) else []),
        "--plan",
        plan,
    ]
    if written(question.on):
        parts += ["--on", shlex.quote(report.slice)]
    if not report.slice:
        parts += ["--on SLICE"]
    if report.kind == "training":
        parts += [f"--{name} {name.upper()}" for name in ("batch", "seq") if not report.workload.get(name)]
    if plan == "plan.toml":  # which --save writes
        parts = [f"dscale {verb} --plan plan.toml  # after --save plan.toml"]
    return " ".join(parts)


def report_of(imported: Imported) -> ImportReport:
    """An import as its record."""
    file, target = imported.file, target_named(imported.target)
    training = isinstance(file, TrainingFile)
    lists = {name: list(getattr(imported, name)) for name in ("notes", "ignored", "unplanned", "unknown")}
    report = ImportReport(
        **shared(ImportReport, file, imported, plan=msgspec.to_builtins(file.plan), **lists),
        kind="training" if training else "serving",
        software=target.title,
        plan_text=short_plan(file.plan) if isinstance(file, TrainingFile) else str(file.plan),
        workload=_workload(file),
    )
    report.file = file
    return report


def _workload(file: TrainingFile | SavedPlan) -> dict[str, Any]:
    """What a file says of the work, as far as it says something."""
    # of training
    names = ("batch", "seq", "tokens", "price", "documents", *FIELDS)
    if isinstance(file, SavedPlan):
        names = ("batch", "replicas", "traffic", "targets", "launch", "speculation", "prefill")
    values = {name: msgspec.to_builtins(getattr(file, name)) for name in names}
    tables = {
        name: {key: inner for key, inner in table.items() if inner}
        for name, table in values.items()
        if isinstance(table, dict)
    }
    return {name: value for name, value in (values | tables).items() if value}


bind(ImportReport, Face(import_blocks, save=save_import))
