"""An engine from an order: the model on its devices, as many pages as there is room for, every program compiled."""

import time
import zlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.errors import Infeasible
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.program import Program
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.parameters import scales, weights_of
from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.runner import ModelRunner, compiled_folder, keep_compiled, shapes_for
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.steps import EngineLimits
from dragonscale.runtime.serve.weights import Reader
from dragonscale.runtime.serve.wire import WorkerOrder
from dragonscale.runtime.serve.worker import Tell
from dragonscale.serving.plan import parse_serving_plan

RESERVE = 3e9
"""Bytes of a device beside weights, pages and what samples: activations of a step, what libraries take."""
FRACTION = 0.95
"""Of a GPU's memory, what XLA may take (XLA_PYTHON_CLIENT_MEM_FRACTION)."""
QUEUE = 1 << 20
"""The front bounds the queue."""


def build_engine(order: WorkerOrder, tell: Tell) -> tuple[ServingEngine, dict[str, Any]]:
    """The engine, and what there is to know of it."""
    if order.cpu:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", order.cpu)
    keep_compiled(compiled_folder())
    begun = time.perf_counter()
    tell("loading", 0, 1)
    model, plan = load_model(order.model), parse_serving_plan(order.plan)
    program, devices = model.program(), jax.devices()[: plan.chips]
    if len(devices) < plan.chips:
        raise Infeasible(f"The plan {plan} takes {plan.chips} devices, and there are {len(devices)}.")
    limits = EngineLimits(2, order.page, order.sequences, order.tokens, order.length, order.draft_tokens, plan.data)
    dtype = jnp.float32 if plan.compute == "fp32" else jnp.bfloat16
    wide = {
        name: "bf16" for name in ("weights", "kv", "compute", "wire") if getattr(plan, name) == "fp32"
    }  # by the dtype
    given = (program, numerics_of(order.model), replace(plan, **wide), devices)
    empty = ModelRunner(*given, None, limits, dtype)
    weights = empty.placement.put(_reader(order, program, dtype))
    jax.block_until_ready(weights)
    sampler = Sampler(limits, program.sections[0].dims["v"], empty.mesh, order.seed)
    pages = order.pages or _pages_that_fit(devices[0], order, empty.page_bytes, sampler.bytes)
    limits = replace(limits, pages=pages)
    runner, loaded = ModelRunner(*given, weights, limits, dtype), time.perf_counter()
    shapes = shapes_for(limits)
    runner.compile(shapes, _Progress(tell, 2 - order.lazy))
    if not order.lazy:
        sampler.compile(shapes, lambda done, total: tell("compiling", total + done, 2 * total))
    parameters = sum(int(numpy.prod(one.shape)) for of in weights_of(program).values() for one in of.values())
    engine = ServingEngine(runner, sampler, limits, shapes, prefixes=order.prefix_cache, queue=QUEUE, role=order.role)
    facts = {
        "pages": pages, "page_bytes": runner.page_bytes, "page": limits.page, "ranks": limits.ranks,
        "devices": plan.chips, "device_kind": devices[0].device_kind, "parameters": parameters,
        "load_s": loaded - begun, "compile_s": time.perf_counter() - loaded, "programs": len(shapes),
    }  # fmt: skip
    return engine, facts


class _Progress(Listener):
    """How far compiling is, as a part of all that is compiled."""

    def __init__(self, tell: Tell, parts: int) -> None:
        super().__init__()
        self.tell, self.parts = tell, parts

    def step(self, done: int, total: int) -> None:
        self.tell("compiling", done, self.parts * total)


def _pages_that_fit(device: Any, order: WorkerOrder, page_bytes: int, sampler: int) -> int:
    """Pages of a rank, beside what is there already."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        raise Infeasible(f"{device.device_kind} does not say how much memory it has; give --pages.")
    free = stats["bytes_limit"] / FRACTION * order.memory - stats["bytes_in_use"] - sampler - RESERVE
    pages = int(free // page_bytes)
    if pages * order.page < order.length:
        raise Infeasible(
            f"Beside the weights there is room for {max(pages, 0) * order.page:,} tokens of KV cache on a device, fewer than one "
            f"sequence of {order.length:,} has; split the model over more devices, or give a shorter --length."
        )
    return pages


def _reader(order: WorkerOrder, program: Program, dtype: Any) -> Reader:
    """Weights by name: of a checkpoint, or random ones that are made where they are used."""
    known = weights_of(program)
    if order.weights:
        from dragonscale.runtime.checkpoint import load_weights
        from dragonscale.runtime.safetensors import SafeTensors
        from dragonscale.runtime.serve.weights import reader_of

        return reader_of(load_weights(SafeTensors(order.weights), program, dtype))
    normal = jax.jit(lambda key, shape, scale: (jax.random.normal(key, shape) * scale).astype(dtype), static_argnums=1)

    def read(section: str, name: str, layer: int) -> Any:
        weight = known[section][name]
        shape = weight.shape[1:] if weight.stacked else weight.shape
        if name.startswith("w"):
            return jnp.full(shape, 1.0 if scales(name) else 0.0, dtype)
        key = jax.random.key(zlib.crc32(f"{order.seed} {section} {name} {layer}".encode()))
        return normal(key, shape, weight.fan_in**-0.5)

    return read
