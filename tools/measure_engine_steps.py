"""Time the engine's steps on the accelerator at hand, with random weights: what a step takes, and which kernels take
it.

    python -m tools.measure_engine_steps OUT [--model llama3-8b] [--layers 32] [--context 1024] [--steps d1,d64,f4096]
    [--plan tensor=1]

Steps: `d64` decodes 64 rows, `d64q4` four tokens of each, `f4096` a fresh prompt, `m64+1024` decodes beside a chunk of
1024 tokens of a prompt of which `context` tokens are cached. For each a line of JSON in OUT/steps.jsonl: seconds of a
step when they follow each other, seconds that the host needs to start one, seconds to compile; and in
OUT/NAME.kernels.json the kernels of one step, longest first.
"""

import argparse
import functools
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.models.huggingface import load_config
from dragonscale.models.load import model_fields
from dragonscale.runtime.numerics import read_numerics
from dragonscale.runtime.serve.runner import ModelRunner
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch
from dragonscale.serving.engine.plan import parse_serving_plan


def shape_of(text: str) -> StepShape:
    """A step as it is written above."""
    found = re.fullmatch(r"(?:d(\d+)(?:q(\d+))?|f(\d+)|m(\d+)\+(\d+))", text)
    if not found:
        raise SystemExit(f"{text!r} is not a step; write d64, d64q4, f4096 or m64+1024.")
    rows, queries, fresh, beside, chunk = found.groups()
    if fresh:
        return StepShape(0, 1, 1, int(fresh), True)
    return StepShape(int(beside), 1, 1, int(chunk)) if beside else StepShape(int(rows), int(queries or 1))


def filled(shape: StepShape, limits: EngineLimits, context: int) -> StepBatch:
    """A step whose rows all have `context` tokens before it."""
    batch = empty_batch(shape, limits.ranks, limits.width, limits.sequences)
    spread = numpy.random.default_rng(0).permutation(numpy.arange(1, limits.pages))
    at = used = 0
    for row in range(shape.rows):
        count = shape.queries if row < shape.decodes else shape.tokens
        before = 0 if shape.fresh else context
        places = numpy.arange(before, before + count)
        pages = -(-(before + count) // limits.page)
        table = spread[used : used + pages]
        used += pages
        batch.tables[:, row, :pages] = table
        batch.positions[:, at : at + count] = places
        batch.tokens[:, at : at + count] = numpy.arange(count) + row
        batch.writes[:, at : at + count] = table[places // limits.page] * limits.page + places % limits.page
        batch.lengths[:, row] = before + count
        batch.slots[:, row] = row % limits.sequences
        at += count
    if shape.prompts:
        batch.starts[:, 1] = at
        batch.reads[:, -1] = at - 1
    return batch


def random_weights(runner: ModelRunner) -> Any:
    """Weights as they are packed, from a generator on the devices."""

    @functools.cache  # a program for each shape, not for each weight
    def generator(size: tuple[int, ...], dtype: Any, where: Any) -> Any:
        def make() -> jax.Array:
            key = jax.random.key(0)
            if dtype == jnp.int8:
                return jax.random.randint(key, size, -127, 128, dtype)
            return jax.random.normal(key, size, dtype) * 0.02

        return jax.jit(make, out_shardings=where)

    def random(shape: Any) -> jax.Array:
        return generator(shape.shape, shape.dtype, shape.sharding)()

    return jax.tree.map(random, runner.placement.abstract())


def kernels(run: Any, folder: Path, steps: int) -> list[tuple[str, float, int]]:
    """What runs on the device in a step: name, seconds, how often."""
    with jax.profiler.trace(str(folder)):
        run(steps)
    path = next(iter(sorted(folder.rglob("*.xplane.pb"))))
    found: dict[str, list[float]] = {}
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        if "GPU" not in plane.name and "TPU" not in plane.name:
            continue
        for line in plane.lines:
            if "Stream" in line.name or "XLA Ops" in line.name:
                for event in line.events:
                    found.setdefault(event.name, []).append(event.duration_ns / 1e9)
    rows = [(name, sum(each) / steps, round(len(each) / steps)) for name, each in found.items()]
    return sorted(rows, key=lambda row: -row[1])


def rates() -> dict[str, float]:
    """What the chip reaches, hot: FLOP/s of a large matmul, bytes per second of a large copy (read and written) and of
    a sum."""

    def fastest(function: Any, *arguments: Any) -> float:
        function(*arguments).block_until_ready()
        found = []
        for _ in range(40):
            before = time.perf_counter()
            [function(*arguments) for _ in range(20)][-1].block_until_ready()
            found.append((time.perf_counter() - before) / 20)
        return statistics.median(found[20:])

    # Random numbers: a matmul of ones draws less power and runs faster.
    square, long = jax.random.normal(jax.random.key(0), (8192, 8192), jnp.bfloat16), jnp.ones(2**29, jnp.bfloat16)
    return {
        "matmul_flops": 2 * 8192**3 / fastest(jax.jit(jnp.matmul), square, square),
        "copy_bytes": 2 * long.nbytes / fastest(jax.jit(jnp.copy), long),
        "read_bytes": long.nbytes / fastest(jax.jit(lambda x: x.max()), long),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="llama3-8b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", default="d1,d2,d4,d8,d16,d64,f4096,m64+1024")
    parser.add_argument("--plan", default="tensor=1")
    parser.add_argument("--page", type=int, default=16)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--small", action="store_true", help="a tiny model, to try this on a CPU")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in model_fields(given.model).items() if name not in ("source", "parameters")}
    if given.small:
        fields |= {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
        fields |= {"num_hidden_layers": 2, "vocab_size": 128, "head_dim": 16}
    if given.layers:
        fields["num_hidden_layers"] = given.layers
    plan, shapes = parse_serving_plan(given.plan), [shape_of(text) for text in given.steps.split(",")]
    rows = max(max((shape.decodes for shape in shapes), default=1), 1)
    most = max(
        given.context + max(shape.tokens, shape.queries) if not shape.fresh else shape.tokens for shape in shapes
    )
    need = max(shape.rows * -(-(given.context + max(shape.tokens, 8)) // given.page) for shape in shapes) + 8
    limits = EngineLimits(need, given.page, rows, most, most, ranks=plan.data)
    program, numerics = load_config(fields).program(), read_numerics(fields)
    devices = jax.devices()[: plan.chips]
    started = time.perf_counter()
    bare = ModelRunner(program, numerics, plan, devices, None, limits)
    runner = ModelRunner(program, numerics, plan, devices, random_weights(bare), limits)
    print(f"{devices[0].device_kind}: weights after {time.perf_counter() - started:.1f} s", flush=True)
    last = jax.device_put(numpy.zeros((limits.ranks, rows + 1), numpy.int32), runner.by_rank)
    for text, shape in zip(given.steps.split(","), shapes, strict=True):
        try:
            row = measure(runner, filled(shape, limits, given.context), last, given.out / text, given.times)
        except Exception as error:  # the next step may do better
            row = {"error": f"{type(error).__name__}: {error}"[:2000]}
        row = {"step": text, "context": given.context, "plan": given.plan, **row}
        print(json.dumps(row), flush=True)
        with (given.out / "steps.jsonl").open("a") as file:
            print(json.dumps(row), file=file)
    if not given.small:  # after the steps, on a hot chip
        print(json.dumps(rates()), flush=True)


def measure(runner: ModelRunner, batch: StepBatch, last: jax.Array, out: Path, times: int) -> dict[str, Any]:
    """Times of one kind of step."""
    begun = time.perf_counter()
    runner.compile([batch.shape], moves=False)
    compiled = time.perf_counter() - begun

    def run(steps: int) -> float:
        before = time.perf_counter()
        made = [runner.run(batch, last) for _ in range(steps)]
        host = time.perf_counter() - before
        made[-1].block_until_ready()
        return host

    run(3)
    alone = min(run(1) for _ in range(5))  # nothing else is under way: what the host itself needs
    found, host = [], 0.0
    for _ in range(3):
        before = time.perf_counter()
        host = run(times)
        found.append((time.perf_counter() - before) / times)
    weights: Any = runner.weights
    read = sum(leaf.nbytes for leaf in jax.tree.leaves((weights["layers"], weights["head"])))
    keys = int((batch.lengths[0] // runner.limits.page).sum()) * runner.page_bytes
    row = {
        "seconds": sorted(found)[1],
        "host_s": host / times,
        "host_alone_s": alone,
        "compile_s": compiled,
        "weight_bytes": read,
        "key_bytes": keys,
    }
    rows = kernels(run, out, 3)
    out.with_suffix(".kernels.json").write_text(json.dumps(rows[:60], indent=0))
    for name, seconds, count in rows[:25]:
        print(f"  {seconds * 1e6:9.1f} us {count:5d} {name[:110]}", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main()
