"""The program of a request, lowered for devices that are only described: shapes, no values.

A process that compiles one request and says what it found: a `Request` as JSON on stdin, a `Made` on stdout.
"""

import importlib.metadata
import os
import resource
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.verify.records import Made, Request
from dragonscale.evidence.xla import gpu_target, tpu_target
from dragonscale.evidence.xla.call_graph import Taken
from dragonscale.evidence.xla.compiled import read_compiled
from dragonscale.evidence.xla.memory import DEVICE, HOST, parse_oom
from dragonscale.files import write_file
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.runtime.decode import serving_mesh, serving_step
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.place import exchanges, mesh_of, serving_sizes
from dragonscale.runtime.tick_table import COLUMNS, SCOPES, table_of
from dragonscale.runtime.train.settings import Order, RunSettings, check
from dragonscale.runtime.train.step import make_trainer
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.training.plan.pipeline_order import timeline
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.plan_file import parse_plan


def mesh_sizes(request: Request) -> dict[str, int]:
    """The mesh axes of a request's plan."""
    if request.program != "train":
        return serving_sizes(parse_serving_plan(request.plan), load_model(request.model).program())
    plan = parse_plan(request.plan)
    return {axis: getattr(plan, axis) for axis in AXES}


def turns_taken(request: Request) -> Taken:
    """How often the first rank of a pipeline takes each kind of turn in its walk through the schedule, by the scopes of
    the program; nothing without one."""
    plan = parse_plan(request.plan) if request.program == "train" else Plan()
    if plan.pipe == 1:
        return ()
    microbatches = request.batch // (plan.replicas * plan.microbatch)
    ticks = timeline(plan.schedule, plan.pipe, plan.virtual, microbatches)
    kinds = table_of(ticks, plan.pipe, plan.virtual).rows[:, 0, COLUMNS.index("kind")]
    return tuple((scope, int((kinds == kind).sum())) for kind, scope in SCOPES.items())


def lower(request: Request) -> Any:
    """The request's program, traced and lowered."""
    piece = parse_slice(request.slice)
    gpu = piece.chip.kind == "gpu"
    devices = gpu_target.devices(piece.chip, piece.chips) if gpu else tpu_target.devices(piece)
    return lower_training(request, devices) if request.program == "train" else lower_serving(request, devices)


def lower_serving(request: Request, devices: list[Any]) -> Any:
    """A prefill or a decode step."""
    plan, program = parse_serving_plan(request.plan), load_model(request.model).program()
    mesh = serving_mesh(plan, program, devices)
    numerics, sizes = numerics_of(request.model), (request.batch, request.sequence)
    experts = Mixing(request.capacity), exchanges(plan, program)
    step = serving_step(request.program, plan, program, numerics, mesh, *sizes, *experts)
    shapes = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), step.arguments)
    return step.compiled_free.lower(*shapes)


def lower_training(request: Request, devices: list[Any]) -> Any:
    """One step of the trainer."""
    plan = parse_plan(request.plan)
    if plan.chips != len(devices):
        piece = parse_slice(request.slice)
        cores = len(devices) // piece.chips
        each = f" ({cores} in each chip)" if cores > 1 else ""
        raise InputError(f"The plan {plan} is for {plan.chips} devices; XLA sees {len(devices)} in {piece}{each}.")
    run = RunSettings(data=("none",), steps=1, batch=request.batch, seq=request.sequence, dtype="bf16")
    order = check(Order(request.model, request.slice, plan, run))
    mesh = mesh_of(plan, devices)
    program = load_model(request.model).program()
    trainer = make_trainer(order, program, numerics_of(request.model), mesh, Mixing(request.capacity))
    tokens = jax.ShapeDtypeStruct((order.passes, run.batch // order.passes, run.seq), jnp.int32)
    flags = jax.ShapeDtypeStruct((plan.chips,), jnp.int32)
    step: Any = trainer.step
    lowered = step.lower(trainer.shape, tokens, tokens, jax.ShapeDtypeStruct((), jnp.float32), flags)
    if plan.offload == "optimizer" and not devices[0].addressable_memories():
        places = jax.tree.leaves(trainer.shape)
        gpu_target.mark_hosted(lowered, [place for place, leaf in enumerate(places) if leaf.ndim])
    return lowered


def versions(request: Request) -> dict[str, str]:
    """The versions of everything that decides what a compiler makes of a program."""
    names = ("jax", "jaxlib", "jax-cuda12-pjrt" if parse_slice(request.slice).chip.kind == "gpu" else "libtpu")
    return {name: importlib.metadata.version(name) for name in names}


def compile_request(request: Request) -> Made:
    """Lower, compile, read."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/(?=dragonscale/)")
    piece = parse_slice(request.slice)
    canonical = tpu_target.CANONICAL if piece.chip.kind == "tpu" and request.mode == "canonical" else {}
    start, known = time.monotonic(), versions(request)
    lowered = lower(request)
    try:
        compiled = lowered.compile(compiler_options={**canonical, **request.options} or None)
    except jax.errors.JaxRuntimeError as error:
        full = parse_oom(str(error))
        failed = str(error)[:2000] if full is None else ""
        return Made(known, time.monotonic() - start, _resident(), out_of_memory=full, failed=failed)
    text, memory = compiled.as_text(), compiled.memory_analysis()
    numbers = {name: int(getattr(memory, name)) for name in (*DEVICE, *HOST)}
    if folder := os.environ.get("DRAGONSCALE_KEEP_HLO"):
        write_file(f"{folder}/{request.key}.hlo", text, "The compiled module")
    found = read_compiled(text, numbers, mesh_sizes(request), turns_taken(request))
    return Made(known, time.monotonic() - start, _resident(), compiled=found)


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    """Answer the request on stdin; a mistake in it is said on stderr, in one sentence."""
    try:
        made = compile_request(msgspec.json.decode(sys.stdin.buffer.read(), type=Request))
    except InputError as error:
        sys.stderr.write(f"dragonscale: {error}\n")
        raise SystemExit(3) from None
    sys.stdout.buffer.write(msgspec.json.encode(made))


if __name__ == "__main__":
    main()
