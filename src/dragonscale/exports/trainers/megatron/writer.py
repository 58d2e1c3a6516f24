"""Plans as arguments of Megatron-LM's `pretrain_gpt.py`, one process for each chip."""

from typing import Any

from dragonscale.exports.flags import flag_words
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.flags import (
    batch_flags,
    expert_flags,
    hides_exchanges,
    optimizer_flags,
    overlap_flags,
    parallel_flags,
    precision_flags,
    recompute_flags,
)
from dragonscale.exports.trainers.megatron.model import check_type, model_flags
from dragonscale.exports.trainers.megatron.reader import SCRIPT, STEPS
from dragonscale.exports.trainers.megatron.settle import MegatronRun, settle
from dragonscale.exports.written import LaunchProgram, WrittenFiles

TERMS = load_terms("megatron")


def write(run: TrainingRun) -> WrittenFiles:
    """The command of one process."""
    check_type(run.fields)
    settled = settle(run)
    words = flag_words(load_keys("megatron"), all_flags(settled))
    hosts, chips = hosts_of(run.slice)
    program = LaunchProgram("train", (SCRIPT, *words), hosts, chips, per="chip", env=environment(settled))
    as_run = settled.plan if settled.plan != run.plan else None
    return WrittenFiles({}, (program,), settled.differences, as_run, notes(settled))


def all_flags(settled: MegatronRun) -> dict[str, Any]:
    """Every flag of a run, in the order that people read them."""
    run = settled.run
    return {
        **model_flags(run.fields, run.file.model, run.file.seq),
        **parallel_flags(settled),
        **expert_flags(settled),
        **batch_flags(settled),
        **precision_flags(settled),
        **recompute_flags(settled),
        **optimizer_flags(settled),
        **schedule_flags(run),
        **overlap_flags(settled),
        **checkpoint_flags(settled),
    }


def steps_of(run: TrainingRun) -> int:
    """Steps that are written."""
    return run.steps or int(run.file.run.get("steps", 0)) or STEPS


def schedule_flags(run: TrainingRun) -> dict[str, Any]:
    """How long it trains and at what rate: the plan's own where it says, common values otherwise."""
    said = run.file.run
    rate = float(said.get("learning_rate", 3e-4))
    return {
        "--train-iters": steps_of(run),
        "--lr": rate,
        "--min-lr": float(f"{rate * float(said.get('final', 0.1)):.6g}"),
        "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": 0.01,
        "--weight-decay": float(said.get("weight_decay", 0.1)),
        "--clip-grad": float(said.get("clip", 1.0)),
        "--init-method-std": 0.02,
        "--seed": int(said.get("seed", 1234)),
    }


def checkpoint_flags(settled: MegatronRun) -> dict[str, Any]:
    """Checkpoints, logs and data: random tokens, so that it runs as it is."""
    run = settled.run
    saved = (
        {"--ckpt-format": "fsdp_dtensor"}
        if settled.fsdp
        else {
            "--ckpt-format": "torch_dist",
            "--async-save": True,
            "--use-persistent-ckpt-worker": True,
        }
    )
    return {
        "--save": "checkpoints",
        "--load": "checkpoints",
        "--save-interval": int(run.file.run.get("every", 1000)),
        **saved,
        "--log-interval": 10,
        "--log-throughput": True,
        "--eval-interval": 1000,
        "--eval-iters": 0,
        "--manual-gc": True,
        "--manual-gc-interval": 100,
        "--no-create-attention-mask-in-dataloader": True,
        "--tokenizer-type": "NullTokenizer",
        "--mock-data": True,
        "--split": "99,1,0",
    }


def environment(settled: MegatronRun) -> dict[str, str]:
    """What Megatron-LM and Transformer Engine read from the environment."""
    plan, env = settled.plan, dict[str, str]()
    if settled.architecture not in ("blackwell",) and plan.tensor * plan.context > 1 and not settled.fsdp:
        # kernels that hide collectives are queued in order; Blackwell does not need it, Megatron-FSDP does not take it
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if hides_exchanges(settled) else "1"
    elif hides_exchanges(settled):
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    if settled.architecture in ("hopper", "blackwell"):
        env |= {"NVTE_FWD_LAYERNORM_SM_MARGIN": "16", "NVTE_BWD_LAYERNORM_SM_MARGIN": "16"}
    return env | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def notes(settled: MegatronRun) -> tuple[str, ...]:
    """What to change before a real run."""
    found = ["Tokens are random (--mock-data): give --data-path and a tokenizer, and a learning rate of your own."]
    if hosts_of(settled.run.slice)[0] > 1:
        found.append("The folder of --save must be one that all hosts see.")
    if settled.stack.overlap.expert and settled.ep > 1 and not hides_exchanges(settled):
        why = (
            "a block that is recomputed whole" if settled.plan.remat == "block" else "a pipeline with one chunk a rank"
        )
        found.append(TERMS.say("exposed_exchanges", settled=settled, why=why))
    if not settled.run.steps and not settled.run.file.run.get("steps"):
        found.append(f"The plan does not say its tokens: --train-iters is {STEPS}.")
    return tuple(found)
