"""`dscale train` laid out: what to run, how long it takes, what bounds it and what to change; then time, memory, other
plans."""

import tomllib
from itertools import count
from pathlib import Path
from typing import Any

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount, facts, folded, signed_percent
from dragonscale.commands import grids
from dragonscale.commands.train.advice import help_text
from dragonscale.commands.train.train_records import (
    GoodputReport,
    PlanReport,
    SliceRow,
    StackRow,
    TrainReport,
    UnfitStack,
)
from dragonscale.training.plan.builds import software_of
from dragonscale.training.plan.plan import Plan, differences, layers_of, short_plan, without_layers
from dragonscale.training.search.stack_search import TIE_TOLERANCE

SLOWEST = 1.5
"""A plan that our own program takes is told of unless it is so much slower."""
SEEN = 0.002
"""Terms of a smaller share of the step are left to `--explain`."""
MOST_CHANGES = 6
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def train_sheet(report: TrainReport, detail: bool) -> laid.Sheet:
    """The whole answer: the summary first, then how it comes about."""
    blocks: list[laid.Block] = [_title(report)]
    if not report.plans:
        blocks += [laid.Prose("\n".join(report.notes), "bad")]
        return laid.Sheet((*blocks, *([slices_table(report.slices)] if report.slices else [])))
    first = report.plans[0]
    if first.job is not None and first.job.slice.chips != first.plan.chips:
        # what a plan for other chips would take is no answer to anything
        told = facts(("given", short_plan(first.plan)), *_problems(first), ("best plan", report.comparison, "warn"))
        return laid.Sheet((*blocks, told, *_after(report)))
    blocks += [summary(report, first), time_stack(first, detail)]
    blocks += [memory_stack(first, detail)] if detail or first.tight or not first.feasible else []
    if report.measured is not None:
        blocks += [laid.Prose(report.measured.text)]
        blocks += [grids.grid("train-suspects", report.measured.suspects)] if report.measured.suspects else []
    blocks += [laid.Verbatim(mesh_drawing(first.plan)), grids.grid("train-terms", first.terms)] if detail else []
    blocks += [details(report, first)] if detail else []
    blocks += [goodput_facts(report.goodput)] if detail and report.goodput else []
    blocks += [scaling_table(report)] if report.scaling else []
    blocks += [plans_table(report)] if len(report.plans) > 1 and (detail or not report.scaling) else []
    more = (
        [] if detail else [laid.Prose("--explain: the split in words, bounds, memory, every term, the search.", "dim")]
    )
    return laid.Sheet((*blocks, *more, *_after(report, detail)))


def _after(report: TrainReport, detail: bool = False) -> list[laid.Block]:
    """What follows the plan: changes, slices, scaling, notes, the next command."""
    blocks: list[laid.Block] = [grids.grid("train-changes", report.changes[:MOST_CHANGES])] if report.changes else []
    shown = {row.slice for row in report.scaling}
    blocks += [slices_table(report.slices)] if not {row.slice for row in report.slices} <= shown else []
    if report.codesign:
        blocks += [grids.grid("train-codesign", report.codesign.rows), laid.Prose(report.codesign.advice)]
        blocks += [laid.Prose(" ".join(report.codesign.overtakes))] if report.codesign.overtakes else []
    blocks += [front_table(report)] if detail and report.pareto else []
    blocks += [laid.Prose("\n".join(report.notes), "dim")] if report.notes else []
    return blocks


def _problems(first: PlanReport) -> list[tuple[str, str, str]]:
    return [("cannot run", f"{one}.", "bad") for one in first.problems]


def _title(report: TrainReport) -> laid.Title:
    work = report.workload
    packed = f" packed with documents of {work.documents:,} (weighted by length)" if work.documents else ""
    sequences = f"{work.sequences:,} sequences of {work.seq:,}{packed}"
    # of a stack whose trainer does not build the model, the answer is what it would do if it did
    stack = f"{'a what-if on ' if work.unbuilt else ''}stack {work.stack}"
    if work.stack_why:
        stack += f" (auto: {work.stack_why}{_also(report)})"
    elif work.unbuilt:
        stack += f" ({work.unbuilt})"
    method = "" if work.method in ("", "full") else f"{work.method}, "
    asides = [f"{method}{work.batch_tokens:,} tokens a step ({sequences}), {work.dtype}, {stack}"]
    size = f"{amount(work.parameters - work.adapter_parameters, 'count')} parameters"
    size += f" +{amount(work.adapter_parameters, 'count')} in adapters" if work.adapter_parameters else ""
    size += "".join(f"; {amount(number, 'count')} of {part} left out" for part, number in work.left_out.items())
    return laid.Title(f"{report.model} ({size}) on {report.slice}", "\n".join(asides))


def _also(report: TrainReport) -> str:
    """Which other stack is as usual there, and how it differs for this job."""
    if len(report.stacks) < 2:
        return ""
    own, other = report.stacks[:2]
    if not other.usual:
        return ""
    near = abs(other.step_s / own.step_s - 1) < TIE_TOLERANCE
    how = "with less memory left" if other.tight > own.tight else "as fast" if near else "slower"
    return f"; so is {other.stack}, {how} here"


def details(report: TrainReport, first: PlanReport) -> laid.Facts:
    """What stands behind the summary: bounds, formats of gradients, what was searched and who takes the plan."""
    out = ", ".join(f"{many:,} {reason}" for reason, many in report.infeasible.items())
    searched = f"{report.feasible:,} of {report.searched:,} plans are feasible{f'; infeasible: {out}' if out else ''}"
    return grids.summary(
        "train-details",
        first,
        split=split_text(first.plan),
        steps=run_text(report, first) if first.days is not None else None,
        searched=searched if report.searched > 1 and report.better is None else None,
        taken=taken_text(report, first),
    )


def summary(report: TrainReport, first: PlanReport) -> laid.Facts:
    """What to run, in ten lines."""
    given = report.better is not None or report.searched == 1
    answer = ("answer", report.answer.removesuffix("."), "key") if report.answer else None
    head = facts(answer, ("given" if given else "plan", short_plan(first.plan), "key"), *_problems(first))
    _, memory, tone = _memory(first)
    late = first.step_high_s / first.step_s - 1
    rest = grids.summary(
        "train-facts",
        first,
        memory=memory,
        tone=tone,
        host=_host_memory(first),
        run=_run(report, first),
        bound=first.bound.removeprefix("bound by "),
        change=help_text(first.helps),
        stacks=stacks_text(report.stacks, report.unfit_stacks),
        software=software_of(report.workload.stack),
        judged=report.comparison,
        unchanged=_unchanged(report, first),
        slower=f"; the step's slow end, {late:+.0%}, is of large runs of 2023 and 2024 (--explain)"
        if first.large_runs
        else "",
    )
    return laid.Facts((*head.rows, *rest.rows))


def _unchanged(report: TrainReport, first: PlanReport) -> str | None:
    """The chip without what was changed of it, against the answer."""
    if (old := report.unchanged) is None:
        return None
    gain = old.step_s / first.step_s - 1
    return f"{old.slice}: {amount(old.step_s, 's')} with {old.plan}; the change brings {gain:+.1%} tokens/s"


def stacks_text(stacks: list[StackRow], unfit: list[UnfitStack]) -> str:
    """The stacks that were not taken, against the one that was."""
    parts = []
    for row in stacks[1:]:
        most = f", mostly {row.mostly}" if row.mostly else ""
        room = ", leaves little memory" if row.tight else ""
        longer = signed_percent(row.step_s / stacks[0].step_s - 1)
        rare = "" if row.usual else ", less usual there"
        pace = f"step {longer}" if longer else "as fast"
        parts.append(f"{row.stack}: {pace} ({amount(row.step_s, 's')}{most}{room}{rare})")
    return "; ".join([*parts, *(f"{row.stack}: {row.why}" for row in unfit)])


def split_text(plan: Plan) -> str:
    """What each degree splits, in words."""
    sharded, splits = WORDS["sharded"][plan.zero], WORDS["splits"].items()
    parts = [text.format(plan[name], sharded=sharded) for name, text in splits if plan[name] > 1] or ["one chip"]
    spread = plan.expert * (plan.context if plan.fold == "context" else 1) * (1 if plan.etp else plan.tensor)
    if spread > plan.expert > 1:  # as Megatron counts it
        parts = [f"{one} (EP{spread} with the ranks of other axes)" if "experts" in one else one for one in parts]
    parts += [WORDS["contexts"][plan.context_by]] if plan.context > 1 else []
    parts.append(f"microbatches of {plan.microbatch} sequence{'s' * (plan.microbatch > 1)}")
    recomputed, chunk = WORDS["recomputed"], " of every chunk" if plan.pipe > 1 else ""
    again = recomputed.get(without_layers(plan.remat), f"recompute {plan.remat}")
    parts.append(again.format(layers_of(plan.remat), chunk=chunk))
    if layers := layers_of(plan.offload):
        parts.append(recomputed[without_layers(plan.offload)].format(layers))
    return ", ".join(parts)


def mesh_drawing(plan: Plan, width: int = 78) -> str:
    """The mesh: a line for each stage, a box for each replica, a square for each chip."""
    inner, copies, stages = plan.context * plan.tensor, plan.replicas, plan.pipe
    cells = "■" * min(inner, 8) + (f"…{inner}" if inner > 8 else "")
    room = max(1, min(copies, (width - 22) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * room) + (f" … x{copies}" if copies > room else "")
    shown = min(stages, 3)
    lines = [f"  stage {stage:<3} {row}" if stages > 1 else f"  {row}" for stage in range(shown)]
    lines += [f"  …         x{stages} stages"] if stages > shown else []
    return "\n".join(["the mesh: a box for each replica, a square for each chip", *lines])


def _memory(first: PlanReport) -> tuple[str, str, str]:
    """How full the fullest chip is: in numbers, in words, and the tone of both."""
    share = first.hbm_bytes / first.hbm_limit_bytes
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB"
    word, tone = (", does not fit", "bad") if share > 1 else (", tight", "warn") if first.tight else ("", "")
    left = f", {(first.hbm_limit_bytes - first.hbm_bytes) / 1e9:.1f}GB left" if share <= 1 else ""
    return used, f"{used} on the fullest chip{left}{word}", tone


def _host_memory(first: PlanReport) -> str | None:
    """What a plan needs of the memory of each host; nothing where it keeps nothing there."""
    if not first.host_bytes:
        return None
    chips = f"{first.host_chips} chips, whose" if first.host_chips > 1 else "a chip, whose"
    needed, there = (f"{size / 1e9:,.0f}GB" for size in (first.host_node_bytes, first.host_limit_bytes))
    what = WORDS["hosted"].get(without_layers(first.plan.offload), WORDS["hosted"]["activations:N"])
    return f"{needed} a node ({chips} share is {there}): {what}"


def _run(report: TrainReport, first: PlanReport) -> str | None:
    if report.goodput:
        return goodput_text(report, report.goodput)
    return run_text(report, first) if first.days is not None else None


def run_text(report: TrainReport, first: PlanReport) -> str:
    """The whole run as its steps take it: hours or days, chip-hours, energy."""
    days = first.days or 0.0
    time = days_text(days)
    parts = [
        f"{first.steps:,} steps",
        f"{time} of steps",
        f"{amount(first.chip_hours, 'count')} chip-hours",
    ]
    if first.energy_kwh is not None:
        size, unit = (first.energy_kwh / 1e3, "MWh") if first.energy_kwh >= 1e4 else (first.energy_kwh, "kWh")
        parts.append(f"{_few(size)} {unit} of chips")
    return f"{amount(report.workload.tokens, 'count')} tokens: {', '.join(parts)}"


def days_text(days: float) -> str:
    """A time in hours; minutes where it is short, days where it is long."""
    if days * 24 < 1:
        return f"{days * 1440:,.1f} minutes"
    return f"{days * 24:,.1f} hours" if days < 2 else f"{days:,.1f} days"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _money(dollars: float) -> str:
    """Dollars, with cents where they are few."""
    return f"${dollars / 1e6:,.2f}M" if dollars >= 1e6 else f"${dollars:,.{0 if dollars >= 100 else 2}f}"


def goodput_text(report: TrainReport, run: GoodputReport) -> str:
    """The run with failures: days, dollars, what makes progress."""
    ends = f"{days_text(run.days)} with failures (p90 {days_text(run.days_p90)})"
    if run.preemptions:
        ends += f", {run.preemptions:,.3g} times taken away as AWS's V100s of 2023 were (goodput.md)"
        ends += f", {days_text(run.waiting * run.days)} of them waiting for spot chips, unpaid"
    if run.cost_usd is not None and run.cost_usd_p90 is not None:
        chip = report.slice.rpartition(":")[0]
        at = "".join(f" at {row.text}" for row in report.prices if row.chip == chip)
        ends += f", {_money(run.cost_usd)} (p90 {_money(run.cost_usd_p90)}){at}"
    if run.on_demand_usd is not None and run.on_demand_days is not None:
        ends += f", {days_text(run.on_demand_days)} and {_money(run.on_demand_usd)}"
    return f"{amount(report.workload.tokens, 'count')} tokens: {ends}"


def goodput_facts(run: GoodputReport) -> laid.Facts:
    """What stands behind it."""
    energy = None
    if run.energy_kwh is not None and run.co2_kg is not None:
        grid = f"{run.co2_kg / run.energy_kwh * 1e3:.0f} g/kWh"
        energy = f"{run.energy_kwh / 1e3:,.4g} MWh with hosts and cooling, {run.co2_kg / 1e3:,.4g} t of CO2 at {grid}"
    spot = f" {run.preemptions:,.3g} of them spot chips taken away, the others" if run.preemptions else ""
    out = f"{run.hosts_out:.2g} are out in the mean"
    wait = f"{out}; each is taken to be replaced at once (--spares 0: they are waited for)"
    if run.spares is not None:
        wait = f"{out}, {run.spares:,.3g} spare, paid for"
    wait += f"; {run.waiting:.1%} of the time is without chips" if run.waiting else ""
    return grids.summary("train-goodput", run, energy=energy, spot=spot, wait=wait)


def taken_text(report: TrainReport, first: PlanReport) -> str:
    """Whether our commands take the plan; where they do not, why, and the best plan that they take with what it has
    otherwise."""
    if first.verifiable:
        return "`dscale run` and `dscale verify`" if first.runnable else "`dscale verify` only"
    if not first.not_run:
        return "`dscale run` only" if first.runnable else "neither `dscale run` nor `dscale verify`"
    text, other = f"neither `dscale run` nor `dscale verify`: {first.not_run}", report.runs
    if other is None or other.step_s >= SLOWEST * first.step_s:
        return text
    changed = ", ".join(f"{name}={value}" for name, value in differences(first.plan, other.plan).items())
    slower = f"{other.step_s / first.step_s - 1:+.1%}"
    takers = "both take" if other.verifiable else "`dscale run` takes"
    return f"{text}; the best that {takers}: {short_plan(other.plan)} ({slower}; {changed})"


def time_stack(first: PlanReport, detail: bool) -> laid.StackedBar:
    """What the step waits for; what overlaps is told beside it."""
    total = sum(row.exposed_s for row in first.terms) or 1.0
    parts = []
    for row in first.terms:
        if row.exposed_s <= (0 if detail else SEEN * first.step_s):
            continue
        hidden = row.expected_s - row.exposed_s
        note = f"+{amount(hidden, 's')} overlapped" if hidden > SEEN * total else ""
        parts.append(laid.BarPart(row.name, row.exposed_s, amount(row.exposed_s, "s"), note))
    legend = "list" if detail else "line"
    return laid.StackedBar("time", folded(parts, "s"), total, amount(first.step_s, "s"), legend)


def memory_stack(first: PlanReport, detail: bool) -> laid.StackedBar:
    """What fills the HBM of the fullest chip."""
    limit = first.hbm_limit_bytes
    held = sorted((row for row in first.memory if row.bytes > 0), key=lambda row: -row.bytes)
    shown = [row for row in held if detail or row.bytes > 0.01 * limit]
    parts = folded([laid.BarPart(row.name, row.bytes, f"{row.bytes / 1e9:.1f}GB") for row in shown], "bytes")
    used, _, tone = _memory(first)
    return laid.StackedBar("memory", parts, limit, used, "line", tone)


def _tight(row: PlanReport) -> str:
    """The mark of a plan that fits and leaves no room in memory."""
    return " tight" if row.tight else ""


PLAN = {"plan": lambda row: short_plan(row.plan)}


def plans_table(report: TrainReport) -> laid.Grid:
    """The recommended plan and others, each against the first."""
    best, numbers = report.plans[0].step_s, count(1)
    columns = {
        "#": lambda _: next(numbers),
        "": (lambda row: signed_percent(row.step_s / best - 1, 1), ""),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.0f}GB" + _tight(row), ""),
        "by": _taken_by,
    }
    without = () if any(map(_taken_by, report.plans)) else ("by",)
    return grids.grid("train-plans", report.plans, own=columns | PLAN, without=without)


def _taken_by(row: PlanReport) -> str:
    """Which of our commands take a plan, as the foot of the table spells them."""
    if not row.runnable:
        return ""
    return "rv" if row.verifiable else "r"


def slices_table(rows: list[SliceRow]) -> laid.Grid:
    """The recommended plan on each slice, best first; what has none says why."""
    name = "train-runs" if any(row.days is not None for row in rows) else "train-slices"
    own: dict[str, Any] = {"plan": lambda row: f"{row.plan or row.note}{', tight' if row.tight else ''}"}
    if name == "train-runs":
        own["cost"] = lambda row: None if row.cost_usd is None else _money(row.cost_usd)
        own["days"] = lambda row: None if row.days is None else _few(row.days) if row.days < 1 else f"{row.days:,.1f}"
    return grids.grid(name, rows, own=own)


def front_table(report: TrainReport, most: int = 12) -> laid.Grid:
    """Time against memory, at most so many rows of it."""
    memory = {"memory": (lambda row: f"{row.hbm_bytes / 1e9:.1f}GB", "")}
    return grids.grid("train-front", report.pareto[:: -(-len(report.pareto) // most)], own=memory | PLAN)


def scaling_table(report: TrainReport) -> laid.Grid:
    """The best plan of each slice, with bars of its tokens a second."""
    rows = report.scaling
    base = min(rows, key=lambda row: abs((row.efficiency or 0.0) - 1)).slice
    longest = max((row.tokens_per_s or 0.0) for row in rows) or 1.0
    columns = {
        "step": (lambda row: "no fit" if row.step_s is None else row.step_s, "s"),
        "bound by": lambda row: row.bound_by or "",
        "tokens/s": lambda row: (row.tokens_per_s or 0.0) / longest,
    }
    return grids.grid("train-scaling", rows, own=columns, foot=f"scaling: tokens/s per chip over those on {base}")
