"""The text of `dscale train`: what to run, how long it takes, what bounds it and what to change; then the plan as a mesh, time, memory."""

import textwrap
from collections.abc import Sequence
from typing import Any

from dragonscale.cli.show import amount, table
from dragonscale.cli.train_tables import (
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
)  # fmt: skip

WIDTH = 80
LABEL = 10
FILLS = "█▓▒░▚▞▤▥◆"
AXES = {
    "pipe": "layers, in stages",
    "data": "batch; the model replicated",
    "fsdp": "batch; optimizer, gradients, weights sharded as zero says",
    "expert": "batch; experts",
    "context": "sequence",
    "tensor": "heads, hidden dims, vocabulary",
}
"""What each mesh axis splits."""
CONTEXTS = {"gather": "keys gathered over context", "ring": "ring attention", "ulysses": "Ulysses attention"}


def text_of(report: Any, explain: bool, next_command: str = "") -> str:
    """The whole answer: the summary first, then how it comes about."""
    if not report.plans:
        tables = ["", slices_table(report.slices)] if report.slices else []
        return "\n".join([*_heading(report), "", *(_wrapped(text) for text in report.notes), *tables])
    best = report.plans[0]
    lines = [*_heading(report), "", *summary(report, best, next_command), "", *draw_mesh(best.plan)]
    lines += ["", *time_bar(best), "", *memory_parts(best, explain)]
    if report.measured is not None:
        lines += ["", _wrapped(report.measured.text)]
        lines += [suspects_table(report.measured)] if report.measured.suspects else []
    if explain:
        lines += ["", terms_table(best)]
    shown = {"changes": changes_table, "slices": slices_table, "scaling": scaling_table, "batches": batches_table}
    lines += ["", plans_table(report)] if len(report.plans) > 1 else []
    for name, make in shown.items():
        lines += ["", make(getattr(report, name))] if getattr(report, name) else []
    lines += ["", codesign_table(report.codesign)] if report.codesign else []
    lines += ["", front_table(report)] if explain and report.pareto else []
    notes = [_wrapped(text) for text in report.notes]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _wrapped(text: str, label: str = "") -> str:
    """A sentence of at most 80 columns, after a label where there is one."""
    start = label.ljust(LABEL) if label else ""
    indent = " " * LABEL if label else ""
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _heading(report: Any) -> list[str]:
    work = report.workload
    size = f"{report.model} ({amount(work.parameters, 'count')} parameters) on {report.slice}"
    packed = f" packed with documents of {work.documents:,}" if work.documents else ""
    sequences = f"{work.sequences:,} sequences of {work.seq:,}{packed}"
    stack = f"stack {work.stack}{f' (auto: {work.stack_why})' if work.stack_why else ''}"
    work_text = f"{work.batch_tokens:,} tokens a step ({sequences}), {work.dtype}, {stack}"
    lines = [size, _wrapped(work_text)]
    if report.searched > 1 and not report.best:
        text = f"{report.feasible:,} of {report.searched:,} plans are feasible"
        if report.infeasible:
            text += "; beyond limits: " + ", ".join(f"{n:,} {reason}" for reason, n in report.infeasible.items())
        lines.append(_wrapped(text))
    return lines


def summary(report: Any, best: Any, next_command: str) -> list[str]:
    """What to run, in ten lines."""
    given = report.best is not None or not report.searched or report.searched == 1
    lines = [
        _wrapped(plan_text(best.plan), "given" if given else "plan"),
        *(_wrapped(f"{one}.", "cannot") for one in best.problems),
    ]
    lines += [_wrapped(step_text(best), "step"), _wrapped(f"{best.band}.", "band")]
    lines += [_wrapped(mfu_text(best), "MFU"), memory_bar(best)]
    if best.days is not None:
        lines.append(_wrapped(run_text(report, best), "run"))
    bound, _, change = best.advice.partition(". What would help, in tokens/s: ")
    lines.append(_wrapped(bound.removeprefix("bound by "), "bound by"))
    lines += [_wrapped(f"what would help, in tokens/s: {change}", "change")] if change else []
    lines += [_wrapped(report.comparison, "judged")] if report.comparison else []
    lines.append(_wrapped(taken_text(report, best), "taken by"))
    return [*lines, *([_wrapped(next_command, "next")] if next_command else [])]


def step_text(best: Any) -> str:
    """The expected step, its band, and its bounds."""
    band = f"{amount(best.step_low_s, 's')} to {amount(best.step_high_s, 's')}"
    bounds = f"{amount(best.lower_s, 's')} if everything overlaps, {amount(best.upper_s, 's')} if nothing does"
    return f"{amount(best.step_s, 's')} expected ({band}); at datasheet rates {bounds}"


def mfu_text(best: Any) -> str:
    """The MFU with the peak it is a part of."""
    own = f" ({best.mfu_of_dtype:.1%} of the {best.plan['dtype']} peak)" if best.mfu_of_dtype is not None else ""
    return f"{best.mfu:.1%} of the {best.mfu_peak}{own}, {best.tokens_per_s_per_chip:,.0f} tokens/s per chip"


def run_text(report: Any, best: Any) -> str:
    """The whole run: hours or days, dollars, energy."""
    hours = best.days * 24
    time = f"{hours:,.1f} hours" if hours < 48 else f"{best.days:,.1f} days"
    parts = [
        f"{best.steps:,} steps",
        f"{time} without failures and restarts",
        f"{amount(best.chip_hours, 'count')} chip-hours",
    ]
    if best.cost_usd is not None:
        money = f"${best.cost_usd / 1e6:,.2f}M" if best.cost_usd >= 1e6 else f"${best.cost_usd:,.0f}"
        chip = report.slice.partition(":")[0]
        parts.append(money + "".join(f" (at {row.text})" for row in report.prices if row.chip == chip))
    if best.energy_kwh is not None:
        large = best.energy_kwh >= 1e4
        parts.append(f"{best.energy_kwh / 1e3:,.0f} MWh of chips" if large else f"{best.energy_kwh:,.0f} kWh of chips")
    return f"{amount(report.workload.tokens, 'count')} tokens: {', '.join(parts)}"


def taken_text(report: Any, best: Any) -> str:
    """Which of our commands take the plan, and the best of those that they do."""
    taken = [f"`dscale {name}`" for name, takes in (("run", best.runnable), ("verify", best.verifiable)) if takes]
    if len(taken) == 2:
        return "`dscale run` and `dscale verify`"
    text = f"{taken[0]} only" if taken else "neither `dscale run` nor `dscale verify`"
    for name, other in (("run", report.runs), ("verify", report.verified)):
        if other is not None and not (name == "verify" and report.runs is not None and other.plan == report.runs.plan):
            names = "both take" if name == "run" and other.verifiable else f"`dscale {name}` takes"
            text += f"; the best that {names}: {plan_text(other.plan)} ({other.step_s / best.step_s - 1:+.1%})"
    return text


def _filled(parts: Sequence[float], scale: float, width: int) -> str:
    """Parts as stretches of a bar, each with its own fill."""
    drawn, filled = "", 0.0
    for fill, part in zip(FILLS, parts, strict=False):
        filled += part
        drawn += fill * (round(filled / scale * width) - len(drawn))
    return drawn.ljust(width, "·")


def _held(best: Any) -> list[Any]:
    return sorted((row for row in best.memory if row.bytes > 0), key=lambda row: -row.bytes)


def memory_bar(best: Any, width: int = 40) -> str:
    """What fills the HBM of the fullest chip, as a bar."""
    limit = best.hbm_limit_bytes
    drawn = _filled([row.bytes for row in _held(best)], max(limit, best.hbm_bytes), width)
    tight = ", tight" if 0.92 < best.hbm_bytes / limit <= 1 else ""
    share = f"{best.hbm_bytes / 1e9:.1f} of {limit / 1e9:.1f}GB{tight}"
    return f"{'memory'.ljust(LABEL)}|{drawn}| {share}"


def memory_parts(best: Any, explain: bool) -> list[str]:
    """The parts of the memory bar with their fills."""
    scale, lines, line = (
        max(best.hbm_limit_bytes, best.hbm_bytes),
        [f"memory of the fullest chip, {best.hbm_bytes / 1e9:.1f}GB"],
        " ",
    )
    for fill, row in zip(FILLS, _held(best), strict=False):
        part = f"{fill} {row.name} {row.bytes / 1e9:.1f}"
        if not explain and row.bytes <= 0.01 * scale:
            continue
        if len(line) + len(part) + 2 > WIDTH:
            lines.append(line.rstrip())
            line = " "
        line += f" {part} "
    return [*lines, line.rstrip()] if line.strip() else lines


def draw_mesh(plan: dict[str, Any]) -> list[str]:
    """The axes as a table, and the mesh itself: a line for each stage, a box for each replica, a square for each chip."""
    rows = [[name, plan[name], splits] for name, splits in AXES.items() if plan[name] > 1]
    lines = [table(["axis", "degree", "splits"], rows, right=[1])] if rows else ["one chip"]
    inner, copies, stages = plan["context"] * plan["tensor"], plan["data"] * plan["fsdp"] * plan["expert"], plan["pipe"]
    cells = "■" * min(inner, 8) + (f"…{inner}" if inner > 8 else "")
    room = max(1, min(copies, (WIDTH - 22) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * room) + (f" … x{copies}" if copies > room else "")
    shown = min(stages, 3)
    lines += [f"  stage {stage:<3} {row}" if stages > 1 else f"  {row}" for stage in range(shown)]
    lines += [f"  …         x{stages} stages"] if stages > shown else []
    words = ["microbatch", "virtual", "schedule", "remat", "zero"]
    kept = [f"{word}={plan[word]}" for word in words if not (word in ("virtual", "schedule") and stages == 1)]
    kept += [CONTEXTS[plan["context_by"]]] if plan["context"] > 1 else []
    return [*lines, textwrap.indent(textwrap.fill(", ".join(kept), WIDTH - 2), "  ")]


def time_bar(best: Any, width: int = 58) -> list[str]:
    """One bar of the step, and its parts with their shares; what hides is told beside it."""
    rows = [row for row in best.terms if row.exposed_s > 0.002 * best.step_s][: len(FILLS)]
    total = sum(row.exposed_s for row in best.terms) or 1.0
    lines = [f"time    |{_filled([row.exposed_s for row in rows], total, width)}| {amount(best.step_s, 's')}"]
    for fill, row in zip(FILLS, rows, strict=False):
        hidden = row.expected_s - row.exposed_s
        aside = f"  (+{amount(hidden, 's')} hidden)" if hidden > 0.002 * total else ""
        lines.append(f"  {fill} {row.name:<34}{amount(row.exposed_s, 's'):>8} {row.exposed_s / total:>6.1%}{aside}")
    return lines
