"""`dscale serve MODEL --on CHIP --prompt 2048 --output 512`: how to serve a model, how fast, what it costs, what bounds it."""

from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from dragonscale.cli.flags import Json, Plot, Verify, check_ending
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import note, say
from dragonscale.cli.verify import conclude

INFEASIBLE = 3

Where = Annotated[
    str,
    Parameter(
        name="--on",
        help="A chip (h100: all its slices), a slice (v5e:4x4), several of either (h100,v6e), or 'all' (or 'any') of the catalogue.",
    ),
]


def run(
    model: Annotated[str, Parameter(help="A preset (llama3-70b), a config.json, or a TOML file.")],
    /,
    *,
    on: Where = "",
    prompt: Annotated[str, Parameter(help="Tokens of a prompt.")] = "2048",
    output: Annotated[str, Parameter(help="Tokens of an answer.")] = "512",
    ttft: Annotated[str, Parameter(help="The time to the first token that must be met (500ms).")] = "",
    tpot: Annotated[str, Parameter(help="The time per output token that must be met (30ms).")] = "",
    rate: Annotated[str, Parameter(help="Requests to serve (20/s): how many replicas, and what the fleet costs.")] = "",
    engine: Annotated[
        str,
        Parameter(
            help="The software: vllm, sglang, sglang-ep, trtllm, vllm-tpu, generic …; auto: what people run there."
        ),
    ] = "",
    dtype: Annotated[str, Parameter(help="Format of weights, matmuls and KV cache: bf16, fp8, int8, int4 …")] = "",
    weights: Annotated[str, Parameter(help="Format of stored weights.")] = "",
    compute: Annotated[str, Parameter(help="Format of matmuls (fp8_block: scales by blocks).")] = "",
    kv: Annotated[str, Parameter(help="Format of the KV cache.")] = "",
    attention: Annotated[str, Parameter(help="Format of the attention's own weights where it differs.")] = "",
    plan: Annotated[str, Parameter(help="Judge this plan (tensor=8,expert=8, or a .toml) and no other.")] = "",
    batch: Annotated[str, Parameter(help="Sequences that decode at once; every number of them without it.")] = "",
    cached: Annotated[float, Parameter(help="The part of each prompt that a prefix cache has already.")] = 0.0,
    spread: Annotated[
        str, Parameter(help="What tensor ways beyond the KV heads do with the cache: copy, batch or sequence.")
    ] = "",
    speculate: Annotated[
        str,
        Parameter(help="Draft tokens, each right with this probability (0.8), or one for each in turn (0.85,0.7,0.5)."),
    ] = "",
    drafts: Annotated[int | None, Parameter(help="Tokens to draft; the best number without it.")] = None,
    draft: Annotated[str, Parameter(help="The model that drafts; an EAGLE or MTP head without it.")] = "",
    disaggregate: Annotated[bool, Parameter(negative="", help="Add prefill and decode in pools of their own.")] = False,
    max_seqs: Annotated[int | None, Parameter(help="Sequences that a data rank decodes at once, at most.")] = None,
    token_budget: Annotated[int | None, Parameter(help="Tokens of one iteration, at most (chunked prefill).")] = None,
    memory_fraction: Annotated[float | None, Parameter(help="The part of HBM that the engine may use.")] = None,
    quantize: Annotated[
        str, Parameter(help="Serve in a narrower format than the checkpoint's: fp8, int8, int4, nvfp4, mxfp4 or any.")
    ] = "",
    price: Annotated[str, Parameter(help="What an hour of a chip costs: 2.5/h, or h100=2.2/h,v5e=1.1/h.")] = "",
    force: Annotated[
        bool, Parameter(negative="", help="Judge a configuration that no engine runs, with a note.")
    ] = False,
    top: Annotated[
        int, Parameter(help="How many of the best configurations to show; 0: five, or the best of each chip.")
    ] = 0,
    save: Annotated[str | None, Parameter(help="Write the best configuration to this TOML file.")] = None,
    timeline: Annotated[
        str | None, Parameter(help="Write a prefill and a decode step of the best as a timeline (opens in Perfetto).")
    ] = None,
    verify: Verify = False,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Which chips, which sharding, what batch; how fast are tokens, what do they cost, what bounds them?"""
    from dragonscale.reports.serve.question import ServeQuestion, read_question
    from dragonscale.reports.serve.report import answer

    asked = read_question(
        ServeQuestion(
            model=model, on=on, prompt=prompt, output=output, ttft=ttft, tpot=tpot, rate=rate, engine=engine, dtype=dtype,
            weights=weights, compute=compute, kv=kv, attention=attention, plan=plan, batch=batch, cached=cached,
            spread=spread, speculate=speculate, drafts=drafts, draft=draft, disaggregate=disaggregate, top=top,
            max_seqs=max_seqs, token_budget=token_budget, memory_fraction=memory_fraction, quantize=quantize, price=price,
            force=force,
        )
    )  # fmt: skip
    check_ending(plot)
    for text in asked.notes:
        note(text)
    with Bar("chips") as bar:
        report = answer(asked, bar.step)
    code = 0 if report.configs and report.configs[0].meets_slo else INFEASIBLE
    ask = partial(_best_plan, asked, report) if verify and report.configs else None
    compared = conclude(report, partial(_say, report), ask, json)
    if report.configs:
        _write_files(asked, report, save, plot, timeline)
    return code or compared


def _say(report: Any) -> None:
    from dragonscale.cli.serve_text import text_of

    say(text_of(report))


def _best_plan(asked: Any, report: Any) -> Any:
    """What to compile: a decode step of the best configuration, or of the one that was given."""
    from dragonscale.reports.verify.best import serving_question

    return serving_question(asked, report)


def _write_files(asked: Any, report: Any, save: str | None, plot: str | None, timeline: str | None) -> None:
    """The best configuration, the chart and the timeline, where they were asked for."""
    from dragonscale.charts import save_chart
    from dragonscale.files import write_all
    from dragonscale.reports.serve.charts import draw
    from dragonscale.reports.serve.hand_over import save_best
    from dragonscale.reports.serve.report import save_iterations

    def write_plan() -> None:
        if save is not None:
            save_best(asked, report, save)
            note(f"Wrote {save}; `dscale simulate {save}` runs it under its traffic.")

    def write_timeline() -> None:
        if timeline is not None:
            save_iterations(asked, report, timeline)
            note(f"Wrote {timeline}; open it at https://ui.perfetto.dev.")

    def write_chart() -> None:
        if plot is not None:
            save_chart(draw("", asked, report), plot)
            note(f"Wrote {plot}.")

    write_all(write_plan, write_timeline, write_chart)
