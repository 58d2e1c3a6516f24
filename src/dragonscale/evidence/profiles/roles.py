"""What an op of a profile is: its kind, the part of the model and the phase of the step it belongs to, its work, and
how that is known.

The words are those of the plan's ledger where it has them, so that what was measured can be laid beside what was
planned.
"""

import msgspec

from dragonscale.evidence.profiles.names import table
from dragonscale.plan.ledger import COLLECTIVES

KINDS = (*table("roles.toml")["kinds"], *COLLECTIVES)
SECTIONS = tuple(table("roles.toml")["sections"])
"""Kinds of work, and parts of a model: `roles.toml` says what each word means."""

PROGRAM, SCOPE, FEEDS, OUTSIDE = "program", "scope", "what it feeds", "outside of both passes"
NEIGHBOURS = "neighbours"
"""The order of kernels alone: a guess."""
"""How roles are known that the user's own program says."""


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
    why: tuple[str, ...] = ()
    """How it is known, in words: the `PROGRAM`, what an op `FEEDS`, a kernel name, an operator, neighbours."""

    @property
    def by_program(self) -> bool:
        """Whether its work was read off the program."""
        return PROGRAM in self.why[:1]

    @property
    def moves(self) -> bool:
        """Whether it is a collective."""
        return self.kind in COLLECTIVES
