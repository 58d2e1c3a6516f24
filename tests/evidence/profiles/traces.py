"""Small traces for tests, written as the profilers write them."""

from typing import Any

START = 4_000_000_000_000.0
"""Microseconds: as large as moments are in a real trace."""


def kineto() -> dict[str, Any]:
    """Two steps of PyTorch on a GPU: a linear layer forward, its backward on the engine's thread, an all-reduce, a
    copy, and a CUDA graph."""
    events: list[dict[str, Any]] = [
        _meta("process_name", 100, 0, {"name": "python3"}),
        _meta("thread_name", 100, 100, {"name": "thread 100 (python3)"}),
        _meta("thread_name", 0, 7, {"name": "stream 7 "}),
    ]
    for step in range(2):
        events += _step(step, START + 1000 * step)
    info = {"backend": "nccl", "rank": 0, "world_size": 8, "pg_config": [{"pg_name": "dp", "ranks": [0, 2, 4, 6]}]}
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "distributedInfo": info,
        "traceEvents": events,
        "traceName": "t",
    }


def _step(step: int, at: float) -> list[dict[str, Any]]:
    base = 100 * (step + 1)
    shapes = {"Input Dims": [[4096], [8192, 1024], [1024, 4096], []], "Input type": ["c10::BFloat16"] * 3 + ["Scalar"]}
    grads = {"Input Dims": [[8192, 4096], [4096, 1024]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    collective = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": 4,
        "dtype": "BFloat16",
        "Process Group Name": "dp",
        "Process Group Ranks": "[0, 2, 4, 6]",
    }
    backward = {"Sequence number": 50 + step, "Fwd thread id": 1}
    return [
        _host("user_annotation", f"ProfilerStep#{7 + step}", at, 900),
        _host("user_annotation", "forward", at + 1, 200),
        _host("python_function", "nn.Module: Model_0", at + 2, 150),
        _host("python_function", "torch/nn/modules/module.py(1): _call_impl", at + 3, 148),
        _host("python_function", "nn.Module: MLP_3", at + 5, 100),
        _host("python_function", "train.py(12): forward", at + 6, 98),
        _host("cpu_op", "aten::linear", at + 10, 50, {"External id": base, "Sequence number": 49 + step}),
        _host("cpu_op", "aten::addmm", at + 15, 40, {"External id": base + 1, "Sequence number": 50 + step, **shapes}),
        _host("cuda_runtime", "cudaLaunchKernel", at + 20, 5, {"correlation": base + 1}),
        _device("kernel", "nvjet_tst_128x256", 7, at + 60, 100, {"correlation": base + 1, **_launch(512)}),
        _engine("autograd::engine::evaluate_function: AddmmBackward0", at + 300, 60, backward),
        _engine("AddmmBackward0", at + 302, 50, backward),
        _engine("aten::mm", at + 305, 40, {"External id": base + 5, **grads}),
        _host("cuda_driver", "cuLaunchKernel", at + 310, 5, {"correlation": base + 2}, thread=101),
        _device("kernel", "nvjet_tst_64x64", 7, at + 330, 200, {"correlation": base + 2, **_launch(256)}),
        _host("cpu_op", "nccl:all_reduce", at + 380, 20, {"External id": base + 6}),
        _host("cuda_runtime", "cudaLaunchKernelExC", at + 385, 5, {"correlation": base + 3}),
        _device(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)",
            20,
            at + 400,
            90,
            {"correlation": base + 3, **collective},
        ),
        _host("cuda_runtime", "cudaGraphLaunch", at + 550, 10, {"correlation": base + 4}),
        _device("kernel", "triton_poi_fused_add_0", 7, at + 570, 20, {"correlation": base + 4, "graph node id": 1}),
        _device("kernel", "triton_poi_fused_mul_1", 7, at + 595, 20, {"correlation": base + 4, "graph node id": 2}),
        _device(
            "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 7, at + 620, 5, {"correlation": base + 9, "bytes": 4096}
        ),
        _device("gpu_user_annotation", "forward", 7, at + 60, 100),
        _device("gpu_user_annotation", f"ProfilerStep#{7 + step}", 7, at + 60, 600),
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 100,
            "tid": 100,
            "ts": at + 12,
            "args": {"Total Allocated": 1 << 30, "Device Type": 1, "Device Id": 0, "Bytes": 64},
        },
        {"ph": "s", "id": base + 1, "pid": 100, "tid": 100, "ts": at + 20, "cat": "ac2g", "name": "ac2g"},
    ]


def _launch(blocks: int) -> dict[str, Any]:
    return {"grid": [blocks, 1, 1], "block": [384, 1, 1], "registers per thread": 168, "shared memory": 213188}


def _meta(what: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": START, "pid": process, "tid": thread, "args": args}


def _host(
    category: str, name: str, at: float, took: float, args: dict[str, Any] | None = None, thread: int = 100
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 100,
        "tid": thread,
        "ts": round(at, 3),
        "dur": took,
        "args": args or {},
    }


def _engine(name: str, at: float, took: float, args: dict[str, Any]) -> dict[str, Any]:
    return _host("cpu_op", name, at, took, args, thread=101)


def _device(
    category: str, name: str, stream: int, at: float, took: float, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    more = {"device": 0, "stream": stream, **(args or {})}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": round(at, 3),
        "dur": took,
        "args": more,
    }


def xprof_tpu() -> dict[str, Any]:
    """A TPU core as XProf exports it: all statistics are text, and the list ends with an empty event."""
    names = {1: "XLA Ops", 2: "XLA Modules", 3: "Steps", 4: "Async XLA Ops", 5: "Framework Name Scope"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:TPU:0"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
        *(
            {"ph": "M", "pid": 3, "tid": tid, "name": "thread_name", "args": {"name": name}}
            for tid, name in names.items()
        ),
        {"ph": "M", "pid": 701, "tid": 9, "name": "thread_name", "args": {"name": "python"}},
    ]
    long = (
        "%fusion.3 = bf16[128,512]{1,0:T(8,128)(2,1)} fusion(bf16[128,256]{1,0} %a, bf16[256,512]{1,0} %b), "
        "kind=kOutput"
    )
    stats = {
        "hlo_category": "convolution fusion",
        "long_name": long,
        "tf_op": "jit(step)/mlp/dot_general:",
        "flops": "33554432",
        "source": "m.py:7",
        "bytes_accessed": "458752",
        "hlo_module": "jit_step(77)",
        "device_duration_ps": "1500250",
        "run_id": "4",
    }
    for step in range(2):
        at = 10.0 + 20 * step
        events += [
            {"ph": "X", "pid": 3, "tid": 1, "ts": at, "dur": 1.5, "name": "fusion.3", "args": stats},
            {"ph": "X", "pid": 3, "tid": 2, "ts": at, "dur": 10, "name": "jit_step(77)", "args": {"run_id": "4"}},
            {"ph": "X", "pid": 3, "tid": 3, "ts": at, "dur": 10, "name": str(step)},
            {
                "ph": "X",
                "pid": 3,
                "tid": 4,
                "ts": at,
                "dur": 5,
                "name": "copy-start.1",
                "args": {"hlo_category": "copy-start"},
            },
            {"ph": "X", "pid": 3, "tid": 5, "ts": at, "dur": 5, "name": "mlp"},
            {"ph": "X", "pid": 701, "tid": 9, "ts": at - 5, "dur": 2, "name": "PjitFunction(step)"},
        ]
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}
