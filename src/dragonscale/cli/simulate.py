"""`dscale simulate MODEL --on SLICE --replicas 8 --rate 40/s`: what a fleet does under traffic."""

from typing import Annotated, Any

from cyclopts import Parameter

from dragonscale.cli.flags import Json, Plot, check_ending
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import emit_json, note, say
from dragonscale.reports.simulate.question import SimulateQuestion

MISSED = 4
EVENTS = 200_000
"""Events of a Perfetto trace at most: some tens of megabytes, which the viewer opens."""
_MODEL = "A preset (llama3-70b), a config.json, a TOML file, or a plan that `dscale serve --save` wrote."


def run(
    model: Annotated[str, Parameter(help=_MODEL)],
    /,
    *,
    question: Annotated[SimulateQuestion, Parameter(name="*")] = SimulateQuestion(),  # noqa: B008  frozen
    perfetto: Annotated[str | None, Parameter(help="Write the run as a trace for ui.perfetto.dev (JSON).")] = None,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """What does a fleet do under traffic: latencies, goodput, occupancy, and what to change?"""
    from dragonscale.reports.simulate.reading import read_question
    from dragonscale.reports.simulate.report import run_simulation

    asked = read_question(model, question, EVENTS if perfetto else 0)
    check_ending(plot)
    for text in asked.notes:
        note(text)
    with Bar("requests") as bar, Bar("rates") as runs:
        report, result = run_simulation(asked, lambda done: bar.step(done, asked.traffic.source.requests), runs.step)
    if json:
        emit_json(report)
    else:
        from dragonscale.cli.simulate_text import text_of

        say(text_of(report))
    _write(report, result, perfetto, plot, question.chart)
    return MISSED if report.meets_slo is False else 0


def _write(report: Any, result: Any, perfetto: str | None, plot: str | None, chart: str) -> None:
    from dragonscale.files import write_all

    def write_trace() -> None:
        if perfetto is not None:
            from dragonscale.simulation import save_trace

            save_trace(result.trace, perfetto)
            note(f"Wrote {perfetto}.")

    def write_chart() -> None:
        if plot is not None:
            from dragonscale.charts import save_chart
            from dragonscale.reports.simulate.charts import draw

            save_chart(draw(chart, report, result), plot)
            note(f"Wrote {plot}.")

    write_all(write_trace, write_chart)
