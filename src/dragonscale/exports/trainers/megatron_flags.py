"""A plan in the arguments of Megatron-LM, apart from the model's sizes: how it is split, what is kept, in what it computes.

How the plan's axes become Megatron's:

| plan | Megatron |
|---|---|
| data x fsdp x expert | what is left of the ranks: data parallel |
| zero 1 over fsdp, expert and context | `--use-distributed-optimizer`, `data` copies by `--num-distributed-optimizer-instances` |
| zero 2, 3 | Megatron-FSDP, `--data-parallel-sharding-strategy optim_grads` or `optim_grads_params` |
| experts whole over tensor | EP is expert x tensor, ETP 1 |
| experts sliced (etp) | EP is expert, ETP is tensor |
| experts over context too (fold) | EP is that, times context |

Megatron lays the ranks of EP next to each other: over tensor, then over context, then over data. Experts that a plan spreads over data and
copies over context (`fold=tensor` with context) would lie otherwise: where the sizes allow it, what runs is the same number of
experts a chip, spread over context first.
"""

from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.trainers.megatron_model import plain_fields
from dragonscale.exports.written import Difference
from dragonscale.training.legality import family
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.stack import Stack, load_stack
from dragonscale.training.stages import chunk_sizes

CONTEXTS = {"ring": "p2p", "gather": "all_gather", "ulysses": "a2a"}
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


@dataclass(frozen=True)
class MegatronRun:
    """A run as Megatron-LM runs it: its plan is one that the flags can say. `differences` say what of the asked plan is otherwise."""

    run: TrainingRun
    plan: Plan
    differences: tuple[Difference, ...] = ()

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
    plan, found = run.plan, list[Difference]()
    experts = experts_of(run)
    if experts:
        plan, found = _experts(plan, experts)
    if plan.remat == "selective":
        modules = "core_attn+layernorm+moe_act" if experts else "core_attn+layernorm"
        plan = replace(plan, remat=modules)
        kept = "of dense feed-forward halves stay" if experts else "stay"
        why = f"--recompute-modules names no other; the outputs of nonlinearities {kept}"
        found.append(Difference("remat=selective", f"{modules} run again", why, "remat"))
    if plan.pipe > 1 and plan.virtual == 1 and plan.schedule == "interleaved":
        plan = replace(plan, schedule="1f1b")
        found.append(Difference("schedule=interleaved with one chunk a rank", "it is 1f1b", "", "schedule"))
    settled = MegatronRun(run, plan, tuple(found))
    _refuse(settled)
    return settled


def _experts(plan: Plan, experts: int) -> tuple[Plan, list[Difference]]:
    found: list[Difference] = []
    if plan.tensor > 1 and not plan.etp and plan.expert * plan.tensor > experts:
        ways = f"expert={plan.expert} x tensor={plan.tensor}"
        plan = replace(plan, etp=True)
        found.append(
            Difference("etp=false", "experts are sliced over tensor", f"{experts} are fewer than {ways}", "etp")
        )
    if plan.context > 1 and plan.fold == "tensor" and plan.expert > 1 and plan.expert % plan.context == 0:
        plan = replace(plan, fold="context", expert=plan.expert // plan.context, fsdp=plan.fsdp * plan.context)
        found.append(
            Difference(
                "experts copied over context",
                "they are spread over context first",
                "EP takes ranks next to each other",
                "fold",
            )
        )
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


def parallel_flags(settled: MegatronRun) -> dict[str, Any]:
    """How the model and the batch are split."""
    plan = settled.plan
    flags: dict[str, Any] = {"--tensor-model-parallel-size": plan.tensor, "--pipeline-model-parallel-size": plan.pipe}
    flags |= {"--sequence-parallel": True} if plan.tensor > 1 and plan.sequence else {}
    flags |= pipeline_flags(settled) if plan.pipe > 1 else {}
    flags["--context-parallel-size"] = plan.context
    flags |= {"--cp-comm-type": [CONTEXTS[plan.context_by]]} if plan.context > 1 else {}
    if settled.experts:
        flags |= {"--expert-model-parallel-size": settled.ep, "--expert-tensor-parallel-size": settled.etp}
    if settled.sharded:
        flags["--use-distributed-optimizer"] = True
        if settled.fsdp:
            flags |= {
                "--use-megatron-fsdp": True,
                "--data-parallel-sharding-strategy": SHARDING[plan.zero],
                "--init-model-with-meta-device": True,
            }
        if plan.data > 1:
            flags["--num-distributed-optimizer-instances"] = plan.data
    return flags


def pipeline_flags(settled: MegatronRun) -> dict[str, Any]:
    """Layers dealt to stages: by counts that divide, by those with the ends counted, or stage by stage."""
    plan, layers = settled.plan, settled.layers
    chunks = plan.pipe * plan.virtual
    virtual = {"--num-virtual-stages-per-pipeline-rank": plan.virtual} if plan.virtual > 1 else {}
    if plan.layout == "even" and layers % chunks == 0:
        return virtual
    if plan.layout == "ends" and (layers + 2) % chunks == 0:
        return {
            **virtual,
            "--account-for-embedding-in-pipeline-split": True,
            "--account-for-loss-in-pipeline-split": True,
        }
    sizes = chunk_sizes(layers, chunks, plan.layout)
    further = "m" * int(settled.fields.get("num_nextn_predict_layers") or 0)
    return {"--pipeline-model-parallel-layout": layout_text(sizes, further)}


def layout_text(sizes: list[int], further: str = "") -> str:
    """Layers of every stage as Megatron-LM writes them: the embedding, `t` a layer, `m` a module for further tokens, the loss.

    >>> layout_text([1, 2, 1])
    'Et|tt|tL'
    """
    return "E" + "|".join("t" * size for size in sizes) + further + "L"


def batch_flags(settled: MegatronRun) -> dict[str, Any]:
    """The batch and the sequence."""
    file = settled.run.file
    return {"--micro-batch-size": settled.plan.microbatch, "--global-batch-size": file.batch, "--seq-length": file.seq}


def precision_flags(settled: MegatronRun) -> dict[str, Any]:
    """In what matrices are multiplied and gradients summed."""
    dtype, flags = settled.plan.dtype, dict[str, Any]()
    if dtype == "fp32":
        return flags
    flags["--fp16" if dtype == "fp16" else "--bf16"] = True
    narrow = settled.sharded and settled.plan.offload == "none" and settled.plan.optimizer != "muon"
    if dtype == "fp8":
        flags |= {"--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"}
    elif dtype == "mxfp8":
        flags |= {"--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"}
        flags |= {"--reuse-grad-buf-for-mxfp8-param-ag": True} if narrow and not settled.fsdp else {}
    elif dtype == "nvfp4":
        flags |= {"--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"}
    if dtype in ("fp8", "mxfp8") and narrow:
        flags["--fp8-param-gather"] = True  # weights are kept and gathered in fp8 alone, as the stack is timed
    if dtype != "fp16" and settled.stack.state.reduce_bytes < 4:
        flags["--grad-reduce-in-bf16"] = True
    return flags


def recompute_flags(settled: MegatronRun) -> dict[str, Any]:
    """What runs again in the backward pass."""
    remat = settled.plan.remat
    if remat == "none":
        return {}
    if remat == "block":
        return {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
    return {"--recompute-granularity": "selective", "--recompute-modules": remat.split("+")}


def optimizer_flags(settled: MegatronRun) -> dict[str, Any]:
    """The optimizer and where its state is."""
    plan = settled.plan
    name = {"adam-bf16": "adam"}.get(plan.optimizer, plan.optimizer)
    flags: dict[str, Any] = {"--optimizer": name}
    flags |= {"--sgd-momentum": 0.0} if name == "sgd" else {}
    flags |= {"--adam-beta1": 0.9, "--adam-beta2": 0.95} if name == "adam" else {}
    if plan.offload == "optimizer" or plan.optimizer == "adam-bf16":
        flags["--use-precision-aware-optimizer"] = True
    if plan.optimizer == "adam-bf16":
        flags |= {"--exp-avg-dtype": "bf16", "--exp-avg-sq-dtype": "bf16"}
    if plan.offload == "optimizer":
        flags |= {
            "--optimizer-cpu-offload": True,
            "--optimizer-offload-fraction": 1.0,
            "--overlap-cpu-optimizer-d2h-h2d": True,
        }
    return flags


def overlap_flags(settled: MegatronRun) -> dict[str, Any]:
    """What is hidden under what, as the stack's expectation has it, and kernels that are fused."""
    plan, stack = settled.plan, settled.stack
    flags: dict[str, Any] = {}
    if plan.replicas * plan.context > 1 and stack.overlap.gradient:
        flags["--overlap-grad-reduce"] = True
        flags |= {"--overlap-param-gather": True} if settled.sharded else {}
    if (
        plan.tensor > 1
        and plan.sequence
        and stack.overlap.tensor
        and settled.architecture in ("hopper", "blackwell")
        and not settled.fsdp
    ):
        flags["--tp-comm-overlap"] = True
    return flags | {"--cross-entropy-loss-fusion": True, "--cross-entropy-fusion-impl": "native"}


def expert_flags(settled: MegatronRun) -> dict[str, Any]:
    """How tokens go to experts and how experts multiply."""
    if not settled.experts:
        return {}
    flags: dict[str, Any] = {"--moe-grouped-gemm": True, "--moe-permute-fusion": True, "--moe-router-dtype": "fp32"}
    fused = (
        settled.stack.experts.dedup and settled.architecture in ("hopper", "blackwell") and settled.ep * settled.etp > 1
    )
    flags["--moe-token-dispatcher-type"] = "flex" if fused else "alltoall"
    if fused:
        racks = settled.run.slice.chip.name.startswith("gb")
        flags["--moe-flex-dispatcher-backend"] = "hybridep" if racks else "deepep"
    if settled.plan.dtype in ("fp8", "mxfp8", "nvfp4"):
        flags["--moe-router-padding-for-quantization"] = True
    if settled.run.file.capacity:
        flags["--moe-expert-capacity-factor"] = settled.run.file.capacity
    return flags | ({"--overlap-moe-expert-parallel-comm": True} if hides_exchanges(settled) else {})


def hides_exchanges(settled: MegatronRun) -> bool:
    """Whether exchanges between experts run under the other microbatch: where the stack is timed so and Megatron-LM takes it."""
    plan = settled.plan
    takes = settled.ep > 1 and plan.remat != "block" and "moe" not in plan.remat.split("+") and plan.dtype != "fp32"
    return bool(settled.stack.overlap.expert) and takes and (plan.pipe == 1 or plan.virtual > 1)
