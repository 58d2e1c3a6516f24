"""A plan in the arguments of Megatron-LM, apart from the model's sizes: how it is split, what is kept, in what it
computes.

How the plan's axes become Megatron's:

| plan | Megatron |
|---|---|
| data x fsdp x expert | what is left of the ranks: data parallel |
| zero 1 over fsdp, expert and context | `--use-distributed-optimizer`, `data` copies by `--num-distributed-optimizer-instances` |
| zero 2, 3 | Megatron-FSDP, `--data-parallel-sharding-strategy optim_grads` or `optim_grads_params` |
| experts whole over tensor | EP is expert x tensor, ETP 1 |
| experts sliced (etp) | EP is expert, ETP is tensor |
| experts over context too (fold) | EP is that, times context |
"""

from typing import Any

from dragonscale.exports.trainers.megatron.settle import MegatronRun
from dragonscale.training.stages import chunk_sizes

CONTEXTS = {"ring": "p2p", "gather": "all_gather", "ulysses": "a2a"}
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


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
    """Layers of every stage as Megatron-LM writes them: the embedding, `t` a layer, `m` a module for further tokens,
    the loss.

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
    """Whether exchanges between experts run under the other microbatch: where the stack is timed so and Megatron-LM
    takes it."""
    plan = settled.plan
    takes = settled.ep > 1 and plan.remat != "block" and "moe" not in plan.remat.split("+") and plan.dtype != "fp32"
    return bool(settled.stack.overlap.expert) and takes and (plan.pipe == 1 or plan.virtual > 1)
