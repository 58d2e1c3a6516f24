"""The plan that an export is given: a file of ours, settings, or the words of another software."""

from dataclasses import dataclass, replace
from pathlib import Path

from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given, Source, as_path
from dragonscale.exports.launchers.unwrap import unwrapped
from dragonscale.exports.reading import read_plan, recognised
from dragonscale.plan.plan_file import names_config, starts_server
from dragonscale.serving.engine.plan_file import SERVING_ONLY, SavedPlan, load_serving_plan, read_serving_plan
from dragonscale.tables import read_table
from dragonscale.training.plan.plan_file import TrainingFile, given_settings, load_training_file, parse_plan


@dataclass(frozen=True)
class GivenPlan:
    """A plan, what kind it is, and how it was read."""

    kind: str
    file: TrainingFile | SavedPlan
    shown: str
    notes: tuple[str, ...] = ()


def is_foreign(text: str) -> bool:
    """Whether a plan as it was given is in another software's words: a file that is not a plan of
    ours, or a command."""
    path = as_path(text)
    if path is None:
        flagged = len(text.split()) > 2 and any(word.startswith("-") for word in text.split())
        whole = "\n" in text.strip() or text.startswith("{") or names_config(text) or starts_server(text)
        return flagged or (whole and recognised(unwrapped(Source(text))) is not None)
    return path.is_dir() or not _is_ours(path)


def _is_ours(path: Path) -> bool:
    """A TOML file with a plan's entries, and not another software's."""
    if path.suffix.lower() != ".toml":
        return False
    return recognised(Source.at(path)) is None


def given_plan(question: ExportQuestion, kind: str) -> GivenPlan:
    """The plan that a question names; `kind` is what the target runs, empty where only a launcher is named."""
    text = written(question.plan).strip()
    if not text:
        raise InputError("Say which plan to export: a file that train or serve --save wrote, or settings such as tp8.")
    if is_foreign(text):
        found = read_plan(text, Given(written(question.model), written(question.on)))
        own = "training" if isinstance(found.file, TrainingFile) else "serving"
        _check_kind(own, kind, text)
        return GivenPlan(own, found.file, text, (f"Read as a plan of {found.target}.", *found.notes))
    if as_path(text) is not None or text.endswith(".toml"):
        own = kind_of(text)
        _check_kind(own, kind, text)
        file = load_training_file(text) if own == "training" else load_serving_plan(text)
        return GivenPlan(own, file, text)
    own = kind or ("serving" if question.engine or question.prompt else "training")
    if own == "training":
        return GivenPlan(own, TrainingFile(parse_plan(text), named=given_settings(text)), text)
    return GivenPlan(own, read_serving_plan(text), text)


def kind_of(path: str) -> str:
    """What kind of plan a file of ours holds."""
    table = read_table(Path(path.strip()), "Plan file")
    settings = table.get("plan", table)
    serves = not SERVING_ONLY.isdisjoint(table) or (
        isinstance(settings, dict) and not {"kv", "weights", "spread"}.isdisjoint(settings)
    )
    return "serving" if serves and "run" not in table else "training"


def _check_kind(own: str, kind: str, text: str) -> None:
    if kind and kind != own:
        raise InputError(f"{shorten(text)} is a {own} plan, and --to names software for {kind}.")


def with_flags(file: TrainingFile, question: ExportQuestion) -> TrainingFile:
    """A training plan's file with what the flags say."""
    words = {
        "model": written(question.model),
        "slice": written(question.on),
        "tokens": question.tokens.strip(),
        "price": question.price.strip(),
        "numerics": question.numerics.strip(),
    }
    return replace(file, **{name: value for name, value in words.items() if value})
