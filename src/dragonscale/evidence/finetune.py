"""Measured fine-tuning runs: what a row means, and how far its step is from what is expected
(`dscale validate finetune FILE`).

A row's step is its `step_s`, or the tokens of its batch over its tokens per second. Where recompute is not stated, the
least of it that fits counts, as a mark. Runs that only show that something works, and those whose sequences are padded
or shorter than stated, say nothing of speed and are left out."""

import math
from dataclasses import replace
from pathlib import Path

from dragonscale.evidence import memory
from dragonscale.evidence.bands import Residual, document, training_coverage
from dragonscale.evidence.described import chip_of, machine, meaning, words
from dragonscale.evidence.memory import MeasuredPeak, MemoryRun, peak_of
from dragonscale.evidence.rows import Form, Row, attempt, needed, number, read_cases, skip_if, sound, typed
from dragonscale.evidence.score import Scored, ScoreReport, by, report_of, statistics_of
from dragonscale.evidence.training_rows import RECOMPUTE
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Verdict, judge_one
from dragonscale.training.search.run_kinds import kind_of

POLICIES = ("none", "selective", "block")
RENAMED = {"zero_or_fsdp": "sharding", "remat": "recompute", "precision": "dtype", "memory_kind": "memory_counter"}
BLANK = ("layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "vocab", "grad_dtype", "interconnect")


class TunedRun(MeasuredPeak, frozen=True, kw_only=True):
    """A typed row whose step took `step_s`."""

    step_s: float


def published_run(row: Row, place: int) -> TunedRun:
    """A row of published fine-tuning as a typed one."""
    known = words("finetune")
    row = {**dict.fromkeys(BLANK, ""), **row, **{name: row[column] for name, column in RENAMED.items()}}
    for reason, pattern in known["unread"].items():
        text = f"{row['id']} {row['stated']} | {row['packed']} | {row['offload']} | {row['workload']}"
        skip_if(bool(meaning([(pattern, "yes")], text)), reason)
    stack = meaning(known["stacks"], f"{row['framework']} | {row['sharding']} | {row['kernels']} | {row['attention']}")
    skip_if(not stack, f"no software stack known for the framework {row['framework'][:40]!r}")
    chips, seq = needed(row, "n_chips"), needed(row, "seq")
    row["remat"] = meaning(known["remat"], row["recompute"])
    marks = [] if row["remat"] else [RECOMPUTE]
    row["zero_or_fsdp"] = row["sharding"] or "none"
    plan, batch = memory.plan_of({**row, "remat": row["remat"] or "none"}, chips, stack)
    name = meaning(words("memory")["chips"], row["chip"]) or row["chip"]
    where = machine(row | {"chip": name}, chip_of(name), chips)
    rate, seconds = number(row["tokens_per_s_per_chip"]), number(row["step_s"])
    seconds = seconds or (batch * seq / (rate * chips) if rate else None)
    skip_if(not seconds, "neither a step nor a rate is stated")
    run = {"stack": stack, "plan": str(plan), "batch": batch, "seq": seq, "method": row["method"]}
    peak = (number(row["peak_memory_gib"]) or 0.0) * 2**30
    counter = meaning(known["counters"], row["memory_counter"])
    run |= {"counter": counter, "peak_bytes": peak if counter else 0.0, "inferred": "; ".join(marks)}
    typed_model = memory.model_columns(row, place)
    return TunedRun(**typed_model, **where, **run, **memory.adapters_of(row), step_s=float(seconds or 0.0))


FORMS = (Form(words("finetune")["columns"], published_run), typed(TunedRun, ("stack", "plan", "step_s")))


def judge(run: MemoryRun) -> Verdict:
    """What the planner expects of a run; with the least recompute that fits, where the source does not say it, and none
    where by the planner's count nothing does."""
    policies = (run.plan.remat,) if run.remat_known else POLICIES
    tried = [judge_one(run.job, replace(run.plan, remat=policy)) for policy in policies]
    verdict = next((one for one in tried if run.fits(one)), tried[0])
    sound(first_number(verdict.seconds))
    return verdict


def residual(run: MemoryRun, verdict: Verdict) -> Residual:
    """How far a run was from what was expected, for what its kind's band covers."""
    assert isinstance(run.row, TunedRun)
    off = math.log(run.row.step_s / first_number(verdict.seconds))
    return Residual(kind_of(run.job, run.plan), document(run.row.source), off)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured fine-tuning."""
    runs, reasons = read_cases(path, "finetune", FORMS, memory.run_of)
    judged = attempt(runs, judge, reasons)
    scored, peaks, method = [], [], {}
    for run, verdict in judged:
        row = run.row
        assert isinstance(row, TunedRun)
        scored.append(Scored(row.id, row.source, row.step_s, first_number(verdict.seconds), row.stack))
        method[row.id] = row.method
        if row.peak_bytes:
            expected = peak_of(verdict, run.job, row.counter)
            peaks.append(Scored(row.id, row.source, row.peak_bytes, expected, row.stack))
    methods = {name: statistics_of(rows) for name, rows in by(scored, lambda row: method[row.id]).items()}
    band = training_coverage([residual(*one) for one in judged])
    return report_of(scored, reasons, "stack", by_method=methods, memory=statistics_of(peaks), band=band)
