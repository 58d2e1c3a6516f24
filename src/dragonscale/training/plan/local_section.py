"""A section of the model as one chip has it in one microbatch: what memory and cost formulas are written on."""

from dataclasses import dataclass

from dragonscale.models.program import Section
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.rules import Rules
from dragonscale.training.plan.stack import Stack


@dataclass(frozen=True)
class LocalSection:
    """A section, its sharding rules, the sizes of its dims in one microbatch over the whole mesh, the mesh and the
    software. Sizes and mesh axes may be numbers, arrays over plans, or formulas."""

    section: Section
    rules: Rules
    sizes: dict[str, Number]
    mesh: Mesh
    stack: Stack

    @property
    def is_block(self) -> bool:
        """Whether it is a layer, and neither the embedding nor the head."""
        return "block" in self.section.name

    @property
    def tokens(self) -> Number:
        """Tokens of a microbatch on one chip between blocks; the residual stream may be split further over `tensor`."""
        sequences = self.sizes["b"] / self.mesh.size(*self.rules.batch)
        return sequences * self.sizes["t"] / self.mesh.size(*self.rules.tokens)

    def elements(self, array: Array, without: tuple[str, ...] = ()) -> Number:
        """Elements of an activation on one chip, leaving out some of its dims."""
        return local_elements(self.rules.activation(array), self.sizes, self.mesh, without)

    def routed(self) -> Array | None:
        """The rows that are sent to experts; None in a dense layer."""
        return next((op.output for op in self.section.ops if op.function == "dispatch"), None)
