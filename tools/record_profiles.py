"""Record small profiles on the accelerator at hand: what the tests of the profile readers read.

    python -m tools.record_profiles OUT [--only train,decode,…] [--small] [--budget SECONDS]

Each part runs in a process of its own, so that none can take the others with it, and leaves in OUT: the profile as the
software wrote it (`NAME.xplane.pb.gz`, `NAME.trace.json.gz`), what was run and how long its steps took without the
profiler (`NAME.json`) and, where XLA compiled it, the module as text (`NAME.hlo.txt.gz`) with XLA's own count of FLOPs.
Models have the widths of real ones and few layers: what a kernel is called and how it is attributed does not depend on
how often it runs.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32768,
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "rope_theta": 500000.0,
}
GEMMA = {
    "model_type": "gemma2",
    "vocab_size": 32768,
    "hidden_size": 2304,
    "num_hidden_layers": 4,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 1024,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 2048,
    "num_hidden_layers": 3,
    "intermediate_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "sliding_window": 16,
    "query_pre_attn_scalar": 16,
}


def config_of(fields: dict[str, Any], small: bool) -> dict[str, Any]:
    """The model's fields, at a size for a CPU if asked."""
    return fields | {name: value for name, value in SMALL.items() if name in fields} if small else fields


# JAX


def train_jax(out: Path, name: str, small: bool, fields: dict[str, Any], batch: int, seq: int) -> dict[str, Any]:
    """Three training steps of our own trainer: AdamW, bf16, nothing recomputed but what attention needs."""
    import jax
    import jax.numpy as jnp
    import numpy

    from dragonscale.models.huggingface import load_config
    from dragonscale.runtime.numerics import read_numerics
    from dragonscale.runtime.place import mesh_of
    from dragonscale.runtime.train.settings import Order, RunSettings
    from dragonscale.runtime.train.step import make_trainer
    from dragonscale.training.plan.plan_file import parse_plan

    config = config_of(fields, small)
    batch, seq = (2, 32) if small else (batch, seq)
    plan = parse_plan(f"fsdp=1,microbatch={batch},remat=none")
    run = RunSettings(data=("none",), steps=10, batch=batch, seq=seq, dtype="bf16")
    program = load_config(config, name).program()
    trainer = make_trainer(Order(name, "", plan, run), program, read_numerics(config), mesh_of(plan, jax.devices()[:1]))
    state = trainer.start(0)
    rows = numpy.random.default_rng(0).integers(0, config["vocab_size"], (1, batch, seq + 1))
    tokens, targets = (
        jax.device_put(jnp.asarray(part, jnp.int32), trainer.batch) for part in (rows[..., :-1], rows[..., 1:])
    )
    flags = jax.device_put(jnp.zeros((1,), jnp.int32), trainer.flags)
    step: Any = trainer.step
    compiled = step.lower(state, tokens, targets, jnp.float32(1e-4), flags).compile()

    def once(state: Any) -> Any:
        state, found = compiled(state, tokens, targets, jnp.float32(1e-4), flags)
        return state, float(found["loss"])

    facts = {"model": config, "batch": batch, "seq": seq, "program": "train", "plan": str(plan), "steps": 3}
    return facts | recorded_jax(out, name, compiled, once, state, steps=3)


def without_graphs(out: Path, name: str, small: bool) -> dict[str, Any]:
    """The training step with every kernel launched by itself, where XLA's default records them into CUDA graphs."""
    import os

    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="
    return train_jax(out, name, small, LLAMA, 4, 2048)


def serve_jax(out: Path, name: str, small: bool, kind: str, batch: int, length: int, steps: int) -> dict[str, Any]:
    """Prefills, or decode steps one after the other, of our own program with weights in lists, as a decode loop wants
    them."""
    import jax
    import jax.numpy as jnp

    from dragonscale.models.huggingface import load_config
    from dragonscale.runtime.decode import decode, empty_cache, prefill
    from dragonscale.runtime.forward import unstacked
    from dragonscale.runtime.lines import PassSetting
    from dragonscale.runtime.numerics import read_numerics
    from dragonscale.runtime.parameters import initialise

    config = config_of(LLAMA, small)
    batch, length = (2, 32) if small else (batch, length)
    program, setting = load_config(config, name).program(), PassSetting(read_numerics(config), jnp.bfloat16)
    params = jax.jit(
        lambda: jax.tree.map(lambda one: one.astype(jnp.bfloat16), initialise(program, jax.random.key(0)))
    )()
    params = unstacked(params)
    cache = empty_cache(program, batch, length, listed=True)
    whole = kind == "prefill"
    tokens = jnp.ones((batch, length) if whole else (batch,), jnp.int32)
    places = jnp.full((batch,), length if whole else length // 2, jnp.int32)
    function = prefill if whole else decode

    def serving_step(params: Any, tokens: Any, places: Any, cache: Any) -> Any:
        logits, cache = function(params, program, tokens, places, cache, setting)
        return jnp.argmax(logits, -1).astype(jnp.int32), places + 1, cache

    compiled = jax.jit(serving_step, donate_argnums=3).lower(params, tokens, places, cache).compile()

    def once(state: Any) -> Any:
        newest, at, cache = state
        made, later, cache = compiled(params, newest, at, cache)
        made.block_until_ready()
        return ((newest, at, cache) if whole else (made, later, cache)), 0.0

    facts = {"model": config, "batch": batch, "length": length, "program": kind, "steps": steps}
    return facts | recorded_jax(out, name, compiled, once, (tokens, places, cache), steps)


def recorded_jax(
    out: Path, name: str, compiled: Any, once: Callable[[Any], Any], state: Any, steps: int
) -> dict[str, Any]:
    """Steps timed, then recorded; files written."""
    import jax

    times = []
    for _ in range(4 if steps <= 3 else 2 * steps):
        start = time.perf_counter()
        state, _ = once(state)
        times.append(time.perf_counter() - start)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every Python call would be an event
    options.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        for _ in range(steps):
            state, _ = once(state)
        jax.profiler.stop_trace()
        for ending in ("xplane.pb", "trace.json.gz"):
            for found in Path(folder).rglob(f"*.{ending}"):
                kept(found, out / f"{name}.{ending.removesuffix('.gz')}.gz")
    text = compiled.as_text()
    (out / f"{name}.hlo.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    analysis = compiled.cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis or {}
    return {
        "step_s": statistics.median(times[1:]),
        "steps_s": times,
        "device": jax.devices()[0].device_kind,
        "xla_flops": analysis.get("flops"),
        "xla_bytes": analysis.get("bytes accessed"),
        "jax": jax.__version__,
    }


def kept(source: Path, target: Path) -> None:
    """A file, gzipped where it is not yet."""
    content = source.read_bytes()
    target.write_bytes(content if source.suffix == ".gz" else gzip.compress(content, mtime=0))


# PyTorch


def train_torch(out: Path, name: str, small: bool, compiled: bool, modules: bool) -> dict[str, Any]:
    """Training steps of a plain LLaMA in PyTorch, with AdamW, as its own profiler records them."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.flop_counter import FlopCounterMode

    from tools.plain_llama import Attention, Llama

    on = "cuda" if torch.cuda.is_available() else "cpu"
    config = config_of(LLAMA, small) | ({"num_hidden_layers": 2} if modules else {})
    batch, seq, steps = (2, 32, 3) if small else (4, 2048, 2 if modules else 3)
    torch.manual_seed(0)
    model = Llama(config).to(on, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on == "cuda")
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(0, config["vocab_size"], (batch, seq + 1), device=on)

    def once() -> None:
        loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if on == "cuda":
            torch.cuda.synchronize()

    Attention.repeats = True
    with FlopCounterMode(display=False) as counter:
        model(tokens[:, :-1], tokens[:, 1:]).backward()
    Attention.repeats = False
    optimizer.zero_grad(set_to_none=True)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on == "cuda" else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=1, active=steps),
        record_shapes=True,
        with_modules=True,
        with_stack=modules,
        with_flops=True,
    ) as prof:
        for _ in range(steps + 2):
            once()
            prof.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        kept(path, out / f"{name}.trace.json.gz")
    return {
        "model": config,
        "batch": batch,
        "seq": seq,
        "program": "train",
        "steps": steps,
        "steps_s": times,
        "step_s": statistics.median(times[2:]),
        "matmul_flops": counter.get_total_flops(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on == "cuda" else "cpu",
        "compiled": compiled,
    }


PARTS: dict[str, Callable[[Path, str, bool], dict[str, Any]]] = {
    "jax_train": lambda out, name, small: train_jax(out, name, small, LLAMA, 4, 2048),
    "jax_decode": lambda out, name, small: serve_jax(out, name, small, "decode", 16, 1024, 16),
    "torch_train": lambda out, name, small: train_torch(out, name, small, compiled=False, modules=False),
    "jax_prefill": lambda out, name, small: serve_jax(out, name, small, "prefill", 4, 2048, 3),
    "jax_gemma": lambda out, name, small: train_jax(out, name, small, GEMMA, 2, 2048),
    "jax_moe": lambda out, name, small: train_jax(out, name, small, MIXTRAL, 4, 2048),
    "jax_launches": lambda out, name, small: without_graphs(out, name, small),
    "torch_compiled": lambda out, name, small: train_torch(out, name, small, compiled=True, modules=False),
    "torch_modules": lambda out, name, small: train_torch(out, name, small, compiled=False, modules=True),
}


def main() -> None:
    """All parts, or one in this process."""
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("out", type=Path)
    reader.add_argument("--only", default=",".join(PARTS))
    reader.add_argument("--small", action="store_true")
    reader.add_argument("--here", action="store_true", help="run the part in this process")
    reader.add_argument("--budget", type=float, default=1e9, help="seconds after which no part is begun, nor goes on")
    asked = reader.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for name in asked.only.split(","):
        if asked.here:
            facts = PARTS[name](asked.out, name, asked.small)
            (asked.out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
            continue
        left = asked.budget - (time.monotonic() - begun)
        if left < 5:
            print(f"{name}: no time left", flush=True)
            continue
        command = [sys.executable, "-m", "tools.record_profiles", str(asked.out), "--only", name, "--here"]
        try:
            done = subprocess.run(
                [*command, *(["--small"] if asked.small else [])], timeout=left, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            done = "out of time"
        sizes = {path.name: path.stat().st_size for path in sorted(asked.out.glob(f"{name}.*"))}
        print(f"{name}: {done}, {time.monotonic() - begun:.0f} s, {sizes}", flush=True)


if __name__ == "__main__":
    main()
