"""What an op of a profile is: its kind, the part of the model and the phase of the step it belongs to, its work, and
how that is known.

The words are those of the plan's ledger where it has them, so that what was measured can be laid beside what was
planned.
"""

from typing import Literal

import msgspec

from dragonscale.plan.ledger import COLLECTIVES

KINDS = (
    "matmul",
    "grouped matmul",
    "attention",
    "elementwise",
    "reduction",
    "copy",
    "gather",
    "memory",
    "host",
    "control",
    *COLLECTIVES,
)
"""`attention`: its kernels, and without one the matmuls of its scores (`scores.py`); `reduction`: norms, softmax,
losses; `copy`: layouts changed, arrays cast, joined or padded; `gather`: lookups, scatters, sorts; `memory`: sets and
copies inside a device; `host`: transfers to and from the host, and waits for it; `control`: loops, branches and calls,
whose time is that of what they run."""
SECTIONS = (
    "attention",
    "mlp",
    "experts",
    "router",
    "embedding",
    "head",
    "loss",
    "norm",
    "optimizer",
    "gradients",
    "weights",
    "sampling",
    "block",
)
"""Parts of a model. A norm belongs to the part that it feeds where that can be told. `gradients` and `weights` are
collectives of training that carry them for a part that is not known, `block` is work of a layer that belongs to no
part. Where a program has none of these parts, the section of its ops is the program's own name."""
PHASES = ("forward", "recompute", "backward", "gradient", "update", "prefill", "decode", "sampling")

Confidence = Literal["sure", "likely", "guess", ""]
"""`sure`: from the program itself (HLO, a scope); `likely`: from a kernel's or an operator's name; `guess`: from what
runs around it."""


class OpRole(msgspec.Struct, frozen=True):
    """What one op is. Numbers are those of one run on one device, None where they are not known."""

    kind: str = ""
    section: str = ""
    phase: str = ""
    what: str = ""
    """The tensor or op by its name, where that is known: Wq, Wo, up, down."""
    dtype: str = ""
    flops: float | None = None
    hbm_bytes: float | None = None
    wire_bytes: float | None = None
    """Bytes that one device sends, each time."""
    group: tuple[int, ...] = ()
    why: str = ""
    """How it is known: scope, program, shapes, kernel name, operator, neighbours."""
    confidence: Confidence = ""

    @property
    def moves(self) -> bool:
        """Whether it is a collective."""
        return self.kind in COLLECTIVES
