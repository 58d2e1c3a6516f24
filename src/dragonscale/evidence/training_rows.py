"""What a row of measured training runs means: the job, the plan, the software stack, and the
seconds a step took.

Conventions of the published files: `dp` counts all replicas that split the batch where dp·tp·cp·pp is
the number of chips (FSDP inside it), or only those outside FSDP where dp·fsdp·tp·cp·pp is; `ep`
folds over `dp` and, in Megatron, over `tp`; a TPU7x chip is two JAX devices, each with its own
micro-batch; `-N` of a TPU v4 or v5p counts cores."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dragonscale.evidence.described import Described, chip_of, described, hint, machine, meaning, model_of, words
from dragonscale.evidence.rows import Form, Row, count, needed, number, skip_if, typed
from dragonscale.physics.hardware import Chip, Torus
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, Verdict, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.stack_search import job_for

R = TypeVar("R", bound=Described)
RECOMPUTE, NETWORK = "recompute", "network between nodes"
"""Marks of what a source may leave open: the planner chooses the policy; the chip's reference
network is taken."""


class TrainingRow(Described, frozen=True, kw_only=True):
    """A typed row: `batch` sequences of `seq` tokens a step, which took `step_s`; `peak_bytes` of
    memory, if measured."""

    stack: str = ""
    plan: str
    batch: int
    seq: int
    step_s: float
    peak_bytes: float = 0.0


@dataclass(frozen=True)
class MeasuredRun(Generic[R]):
    """A typed row, of training or of its memory, in the model's terms."""

    row: R
    job: Job
    plan: Plan

    def fits(self, verdict: Verdict) -> bool:
        """Whether the chip's memory has room for what the planner expects the run to hold."""
        return first_number(verdict.hbm_bytes) <= self.job.slice.chip.visible

    @property
    def remat_known(self) -> bool:
        """Whether the source says what was recomputed; otherwise the planner chooses."""
        return RECOMPUTE not in self.row.marks


TrainingRun = MeasuredRun[TrainingRow]


def run_of(row: TrainingRow, stack: str = "") -> TrainingRun:
    """A typed row as a run, by the stack that it names, or by another one (`auto`: what people run on such chips)."""
    plan, stack = checked_plan(row), stack or row.stack
    unknown = f"no software stack known for the source {row.source[:60]!r}; name one in a stack column or by --stack"
    skip_if(not stack, unknown)
    job = make_job(model_of(row), row.slice, row.batch, row.seq, stack)
    return MeasuredRun(row, job_for(replace(job, transport=row.transport), plan), plan)


def checked_plan(row: Any) -> Plan:
    """The plan of a typed row of training, which is for its chips and its batch."""
    plan = parse_plan(row.plan)
    skip_if(plan.chips != row.chips, "parallel sizes do not multiply to the number of chips")
    skip_if(row.batch % (plan.replicas * plan.microbatch), "batch does not divide into the micro-batches")
    return plan


def published_run(row: Row, place: int) -> TrainingRow:
    """A row of published runs as a typed one."""
    skip_if(hint(row, "adapters"), "only adapters are trained (LoRA)")
    shared = described(row, place)
    model_of(Described(**shared))
    chips, seq, batch = (needed(row, name) for name in ("n_chips", "seq_len", "global_batch"))
    seconds, peak = _seconds(row, chips, batch * seq), (number(row["peak_mem_gib"]) or 0.0) * 2**30
    stack = row.get("stack", "") or stack_of(row["source"], _remarks(row))
    chip = chip_of(row["chip"])
    where = machine(row, chip, chips)
    marks = [RECOMPUTE] if not _recompute(row) else []
    local = 0 if isinstance(chip.network, Torus) else where["node"] or chip.network.levels[0].degree
    if local and chips > local and hint(row, "network_unknown"):
        marks.append(NETWORK)
    run: dict[str, Any] = {"stack": stack, "plan": str(plan_of(row, chip, stack)), "batch": batch, "seq": seq}
    run |= {"step_s": seconds, "peak_bytes": peak, "inferred": "; ".join(marks)}
    return TrainingRow(**shared, **where, **run)


FORMS = (Form(words("training")["columns"], published_run), typed(TrainingRow, ("plan", "step_s")))


def _seconds(row: Row, chips: int, tokens: int) -> float:
    seconds, rate = number(row["step_s"]), number(row["tokens_per_s_per_chip"])
    skip_if(seconds is None and rate is None, "neither step time nor tokens per second stated")
    return seconds if seconds is not None else tokens / ((rate or 1.0) * chips)


def _remarks(row: Row) -> str:
    """What decides the mode of a stack: what is noted, and what ran where, of which release."""
    return f"{row['notes']} {row['dtype_note']} {row['model']} on {row['chip']} {row['source']}"


def stack_of(source: str, notes: str = "") -> str:
    """The software stack of a source, with the mode that the notes name; empty if it is unknown."""
    known = words("training")
    stack = meaning(known["stacks"], source) or ""
    return meaning(known["modes"].get(stack, ()), notes) or stack


def plan_of(row: Row, chip: Chip, stack: str) -> Plan:
    """How a published run was split."""
    devices = chip.devices
    tensor, context, pipe, virtual = (count(row, name) for name in ("tp", "cp", "pp", "vpp"))
    tensor, context = tensor or 1, context or 1
    skip_if(not pipe or not row["tp"], "tp or pp not stated")
    skip_if(not virtual and pipe > 1 and "vpp" in row.get("missing_inputs", ""), "pp without vpp stated")
    copies, shards = _copies(row, needed(row, "n_chips") * devices, tensor * context * pipe)
    expert, spread = _expert(row, tensor, context, copies)
    microbatch = count(row, "micro_batch")
    if not microbatch and count(row, "grad_accum"):
        microbatch = needed(row, "global_batch") // (copies * count(row, "grad_accum"))
    skip_if(not microbatch, "micro_batch not stated")
    skip_if(pipe > 1 and hint(row, "local_batch"), "micro-batch of the pipeline not stated")
    fsdp = shards // math.gcd(shards, expert) if shards > 1 else copies // expert
    rings = hint(row, "ring") or stack in words("training")["rings"]
    return Plan(
        **{"data": copies // (fsdp * expert), "fsdp": fsdp // devices if fsdp % devices == 0 else fsdp},
        **{"tensor": tensor, "context": context, "expert": expert, "pipe": pipe, **spread},
        **{"microbatch": microbatch * devices, "virtual": virtual or 1, "layout": _layout(row, pipe * (virtual or 1))},
        remat=_recompute(row) or "none",
        zero=_zero(row, shards > 1, stack),
        dtype=_dtype(row["dtype"]),
        schedule="interleaved" if virtual > 1 else "1f1b",
        sequence=row["sp"].lower() != "false" if tensor > 1 else True,
        context_by="ring" if context > 1 and rings else "gather",
    )


def _copies(row: Row, chips: int, model_ways: int) -> tuple[int, int]:
    """How many ways the batch is split, and how many ways state is sharded over them (FSDP; 1 if it
    is not)."""
    skip_if(chips % model_ways, "parallel sizes do not multiply to the number of chips")
    copies = chips // model_ways
    shards = math.prod(int(size) for size in re.sub(r"\(.*", "", row["fsdp"]).split("x") if size.isdigit())
    skip_if(shards > 1 and copies % shards, "fsdp does not divide the replicas")
    return copies, shards


def _expert(row: Row, tensor: int, context: int, copies: int) -> tuple[int, dict[str, Any]]:
    """Expert parallelism over the replicas, and the plan's words for the rest of it. Megatron's group of experts takes
    `tp` first (unless it slices experts over that: ETP), then `cp`, then replicas."""
    expert = count(row, "ep") or 1
    experts = count(row, "experts") or expert
    stated = bool(hint(row, "expert_tensor")) and tensor > 1
    sliced = stated or (expert * tensor > experts and copies % expert == 0)
    beyond = expert if sliced else expert // math.gcd(expert, tensor)
    shared = math.gcd(beyond, context)
    skip_if(copies % (beyond // shared), "ep does not divide the replicas")
    return beyond // shared, {"etp": stated} | ({"fold": "context"} if shared > 1 else {})


def _recompute(row: Row) -> str:
    """The remat policy that a source states, or the modules of the recipe that it published; empty if
    neither is known."""
    if row["recompute"] in ("unknown", ""):
        return meaning(words("training")["recipes"], _remarks(row))
    return words("training")["remat"].get(row["recompute"], "none")


def _layout(row: Row, chunks: int) -> str:
    """How layers are dealt to the chunks of a pipeline: evenly, or, in recipes that say so, as many as come to each and
    what is left to the last, beside the head and further-token modules."""
    layers = count(row, "layers")
    if chunks == 1 or not layers % chunks or not hint(row, "rest_last"):
        return "even"
    each = -(-layers // chunks)
    rest = layers - each * (chunks - 1)
    return "-".join(str(size) for size in (each + min(rest, 0), *[each] * (chunks - 2), max(rest, 0)))


def _zero(row: Row, sharded: bool, stack: str) -> int:
    """The ZeRO stage: FSDP is 3 (2 where weights stay gathered); the rest by the stack's habit."""
    if stated := hint(row, "zero"):
        return int(stated)
    if sharded or (row["fsdp"] and stack.startswith("torchtitan")):
        return 2 if hint(row, "weights_kept") else 3
    return 0 if stack in words("training")["unsharded"] else 1


def _dtype(text: str) -> str:
    skip_if(text in ("", "unknown"), "dtype not stated")
    skip_if(text not in words("training")["dtypes"], f"no model of training in {text[:20]!r}")
    return words("training")["dtypes"][text]
