"""A kernel or a move in one microbatch, and what it is costed with."""

from dataclasses import dataclass

from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.ledger import LedgerLine
from dragonscale.plan.rules import Rules
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack
from dragonscale.training.timers import Timer
from dragonscale.training.travel import Network

NARROW_PARTS = ("attention", "mlp", "experts", "shared")
"""Parts whose matmuls run in the plan's dtype; the head, the router and an indexer stay in bf16."""
LAUNCHES = {"route": 12.0, "dispatch": 8.0, "combine": 8.0, "attend": 2.0}
"""Kernels that a line stands for, where it is more than one: choosing experts, counting and sorting tokens."""
BLOCK_FORMATS = ("mxfp8", "nvfp4", "mxfp4")
BLOCK_SCALES = 2.0
"""Kernels of an expert's matmul in a format with block scales over those in others: beside the cast and the matmul the
scales of both operands are laid out anew (Transformer Engine, `te_general_grouped_gemm`)."""
STATISTIC_BYTES = 4.0
"""Sums, maxima and the router's weights travel in fp32, in the same messages as what they belong to."""


@dataclass(frozen=True)
class PassLine(LedgerLine):
    """A line in one microbatch. `ops` are the places of the ops it computes, with their FLOPs; `launches` counts
    kernels, `experts` those of a grouped matmul; `covers` is how long keys and values may travel over `context` under
    it. `kept`: a flash kernel whose sums are kept for its gradient, so that only `block` runs it again."""

    ops: tuple[tuple[int, Number], ...] = ()
    launches: Number = 0.0
    experts: Number = 0.0
    covers: Number = 0.0
    kept: bool = False


@dataclass(frozen=True)
class Costing:
    """What lines are costed with. Without a `timer` nothing is expected; `detail` asks for FLOPs, bytes and bounds too,
    `statistics` for the small things that travel along. `documents` is the mean length of those that a sequence is
    packed with."""

    plan: Plan
    stack: Stack
    chip: Chip
    timer: Timer | None
    network: Network
    detail: bool = True
    statistics: bool = True
    documents: Number | None = None

    def peak(self, part: str) -> Number:
        """FLOP/s of a part's matmuls at best."""
        return self.chip.peak(self.plan.dtype if part in NARROW_PARTS else "bf16")


def attending_sizes(sizes: dict[str, Number], rules: Rules, mesh: Mesh) -> dict[str, Number]:
    """Dims while attention runs: KV heads are copied where heads are dealt to more chips than there are of them."""
    if not rules.trades or "k" not in sizes:
        return sizes
    return sizes | {"k": maximum(sizes["k"], mesh.size(*rules.attend_heads))}
