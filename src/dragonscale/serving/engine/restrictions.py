"""What releases of engines refuse or get wrong beyond the rules of `legality.toml`: the rows of `restrictions.toml`.

>>> from dragonscale.physics.hardware import load_chip
>>> h100, plan = load_chip("h100"), ServingPlan(data=40, expert=40)
>>> [bool(restriction("sglang-ep", h100, True, plan, role).why) for role in ROLES]
[True, True, False]
>>> restriction("vllm", h100, False, ServingPlan(tensor=4, pipe=2), "prefill").take
'pipe=1'
"""

import functools
from dataclasses import dataclass

import msgspec

from dragonscale.physics.hardware import Chip, Tree
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.engine.legality import architecture, server_of
from dragonscale.serving.engine.plan import ServingPlan

BOTH, PREFILL, DECODE = ROLES = ("both", "prefill", "decode")
"""What a replica is for: prefill and decode, or one of them in a pool of its own."""
SERVER = 8
"""GPUs of a server that `servers` counts."""


class RestrictionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of the table, whose head says what each field means."""

    engines: tuple[str, ...]
    why: str
    release: str
    source: str
    architectures: tuple[str, ...] = ()
    roles: tuple[str, ...] = ROLES
    latent: bool | None = None
    over: dict[str, int] = {}
    kv: tuple[str, ...] = ()
    servers: tuple[int, ...] = ()
    unasked: bool = False
    take: str = ""

    def holds(self, plan: ServingPlan, role: str) -> bool:
        """Whether a plan of a replica with some role is restricted, by an engine on a chip that the row is for."""
        is_large = plan.chips > SERVER
        return (
            role in self.roles
            and all(getattr(plan, axis) > most for axis, most in self.over.items())
            and (not self.kv or plan.kv in self.kv)
            and (not self.servers or (is_large and plan.chips / SERVER not in self.servers))
        )


@dataclass(frozen=True)
class Restriction:
    """Why a plan does not run, and what to give instead; empty where it does."""

    why: str = ""
    take: str = ""


@functools.cache
def restriction_rows() -> tuple[RestrictionRow, ...]:
    """The table."""
    return msgspec.convert(
        shipped_table("serving.engine", "restrictions.toml")["restrictions"], tuple[RestrictionRow, ...]
    )


def restriction(
    engine: str, chip: Chip, latent: bool, plan: ServingPlan, role: str = BOTH, unasked: bool = False
) -> Restriction:
    """The first row that a plan breaks; `unasked` says that nobody asked for it, so that what nobody has run counts
    too. `latent` is whether the model has latent attention."""
    for row in _rows_for(engine, architecture(chip), _server_chips(chip), latent):
        if row.holds(plan, role) and (unasked or not row.unasked):
            return Restriction(row.why.format(engine=engine, plan=plan), row.take)
    return Restriction()


def _server_chips(chip: Chip) -> int:
    """Chips that the fast network joins; 0 on a torus."""
    return chip.network.levels[0].degree if isinstance(chip.network, Tree) else 0


@functools.cache
def _rows_for(engine: str, kind: str, joined: int, latent: bool) -> tuple[RestrictionRow, ...]:
    """The rows for an engine on a kind of chip and of model, whatever the plan."""
    base = engines()[engine].base if engine in engines() else ""
    names = {engine, server_of(engine), base}
    return tuple(
        row
        for row in restriction_rows()
        if names & {*row.engines}
        and (not row.architectures or kind in row.architectures)
        and row.latent in (None, latent)
        and (not row.servers or joined == SERVER)
    )
