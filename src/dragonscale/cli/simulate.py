"""`dscale simulate MODEL --on SLICE --replicas 8 --rate 40/s`: what a fleet does under traffic."""

from typing import Annotated, Any

from cyclopts import Parameter

from dragonscale.cli.flags import Json, Plot
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import emit_json, note, say

MISSED = 4
EVENTS = 200_000
"""Events of a Perfetto trace at most: some tens of megabytes, which the viewer opens."""


def run(
    model: Annotated[
        str,
        Parameter(
            help="A preset (llama3-70b), a config.json, a TOML file, or a plan that `dscale serve --save` wrote."
        ),
    ],
    /,
    *,
    on: Annotated[str, Parameter(name="--on", help="The slice of one replica (h100:8, v5e:4x4).")] = "",
    plan: Annotated[
        str, Parameter(help="Its sharding and formats: tensor=8,weights=fp8,compute=fp8,kv=fp8, or a plan file.")
    ] = "",
    engine: Annotated[str, Parameter(help="The software: generic, vllm, sglang, trtllm …")] = "",
    replicas: Annotated[int, Parameter(help="How many of them.")] = 1,
    rate: Annotated[str, Parameter(help="Requests that come, such as 40/s.")] = "",
    clients: Annotated[int, Parameter(help="Clients that each wait for an answer, instead of a rate.")] = 0,
    requests: Annotated[str, Parameter(help="How many requests in all.")] = "10000",
    prompt: Annotated[str, Parameter(help="Tokens of a prompt, on average.")] = "2048",
    output: Annotated[str, Parameter(help="Tokens of an answer, on average.")] = "256",
    lengths: Annotated[str, Parameter(help="fixed, uniform (from half to one and a half) or lognormal.")] = "fixed",
    cv: Annotated[float, Parameter(help="Coefficient of variation of lognormal lengths.")] = 1.0,
    arrivals: Annotated[str, Parameter(help="poisson, gamma (bursty), diurnal or at-once.")] = "poisson",
    burst: Annotated[float, Parameter(help="Coefficient of variation of the gaps of gamma arrivals.")] = 2.0,
    swing: Annotated[float, Parameter(help="How much of the mean a diurnal rate swings by.")] = 0.5,
    period: Annotated[str, Parameter(help="The period of a diurnal rate.")] = "24h",
    trace: Annotated[
        str,
        Parameter(
            help="Replay a trace: Azure CSV, Mooncake JSONL, BurstGPT CSV or arrival_s,input_tokens,output_tokens."
        ),
    ] = "",
    speed: Annotated[float, Parameter(help="Replay a trace so many times as fast.")] = 1.0,
    router: Annotated[str, Parameter(help="round_robin, least_loaded, prefix_affinity or slo_aware.")] = "least_loaded",
    prefixes: Annotated[str, Parameter(help="Prompts that begin alike: 100x1024,share=0.8,skew=1.")] = "",
    host_cache: Annotated[str, Parameter(help="Host memory of a replica for prefixes, such as 500GB.")] = "",
    prefill_on: Annotated[str, Parameter(help="Prefill on replicas of their own, of this slice.")] = "",
    prefill_plan: Annotated[str, Parameter(help="Their sharding and formats.")] = "",
    prefill_replicas: Annotated[int, Parameter(help="How many of them.")] = 1,
    drafts: Annotated[int, Parameter(help="Speculate: tokens drafted at a time.")] = 0,
    acceptance: Annotated[float, Parameter(help="The probability that a drafted token is right.")] = 0.0,
    draft: Annotated[str, Parameter(help="A small model that drafts; without one, the model's own extra heads.")] = "",
    autoscale: Annotated[str, Parameter(help="Grow and shrink: 2..16,target=24,startup=90s.")] = "",
    fail: Annotated[str, Parameter(help="Replicas that die: 3@100s+60s, several with commas.")] = "",
    queue_limit: Annotated[int, Parameter(help="Requests that may wait; others are refused.")] = 0,
    ttft: Annotated[str, Parameter(help="Target for the first token, such as 500ms.")] = "",
    tpot: Annotated[str, Parameter(help="Target for each further token, such as 30ms.")] = "",
    warmup: Annotated[float, Parameter(help="The share of requests at the start that is not measured.")] = 0.1,
    seed: Annotated[int, Parameter(help="The same seed gives the same run.")] = 0,
    perfetto: Annotated[str | None, Parameter(help="Write the run as a trace for ui.perfetto.dev (JSON).")] = None,
    plot: Plot = None,
    chart: Annotated[
        str, Parameter(help="What --plot draws: latency (distributions) or occupancy (over time).")
    ] = "latency",
    json: Json = False,
) -> int:
    """What does a fleet do under traffic: latencies, goodput, occupancy, and what to change?"""
    from dragonscale.reports.simulate.question import SimulateQuestion, read_question
    from dragonscale.reports.simulate.report import run_simulation

    words = dict(locals())
    names = SimulateQuestion.__dataclass_fields__
    asked = read_question(SimulateQuestion(**{name: words[name] for name in names}), EVENTS if perfetto else 0)
    with Bar("requests") as bar:
        report, result = run_simulation(asked, lambda done: bar.step(done, asked.traffic.requests))
    _write(report, result, perfetto, plot, chart)
    if json:
        emit_json(report)
    else:
        from dragonscale.cli.simulate_text import text_of

        say(text_of(report))
    return MISSED if report.meets_slo is False else 0


def _write(report: Any, result: Any, perfetto: str | None, plot: str | None, chart: str) -> None:
    if perfetto is not None:
        from dragonscale.errors import InputError, shorten
        from dragonscale.simulation import write_trace

        try:
            with open(perfetto, "w", encoding="utf-8") as file:
                write_trace(result.trace, file)
        except OSError as error:
            raise InputError(f"The trace cannot be written to {shorten(perfetto)}: {error.strerror}.") from None
        note(f"Wrote {perfetto}.")
    if plot is not None:
        from dragonscale.reports.simulate.charts import draw
        from dragonscale.roofline.chart import save_chart

        save_chart(draw(chart, report, result), plot)
        note(f"Wrote {plot}.")
