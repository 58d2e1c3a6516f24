"""Time whole prefill and decode steps of LLaMA-like models on the GPU at hand, as JSON lines.

Runs where PyTorch sees a GPU: `python tools/measure_serving_steps.py OUT.jsonl [PART …]`. Random bf16 weights (or fp8
ones for the products), all layers, the head and the choice of the next token. Decode steps are replayed from a CUDA
graph; prefill runs both ways. Pointwise work is `torch.compile`d (`fused`) or one PyTorch operation after the other
(`eager`). In decoding, query heads that share a KV head are left to the library (`-gqa`), or take the place of queries,
which is exact and reads the cache once too. Medians over repetitions; a step reads far more than the last-level cache
holds, so nothing is found there from the step before.
"""

import gc
import itertools
import json
import sys
import time
from dataclasses import asdict

import torch
from serving_model import (
    BF16,
    DEVICE,
    SHAPES,
    Arena,
    Model,
    Shape,
    attend_flexibly,
    attend_grouped,
    attend_one,
    decode_step,
    prefill_step,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
BATCHES = (1, 4, 16, 64, 128, 256)
CONTEXTS = (512, 1024, 4096, 16384)
PROMPTS = ((1, 128), (1, 512), (1, 2048), (1, 4096), (1, 8192), (1, 16384), (8, 512), (4, 2048))


def sync() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(function, most: float = 0.8, least: int = 5, limit: int = 40) -> tuple[float, float, int]:
    """Median and smallest seconds of a function, each call timed by itself without waiting in between."""
    for _ in range(2):
        function()
    sync()
    if DEVICE == "cpu":
        start = time.perf_counter()
        function()
        return time.perf_counter() - start, 0.0, 1
    began, taken, count = time.perf_counter(), [], 0
    while count < least or (time.perf_counter() - began < most and count < limit):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
        events[0].record()
        for event in events[1:]:
            function()
            event.record()
        events[-1].synchronize()
        taken += [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)][1:]
        count += 5
    taken.sort()
    return taken[len(taken) // 2], taken[0], len(taken)


def captured(function):
    """The function's kernels as a graph."""
    if DEVICE == "cpu":
        return function
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def row_of(model: Model, kind: str, batch: int, length: int, attention: str, graph: bool, times) -> dict:
    median, least, count = times
    return {
        "kind": kind,
        "model": model.shape.name,
        "weights": "fp8" if model.fp8 else "bf16",
        "pointwise": model.how,
        "attention": attention,
        "graph": graph,
        "batch": batch,
        "context" if kind.endswith("decode") else "tokens": length,
        "s": median,
        "least_s": least,
        "repeats": count,
    }


def attempt(backend: str, function, what: str):
    """The function's result with one kind of attention, or None where that has no kernel for it."""
    try:
        if backend == "default":
            return function()
        with sdpa_kernel([BACKENDS[backend]] if DEVICE == "cuda" else [SDPBackend.MATH]):
            return function()
    except Exception as error:
        print(what, type(error).__name__, str(error)[:160], flush=True)
        return None


def decode_rows(model: Model, arena: Arena, points, attentions=("flash", "cudnn", "cudnn-gqa")):
    for batch, context in points:
        for attention in attentions:
            backend, _, way = attention.partition("-")
            step = decode_step(model, arena, batch, context, attend_grouped if way else attend_one)
            if step is None:
                continue
            times = attempt(backend, lambda step=step: timed(captured(step)), f"decode {batch} {context} {attention}")
            if times:
                yield row_of(model, "decode", batch, context, attention, True, times)


def prefill_rows(model: Model, arena: Arena, points, attentions=("cudnn", "flash"), graphs=(True, False)):
    for batch, length in points:
        for attention in attentions:
            step = prefill_step(model, arena, batch, length)
            if step is None:
                continue
            for graph in graphs:
                if attention != attentions[0] and not graph:
                    continue

                def times_of(step=step, graph=graph):
                    return timed(captured(step) if graph else step, 0.6)

                times = attempt(attention, times_of, f"prefill {batch} {length} {attention}")
                if times:
                    yield row_of(model, "prefill", batch, length, attention, graph, times)


def hot_rows(model: Model, arena: Arena, points):
    """Prefill after a second of rest, once, and then over and over for four seconds."""
    for batch, length in points:
        step = prefill_step(model, arena, batch, length)
        if step is None:
            continue
        run = attempt("cudnn", lambda step=step: captured(step), "hot")
        if run is None:
            continue
        sync()
        time.sleep(1.0)
        yield row_of(model, "rested", batch, length, "cudnn", True, timed(run, 0.0, 5))
        yield row_of(model, "hot", batch, length, "cudnn", True, timed(run, 4.0, 5, 1000))


def profile_rows(model: Model, arena: Arena, points):
    """Every kernel of a replayed step: how often, how long, and how long nothing ran before it."""
    from torch.profiler import ProfilerActivity, profile

    for kind, batch, length, attention in points:
        decoding = kind == "decode"
        step = (
            decode_step(model, arena, batch, length, attend_one)
            if decoding
            else prefill_step(model, arena, batch, length)
        )
        if step is None or DEVICE == "cpu":
            continue

        def traced(step=step):
            run = captured(step)
            whole = timed(run, 0.3)
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                for _ in range(3):
                    run()
                sync()
            return whole, found.events()

        result = attempt(attention, traced, f"profile {kind} {batch} {length}")
        if result is None:
            continue
        whole, found = result
        events = sorted(
            (event for event in found if event.device_type.name == "CUDA"), key=lambda e: e.time_range.start
        )
        events = events[len(events) // 3 : 2 * len(events) // 3]
        kernels: dict[str, list[float]] = {}
        before = None
        for event in events:
            gap = 0.0 if before is None else event.time_range.start - before
            before = event.time_range.end
            known = kernels.setdefault(event.name[:160], [0, 0.0, 0.0])
            known[0] += 1
            known[1] += event.time_range.end - event.time_range.start
            known[2] += gap
        yield row_of(model, "profile-" + kind, batch, length, attention, True, whole) | {
            "kernels": [
                {"name": name, "count": n, "us": round(total / n, 3), "gap_us": round(gap / n, 3)}
                for name, (n, total, gap) in sorted(kernels.items(), key=lambda item: -item[1][1])
            ]
        }


def attention_rows(shape: Shape, points):
    """One layer's decode attention by itself, through every way that PyTorch has; eight caches in turn, replayed."""
    heads, kv, size = shape.n_heads, shape.n_kv_heads, shape.head_dim
    for batch, context in points:
        caches = [
            tuple(torch.randn(batch, kv, context, size, device=DEVICE, dtype=BF16) for _ in range(2)) for _ in range(8)
        ]
        q = torch.randn(batch, 1, heads, size, device=DEVICE, dtype=BF16)
        ways = [(name, name, attend_one) for name in ("flash", "cudnn", "efficient", "math")]
        ways += [(f"{name}-gqa", name, attend_grouped) for name in ("flash", "cudnn", "default")]
        ways += [("flex-gqa", "default", torch.compile(attend_flexibly))]
        for name, backend, attend in ways:

            def times_of(caches=caches, attend=attend, q=q):
                return timed(captured(lambda: [attend(q, k, v) for k, v in caches]), 0.1)

            times = attempt(backend, times_of, f"attention {name} {batch} {context}")
            if times is None:
                continue
            median, least, count = times
            yield {
                "kind": "decode_attention",
                "way": name,
                "n_heads": heads,
                "n_kv_heads": kv,
                "head_dim": size,
                "batch": batch,
                "context": context,
                "s": median / 8,
                "least_s": least / 8,
                "repeats": count,
            }


GRID = [(batch, context) for context in CONTEXTS for batch in BATCHES]
SMALL = [(batch, context) for batch in (1, 16, 64, 256) for context in (1024, 4096)]
SOME = ((1, 128), (1, 512), (1, 2048), (1, 8192))
PROFILED = (
    ("decode", 1, 1024, "flash"),
    ("decode", 16, 4096, "flash"),
    ("decode", 128, 1024, "flash"),
    ("prefill", 1, 128, "cudnn"),
    ("prefill", 1, 2048, "cudnn"),
)


def part_rows(part: str):
    """The rows of one part, `WHAT:MODEL`."""
    what, _, name = part.partition(":")
    shape = SHAPES[name]
    torch._dynamo.reset()
    if what == "attention":
        yield from attention_rows(shape, [(1, 1024), (1, 16384), (16, 1024), (16, 4096), (64, 1024), (256, 1024)])
        return
    name = asdict(shape)
    yield {"kind": "model", "model": name.pop("name"), **name}
    model = Model(shape, "eager" if what == "eager" else "fused", what == "fp8")
    free = 2**22 if DEVICE == "cpu" else int(torch.cuda.mem_get_info()[0] - 22e9)
    arena = Arena(shape, min(free // 2, 256 * 16384 * shape.token_bytes // 2, int(35e9)))
    if what == "full":
        yield from decode_rows(model, arena, GRID)
        yield from prefill_rows(model, arena, PROMPTS)
        yield from profile_rows(model, arena, PROFILED)
    elif what == "best":
        yield from decode_rows(model, arena, GRID, ("cudnn-gqa",))
        yield from prefill_rows(model, arena, PROMPTS, ("cudnn",), (True,))
    elif what == "default":
        yield from decode_rows(model, arena, SMALL, ("default-gqa",))
        yield from prefill_rows(model, arena, PROMPTS, ("default",), (True,))
    elif what == "hot":
        yield from hot_rows(model, arena, ((1, 512), (1, 2048), (1, 8192)))
    elif what in ("eager", "fp8"):
        yield from decode_rows(model, arena, SMALL, ("flash", "cudnn-gqa"))
        yield from prefill_rows(model, arena, SOME, ("cudnn",))
        yield from profile_rows(model, arena, PROFILED[:1])
    else:
        raise SystemExit(f"There is no part {part}.")


PARTS = [
    *(f"attention:{name}" for name in ("8b", "1b", "70b-slice")),
    *(f"full:{name}" for name in ("8b", "1b", "70b-slice")),
    *(f"best:{name}" for name in ("3b", "7b", "14b", "32b")),
    *(f"{what}:{name}" for what in ("default", "eager", "hot") for name in ("8b", "1b")),
    "fp8:8b",
]


def main(path: str, *parts: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    with open(path, "a") as file, torch.no_grad():
        for part in parts or PARTS:
            began = time.perf_counter()
            try:
                for row in part_rows(part):
                    file.write(json.dumps(row) + "\n")
                    file.flush()
            except Exception as error:
                print(part, "failed:", type(error).__name__, str(error)[:400], flush=True)
            gc.collect()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            print(part, f"{time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
