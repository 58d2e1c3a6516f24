"""What a DeepSpeed config says of a plan: its ranks, its batch, its formats. `"auto"` is the Trainer's argument of that
meaning.

>>> plan_of({"train_batch_size": 64, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}, {}, {}, 8)[
...     0
... ].microbatch
8
"""

import math
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import whole
from dragonscale.training.plan import Plan

TERMS = load_terms("deepspeed")


def plan_of(
    config: Mapping[str, Any], flags: Mapping[str, str], env: Mapping[str, str], chips: int
) -> tuple[Plan, int]:
    """The plan, and the batch in sequences."""
    zero = zero_part(config)
    stage = stage_of(zero.get("stage", 0))
    # 0 is DeepSpeed's word for no tensor parallelism
    tensor = max(whole(part(config, "tensor_parallel").get("autotp_size", 1), "tensor_parallel.autotp_size", 0), 1)
    context = whole(
        env.get("PARALLELISM_CONFIG_SP_SIZE") or config.get("sequence_parallel_size", 1), "sequence_parallel_size"
    )
    own = part(config, "expert_parallel")
    spread = whole(own.get("autoep_size", 1), "expert_parallel.autoep_size") if own.get("enabled") else 1
    expert = spread // math.gcd(spread, tensor)
    ranks, rest = divmod(chips, tensor * context)
    if rest or ranks % expert:
        raise TERMS.wrong("ranks", chips=chips, tensor=tensor, context=context, spread=spread)
    batch, micro = _batch(config, flags, ranks)
    shards = _shards(zero, ranks, expert)
    offloaded = str(part(zero, "offload_optimizer").get("device", "none")) in ("cpu", "nvme") or is_on(
        zero.get("cpu_offload")
    )
    plan = Plan(
        data=ranks // expert // shards if stage else ranks // expert,
        fsdp=shards if stage else 1,
        tensor=tensor,
        context=context,
        expert=expert,
        microbatch=micro,
        remat=_remat(config, flags),
        zero=stage,
        dtype=dtype_of(config, flags)[0],
        sequence=tensor == 1,
        context_by="ulysses" if context > 1 else "gather",
        optimizer=_optimizer(config, flags),
        offload="optimizer" if offloaded else "none",
    )
    return plan, batch


def stage_of(value: Any) -> int:
    """The stage of ZeRO."""
    return whole(value, "zero_optimization.stage", 0, 3)


def _shards(zero: Mapping[str, Any], ranks: int, expert: int) -> int:
    """Ranks that weights are sharded over, among those that hold the same experts: all, or MiCS's
    groups (-1 is none)."""
    group, alike = whole(zero.get("mics_shard_size", -1), "mics_shard_size", -1), ranks // expert
    if group < 1:
        return alike
    if alike % group:
        over = f" ({ranks} with experts over {expert})" if expert > 1 else ""
        raise InputError(f"mics_shard_size {group} does not divide {alike} data-parallel ranks{over}.")
    return group


def _batch(config: Mapping[str, Any], flags: Mapping[str, str], ranks: int) -> tuple[int, int]:
    """Sequences of a step and of a rank's pass, worked out as DeepSpeed does where one of three is not said."""

    def said(name: str, flag: str) -> int:
        value = config.get(name, "auto")
        if value == "auto":
            return whole(flags[flag], f"--{flag}") if flag in flags else 0
        # A config that the Trainer itself loads must agree with its arguments; other programs pass theirs in.
        if (
            flags.get("deepspeed", "true") != "true"
            and flag in flags
            and number_or_zero(flags[flag]) != whole(value, name)
        ):
            raise TERMS.wrong("disagreement", name=name, value=value, flag=flag, said=flags[flag])
        return whole(value, name)

    every = said("train_batch_size", "train_batch_size")
    micro = said("train_micro_batch_size_per_gpu", "per_device_train_batch_size")
    passes = said("gradient_accumulation_steps", "gradient_accumulation_steps")
    if not every and not micro:
        raise TERMS.wrong("no_batch")
    if not micro:
        micro = every // (ranks * (passes or 1))
    if not every:
        every = micro * (passes or 1) * ranks
    if micro < 1 or every % (micro * ranks) or (passes and every != micro * passes * ranks):
        raise TERMS.wrong("batch_product", every=every, micro=micro, ranks=ranks, passes=passes or 1)
    return every, micro


def dtype_of(config: Mapping[str, Any], flags: Mapping[str, str]) -> tuple[str, str]:
    """The format of matmuls, and what to say of it where it is not said outright. `"auto"` is what the program's
    arguments say; a config that is read without a program leaves it open.

    >>> dtype_of({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, {})[0]
    'bf16'
    >>> dtype_of({"bf16": {"enabled": "auto"}}, {"max_steps": "10"})[0]
    'fp32'
    """
    left = [dtype for dtype in ("bf16", "fp16") if part(config, dtype).get("enabled") == "auto"]
    for dtype in ("bf16", "fp16"):
        on = flags.get(dtype) if dtype in left else part(config, dtype).get("enabled", False)
        if is_on(on):
            return dtype, ""
    cast = part(config, "torch_autocast")
    if is_on(cast.get("enabled")):
        half = "16" in str(cast.get("dtype", "")) and "bf" not in str(cast.get("dtype", ""))
        return "fp16" if half else "bf16", ""
    if left and not flags:
        return left[0], f'{left[0]}.enabled is "auto", for the program to say; {left[0]} is assumed.'
    return "fp32", "Neither bf16 nor fp16 is turned on: matmuls are read as fp32."


def _remat(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    own = part(config, "activation_checkpointing")
    if is_on(own.get("cpu_checkpointing")):
        return "offload"
    on = any(is_on(flags.get(name)) for name in ("gradient_checkpointing", "activation_checkpointing"))
    return "block" if on or is_on(own.get("partition_activations")) else "none"


def _optimizer(config: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    kind = str(part(config, "optimizer").get("type") or flags.get("optim", "adamw")).lower()
    for word, name in (("8bit", "adam8"), ("muon", "muon"), ("sgd", "sgd"), ("adafactor", "adafactor")):
        if word in kind:
            return name
    return "adam"


def zero_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("zero_optimization")
    return found if isinstance(found, Mapping) else {}


def part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def is_on(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def number_or_zero(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
