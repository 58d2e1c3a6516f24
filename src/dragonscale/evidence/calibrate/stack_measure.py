"""Whole steps of our own program, timed on the device at hand, and where their time goes.

Programs are compiled from shapes, several at once, and then run one after the other with nothing beside them. A step of
training is waited for, as the training loop does; single tokens follow each other without waiting. Rows are written as
they are found, and those that the file has already are not measured again. Each row says how long the device was busy
and with what: the kernels of one more step, as JAX's profiler saw them.
"""

import json
import re
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.evidence.calibrate.stack_fit import DEVICE, Case, ServeCase, TrainCase, parts_of, timed_keys
from dragonscale.models import load_model
from dragonscale.models.program import Program
from dragonscale.runtime.decode import decode, empty_cache, prefill
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.forward import unstacked
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.parameters import initialise
from dragonscale.runtime.place import mesh_of
from dragonscale.runtime.train.settings import Order, RunSettings
from dragonscale.runtime.train.step import make_trainer
from dragonscale.training.plan.plan import Plan

AT_ONCE = 16
"""Programs that are compiled beside each other; XLA times candidates for its kernels one at a time all the same."""
KEPT_KERNELS = 60
"""Kernels of a row that are listed, the longest first."""
REPEATS = 6
HOT = 2.5
"""Seconds of steps before those that are timed: a chip that is kept busy computes more slowly than one that has rested.
"""
MANY = 24
"""Tokens that are decoded one after the other."""


@dataclass(frozen=True)
class CompiledStep:
    """A program that is ready: `start` makes what it works on, `step` goes from one to the next and `seen` is what to
    wait for."""

    start: Callable[[], Any]
    step: Callable[[Any], Any]
    seen: Callable[[Any], Any]
    text: str
    compile_s: float


def compiled(case: Case) -> CompiledStep:
    """A case's program, without running it."""
    return _compiled_training(case) if isinstance(case, TrainCase) else _compiled_serving(case)


def _key() -> jax.Array:
    return jax.random.key(0, impl="rbg")


def _tokens(program: Program, shape: tuple[int, ...]) -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(0, program.sections[0].dims["v"], shape, numpy.int32)


def _compiled_training(case: TrainCase) -> CompiledStep:
    program, numerics = load_model(case.model).program(), numerics_of(case.model)
    run = RunSettings(
        data=("-",), steps=1, batch=case.microbatch * case.passes, seq=case.seq, dtype="bf16", capacity=case.capacity
    )
    order = Order(case.model, "", Plan(microbatch=case.microbatch, remat=case.remat), run)
    trainer = make_trainer(order, program, numerics, mesh_of(order.plan, jax.devices()[:1]))
    shape = (case.passes, case.microbatch, case.seq)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=trainer.batch)
    rate = jax.ShapeDtypeStruct((), jnp.float32)
    stop = jax.ShapeDtypeStruct((1,), jnp.bool_, sharding=trainer.flags)
    began = time.perf_counter()
    step = trainer.step.lower(trainer.shape, tokens, tokens, rate, stop).compile()  # pyright: ignore[reportFunctionMemberAccess]
    compile_s = time.perf_counter() - began

    def first() -> Any:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), trainer.shape["optimizer"])
        return {"step": jnp.zeros((), jnp.int32), "params": initialise(program, _key()), "optimizer": zeros}

    make = jax.jit(first, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, trainer.shape)).lower().compile()

    def start() -> Any:
        own = jax.device_put(_tokens(program, shape), trainer.batch)
        stop = jax.device_put(numpy.zeros((1,), numpy.bool_), trainer.flags)
        return make(), (own, own, jax.device_put(numpy.float32(1e-5)), stop), None

    def one(held: Any) -> Any:
        state, rest, _ = held
        state, metrics = step(state, *rest)
        return state, rest, metrics

    return CompiledStep(start, one, lambda held: held[2], step.as_text() or "", compile_s)


def _compiled_serving(case: ServeCase) -> CompiledStep:
    program, numerics = load_model(case.model).program(), numerics_of(case.model)
    listed = case.kind == "decode"
    setting = PassSetting(numerics, jnp.bfloat16, mixing=Mixing(case.capacity or None))
    shape = (case.batch,) if listed else (case.batch, case.length)

    def weights() -> Any:
        made = initialise(program, _key(), jnp.bfloat16)
        return unstacked(made) if listed else made

    def cache() -> Any:
        return empty_cache(program, case.batch, case.length, jnp.bfloat16, listed)

    def run(weights: Any, tokens: jax.Array, at: jax.Array, cache: Any) -> Any:
        logits, cache = (decode if listed else prefill)(weights, program, tokens, at, cache, setting)
        return jnp.argmax(logits, -1).astype(jnp.int32), cache

    shapes = (
        jax.eval_shape(weights),
        jax.ShapeDtypeStruct(shape, jnp.int32),
        jax.ShapeDtypeStruct((case.batch,), jnp.int32),
        jax.eval_shape(cache),
    )
    began = time.perf_counter()
    step = jax.jit(run, donate_argnums=3).lower(*shapes).compile()
    compile_s = time.perf_counter() - began
    make, empty = jax.jit(weights).lower().compile(), jax.jit(cache).lower().compile()

    def start() -> Any:
        at = numpy.full((case.batch,), case.length - listed, numpy.int32)
        return make(), jax.device_put(_tokens(program, shape)), jax.device_put(at), empty()

    def one(held: Any) -> Any:
        own, tokens, at, kept = held
        chosen, kept = step(own, tokens, at, kept)
        return own, chosen if listed else tokens, at, kept

    return CompiledStep(start, one, lambda held: held[3], step.as_text() or "", compile_s)


def timed(case: Case, program: CompiledStep) -> dict[str, Any]:
    """A case's seconds: medians of single steps, or of runs of many tokens; and what the device did."""
    held = program.start()
    decoding = isinstance(case, ServeCase) and case.kind == "decode"
    began, warmed = time.perf_counter(), 0
    while warmed < 2 or (not decoding and time.perf_counter() - began < HOT):
        held = program.step(held)
        jax.block_until_ready(program.seen(held))
        warmed += 1
    many = MANY if decoding else 1
    taken: list[float] = []
    while len(taken) < REPEATS and (sum(taken) < 6.0 or len(taken) < 3):
        began = time.perf_counter()
        for _ in range(many):
            held = program.step(held)
        jax.block_until_ready(program.seen(held))
        taken.append((time.perf_counter() - began) / many)
    row = {
        "key": case.key,
        "s": statistics.median(taken),
        "least_s": min(taken),
        "times": len(taken),
        "hot_s": HOT,
        "compile_s": round(program.compile_s, 2),
    }
    try:
        row |= profiled(program, held)
    except Exception as error:  # the time is there all the same
        row["profile_error"] = f"{type(error).__name__}: {error}"[:300]
    return row


def profiled(program: CompiledStep, held: Any) -> dict[str, Any]:
    """How long the device computed in one more step, in how many kernels, and the longest of them with the lines they
    come from."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(program.seen(program.step(held)))
        path = next(Path(folder).rglob("*.xplane.pb"))
        data = jax.profiler.ProfileData.from_file(str(path))
        seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        counts: Counter[tuple[str, str]] = Counter()
        spans: list[tuple[float, float]] = []
        for name, op, start, length in _device_events(data):
            seconds[name, op] += length
            counts[name, op] += 1
            spans.append((start, start + length))
    lines = _origins(program.text)
    kernels = [
        [name[:90], op, counts[name, op], round(length / 1e3, 2), lines.get(op) or lines.get(name, "")]
        for (name, op), length in sorted(seconds.items(), key=lambda one: -one[1])[:KEPT_KERNELS]
    ]
    return {
        "busy_s": _covered(spans) / 1e9,
        "kernels_s": sum(seconds.values()) / 1e9,
        "launched": len(spans),
        "span_s": (max(e for _, e in spans) - min(s for s, _ in spans)) / 1e9 if spans else 0.0,
        "parts": parts_of((name, length / 1e9) for (name, _), length in seconds.items()),
        "kernels": kernels,
    }


def _device_events(data: Any) -> Iterator[tuple[str, str, float, float]]:
    """(kernel, HLO op, start, nanoseconds) of what ran on the device's streams."""
    for plane in data.planes:
        if not plane.name.startswith("/device:"):
            continue
        for line in plane.lines:
            if "Stream" not in line.name:
                continue
            for event in line.events:
                stats = dict(event.stats)
                yield event.name, str(stats.get("hlo_op", "")), float(event.start_ns), float(event.duration_ns)


def _covered(spans: list[tuple[float, float]]) -> float:
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


_LINE = re.compile(r'^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name="([^"]*)"', re.MULTILINE)


def _origins(text: str) -> dict[str, str]:
    """The end of the path of JAX names behind every HLO op of a compiled program."""
    found: dict[str, str] = {}
    for match in _LINE.finditer(text):
        found.setdefault(match[1], match[2][-110:])
        found.setdefault(match[1].replace(".", "_").replace("-", "_"), match[2][-110:])
    return found


def measure(chosen: list[Case], path: Path, budget: float, say: Callable[[str], None] = print) -> None:
    """Rows of cases into a file, in waves of programs compiled together, until the seconds are spent; what the file has
    already is not timed again."""
    began = time.perf_counter()
    done = timed_keys(path)
    if DEVICE not in done:
        own = {"key": DEVICE, "device": jax.devices()[0].device_kind, "software": {"jax": jax.__version__}}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(own) + "\n")
    left = [case for case in chosen if case.key not in done]
    while left and time.perf_counter() - began < budget:
        wave, left = left[:AT_ONCE], left[AT_ONCE:]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ready = [(case, pool.submit(compiled, case)) for case in wave]
            for _, future in ready:
                future.exception()
        say(f"[{time.perf_counter() - began:6.1f} s] compiled {len(wave)} programs, {len(left)} left")
        for case, future in ready:
            if time.perf_counter() - began > budget:
                break
            try:
                row = timed(case, future.result())
            except Exception as error:  # one that fails must not lose the others
                row = {"key": case.key, "error": f"{type(error).__name__}: {error}"[:400]}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            shown = {name: value for name, value in row.items() if name not in ("kernels", "key")}
            say(f"[{time.perf_counter() - began:6.1f} s] {case.use:8} {case.key}: {shown}")
