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
from dragonscale.serving.engine.formats import is_tied
from dragonscale.serving.engine.plan import ServingPlan, given_settings, mesh_axes, parse_serving_plan
from dragonscale.serving.iteration.kernel_times import KernelBench
from dragonscale.training.plan.timers import heated


@dataclass(frozen=True)
class Deployment:
    """A model served on a slice by an engine under a plan.

    The plan's degrees may be arrays, (plans,): many deployments at once, with one spread and one set of formats.
    """

    model: Transformer
    piece: Slice
    plan: ServingPlan
    launched_engine: Engine
    """The engine as it is launched; `engine` has the settings for the kind of chip."""
    transport: str = "ib"

    @cached_property
    def engine(self) -> Engine:
        """The engine with its settings on this kind of chip."""
        if self.launched_engine.tpu and self.chip.kind == "tpu":
            return on_kind(self.launched_engine, "tpu")
        return self.launched_engine

    @property
    def chip(self) -> Chip:
        """The chip of the slice."""
        return self.piece.chip

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The model's sections as prompts run through them."""
        return self.model.program().sections

    @cached_property
    def decoding(self) -> tuple[Section, ...]:
        """The model's sections as single tokens run through them, with latent attention in its absorbed form."""
        return tuple(absorbed(section) for section in self.sections)

    @cached_property
    def layers(self) -> int:
        """Layers of the model."""
        return sum(section.repeat for section in self.sections if section.name not in ("embed", "head"))

    @cached_property
    def tied(self) -> bool:
        """Whether the embedding is the output matrix too."""
        return is_tied(self.sections)

    @cached_property
    def mixed(self) -> bool:
        """Whether the model has experts."""
        return any(op.function == "dispatch" for section in self.sections for op in section.ops)

    @cached_property
    def latent(self) -> int:
        """The number of layers with latent attention (MLA), which decode in another form than they prefill."""
        pairs = zip(self.sections, self.decoding, strict=True)
        return sum(section.repeat for section, absorbed_form in pairs if section.ops != absorbed_form.ops)

    @cached_property
    def recurrent(self) -> int:
        """The number of layers with linear attention."""
        return sum(
            section.repeat for section in self.sections if any(op.function in ("scan", "delta") for op in section.ops)
        )

    @cached_property
    def kv_heads(self) -> int:
        """KV heads of the layer with the fewest that has a cache; a latent counts as one head."""
        heads: list[int] = []
        for section in self.sections:
            for op in section.ops:
                for array in op.inputs:
                    grows = "s" in array.names or "m" in array.names
                    if op.function == "cache" and grows:
                        heads.append(section.dims["k"] if "k" in array.names else 1)
        return min(heads, default=1)

    @cached_property
    def axes(self) -> dict[str, Any]:
        """Sizes of the mesh axes by name."""
        return mesh_axes(self.plan, self.kv_heads)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh axes as a mesh."""
        return Mesh(self.axes)

    @cached_property
    def readings(self) -> dict[tuple[str, bool], Reading]:
        """Cache of the sections that were read already, by name and for prompts or for single tokens."""
        return {}

    @cached_property
    def wires(self) -> Wires:
        """The physical links of each mesh axis."""
        return lay_wires(self.axes, self.piece, SERVING)

    @cached_property
    def kernels(self) -> KernelProfile:
        """The chip's kernel profile; under an engine that keeps the chip busy, it throttles earlier."""
        kernels = self.engine.kernels
        return heated(kernel_profile_for(self.chip, library=kernels.library), kernels.throttle)

    @cached_property
    def network(self) -> NetworkProfile:
        """The network's profile, with the engine's collectives."""
        return profile_for(self.chip, self.transport, self.engine.collectives.library)

    @cached_property
    def exchange_network(self) -> NetworkProfile:
        """The network's profile for tokens on their way to experts and back."""
        library = "deepep" if self.engine.experts.exchange == "all_to_all" else "nccl"
        return profile_for(self.chip, self.transport, library)

    @cached_property
    def timed(self) -> bool:
        """Whether profiles give seconds; for formulas there are only bounds."""
        return True

    @cached_property
    def axis_sizes(self) -> dict[str, int]:
        """The mesh axes of more than one chip, of one plan (or of many that are split alike)."""
        return {axis: int(numpy.ravel(size)[0]) for axis, size in self.axes.items() if not numpy.all(size == 1)}

    @property
    def exchanges(self) -> bool:
        """Whether tokens are sent to the experts of other data ranks (all-to-all), instead of gathered by all ranks."""
        exchange = self.engine.experts.exchange
        if exchange == "dealt":
            # sent only if experts are dealt out over all data ranks
            data, expert = (numpy.ravel(degree)[0] for degree in (self.plan.data, self.plan.expert))
            return bool(self.mixed and data > 1 and expert >= data)
        return exchange == "all_to_all"

    def bench(self, section: Section, prompt: bool, costed: dict[object, Any] | None = None) -> KernelBench:
        """What a section's kernels run on; `costed` caches lines that sections of one iteration share."""
        return KernelBench(
            self.kernels,
            self.engine,
            self.plan,
            self.mesh,
            section,
            phase="prefill" if prompt else "decode",
            exchange=self.exchanges,
            timed=self.timed,
            costed={} if costed is None else costed,
            layers=self.layers,
            tied=self.tied,
        )

    def rules(self, prompt: bool, section: Section | None = None) -> Rules:
        """The sharding rules of prompts or of single tokens.

        In a compiled program, axes split no dim of a section that they do not divide.
        """
        rules = serving_rules(self.plan.spread, prompt, self.exchanges)
        if section is None or not self.engine.program.divided:
            return rules
        rules = rules.among(self.axis_sizes)
        arrays = dict.fromkeys(array for op in section.ops for array in op.arrays)
        return replace(rules, undivided=undivided(rules, arrays, section.dims, self.axis_sizes))


def shared(name: str) -> cached_property[Any]:
    """A property of a deployment that is derived from another, its `origin`, with the same value in both."""
    return cached_property(lambda deployment: getattr(deployment.origin, name))


def filling(plan: ServingPlan, chips: Slice) -> ServingPlan:
    """The plan with the `tensor` degree that fills the slice."""
    others = plan.chips // plan.tensor
    if chips.chips % others:
        raise InputError(
            f"The plan {plan} splits {others} ways, which does not divide the {chips.chips} chips of {chips}."
        )
    return replace(plan, tensor=chips.chips // others)


def deploy(
    model: str | Transformer,
    on: str | Slice,
    plan: str | ServingPlan = "",
    engine: str | Engine = "generic",
    transport: str = "ib",
) -> Deployment:
    """A deployment from names: `deploy("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8")`.

    A plan without `tensor` uses the whole slice for it.

    >>> deploy("llama3-70b", "v5e:4x4").plan.tensor
    16
    """
    if isinstance(model, str):
        model = load_model(model)
    if isinstance(on, str):
        on = parse_slice(on)
    if isinstance(engine, str):
        engine = load_engine(engine)
    if isinstance(plan, str):
        text, plan = plan, parse_serving_plan(plan)
        if "tensor" not in given_settings(text):
            plan = filling(plan, on)
    return Deployment(model, on, plan, engine, transport)
