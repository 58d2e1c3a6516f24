"""Whole steps of LLaMA shapes in JAX on the accelerator at hand: training, prefill, decode, beside what the chip does best.

    python -m tools.measure_jax_steps OUT.jsonl [--small]

Random bf16 weights. Decoding runs unstacked layers with the cache donated; training is AdamW in bf16 with each block
recomputed. The chip's own rates are measured first: a large product, and a read of memory.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.huggingface import load_config
from dragonscale.models.transformer import count_parameters
from dragonscale.runtime.decode import decode, empty_cache, prefill
from dragonscale.runtime.forward import forward, loss, unstacked
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import read_numerics
from dragonscale.runtime.parameters import initialise

SHAPES = {
    "1b": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "head_dim": 64,
    },
    "8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "head_dim": 128,
    },
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 8,
        "head_dim": 16,
    },
}


PROFILES = next(
    (argument.removeprefix("--profiles=") for argument in sys.argv if argument.startswith("--profiles=")), ""
)
"""Where to keep profiles of the steps (`--profiles=FOLDER`), read with any viewer of XLA traces."""


def config_of(name: str) -> dict[str, Any]:
    vocab = 256 if name == "tiny" else 128256
    return {
        "model_type": "llama",
        "vocab_size": vocab,
        "num_key_value_heads": 8,
        "rope_theta": 500000.0,
        **SHAPES[name],
    }


def timed(step: Callable[[], Any], repeats: int = 10) -> float:
    """Median seconds of a call after two that warm up."""
    times = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        jax.block_until_ready(step())
        if number > 1:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def chip_rates(size: int) -> dict[str, float]:
    """FLOP/s of a square product of random bf16, bytes/s of reading and writing an array."""
    a, b = (jax.random.normal(jax.random.key(i), (size, size), jnp.bfloat16) for i in range(2))
    product = jax.jit(lambda x, y: x @ y)
    big = jnp.ones((size * size * 16,), jnp.bfloat16)
    copy = jax.jit(lambda x: x * 1.0001)
    return {
        "matmul_flops_per_s": 2 * size**3 / timed(lambda: product(a, b)),
        "copy_bytes_per_s": 2 * big.nbytes / timed(lambda: copy(big)),
    }


def measure_decode(name: str, batches: tuple[int, ...], context: int) -> list[dict[str, Any]]:
    config = config_of(name)
    model = load_config(config)
    program, numerics = model.program(), read_numerics(config)
    params = unstacked(jax.jit(lambda k: initialise(program, k, jnp.bfloat16))(jax.random.key(0)))
    rows = []
    for batch in batches:
        cache = empty_cache(program, batch, context + 16, jnp.bfloat16, listed=True)
        step = jax.jit(
            lambda p, t, at, c: (lambda out: (jnp.argmax(out[0], -1), out[1]))(
                decode(p, program, t, at, c, PassSetting(numerics, jnp.bfloat16))
            ),
            donate_argnums=3,
        )
        tokens, at = jnp.zeros((batch,), jnp.int32), jnp.full((batch,), context, jnp.int32)
        start = time.perf_counter()
        tokens, cache = jax.block_until_ready(step(params, tokens, at, cache))
        compiled = time.perf_counter() - start
        many = 32
        begin = time.perf_counter()
        for _ in range(many):
            tokens, cache = step(params, tokens, at, cache)
        jax.block_until_ready(tokens)
        taken = (time.perf_counter() - begin) / many
        read = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) - params["embed"]["W_embed"].nbytes
        read += sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
        rows.append({"what": "decode", "model": name, "batch": batch, "context": context, "seconds": taken, "bytes": read,
                     "bytes_per_s": read / taken, "compile_s": compiled})  # fmt: skip
        print(rows[-1], flush=True)
        if PROFILES:
            with jax.profiler.trace(f"{PROFILES}/decode{batch}"):
                for _ in range(2):
                    tokens, cache = step(params, tokens, at, cache)
                jax.block_until_ready(tokens)
        del cache
    return rows


def measure_prefill(name: str, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    config = config_of(name)
    model = load_config(config)
    program, numerics = model.program(), read_numerics(config)
    params = jax.jit(lambda k: initialise(program, k, jnp.bfloat16))(jax.random.key(0))
    rows = []
    for length in lengths:
        cache = empty_cache(program, 1, length, jnp.bfloat16)
        tokens, ends = jnp.zeros((1, length), jnp.int32), jnp.full((1,), length, jnp.int32)
        step = jax.jit(lambda p, c, t=tokens, e=ends: prefill(p, program, t, e, c, PassSetting(numerics, jnp.bfloat16)))
        taken = timed(lambda step=step, cache=cache: step(params, cache), 5)
        flops = (
            2 * length * (count_parameters(model).active - model.vocab * model.d_model)
            + 2 * model.vocab * model.d_model
        )
        flops += 2 * length * length * model.n_layers * config["num_attention_heads"] * config["head_dim"]
        rows.append({"what": "prefill", "model": name, "tokens": length, "seconds": taken, "flops": flops,
                     "flops_per_s": flops / taken})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def measure_training(name: str, batch: int, length: int) -> dict[str, Any]:
    """AdamW by hand, all state in bf16 (for speed and room; not for learning)."""
    config = config_of(name)
    model = load_config(config)
    program, numerics = model.program(), read_numerics(config)
    params = jax.jit(lambda k: initialise(program, k, jnp.bfloat16))(jax.random.key(0))
    state = jax.tree.map(lambda p: (jnp.zeros_like(p), jnp.zeros_like(p)), params)
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, model.vocab)

    def remat(layer: Any) -> Any:
        return jax.checkpoint(layer)

    def step(params: Any, state: Any) -> Any:
        def cost(p: Any) -> jax.Array:
            return loss(
                forward(p, program, tokens[:, :-1], PassSetting(numerics, jnp.bfloat16), remat=remat), tokens[:, 1:]
            )

        value, grads = jax.value_and_grad(cost)(params)

        def update(
            p: jax.Array, g: jax.Array, s: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            first, second = 0.9 * s[0] + 0.1 * g, 0.95 * s[1] + 0.05 * g * g
            return (p - 1e-4 * first / (jnp.sqrt(second) + 1e-8)).astype(p.dtype), (
                first.astype(p.dtype),
                second.astype(p.dtype),
            )

        both = jax.tree.map(update, params, grads, state, is_leaf=lambda x: isinstance(x, tuple))
        is_pair = lambda x: isinstance(x, tuple) and len(x) == 2  # noqa: E731
        return (
            value,
            jax.tree.map(lambda x: x[0], both, is_leaf=is_pair),
            jax.tree.map(lambda x: x[1], both, is_leaf=is_pair),
        )

    run = jax.jit(step, donate_argnums=(0, 1))
    start = time.perf_counter()
    value, params, state = jax.block_until_ready(run(params, state))
    compiled = time.perf_counter() - start
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        value, params, state = jax.block_until_ready(run(params, state))
        times.append(time.perf_counter() - begin)
    if PROFILES:
        with jax.profiler.trace(f"{PROFILES}/training-{name}"):
            value, params, state = jax.block_until_ready(run(params, state))
    taken = sorted(times)[2]
    tokens_done = batch * length
    forward_flops = 2 * tokens_done * count_parameters(model).active
    forward_flops += 2 * batch * length * length * model.n_layers * config["num_attention_heads"] * config["head_dim"]
    row = {"what": "training", "model": name, "batch": batch, "tokens": length, "seconds": taken, "loss": float(value),
           "flops": 3 * forward_flops, "flops_per_s": 3 * forward_flops / taken,
           "computed_flops_per_s": 4 * forward_flops / taken, "compile_s": compiled}  # fmt: skip
    print(row, flush=True)
    return row


def main(path: str, small: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"what": "chip", "device": str(jax.devices()[0]), **chip_rates(256 if small else 8192)}
    ]
    print(rows[-1], flush=True)
    tasks: list[Callable[[], Any]] = [
        lambda: measure_decode("tiny" if small else "8b", (1, 64), 64 if small else 1024),
        lambda: measure_prefill("tiny" if small else "8b", (64,) if small else (2048, 8192)),
        lambda: [measure_training("tiny" if small else "1b", 2 if small else 8, 64 if small else 4096)],
        lambda: [measure_training("tiny" if small else "8b", 2, 64 if small else 4096)],
    ]
    for task in tasks[: 1 if "--decode" in sys.argv else None]:
        try:
            rows += task()
        except Exception as error:  # a measurement that fails must not lose the others
            rows.append({"error": str(error)[:500]})
            print(rows[-1], flush=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main(sys.argv[1], "--small" in sys.argv)
