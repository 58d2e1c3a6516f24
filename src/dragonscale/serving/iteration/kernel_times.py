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
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.iteration import ServingLine


@dataclass(frozen=True)
class KernelBench:
    """What the kernels of a section run on: a chip's profile, the engine, the plan's formats, the mesh. `exchange`
    says that tokens are sent to experts; `timed` is False on symbols, for which no profile has seconds; `costed` has
    what of the iteration is costed already."""

    profile: KernelProfile
    engine: Engine
    plan: ServingPlan
    mesh: Mesh
    section: Section
    phase: str
    exchange: bool = False
    timed: bool = True
    costed: dict[object, Any] = field(default_factory=dict)

    def once(self, make: Callable[..., Any], layout: object, sizes: Sequence[Number], *given: Any) -> Any:
        """`make` of what is given, or what it made of an equal layout and the same sizes before: blocks of a model
        differ in a part of themselves, and the two sums of one over its tensor ranks are alike."""
        key = (make, layout, *(size if isinstance(size, int | float) else id(size) for size in sizes))
        if key not in self.costed:
            self.costed[key] = make(*given), sizes  # which live on: their ids are nobody else's
        return self.costed[key][0]

    @property
    def attention_dtype(self) -> str:
        """The format in which a prompt attends."""
        narrow = self.engine.kernels.narrow_attention and dtype_bytes(self.plan.kv) == 1
        return self.plan.kv if narrow else "bf16"

    @property
    def senders(self) -> Number:
        """Ranks that send an expert rows of their own."""
        return self.mesh.size("data") if self.exchange else 1

    def size(self, array: Array, sizes: dict[str, Number]) -> Number:
        """Elements of an array on one chip."""
        return local_elements(array, sizes, self.mesh)

    def rows(self, count: Number) -> Number:
        """Rows of a matmul as they are computed."""
        padded = self.engine.program.padded_rows if self.profile.chip.kind == "gpu" else 1
        return ceil_to(count, padded) if padded > 1 else count

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
        """A kernel's line: never expected sooner than its bound."""
        compute = flops / self.profile.peak(dtype) if dtype else 0.0
        memory = moved / self.profile.bandwidth
        least = maximum(compute, memory)
        taken = maximum(seconds, least) if self.timed else least
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
            bound_s=least,
            expected_s=taken,
            exposed_s=taken,
            compute_s=compute,
            memory_s=memory,
            issued=issued,
        )
