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
    """A plan, whether it is of training or of serving, the text it was read from, and how that was read."""

    kind: str
    file: TrainingFile | SavedPlan
    text: str
    notes: tuple[str, ...] = ()


def is_foreign(text: str) -> bool:
    """Whether a plan is in another software's words: a command, or a file or folder that is not a plan file of ours."""
    path = as_path(text)
    if path is not None:
        return path.is_dir() or path.suffix.lower() != ".toml" or recognised(Source.at(path)) is not None
    if len(text.split()) > 2 and any(word.startswith("-") for word in text.split()):
        return True
    whole_file = "\n" in text.strip() or text.startswith("{") or names_config(text) or starts_server(text)
    return whole_file and recognised(unwrapped(Source(text))) is not None


def given_plan(question: ExportQuestion, kind: str) -> GivenPlan:
    """The plan that a question names; `kind` is what the target runs, empty where only a launcher is named."""
    text = written(question.plan).strip()
    if not text:
        raise InputError("Say which plan to export: a file that train or serve --save wrote, or settings such as tp8.")
    if is_foreign(text):
        plan = read_plan(text, Given(written(question.model), written(question.on)))
        if isinstance(plan.file, TrainingFile):
            plan_kind = "training"
        else:
            plan_kind = "serving"
        _check_kind(plan_kind, kind, text)
        return GivenPlan(plan_kind, plan.file, text, (f"Read as a plan of {plan.target}.", *plan.notes))
    if as_path(text) is not None or text.endswith(".toml"):
        plan_kind = kind_of(text)
        _check_kind(plan_kind, kind, text)
        if plan_kind == "training":
            file = load_training_file(text)
        else:
            file = load_serving_plan(text)
        return GivenPlan(plan_kind, file, text)
    # settings alone are of the kind that the target or the other flags are of
    if (kind or ("serving" if question.engine or question.prompt else "training")) == "serving":
        return GivenPlan("serving", read_serving_plan(text), text)
    return GivenPlan("training", TrainingFile(parse_plan(text), named=given_settings(text)), text)


def kind_of(path: str) -> str:
    """Whether a plan file of ours is of training or of serving."""
    table = read_table(Path(path.strip()), "Plan file")
    if "run" in table:
        return "training"
    settings = table.get("plan", table)
    formats = isinstance(settings, dict) and not {"kv", "weights", "spread"}.isdisjoint(settings)
    if formats or not SERVING_ONLY.isdisjoint(table):
        return "serving"
    return "training"


def _check_kind(plan_kind: str, kind: str, text: str) -> None:
    if kind and kind != plan_kind:
        raise InputError(f"{shorten(text)} is a {plan_kind} plan, and --to names software for {kind}.")


def with_flags(file: TrainingFile, question: ExportQuestion) -> TrainingFile:
    """A training plan's file with what the flags say."""
    return replace(
        file,
        model=written(question.model) or file.model,
        slice=written(question.on) or file.slice,
        tokens=question.tokens.strip() or file.tokens,
        price=question.price.strip() or file.price,
        numerics=question.numerics.strip() or file.numerics,
    )
