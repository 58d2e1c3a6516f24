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

# The degrees of a plan as charts name them.
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
    chips = {row.chip for row in report.configs}
    return f"{report.model} on {chips.pop()}" if len(chips) == 1 else report.model


def _name(row: ConfigReport) -> str:
    """A configuration in few words: its chips, its degrees, its batch."""
    degrees = [f"{short}{getattr(row, name)}" for name, short in _SHORT.items() if getattr(row, name) > 1]
    return " ".join((row.copy_slice, *degrees, f"batch {row.batch:,}"))


def _yield(row: ConfigReport) -> str:
    """What a configuration makes, and what that costs."""
    text = f"{row.output_tokens_per_s_per_chip:,.0f} tokens/s per chip, {row.tokens_per_s_per_user:,.3g} per user"
    if row.cost_usd_per_mtok:
        text += f", {amount(row.cost_usd_per_mtok, 'USD')} per million"
    return text


def frontier_chart(report: ServeReport) -> Chart:
    """Tokens per second of a user against those of a chip: a line for each chip, the best configurations named."""
    lines: list[LineSeries] = []
    for chip, frontier in report.frontier_by_chip.items():
        points = sorted((point.tokens_per_s_per_user, point.output_tokens_per_s_per_chip) for point in frontier)
        name = chip if len(report.frontier_by_chip) > 1 else ""  # the title of one line is the chart's
        lines.append(LineSeries(name, tuple(points), dots=True))
    best: list[tuple[float, float, str]] = []
    for row in report.configs:
        if row.tokens_per_s_per_user > 0:
            text = f"{_name(row)}: {_yield(row)}"
            best.append((row.tokens_per_s_per_user, row.output_tokens_per_s_per_chip, text))
    points = [point for line in lines for point in line.points] + [point[:2] for point in best]
    x = log_axis("output tokens/s of one user", "number", [user for user, _ in points])
    y = log_axis("output tokens/s per chip", "number", [chip for _, chip in points])
    tpot = report.workload.tpot_s
    rules: list[RuleLine] = []
    if tpot and x.low < 1 / tpot < x.high:
        rules.append(RuleLine(1 / tpot, f"TPOT {amount(tpot, 's')}"))
    title = f"{_where(report)}: tokens/s per user vs per chip"
    return charts.line_chart(lines, x, y, title, _requests(report), rules, numbered=best)


def _time_stack(terms: list[StepTerm], name: str, remark: str) -> PartStack:
    return PartStack(name, time_parts((term.name, term.expected_s, 0.0) for term in terms), remark)


def decode_chart(report: ServeReport) -> Chart:
    """A decode step of the configurations whose terms are known."""
    stacks: list[PartStack] = []
    for row in report.configs:
        if row.terms:
            stacks.append(_time_stack(row.terms, _name(row), f"{amount(row.decode_step_s, 's')} a step"))
    return charts.time_bars(stacks, f"{_where(report)}: a decode step", _requests(report), "time of a decode step")


def prefill_chart(report: ServeReport) -> Chart:
    """A prompt by itself, all its chunks together."""
    stacks: list[PartStack] = []
    for row in report.configs:
        if row.prefill_terms:
            total = sum(term.expected_s for term in row.prefill_terms)
            stacks.append(_time_stack(row.prefill_terms, _name(row), amount(total, "s")))
    title = f"{_where(report)}: prefill of a prompt"
    return charts.time_bars(stacks, title, _requests(report), "time of a prompt that runs alone")


def memory_chart(report: ServeReport) -> Chart:
    """What fills a chip, against what it has."""
    stacks: list[PartStack] = []
    for row in report.configs:
        if row.memory is not None:
            stacks.append(memory_stack(_name(row), row.memory.parts().items(), row.hbm_bytes, row.hbm_limit_bytes))
    if not stacks:
        raise nothing_to_draw("no configuration says what fills its memory")
    limit = report.configs[0].hbm_limit_bytes
    return charts.memory_bars(stacks, limit, f"{_where(report)}: memory of a chip", _requests(report))


def mesh_picture(report: ServeReport) -> Chart:
    """The mesh of one replica of the best configuration, with what goes over its axes in a decode step."""
    best = report.configs[0]
    terms = {term.name: term for term in best.terms}
    axes: list[MeshAxis] = []
    for name in ("pipe", "data", "context", "width", "tensor"):  # outermost first
        term = terms.get(WIRES[name])
        moves: tuple[AxisMove, ...] = ()
        if term is not None and term.bytes:
            moves = (AxisMove(f"{term.name}, a decode step", term.bytes, term.expected_s),)
        splits = serving_splits(name, best.expert)
        axes.append(MeshAxis(name, getattr(best, name), time_role(WIRES[name]), splits, moves))
    subtitle = f"{report.model}: one replica, batch {best.batch:,}; what each chip sends in a decode step"
    return charts.mesh_chart(axes, _name(best), subtitle, best.chip)


# What can be drawn; all but the frontier are of the best configuration.
KINDS = {
    "frontier": frontier_chart,
    "decode": decode_chart,
    "prefill": prefill_chart,
    "memory": memory_chart,
    "mesh": mesh_picture,
}
