"""A plan as Megatron-LM can run it: what its flags cannot say is changed and told, what it refuses is refused.

Megatron lays the ranks of EP next to each other: over tensor, then over context, then over data. Experts that a plan
spreads over data and copies over context (`fold=tensor` with context) would lie otherwise: where the sizes allow it,
what runs is the same number of experts a chip, spread over context first.
"""

from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import plain_fields
from dragonscale.exports.written import PlanDifference
from dragonscale.training.legality import family
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.stack import Stack, load_stack, remat_of
from dragonscale.training.stages import chunk_sizes

TERMS = load_terms("megatron")


@dataclass(frozen=True)
class MegatronRun:
    """A run as Megatron-LM runs it: its plan is one that the flags can say. `differences` say what of the asked plan is
    otherwise."""

    run: TrainingRun
    plan: Plan
    differences: tuple[PlanDifference, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        return plain_fields(self.run.fields)

    @property
    def stack(self) -> Stack:
        return load_stack(self.run.file.stack or "megatron-core")

    @property
    def experts(self) -> int:
        return experts_of(self.run)

    @property
    def layers(self) -> int:
        return self.run.model.n_layers

    @property
    def sharded(self) -> bool:
        """Whether ZeRO has anything to split."""
        plan = self.plan
        return plan.zero > 0 and plan.fsdp * plan.expert * plan.context > 1

    @property
    def fsdp(self) -> bool:
        return self.sharded and self.plan.zero > 1

    @property
    def ep(self) -> int:
        """Ranks that experts are spread over."""
        plan = self.plan
        over = plan.context if plan.fold == "context" else 1
        return plan.expert * over * (1 if plan.etp else plan.tensor) if self.experts else 1

    @property
    def etp(self) -> int:
        return self.plan.tensor if self.experts and self.plan.etp else 1

    @property
    def architecture(self) -> str:
        """Of the chip: hopper, blackwell …; `amd` for AMD's."""
        chip = self.run.slice.chip
        return chip.architecture if family(chip) == "nvidia" else family(chip)


def experts_of(run: TrainingRun) -> int:
    """Experts of a layer; 0 of a dense model."""
    return max((section.dims.get("e", 0) for section in run.model.program().sections), default=0)


def settle(run: TrainingRun) -> MegatronRun:
    """A run as the flags can say it; what Megatron-LM refuses is refused."""
    plan, found = run.plan, list[PlanDifference]()
    experts = experts_of(run)
    if experts:
        plan, found = _experts(plan, experts)
    if plan.remat == "selective":
        modules = remat_of(load_stack("megatron-core"), plan.remat)
        plan = replace(plan, remat=modules)
        why = "the default of --recompute-modules; what norms and nonlinearities put out stays"
        found.append(PlanDifference("remat=selective", f"{modules} runs again", why, "remat"))
    if plan.pipe > 1 and plan.virtual == 1 and plan.schedule == "interleaved":
        plan = replace(plan, schedule="1f1b")
        found.append(PlanDifference("schedule=interleaved with one chunk a rank", "it is 1f1b", "", "schedule"))
    settled = MegatronRun(run, plan, tuple(found))
    _refuse(settled)
    return settled


def _experts(plan: Plan, experts: int) -> tuple[Plan, list[PlanDifference]]:
    found: list[PlanDifference] = []
    if plan.tensor > 1 and not plan.etp and plan.expert * plan.tensor > experts:
        ways = f"expert={plan.expert} x tensor={plan.tensor}"
        plan = replace(plan, etp=True)
        found.append(
            PlanDifference("etp=false", "experts are sliced over tensor", f"{experts} are fewer than {ways}", "etp")
        )
    if plan.context > 1 and plan.fold == "tensor" and plan.expert > 1 and plan.expert % plan.context == 0:
        plan = replace(plan, fold="context", expert=plan.expert // plan.context, fsdp=plan.fsdp * plan.context)
        found.append(TERMS.difference("fold"))
    return plan, found


def _refuse(settled: MegatronRun) -> None:
    """What Megatron-LM's own checks refuse and the planner's table of stacks does not."""
    plan, own = settled.plan, settled.fields
    if settled.experts and settled.experts % settled.ep:
        _no(
            plan,
            f"{settled.experts} experts do not divide over the {settled.ep} ranks that hold them",
            f"expert={plan.expert // 2 or 1}",
        )
    if settled.experts and plan.tensor > 1 and not plan.sequence:
        _no(plan, "its layers of experts ask for sequence parallelism with tensor", "sequence=true")
    if settled.fsdp and plan.pipe > 1:
        _no(plan, "Megatron-FSDP (zero=2 and 3) does not go with a pipeline", "zero=1")
    if plan.pipe > 1:
        stages = chunk_sizes(settled.layers, plan.pipe * plan.virtual, plan.layout)
        if min(stages) < 0 or 0 in stages[1:-1]:
            _no(plan, f"{len(stages)} chunks are more than its layers", f"virtual={max(plan.virtual // 2, 1)}")
    if plan.context > 1 and settled.run.file.seq % (2 * plan.context):
        _no(plan, f"--seq-length {settled.run.file.seq} is no multiple of 2 x context", f"context={plan.context // 2}")
    if (
        plan.context > 1
        and plan.context_by == "ring"
        and own.get("sliding_window")
        and own.get("model_type") in ("mistral", "phi3")
    ):
        _no(plan, "Transformer Engine has no ring attention with a window", "context_by=gather")
    if own.get("model_type") == "gpt_oss":
        if settled.etp > 1:
            _no(plan, "experts with biases are not sliced (ETP 1 alone)", "etp=false")
        if plan.context > 1 and plan.context_by != "ulysses":
            _no(plan, "Transformer Engine has attention sinks over context by a2a alone", "context_by=ulysses")
    if plan.context > 1 and plan.context_by == "ulysses":
        _whole_heads(settled)
    _refuse_optimizer(settled)


def _whole_heads(settled: MegatronRun) -> None:
    own, plan = settled.fields, settled.plan
    split = [section.dims["k"] for section in settled.run.model.program().sections if section.dims.get("k")]
    kv = int(own["num_attention_heads"]) if own.get("kv_lora_rank") else min(split, default=1)
    if max(kv // plan.tensor, 1) % plan.context:
        _no(
            plan,
            f"--cp-comm-type a2a deals whole KV heads, and {max(kv // plan.tensor, 1)} of a rank do not divide",
            "context_by=ring",
        )


def _refuse_optimizer(settled: MegatronRun) -> None:
    plan = settled.plan
    adam = plan.optimizer in ("adam", "adam-bf16")
    if plan.optimizer == "sgd" and settled.sharded:
        _no(plan, "its distributed optimizer takes Adam, not SGD", "zero=0")
    if plan.optimizer == "muon" and settled.fsdp:
        _no(plan, "Megatron-FSDP has no Muon", "zero=1")
    if plan.optimizer == "muon" and settled.sharded and plan.data > 1:
        _no(
            plan,
            "its layer-wise optimizer of Muon has one instance: data must be in fsdp",
            f"data=1,fsdp={plan.data * plan.fsdp}",
        )
    if plan.optimizer == "muon" and plan.dtype == "fp16":
        _no(plan, "Muon is not trained in fp16", "dtype=bf16")
    if (plan.offload != "none" or plan.optimizer == "adam-bf16") and not (settled.sharded and adam):
        asked = "offload=optimizer" if plan.offload != "none" else "optimizer=adam-bf16"
        _no(
            plan, f"{asked} is its precision-aware Adam, which needs the distributed optimizer", "optimizer=adam,zero=1"
        )


def _no(plan: Plan, why: str, near: str) -> None:
    raise Infeasible(f"Megatron-LM cannot run {short_plan(plan)}: {why}; take {near}.")
