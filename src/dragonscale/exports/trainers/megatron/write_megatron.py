"""Plans as arguments of Megatron-LM's `pretrain_gpt.py`, one process for each chip.

How the plan's axes become Megatron's (the flags themselves are the groups of `terms/megatron.toml`):

| plan | Megatron |
|---|---|
| data x fsdp x expert | what is left of the ranks: data parallel |
| zero 1 over fsdp, expert and context | `--use-distributed-optimizer`, `data` copies of it by its instances |
| zero 2, 3 | Megatron-FSDP, `--data-parallel-sharding-strategy optim_grads` or `optim_grads_params` |
| experts whole over tensor | EP is expert x tensor, ETP 1 |
| experts sliced (etp) | EP is expert, ETP is tensor |
| experts over context too (fold) | EP is that, times context |

What its flags cannot say is changed and told, what it refuses is refused. Megatron lays the ranks of EP next to each
other: over tensor, then over context, then over data. Experts that a plan spreads over data and copies over context
(`fold=tensor` with context) would lie otherwise: where the sizes allow it, what runs is the same number of experts a
chip, spread over context first.
"""

from dataclasses import dataclass, replace
from typing import Any

from dragonscale.exports.keys import flag_words, load_keys
from dragonscale.exports.runs import STEPS, TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import SCRIPT, check_type, model_flags, plain_fields
from dragonscale.exports.written import PlanDifference, WrittenFiles
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import Plan, layer_policies, layers_of, short_plan
from dragonscale.training.plan.stack import Stack, in_numerics, load_stack, numerics_for, remat_of
from dragonscale.training.plan.stages import chunk_sizes

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
        file = self.run.file
        return in_numerics(load_stack(file.stack or "megatron-core"), numerics_for(file.numerics, self.plan.dtype))

    @property
    def experts(self) -> int:
        return self.run.experts

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
    def whole_blocks(self) -> bool:
        """Whether blocks are recomputed whole, all or some of them."""
        return "block" in layer_policies(self.plan.remat)

    @property
    def hides_exchanges(self) -> bool:
        """Whether exchanges between experts run under the other microbatch: where the stack is timed so and
        Megatron-LM takes it."""
        plan = self.plan
        takes = self.ep > 1 and not self.whole_blocks and "moe" not in plan.remat.split("+") and plan.dtype != "fp32"
        return bool(self.stack.overlap.expert) and takes and (plan.pipe == 1 or plan.virtual > 1)

    @property
    def architecture(self) -> str:
        """Of the chip: hopper, blackwell …; `amd` for AMD's."""
        chip = self.run.slice.chip
        return chip.architecture if family(chip) == "nvidia" else family(chip)


def settings(settled: MegatronRun) -> dict[str, Any]:
    """What the flags are about beside the run itself. Weights can be kept and gathered in fp8 alone where `narrow`;
    fused kernels send tokens to experts where `flexible`."""
    plan, said, stack, run = settled.plan, settled.run.said, settled.stack, settled.run
    new = settled.architecture in ("hopper", "blackwell")
    granularity = "full" if settled.whole_blocks else "" if plan.remat == "none" else "selective"
    some = layers_of(plan.remat)
    tensor = plan.tensor > 1 and plan.sequence and bool(stack.overlap.tensor)
    values: dict[str, Any] = {"said": said, "steps": run.length, "granularity": granularity}
    return values | {
        "least_rate": float(f"{float(said.get('learning_rate', 3e-4)) * float(said.get('final', 0.1)):.6g}"),
        "method": ("block" if some else "uniform") if settled.whole_blocks else "",
        "recomputed": some or 1,
        "offloaded": layers_of(plan.offload),
        "modules": plan.remat.split("+") if granularity == "selective" else [],
        "optimizer": {"adam-bf16": "adam"}.get(plan.optimizer, plan.optimizer),
        "precision_aware": plan.offload == "optimizer" or plan.optimizer == "adam-bf16",
        "narrow": settled.sharded and plan.offload != "optimizer" and plan.optimizer != "muon",
        "reduces_narrow": plan.dtype not in ("fp16", "fp32") and stack.state.reduce_bytes < 4,
        "hides_gradients": plan.replicas * plan.context > 1 and bool(stack.overlap.gradient),
        "hides_tensor": tensor and new and not settled.fsdp,
        "flexible": bool(settled.experts and stack.experts.dedup and new and settled.ep * settled.etp > 1),
        "flex_backend": "hybridep" if run.slice.chip.name.startswith("gb") else "deepep",
    }


def settle(run: TrainingRun) -> MegatronRun:
    """A run as the flags can say it; what Megatron-LM refuses is refused."""
    plan, differences = run.plan, list[PlanDifference]()
    if experts := run.experts:
        plan, differences = _experts(plan, experts)
    if plan.remat == "selective":
        plan = replace(plan, remat=remat_of(load_stack("megatron-core"), plan.remat))
        differences.append(TERMS.difference("selective", modules=plan.remat))
    if plan.pipe > 1 and plan.virtual == 1 and plan.schedule == "interleaved":
        plan = replace(plan, schedule="1f1b")
        differences.append(TERMS.difference("interleaved"))
    settled = MegatronRun(run, plan, tuple(differences))
    _refuse(settled)
    return settled


def _experts(plan: Plan, experts: int) -> tuple[Plan, list[PlanDifference]]:
    differences: list[PlanDifference] = []
    if plan.tensor > 1 and not plan.etp and plan.expert * plan.tensor > experts:
        differences.append(TERMS.difference("etp", experts=experts, plan=plan))
        plan = replace(plan, etp=True)
    if plan.context > 1 and plan.fold == "tensor" and plan.expert > 1 and plan.expert % plan.context == 0:
        plan = replace(plan, fold="context", expert=plan.expert // plan.context, fsdp=plan.fsdp * plan.context)
        differences.append(TERMS.difference("fold"))
    return plan, differences


def _refuse(settled: MegatronRun) -> None:
    """What Megatron-LM's own checks refuse and the planner's table of stacks does not."""
    plan, own = settled.plan, settled.fields
    kind = own.get("model_type")
    stages = chunk_sizes(settled.layers, plan.pipe * plan.virtual, plan.layout) if plan.pipe > 1 else []
    values: dict[str, Any] = {"seq": settled.run.file.seq, "twice_context": 2 * plan.context, "kind": kind}
    values |= {"half_experts": plan.expert // 2 or 1, "half_virtual": max(plan.virtual // 2, 1)}
    values |= {"half_context": plan.context // 2, "shards": plan.data * plan.fsdp, "short": short_plan(plan)}
    values |= {
        "stages": len(stages),
        "empty_chunks": stages and (min(stages) < 0 or 0 in stages[1:-1]),
        "heads": _heads(settled) if plan.context > 1 and plan.context_by == "ulysses" else 0,
        "window": own.get("sliding_window") and kind in ("mistral", "phi3"),
        "asked": "offload=optimizer" if plan.offload == "optimizer" else "optimizer=adam-bf16",
        "precise": plan.offload == "optimizer" or plan.optimizer == "adam-bf16",
        "sharded_adam": settled.sharded and plan.optimizer in ("adam", "adam-bf16"),
    }
    TERMS.refuse(settled, settled=settled, **values)


def _heads(settled: MegatronRun) -> int:
    """KV heads of a tensor rank, which Ulysses attention deals whole."""
    own, sections = settled.fields, settled.run.model.program().sections
    kv_heads = [section.dims["k"] for section in sections if section.dims.get("k")]
    kv = int(own["num_attention_heads"]) if own.get("kv_lora_rank") else min(kv_heads, default=1)
    return max(kv // settled.plan.tensor, 1)


GROUPS = ("ranks", "experts", "batch", "precision", "recompute", "optimizer", "schedule", "overlap", "checkpoint")
"""The groups of flags after the model's and the pipeline's, in the order that people read them."""


def write(run: TrainingRun) -> WrittenFiles:
    """The command of one process."""
    check_type(run.fields, run.file.model)
    settled = settle(run)
    flags = {**model_flags(run.fields, run.file.model, run.file.seq), **plan_flags(settled)}
    words = (SCRIPT, *flag_words(load_keys("megatron"), flags))
    written = WrittenFiles(differences=settled.differences, notes=notes(settled))
    return run.trained(settled.plan, words, written, per="chip", env=environment(settled))


def plan_flags(settled: MegatronRun, leave: str = "") -> dict[str, Any]:
    """Every flag of a plan, but for a group that is left."""
    flags, values = TERMS.group("degrees", settled) | pipeline_flags(settled), settings(settled)
    for group in GROUPS:
        flags |= TERMS.group(group, settled, **values) if group != leave else {}
    return flags


def pipeline_flags(settled: MegatronRun) -> dict[str, Any]:
    """Layers dealt to stages: by counts that divide, by those with the ends counted, or stage by stage."""
    plan, layers = settled.plan, settled.layers
    chunks = plan.pipe * plan.virtual
    virtual = {"--num-virtual-stages-per-pipeline-rank": plan.virtual} if plan.virtual > 1 else {}
    if plan.pipe == 1:
        return {}
    if plan.layout == "even" and layers % chunks == 0:
        return virtual
    if plan.layout == "ends" and (layers + 2) % chunks == 0:
        ends = {f"--account-for-{end}-in-pipeline-split": True for end in ("embedding", "loss")}
        return virtual | ends
    further = "m" * int(settled.fields.get("num_nextn_predict_layers") or 0)
    return {"--pipeline-model-parallel-layout": layout_text(chunk_sizes(layers, chunks, plan.layout), further)}


def layout_text(sizes: list[int], further: str = "") -> str:
    """Layers of every stage as Megatron-LM writes them: the embedding, `t` a layer, `m` a module for further tokens,
    the loss.

    >>> layout_text([1, 2, 1])
    'Et|tt|tL'
    """
    return "E" + "|".join("t" * size for size in sizes) + further + "L"


def environment(settled: MegatronRun) -> dict[str, str]:
    """What Megatron-LM and Transformer Engine read from the environment."""
    plan, env = settled.plan, dict[str, str]()
    # kernels that hide collectives are queued in order; Blackwell does not need it, Megatron-FSDP does not take it
    ordered = settled.architecture != "blackwell" and plan.tensor * plan.context > 1 and not settled.fsdp
    if ordered or settled.hides_exchanges:
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if settled.hides_exchanges else "1"
    if settled.architecture in ("hopper", "blackwell"):
        env |= {"NVTE_FWD_LAYERNORM_SM_MARGIN": "16", "NVTE_BWD_LAYERNORM_SM_MARGIN": "16"}
    if layers_of(plan.offload) and settled.run.slice.chip.name.startswith("gb"):
        env["NCCL_NET_GDR_C2C"] = "1"  # transfers to Grace and the network's take different ways (Megatron-Bridge)
    return env | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def notes(settled: MegatronRun) -> tuple[str, ...]:
    """What to change before a real run."""
    why = "a block that is recomputed whole" if settled.whole_blocks else "a pipeline with one chunk a rank"
    return TERMS.remark_on(settled, settled=settled, why=why, steps=STEPS)
