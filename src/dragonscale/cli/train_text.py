"""The text of `dscale train`: the plan as a mesh, where the time goes, what fills the memory, what to change."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from dragonscale.cli.show import WIDTH, amount, bar, record_table, table

FILLS = "█▓▒░▚▞▤▥◆"
AXES = {
    "pipe": ("pp", "layers, in stages"),
    "data": ("dp", "batch; the model replicated"),
    "fsdp": ("fsdp", "batch; optimizer, gradients, weights sharded as zero says"),
    "expert": ("ep", "batch; experts"),
    "context": ("cp", "sequence"),
    "tensor": ("tp", "heads, hidden dims, vocabulary"),
}
"""Each mesh axis: its short name, and what it splits."""
CONTEXTS = {"gather": "keys gathered over context", "ring": "ring attention", "ulysses": "Ulysses attention"}


def text_of(report: Any, explain: bool) -> str:
    """The whole answer."""
    lines = [_heading(report), ""]
    if not report.plans:
        return "\n".join([*lines, *report.notes])
    best = report.plans[0]
    lines += [*draw_mesh(best.plan), "", *_figures(report, best), "", *time_bar(best), "", *memory_bar(best, explain)]
    if explain:
        lines += ["", terms_table(best)]
    if len(report.plans) > 1:
        lines += ["", plans_table(report)]
    if explain and report.pareto:
        lines += ["", front_table(report)]
    more = {"scaling": scaling_table, "batches": batches_table, "codesign": codesign_table}
    for name, shown in more.items():
        if getattr(report, name):
            lines += ["", shown(getattr(report, name))]
    lines += ["", *report.notes] if report.notes else [""]
    return "\n".join([*lines, *(f"Not feasible: {problem}." for problem in best.problems), best.advice])


def _heading(report: Any) -> str:
    work = report.workload
    packed = f" packed with documents of {work.documents:,}" if work.documents else ""
    text = (
        f"{report.model} ({amount(work.parameters, 'count')} parameters) on {report.slice}\n"
        f"{work.batch_tokens:,} tokens a step ({work.sequences:,} sequences of {work.seq:,}{packed}), {work.dtype}, "
        f"stack {work.stack}{f' (auto: {work.stack_why})' if work.stack_why else ''}"
    )
    if report.searched > 1:
        text += f"\n{report.feasible:,} of {report.searched:,} plans are feasible"
        if report.infeasible:
            text += "; beyond limits: " + ", ".join(f"{n:,} {reason}" for reason, n in report.infeasible.items())
    return text


def draw_mesh(plan: dict[str, Any]) -> list[str]:
    """The axes as a table, and the mesh itself: a line for each stage, a box for each replica, a square for each chip."""
    rows = [[name, plan[name], splits] for name, (_, splits) in AXES.items() if plan[name] > 1]
    lines = [table(["axis", "degree", "splits"], rows, right=[1])] if rows else ["one chip"]
    inner, copies, stages = plan["context"] * plan["tensor"], plan["data"] * plan["fsdp"] * plan["expert"], plan["pipe"]
    cells = "■" * min(inner, 8) + (f"…{inner}" if inner > 8 else "")
    room = max(1, min(copies, (WIDTH - 30) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * room) + (f" … x{copies}" if copies > room else "")
    shown = min(stages, 3)
    lines += [f"  stage {stage:<3} {row}" if stages > 1 else f"  {row}" for stage in range(shown)]
    lines += [f"  …         x{stages} stages"] if stages > shown else []
    words = ["microbatch", "virtual", "schedule", "remat", "zero"]
    kept = [f"{word}={plan[word]}" for word in words if not (word in ("virtual", "schedule") and stages == 1)]
    kept += [CONTEXTS[plan["context_by"]]] if plan["context"] > 1 else []
    return [*lines, "  " + ", ".join(kept)]


def _figures(report: Any, best: Any) -> list[str]:
    speed = f"{best.tokens_per_s_per_chip:,.0f} tokens/s per chip"
    bounds = f"{amount(best.lower_s, 's')} if everything overlaps, {amount(best.upper_s, 's')} if nothing does"
    lines = [f"step {amount(best.step_s, 's')} expected, MFU {best.mfu:.1%}, {speed}", f"at datasheet rates {bounds}"]
    if best.days is not None:
        cost = best.cost_usd
        dollars = "" if cost is None else f", ${cost / 1e6:,.2f}M" if cost >= 1e6 else f", ${cost:,.0f}"
        energy = f", {best.energy_kwh / 1e3:,.0f} MWh of chips" if best.energy_kwh is not None else ""
        time = f"{best.steps:,} steps, {best.days:,.1f} days, {amount(best.chip_hours, 'count')} chip-hours"
        lines.append(f"run of {amount(report.workload.tokens, 'count')} tokens: {time}{dollars}{energy}")
    return lines


def _filled(parts: Sequence[float], scale: float, width: int) -> str:
    """Parts as stretches of a bar, each with its own fill."""
    drawn, filled = "", 0.0
    for fill, part in zip(FILLS, parts, strict=False):
        filled += part
        drawn += fill * (round(filled / scale * width) - len(drawn))
    return drawn.ljust(width, "·")


def time_bar(best: Any, width: int = 64) -> list[str]:
    """One bar of the step, and its parts with their shares; what hides is told beside it."""
    rows = [row for row in best.terms if row.exposed_s > 0.002 * best.step_s][: len(FILLS)]
    total = sum(row.exposed_s for row in best.terms) or 1.0
    lines = [f"time    |{_filled([row.exposed_s for row in rows], total, width)}| {amount(best.step_s, 's')}"]
    for fill, row in zip(FILLS, rows, strict=False):
        hidden = row.expected_s - row.exposed_s
        aside = f"  (+{amount(hidden, 's')} hidden)" if hidden > 0.002 * total else ""
        lines.append(f"  {fill} {row.name:<34}{amount(row.exposed_s, 's'):>8} {row.exposed_s / total:>6.1%}{aside}")
    return lines


def memory_bar(best: Any, explain: bool, width: int = 64) -> list[str]:
    """What fills the HBM of the fullest chip."""
    limit = best.hbm_limit_bytes
    scale = max(limit, best.hbm_bytes)
    rows = sorted((row for row in best.memory if row.bytes > 0), key=lambda row: -row.bytes)
    drawn = _filled([row.bytes for row in rows], scale, width)
    lines, line = [f"memory  |{drawn}| {best.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB"], " "
    for fill, row in zip(FILLS, rows, strict=False):
        part = f"{fill} {row.name} {row.bytes / 1e9:.1f}"
        if not explain and row.bytes <= 0.01 * scale:
            continue
        if len(line) + len(part) + 2 > WIDTH:
            lines.append(line.rstrip())
            line = " "
        line += f" {part} "
    return [*lines, line.rstrip()] if line.strip() else lines


def _percent(field: str, digits: int = 1) -> tuple[Any, str]:
    """A column of shares; empty where there is none."""
    return lambda row: "" if getattr(row, field) is None else f"{getattr(row, field):.{digits}%}", ""


def terms_table(best: Any) -> str:
    """Every term: its times, bytes and FLOPs."""
    times = {"at best": ("lower_s", "s"), "expected": ("expected_s", "s"), "exposed": ("exposed_s", "s")}
    sent = {"sent": (lambda row: amount(row.bytes, "bytes") if row.bytes else "", "")}
    flops = {"FLOPs": (lambda row: amount(row.flops, "FLOP") if row.flops else "", "")}
    return record_table(best.terms, {"term": "name"} | times | sent | flops)


def plan_text(plan: dict[str, Any]) -> str:
    """A plan in one short line, defaults left out."""
    sizes = {**{name: short for name, (short, _) in AXES.items()}, "microbatch": "mb", "virtual": "v"}
    words = [f"{short}{plan[name]}" for name, short in sizes.items() if plan[name] > 1]
    words += [f"z{plan['zero']}", plan["remat"]]
    words += [plan["schedule"]] if plan["pipe"] > 1 and plan["virtual"] == 1 else []
    words += [plan["context_by"]] if plan["context"] > 1 and plan["context_by"] != "gather" else []
    return " ".join(words)


def plans_table(report: Any) -> str:
    """The best plans, each against the first."""
    best, numbers = report.plans[0].step_s, count(1)
    columns = {
        "#": lambda _: next(numbers),
        "step": ("step_s", "s"),
        "": (lambda row: f"{row.step_s / best - 1:+.1%}", ""),
        "MFU": _percent("mfu"),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.0f}GB", ""),
        "plan": lambda row: plan_text(row.plan),
    }
    return record_table(report.plans, columns)


def front_table(report: Any, most: int = 12) -> str:
    """Time against memory, at most so many rows of it."""
    columns = {
        "step": ("step_s", "s"),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.1f}GB", ""),
        "chips": (lambda row: str(row.chips), ""),
        "plan": lambda row: plan_text(row.plan),
    }
    rows = report.pareto[:: -(-len(report.pareto) // most)]
    return "time against memory: plans that no other beats in both\n" + record_table(rows, columns)


def scaling_table(rows: list[Any]) -> str:
    """The best plan of each slice, with bars of its tokens a second."""
    longest = max((row.tokens_per_s or 0.0) for row in rows) or 1.0
    columns = {
        "slice": "slice",
        "step": (lambda row: "no fit" if row.step_s is None else row.step_s, "s"),
        "scaling": _percent("efficiency", 0),
        "MFU": _percent("mfu"),
        "bound by": lambda row: row.bound_by or "",
        "tokens/s": lambda row: bar((row.tokens_per_s or 0.0) / longest, 12),
    }
    return "strong scaling: the same batch on fewer and more chips\n" + record_table(rows, columns)


def batches_table(rows: list[Any]) -> str:
    """The same plan with larger batches."""
    columns = {
        "tokens": "batch_tokens",
        "step": ("step_s", "s"),
        "tokens/s per chip": (lambda row: f"{row.tokens_per_s_per_chip:,.0f}", ""),
        "MFU": _percent("mfu"),
        "bound by": "bound_by",
    }
    return "larger batches, the same plan\n" + record_table(rows, columns)


def codesign_table(answer: Any) -> str:
    """What each better number of the chip would give."""
    columns = {"change": "change", "faster": (lambda row: f"{row.faster:+.1%}", ""), "": "why"}
    what = "what better hardware would change (the plan searched anew)"
    return f"{what}\n{record_table(answer.rows, columns)}\n{answer.advice}"
