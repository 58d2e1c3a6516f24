"""Megatron-LM's stdout, and that of what is built on it (Megatron-DeepSpeed, NeMo, Megatron Bridge).

    [2025-08-01 07:19:50] iteration  2/ 5000 | consumed samples: 256 | elapsed time per iteration (ms): 12936.1 |
        throughput per GPU (TFLOP/s/GPU): 118.7 | … | global batch size:   128 | lm loss: 1.04E+01 | …
    [Rank 0] (after 1 iterations) memory (MB) | allocated: 10770.4 | max allocated: 15754.9 | reserved: … | max reserved: …
    Training epoch 0, iteration 45/99 | … | global_batch_size: 128 | global_step: 45 | max_memory_allocated: 115792977920 |
        … | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03

At the start Megatron prints its arguments (`  tensor_model_parallel_size ...... 8`), so that a log says what was run.
Memory is printed once, after the first steps, by every rank that heads a replica; its megabytes are of 2^20 bytes.
"""

import re

from dragonscale.evidence.logs.text import LogText, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

NAME, KIND = "Megatron-LM", "training"
_NUMBER = r"([\d.]+(?:[eE][+-]?\d+)?)"
_STEP = re.compile(r"iteration\s+(\d+)\s*/\s*\d+ \|(?=.*(?:elapsed time per iteration \(ms\)|train_step_timing in s))")
_SECONDS = re.compile(rf"train_step_timing in s: {_NUMBER}(?=[\s|]|$)")
_MILLIS = re.compile(rf"elapsed time per iteration \(ms\): {_NUMBER} \|")
_FLOPS = re.compile(rf"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs|TFLOPS_per_GPU): {_NUMBER}(?=[\s|]|$)")
_BATCH = re.compile(r"global[ _]batch[ _]size:\s+(\d+)(?=[\s|])")
_MEMORY = re.compile(rf"memory \((MB|GB)\) \|.*?max allocated: {_NUMBER}")
_BYTES = re.compile(r"max_memory_allocated: (\d+)(?=[\s|])")
_ARGUMENT = re.compile(r"^(?:\[?\w+\]?:\s*)?\s*([a-z][a-z0-9_]*) \.{3,} (.+?)\s*$")
_UNITS = {"MB": 2.0**20, "GB": 2.0**30}


def recognises(log: LogText) -> bool:
    return any(_STEP.search(line) for line in log.lines)


def read(log: LogText) -> TrainingLog:
    """Every step, the largest peak of memory, and what the arguments say."""
    steps = [step for line in log.lines if (step := _step(line))]
    peaks = [peak for line in log.lines for peak in _peaks(line)]
    said = arguments(log)
    return TrainingLog(
        NAME, tuple(steps), max(peaks, default=None), "max_allocated" if peaks else "",
        batch=_count(said, "global_batch_size"), seq=_count(said, "seq_length"), chips=_count(said, "world_size"),
        plan=plan_words(said),
    )  # fmt: skip


def _step(line: str) -> LoggedStep | None:
    found = _STEP.search(line)
    if found is None:
        return None
    seconds, millis = _SECONDS.search(line), _MILLIS.search(line)
    flops, batch = _FLOPS.search(line), _BATCH.search(line)
    time = number(seconds[1]) if seconds else (number(millis[1]) or 0.0) / 1e3 if millis else None
    reached = number(flops[1]) if flops else None
    return LoggedStep(int(found[1]), time, flops=reached and reached * 1e12, batch=int(batch[1]) if batch else 0)


def _peaks(line: str) -> list[float]:
    """Peaks of a line in bytes; ranks that print at once may share one."""
    own = [(number(size) or 0.0) * _UNITS[unit] for unit, size in _MEMORY.findall(line)]
    return own + [float(size) for size in _BYTES.findall(line)]


def arguments(log: LogText) -> dict[str, str]:
    """The arguments that were printed at the start, of the last start."""
    return {found[1]: found[2] for line in log.lines if (found := _ARGUMENT.match(line))}


def _count(said: dict[str, str], name: str) -> int:
    text = said.get(name, "")
    return int(text) if text.isdigit() else 0


VALUES = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
    "kv_channels", "seq_length", "max_position_embeddings", "micro_batch_size", "global_batch_size", "vocab_size",
    "num_experts", "moe_router_topk", "moe_ffn_hidden_size", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "optimizer", "num_layers_per_virtual_pipeline_stage", "position_embedding_type",
    "normalization", "train_iters",
)  # fmt: skip
SWITCHES = (
    "bf16", "fp16", "sequence_parallel", "use_distributed_optimizer", "swiglu", "group_query_attention",
    "untie_embeddings_and_output_weights", "overlap_grad_reduce", "overlap_param_gather",
)  # fmt: skip


def plan_words(said: dict[str, str]) -> str:
    """The arguments that say the plan, as the command that gives them; empty where none were printed."""
    if "tensor_model_parallel_size" not in said:
        return ""
    chips = _count(said, "world_size")
    words = ["torchrun", "--nproc-per-node", str(min(chips, 8)), "--nnodes", str(-(-chips // 8))] if chips else []
    words.append("pretrain_gpt.py")
    for name in VALUES:
        if (value := said.get(name, "None")) not in ("None", "[]"):
            words += [f"--{name.replace('_', '-')}", value]
    if said.get("fp8", "None") not in ("None", "False"):
        words += ["--fp8-format", said["fp8"]]
    words += [f"--{name.replace('_', '-')}" for name in SWITCHES if said.get(name) == "True"]
    return " ".join(words)
