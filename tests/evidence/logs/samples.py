"""Small logs in the formats that trainers and load generators write, made up line by line."""

import json
from typing import Any


def megatron_line(step: int, millis: float, batch: int = 128, flops: float = 418.7) -> str:
    return (
        f" [2025-08-01 07:19:50] iteration {step:8d}/    5000 | consumed samples: {step * batch:12d} | "
        f"elapsed time per iteration (ms): {millis:.1f} | throughput per GPU (TFLOP/s/GPU): {flops:.1f} | "
        f"learning rate: 1.395349E-07 | global batch size: {batch:5d} | lm loss: 1.044022E+01 | loss scale: 1.0 | "
        "grad norm: 26.305 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def megatron_memory(rank: int, peak: float) -> str:
    return (
        f"[Rank {rank}] (after 2 iterations) memory (MB) | allocated: 10770.38 | max allocated: {peak} | "
        f"reserved: 16334.0 | max reserved: {peak + 900}"
    )


def megatron_argument(name: str, value: object) -> str:
    return f"  {name} {'.' * max(48 - len(name), 3)} {value}"


def megatron_log(*times: float, first: int = 1, batch: int = 128) -> str:
    """A start: the first step compiles."""
    lines = [megatron_line(first, 99138.8, batch), megatron_memory(0, 45754.88)]
    lines += [megatron_line(first + place + 1, time, batch) for place, time in enumerate(times)]
    return "\n".join(lines) + "\n"


TITAN_START = """\
[rank0]:[titan] 2025-06-04 08:51:40,074 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1
[rank0]:[titan] 2025-06-04 08:51:41,074 - root - INFO - CUDA capacity: NVIDIA H100 with 95.00GiB memory
[rank0]:[titan] 2025-06-04 08:51:41,074 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters
[rank0]:[titan] 2025-06-04 08:51:42,074 - root - INFO - Applied SelectiveAC activation checkpointing to the model
[rank0]:[titan] 2025-06-04 08:51:42,838 - root - INFO - Trainer is initialized with local batch size 1, global batch size 8, gradient accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)
"""


def titan_line(step: int, tps: str, rank: int = 0, colour: bool = False) -> str:
    red, reset = ("\x1b[31m", "\x1b[39m") if colour else ("", "")
    return (
        f"[rank{rank}]:[titan] 2025-06-04 08:52:10,224 - root - INFO - {red}step: {step:2}  loss:  8.9196  "
        "grad_norm:  3.1000  "
        f"memory: 47.43GiB(49.92%)  tps: {tps}  tflops: 333.50  mfu: 33.72%{reset}"
    )


def titan_log() -> str:
    lines = [titan_line(1, "375")] + [titan_line(step, "5,760", colour=True) for step in (10, 20, 30)]
    other = [titan_line(step, "5,500", rank=1) for step in (1, 10, 20, 30)]
    both = [line for pair in zip(lines, other, strict=True) for line in pair]
    return TITAN_START + "\n".join(both) + "\n"


def maxtext_log() -> str:
    times = [44.923, 0.319, 5.658, 5.402, 5.401, 5.400, 5.403, 5.401]
    return "".join(
        f"completed step: {step}, seconds: {time:.3f}, TFLOP/s/device: 141.542, Tokens/s/device: 9094.129, "
        "total_weights: 196608, loss: 12.038\n"
        for step, time in enumerate(times)
    )


def maxtext_metrics() -> str:
    rows = [
        {
            "learning/loss": 12.0,
            "perf/step_time_seconds": 5.4,
            "perf/per_device_tflops_per_sec": 141.5,
            "step": float(step),
            "run_name": "a",
        }
        for step in range(9)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def deepspeed_log() -> str:
    return "".join(
        f"[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * step}/global_step={step}, "
        f"RunningAvgSamplesPerSec={rate - 0.5}, CurrSamplesPerSec={rate}, MemAllocated=4.32GB, "
        "MaxMemAllocated=38.49GB\n"
        for step, rate in ((10, 5.0), (20, 25.6), (30, 25.6), (40, 25.6))
    )


def trainer_bars() -> str:
    """A bar that draws over itself, with a slow first step, and what it says at its end."""
    states = [(0, "00:00"), (1, "00:40"), (11, "01:00"), (21, "01:20"), (31, "01:40"), (41, "02:00")]
    bars = "".join(f"\r  1%|▏         | {done}/2000 [{time}<1:01:50,  2.00s/it]" for done, time in states)
    return bars + "\r\n{'loss': 1.9, 'grad_norm': 0.4, 'learning_rate': 2e-05, 'epoch': 0.1}\n"


def trainer_state(ended: bool = True) -> str:
    history: list[dict[str, Any]] = [{"epoch": 0.5, "loss": 1.9, "step": 100}]
    if ended:
        history.append(
            {
                "epoch": 1.0,
                "step": 200,
                "total_flos": 1e18,
                "train_loss": 1.8,
                "train_runtime": 500.0,
                "train_samples_per_second": 51.2,
                "train_steps_per_second": 0.4,
            }
        )
    return json.dumps({"global_step": 200, "max_steps": 200, "train_batch_size": 4, "log_history": history}, indent=2)


def vllm_result(**changed: Any) -> dict[str, Any]:
    times = {
        f"{part}_{name}_ms": value
        for name, values in {"ttft": (520.0, 610.0, 840.0), "tpot": (9.9, 9.5, 11.2), "itl": (9.9, 9.5, 30.0)}.items()
        for part, value in zip(("mean", "median", "p99"), values, strict=True)
    }
    return {
        "date": "20250801-101010",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "meta-llama/Meta-Llama-3-8B",
        "tokenizer_id": "meta-llama/Meta-Llama-3-8B",
        "num_prompts": 330,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 32,
        "duration": 31.0,
        "completed": 320,
        "total_input_tokens": 327680,
        "total_output_tokens": 81920,
        "request_throughput": 10.3,
        "request_goodput": None,
        "output_throughput": 2640.0,
        "total_token_throughput": 13200.0,
        **times,
        **changed,
    }


def sglang_result(**changed: Any) -> dict[str, Any]:
    kept = vllm_result()
    names = ("total_input_tokens", "total_output_tokens", "completed", "request_throughput", "output_throughput")
    kept = {name: value for name, value in kept.items() if name in names or name.endswith("_ms")}
    return {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": 32,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 256,
        "random_range_ratio": 1.0,
        "duration": 31.0,
        **kept,
        **changed,
    }


AIPERF_PHASES = {
    "models": {"items": [{"name": "meta-llama/Meta-Llama-3-8B"}]},
    "endpoint": {"urls": ["http://localhost:8000"], "streaming": True},
    "phases": [
        {"name": "warmup", "kind": "warmup", "type": "concurrency", "requests": 8, "concurrency": 4},
        {
            "name": "profiling",
            "kind": "profiling",
            "type": "gamma",
            "requests": 320,
            "concurrency": 64,
            "rate": 4.0,
            "smoothness": 0.25,
        },
    ],
}
"""How AIPerf 0.13 writes down what was run."""


def aiperf_result() -> dict[str, Any]:
    def metric(unit: str, mean: float, deviation: float = 0.0) -> dict[str, Any]:
        return {"unit": unit, "avg": mean, "p50": mean, "p99": mean * 1.5, "min": mean, "max": mean, "std": deviation}

    return {
        "aiperf_version": "0.12.0",
        "schema_version": "1.4",
        "request_count": metric("requests", 320),
        "request_throughput": metric("requests/sec", 10.3),
        "time_to_first_token": metric("ms", 520.0),
        "inter_token_latency": metric("ms", 9.9),
        "request_latency": metric("ms", 3050.0),
        "output_token_throughput": metric("tokens/sec", 2640.0),
        "input_sequence_length": metric("tokens", 1024),
        "output_sequence_length": metric("tokens", 256, 128.0),
        "input_config": {
            "endpoint": {"model_names": ["meta-llama/Meta-Llama-3-8B"], "streaming": True},
            "loadgen": {"concurrency": 32, "request_rate": None},
        },
    }
