"""Where the ops between two placed matmuls belong: norms to the part that they feed, activations and casts to the
matmul that they stand beside.

In the backward pass a norm comes after what it fed. Between two steps stand the last gradients, the update and the
lookup of the next tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.plan.ledger import COLLECTIVES

_FIXED = ("loss", "optimizer", "sampling", "router", "experts", "head", "attention")
"""Parts that a kernel's name says without doubt, wherever it stands."""


@dataclass(frozen=True)
class Placing:
    """Where in the model and the step one event stands."""

    section: str = ""
    phase: str = ""
    what: str = ""


def is_norm(role: OpRole) -> bool:
    """Whether an op is a norm, or a piece of one: a mean that no name places elsewhere."""
    named = role.what == "norm" or (role.section == "norm" and role.kind in ("reduction", "elementwise"))
    return named or (role.kind == "reduction" and role.section == "" and role.what == "")


def fill_between(sequence: Sequence[OpRole], labels: dict[int, Placing]) -> list[Placing]:
    """Everything between the matmuls, by those on both sides."""
    found = [Placing()] * len(sequence)
    places = sorted(labels)
    for place, following in pairwise([*places, len(sequence)]):
        routes = sequence[place].kind == "matmul" and any(
            role.section == "router" for role in sequence[place + 1 : following]
        )
        chosen = Placing("router", labels[place].phase) if routes else labels[place]
        found[place] = _named(sequence[place], chosen)
    for left, right in zip([-1, *places], [*places, len(sequence)], strict=False):
        if right - left < 2:
            continue
        gap = range(left + 1, right)
        before, after = labels.get(left, Placing()), labels.get(right, Placing())
        for place, placing in zip(gap, _gap([sequence[place] for place in gap], before, after), strict=True):
            found[place] = placing
    return found


def _named(role: OpRole, placing: Placing) -> Placing:
    """A matmul that its name already places stays there."""
    if role.section and role.section != "norm":
        return Placing(
            role.section,
            role.phase or placing.phase,
            role.what or (placing.what if role.section == placing.section else ""),
        )
    return placing


def _gap(roles: list[OpRole], before: Placing, after: Placing) -> list[Placing]:
    """The ops between two matmuls. At the ends of a step lookups, losses and sampling keep the part that their names
    say."""
    if before.phase == "backward" and after.phase in ("forward", ""):
        return _between_steps(roles, before, after)
    norms = [number for number, role in enumerate(roles) if is_norm(role)]
    again = before.phase == "backward" and after.phase == "recompute"
    back = (before.phase == "backward" or after.phase == "backward") and not again
    turn = len(roles) if not norms else (norms[-1] + 1 if back else norms[0])
    if again:
        turn = 1 + max((number for number, role in enumerate(roles) if role.phase == "backward"), default=-1)
    edge = before.section in ("head", "") or after.section == ""
    lookup = _lookup(roles) if edge else len(roles)
    found: list[Placing] = []
    for number, role in enumerate(roles):
        near = before if number < turn and not (role.kind in ("copy", "memory") and not norms) else after
        if lookup < len(roles):
            near = before if number < lookup else after
        near = near if near.section else (after if after.section else before)
        ends = edge or (before.section != after.section and "head" in (before.section, after.section))
        if role.section in _FIXED or (role.section == "embedding" and ends):
            found.append(
                Placing(
                    role.section, role.phase or ("update" if role.section == "optimizer" else near.phase), role.what
                )
            )
        else:
            section = "mlp" if role.section == "mlp" and near.section not in ("mlp", "experts") else near.section
            found.append(
                Placing(before.section if role.kind in COLLECTIVES else section, role.phase or near.phase, role.what)
            )
    return found


def _between_steps(roles: list[OpRole], before: Placing, after: Placing) -> list[Placing]:
    """From the last gradient of a step to the first matmul of the next: gradients, the update, the lookup of the next
    tokens."""
    lookup = _lookup(roles)
    if lookup == len(roles) and after.phase == "forward":
        lookup = max((number for number, role in enumerate(roles) if role.kind == "gather"), default=len(roles))
    found: list[Placing] = []
    for number, role in enumerate(roles):
        if role.section in _FIXED or role.section == "embedding" or number == lookup:
            section = "embedding" if number == lookup else role.section
            phase = role.phase or (
                "update" if section == "optimizer" else "forward" if number >= lookup else "backward"
            )
            found.append(Placing(section, phase, role.what))
        elif number > lookup:
            found.append(Placing(after.section, role.phase or after.phase, role.what))
        elif role.phase == "backward" or role.section == "norm":
            found.append(Placing(before.section, role.phase or before.phase, role.what))
        else:
            found.append(Placing("optimizer", "update", role.what))
    return found


def _lookup(roles: list[OpRole]) -> int:
    """Where the embedding of the tokens is looked up; the number of ops where that cannot be told."""
    return next(
        (number for number, role in enumerate(roles) if role.section == "embedding" and role.phase != "backward"),
        len(roles),
    )
