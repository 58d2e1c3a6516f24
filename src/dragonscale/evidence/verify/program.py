"""The program of a request, lowered for devices that are only described: shapes, no values."""

from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.evidence.verify.request import Request
from dragonscale.evidence.xla import gpu_target, tpu_target
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.runtime.decode import serving_mesh, serving_step
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.place import exchanges, mesh_of, serving_sizes
from dragonscale.runtime.train.settings import Order, RunSettings, check
from dragonscale.runtime.train.step import make_trainer
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.training.plan import AXES
from dragonscale.training.plan_file import parse_plan


def mesh_sizes(request: Request) -> dict[str, int]:
    """The mesh axes of a request's plan."""
    if request.program != "train":
        return serving_sizes(parse_serving_plan(request.plan), load_model(request.model).program())
    plan = parse_plan(request.plan)
    return {axis: getattr(plan, axis) for axis in AXES}


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
    step = serving_step(
        request.program,
        plan,
        program,
        numerics_of(request.model),
        mesh,
        request.batch,
        request.sequence,
        Mixing(request.capacity),
        exchanges(plan, program),
    )
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
    return step.lower(trainer.shape, tokens, tokens, jax.ShapeDtypeStruct((), jnp.float32), flags)
