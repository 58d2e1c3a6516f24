"""The tables of `dscale train`: plans, changes, slices, scaling, batches, terms."""

from itertools import count
from typing import Any

from dragonscale.cli.show import amount, bar, record_table


def plan_text(plan: dict[str, Any]) -> str:
    """A plan in one short line, which `--plan` reads."""
    from dragonscale.training.plan import Plan, short_plan

    return short_plan(Plan(**plan))


def _percent(field: str, digits: int = 1) -> tuple[Any, str]:
    """A column of shares; empty where there is none."""
    return lambda row: "" if getattr(row, field) is None else f"{getattr(row, field):.{digits}%}", ""


def terms_table(best: Any) -> str:
    """Every term: its times, bytes and FLOPs."""
    times = {"at best": ("lower_s", "s"), "expected": ("expected_s", "s"), "exposed": ("exposed_s", "s")}
    sent = {"sent": (lambda row: amount(row.bytes, "bytes") if row.bytes else "", "")}
    flops = {"FLOPs": (lambda row: amount(row.flops, "FLOP") if row.flops else "", "")}
    return record_table(best.terms, {"term": "name"} | times | sent | flops)


def plans_table(report: Any) -> str:
    """The recommended plan and others, each against the first."""
    best, numbers = report.plans[0].step_s, count(1)
    columns = {
        "#": lambda _: next(numbers),
        "step": ("step_s", "s"),
        "": (lambda row: f"{row.step_s / best - 1:+.1%}", ""),
        "MFU": _percent("mfu"),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.0f}GB", ""),
        "by": lambda row: "rv" if row.verifiable and row.runnable else "r" if row.runnable else "",
        "plan": lambda row: plan_text(row.plan),
    }
    return record_table(report.plans, columns) + "\nby: r `dscale run` takes it, v `dscale verify` does"


def changes_table(rows: list[Any], most: int = 6) -> str:
    """One setting of a given plan changed at a time, towards the best."""
    columns = {
        "change": lambda row: f"{row.setting}={row.old} to {row.new}",
        "step": ("step_s", "s"),
        "tokens/s": (lambda row: f"{row.gain:+.1%}", ""),
    }
    return "one setting changed, the rest as given\n" + record_table(rows[:most], columns)


def suspects_table(measured: Any) -> str:
    """What could explain a measured step."""
    columns = {
        "probably": "cause",
        "step": ("step_s", "s"),
        "part": (lambda row: f"{row.explains:.0%}", ""),
        "look at": "look",
    }
    return record_table(measured.suspects, columns)


def slices_table(rows: list[Any]) -> str:
    """The recommended plan on each slice, best first."""
    run = any(row.days is not None for row in rows)
    columns: dict[str, Any] = {
        "slice": "slice",
        "step": (lambda row: row.note if row.step_s is None else row.step_s, "s"),
        "MFU": _percent("mfu"),
        "$/Mtok": (lambda row: "" if row.usd_per_mtok is None else f"{row.usd_per_mtok:.4f}", ""),
    }
    if run:
        columns["days"] = (lambda row: "" if row.days is None else f"{row.days:,.1f}", "")
        columns["cost"] = (lambda row: "" if row.cost_usd is None else f"${row.cost_usd:,.0f}", "")
    columns["plan"] = lambda row: row.plan or ""
    known = [row for row in rows if row.step_s is not None]
    without = [f"{row.slice}: {row.note}" for row in rows if row.step_s is None]
    lines = [record_table(known, columns)] if known else []
    return "\n".join([*lines, *without])


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
