"""`dscale sweep FILE`: a grid of questions to verify, train and serve, on all cores or on a Ray cluster."""

import sys
from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import emit_json, note, put

MISSED = 4
INTERRUPTED = 130


def run(
    file: Annotated[
        str, Parameter(help="A TOML file of tables [[verify]], [[train]] and [[serve]]; lists are combined.")
    ],
    /,
    *,
    out: Annotated[
        str, Parameter(help="Keep the answers here, a line of JSON each; what is in it is not asked again.")
    ] = "",
    table: Annotated[
        tuple[str, ...], Parameter(negative="", help="Write the rows to this file: .csv or .md; may be repeated.")
    ] = (),
    jobs: Annotated[int, Parameter(help="Processes at once; as many as there are cores without it.")] = 0,
    ray: Annotated[str, Parameter(help="Run on the Ray cluster at this address (auto, local, ray://host:10001).")] = "",
    retry: Annotated[bool, Parameter(negative="", help="Ask again what failed before.")] = False,
    cache: Annotated[bool, Parameter(help="Use what was compiled before, if nothing has changed since.")] = True,
    json: Json = False,
) -> int:
    """Many questions at once: resumable, one bad entry never stops the rest."""
    from dragonscale.cli.sweep_text import text_of
    from dragonscale.reports.sweep.report import sweep
    from dragonscale.reports.sweep.table import check_table, save_table

    for path in table:
        check_table(path)
    if sys.stderr.isatty():
        note("Sweeping; Ctrl-C stops it, and what is answered by then stays in --out.")
    with Bar("entries") as bar:
        report = sweep(file, out, jobs, ray, retry, cache, bar.step)
    emit_json(report) if json else put(text_of(report))
    for path in table:
        save_table(report, path)
        note(f"Wrote {path}.")
    if report.stopped:
        return INTERRUPTED
    differing = report.verify is not None and "differs" in report.verify.verdicts
    return MISSED if differing or report.failed else 0
