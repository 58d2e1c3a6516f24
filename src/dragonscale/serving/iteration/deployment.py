"""One copy of a model on one slice: what an iteration's cost and a chip's memory are functions of."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.models.latent import absorbed
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer
from dragonscale.physics.collectives.profile import NetworkProfile
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.hardware import Chip, Slice, parse_slice
from dragonscale.physics.kernels import KernelProfile, kernel_profile_for
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires, lay_wires
from dragonscale.plan.reader import Reading
from dragonscale.plan.rules import SERVING, Rules, serving_rules, undivided
from dragonscale.serving.engine.engine import Engine, load_engine, on_kind
from dragonscale.serving.engine.plan import ServingPlan, given_settings, mesh_axes, parse_serving_plan
from dragonscale.serving.iteration.kernel_times import KernelBench
from dragonscale.training.plan.timers import heated


@dataclass(frozen=True)
class Deployment:
    """A model served on a slice by an engine under a plan. The plan's numbers may be arrays: many deployments at once,
    of one structure; `spread` and the formats are the same for all."""

    model: Transformer
    piece: Slice
    plan: ServingPlan
    engine: Engine
    transport: str = "ib"

    def __post_init__(self) -> None:
        if self.engine.tpu and self.piece.chip.kind == "tpu":
            object.__setattr__(self, "engine", on_kind(self.engine, "tpu"))

    @property
    def chip(self) -> Chip:
        """The kind of chip."""
        return self.piece.chip

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The model's sections as prompts run through them."""
        return self.model.program().sections

    @cached_property
    def decoding(self) -> tuple[Section, ...]:
        """The same as single tokens do."""
        return tuple(absorbed(section) for section in self.sections)

    @cached_property
    def mixed(self) -> bool:
        """Whether the model has experts."""
        return any(op.function == "dispatch" for section in self.sections for op in section.ops)

    @cached_property
    def latent(self) -> int:
        """Layers of latent attention: those that single tokens run through in another form than prompts."""
        pairs = zip(self.sections, self.decoding, strict=True)
        return sum(section.repeat for section, single in pairs if section.ops != single.ops)

    @cached_property
    def recurrent(self) -> int:
        """Layers of linear attention."""
        return sum(one.repeat for one in self.sections if any(op.function in ("scan", "delta") for op in one.ops))

    @cached_property
    def kv_heads(self) -> int:
        """KV heads of the layer with the fewest that has a cache; a latent is one head."""
        ops = [(section, op) for section in self.sections for op in section.ops if op.function == "cache"]
        grown = [(section, array) for section, op in ops for array in op.inputs if {"s", "m"} & {*array.names}]
        found = [section.dims["k"] if "k" in array.names else 1 for section, array in grown]
        return min(found, default=1)

    @cached_property
    def axes(self) -> dict[str, Any]:
        """Sizes of the mesh axes."""
        return mesh_axes(self.plan, self.kv_heads)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh axes as a mesh."""
        return Mesh(self.axes)

    @cached_property
    def readings(self) -> dict[tuple[str, bool], Reading]:
        """Sections that were read already, for prompts or for single tokens."""
        return {}

    @cached_property
    def wires(self) -> Wires:
        """The wires of each mesh axis."""
        return lay_wires(self.axes, self.piece, SERVING)

    @cached_property
    def kernels(self) -> KernelProfile:
        """The chip's efficiency profile; under an engine that keeps the chip busy, matmuls run hot sooner."""
        own = self.engine.kernels
        return heated(kernel_profile_for(self.chip, library=own.library), own.throttle)

    @cached_property
    def network(self) -> NetworkProfile:
        """The networks' efficiency profile, with the engine's collectives."""
        return profile_for(self.chip, self.transport, self.engine.collectives.library)

    @cached_property
    def exchange_network(self) -> NetworkProfile:
        """The same for tokens on their way to experts."""
        library = "deepep" if self.engine.experts.exchange == "all_to_all" else "nccl"
        return profile_for(self.chip, self.transport, library)

    @cached_property
    def timed(self) -> bool:
        """Whether profiles say how long kernels take; on letters there are bounds only."""
        return True

    @cached_property
    def axis_sizes(self) -> dict[str, int]:
        """The mesh axes of more than one chip, of one plan (or of many that are split alike)."""
        return {axis: int(numpy.ravel(size)[0]) for axis, size in self.axes.items() if not numpy.all(size == 1)}

    @property
    def exchanges(self) -> bool:
        """Whether tokens are sent to experts of other data ranks, and not gathered by all."""
        how = self.engine.experts.exchange
        if how == "dealt":
            data, expert = (numpy.ravel(one)[0] for one in (self.plan.data, self.plan.expert))
            return bool(self.mixed and data > 1 and expert >= data)
        return how == "all_to_all"

    def bench(self, section: Section, prompt: bool, costed: dict[object, Any] | None = None) -> KernelBench:
        """What a section's kernels run on, beside what of an iteration is `costed` already."""
        how = "prefill" if prompt else "decode", self.exchanges, self.timed, {} if costed is None else costed
        return KernelBench(self.kernels, self.engine, self.plan, self.mesh, section, *how)

    def rules(self, prompt: bool, section: Section | None = None) -> Rules:
        """The layouts of prompts or of single tokens. In a compiled program's section axes split no dim that they do
        not divide."""
        found = serving_rules(self.plan.spread, prompt, self.exchanges)
        if section is None or not self.engine.program.divided:
            return found
        found = found.among(self.axis_sizes)
        arrays = dict.fromkeys(array for op in section.ops for array in op.arrays)
        return replace(found, undivided=undivided(found, arrays, section.dims, self.axis_sizes))


def filling(plan: ServingPlan, piece: Slice) -> ServingPlan:
    """The plan with as many `tensor` ways as fill the slice."""
    others = plan.chips // plan.tensor
    if piece.chips % others:
        raise InputError(
            f"The plan {plan} splits {others} ways, which does not divide the {piece.chips} chips of {piece}."
        )
    return replace(plan, tensor=piece.chips // others)


def deploy(
    model: str | Transformer,
    on: str | Slice,
    plan: str | ServingPlan = "",
    engine: str | Engine = "generic",
    transport: str = "ib",
) -> Deployment:
    """A deployment from names: `deploy("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8")`. A plan that leaves
    `tensor` out takes the whole slice for it.

    >>> deploy("llama3-70b", "v5e:4x4").plan.tensor
    16
    """
    found = load_model(model) if isinstance(model, str) else model
    piece = parse_slice(on) if isinstance(on, str) else on
    split = parse_serving_plan(plan) if isinstance(plan, str) else plan
    if isinstance(plan, str) and "tensor" not in given_settings(plan):
        split = filling(split, piece)
    return Deployment(found, piece, split, load_engine(engine) if isinstance(engine, str) else engine, transport)
