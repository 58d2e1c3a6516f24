"""The tables of `dscale train`: plans, changes, slices, scaling, batches, terms."""

from itertools import count
from typing import Any

from dragonscale.sheets.sheet import Block, Column, Grid, Prose, amount, records, table
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.simplicity import leaves_room

PLAN_COLUMN = {"plan": {"wrap": True}}


def plan_text(plan: dict[str, Any]) -> str:
    """A plan in one short line, which `--plan` reads."""
    return short_plan(Plan(**plan))


def _percent(field: str, digits: int = 1) -> tuple[Any, str]:
    """A column of shares; empty where there is none."""
    return lambda row: "" if getattr(row, field) is None else f"{getattr(row, field):.{digits}%}", ""


def _tight(row: Any) -> str:
    """The mark of a plan that fits and leaves no room in memory."""
    fits = row.hbm_bytes <= row.hbm_limit_bytes
    return " tight" if fits and not leaves_room(row.hbm_bytes, row.hbm_limit_bytes) else ""


def terms_table(first: Any) -> Grid:
    """Every term: its times, bytes and FLOPs."""
    times = {"at best": ("lower_s", "s"), "expected": ("expected_s", "s"), "exposed": ("exposed_s", "s")}
    sent = {"sent": (lambda row: amount(row.bytes, "bytes") if row.bytes else "", "")}
    flops = {"FLOPs": (lambda row: amount(row.flops, "FLOP") if row.flops else "", "")}
    columns = {"term": "name"} | times | sent | flops
    keep = {"FLOPs": {"keep": 2}, "sent": {"keep": 3}}
    return records(first.terms, columns, "every term of a step, of one chip", how=keep)


def plans_table(report: Any) -> Grid:
    """The recommended plan and others, each against the first."""
    best, numbers = report.plans[0].step_s, count(1)
    columns = {
        "#": lambda _: next(numbers),
        "step": ("step_s", "s"),
        "": (lambda row: f"{row.step_s / best - 1:+.1%}", ""),
        "MFU": _percent("mfu"),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.0f}GB" + _tight(row), ""),
        "by": lambda row: "rv" if row.verifiable and row.runnable else "r" if row.runnable else "",
        "plan": lambda row: plan_text(row.plan),
    }
    foot = "by: r `dscale run` takes it, v `dscale verify` does"
    return records(
        report.plans, columns, "plans, the recommended one first", foot, how={"by": {"keep": 3}} | PLAN_COLUMN
    )


def changes_table(rows: list[Any], most: int = 6) -> Grid:
    """One setting of a given plan changed at a time, towards the best."""
    columns = {
        "change": lambda row: f"{row.setting}={row.old} to {row.new}",
        "step": ("step_s", "s"),
        "tokens/s": (lambda row: f"{row.gain:+.1%}", ""),
    }
    return records(rows[:most], columns, "one setting changed, the rest as given")


def suspects_table(measured: Any) -> Grid:
    """What could explain a measured step."""
    columns = {
        "probably": "cause",
        "step": ("step_s", "s"),
        "part": (lambda row: f"{row.explains:.0%}", ""),
        "look at": "look",
    }
    return records(measured.suspects, columns, how={"look at": {"wrap": True}, "probably": {"wrap": True}})


def slices_table(rows: list[Any]) -> Grid:
    """The recommended plan on each slice, best first; what has none says why."""
    run = any(row.days is not None for row in rows)
    columns: dict[str, Any] = {
        "slice": "slice",
        "step": (lambda row: "" if row.step_s is None else row.step_s, "s"),
        "MFU": _percent("mfu"),
        "$/Mtok": (lambda row: "" if row.usd_per_mtok is None else f"{row.usd_per_mtok:.4f}", ""),
    }
    if run:
        columns["days"] = (lambda row: "" if row.days is None else f"{row.days:,.1f}", "")
        columns["cost"] = (lambda row: "" if row.cost_usd is None else f"${row.cost_usd:,.0f}", "")
    columns |= {"stack": "stack", "plan": lambda row: f"{row.plan or row.note}{', tight' if row.tight else ''}"}
    # of a whole run, days and dollars say what steps and dollars a token do: these go first where the width is short
    keep = {"$/Mtok": {"keep": 2}, "step": {"keep": 3}} if run else {}
    return records(rows, columns, "slices, best first", how=keep | PLAN_COLUMN)


def front_table(report: Any, most: int = 12) -> Grid:
    """Time against memory, at most so many rows of it."""
    columns = {
        "step": ("step_s", "s"),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.1f}GB", ""),
        "chips": "chips",
        "plan": lambda row: plan_text(row.plan),
    }
    rows = report.pareto[:: -(-len(report.pareto) // most)]
    return records(rows, columns, "time against memory: plans that no other beats in both", how=PLAN_COLUMN)


def scaling_table(rows: list[Any]) -> Grid:
    """The best plan of each slice, with bars of its tokens a second."""
    longest = max((row.tokens_per_s or 0.0) for row in rows) or 1.0
    cells = [
        (
            row.slice,
            "no fit" if row.step_s is None else amount(row.step_s, "s"),
            "" if row.efficiency is None else f"{row.efficiency:.0%}",
            "" if row.mfu is None else f"{row.mfu:.1%}",
            row.bound_by or "",
            (row.tokens_per_s or 0.0) / longest,
        )
        for row in rows
    ]
    columns = [
        "slice",
        Column("step", right=True),
        Column("scaling", right=True),
        Column("MFU", right=True, keep=4),
        Column("bound by", keep=3),
        Column("tokens/s", bar=True, keep=2),
    ]
    return table(columns, cells, "strong scaling: the same batch on fewer and more chips")


def batches_table(rows: list[Any]) -> Grid:
    """The same plan with larger batches."""
    columns = {
        "tokens": "batch_tokens",
        "step": ("step_s", "s"),
        "tokens/s per chip": (lambda row: f"{row.tokens_per_s_per_chip:,.0f}", ""),
        "MFU": _percent("mfu"),
        "bound by": "bound_by",
    }
    return records(rows, columns, "larger batches, the same plan")


def codesign_table(answer: Any) -> list[Block]:
    """What each better number of the chip would give."""
    columns = {"change": "change", "faster": (lambda row: f"{row.faster:+.1%}", ""), "why": "why"}
    title = "what better hardware would change (the plan searched anew)"
    return [records(answer.rows, columns, title, how={"why": {"wrap": True}}), Prose(answer.advice)]
