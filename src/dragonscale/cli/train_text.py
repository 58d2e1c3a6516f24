"""The text of `dscale train`: the plan as a mesh, where the time goes, what fills the memory, what to change."""

from typing import Any

from dragonscale.cli.show import WIDTH, amount, bar, table

FILLS = "█▓▒░▚▞▤▥◆"
SPLITS = {
    "pipe": "layers, in stages",
    "data": "batch; the model replicated",
    "fsdp": "batch; optimizer, gradients, weights sharded as zero says",
    "expert": "batch; experts",
    "context": "sequence",
    "tensor": "heads, hidden dims, vocabulary",
}


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
    text = (
        f"{report.model} ({amount(work.parameters, 'count')} parameters) on {report.slice}\n"
        f"{work.batch_tokens:,} tokens a step ({work.sequences:,} sequences of {work.seq:,}), {work.dtype}, {work.stack}"
    )
    if report.searched > 1:
        text += f"\n{report.feasible:,} of {report.searched:,} plans are feasible"
        if report.infeasible:
            text += "; beyond limits: " + ", ".join(f"{n:,} {reason}" for reason, n in report.infeasible.items())
    return text


def draw_mesh(plan: dict[str, Any]) -> list[str]:
    """The axes as a table, and the mesh itself: a line for each stage, a box for each replica, a square for each chip."""
    rows = [[name, plan[name], SPLITS[name]] for name in SPLITS if plan[name] > 1]
    lines = [table(["axis", "degree", "splits"], rows, right=[1])] if rows else ["one chip"]
    inner, copies, stages = plan["context"] * plan["tensor"], plan["data"] * plan["fsdp"] * plan["expert"], plan["pipe"]
    cells = "■" * min(inner, 8) + (f"…{inner}" if inner > 8 else "")
    room = max(1, min(copies, (WIDTH - 30) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * room) + (f" … x{copies}" if copies > room else "")
    shown = min(stages, 3)
    for stage in range(shown):
        lines.append(f"  stage {stage:<3} {row}" if stages > 1 else f"  {row}")
    if stages > shown:
        lines.append(f"  …         x{stages} stages")
    words = ["microbatch", "virtual", "schedule", "remat", "zero"]
    kept = [f"{word}={plan[word]}" for word in words if not (word in ("virtual", "schedule") and stages == 1)]
    kept += ["ring attention"] if plan["context"] > 1 and plan["ring"] else []
    return [*lines, "  " + ", ".join(kept)]


def _figures(report: Any, best: Any) -> list[str]:
    lines = [
        f"step {amount(best.step_s, 's')} expected, MFU {best.mfu:.1%}, "
        f"{best.tokens_per_s_per_chip:,.0f} tokens/s per chip",
        f"at datasheet rates {amount(best.lower_s, 's')} if everything overlaps, "
        f"{amount(best.upper_s, 's')} if nothing does",
    ]
    if best.days is not None:
        money = f", {_money(best.cost_usd)}" if best.cost_usd is not None else ""
        energy = f", {best.energy_kwh / 1e3:,.0f} MWh of chips" if best.energy_kwh is not None else ""
        lines.append(
            f"run of {amount(report.workload.tokens, 'count')} tokens: {best.steps:,} steps, {best.days:,.1f} days, "
            f"{amount(best.chip_hours, 'count')} chip-hours{money}{energy}"
        )
    return lines


def _money(dollars: float) -> str:
    return f"${dollars / 1e6:,.2f}M" if dollars >= 1e6 else f"${dollars:,.0f}"


def time_bar(best: Any, width: int = 64) -> list[str]:
    """One bar of the step, and its parts with their shares; what hides is told beside it."""
    rows = [row for row in best.terms if row.exposed_s > 0.002 * best.step_s][: len(FILLS)]
    total = sum(row.exposed_s for row in best.terms) or 1.0
    drawn, filled = "", 0.0
    for fill, row in zip(FILLS, rows, strict=False):
        filled += row.exposed_s
        drawn += fill * (round(filled / total * width) - len(drawn))
    lines = [f"time    |{drawn.ljust(width, '·')}| {amount(best.step_s, 's')}"]
    for fill, row in zip(FILLS, rows, strict=False):
        hidden = row.expected_s - row.exposed_s
        aside = f"  (+{amount(hidden, 's')} hidden)" if hidden > 0.002 * total else ""
        lines.append(f"  {fill} {row.name:<34}{amount(row.exposed_s, 's'):>8} {row.exposed_s / total:>6.1%}{aside}")
    return lines


def memory_bar(best: Any, explain: bool, width: int = 64) -> list[str]:
    """What fills the HBM of the fullest chip."""
    limit = best.hbm_limit_bytes
    scale = max(limit, best.hbm_bytes)
    drawn, filled = "", 0.0
    rows = sorted((row for row in best.memory if row.bytes > 0), key=lambda row: -row.bytes)
    for fill, row in zip(FILLS, rows, strict=False):
        filled += row.bytes
        drawn += fill * (round(filled / scale * width) - len(drawn))
    lines = [f"memory  |{drawn.ljust(width, '·')}| {best.hbm_bytes / 1e9:.1f} of {limit / 1e9:.0f}GB"]
    named = [f"{fill} {row.name} {row.bytes / 1e9:.1f}" for fill, row in zip(FILLS, rows, strict=False)]
    shown = named if explain else [one for one, row in zip(named, rows, strict=False) if row.bytes > 0.01 * scale]
    return lines + _wrapped(shown)


def _wrapped(parts: list[str]) -> list[str]:
    lines, line = [], " "
    for part in parts:
        if len(line) + len(part) + 2 > WIDTH:
            lines.append(line)
            line = " "
        line += f" {part} "
    return [one.rstrip() for one in [*lines, line] if one.strip()]


def terms_table(best: Any) -> str:
    rows = [
        [
            row.name,
            amount(row.lower_s, "s"),
            amount(row.expected_s, "s"),
            amount(row.exposed_s, "s"),
            amount(row.bytes, "bytes") if row.bytes else "",
            amount(row.flops, "FLOP") if row.flops else "",
        ]
        for row in best.terms
    ]
    return table(["term", "at best", "expected", "exposed", "sent", "FLOPs"], rows, right=[1, 2, 3, 4, 5])


SHORT = {"pipe": "pp", "data": "dp", "fsdp": "fsdp", "expert": "ep", "context": "cp", "tensor": "tp"}


def plan_text(plan: dict[str, Any]) -> str:
    """A plan in one short line, defaults left out."""
    sizes = {**SHORT, "microbatch": "mb", "virtual": "v"}
    numbers = [f"{short}{plan[name]}" for name, short in sizes.items() if plan[name] > 1]
    words = [f"z{plan['zero']}", plan["remat"]]
    if plan["pipe"] > 1 and plan["virtual"] == 1:
        words.append(plan["schedule"])
    if plan["context"] > 1 and plan["ring"]:
        words.append("ring")
    return " ".join([*numbers, *words])


def plans_table(report: Any) -> str:
    best = report.plans[0].step_s
    rows = [
        [
            number,
            amount(one.step_s, "s"),
            f"{one.step_s / best - 1:+.1%}",
            f"{one.mfu:.1%}",
            f"{one.hbm_bytes / 1e9:.0f}GB",
            plan_text(one.plan),
        ]
        for number, one in enumerate(report.plans, 1)
    ]
    return table(["#", "step", "", "MFU", "memory", "plan"], rows, right=[0, 1, 2, 3, 4])


def front_table(report: Any, most: int = 12) -> str:
    every = report.pareto
    step = -(-len(every) // most)
    rows = [
        [amount(one.step_s, "s"), f"{one.hbm_bytes / 1e9:.1f}GB", one.chips, plan_text(one.plan)]
        for one in every[::step]
    ]
    return "time against memory: plans that no other beats in both\n" + table(
        ["step", "memory", "chips", "plan"], rows, right=[0, 1, 2]
    )


def scaling_table(rows: list[Any]) -> str:
    longest = max((row.tokens_per_s or 0.0) for row in rows) or 1.0
    body = [
        [
            row.slice,
            amount(row.step_s, "s") if row.step_s is not None else "no fit",
            f"{row.efficiency:.0%}" if row.efficiency is not None else "",
            f"{row.mfu:.1%}" if row.mfu is not None else "",
            row.bound_by or "",
            bar((row.tokens_per_s or 0.0) / longest, 12),
        ]
        for row in rows
    ]
    return "strong scaling: the same batch on fewer and more chips\n" + table(
        ["slice", "step", "scaling", "MFU", "bound by", "tokens/s"], body, right=[1, 2, 3]
    )


def batches_table(rows: list[Any]) -> str:
    body = [
        [
            f"{row.batch_tokens:,}",
            amount(row.step_s, "s"),
            f"{row.tokens_per_s_per_chip:,.0f}",
            f"{row.mfu:.1%}",
            row.bound_by,
        ]
        for row in rows
    ]
    return "larger batches, the same plan\n" + table(
        ["tokens", "step", "tokens/s per chip", "MFU", "bound by"], body, right=[0, 1, 2, 3]
    )


def codesign_table(answer: Any) -> str:
    body = [[row.change, f"{row.faster:+.1%}", row.why] for row in answer.rows]
    lines = "what better hardware would change (the plan searched anew)\n" + table(
        ["change", "faster", ""], body, right=[1]
    )
    return f"{lines}\n{answer.advice}"
