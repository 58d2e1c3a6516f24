"""`dscale train` laid out: what to run, how long it takes, what bounds it and what to change; then time, memory, other
plans."""

from typing import Any

from dragonscale.app.train.records import TrainReport
from dragonscale.app.train.tables import (
    batches_table,
    changes_table,
    codesign_table,
    front_table,
    plan_text,
    plans_table,
    scaling_table,
    slices_table,
    suspects_table,
    terms_table,
)
from dragonscale.sheets.sheet import (
    BarPart,
    Block,
    Facts,
    NextStep,
    Prose,
    Sheet,
    StackedBar,
    Title,
    Verbatim,
    amount,
    facts,
    folded,
)
from dragonscale.training.simplicity import FULL

SEEN = 0.002
"""Terms of a smaller share of the step are left to `--explain`."""
MISMATCH = "the plan is for"
"""How the problem of a plan begins that is for another number of chips."""
SHARDED = (
    "batch split",
    "optimizer sharded",
    "optimizer and gradients sharded",
    "optimizer, gradients and weights sharded",
)
"""What the fsdp axis shards, by ZeRO stage."""
RECOMPUTED = {"none": "no recompute", "selective": "selective recompute", "block": "full recompute (block)"}
"""How much of the forward pass is computed again, by the word of a plan."""
CONTEXTS = {"gather": "gathered keys and values", "ring": "ring attention", "ulysses": "Ulysses attention"}


def train_sheet(report: TrainReport, detail: bool) -> Sheet:
    """The whole answer: the summary first, then how it comes about."""
    blocks: list[Block] = [_title(report)]
    if not report.plans:
        blocks += [Prose("\n".join(report.notes), "bad")]
        return Sheet((*blocks, *([slices_table(report.slices)] if report.slices else [])))
    first = report.plans[0]
    if any(one.startswith(MISMATCH) for one in first.problems):
        # what a plan for other chips would take is no answer to anything
        told = facts(("given", plan_text(first.plan)), *_problems(first), ("judged", report.comparison, "warn"))
        return Sheet((*blocks, told, *_after(report)))
    blocks += [summary(report, first), time_stack(first, detail), memory_stack(first, detail)]
    if report.measured is not None:
        blocks += [Prose(report.measured.text)]
        blocks += [suspects_table(report.measured)] if report.measured.suspects else []
    blocks += [Verbatim(mesh_drawing(first.plan)), terms_table(first)] if detail else []
    blocks += [plans_table(report)] if len(report.plans) > 1 else []
    return Sheet((*blocks, *_after(report, detail)))


def _after(report: TrainReport, detail: bool = False) -> list[Block]:
    """What follows the plan: changes, slices, scaling, notes, the next command."""
    blocks: list[Block] = []
    tables = {"changes": changes_table, "slices": slices_table, "scaling": scaling_table, "batches": batches_table}
    blocks += [make(getattr(report, name)) for name, make in tables.items() if getattr(report, name)]
    blocks += codesign_table(report.codesign) if report.codesign else []
    blocks += [front_table(report)] if detail and report.pareto else []
    blocks += [Prose("\n".join(report.notes), "dim")] if report.notes else []
    command = next_command(report)
    return [*blocks, *([NextStep(command, "Next:")] if command else [])]


def _problems(first: Any) -> list[tuple[str, str, str]]:
    return [("cannot run", f"{one}.", "bad") for one in first.problems]


def _title(report: TrainReport) -> Title:
    work = report.workload
    packed = f" packed with documents of {work.documents:,}" if work.documents else ""
    sequences = f"{work.sequences:,} sequences of {work.seq:,}{packed}"
    stack = f"stack {work.stack}{f' (auto: {work.stack_why})' if work.stack_why else ''}"
    asides = [f"{work.batch_tokens:,} tokens a step ({sequences}), {work.dtype}, {stack}"]
    if report.searched > 1 and report.better is None:
        asides.append(f"{report.feasible:,} of {report.searched:,} plans are feasible" + _beyond(report))
    size = amount(work.parameters, "count")
    return Title(f"{report.model} ({size} parameters) on {report.slice}", "\n".join(asides))


def _beyond(report: TrainReport) -> str:
    if not report.infeasible:
        return ""
    return "; beyond limits: " + ", ".join(f"{many:,} {reason}" for reason, many in report.infeasible.items())


def summary(report: TrainReport, first: Any) -> Facts:
    """What to run, in ten lines."""
    given = report.better is not None or report.searched <= 1
    bound, _, change = first.advice.partition(". What would help, in tokens/s: ")
    return facts(
        ("given" if given else "plan", plan_text(first.plan), "key"),
        *_problems(first),
        ("split", split_text(first.plan)),
        ("step", step_text(first), "key"),
        ("error", f"{first.band}."),
        ("MFU", mfu_text(first)),
        ("memory", memory_text(first), _memory_tone(first)),
        ("run", run_text(report, first)) if first.days is not None else None,
        ("bound by", bound.removeprefix("bound by ")),
        ("to change", f"{change}" if change else ""),
        ("judged", report.comparison, "warn"),
        ("accepted by", taken_text(report, first)),
    )


def split_text(plan: dict[str, Any]) -> str:
    """What each degree splits, in words."""
    words = {
        "pipe": "layers in {} pipeline stages",
        "data": "{} replicas of the model",
        "fsdp": SHARDED[plan["zero"]] + " over {}",
        "expert": "experts over {}",
        "context": "sequence over {}",
        "tensor": "heads and hidden dims over {}",
    }
    parts = [text.format(plan[name]) for name, text in words.items() if plan[name] > 1] or ["one chip"]
    parts += [CONTEXTS[plan["context_by"]]] if plan["context"] > 1 else []
    sequences = plan["microbatch"]
    parts.append(f"microbatches of {sequences} sequence{'s' * (sequences > 1)}")
    return ", ".join([*parts, RECOMPUTED.get(plan["remat"], f"recompute {plan['remat']}")])


def mesh_drawing(plan: dict[str, Any], width: int = 78) -> str:
    """The mesh: a line for each stage, a box for each replica, a square for each chip."""
    inner, copies, stages = plan["context"] * plan["tensor"], plan["data"] * plan["fsdp"] * plan["expert"], plan["pipe"]
    cells = "■" * min(inner, 8) + (f"…{inner}" if inner > 8 else "")
    room = max(1, min(copies, (width - 22) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * room) + (f" … x{copies}" if copies > room else "")
    shown = min(stages, 3)
    lines = [f"  stage {stage:<3} {row}" if stages > 1 else f"  {row}" for stage in range(shown)]
    lines += [f"  …         x{stages} stages"] if stages > shown else []
    return "\n".join(["the mesh: a box for each replica, a square for each chip", *lines])


def step_text(first: Any) -> str:
    """The expected step, its band, and its bounds."""
    band = f"{amount(first.step_low_s, 's')} to {amount(first.step_high_s, 's')}"
    bounds = f"{amount(first.lower_s, 's')} with perfect overlap, {amount(first.upper_s, 's')} with none"
    return f"{amount(first.step_s, 's')} expected ({band}); bounds at datasheet rates: {bounds}"


def mfu_text(first: Any) -> str:
    """The MFU with the peak it is a part of."""
    own = f" ({first.mfu_of_dtype:.1%} of the {first.plan['dtype']} peak)" if first.mfu_of_dtype is not None else ""
    return f"{first.mfu:.1%} of the {first.mfu_peak}{own}, {first.tokens_per_s_per_chip:,.0f} tokens/s per chip"


def memory_text(first: Any) -> str:
    share = first.hbm_bytes / first.hbm_limit_bytes
    said = ", tight" if FULL < share <= 1 else ", does not fit" if share > 1 else ""
    return f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB on the fullest chip{said}"


def _memory_tone(first: Any) -> str:
    share = first.hbm_bytes / first.hbm_limit_bytes
    return "bad" if share > 1 else "warn" if share > FULL else ""


def run_text(report: TrainReport, first: Any) -> str:
    """The whole run: hours or days, dollars, energy."""
    hours = first.days * 24
    time = f"{hours:,.1f} hours" if hours < 48 else f"{first.days:,.1f} days"
    parts = [
        f"{first.steps:,} steps",
        f"{time} without failures and restarts",
        f"{amount(first.chip_hours, 'count')} chip-hours",
    ]
    if first.cost_usd is not None:
        money = f"${first.cost_usd / 1e6:,.2f}M" if first.cost_usd >= 1e6 else f"${first.cost_usd:,.0f}"
        chip = report.slice.partition(":")[0]
        parts.append(money + "".join(f" (at {row.text})" for row in report.prices if row.chip == chip))
    if first.energy_kwh is not None:
        large = first.energy_kwh >= 1e4
        parts.append(
            f"{first.energy_kwh / 1e3:,.0f} MWh of chips" if large else f"{first.energy_kwh:,.0f} kWh of chips"
        )
    return f"{amount(report.workload.tokens, 'count')} tokens: {', '.join(parts)}"


def taken_text(report: TrainReport, first: Any) -> str:
    """Which of our commands take the plan, and the best of those that they do."""
    taken = [f"`dscale {name}`" for name, takes in (("run", first.runnable), ("verify", first.verifiable)) if takes]
    if len(taken) == 2:
        return "`dscale run` and `dscale verify`"
    text = f"{taken[0]} only" if taken else "neither `dscale run` nor `dscale verify`"
    for name, other in (("run", report.runs), ("verify", report.verified)):
        if other is not None and not (name == "verify" and report.runs is not None and other.plan == report.runs.plan):
            names = "both take" if name == "run" and other.verifiable else f"`dscale {name}` takes"
            text += f"; the best that {names}: {plan_text(other.plan)} ({other.step_s / first.step_s - 1:+.1%})"
    return text


def time_stack(first: Any, detail: bool) -> StackedBar:
    """What the step waits for; what overlaps is told beside it."""
    total = sum(row.exposed_s for row in first.terms) or 1.0
    parts = []
    for row in first.terms:
        if row.exposed_s <= (0 if detail else SEEN * first.step_s):
            continue
        hidden = row.expected_s - row.exposed_s
        note = f"+{amount(hidden, 's')} overlapped" if hidden > SEEN * total else ""
        parts.append(BarPart(row.name, row.exposed_s, amount(row.exposed_s, "s"), note))
    return StackedBar("time", folded(parts, "s"), total, amount(first.step_s, "s"))


def memory_stack(first: Any, detail: bool) -> StackedBar:
    """What fills the HBM of the fullest chip."""
    limit = first.hbm_limit_bytes
    held = sorted((row for row in first.memory if row.bytes > 0), key=lambda row: -row.bytes)
    shown = [row for row in held if detail or row.bytes > 0.01 * limit]
    parts = folded([BarPart(row.name, row.bytes, f"{row.bytes / 1e9:.1f}GB") for row in shown], "bytes")
    told = f"{first.hbm_bytes / 1e9:.1f} of {limit / 1e9:.1f}GB"
    return StackedBar("memory", parts, limit, told, "line", _memory_tone(first))


def next_command(report: TrainReport) -> str:
    """What to ask next of the first plan, where it is known what was asked."""
    if report.asked is None:
        return ""
    from dragonscale.app.train.ask import next_command as command_of

    return command_of(report.asked, report)
