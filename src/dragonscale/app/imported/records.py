"""The record that `dscale import` answers with; `--json` prints it as it is."""

from typing import Any

import msgspec

from dragonscale.app.record import Record
from dragonscale.serving.plan_file import SavedPlan, save_serving_plan
from dragonscale.sheets.sheet import Block, NextStep, Prose, Sheet, Title, facts
from dragonscale.training.plan_file import TrainingFile, save_training_file


class ImportReport(Record):
    """A plan as it was read. `ignored` are options that change nothing that is planned, `unplanned` those that would
    and that the planner has no word for, `unknown` names that the software's version does not have. `workload` is the
    batch and sequence of a step, or the traffic, limits and drafts of an engine."""

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

    @property
    def file(self) -> TrainingFile | SavedPlan:
        """The plan as a plan file holds it."""
        return vars(self)["file"]

    def headline(self) -> str:
        return (
            f"{self.software}: {self.model or 'a model'} on {self.slice or 'chips that it does not name'}, "
            f"{self.plan_text}"
        )

    def sheet(self, detail: bool = False) -> Sheet:
        runs = self.stack or self.engine
        blocks: list[Block] = [
            Title(f"A {self.kind} plan of {self.software}", f"read with the names of version {self.version}"),
            facts(
                ("model", self.model or "not said"),
                ("slice", self.slice or "not said: give --on"),
                ("plan", self.plan_text),
                *((name, _shown(value)) for name, value in self.workload.items() if value),
                ("stack" if self.stack else "engine", runs),
            ),
        ]
        blocks += [Prose(text) for text in self.notes]
        if self.unplanned:
            blocks.append(Prose(f"Not planned: {', '.join(self.unplanned)}.", "warn"))
        if self.unknown:
            blocks.append(Prose(f"Unknown to {self.software} {self.version}: {', '.join(self.unknown)}.", "warn"))
        if self.ignored and detail:
            blocks.append(Prose(f"Changes nothing that is planned: {', '.join(self.ignored)}.", "dim"))
        command = vars(self).get("judge", "")
        blocks += [NextStep(command, "judges it")] if command else []
        return Sheet(tuple(blocks))

    def save(self, path: str) -> str | None:
        """Write it as a plan file."""
        if isinstance(self.file, TrainingFile):
            save_training_file(self.file, path)
            return f"; `dscale train --plan {path}` judges it"
        save_serving_plan(self.file, path)
        return f"; `dscale serve --plan {path}` judges it"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items() if one)
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_dict(plan: Any) -> dict[str, Any]:
    """A plan's settings by name."""
    return msgspec.to_builtins({name: getattr(plan, name) for name in plan.__dataclass_fields__})
