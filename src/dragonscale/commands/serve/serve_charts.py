"""Charts of `dscale serve`: what a user gets against what a chip yields, where a step and a prompt go,
memory and mesh."""

from dragonscale.blocks import charts
from dragonscale.blocks.charts import AxisMove, Chart, LineSeries, MeshAxis, PartStack, RuleLine
from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.commands.charts.moves import serving_splits
from dragonscale.commands.charts.roles import memory_stack, nothing_to_draw, time_parts, time_role
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.serving.advice.bills import WIRES, StepTerm

_SHORT = {"pipe": "pp", "data": "dp", "expert": "ep", "context": "cp", "width": "width", "tensor": "tp"}


def draw(report: ServeReport, kind: str) -> Chart:
    """The chart that was asked for."""
    if not report.configs:
        raise nothing_to_draw("no configuration fits")
    return KINDS[kind](report)


def _requests(report: ServeReport) -> str:
    work = report.workload
    return f"prompts of {work.prompt:,} tokens, {work.output:,} output tokens, engine {work.engine}"


def _where(report: ServeReport) -> str:
    """The model, and its chips where all configurations have the same."""
    chips = {one.copy_slice.partition(":")[0] for one in report.configs}
    return f"{report.model} on {chips.pop()}" if len(chips) == 1 else report.model


def _named(one: ConfigReport) -> str:
    """A configuration in few words: its chips, its degrees, its batch."""
    degrees = [f"{short}{getattr(one, name)}" for name, short in _SHORT.items() if getattr(one, name) > 1]
    return f"{one.copy_slice} {' '.join(degrees)} batch {one.batch:,}".replace("  ", " ")


def _yield(one: ConfigReport) -> str:
    cost = f", {amount(one.cost_usd_per_mtok, 'USD')} per million" if one.cost_usd_per_mtok else ""
    return f"{one.output_tokens_per_s_per_chip:,.0f} tokens/s per chip, {one.tokens_per_s_per_user:,.3g} per user{cost}"


def frontier_chart(report: ServeReport) -> Chart:
    """Tokens per second of a user against those of a chip: a line for each chip, the best configurations named."""
    series = [
        LineSeries(
            chip if len(report.frontier_by_chip) > 1 else "",  # the title of one line is the chart's
            tuple(sorted((one.tokens_per_s_per_user, one.output_tokens_per_s_per_chip) for one in points)),
            dots=True,
        )
        for chip, points in report.frontier_by_chip.items()
    ]
    best = [
        (one.tokens_per_s_per_user, one.output_tokens_per_s_per_chip, f"{_named(one)}: {_yield(one)}")
        for one in report.configs
        if one.tokens_per_s_per_user > 0
    ]
    points = [*(point for one in series for point in one.points), *(one[:2] for one in best)]
    x = log_axis("output tokens/s of one user", "number", [one[0] for one in points])
    y = log_axis("output tokens/s per chip", "number", [one[1] for one in points])
    tpot = report.workload.tpot_s
    rules = [RuleLine(1 / tpot, f"TPOT {amount(tpot, 's')}")] if tpot and x.low < 1 / tpot < x.high else []
    title = f"{_where(report)}: tokens/s per user vs per chip"
    return charts.line_chart(series, x, y, title, _requests(report), rules, numbered=best)


def _terms(rows: list[StepTerm], name: str, remark: str) -> PartStack:
    return PartStack(name, time_parts((row.name, row.expected_s, 0.0) for row in rows), remark)


def decode_chart(report: ServeReport) -> Chart:
    """A decode step of the configurations whose terms are known."""
    known = [one for one in report.configs if one.terms]
    stacks = [_terms(one.terms, _named(one), f"{amount(one.decode_step_s, 's')} a step") for one in known]
    return charts.time_bars(stacks, f"{_where(report)}: a decode step", _requests(report), "time of a decode step")


def prefill_chart(report: ServeReport) -> Chart:
    """A prompt by itself, all its chunks together."""
    stacks: list[PartStack] = []
    for one in report.configs:
        if terms := one.prefill_terms:
            stacks.append(_terms(terms, _named(one), amount(sum(row.expected_s for row in terms), "s")))
    title = f"{_where(report)}: prefill of a prompt"
    return charts.time_bars(stacks, title, _requests(report), "time of a prompt that runs alone")


def memory_chart(report: ServeReport) -> Chart:
    """What fills a chip, against what it has."""
    stacks: list[PartStack] = []
    for one in report.configs:
        if (use := one.memory) is not None:
            stacks.append(memory_stack(_named(one), use.parts().items(), one.hbm_bytes, one.hbm_limit_bytes))
    if not stacks:
        raise nothing_to_draw("no configuration says what fills its memory")
    limit = report.configs[0].hbm_limit_bytes
    return charts.memory_bars(stacks, limit, f"{_where(report)}: memory of a chip", _requests(report))


def mesh_picture(report: ServeReport) -> Chart:
    """The mesh of one replica of the best configuration, with what goes over its axes in a decode step."""
    best = report.configs[0]
    terms = {row.name: row for row in best.terms}
    axes: list[MeshAxis] = []
    for name in ("pipe", "data", "context", "width", "tensor"):
        term = terms.get(WIRES[name])
        moves = (AxisMove(f"{term.name}, a decode step", term.bytes, term.expected_s),) if term and term.bytes else ()
        splits = serving_splits(name, best.expert)
        axes.append(MeshAxis(name, getattr(best, name), time_role(WIRES[name]), splits, moves))
    subtitle = f"{report.model}: one replica, batch {best.batch:,}; what each chip sends in a decode step"
    return charts.mesh_chart(axes, f"{_named(best)}", subtitle, best.copy_slice.partition(":")[0])


KINDS = {
    "frontier": frontier_chart,
    "decode": decode_chart,
    "prefill": prefill_chart,
    "memory": memory_chart,
    "mesh": mesh_picture,
}
"""What can be drawn; all but the frontier are of the best configuration."""
