"""Plans in the words of other software, where a command takes a plan: `dscale train --plan run.sh`, `dscale serve
--plan "vllm serve …"`.

What the config says is taken as if it had been given by flags; a flag that is given wins.
"""

from dataclasses import replace
from typing import Any

from dragonscale.app.export.plans import is_foreign
from dragonscale.app.imported import report_of
from dragonscale.app.questions.flag import written
from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.serving.plan_file import SavedPlan
from dragonscale.training.plan_file import TrainingFile


def foreign_plan(plan: Any, model: Any, on: Any) -> Imported | None:
    """The plan that another software's words say; None where they are our own."""
    text = written(plan).strip()
    if not text or not is_foreign(text):
        return None
    return read_plan(text, Given(written(model), written(on)))


def told(found: Imported) -> list[str]:
    """How a foreign plan was read, in notes."""
    report = report_of(found)
    notes = [f"Read as a plan of {report.software} {report.version}: {report.plan_text}.", *found.notes]
    notes += [f"Not planned: {', '.join(found.unplanned)}."] if found.unplanned else []
    drafts = found.file.speculation if isinstance(found.file, SavedPlan) else None
    if drafts is not None and drafts.drafts and not drafts.acceptance:
        notes.append(f"It drafts {drafts.drafts} tokens, and not how many are accepted: --accept 0.7 counts them.")
    return notes + (
        [f"Unknown to {report.software} {report.version}: {', '.join(found.unknown)}."] if found.unknown else []
    )


def as_training(question: Any, found: Imported) -> tuple[Any, TrainingFile]:
    """A `TrainQuestion` whose plan is another trainer's, with the settings written out."""
    if not isinstance(found.file, TrainingFile):
        raise InputError("That is a plan for serving, which `dscale serve --plan` judges.")
    settings = {name: getattr(found.file.plan, name) for name in found.file.plan.__dataclass_fields__}
    text = ",".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()
    )
    return replace(question, plan=text), found.file


def serving_file_of(found: Imported) -> SavedPlan:
    """The serving plan of another engine's words."""
    if not isinstance(found.file, SavedPlan):
        raise InputError("That is a plan for training, which `dscale train --plan` judges.")
    return found.file
