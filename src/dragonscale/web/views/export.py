"""The plan of an answer written down for the software that runs it: names and texts of files, nothing on a disk.

`targets` says what there is; `files` (with `to`: megatron, or megatron,slurm) what is written. What a target cannot say
stands beside the files; what it cannot run is refused in a sentence.
"""

from typing import Any

from dragonscale.app.export.ask_export import ask
from dragonscale.errors import InputError, unknown
from dragonscale.exports.target import of_kind, software_for
from dragonscale.listener import Listener
from dragonscale.pasted import without_files
from dragonscale.training.plan import short_plan
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.copied import command_line
from dragonscale.web.words import question_of

KINDS = {"train": "training", "serve": "serving"}


def targets_panel(asked: PageRequest) -> dict[str, Any]:
    """Software that runs plans of this kind, the plan's own first; what launches it; what tests it."""
    of = _of(asked)
    record = asked.ask(of, asked.fields)
    name = _software(record, of)
    own = software_for(name, KINDS[of]) if name else None
    every = sorted(of_kind(KINDS[of]), key=lambda one: own is None or one.name != own.name)
    return {
        "own": own.name if own is not None else "",
        "software": [{"name": one.name, "title": one.title, "version": one.version} for one in every],
        "launchers": [{"name": one.name, "title": one.title} for one in of_kind("launcher")],
        "loads": [{"name": one.name, "title": one.title} for one in of_kind("load")] if of == "serve" else [],
    }


def files_panel(asked: PageRequest) -> dict[str, Any]:
    """The files for a target, with what is expected of them and what differs."""
    fields = export_fields(asked)
    question = question_of("export", fields)
    with without_files():
        report = ask(question, Listener())
    return {
        "target": report.target,
        "version": report.version,
        "launcher": report.launcher,
        "expected": report.expected,
        "files": [{"name": name, "text": text} for name, text in report.files.items()],
        "differences": [f"{row.planned} cannot be said there; {row.instead}: {row.why}" for row in report.differences],
        "notes": report.notes,
        "bundle": report.text(),
        "cli": command_line("export", fields),
    }


def export_fields(asked: PageRequest) -> dict[str, Any]:
    """The answer's plan as a question of `dscale export`."""
    of, to = _of(asked), asked.text("to")
    if asked.fields.get("model") in asked.dropped:
        raise InputError(
            "The files of an export name the model: save the config that was dropped beside them, and run "
            "`dscale export` with its path (Copy as CLI gives both)."
        )
    record = asked.ask(of, asked.fields)
    words = {name: asked.fields[name] for name in ("model", "price", "tokens") if asked.fields.get(name)}
    if of == "train":
        if not record.plans:
            raise InputError("There is no plan to export.")
        work, one = record.workload, record.plans[0]
        words |= {
            "plan": short_plan(one.plan),
            "on": record.slice,
            "batch": f"{work.sequences}seq",
            "seq": str(work.seq),
            "stack": one.stack,
        }
    else:
        if not record.configs:
            raise InputError("There is no configuration to export.")
        best, work = record.configs[0], record.workload
        words.pop("tokens", None)
        words |= {
            "plan": best.plan,
            "on": best.copy_slice,
            "batch": str(best.batch),
            "engine": best.engine,
            "prompt": str(work.prompt),
            "output": str(work.output),
        }
        words |= {"rate": asked.fields["rate"]} if asked.fields.get("rate") else {}
    return {"to": to, **words}


def _software(record: Any, of: str) -> str:
    if of == "train":
        return record.plans[0].stack if record.plans else ""
    return record.configs[0].engine if record.configs else ""


def _of(asked: PageRequest) -> str:
    of = asked.text("of", "train")
    if of not in KINDS:
        raise unknown("kind of plan to export called", of, KINDS)
    return of


PANELS = {"targets": targets_panel, "files": files_panel}
