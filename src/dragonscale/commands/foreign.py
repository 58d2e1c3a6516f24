"""Plans in the words of other software, where a command takes a plan: `dscale train --plan run.sh`, `dscale serve
--plan "vllm serve …"`.

What the config says is taken as if it had been given by flags; a flag that is given wins.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.commands.questions.flag import written
from dragonscale.errors import InputError
from dragonscale.plan.plan_file import names_config, starts_server
from dragonscale.tables import read_regular
from dragonscale.training.plan.plan_file import TrainingFile, is_plan_path

if TYPE_CHECKING:  # exports are a large room, which most plans do without
    from dragonscale.exports.imported import Imported
    from dragonscale.serving.engine.plan_file import SavedPlan

_OURS = re.compile(r"^\s*\[plan\]", re.MULTILINE)


def foreign_plan(plan: Any, model: Any, on: Any) -> "Imported | None":
    """The plan that another software's words say; None where they are our own."""
    text = written(plan).strip()
    if not text or not _may_be_foreign(text):
        return None
    from dragonscale.commands.export.plans import is_foreign
    from dragonscale.exports.imported import Given
    from dragonscale.exports.reading import read_plan

    if is_foreign(text):
        return read_plan(text, Given(written(model), written(on)))
    return None


def _may_be_foreign(text: str) -> bool:
    """Whether it is worth to ask exporters whose words these are: a command, or a file that is not plainly ours."""
    parts = text.split()
    if (
        "\n" in text
        or text.startswith("{")
        or names_config(text)
        or starts_server(text)
        or (len(parts) > 2 and any(word.startswith("-") for word in parts))
    ):
        return True
    try:
        path = Path(text).expanduser()
        if not path.exists():
            return False
        return not (is_plan_path(text) and _OURS.search(read_regular(path, "Plan").decode("utf-8")))
    except (OSError, RuntimeError, ValueError):  # what cannot be read is told where it is read in earnest
        return is_plan_path(text)


def told(imported: "Imported") -> list[str]:
    """How a foreign plan was read, in notes."""
    from dragonscale.commands.imported import report_of

    report = report_of(imported)
    text = f"{report.plan_text}{_tuned(imported.file)}"
    notes = [f"Read as a plan of {report.software} {report.version}: {text}.", *imported.notes]
    if imported.unplanned:
        notes += [f"Not planned: {', '.join(imported.unplanned)}."]
    drafts = None
    if not isinstance(imported.file, TrainingFile):
        drafts = imported.file.speculation
    if drafts is not None and drafts.drafts and not drafts.acceptance:
        notes.append(f"It drafts {drafts.drafts} tokens, and not how many are accepted: --accept 0.7 counts them.")
    unknown = f"Unknown to {report.software} {report.version}: {', '.join(imported.unknown)}."
    if imported.unknown:
        return [*notes, unknown]
    return notes


def _tuned(file: "TrainingFile | SavedPlan") -> str:
    """What of the model is trained, where that is not all of it."""
    if not isinstance(file, TrainingFile) or not file.method:
        return ""
    rank = ""
    if file.lora_rank:
        rank = f" rank {file.lora_rank} ({file.lora_targets or 'all'})"
    return f", {file.method}{rank}" + (f" on {file.frozen}" if file.frozen else "")


def as_training(question: Any, imported: "Imported") -> tuple[Any, TrainingFile]:
    """A `TrainQuestion` whose plan is another trainer's, as the object that it was read into."""
    if not isinstance(imported.file, TrainingFile):
        raise InputError("That is a plan for serving, which `dscale serve --plan` judges.")
    return replace(question, plan=imported.file.plan), imported.file


def serving_file_of(imported: "Imported") -> "SavedPlan":
    """The serving plan of another engine's words."""
    if isinstance(imported.file, TrainingFile):
        raise InputError("That is a plan for training, which `dscale train --plan` judges.")
    return replace(imported.file, served_length=imported.served_length or 0)


def script_plan(path: str, on: Any) -> "SavedPlan":
    """The serving plan of a script or config of another engine that stands in the place of a model."""
    from dragonscale.exports.imported import Given
    from dragonscale.exports.reading import read_plan

    return serving_file_of(read_plan(path, Given(slice=written(on))))
