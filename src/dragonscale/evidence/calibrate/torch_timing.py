"""The same cases in PyTorch: captured as CUDA graphs, replayed between events; on a CPU, called and waited for."""

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from dragonscale.evidence.calibrate import timing
from dragonscale.evidence.calibrate.cases import WIDTHS, BenchCase, Machine
from dragonscale.evidence.calibrate.timing import Bench, Clocked

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}


class TorchBench(Bench):
    """Times with PyTorch on its first GPU, or on the CPU."""

    def __init__(self, small: bool = False) -> None:
        self.torch = torch = _torch()
        self.gpu = torch.cuda.is_available()
        self.where = "cuda" if self.gpu else "cpu"
        torch.manual_seed(0)
        found = torch.cuda.get_device_properties(0) if self.gpu else None
        self.memory = int(found.total_memory) if found else 2**32
        self.cache = int(getattr(found, "L2_cache_size", 2**26)) if found else 2**20 if small else 2**25

    def machine(self) -> Machine:
        name = self.torch.cuda.get_device_name(0) if self.gpu else "cpu"
        count = self.torch.cuda.device_count() if self.gpu else 1
        software = {
            **timing.versions("torch", "triton"),
            **({"cuda": str(self.torch.version.cuda)} if self.gpu else {}),
        }
        date = time.strftime("%Y-%m-%d")
        return Machine(name, count, "gpu" if self.gpu else "cpu", software, "torch", date, self.cache, self.memory)

    def dtypes(self) -> Sequence[str]:
        if not self.gpu:
            return ("fp32",)
        narrow = self.torch.cuda.get_device_capability() >= (8, 9)
        return ("bf16", *(["fp8"] if narrow else []), "fp16", "fp32")

    def prepare(self, case: BenchCase) -> Any:
        return case

    def measure(self, prepared: Any) -> Clocked:
        if prepared.kind in ("dispatch", "round_trip"):
            return self._host(prepared)
        sets = min(timing.MOST_SETS if self.gpu else 3, timing.sets_for(prepared.moved, self.cache, 0.2 * self.memory))
        works = [work_of(prepared, self.where) for _ in range(sets)]
        with self.torch.set_grad_enabled(prepared.kind == "attention_both"):
            return self._graphed(works) if self.gpu else self._called(works)

    def _graphed(self, works: list[Callable[[], Any]]) -> Clocked:
        stream = self.torch.cuda.Stream()
        with self.torch.cuda.stream(stream):
            for _ in range(2):
                for work in works[:2]:
                    work()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=stream):
            kept = [work() for work in works]
        graph.replay()
        rough = _between(graph.replay, 1)
        calls = timing.calls_for(rough)
        found = [_between(graph.replay, calls) / (calls * len(works)) for _ in range(timing.REPEATS)]
        del kept, graph
        return timing.settle(found)

    def _called(self, works: list[Callable[[], Any]]) -> Clocked:
        for work in works:
            work()
        found = []
        for _ in range(timing.REPEATS):
            began = time.perf_counter()
            for work in works:
                work()
            found.append((time.perf_counter() - began) / len(works))
        return timing.settle(found)

    def _host(self, case: BenchCase) -> Clocked:
        def wait(_: Any) -> None:
            if self.gpu:
                self.torch.cuda.synchronize()

        return timing.host_times(case, self.torch.ones(128, device=self.where), lambda value: value + 1, wait)


def _torch() -> Any:
    """PyTorch, which only this bench needs."""
    return importlib.import_module("torch")


def _between(call: Callable[[], Any], calls: int) -> float:
    """Seconds of the device between two events around so many calls."""
    torch = _torch()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def work_of(case: BenchCase, where: str) -> Callable[[], Any]:
    """A case on random arrays of its own."""
    torch = _torch()
    F = torch.nn.functional

    def array(*shape: int) -> Any:
        kind = getattr(torch, _DTYPES[case.dtype])
        made = torch.randn(*shape, device=where, dtype=torch.bfloat16 if case.dtype == "fp8" else kind)
        return made.to(kind) if case.dtype == "fp8" else made

    s = case.sizes
    if case.kind.startswith("matmul"):
        m, n, k = s
        if case.dtype == "fp8":
            x, w, scale = array(m, k), array(n, k), torch.ones((), device=where)
            return lambda: torch._scaled_mm(x, w.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        x = array(k, m).t() if case.kind == "matmul_dw" else array(m, k)
        w = array(n, k).t() if case.kind == "matmul_dx" else array(k, n)
        return lambda: x @ w
    if case.kind in ("copy", "read", "product"):
        count = max(1, s[0] // {"copy": 2, "read": 1, "product": 3}[case.kind] // WIDTHS[case.dtype])
        count = count // 4096 * 4096 or count
        x, y = array(count), array(count if case.kind == "product" else 1)
        return {"copy": lambda: x + 1, "read": x.sum, "product": lambda: x * y}[case.kind]
    if case.kind in ("attention", "attention_both", "decode"):
        batch, length, heads, kv_heads, size = s
        q = array(batch, heads, 1 if case.kind == "decode" else length, size)
        k, v = array(batch, kv_heads, length, size), array(batch, kv_heads, length, size)
        causal, shared = case.kind != "decode", heads != kv_heads

        def forward() -> Any:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

        if case.kind != "attention_both":
            return forward
        given = torch.randn_like(q)
        for one in (q, k, v):
            one.requires_grad_()
        return lambda: torch.autograd.grad(forward(), (q, k, v), given)
    raise NotImplementedError(f"{case.kind} is not timed in PyTorch")
