"""What the kernels of a section run on, and how a kernel becomes a line of the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragonscale.models.program import Section
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.kernels import KernelProfile
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, ceil_to, maximum
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.engine.formats import TensorPlace, weight_bytes
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.iteration import ServingLine


@dataclass(frozen=True)
class KernelBench:
    """What the kernels of a section run on: a chip's profile, the engine, the plan's formats, the mesh.

    `exchange` is whether tokens are sent to experts (all-to-all). `timed` is False on symbols, for which no profile has
    seconds. `costed` caches what of the iteration is costed already. `layers` and `tied` are the model's: files of
    weights mix formats by layer.
    """

    profile: KernelProfile
    engine: Engine
    plan: ServingPlan
    mesh: Mesh
    section: Section
    phase: str
    exchange: bool = False
    timed: bool = True
    costed: dict[object, Any] = field(default_factory=dict)
    layers: int = 1
    tied: bool = False

    def once(self, make: Callable[..., Any], layout: object, sizes: Sequence[Number], *args: Any) -> Any:
        """`make(*args)`, or its earlier result for an equal layout and the same sizes.

        Blocks of a model differ in few of their kernels, and a block's two sums over tensor ranks are alike.
        """
        # Arrays are compared by identity. They are cached along, so that no other array gets the same id.
        key = (make, layout, *(size if isinstance(size, int | float) else id(size) for size in sizes))
        if key not in self.costed:
            self.costed[key] = make(*args), sizes
        return self.costed[key][0]

    def stored(self, part: str, weight: str) -> float:
        """Bytes of a stored weight of a tensor of the section."""
        return weight_bytes(self.plan, TensorPlace(part, weight, self.section.dims, self.layers, self.tied))

    @property
    def attention_dtype(self) -> str:
        """The format of prefill attention."""
        if self.engine.kernels.narrow_attention and dtype_bytes(self.plan.kv) == 1:
            return self.plan.kv
        return "bf16"

    @property
    def senders(self) -> Number:
        """Ranks that each send an expert rows of their own."""
        return self.mesh.size("data") if self.exchange else 1

    def size(self, array: Array, sizes: dict[str, Number]) -> Number:
        """Elements of an array on one chip."""
        return local_elements(array, sizes, self.mesh)

    def rows(self, count: Number) -> Number:
        """Rows that a matmul computes, padding included."""
        padded = self.engine.program.padded_rows
        if padded > 1 and self.profile.chip.kind == "gpu":
            return ceil_to(count, padded)
        return count

    def line(
        self,
        what: str,
        kind: str,
        part: str,
        term: str,
        dtype: str = "",
        flops: Number = 0.0,
        moved: Number = 0.0,
        seconds: Number = 0.0,
        issued: float = 1.0,
    ) -> ServingLine:
        """A kernel's line of `moved` bytes of HBM; it is never expected sooner than its bound."""
        compute: Number = 0.0
        if dtype:
            compute = flops / self.profile.peak(dtype)
        memory = moved / self.profile.bandwidth
        expected = bound = maximum(compute, memory)
        if self.timed:
            expected = maximum(seconds, bound)
        return ServingLine(
            self.section.name,
            self.phase,
            what,
            kind,
            times=self.section.repeat,
            part=part,
            term=term,
            flops=flops,
            hbm_bytes=moved,
            bound_s=bound,
            expected_s=expected,
            exposed_s=expected,
            compute_s=compute,
            memory_s=memory,
            issued=issued,
        )
