"""Megatron-LM's stdout, and that of what is built on it (Megatron-DeepSpeed, NeMo, Megatron Bridge).

    [2025-08-01 07:19:50] iteration  2/ 5000 | consumed samples: 256 | elapsed time per iteration (ms): 12936.1 |
        throughput per GPU (TFLOP/s/GPU): 118.7 | … | global batch size:   128 | lm loss: 1.04E+01 | …
    [Rank 0] (after 1 iterations) memory (MB) | allocated: 10770.4 | max allocated: 15754.9 | reserved: … | max
    reserved: … Training epoch 0, iteration 45/99 | … | global_batch_size: 128 | global_step: 45 | max_memory_allocated:
    115792977920 |
        … | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03

At the start Megatron prints its arguments (`  tensor_model_parallel_size ...... 8`), so that a log says what was run.
Memory is printed once, after the first steps, by every rank that heads a replica; its megabytes are of 2^20 bytes.
"""

import re

from dragonscale.evidence.logs.megatron_arguments import arguments, plan_words, whole
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
_UNITS = {"MB": 2.0**20, "GB": 2.0**30}


def recognises(log: LogText) -> bool:
    return any(_STEP.search(line) for line in log.lines)


def read(log: LogText) -> TrainingLog:
    """Every step, the largest peak of memory, and what the arguments say."""
    steps = [step for line in log.lines if (step := _step(line))]
    peaks = [peak for line in log.lines for peak in _peaks(line)]
    said = arguments(log)
    return TrainingLog(
        NAME,
        tuple(steps),
        max(peaks, default=None),
        "max_allocated" if peaks else "",
        batch=whole(said, "global_batch_size"),
        seq=whole(said, "seq_length"),
        chips=whole(said, "world_size"),
        plan=plan_words(said),
    )


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
