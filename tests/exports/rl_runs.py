"""Runs of frameworks of reinforcement learning that tests write as commands."""

from dataclasses import replace

from dragonscale.exports.rl.rl_commands import write_rl
from dragonscale.exports.rl.rl_file import RlFile
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.plan import Plan

MEGATRON = Plan(fsdp=2, tensor=4, remat="block:6", zero=1, microbatch=2)
SIZES = {"prompts": 128, "samples": 8, "prompt": 256, "output": 2048, "mean_output": 900.0, "updates": 4}
EXPERTS = Plan(fsdp=2, tensor=2, context=2, expert=2, pipe=2, zero=1, fold="context", remat="block")


def made(stack, trainer, plan, mode="colocated", train=8, rollout=8, **more):
    chips = train if mode == "colocated" else train + rollout
    said = {"model": "llama3-8b", "slice": f"h100:{chips}", "mode": mode, "trainer": trainer, "train": plan}
    said |= {"train_chips": train, "rollout_chips": rollout, "rollout": ServingPlan(tensor=2), "spread": 0.75}
    return RlFile(stack, **{**said, **SIZES, **more}).settled


RUNS = [
    made("verl", "megatron-rl", MEGATRON),
    made("verl", "verl-fsdp", Plan(fsdp=8, zero=2, microbatch=2), algorithm="dapo", reference=False),
    made("verl", "megatron-rl", MEGATRON, "one-step-off"),
    made("verl", "verl-fsdp", Plan(fsdp=8, zero=3), "async", 8, 24, ahead=0.5),
    made("verl", "megatron-rl", EXPERTS, model="qwen3-30b-a3b", train=32, rollout=32),
    made("nemo-rl", "megatron-rl", MEGATRON),
    made("nemo-rl", "megatron-rl", MEGATRON, "async", 8, 24, ahead=2.0),
    made("nemo-rl", "megatron-rl", replace(MEGATRON, fsdp=1), "one-step-off", 4, 4),
    made("openrlhf", "deepspeed", Plan(fsdp=8, zero=3, microbatch=2, sequence=False)),
    made("openrlhf", "deepspeed", Plan(fsdp=8, zero=2), "async", 8, 16),
    made("slime", "megatron-rl", MEGATRON, algorithm="ppo"),
    made("slime", "megatron-rl", MEGATRON, "one-step-off"),
    made("verl", "megatron-rl", replace(MEGATRON, offload="optimizer"), algorithm="ppo"),
    made("openrlhf", "deepspeed", Plan(fsdp=8, zero=3, offload="optimizer", remat="block"), algorithm="ppo"),
    made("trl", "trl", Plan(fsdp=8, zero=3, remat="block"), algorithm="dapo", reference=False),
    made("trl", "trl", Plan(data=2, fsdp=4, zero=2, microbatch=2)),
]
NAMED = [f"{run.stack} {run.mode} {run.trainer}" for run in RUNS]


def script(run):
    return next(iter(write_rl(run).values()))
