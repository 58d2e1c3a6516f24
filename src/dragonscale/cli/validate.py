"""`dscale validate WHAT FILE`: predictions scored against measured runs."""

import importlib
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import App, Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.score_text import score_text
from dragonscale.cli.show import emit_json, note, say

KINDS = {
    "training": "Score expected step times and memory of training runs against measured ones.",
    "inference": "Score expected latencies and throughputs of inference runs against measured ones.",
    "serving": "Score simulated times to the first token and between tokens against measured ones.",
    "collectives": "Score expected times of collectives against measured ones.",
    "kernels": "Score expected times of single kernels against measured ones.",
    "memory": "Score expected peaks of memory, and whether runs fit, against measured ones.",
}


def build() -> App:
    """The validate command and what it can score."""
    app = App(name="validate", help="Score predictions against measured runs in a file.")
    for kind, about in KINDS.items():
        app.command(OWN.get(kind) or _scoring(kind, about), name=kind)
    return app


File = Annotated[str, Parameter(help="A CSV, plain or gzipped, of measured runs: published columns or typed ones.")]
Out = Annotated[str | None, Parameter(name="--out", help="Write id,measured,predicted,ape for every scored row.")]


def training(
    file: File,
    /,
    *,
    stack: Annotated[
        str, Parameter(help="Score every row by this stack; auto: by what people run on its chips. Else by its own.")
    ] = "",
    search: Annotated[
        bool, Parameter(negative="", help="Lay the recommended plan of every job beside the best measured one.")
    ] = False,
    jobs: Annotated[int, Parameter(help="With --search: at most so many jobs, evenly chosen (0: all).")] = 0,
    out: Out = None,
    json: Json = False,
) -> int:
    """Score expected step times and memory of training runs against measured ones."""
    from dragonscale.cli.progress import Bar
    from dragonscale.evidence.training import validate

    with Bar("jobs") as bar:
        report = validate(file, stack, search, jobs, bar.step)
    return _answer(report, out, json)


def serving(
    file: File,
    /,
    *,
    choices: Annotated[
        bool, Parameter(negative="", help="Print what the predicted best configuration costs over the measured best.")
    ] = False,
    engine: Annotated[
        str,
        Parameter(help="Score every row by this engine as it is shipped; auto: by what people run. Else by its own."),
    ] = "",
    out: Out = None,
    json: Json = False,
) -> int:
    """Score simulated times to the first token and between tokens against measured ones."""
    from dragonscale.evidence.serving import validate

    asked = {"choices": choices, "engine": bool(engine)}
    return _answer(validate(file, engine), out, json, tuple(name for name, wanted in asked.items() if wanted))


def _answer(report: Any, out: str | None, json: bool, parts: tuple[str, ...] = ()) -> int:
    from dragonscale.evidence.score import write_scores

    emit_json(report.as_json()) if json else say(score_text(report.as_json(), report.group_name, parts))
    if out:
        write_scores(report, out)
        note(f"Wrote {out}.")
    return 0


def _scoring(kind: str, about: str) -> Callable[..., int]:
    """The command of a kind; all take the same flags."""

    def command(
        file: Annotated[
            str, Parameter(help=f"A CSV, plain or gzipped, of measured {kind}: published columns or typed ones.")
        ],
        /,
        *,
        out: Out = None,
        json: Json = False,
    ) -> int:
        return _answer(importlib.import_module(f"dragonscale.evidence.{kind}").validate(file), out, json)

    command.__doc__ = about
    return command


OWN: dict[str, Callable[..., int]] = {"training": training, "serving": serving}
"""Commands with flags of their own."""
