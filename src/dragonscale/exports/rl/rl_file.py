"""A way to run a step of reinforcement learning, with everything that a framework's config says of it, and back.

Frameworks count differently: an update in prompts or in answers, a microbatch in sequences or in tokens, chips in hosts
or engines. `values_of` has a run in all of these words, `changed` finds the run again from those that a config says.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import experts_of, hosts_of
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.work import pads_model
from dragonscale.training.plan.plan import Plan, layers_of

PLANNED = ("tensor", "pipe", "virtual", "context", "remat", "zero", "microbatch", "sequence", "fsdp", "offload")
"""Settings of the trainer's plan that are said as they are."""


@dataclass(frozen=True)
class RlFile:
    """A run: what `dscale rl` is asked, and the plan that is taken. `slice` are all chips; of two pools the trainer has
    `train_chips` of them. With `by_answers` a microbatch is so many answers, padding removed, and not tokens for as
    many of the longest."""

    stack: str
    model: str = ""
    slice: str = ""
    algorithm: str = "grpo"
    prompts: int = 64
    samples: int = 16
    prompt: int = 512
    output: int = 4096
    mean_output: float = 0.0
    spread: float | None = None
    updates: int = 1
    reference: bool = True
    mode: str = "colocated"
    ahead: float = 1.0
    trainer: str = ""
    train_chips: int = 0
    rollout_chips: int = 0
    train: Plan = Plan()
    rollout: ServingPlan = ServingPlan()
    share: float = 0.0
    by_answers: bool = False

    @property
    def split(self) -> bool:
        return self.mode != "colocated"

    @property
    def pools(self) -> tuple[Slice, Slice]:
        """The slices of trainer and engine."""
        whole = parse_slice(self.slice)
        if not self.split:
            return whole, whole
        return Slice(whole.chip, (self.train_chips,)), Slice(whole.chip, (self.rollout_chips,))

    @property
    def settled(self) -> "RlFile":
        """With what the framework does where nothing is said."""
        row = framework(self.stack)
        said = {"trainer": self.trainer or row.trainers[0], "share": self.share or row.share(self.mode)}
        return replace(self, **said)


def values_of(file: RlFile) -> dict[str, Any]:
    """A run in the words of frameworks."""
    plan, answers, longest = file.train, file.prompts * file.samples, file.prompt + file.output
    chips, rolled = file.train_chips, file.rollout_chips
    found: dict[str, Any] = {name: getattr(plan, name) for name in PLANNED}
    found |= {name: getattr(file, name) for name in RlFile.__dataclass_fields__ if name not in ("train", "rollout")}
    pools = file.pools if file.slice else (None, None)
    hosts = [
        hosts_of(piece) if piece else (1, chips) for piece in (*pools, parse_slice(file.slice) if pools[0] else None)
    ]
    experts = experts_of(load_model(file.model)) if file.model else 0
    found |= {
        "model": hub_id(file.model),
        "answers": answers,
        "longest": longest,
        "engine": framework(file.stack).engine,
    }
    found |= {"mini_prompts": file.prompts // file.updates, "mini_samples": answers // file.updates}
    found |= {"accumulation": answers // file.updates // (plan.replicas * plan.microbatch) or 1}
    found |= {"tokens_per_gpu": math.ceil(longest * plan.microbatch / plan.context)}
    found |= {
        "remat": plan.remat.partition(":")[0],
        "age": max(math.ceil(file.ahead), 1) if file.mode == "async" else 1,
    }
    some = layers_of(plan.remat) if plan.pipe == 1 else 0
    layers = {"remat_method": "block" if some else "uniform", "remat_layers": some or 1}
    found |= layers if found["remat"] == "block" else dict.fromkeys(layers, "null")
    over = (1 if plan.etp else plan.tensor) * (plan.context if plan.fold == "context" else 1)
    found |= {"ep": plan.expert * over if experts else 1}
    found |= {"etp": plan.tensor if plan.etp and experts else 1, "engines": rolled // file.rollout.chips}
    pads = bool(file.model) and pads_model(load_model(file.model), framework(file.stack), file.trainer)
    found |= {"packed": not pads, "rollout_tensor": file.rollout.tensor, "rollout_dtype": file.rollout.weights}
    for name, (count, each) in zip(("train_hosts", "rollout_hosts", "hosts"), hosts, strict=True):
        found |= {name: count, "host_gpus" if name == "hosts" else name.replace("hosts", "gpus"): each}
    return found


def changed(file: RlFile, said: dict[str, Any]) -> RlFile:
    """The run with what a config says in these words."""
    plain = {name: said[name] for name in RlFile.__dataclass_fields__ if name in said}
    file = replace(file, **plain)
    if "longest" in said and "prompt" not in said:
        longest = max(said["longest"], 2)
        output = file.output if "output" in said and file.output < longest else longest - min(file.prompt, longest // 2)
        file = replace(file, prompt=longest - output, output=output)
    if "answers" in said:
        file = replace(file, prompts=max(said["answers"] // file.samples, 1))
    file = _pools(file, said)
    plan = replace(file.train, **{name: said[name] for name in PLANNED if name in said})
    if said.get("remat_method") == "block":
        plan = replace(plan, remat=f"block:{said['remat_layers']}")
    if "tokens_per_gpu" in said and "microbatch" not in said:
        longest = file.prompt + file.output
        plan = replace(plan, microbatch=max(round(said["tokens_per_gpu"] * plan.context / longest), 1))
    if "ep" in said or "etp" in said:
        ep, sliced = said.get("ep", 1), said.get("etp", 1) > 1
        expert = ep if sliced or ep % plan.tensor else ep // plan.tensor
        copies, inner = file.train_chips // (plan.tensor * plan.pipe * plan.context), expert // plan.context
        folds = plan.context > 1 and inner and expert % plan.context == 0 and copies % inner == 0
        expert, fold = (inner, "context") if folds else (expert, "tensor")
        plan = replace(plan, etp=sliced, expert=expert, fold=fold)
    ways = plan.tensor * plan.pipe * plan.context * plan.expert
    if file.train_chips % ways:
        raise InputError(f"The trainer has {file.train_chips} chips, which its degrees ({ways}) do not divide.")
    if plan.chips != file.train_chips:
        whole = file.train_chips // ways
        shards = plan.fsdp if "fsdp" in said and whole % plan.fsdp == 0 else whole
        plan = replace(plan, fsdp=shards, data=file.train_chips // (ways * shards))
    if "accumulation" in said and not {"answers", "prompts"} & said.keys():
        answers = plan.replicas * plan.microbatch * said["accumulation"]
        file = replace(file, prompts=max(answers // file.samples, 1))
    engine = {"tensor": said.get("rollout_tensor", file.rollout.tensor)}
    dtype = said.get("rollout_dtype", file.rollout.weights)
    file = replace(file, train=plan, rollout=replace(file.rollout, **engine, weights=dtype, compute=dtype))
    parts = {"mini_prompts": file.prompts, "mini_samples": file.prompts * file.samples}
    parts |= {"accumulation": file.prompts * file.samples // (plan.replicas * plan.microbatch)}
    for name in (name for name in parts if name in said):
        file = replace(file, updates=max(parts[name] // said[name], 1))
    return replace(file, ahead=float(said["age"])) if "age" in said and file.mode == "async" else file


def _pools(file: RlFile, said: dict[str, Any]) -> RlFile:
    """The chips of both pools."""
    hosts = said.get("hosts", 1) * said["host_gpus"] if "host_gpus" in said else 0
    train = said.get("train_hosts", 1) * said["train_gpus"] if "train_gpus" in said else said.get("train_chips", 0)
    rolled = said.get("rollout_hosts", 1) * said["rollout_gpus"] if "rollout_gpus" in said else 0
    rolled = rolled or said.get("rollout_chips", 0) or said.get("engines", 0) * said.get("rollout_tensor", 1)
    if not file.split:
        train = rolled = train or hosts or rolled or file.train_chips
    train = train or (hosts - rolled if hosts else 0) or file.train_chips
    rolled = rolled or (hosts - train if hosts else 0) or file.rollout_chips
    if not train or not rolled:
        raise InputError("The config does not say how many chips train and generate; give --on, such as --on h100:16.")
    chip, total = file.slice.partition(":")[0], train + rolled if file.split else train
    return replace(file, train_chips=train, rollout_chips=rolled, slice=f"{chip}:{total}" if chip else "")
