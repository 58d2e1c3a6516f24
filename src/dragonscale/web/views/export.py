"""The plan of an answer written down for the software that runs it: names and texts of files, nothing on a disk.

`targets` says what there is; `files` (with `to`: megatron, or megatron,slurm) what is written. What a target cannot say
stands beside the files; what it cannot run is refused in a sentence.
"""

from typing import Any

from dragonscale.commands.export.ask_export import ask
from dragonscale.errors import InputError, unknown
from dragonscale.exports.target import of_kind, software_for
from dragonscale.listener import Listener
from dragonscale.pasted import without_files
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import fields
from dragonscale.web.views.copied import command_line, recommended_words
from dragonscale.web.words import question_of

KINDS = {"train": "training", "serve": "serving"}


def targets_panel(request: PageRequest) -> dict[str, Any]:
    """Software that runs plans of this kind, the plan's own first; what launches it; what tests it."""
    of = _of(request)
    record = request.ask(of, request.fields)
    names = [plan.stack for plan in record.plans] if of == "train" else [config.engine for config in record.configs]
    native = software_for(names[0], KINDS[of]) if names else None
    targets = sorted(of_kind(KINDS[of]), key=lambda target: native is None or target.name != native.name)
    return {
        "own": native.name if native is not None else "",
        "software": [fields(target, "name title version") for target in targets],
        "launchers": [fields(target, "name title") for target in of_kind("launcher")],
        "loads": [fields(target, "name title") for target in of_kind("load")] if of == "serve" else [],
    }


def files_panel(request: PageRequest) -> dict[str, Any]:
    """The files for a target, with what is expected of them and what differs."""
    export_values = export_fields(request)
    question = question_of("export", export_values)
    with without_files():
        report = ask(question, Listener())
    return {
        **fields(report, "target version launcher expected notes"),
        "files": [{"name": name, "text": text} for name, text in report.files.items()],
        "differences": [f"{row.planned} cannot be said there; {row.instead}: {row.why}" for row in report.differences],
        "bundle": report.text(),
        "cli": command_line("export", export_values),
    }


def export_fields(request: PageRequest) -> dict[str, Any]:
    """The answer's plan as a question of `dscale export`."""
    of, to = _of(request), request.text("to")
    if request.fields.get("model") in request.dropped:
        raise InputError(
            "The files of an export name the model: save the config that was dropped beside them, and run "
            "`dscale export` with its path (Copy as CLI gives both)."
        )
    record = request.ask(of, request.fields)
    export_values = {
        name: request.fields[name] for name in ("model", "price", "tokens", "numerics") if request.fields.get(name)
    }
    if not (record.plans if of == "train" else record.configs):
        raise InputError(f"There is no {'plan' if of == 'train' else 'configuration'} to export.")
    if of == "train":
        return {"to": to, **export_values, **recommended_words(of, record), "stack": record.plans[0].stack}
    export_values.pop("tokens", None)
    export_values |= recommended_words(of, record) | {"engine": record.configs[0].engine}
    export_values |= {name: str(getattr(record.workload, name)) for name in ("prompt", "output")}
    export_values |= {"rate": request.fields["rate"]} if request.fields.get("rate") else {}
    return {"to": to, **export_values}


def _of(request: PageRequest) -> str:
    of = request.text("of", "train")
    if of not in KINDS:
        raise unknown("kind of plan to export called", of, KINDS)
    return of


PANELS = {"targets": targets_panel, "files": files_panel}
