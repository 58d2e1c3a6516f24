"""Where tensors lie while a plan serves: weights stay, activations move, partial sums are added up where they are needed whole.

The layouts are those of `serving.rules`, and so is the order of moves (`serving.reading`): a product over a split dim
leaves partial sums, which stay as they are until a line needs them added up. Experts are dealt over `data` and `expert`;
tokens reach those of other `data` places by an AllToAll, or everybody gathers all tokens; along `expert` every chip has the
same tokens and picks those of its own experts.
"""

from dataclasses import dataclass, field
from typing import Any

from dragonscale.models.program import Op, Program, is_weight
from dragonscale.notation import Array
from dragonscale.runtime.place import Place, shared_heads
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.rules import HEADS, MESH, ServingRules, mesh_axes


@dataclass(frozen=True)
class ServingPlace(Place):
    """The layouts of a serving plan."""

    rules: ServingRules = field(default_factory=ServingRules)

    def at_rest(self, array: Array) -> Array:
        return self.rules.laid(array)

    def for_line(self, array: Array, held: Array, op: Op, dims: dict[str, int]) -> Array:
        if is_weight(array):
            return held
        if op.function == "attend" and "s" not in array.names:
            return self.fit(self.rules.attending(array), dims)
        return self.fit(self.rules.activation(array), dims) if held.partial else held

    def of_line(self, op: Op, operands: tuple[Array, ...], dims: dict[str, int]) -> Array:
        assert op.output is not None
        axes = {dim.name: dim.axes for array in operands for dim in array.dims if dim.axes}
        partial = tuple(axis for name in op.einsum.contracted for axis in axes.get(name, ()))
        rest = self.rules.activation(op.output)
        return self.fit(rest.with_layout({d.name: d.axes if d.name in axes else () for d in rest.dims}, partial), dims)

    def after_line(self, made: Array, dims: dict[str, int]) -> Array:
        del dims
        return made

    def looked_up(self, array: Array, split: tuple[str, ...]) -> Array:
        rest = self.fit(self.rules.activation(array), {})
        return rest.with_layout({dim.name: dim.axes for dim in rest.dims}, split)

    def copied(self, name: str, dims: dict[str, int]) -> tuple[str, ...]:
        axes = tuple(axis for axis in HEADS if axis in self.sizes)
        return axes if name == "k" and shared_heads(dims, self.ways(axes)) else ()

    @property
    def expert_axes(self) -> tuple[str, ...]:
        return ("data",) if self.rules.exchange and "data" in self.sizes else ()

    @property
    def gathered_axes(self) -> tuple[str, ...]:
        return ("data",) if not self.rules.exchange and "data" in self.sizes else ()

    @property
    def picked_axes(self) -> tuple[str, ...]:
        axes = ("expert",) if self.rules.exchange else ("data", "expert")
        return tuple(axis for axis in axes if axis in self.sizes)

    @property
    def token_axes(self) -> tuple[str, ...]:
        return ()


def serving_sizes(plan: ServingPlan, program: Program) -> dict[str, int]:
    """The mesh axes of a plan, all of them, slowest first."""
    heads = min((section.dims["k"] for section in program.sections if "k" in section.dims), default=1)
    found: dict[str, Any] = mesh_axes(plan, heads)
    return {axis: int(found[axis]) for axis in MESH}


def serving_place(plan: ServingPlan, program: Program, prompt: bool, exchange: bool) -> ServingPlace:
    """Where a plan's tensors lie while it computes prompts or single tokens."""
    sizes = {axis: size for axis, size in serving_sizes(plan, program).items() if size > 1}
    return ServingPlace(sizes, ServingRules(plan.spread, prompt, exchange))


def exchanges(plan: ServingPlan, program: Program) -> bool:
    """Whether tokens travel to experts by AllToAll: where experts are dealt over `data` places, as the planner has it."""
    experts = any("e" in section.dims for section in program.sections)
    return experts and plan.data > 1 and plan.expert >= plan.data
