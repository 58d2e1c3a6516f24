"""A pasted command or config of another software, read as a plan and made a question of the page's own.

What is pasted is anyone's text: it is read and never run, and while it is read no word of it names a file
(`without_files`). What was understood comes back with the fields that ask for its judgement, so that the page judges it
as it judges what is typed.

>>> from dragonscale.web.page_request import PageRequest
>>> request = PageRequest.read(
...     {"view": "judge", "text": "vllm serve meta-llama/Meta-Llama-3-8B -tp 2", "on": "h100"}, lambda _: None
... )
>>> found = read_panel(request)
>>> found["view"], found["fields"]["on"], found["fields"]["plan"]
('serve', 'h100:2', 'tensor=2,weights=bf16,kv=bf16,compute=bf16,wire=bf16')
"""

import dataclasses
from typing import Any

from dragonscale.commands.foreign import as_training
from dragonscale.commands.imported import report_of
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.plan_flags import said_by
from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.pasted import without_files
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import TrainingFile
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import fields
from dragonscale.web.words import looks_like_file

LONGEST = 100_000
"""Characters that may be pasted."""
_NEEDED = {"train": ("model", "on", "batch", "seq"), "serve": ("model", "on")}


def read_panel(request: PageRequest) -> dict[str, Any]:
    """What was understood, what was not, and the question that judges it."""
    text = request.text("text").strip()
    stated = {name: request.text(name).strip() for name in ("model", "on")}
    if not text:
        raise InputError("Paste a command (vllm serve …, torchrun … pretrain_gpt.py …) or a config.")
    if len(text) > LONGEST:
        raise InputError(f"The text has {len(text):,} characters; at most {LONGEST:,} are read.")
    for name, word in stated.items():
        if looks_like_file(word):
            raise InputError(f"{name} is {word!r}, which looks like a file; the page reads none.")
    with without_files():
        imported = read_plan(text, Given(stated["model"], stated["on"]))
        report = report_of(imported)
        view, question = _question(imported)
    question |= {name: word for name, word in stated.items() if word and not question.get(name)}
    return {
        "view": view,
        "fields": question,
        **fields(report, "software version notes ignored unplanned unknown"),
        "plan": report.plan_text,
        "settings": report.plan,
        "headline": report.headline(),
        "missing": [name for name in _NEEDED[view] if not question.get(name)],
    }


def _question(imported: Imported) -> tuple[str, dict[str, Any]]:
    """The view that judges a plan, and its fields."""
    file = imported.file
    if isinstance(file, TrainingFile):
        _, saved = as_training(TrainQuestion(), imported)
        stated = {name: value for name, value in said_by(saved).items() if name != "skew" or value != 1}
        return "train", {**stated, "plan": _whole_plan(saved.plan), "alone": True}
    return "serve", {name: value for name, value in _served(file).items() if value not in ("", None, 0)}


def _whole_plan(plan: Plan) -> str:
    """A plan with every setting written out, so that the form fills in none of them."""
    settings: list[str] = []
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        settings.append(f"{field.name}={text}")
    return ",".join(settings)


def _served(file: SavedPlan) -> dict[str, Any]:
    """A serving plan's file as fields."""
    plain, notes = type(file.plan)(), list[str]()
    for name in file.plan.__dataclass_fields__:
        value = getattr(file.plan, name)
        named = file.whole if name == "tensor" else not file.named or name in file.named
        if named and value != "" and (name in _FORMATS or value != getattr(plain, name)):
            notes.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}")
    text = ",".join(notes)
    drafts, traffic = file.speculation, file.traffic
    return {
        **fields(file, "model engine"),
        "on": file.slice,
        "plan": text or f"tensor={file.plan.tensor}",
        "batch": str(file.batch or ""),
        "prompt": str(traffic.prompt or ""),
        "output": str(traffic.output or ""),
        **fields(traffic, "cached rate"),
        **fields(file.targets, "ttft tpot itl e2e"),
        **fields(file.launch, "max_seqs token_budget memory_fraction"),
        "accept": drafts.acceptance,
        "drafts": drafts.drafts if drafts.acceptance else None,
        "draft": drafts.draft if drafts.acceptance else "",
    }


_FORMATS = ("weights", "compute", "kv", "wire", "attention")
PANELS = {"read": read_panel}
