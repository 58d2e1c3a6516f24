"""Plans that releases of engines refuse or compute wrongly, beyond the rules of `legality.toml`: `restrictions.toml`.

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

# What a replica is for: prefill and decode, or one of them in a disaggregated pool.
BOTH = "both"
PREFILL = "prefill"
DECODE = "decode"
ROLES = (BOTH, PREFILL, DECODE)
SERVER = 8
"""GPUs of one server, the unit of a row's `servers`."""


class RestrictionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of `restrictions.toml`; the head of that file documents each field."""

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
        """Whether the row restricts a plan in a role. The caller has matched engine, chip and model already."""
        # rows about whole servers say nothing of a copy that fits into one
        is_large = plan.chips > SERVER
        return (
            role in self.roles
            and all(getattr(plan, axis) > limit for axis, limit in self.over.items())
            and (not self.kv or plan.kv in self.kv)
            and (not self.servers or (is_large and plan.chips / SERVER not in self.servers))
        )


@dataclass(frozen=True)
class Restriction:
    """Why a plan does not run, and the setting to use instead; both empty for a plan that runs."""

    why: str = ""
    take: str = ""


@functools.cache
def restriction_rows() -> tuple[RestrictionRow, ...]:
    """All rows of `restrictions.toml`."""
    return msgspec.convert(
        shipped_table("serving.engine", "restrictions.toml")["restrictions"], tuple[RestrictionRow, ...]
    )


def restriction(
    engine: str, chip: Chip, latent: bool, plan: ServingPlan, role: str = BOTH, unasked: bool = False
) -> Restriction:
    """The first restriction that a plan breaks, or an empty one.

    `latent` is whether the model has latent attention (MLA). `unasked` marks a plan that a search came up with: for
    such plans the rows about what nobody has run count too.
    """
    for row in _rows_for(engine, architecture(chip), _server_chips(chip), latent):
        if row.holds(plan, role) and (unasked or not row.unasked):
            return Restriction(row.why.format(engine=engine, plan=plan), row.take)
    return Restriction()


def _server_chips(chip: Chip) -> int:
    """Chips of one server, joined by the lowest switch; 0 on a torus."""
    return chip.network.levels[0].degree if isinstance(chip.network, Tree) else 0


@functools.cache
def _rows_for(engine: str, kind: str, server_chips: int, latent: bool) -> tuple[RestrictionRow, ...]:
    """The rows that may restrict some plan of an engine on an architecture (`kind`), for models with or without MLA."""
    base = engines()[engine].base if engine in engines() else ""
    # a row for an engine also holds for its forms and for what is derived from it
    names = {engine, server_of(engine), base}
    return tuple(
        row
        for row in restriction_rows()
        if names & {*row.engines}
        and (not row.architectures or kind in row.architectures)
        and row.latent in (None, latent)
        and (not row.servers or server_chips == SERVER)
    )
