"""`dscale train MODEL --on SLICE --batch 4M --seq 8192`: how to split a training run, how long it takes, what bounds it."""

from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from dragonscale.cli.flags import Json, Plot, Verify, check_ending
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import note, put
from dragonscale.cli.verify import conclude
from dragonscale.errors import InputError

INFEASIBLE = 3

WHERE = (
    "A slice (v5p:8x16x16, h100:4096), or several (h100:64,v5p:4x4x8, or --on again). A chip alone (h100) asks for the fewest of them; "
    "'any' or 'all' for the cheapest slice of the catalogue."
)


def run(
    model: Annotated[
        str,
        Parameter(help="A preset (llama3-70b), a config.json, or a TOML file; without it, that of the --plan file."),
    ] = "",
    /,
    *,
    on: Annotated[tuple[str, ...], Parameter(help=WHERE, negative="")] = (),
    batch: Annotated[str, Parameter(help="Tokens of a step (4M), or sequences (512seq).")] = "",
    seq: Annotated[str, Parameter(help="Tokens of a sequence.")] = "",
    tokens: Annotated[str, Parameter(help="Tokens of the whole run (15T), or 'chinchilla' for 20 a parameter.")] = "",
    plan: Annotated[
        str, Parameter(help="Judge this plan (fsdp=64,tensor=4,remat=block; tp4 fsdp64; a .toml) against the best.")
    ] = "",
    alone: Annotated[
        bool, Parameter(negative="", help="Judge --plan alone, without looking for a better one.")
    ] = False,
    measured: Annotated[
        str, Parameter(help="With --plan: the step that was measured (8.2s). Where did the rest go?")
    ] = "",
    slack: Annotated[
        str,
        Parameter(help="How much slower than the fastest a simpler plan may be (0: the fastest whatever it takes)."),
    ] = "1%",
    top: Annotated[int, Parameter(help="How many of the best plans to show.")] = 5,
    rank: Annotated[str, Parameter(help="time, or cost: the fewest dollars, on this slice or a part of it.")] = "time",
    stack: Annotated[
        str, Parameter(help="The software: megatron, torchtitan, maxtext, generic …; auto is what people run there.")
    ] = "auto",
    force: Annotated[
        bool, Parameter(negative="", help="Judge what the stack cannot run as if it could, and say so.")
    ] = False,
    remat: Annotated[str, Parameter(help="Remat policies to choose from, such as none,selective,block.")] = "",
    dtype: Annotated[str, Parameter(help="What matrices are multiplied in: bf16, fp8 … (bf16).")] = "",
    fix: Annotated[str, Parameter(help="Settings the plans must have, such as tensor=8,zero=1|3,schedule=1f1b.")] = "",
    deadline: Annotated[
        str, Parameter(help="With a chip alone or 'any': the time a run (with --tokens) or step may take.")
    ] = "",
    skew: Annotated[float, Parameter(help="Tokens of the busiest expert over the mean: 1 is balanced routing.")] = 1.0,
    capacity: Annotated[
        float,
        Parameter(help="Room of an expert over its even share of tokens, beyond which they are dropped (0: none are)."),
    ] = 0.0,
    documents: Annotated[
        str, Parameter(help="Mean tokens of the documents that a sequence is packed with, none of which sees another.")
    ] = "",
    price: Annotated[str, Parameter(help="What an hour of a chip costs: 2.5/h, or h100=2.2/h,v5e=1.1/h.")] = "",
    largest: Annotated[str, Parameter(help="Ask for the largest 'batch' or 'model' that fits the slice instead.")] = "",
    scaling: Annotated[bool, Parameter(negative="", help="Add the best plans on smaller and larger slices.")] = False,
    codesign: Annotated[bool, Parameter(negative="", help="Add what better hardware would change.")] = False,
    explain: Annotated[
        bool, Parameter(negative="", help="Show every term and part of memory of the best plan.")
    ] = False,
    save: Annotated[str | None, Parameter(help="Write the best plan to this TOML file.")] = None,
    timeline: Annotated[
        str | None, Parameter(help="Write the best plan's step as a timeline to this file (opens in Perfetto).")
    ] = None,
    verify: Verify = False,
    plot: Plot = None,
    chart: Annotated[
        str, Parameter(help="What --plot draws: time, memory, mesh, roofline, scaling or answer (the first three).")
    ] = "time",
    json: Json = False,
) -> int:
    """How should a training run be split over chips, how long does a step take, what bounds it, what does it cost?"""
    from dragonscale.cli.train_text import text_of
    from dragonscale.reports.train.ask import answer, next_command
    from dragonscale.reports.train.question import TrainQuestion, read_question
    from dragonscale.reports.verify.best import training_question

    question = TrainQuestion(
        model=model, on=",".join(on), batch=batch, seq=seq, tokens=tokens, plan=plan, top=top, rank=rank, stack=stack,
        remat=remat, dtype=dtype, fix=fix, deadline=deadline, largest=largest, chart=chart, skew=skew, slack=slack,
        measured=measured, alone=alone, capacity=capacity, price=price, documents=documents, force=force,
    )  # fmt: skip
    asked = read_question(question)
    if verify and asked.documents:
        raise InputError("--verify compiles our own program, which masks no documents yet; leave out --documents.")
    check_ending(plot)
    for text in asked.notes:
        note(text)
    with Bar("plans") as bar:
        report = answer(asked, bar.step, scaling, codesign)
    ask = partial(training_question, asked, report) if verify and report.plans else None
    compared = conclude(report, lambda: put(text_of(report, explain, next_command(asked, report))), ask, json)
    if report.plans:
        _write_files(asked, report, save, plot, chart, timeline)
    return compared if report.plans and report.plans[0].feasible else INFEASIBLE


def _write_files(asked: Any, report: Any, save: str | None, plot: str | None, chart: str, timeline: str | None) -> None:
    """The best plan, the chart and the timeline, where they were asked for."""
    from dragonscale.charts import save_chart
    from dragonscale.files import write_all
    from dragonscale.reports.train.ask import save_best, save_step
    from dragonscale.reports.train.charts import draw

    def write_plan() -> None:
        if save is not None:
            save_best(asked, report, save)
            note(f"Wrote {save}.")

    def write_timeline() -> None:
        if timeline is not None:
            save_step(asked, report, timeline)
            note(f"Wrote {timeline}; open it at https://ui.perfetto.dev.")

    def write_chart() -> None:
        if plot is not None:
            save_chart(draw(chart, asked, report), plot)
            note(f"Wrote {plot}.")

    write_all(write_plan, write_timeline, write_chart)
