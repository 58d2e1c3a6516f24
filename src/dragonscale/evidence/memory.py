"""Measured peaks of memory, and runs that ran or ran out: what a row means, and how far it is from what is expected
(`dscale validate memory FILE`).

Counters: `max_allocated` is the peak of live tensors, `max_reserved` what the allocator had taken. What a driver shows
(`nvidia-smi`) holds whatever the cache has taken, and is not scored. A blank parallel size is 1 where the others
multiply to the number of chips. Rows that name a known model take its dims where they state none."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.evidence.described import Described, chip_of, hint, machine, meaning, model_of, words
from dragonscale.evidence.rows import Form, Row, attempt, count, needed, number, read_cases, skip_if, sound, typed
from dragonscale.evidence.score import Scored, ScoreReport, by, report_of, statistics_of
from dragonscale.evidence.training_rows import MeasuredRun, checked_plan
from dragonscale.models import load_model
from dragonscale.models.ffn import Moe
from dragonscale.models.transformer import Transformer
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, make_job, tuned
from dragonscale.training.memory.peak_memory import OUTSIDE
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.tuning import read_tuning


class MeasuredPeak(Described, frozen=True, kw_only=True):
    """A typed row: `batch` sequences of `seq` tokens a step; `counter` showed `peak_bytes`, or the
    run had an `outcome` (ran, oom); `chip_rate` tokens a second went through each chip, where the
    row says so. `preset` names the model where the row states no dims; of it
    `layers` are kept."""

    stack: str
    plan: str
    batch: int
    seq: int
    method: str = "pretrain"
    preset: str = ""
    counter: str = ""
    peak_bytes: float = 0.0
    outcome: str = ""
    chip_rate: float = 0.0
    lora_rank: int = 0
    lora_targets: str = ""
    frozen: str = ""


MemoryRun = MeasuredRun[MeasuredPeak]


def run_of(row: MeasuredPeak) -> MemoryRun:
    """A typed row as a run."""
    plan, model = checked_plan(row), _preset(row) if row.preset else model_of(row)
    job = make_job(model, row.slice, row.batch, row.seq, row.stack)
    if row.lora_rank:
        job = tuned(job, read_tuning(model, "lora", row.lora_rank, row.lora_targets, row.frozen))
    return MemoryRun(row, job, plan)


def _preset(row: MeasuredPeak) -> Transformer:
    """A known model, cut to some of its layers: as many dense ones in front as the row says."""
    model = load_model(row.preset)
    if not row.layers or row.layers == model.n_layers:
        return replace(model, extras=())
    routed = [layer for layer in model.layers if isinstance(layer.ffn, Moe)]
    plain = [layer for layer in model.layers if not isinstance(layer.ffn, Moe)]
    blocks = [*plain[: row.dense_layers], *routed][: row.layers] if routed else plain[: row.layers]
    return replace(model, layers=tuple(blocks), extras=())


def published_run(row: Row, place: int) -> MeasuredPeak:
    """A row of published peaks or outcomes as a typed one."""
    known = words("memory")
    skip_if(row["method"] not in known["methods"], f"no model of training by {row['method'][:20]}")
    for name, reason in known["unread"].items():
        skip_if(hint(row, name), reason)
    outcome, peak = row.get("outcome", ""), number(row["peak_memory_gib"])
    counter = row["memory_kind"] if row["memory_kind"] in known["counters"] else ""
    skip_if(row["memory_kind"] == "nvidia-smi", "only the driver's view is stated, with all that the cache had taken")
    skip_if(not outcome and (not peak or not counter), "the counter of the peak is not stated")
    length = count(row, "seq") or meaning(known["lengths"], f"{row['source']} {row.get('path', '')}")
    skip_if(not length, "seq not stated")
    chips, seq = needed(row, "n_chips"), int(length)
    stack = stack_of(row)
    name = meaning(known["chips"], row["chip"]) or row["chip"]
    plan, batch = plan_of(row, chips, stack)
    where = machine(row | {"chip": name, "interconnect": ""}, chip_of(name), chips)
    run = {"stack": stack, "plan": str(plan), "batch": batch, "seq": seq, "method": row["method"]}
    measured = {"counter": counter, "peak_bytes": (peak or 0.0) * 2**30, "outcome": outcome}
    rate = number(row.get("tokens_per_s_per_chip", "")) or 0.0
    return MeasuredPeak(**model_columns(row, place), **where, **run, **measured, **adapters_of(row), chip_rate=rate)


FORMS = (
    Form(words("memory")["columns"], published_run),
    typed(MeasuredPeak, ("stack", "plan", "counter", "peak_bytes")),
    typed(MeasuredPeak, ("stack", "plan", "outcome")),
)


def adapters_of(row: Row) -> dict[str, Any]:
    """The columns of a typed row that say which adapters were trained, beside weights in which format; a row that does
    not say has its framework's own."""
    known = words("memory")
    if row["method"] not in known["tuned"]:
        return {}
    said = f"{row['framework']} {row['source']} {row['lora_targets']}"
    targets, rank = meaning(known["targets"], said) or row["lora_targets"], count(row, "lora_rank")
    rank = rank or int(meaning(known["ranks"], said) or 0)
    skip_if(not targets, "targets of the adapters not stated")
    skip_if(not rank, "rank of the adapters not stated")
    narrow = meaning(known["frozen"], f"{row['framework']} {row['precision']} {row['notes']}")
    kept = narrow if row["method"] == "qlora" else "bf16"
    return {"lora_rank": rank, "lora_targets": targets.strip(), "frozen": kept}


def stack_of(row: Row) -> str:
    """The software stack that a row's framework is, in the mode that its other columns name."""
    columns = ("framework", "zero_or_fsdp", "precision", "grad_dtype", "date", "notes")
    said = " | ".join(f"{column}: {row[column]}" for column in columns)
    stack = meaning(words("memory")["stacks"], said)
    skip_if(not stack, f"no software stack known for the framework {row['framework'][:40]!r}")
    return stack


def model_columns(row: Row, place: int) -> dict[str, Any]:
    """The columns of a typed row that say which model it is about."""
    known = words("memory")
    stated = {name: count(row, name) for name in words("model")["dims"] if name in row}
    found = {"id": row.get("id") or f"row {place}", "source": row["source"], "model": row["model"] or "model"}
    named = meaning(known["models"], row["model"])
    if named in known["dims"]:
        return found | known["dims"][named]
    if named:
        skip_if(stated["d_model"] and load_model(named).d_model != stated["d_model"], f"not the dims of {named}")
        dense = int(hint(row, "dense") or 0)
        return found | {"preset": named, "layers": stated["layers"], "dense_layers": dense}
    skip_if(re.search(known["experts"], row["model"]), "experts not stated")
    gated = not re.search(known["ungated"], row["model"])
    return found | stated | {"gated_mlp": gated, "tied": bool(re.search(known["tied"], row["model"]))}


def plan_of(row: Row, chips: int, stack: str) -> tuple[Plan, int]:
    """How a run was split, and its sequences a step."""
    known = words("memory")
    tensor, context, pipe, virtual = (count(row, name) or 1 for name in ("tp", "cp", "pp", "vpp"))
    skip_if(chips % (tensor * context * pipe), "parallel sizes do not multiply to the number of chips")
    copies = chips // (tensor * context * pipe)
    micro, batch = count(row, "micro_batch"), count(row, "global_batch")
    skip_if(not micro, "micro_batch not stated")
    if pipe > 1 and (hint(row, "local_batch") or hint(row, "states_local")):
        parts = pipe if hint(row, "by_stages") and micro % pipe == 0 else micro
        micro, batch = micro // parts, copies * micro
    batch = batch or copies * micro * (4 * pipe if pipe > 1 else 1)
    batch -= batch % (copies * micro)
    zero, dtype = meaning(known["zero"], row["zero_or_fsdp"]), meaning(known["dtypes"], row["precision"])
    skip_if("CPU offload" in row["zero_or_fsdp"], "weights lie in the host's memory")
    skip_if(not zero, f"no reading of the sharding {row['zero_or_fsdp'][:40]!r}")
    ways = count(row, "ep") or 1
    expert = ways // math.gcd(ways, tensor * context)
    skip_if(copies % expert, "ep does not divide the replicas")
    remat = _remat(row)
    skip_if(not dtype, f"no model of training in {row['precision'][:20]!r}")
    axes = {"data" if zero == "0" else "fsdp": copies // expert, "tensor": tensor, "context": context, "pipe": pipe}
    stages = {"microbatch": micro, "virtual": virtual, "schedule": "interleaved" if virtual > 1 else "1f1b"}
    rest = {"remat": remat, "zero": int(zero), "dtype": dtype, "optimizer": _optimizer(row, stack)}
    return Plan(**axes, expert=expert, **stages, **rest), batch


def _remat(row: Row) -> str:
    """What was recomputed: modules by name, or all of it."""
    if modules := hint(row, "modules"):
        return "+".join(re.split(r"[,+ ]+", modules.strip(" ,")))
    policy = words("memory")["remat"].get(row["remat"], "")
    skip_if(not policy, "recompute not stated")
    return policy


def _optimizer(row: Row, stack: str) -> str:
    found = meaning(words("memory")["optimizers"], row["optimizer"])
    skip_if(not found, f"no model of the optimizer {row['optimizer'][:30]!r}")
    return "adam-bf16" if found == "adam" and stack in words("memory")["all_bf16"] else found


def peak_of(verdict: Verdict, job: Job, counter: str) -> float:
    """The bytes that a counter of PyTorch's allocator is expected to show: `max_allocated`, or `max_reserved`."""
    allocated = sum(first_number(size) for part, size in verdict.ledger.memory.items() if part not in OUTSIDE)
    return allocated * (job.stack.memory.slack if counter == "max_reserved" else 1.0)


def judge(run: MemoryRun) -> Verdict:
    """What the planner expects of a run."""
    verdict = judge_one(run.job, run.plan)
    sound(first_number(verdict.hbm_bytes))
    return verdict


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured peaks or outcomes."""
    runs, reasons = read_cases(path, "memory", FORMS, run_of)
    judged = attempt(runs, judge, reasons)
    scored, times, method = [], dict[object, Scored](), {}
    for run, verdict in judged:
        row = run.row
        if row.peak_bytes:
            expected, label = peak_of(verdict, run.job, row.counter), f"{row.stack} {row.counter}"
            scored.append(Scored(row.id, row.source, row.peak_bytes, expected, label))
            method[row.id] = row.method
        if row.chip_rate:
            measured = row.batch * row.seq / (row.chip_rate * run.job.slice.chips)
            run_key = (row.source, row.model, row.plan, row.seq, row.chip_rate)  # which has a row for each counter
            times[run_key] = Scored(row.id, row.source, measured, first_number(verdict.seconds), row.stack)
    methods = {name: statistics_of(rows) for name, rows in by(scored, lambda row: method[row.id]).items()}
    counters = {name: statistics_of(rows) for name, rows in by(scored, lambda row: row.group.split()[-1]).items()}
    apart = {"by_method": methods, "by_counter": counters, "outcomes": outcomes(judged)}
    stacks = {name: statistics_of(rows) for name, rows in by(times.values(), lambda row: row.group).items()}
    report = report_of(scored, reasons, "stack", **apart, times=statistics_of([*times.values()]) | {"by_stack": stacks})
    return replace(report, decided=len(judged) - len(scored))


def outcomes(judged: list[tuple[MemoryRun, Verdict]]) -> dict[str, Any]:
    """Of runs that ran, how many fit; of runs that ran out of memory, how many are refused."""
    ran, out = (
        [run.fits(verdict) for run, verdict in judged if run.row.outcome == outcome] for outcome in ("ran", "oom")
    )
    return {"ran": {"rows": len(ran), "fit": sum(ran)}, "oom": {"rows": len(out), "refused": len(out) - sum(out)}}
